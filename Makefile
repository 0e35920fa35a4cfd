# What can be made here. `make` alone says so.

.PHONY: help build test lint fuzz bench check vm

help:
	@echo "make build   the release programs, in target/release"
	@echo "make check   formatting, clippy, unit tests: seconds, for before a commit"
	@echo "make test    every test, end to end against the release programs"
	@echo "make lint    formatting, clippy, licences and bans"
	@echo "make fuzz    each fuzz target for FUZZ_SECONDS (default 20)"
	@echo "make vm      the programs on real Debian hosts in qemu: systemd, control groups, AppArmor (20 minutes)"
	@echo "make bench   the table of costs that the README shows"

build:
	cargo build --release --workspace --bins

check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --workspace --exclude tests

test: build
	cargo test --release --workspace

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo deny check licenses bans sources

fuzz:
	fuzz/run $(or $(FUZZ_SECONDS),20)

vm: build
	tests/vm/run

bench: build
	benches/run

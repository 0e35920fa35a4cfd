//! Assembles the system call filters from their lists, for every architecture that anet runs on: a filter for another one
//! than that of the build is there for the tests.

// A failure of a build script is a failure of the build: it may be as blunt as a test's.
#![allow(clippy::expect_used, clippy::unwrap_used, unreachable_pub)]

use std::fmt::Write as _;
use std::{env, fs, path::Path};

#[path = "src/seccomp"]
mod seccomp {
    pub mod assemble;
    pub mod calls;
    pub mod lists;
    pub mod rule;
}

use seccomp::{assemble, lists};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/seccomp");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    for architecture in &assemble::ARCHITECTURES {
        let mut text = String::new();
        for list in lists::ALL {
            let program = assemble::assemble(list, architecture);
            let name = list.name.to_uppercase();
            writeln!(text, "/// The filter `{0}`.\npub(crate) static {name}: Filter = Filter {{\n    list: &lists::{0}::LIST,", list.name)
                .expect("memory");
            writeln!(text, "    own_process: &{:?},\n    program: &[", program.own_process).expect("memory");
            for i in program.instructions {
                writeln!(text, "        i({}, {}, {}, {}),", i.code, i.jt, i.jf, i.k).expect("memory");
            }
            writeln!(text, "    ],\n}};").expect("memory");
        }
        fs::write(Path::new(&out).join(format!("{}.rs", architecture.name)), text)
            .expect("OUT_DIR is writable");
    }
}

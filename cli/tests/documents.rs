//! The documents that are made from the code say what the code says.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../examples/codes.rs"]
mod codes;

fn document(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// DIA-2: docs/CODES.md lists every code and every refusal sentence.
#[test]
fn codes_are_documented() {
    let told = "docs/CODES.md is old: cargo run -p cli --example codes > docs/CODES.md";
    assert!(document("CODES.md") == codes::document(), "{told}");
}

/// EGR-9: what an allowed host still is, and what is not seen, is said where an operator reads it.
#[test]
fn the_ways_out_that_are_left_are_said() {
    let readme = std::fs::read_to_string(format!("{}/../README.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    for text in [readme, document("THREAT-MODEL.md")] {
        assert!(text.contains("way out") && text.contains("domain fronting"));
    }
}

/// PRV-3: docs/PRIVILEGES.md is the manifest.
#[test]
fn privileges_are_documented() {
    let told = "docs/PRIVILEGES.md is old: cargo run -p confine --example privileges > docs/PRIVILEGES.md";
    assert!(document("PRIVILEGES.md").trim_end() == confine::manifest::document().trim_end(), "{told}");
}

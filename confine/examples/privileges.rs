//! Prints the page on privileges for the documentation: `cargo run -p confine --example privileges`.

fn main() {
    print!("{}", confine::manifest::document());
}

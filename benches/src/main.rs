//! The table of costs. Everything is measured side by side in one run, in turn, and written as ratios: machines are
//! noisy, and absolute times are those of one machine.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;
mod evidence;
mod memory;
mod model;
mod start;
mod tunnel;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {
            println!("| what | measured | target |\n| --- | --- | --- |");
            start::print();
            tunnel::print();
            memory::print();
            model::print();
            evidence::print();
        }
        ["start"] => start::print(),
        ["tunnel"] => tunnel::print(),
        ["memory"] => memory::print(),
        ["model"] => model::print(),
        ["evidence"] => evidence::print(),
        ["ask", rest @ ..] => model::client(rest),
        ["fetch", rest @ ..] => client::fetch(rest),
        ["open", rest @ ..] => client::open(rest),
        _ => {
            eprintln!(
                "anet-bench: no argument for the whole table, or one of: start tunnel memory model evidence"
            );
            std::process::exit(2);
        }
    }
}

/// What the tests' client takes a name in a hello to be: here, the name.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

//! What the kernel says: each test starts this program again as a process of one thread, has it confined, and looks at what
//! it still can. Where it can be told, the same is done without the confinement first, and must succeed: an attack that
//! fails everywhere proves nothing.

// Calls that no safe function makes, because no program of ours makes them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::undocumented_unsafe_blocks)]

mod attack;
mod enter;
mod harness;
mod run;
mod second_wall;
mod secret;
mod spawn;

use std::ffi::OsString;

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap()).collect();
    if let ["child", action, rest @ ..] = &words[1..] {
        let actions =
            [spawn::CHILDREN, enter::CHILDREN, run::CHILDREN, second_wall::CHILDREN, secret::CHILDREN]
                .concat();
        let (_, act) = actions.iter().find(|(name, _)| name == action).unwrap();
        attack::prepare();
        act(rest);
        return;
    }
    harness::run_all(
        &words[1..],
        &[spawn::TESTS, enter::TESTS, run::TESTS, second_wall::TESTS, secret::TESTS].concat(),
    );
}

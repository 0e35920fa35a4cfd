//! Attacks, one a call: `probe NAME [ARGUMENT...]`.
//!
//! Each does one thing that the sandbox must refuse, and says on one line of JSON whether it got away with it. The
//! exit status is 0 if it did, 1 if it was refused, 2 if the attack itself is broken: a probe that fails for another
//! reason than the sandbox proves nothing. The tests run every attack outside too, where it must succeed.
//!
//! This is the one program of the project with unsafe code outside confine's `sys`: attacks need system calls that no
//! safe wrapper offers, with arguments that none would pass. It is never shipped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod call;
mod devices;
mod files;
mod foreign;
mod kernel;
mod mounts;
mod namespaces;
mod network;
mod processes;
mod terminal;

use call::Errno;

/// What became of an attack.
enum Verdict {
    /// It got what it wanted.
    Succeeded(String),
    /// Something was in its way.
    Refused(String),
    /// It could not be tried: its own assumptions do not hold here.
    Broken(String),
}

impl Verdict {
    /// A call that does what it says.
    fn of<T: std::fmt::Debug>(result: Result<T, Errno>) -> Verdict {
        match result {
            Ok(value) => Verdict::Succeeded(format!("{value:?}")),
            Err(errno) => Verdict::Refused(errno.to_string()),
        }
    }

    /// A call with arguments that the kernel would find fault with if it came to read them: it did, unless the answer
    /// is one of a refusal.
    fn of_reaching_the_kernel<T: std::fmt::Debug>(result: Result<T, Errno>) -> Verdict {
        match result {
            Err(errno) if errno.is_refusal() => Verdict::Refused(errno.to_string()),
            Err(errno) => Verdict::Succeeded(format!("the kernel looked at the arguments: {errno}")),
            Ok(value) => Verdict::Succeeded(format!("{value:?}")),
        }
    }

    fn of_io<T>(result: std::io::Result<T>, describe: impl FnOnce(&T) -> String) -> Verdict {
        match result {
            Ok(value) => Verdict::Succeeded(describe(&value)),
            Err(error) => Verdict::Refused(error.to_string()),
        }
    }
}

type Attack = fn(&[String]) -> Verdict;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    let groups: [&[(&str, Attack)]; 9] = [
        network::ATTACKS,
        namespaces::ATTACKS,
        mounts::ATTACKS,
        processes::ATTACKS,
        foreign::ATTACKS,
        kernel::ATTACKS,
        terminal::ATTACKS,
        devices::ATTACKS,
        files::ATTACKS,
    ];
    if name == "--list" {
        for (name, _) in groups.iter().flat_map(|group| group.iter()) {
            println!("{name}");
        }
        return;
    }
    let attack = groups.iter().flat_map(|group| group.iter()).find(|(known, _)| *known == name);
    let verdict = match attack {
        Some((_, attack)) => attack(&arguments),
        None => Verdict::Broken("there is no such attack: probe --list prints them".into()),
    };
    let (succeeded, detail, status) = match verdict {
        Verdict::Succeeded(detail) => (true, detail, 0),
        Verdict::Refused(detail) => (false, detail, 1),
        Verdict::Broken(detail) => (false, format!("broken: {detail}"), 2),
    };
    println!("{}", serde_json::json!({ "attack": name, "succeeded": succeeded, "detail": detail }));
    std::process::exit(status);
}

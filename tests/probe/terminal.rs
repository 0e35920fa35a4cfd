//! Typing for the person at the terminal.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use crate::call::{At, Errno, call, in_child};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[(&str, Attack)] = &[
    ("tiocsti", |_| on_a_terminal(|fd| call(libc::SYS_ioctl, &[&fd, &libc::TIOCSTI, &At(&mut b'x')]))),
    // The kernel takes 32 bits of the request; a filter that compares 64 misses it.
    ("tiocsti_high_bits", |_| {
        on_a_terminal(|fd| call(libc::SYS_ioctl, &[&fd, &(libc::TIOCSTI | 1 << 32), &At(&mut b'x')]))
    }),
    ("tioclinux", |_| tioclinux(0)),
    ("tioclinux_high_bits", |_| tioclinux(1 << 40)),
];

const TIOCLINUX: u64 = 0x541c;

/// On a terminal of its own, as the leader of a session: there it is allowed outside, where the kernel still has it.
fn on_a_terminal(attack: impl Fn(i32) -> Result<i64, Errno>) -> Verdict {
    let status = in_child(|| {
        // The terminal hangs up when this process closes it: no reason to die of it.
        // SAFETY: a plain call.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        let steps = || -> Result<i64, i32> {
            let broken = |_| 255;
            let keyboard = File::options().read(true).write(true).open("/dev/ptmx").map_err(broken)?;
            let fd = keyboard.as_raw_fd();
            call(libc::SYS_ioctl, &[&fd, &libc::TIOCSPTLCK, &At(&mut 0i32)]).map_err(|_| 254)?;
            call(libc::SYS_setsid, &[]).map_err(|_| 253)?;
            let line = call(libc::SYS_ioctl, &[&fd, &libc::TIOCGPTPEER, &libc::O_RDWR]).map_err(|_| 252)?;
            let line = i32::try_from(line).map_err(|_| 251)?;
            call(libc::SYS_ioctl, &[&line, &libc::TIOCSCTTY, &0]).map_err(|_| 250)?;
            attack(line).map_err(|errno| errno.0)
        };
        steps().map_or_else(|status| status, |_| 0)
    });
    match status {
        Ok(0) => Verdict::Succeeded("typed".into()),
        Ok(status @ 250..) => Verdict::Broken(format!("no terminal to try it on (step {status})")),
        Ok(errno) => Verdict::Refused(Errno(errno).to_string()),
        Err(errno) => Verdict::Broken(errno.to_string()),
    }
}

/// Only consoles know it; any other terminal says so (ENOTTY), which a filter keeps it from saying.
fn tioclinux(high: u64) -> Verdict {
    let request = TIOCLINUX | high;
    match on_a_terminal(|fd| call(libc::SYS_ioctl, &[&fd, &request, &At(&mut 2u8)])) {
        Verdict::Refused(detail) if detail == Errno(libc::ENOTTY).to_string() => {
            Verdict::Succeeded("the request came to the terminal".into())
        }
        verdict @ (Verdict::Succeeded(_) | Verdict::Refused(_) | Verdict::Broken(_)) => verdict,
    }
}

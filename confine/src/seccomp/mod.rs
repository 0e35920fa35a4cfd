//! seccomp: which system calls a process may make. The lists are data ([`lists`]); they become programs when the crate is
//! built ([`assemble`]).

#[cfg(test)]
#[allow(missing_docs)]
pub mod assemble;
#[cfg(any(test, doc))]
pub mod calls;
pub mod lists;
pub mod rule;

#[cfg(test)]
mod tests;

use crate::{Error, Role, sys};
use rule::List;

/// A list as a program.
#[derive(Debug)]
pub struct Filter {
    /// What it was made from.
    pub list: &'static List,
    /// Which instructions compare with the number of the process that enters the filter.
    own_process: &'static [usize],
    program: &'static [libc::sock_filter],
}

const fn i(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// The programs for x86_64.
#[cfg(any(test, target_arch = "x86_64"))]
#[cfg_attr(test, allow(unreachable_pub))]
pub(crate) mod x86_64 {
    use super::{Filter, i, lists};
    include!(concat!(env!("OUT_DIR"), "/x86_64.rs"));
}

/// The programs for aarch64.
#[cfg(any(test, target_arch = "aarch64"))]
pub(crate) mod aarch64 {
    use super::{Filter, i, lists};
    include!(concat!(env!("OUT_DIR"), "/aarch64.rs"));
}

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64 as native;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64 as native;

/// Enters the filter of `role`, if it has one, in this thread. [`enter`](crate::enter) does it last. Needs `no_new_privs`.
pub fn install(role: Role) -> Result<(), Error> {
    crate::privileges(role).seccomp.map_or(Ok(()), install_filter)
}

/// Enters the filter of the sandbox (SBX-4), for anet-init and what it executes. Needs `no_new_privs`.
pub fn install_run() -> Result<(), Error> {
    install_filter(&native::RUN)
}

fn install_filter(filter: &Filter) -> Result<(), Error> {
    let installed = if filter.own_process.is_empty() {
        sys::seccomp::install(filter.program)
    } else {
        let own = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
        let mut program = filter.program.to_vec();
        for at in filter.own_process {
            if let Some(instruction) = program.get_mut(*at) {
                instruction.k = own;
            }
        }
        sys::seccomp::install(&program)
    };
    installed.map_err(|errno| Error::Step { what: "entering the system call filter", errno })
}

//! The guard of a node, and the keeper above it.
//!
//! A user's `anet daemon` is the **keeper**: it has the node's lock, starts the guard as a process of its own, and starts it
//! again when it has ended (PRV-6). As a service there is no keeper; systemd does that.
//!
//! A **life** of the guard: everything is read and prepared ([`prepare`]), all processes are started ([`start`]), and then it
//! waits ([`life`]). Any death ends all; what the node was started from having changed ends all too, and the next life reads
//! it anew.

mod choices;
mod keeper;
mod keys;
mod life;
mod lock;
pub mod log;
#[cfg_attr(not(feature = "auto-reply"), path = "outside_left_out.rs")]
mod outside;
mod past;
mod pause;
mod prepare;
mod roots;
mod socket;
mod start;
mod systemd;
mod turn;

use std::path::PathBuf;

use ipc_proto::Code;

use self::keys::Keys;
use self::life::End;
use self::lock::Lock;
use self::past::{Memory, Past};
use super::Directories;
use crate::error::Trouble;
use crate::node::job::Mode;

/// `anet daemon`, as it was asked for.
#[derive(Clone, Debug)]
pub struct DaemonRequest {
    /// The configuration file, where one was named.
    pub configuration: Option<PathBuf>,
    /// A user's node, or a service.
    pub mode: Mode,
    /// What anet's own processes say of themselves goes to standard error.
    pub verbose: bool,
}

/// The name that the keeper gives the guard: the first of its arguments.
const GUARD: &str = "anet-guard";
/// The exit status of a guard whose life ended to begin anew.
const STATUS_ANEW: u8 = 75;
/// The exit status of a guard one of whose processes died.
const STATUS_DIED: u8 = 70;

/// Runs the node until it is told to end. The exit status of `anet daemon`.
///
/// # Errors
/// What kept it from starting; nothing is running then.
pub fn daemon(request: &DaemonRequest) -> Result<u8, Trouble> {
    match request.mode {
        Mode::User if std::env::args_os().next().is_some_and(|name| name == GUARD) => guard(request),
        Mode::User => keeper::keep(request),
        Mode::System => service(request),
    }
}

/// One life, started by the keeper.
fn guard(request: &DaemonRequest) -> Result<u8, Trouble> {
    let memory = Memory::inherited()?;
    let keys = Keys::inherited();
    let past = memory.past()?;
    if !Lock::is_held(&Directories::of(request.mode)?, request.mode)? {
        return Err(Trouble::new(
            Code::BadOption,
            "the guard is started by `anet daemon`, which is not there; run that",
        ));
    }
    // What `ps` shows; where it cannot be set the argument says it.
    let _ = rustix::thread::set_name(c"anet-guard");
    let lived = life::live(request, &past, keys);
    match &lived {
        Ok(End::Died(reason)) => memory.leave(reason),
        Err(trouble) => memory.leave(&trouble.to_string()),
        Ok(End::Stopped | End::Anew) => {}
    }
    lived.map(|end| end.status())
}

/// One life; systemd begins the next.
fn service(request: &DaemonRequest) -> Result<u8, Trouble> {
    if !rustix::process::geteuid().is_root() {
        return Err(Trouble::new(
            Code::BadOption,
            "--system is the service's node, which root starts: sudo anet daemon --system; your own is started without it",
        ));
    }
    let directories = Directories::of(request.mode)?;
    prepare::check(request, &directories)?;
    let _lock = Lock::take(&directories, request.mode)?;
    life::live(request, &Past::default(), Keys::withdraw()?).map(|end| end.status())
}

//! From an order of the supervisor to what a minder starts.

use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use ipc_proto::{Aid, InteractionId, RunId};
use rustix::io::Errno;

use super::DirectAgent;
use super::order::MinderPlan;
use super::place::{Place, PlaceError, Places};
use crate::agents::{self, Stdin};
use crate::error::Trouble;

/// The longest text that says why something did not start, in bytes.
pub(super) const MAX_TEXT: usize = 1024;

/// Why an agent is not started.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotStarted {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("{}", .0.sentence)]
    Agent(Trouble),
    #[error("the task cannot be passed on ({0}); there is no memory left")]
    Memory(Errno),
    #[error("the work directory's name has a NUL byte; choose another work_dir")]
    Name,
}

impl From<Trouble> for NotStarted {
    fn from(trouble: Trouble) -> NotStarted {
        NotStarted::Agent(trouble)
    }
}

/// An agent, ready to be started.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) plan: MinderPlan,
    pub(super) place: Place,
    /// What its standard input is; none: nothing.
    pub(super) input: Option<OwnedFd>,
}

/// Which run, for whom.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) run: RunId,
    pub(super) peer: Aid,
    pub(super) interaction: InteractionId,
}

/// Makes an agent's directories and its command line.
///
/// # Errors
/// [`NotStarted`]; what was made of the run's own is gone again.
pub(super) fn prepare(
    agent: &DirectAgent,
    environment: &[CString],
    places: &Places,
    order: &Order,
    task: &[u8],
) -> Result<Ready, NotStarted> {
    let place = places.enter(&order.peer, &order.interaction, order.run)?;
    match build(agent, environment, &place, order, task) {
        Ok((plan, input)) => Ok(Ready { plan, place, input }),
        Err(error) => {
            // It is the first trouble that counts.
            let _ = place.leave();
            Err(error)
        }
    }
}

fn build(
    agent: &DirectAgent,
    environment: &[CString],
    place: &Place,
    order: &Order,
    task: &[u8],
) -> Result<(MinderPlan, Option<OwnedFd>), NotStarted> {
    let work = place.work();
    let start = match &agent.installed {
        Some(installed) => agents::start_direct(installed, &work, task)?,
        None => agents::start_custom_with(&agent.command, task, place.task().as_os_str().as_bytes())?,
    };
    if !start.files.is_empty() {
        place.write_task(task)?;
    }
    let input = match start.stdin {
        Stdin::Task => {
            let memory = confine::memory::sealed(c"anet-task", &[start.before_task, task]);
            Some(memory.map_err(NotStarted::Memory)?)
        }
        Stdin::Nothing => None,
    };
    let plan = MinderPlan {
        argv: start.argv,
        environment: with_names(environment, order)?,
        directory: c_string(work.as_os_str())?,
    };
    Ok((plan, input))
}

/// The operator's environment, and which run this is.
fn with_names(environment: &[CString], order: &Order) -> Result<Vec<CString>, NotStarted> {
    let own = [
        ("ANET_RUN", order.run.to_string()),
        ("ANET_INTERACTION", order.interaction.to_string()),
        ("ANET_PEER", order.peer.to_string()),
    ];
    let is_own = |entry: &CString| {
        own.iter().any(|(name, _)| {
            entry.as_bytes().strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
        })
    };
    let mut all: Vec<CString> = environment.iter().filter(|entry| !is_own(entry)).cloned().collect();
    for (name, value) in &own {
        all.push(c_string(OsStr::new(&format!("{name}={value}")))?);
    }
    Ok(all)
}

fn c_string(text: &OsStr) -> Result<CString, NotStarted> {
    CString::new(text.as_bytes()).map_err(|_| NotStarted::Name)
}

/// At most [`MAX_TEXT`] of it.
pub(super) fn short(mut text: String) -> String {
    let mut end = MAX_TEXT.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

//! `anet credential`: the operator's keys. A value comes from a prompt or from standard input, never from an argument.

use std::io::Write;

use confine::sys::signal::{Signal, Signals};
use ipc_proto::Code;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use serde_json::json;
use supervisor::chain::rfc3339;
use supervisor::credentials::{MAX_VALUE, Name, Store};
use supervisor::error::Trouble;
use supervisor::guard::Directories;
use zeroize::Zeroizing;

use crate::arguments::{Anet, Credential, CredentialAction};
use crate::linux::print;
use crate::node::mode;

/// What ends a prompt before its line does.
const INTERRUPTIONS: [Signal; 5] =
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGTSTP];

pub(crate) fn perform(anet: &Anet, credential: &Credential) -> Result<u8, Trouble> {
    let store = || Store::open(&Directories::of(mode(anet)?)?);
    match &credential.action {
        CredentialAction::Set(named) => {
            // The name is looked at before anybody types a secret.
            let name: Name = named.name.parse()?;
            let store = store()?;
            let value = read(&name)?;
            let replaced = store.set(&name, &value)?;
            report(anet, &name, if replaced { "replaced" } else { "stored" })
        }
        CredentialAction::List => list(anet, &store()?),
        CredentialAction::Remove(named) => {
            let name: Name = named.name.parse()?;
            if store()?.remove(&name)? {
                return report(anet, &name, "removed");
            }
            Err(Trouble::new(
                Code::BadOption,
                format!("there is no stored credential {name}; see: anet credential list"),
            ))
        }
    }
}

fn report(anet: &Anet, name: &Name, what: &str) -> Result<u8, Trouble> {
    let text = if anet.json {
        format!("{}\n", json!({ "name": name.as_str(), "done": what }))
    } else {
        format!("{name} {what}\n")
    };
    print(&text)?;
    Ok(0)
}

fn list(anet: &Anet, store: &Store) -> Result<u8, Trouble> {
    let stored = store.list()?;
    if anet.json {
        let all: Vec<_> = stored
            .iter()
            .map(|one| json!({ "name": one.name.as_str(), "stored": rfc3339(one.stored) }))
            .collect();
        print(&format!("{}\n", json!({ "credentials": all })))?;
        return Ok(0);
    }
    let width = stored.iter().map(|one| one.name.as_str().len()).max().unwrap_or(0);
    let lines: String =
        stored.iter().map(|one| format!("{:width$}  {}\n", one.name.as_str(), rfc3339(one.stored))).collect();
    print(&lines)?;
    Ok(0)
}

/// The value: a line that is typed without being shown, or all of standard input.
fn read(name: &Name) -> Result<Zeroizing<Vec<u8>>, Trouble> {
    let failed = |error: std::io::Error| {
        Trouble::new(Code::BadOption, format!("the value cannot be read ({error}); nothing was stored"))
    };
    // Of its final size at once, since a copy that growing leaves behind is wiped by nobody.
    let mut value = Zeroizing::new(vec![0; MAX_VALUE + 3]);
    let mut length = 0;
    let prompt = Prompt::show(name)?;
    while let Some(room) = value.get_mut(length..).filter(|room| !room.is_empty()) {
        if let Some(prompt) = &prompt {
            prompt.wait()?;
        }
        // Not through std's buffer, which is never wiped.
        let read = rustix::io::read(stdin(), room).map_err(|errno| failed(errno.into()))?;
        length += read;
        let line_ended = prompt.is_some() && value.get(..length).is_some_and(|text| text.ends_with(b"\n"));
        if read == 0 || line_ended {
            break;
        }
    }
    value.truncate(length);
    Ok(value)
}

/// A terminal that does not show what is typed, until this is dropped.
struct Prompt {
    before: Termios,
    /// Whoever presses Ctrl-C gets the terminal back as it was.
    signals: Signals,
}

impl Prompt {
    /// None: standard input is no terminal.
    fn show(name: &Name) -> Result<Option<Prompt>, Trouble> {
        if !isatty(stdin()) {
            return Ok(None);
        }
        let failed = |errno: rustix::io::Errno| {
            Trouble::new(
                Code::BadOption,
                format!(
                    "the terminal cannot be kept from showing the value ({errno}); give it on standard input"
                ),
            )
        };
        let signals = Signals::block(&INTERRUPTIONS)
            .map_err(|errno| failed(rustix::io::Errno::from_raw_os_error(errno as i32)))?;
        let before = tcgetattr(stdin()).map_err(failed)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ECHONL | LocalModes::ICANON);
        tcsetattr(stdin(), OptionalActions::Flush, &silent).map_err(failed)?;
        let _ = write!(std::io::stderr(), "Value for {name} (it is not shown): ");
        Ok(Some(Prompt { before, signals }))
    }

    /// Waits for something to read.
    fn wait(&self) -> Result<(), Trouble> {
        let input = stdin();
        let mut fds = [PollFd::new(&input, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        let interrupted = poll(&mut fds, None).is_err() || !fds[1].revents().is_empty();
        if interrupted {
            return Err(Trouble::new(Code::BadOption, "interrupted; nothing was stored"));
        }
        Ok(())
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

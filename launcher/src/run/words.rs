//! What the supervisor says to a run that stands.

use ipc_proto::Code;
use ipc_proto::init::{Purpose, ToInit};
use ipc_proto::launcher::ToLauncher;

use super::sandbox::Sandbox;
use super::{Outcome, Run, State};
use crate::Fatal;
use crate::failure::failure;

impl Run {
    /// Everybody is ready: the program starts, unless its sandbox is not whole any more.
    ///
    /// # Errors
    /// [`Fatal`] when nobody said that it is ready.
    pub fn go(&mut self, message: &ToLauncher) -> Result<(), Fatal> {
        match self.state {
            State::Ready => {}
            // The sandbox fell while the word was under way; the supervisor will hear of it.
            State::Ending | State::Measuring | State::Removing | State::Closed => return Ok(()),
            State::Planned | State::Starting | State::Running => return Err(self.unexpected(message)),
        }
        self.state = State::Running;
        self.went = true;
        if !self.sandbox.as_ref().is_some_and(Sandbox::is_whole) {
            self.end();
            return Ok(());
        }
        if let Some(watch) = &self.watch {
            watch.begin();
        }
        self.tell_init(&ToInit::Go);
        Ok(())
    }

    /// Passes a signal on, or continues what was stopped.
    ///
    /// # Errors
    /// [`Fatal`] when no program was started.
    pub fn pass(&mut self, message: &ToLauncher, word: &ToInit) -> Result<(), Fatal> {
        match self.state {
            State::Running => self.tell_init(word),
            State::Ending | State::Measuring | State::Removing | State::Closed => {}
            State::Planned | State::Starting | State::Ready => return Err(self.unexpected(message)),
        }
        Ok(())
    }

    /// Ends the run, whatever it does.
    pub fn end(&mut self) {
        match self.state {
            State::Planned | State::Starting | State::Ready | State::Running => {
                self.outcome.get_or_insert(match self.plan.purpose {
                    Purpose::Command(_) => Outcome::Exited(None),
                    Purpose::Probe(_) => {
                        Outcome::Failed(failure(Code::SandboxStartFailed, "the probe was ended"))
                    }
                });
                self.begin_ending();
            }
            State::Ending | State::Measuring | State::Removing | State::Closed => {}
        }
    }

    pub(super) fn tell_init(&mut self, word: &ToInit) {
        let told = self.sandbox.as_ref().map(|sandbox| sandbox.channel.send(word, &[]));
        // anet-init is gone, or reads nothing any more: its run is over either way.
        if !matches!(told, Some(Ok(()))) {
            self.end();
        }
    }
}

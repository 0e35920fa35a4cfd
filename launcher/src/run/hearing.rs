//! What a run says: anet-init, the thread that measures, and bwrap by its end.

use std::os::fd::OwnedFd;

use ipc_proto::init::{FromInit, Purpose};
use ipc_proto::launcher::{Exceeded, FromLauncher};
use ipc_proto::{ChannelError, Code, Received};

use super::{Outcome, Run, State, Supervisor};
use crate::failure::{self, Host, failure};
use crate::growth::Word;
use crate::{Fatal, Log};

impl Run {
    pub(super) fn hears_init(&self) -> bool {
        matches!(self.state, State::Starting | State::Ready | State::Running)
    }

    pub(super) fn hear_init(&mut self, supervisor: &Supervisor) -> Result<(), Fatal> {
        while self.hears_init() {
            let Some(sandbox) = &self.sandbox else { return Ok(()) };
            match sandbox.channel.try_receive()? {
                Received::Empty => return Ok(()),
                // Whether bwrap failed or the whole sandbox was ended is seen when bwrap has ended.
                Received::Closed if self.state == State::Starting => return Ok(()),
                Received::Closed => self.end(),
                Received::Message(message, descriptors) => self.heard(supervisor, message, descriptors)?,
            }
        }
        Ok(())
    }

    fn heard(
        &mut self,
        supervisor: &Supervisor,
        message: FromInit,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Fatal> {
        let run = self.plan.run;
        let listeners = usize::from(self.plan.endpoints.egress) + usize::from(self.plan.endpoints.model);
        let probing = matches!(self.plan.purpose, Purpose::Probe(_));
        match (message, self.state) {
            (FromInit::Ready { listeners: made, terminal }, State::Starting)
                if usize::from(made) == listeners
                    && terminal == self.has_terminal()
                    && self.made.is_none() =>
            {
                self.made = Some(descriptors);
                if let Err(failure) = self.take_hold() {
                    self.fail(failure);
                }
                // What may still take its time is our own walk through the operator's directories.
                self.start_ends = None;
                self.ready_if_so(supervisor)
            }
            (FromInit::Failed { step, errno }, State::Starting) => {
                self.fail(failure::from_init(step, errno));
                Ok(())
            }
            (FromInit::Stopped(signal), State::Running) if !probing => {
                Ok(supervisor.send(&FromLauncher::Stopped { run, signal }, &[])?)
            }
            (FromInit::Exited(exit), State::Running) if !probing => {
                self.outcome = Some(Outcome::Exited(Some(exit)));
                // Where it has to be seen first whether a limit ended it, that comes first.
                if self.group.is_none() && self.watch.is_none() {
                    self.tell(supervisor)?;
                }
                self.begin_ending();
                Ok(())
            }
            (FromInit::Probed(failures), State::Running) if probing => {
                self.outcome = Some(Outcome::Probed(failures));
                self.begin_ending();
                Ok(())
            }
            (
                message @ (FromInit::Ready { .. }
                | FromInit::Failed { .. }
                | FromInit::Stopped(_)
                | FromInit::Exited(_)
                | FromInit::Probed(_)),
                state,
            ) => Err(ChannelError::unexpected(&message, state.as_str()).into()),
        }
    }

    pub(super) fn hear_watch(&mut self, supervisor: &Supervisor, log: &Log) -> Result<(), Fatal> {
        let Some(watch) = &self.watch else { return Ok(()) };
        match watch.next() {
            Word::Ready => {
                self.measured = true;
                self.ready_if_so(supervisor)
            }
            Word::Exceeded => self.grew_too_far(supervisor),
            Word::Finished => match self.state {
                State::Measuring => self.begin_removing(supervisor, log),
                State::Planned
                | State::Starting
                | State::Ready
                | State::Running
                | State::Ending
                | State::Removing
                | State::Closed => Ok(()),
            },
            Word::Gone => {
                self.unwatched = true;
                match self.state {
                    State::Planned | State::Starting => self.fail(failure(
                        Code::SandboxStartFailed,
                        "the growth of the run's directories cannot be measured",
                    )),
                    State::Ready => self.end(),
                    // What nobody measures may be anything.
                    State::Running | State::Ending => self.grew_too_far(supervisor)?,
                    State::Measuring => {
                        self.grew_too_far(supervisor)?;
                        self.begin_removing(supervisor, log)?;
                    }
                    // The last walk is done.
                    State::Removing | State::Closed => {}
                }
                Ok(())
            }
        }
    }

    fn grew_too_far(&mut self, supervisor: &Supervisor) -> Result<(), Fatal> {
        // Only a program that was started can exceed anything, and only its first word of an end counts.
        if self.went && !self.over && !self.told {
            self.over = true;
            let over = FromLauncher::Over { run: self.plan.run, exceeded: Exceeded::Growth };
            supervisor.send(&over, &[])?;
            self.end();
        }
        Ok(())
    }

    /// bwrap has ended: at the start it failed, later the sandbox ends with it.
    pub(super) fn bwrap_ended(&mut self) {
        match self.state {
            State::Starting => {
                let complaint = self.sandbox.as_ref().map(|sandbox| sandbox.complaint().to_vec());
                self.fail(failure::from_bwrap(&complaint.unwrap_or_default(), &Host::ask()));
            }
            State::Ready | State::Running => self.end(),
            State::Planned | State::Ending | State::Measuring | State::Removing | State::Closed => {}
        }
    }
}

//! The broker: opened, heard, asked for debits, closed.

use ipc_proto::broker::{KeyState, MOST_CONNECTIONS};
use ipc_proto::upstream::Scheme;

use super::super::requests::{model_limits, replace_key};
use super::*;
use crate::ledger::Debit;

impl Foreground {
    /// The run's model endpoint is the broker's to serve, with what it may be asked.
    pub(super) fn open_broker(&mut self, listener: &OwnedFd) -> Result<(), Fatal> {
        let (Some(channel), Some(model)) = (&self.ends.broker, &self.job.model) else { return Ok(()) };
        let open = ToBroker::Open {
            run: self.job.run,
            policy: model.policy.clone(),
            limits: model_limits(&self.job.limits),
            debits: self.debits_requests(),
        };
        channel.send(&open, &[listener.as_fd()])?;
        self.told.broker_open = true;
        Ok(())
    }

    pub(super) fn close_broker(&mut self) -> Result<(), Fatal> {
        self.wanting.clear();
        match self.ends.broker.as_ref().filter(|_| self.told.broker_open) {
            Some(channel) => Ok(channel.send(&ToBroker::Close { run: self.job.run }, &[])?),
            None => Ok(()),
        }
    }

    fn debits_requests(&self) -> bool {
        self.job.budget.destinations.is_some() || self.job.budget.bytes_out.is_some()
    }

    pub(super) fn hear_broker(&mut self) -> Result<(), Fatal> {
        let Some(channel) = &self.ends.broker else { return Ok(()) };
        let message = match channel.try_receive()? {
            Received::Message(message, _) => message,
            Received::Empty => return Ok(()),
            Received::Closed => return Err(Fatal::Gone("anet-broker")),
        };
        let job = self.job.run;
        let serving = self.told.broker_opened && !self.told.broker_closed;
        match &message {
            FromBroker::Hello { key, roots, .. } if !self.told.broker_hello => {
                self.told.broker_hello = true;
                self.check_broker(*key, *roots)
            }
            FromBroker::Opened { run }
                if *run == job && self.told.broker_open && !self.told.broker_opened =>
            {
                self.told.broker_opened = true;
                self.go_if_ready()
            }
            FromBroker::Want { run, request, bytes } if *run == job && serving && self.debits_requests() => {
                // What crossed with the run's end is dropped by the broker too.
                // A request waits on a connection of its own.
                let most = self.job.limits.get(LimitName::EndpointConnections).unwrap_or(MOST_CONNECTIONS);
                if self.wanting.len() as u64 >= most {
                    return Err(self.unexpected(&message));
                }
                if self.phase != Phase::Ending {
                    self.wanting.push_back((*request, *bytes));
                }
                self.debit_requests()
            }
            FromBroker::Request { run, report } if *run == job && serving => {
                match self.requests.report(report, &mut self.violations) {
                    Taken::Contradiction => return Err(self.unexpected(&message)),
                    Taken::Counted => return Ok(()),
                    Taken::Listed => {}
                }
                let body = json!({
                    "request": report.request, "interface": report.interface, "class": "model",
                    "decision": report.decision, "rule": report.rule, "status": report.status,
                    "trouble": report.trouble.map(|trouble| trouble.as_str()),
                    "bytes_out": report.bytes_out, "bytes_in": report.bytes_in, "ended": report.ended,
                });
                self.append("model.decided", &body)
            }
            FromBroker::Closed { run, totals } if *run == job && serving => {
                self.requests.totals = *totals;
                self.told.broker_closed = true;
                Ok(())
            }
            FromBroker::Hello { .. }
            | FromBroker::Opened { .. }
            | FromBroker::Want { .. }
            | FromBroker::Request { .. }
            | FromBroker::Answered { .. }
            | FromBroker::Signed { .. }
            | FromBroker::Closed { .. } => Err(self.unexpected(&message)),
        }
    }

    /// What the broker was started with has to serve.
    fn check_broker(&mut self, key: KeyState, roots: u32) -> Result<(), Fatal> {
        let Some(model) = &self.job.model else { return Ok(()) };
        let why = match key {
            KeyState::Ready | KeyState::None if roots > 0 || model.upstream.scheme() == Scheme::Http => {
                return Ok(());
            }
            KeyState::Ready | KeyState::None => {
                "this system has no store of certificate authorities, so no service can be \
                                                 verified; install one: sudo apt install ca-certificates"
            }
            KeyState::Empty => "the model's key is empty",
            KeyState::Malformed => {
                "the model's key has a space or a character that no key has, or is too long for one"
            }
        };
        let why = match key {
            KeyState::Ready | KeyState::None => why.to_owned(),
            KeyState::Empty | KeyState::Malformed => format!("{why}; {}", replace_key(&model.key)),
        };
        Err(Fatal::Unavailable(Trouble::new(Code::NoApiKey, why)))
    }

    /// BUD-2: debits the requests that wait, in order; no debit, no byte.
    pub(super) fn debit_requests(&mut self) -> Result<(), Fatal> {
        while let Some((request, bytes)) = self.wanting.front().copied() {
            let granted = match self.ledger.request(bytes) {
                Debit::Granted => true,
                Debit::Refused => false,
                Debit::AfterRecall => {
                    if !self.told.recalling {
                        self.told.recalling = true;
                        self.ends.proxy.send(&ToProxy::Recall { run: self.job.run }, &[])?;
                    }
                    return Ok(());
                }
            };
            self.wanting.pop_front();
            let body = json!({
                "request": request, "class": "model", "bytes": bytes, "granted": granted,
                "remaining": self.remaining(),
            });
            self.append("model.debited", &body)?;
            if let Some(channel) = &self.ends.broker {
                channel.send(&ToBroker::Debit { run: self.job.run, request, granted }, &[])?;
            }
            if !granted {
                self.exhausted()?;
            }
        }
        Ok(())
    }
}

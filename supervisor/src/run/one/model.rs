//! The broker: opened, heard, asked for debits, closed.

use ipc_proto::broker::{Answered, MOST_CONNECTIONS};

use super::*;
use crate::ledger::Debit;

impl Run {
    /// The run's model endpoint is the broker's to serve, with what it may be asked.
    pub(super) fn open_broker(&mut self, listener: &OwnedFd) -> Result<(), Fatal> {
        let (Some(channel), Some(model)) = (&self.lines.broker, &self.job.model) else { return Ok(()) };
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
        match self.lines.broker.as_ref().filter(|_| self.told.broker_open && !self.told.broker_closed) {
            Some(channel) => Ok(channel.send(&ToBroker::Close { run: self.job.run }, &[])?),
            None => Ok(()),
        }
    }

    pub(super) fn debits_requests(&self) -> bool {
        self.job.budget.destinations.is_some() || self.job.budget.bytes_out.is_some()
    }

    pub(crate) fn hear_broker(&mut self, message: &FromBroker, descriptors: &[OwnedFd]) -> Result<(), Fatal> {
        let job = self.job.run;
        let serving = self.told.broker_opened && !self.told.broker_closed;
        match message {
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
                    return Err(self.unexpected(message));
                }
                if self.phase != Phase::Ending {
                    self.wanting.push_back((*request, *bytes));
                }
                self.debit_requests()
            }
            FromBroker::Request { run, report } if *run == job && serving => {
                match self.requests.report(report, &mut self.violations) {
                    Taken::Contradiction => return Err(self.unexpected(message)),
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
            FromBroker::Answered { run, answered, totals } if *run == job && serving && self.asking => {
                self.requests.totals = *totals;
                self.told.broker_closed = true;
                self.told.exited = true;
                self.answer = match (answered, descriptors.first()) {
                    (Answered::Text, Some(memory)) => Some(bulk::open::<String>(memory.as_fd())?),
                    (Answered::Text | Answered::Nothing, _) => None,
                };
                let status = Ended::Status(u8::from(self.answer.is_none()));
                self.ended.get_or_insert(status);
                self.begin_ending()
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
            | FromBroker::Closed { .. } => Err(self.unexpected(message)),
        }
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
                        self.lines.proxy.send(&ToProxy::Recall { run: self.job.run }, &[])?;
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
            if let Some(channel) = &self.lines.broker {
                channel.send(&ToBroker::Debit { run: self.job.run, request, granted }, &[])?;
            }
            if !granted {
                self.exhausted()?;
            }
        }
        Ok(())
    }
}

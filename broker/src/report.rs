//! One request as the supervisor hears of it: exactly as `ipc_proto::broker::RequestReport` says, whatever ends it.

use std::rc::Rc;

use http::StatusCode;
use ipc_proto::broker::{RequestReport, UpstreamTrouble};
use ipc_proto::proxy::Decision;

use crate::policy::{Interface, Refusal};
use crate::run::Run;

/// A request of which something is still to be reported. Dropped, it has ended: an agent that goes away, a run that is
/// closed and an answer that was read to its end all come to this.
#[derive(Debug)]
pub struct Report {
    run: Rc<Run>,
    request: RequestReport,
}

impl Report {
    /// A request that has come.
    #[must_use]
    pub fn new(run: Rc<Run>) -> Report {
        let request = RequestReport {
            request: run.next_request(),
            interface: None,
            // Unless something else is said: nobody refused it, and nothing came of it.
            decision: Decision::Fail,
            rule: String::new(),
            trouble: None,
            status: 0,
            bytes_out: 0,
            bytes_in: 0,
            ended: false,
        };
        Report { run, request }
    }

    /// Its number in the run.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.request.request
    }

    /// It is for this interface.
    pub fn is_for(&mut self, interface: Interface) {
        self.request.interface = Some(interface);
    }

    /// It was refused, by a rule of ours.
    pub fn refused(mut self, refusal: &Refusal) {
        self.run.refused();
        self.request.decision = Decision::Deny;
        refusal.rule.as_str().clone_into(&mut self.request.rule);
        self.request.status = refusal.status.as_u16();
    }

    /// It was answered without asking anybody.
    pub fn answered_here(mut self) {
        self.request.decision = Decision::Allow;
        self.request.status = StatusCode::OK.as_u16();
    }

    /// It goes out, with so many bytes of head and body: the first of its two reports.
    pub fn goes_out(&mut self, bytes: u64) {
        self.request.decision = Decision::Allow;
        self.request.bytes_out = bytes;
        self.run.report(self.request.clone());
    }

    /// The service answers, with this status.
    pub fn answered(&mut self, status: StatusCode) {
        self.request.status = status.as_u16();
    }

    /// So much more of the answer's body has come.
    pub fn received(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.request.bytes_in = self.request.bytes_in.saturating_add(bytes);
    }

    /// It did not end well.
    pub fn failed(&mut self, trouble: UpstreamTrouble) {
        self.request.decision = Decision::Fail;
        self.request.trouble = Some(trouble);
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.request.ended = true;
        self.run.report(self.request.clone());
    }
}

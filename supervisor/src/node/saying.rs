//! What the node says: words to the guard, lines and events to the operator, records to the evidence.

use std::io::Write;

use ipc_proto::bulk;
use serde_json::Value;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

/// The longest line, in characters of up to four bytes: what a pipe with any room takes at once (PIPE_BUF).
const MAX_LINE: usize = 900;

impl Node {
    pub(super) fn word(&mut self, word: Word) -> Result<(), Fatal> {
        self.guard.write_all(&[word.byte()]).map_err(|_| Fatal::Gone("the guard"))
    }

    /// A line for the operator. Nobody has to read it: a pipe that is full costs the line, and never the node's time.
    pub(super) fn say(&mut self, text: &str) {
        let mut fds = [PollFd::new(&self.log, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(poll(&mut fds, Some(&now)), Ok(1..)) {
            self.unsaid += 1;
            return;
        }
        let mut line = match std::mem::take(&mut self.unsaid) {
            0 => String::new(),
            unsaid => format!("anet: {unsaid} lines before this one were not read in time, and are lost\n"),
        };
        let words: String = one_line(text).chars().take(MAX_LINE).collect();
        line.push_str(&format!("anet: {words}\n"));
        // Where nobody can hear it there is nobody to tell that.
        let _ = self.log.write_all(line.as_bytes());
    }

    pub(super) fn append(&mut self, kind: &str, body: &Value) -> Result<(), Fatal> {
        match &self.store {
            Ok(store) => {
                let appended = store.evidence.borrow_mut().append(SystemTime::now(), kind, body);
                appended.map(drop).map_err(|error| Fatal::Unavailable(error.trouble()))
            }
            Err(_) => Ok(()),
        }
    }

    pub(super) fn sync(&mut self) -> Result<(), Fatal> {
        match &self.store {
            Ok(store) => {
                let synced = store.evidence.borrow_mut().sync();
                synced.map_err(|error| Fatal::Unavailable(error.trouble()))
            }
            Err(_) => Ok(()),
        }
    }

    /// An event for the operator's `notify` command, one JSON object.
    pub(super) fn notify(&mut self, event: &str, mut body: Value) -> Result<(), Fatal> {
        let Some(channel) = self.outside.as_ref().filter(|_| self.job.outside.notify) else { return Ok(()) };
        if let Some(body) = body.as_object_mut() {
            body.insert("event".to_owned(), Value::String(event.to_owned()));
            body.insert("time".to_owned(), Value::String(crate::chain::rfc3339(SystemTime::now())));
        }
        let mut text = body.to_string();
        text.push('\n');
        let memory = confine::memory::sealed(c"anet-event", &[text.as_bytes()])
            .map_err(|errno| Fatal::System { what: "memory for an event", errno })?;
        self.events += 1;
        Ok(channel.send(&ToOutside::Notify { event: self.events }, &[std::os::fd::AsFd::as_fd(&memory)])?)
    }

    /// The same, once in a row: what goes on being so is told when it begins.
    pub(super) fn notify_once(&mut self, event: &str, of: &str, body: Value) -> Result<(), Fatal> {
        let name = format!("{event} {of}");
        if self.last_event.as_ref() == Some(&name) {
            return Ok(());
        }
        self.last_event = Some(name);
        self.notify(event, body)
    }

    /// EVI-1: a checkpoint is signed where one is due.
    pub(super) fn sign_if_wanted(&mut self) -> Result<(), Fatal> {
        let (Ok(store), None, Some(channel)) = (&self.store, self.signs, &self.lines.broker) else {
            return Ok(());
        };
        if self.signing.is_none() {
            return Ok(());
        }
        let Some((seq, hash)) = store.evidence.borrow().wants_checkpoint() else { return Ok(()) };
        channel.send(&ipc_proto::broker::ToBroker::Sign { seq, hash }, &[])?;
        self.signs = Some(seq);
        Ok(())
    }

    /// A task in memory, as a client passes it.
    pub(super) fn passed_task(descriptors: &[OwnedFd]) -> Result<Vec<u8>, Trouble> {
        let memory = descriptors.first().ok_or_else(|| Trouble::new(Code::BadTask, "there is no task"))?;
        let task: Vec<u8> = bulk::open(std::os::fd::AsFd::as_fd(memory))
            .map_err(|error| Trouble::new(Code::BadTask, format!("{error}; use `anet submit`")))?;
        if task.is_empty() || task.len() > ipc_proto::control::MAX_TASK || task.trim_ascii().is_empty() {
            return Err(Trouble::new(Code::BadTask, crate::explain::sentence(Code::BadTask)));
        }
        Ok(task)
    }
}

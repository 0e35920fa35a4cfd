//! What the node says: words to the guard, lines and events to the operator, records to the evidence.

use std::io::Write;

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
}

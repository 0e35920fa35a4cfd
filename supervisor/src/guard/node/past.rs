//! What a life of the node knows of the lives before it, and what it leaves to the next: a few words in memory that keeper and
//! guard share.

use std::os::fd::{AsFd, OwnedFd, RawFd};

use ipc_proto::Code;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use serde::{Deserialize, Serialize};

use super::super::open::system;
use crate::error::{Trouble, one_line};

/// Where the guard has the memory.
pub(super) const PAST: RawFd = 3;
/// The longest text, in bytes.
const LONGEST: usize = 4096;
/// The longest reason, in bytes.
const LONGEST_REASON: usize = 1024;

/// Before this life.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Past {
    /// How often the node came up again by itself.
    pub(super) restarts: u32,
    /// Why the life before this one ended, if it ended by itself.
    pub(super) last_end: Option<String>,
    /// There was a life before this one: the operator has seen the node come up.
    pub(super) is_later: bool,
}

/// The memory.
#[derive(Debug)]
pub(super) struct Memory(OwnedFd);

impl Memory {
    /// New, with what the next life is to know.
    pub(super) fn with(past: &Past) -> Result<Memory, Trouble> {
        let memory = memfd_create("anet-past", MemfdFlags::CLOEXEC)
            .map_err(|errno| system("memory", &errno.into()))?;
        let memory = Memory(memory);
        memory.write(&serde_json::to_vec(past).unwrap_or_default());
        Ok(memory)
    }

    /// The one that the guard was started with.
    pub(super) fn inherited() -> Result<Memory, Trouble> {
        confine::sys::inherited::take(PAST).map(Memory).map_err(|errno| {
            Trouble::new(
                Code::BadOption,
                format!("the guard is started by `anet daemon`, not by hand (descriptor {PAST}: {errno}); run that instead"),
            )
        })
    }

    /// For the guard that is started.
    pub(super) fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// What the guard is to know.
    pub(super) fn past(&self) -> Result<Past, Trouble> {
        serde_json::from_slice(&self.read()).map_err(|error| {
            Trouble::new(
                Code::BadOption,
                format!("the guard is started by `anet daemon`, not by hand ({error}); run that instead"),
            )
        })
    }

    /// Leaves the reason for this life's end.
    pub(super) fn leave(&self, reason: &str) {
        let reason = one_line(reason);
        let end = reason.char_indices().map(|(at, letter)| at + letter.len_utf8());
        let end = end.take_while(|end| *end <= LONGEST_REASON).last().unwrap_or(0);
        let words = Words { end: Some(reason.get(..end).unwrap_or_default().to_owned()) };
        self.write(&serde_json::to_vec(&words).unwrap_or_default());
    }

    /// The reason that was left, if one was. Whatever else is there is none.
    pub(super) fn reason(&self) -> Option<String> {
        let words: Words = serde_json::from_slice(&self.read()).ok()?;
        words.end.map(|end| one_line(&end)).filter(|end| !end.is_empty() && end.len() <= LONGEST)
    }

    fn write(&self, text: &[u8]) {
        // Memory that is full of other things: then there is no reason, which the reader is ready for.
        let _ = ftruncate(&self.0, 0).and_then(|()| pwrite(&self.0, text, 0));
    }

    fn read(&self) -> Vec<u8> {
        let length = fstat(&self.0).map_or(0, |found| usize::try_from(found.st_size).unwrap_or(0));
        let mut text = vec![0u8; length.min(LONGEST)];
        let read = pread(&self.0, &mut text, 0).unwrap_or(0);
        text.truncate(read);
        text
    }
}

/// What a life leaves.
#[derive(Debug, Deserialize, Serialize)]
struct Words {
    end: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PRV-6: the reason for an end reaches the next life, as one line of bounded length.
    #[test]
    fn a_reason_is_left_for_the_next_life() {
        let past = Past { restarts: 3, last_end: Some("x".into()), is_later: true };
        let memory = Memory::with(&past).unwrap();
        assert_eq!(memory.past().unwrap(), past);
        assert_eq!(memory.reason(), None, "nothing was left yet");
        memory.leave("anet-broker was ended\nby signal 9");
        assert_eq!(memory.reason().unwrap(), "anet-broker was ended by signal 9");
        memory.leave(&"\u{e9}".repeat(3000));
        assert_eq!(memory.reason().unwrap(), "\u{e9}".repeat(512));
        memory.write(b"{\"end\":");
        assert_eq!(memory.reason(), None);
    }
}

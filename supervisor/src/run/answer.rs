//! The agent's answer: read from its output while it runs, and taken out of it when it has ended (ACC-2).

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};

use ipc_proto::job::AnswerFormat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::agents::{MAX_OUTPUT, NoAnswer, answer};
use crate::error::{one_line, steers};

/// As much as a pipe holds.
const PIECE: usize = 64 * 1024;
/// So many pieces are read at the end at most: what a pipe holds and the longest answer, whatever their size was.
const MOST_PIECES: usize = 2 * MAX_OUTPUT / PIECE;
/// The longest words of an agent about its own failure that the operator is shown, in characters.
const MAX_WORDS: usize = 600;

/// The output of an agent, and what is made of it.
#[derive(Debug)]
pub(crate) struct Output {
    format: AnswerFormat,
    reader: File,
    /// At most one byte more than an answer may have.
    bytes: Vec<u8>,
    ended: bool,
}

impl Output {
    pub(crate) fn new(format: AnswerFormat, reader: File) -> Output {
        Output { format, reader, bytes: Vec::new(), ended: false }
    }

    /// To be waited for; none once its end has come.
    pub(crate) fn waits(&self) -> Option<BorrowedFd<'_>> {
        (!self.ended).then(|| self.reader.as_fd())
    }

    /// Takes what is there. What is too much is read and dropped, so that the agent does not wait for us.
    pub(crate) fn read(&mut self) {
        let mut piece = vec![0; PIECE];
        match self.reader.read(&mut piece) {
            Ok(0) => self.ended = true,
            Ok(length) => {
                let room = (MAX_OUTPUT + 1).saturating_sub(self.bytes.len());
                self.bytes.extend(piece.iter().take(length.min(room)));
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => self.ended = true,
        }
    }

    /// Reads the rest, where there is one: the answer, or words for the operator on why there is none.
    pub(crate) fn finish(&mut self) -> Result<String, String> {
        // Bounded: whoever still writes when its agent has ended would be read for ever.
        for _ in 0..MOST_PIECES {
            if self.ended || !self.has_more() {
                break;
            }
            self.read();
        }
        match answer(self.format, &self.bytes) {
            Ok(answer) if !answer.is_error => Ok(answer.text),
            Ok(failed) => Err(shortened(&one_line(&failed.text))),
            Err(NoAnswer::Empty) => Err(NoAnswer::Empty.to_string()),
            Err(none) => Err(none.to_string()),
        }
    }

    fn has_more(&self) -> bool {
        let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }
}

/// Nothing in it that a terminal obeys: it may come from a task that wants to steer what the operator sees.
#[must_use]
pub fn tame(text: &str) -> String {
    let harmless = |letter: char| {
        if steers(letter) && !matches!(letter, '\n' | '\t') { char::REPLACEMENT_CHARACTER } else { letter }
    };
    text.chars().map(harmless).collect()
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_WORDS).collect();
    if short.len() < text.len() {
        short.push_str(" ...");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn told(output: &[u8]) -> Result<String, String> {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(output).unwrap();
        drop(writer);
        Output::new(AnswerFormat::Text, File::from(std::os::fd::OwnedFd::from(reader))).finish()
    }

    /// ACC-2: the answer is the agent's text, and what a terminal would obey stays out of one.
    #[test]
    fn the_answer_is_the_text_and_does_not_steer_a_terminal() {
        let text = "done\x1b]0;title\x07\n\ttab";
        assert_eq!(told(text.as_bytes()).as_deref(), Ok(text));
        assert_eq!(tame(text), "done\u{fffd}]0;title\u{fffd}\n\ttab");
        assert_eq!(tame("a\u{202e}b\u{2066}c"), "a\u{fffd}b\u{fffd}c");
        assert!(told(b"").is_err());
    }
}

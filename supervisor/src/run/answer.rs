//! The agent's answer: read from its output while it runs, and written to the operator when it has ended (ACC-2).

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use ipc_proto::job::AnswerJob;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::agents::{MAX_OUTPUT, NoAnswer, answer};
use crate::error::{one_line, steers};

/// As much as a pipe holds.
const PIECE: usize = 64 * 1024;
/// The longest words of an agent about its own failure that the operator is shown, in characters.
const MAX_WORDS: usize = 600;

/// The output of an agent, and what is made of it.
#[derive(Debug)]
pub(super) struct Output {
    job: AnswerJob,
    reader: File,
    operator: File,
    /// At most one byte more than an answer may have.
    bytes: Vec<u8>,
    ended: bool,
}

/// What became of the answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It is written.
    Answer,
    /// There is none, and these are words for the operator.
    Nothing(String),
}

impl Output {
    pub(super) fn new(job: AnswerJob, reader: File, operator: File) -> Output {
        Output { job, reader, operator, bytes: Vec::new(), ended: false }
    }

    /// To be waited for; none once its end has come.
    pub(super) fn waits(&self) -> Option<BorrowedFd<'_>> {
        (!self.ended).then(|| self.reader.as_fd())
    }

    /// Takes what is there. What is too much is read and dropped, so that the agent does not wait for us.
    pub(super) fn read(&mut self) {
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

    /// Reads the rest, where there is one, and tells the operator.
    pub(super) fn finish(&mut self) -> std::io::Result<Told> {
        while !self.ended && self.has_more() {
            self.read();
        }
        let answer = match answer(self.job.format, &self.bytes) {
            Ok(answer) if !answer.is_error => answer,
            Ok(failed) => return Ok(Told::Nothing(shortened(&one_line(&failed.text)))),
            Err(NoAnswer::Empty) => return Ok(Told::Nothing(NoAnswer::Empty.to_string())),
            Err(none) => return Ok(Told::Nothing(none.to_string())),
        };
        let mut text = if self.job.to_terminal { tame(&answer.text) } else { answer.text };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        match self.operator.write_all(text.as_bytes()) {
            // A reader that went away has read enough.
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
            Ok(()) | Err(_) => Ok(Told::Answer),
        }
    }

    fn has_more(&self) -> bool {
        let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }
}

/// Nothing in it that a terminal obeys: it may come from a task that wants to steer what the operator sees.
fn tame(text: &str) -> String {
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
    use ipc_proto::job::AnswerFormat;

    fn told(output: &[u8], to_terminal: bool) -> (Told, Vec<u8>) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(output).unwrap();
        drop(writer);
        let mut operator = tempfile::tempfile().unwrap();
        let job = AnswerJob { format: AnswerFormat::Text, to_terminal };
        let reader = File::from(std::os::fd::OwnedFd::from(reader));
        let told = Output::new(job, reader, operator.try_clone().unwrap()).finish().unwrap();
        let mut written = Vec::new();
        std::io::Seek::rewind(&mut operator).unwrap();
        operator.read_to_end(&mut written).unwrap();
        (told, written)
    }

    /// ACC-2: the answer is the agent's text, and what a terminal would obey stays out of one.
    #[test]
    fn the_answer_is_written_and_does_not_steer_a_terminal() {
        let text = b"done\x1b]0;title\x07\n\ttab";
        assert_eq!(told(text, false), (Told::Answer, [&text[..], b"\n"].concat()));
        let (_, shown) = told(text, true);
        assert_eq!(String::from_utf8(shown).unwrap(), "done\u{fffd}]0;title\u{fffd}\n\ttab\n");
        let (_, shown) = told("a\u{202e}b\u{2066}c".as_bytes(), true);
        assert_eq!(String::from_utf8(shown).unwrap(), "a\u{fffd}b\u{fffd}c\n");
        assert!(matches!(told(b"", false), (Told::Nothing(_), written) if written.is_empty()));
    }
}

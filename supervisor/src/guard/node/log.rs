//! What the node says to the operator: to the journal where that is what reads standard error, else as lines.
//!
//! The guard and the keeper, whom nobody can talk to, speak the journal's own protocol. The confined processes have no socket
//! to do so: they write lines to standard error, and where the journal reads those, each line begins with its priority as
//! sd-daemon(3) has it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FileType, fstat};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

/// Who speaks, in the journal.
const IDENTIFIER: &str = "anet";

/// Speaks as the guard or the keeper. Where the journal cannot be reached, lines to standard error do.
pub(super) fn speak() {
    let journal = is_read_by_journal(std::env::var("JOURNAL_STREAM").ok().as_deref(), &io::stderr());
    let layer = journal.then(tracing_journald::layer).and_then(Result::ok);
    // The first one holds: a process speaks in one way.
    let _ = match layer {
        Some(layer) => {
            let layer = layer
                .with_syslog_identifier(IDENTIFIER.to_owned())
                .with_field_prefix(Some("ANET".to_owned()));
            tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))
        }
        None => tracing::subscriber::set_global_default(lines(Standard, false)),
    };
}

/// How a confined process speaks: lines to its log, with priorities where the journal reads them.
pub fn confined(log: File) -> impl Subscriber + Send + Sync {
    let journal = is_socket(&log);
    lines(Log(log), journal)
}

fn lines<W>(writer: W, priorities: bool) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .without_time()
        .with_target(false)
        .with_level(false)
        .with_ansi(false)
        // It would say that standard error cannot be written to on standard error, and end the process for it.
        .log_internal_errors(false)
        .with_max_level(Level::INFO)
        .with_writer(Prefixed { writer, priorities })
        .finish()
}

/// Whether standard error is the stream that the journal gave to this service: `JOURNAL_STREAM` names it (systemd.exec(5)).
fn is_read_by_journal(variable: Option<&str>, stream: &impl AsFd) -> bool {
    let Some((device, inode)) = variable.and_then(|text| text.split_once(':')) else { return false };
    let file = stream.as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata())
        .is_ok_and(|found| device.parse() == Ok(found.dev()) && inode.parse() == Ok(found.ino()))
}

/// The journal's stream is a socket, and nothing else that a log goes to is.
fn is_socket(log: &File) -> bool {
    fstat(log).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket)
}

struct Standard;

impl<'a> MakeWriter<'a> for Standard {
    type Writer = io::Stderr;

    fn make_writer(&'a self) -> io::Stderr {
        io::stderr()
    }
}

struct Log(File);

impl<'a> MakeWriter<'a> for Log {
    type Writer = &'a File;

    fn make_writer(&'a self) -> &'a File {
        &self.0
    }
}

/// Each line begins with whose it is, and for the journal with its priority.
struct Prefixed<W> {
    writer: W,
    priorities: bool,
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Prefixed<W> {
    type Writer = Line<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Line { writer: self.writer.make_writer(), prefix: "" }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        Line {
            prefix: if self.priorities { priority(*metadata.level()) } else { "" },
            writer: self.writer.make_writer(),
        }
    }
}

/// syslog(3): errors, warnings, what is normal and of note, the rest.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<5>",
        _ => "<7>",
    }
}

/// One event, which is written at once, so that lines of several processes do not mix.
struct Line<W> {
    writer: W,
    prefix: &'static str,
}

impl<W: Write> Write for Line<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let line = [self.prefix.as_bytes(), b"anet: ", text].concat();
        self.writer.write_all(&line)?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A log that the journal reads has its priorities; another one is for people.
    #[test]
    fn lines_have_priorities_for_the_journal_alone() {
        let speak = || {
            tracing::info!("serving");
            tracing::warn!(process = "anet-broker", "died");
            tracing::error!("over");
        };
        let (far, near) = UnixStream::pair().unwrap();
        tracing::subscriber::with_default(confined(File::from(OwnedFd::from(near))), speak);
        let mut said = String::new();
        { far }.read_to_string(&mut said).unwrap();
        assert_eq!(said, "<5>anet: serving\n<4>anet: died process=\"anet-broker\"\n<3>anet: over\n");

        let mut file = tempfile::tempfile().unwrap();
        tracing::subscriber::with_default(confined(file.try_clone().unwrap()), speak);
        said.clear();
        file.rewind().unwrap();
        file.read_to_string(&mut said).unwrap();
        assert_eq!(said, "anet: serving\nanet: died process=\"anet-broker\"\nanet: over\n");
    }

    /// `JOURNAL_STREAM` that was inherited from elsewhere names another stream.
    #[test]
    fn the_journals_stream_is_known_by_its_inode() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let file = File::from(OwnedFd::from(stream.try_clone().unwrap()));
        let found = file.metadata().unwrap();
        let name = format!("{}:{}", found.dev(), found.ino());
        assert!(is_read_by_journal(Some(&name), &stream));
        assert!(!is_read_by_journal(Some(&name), &_other));
        for other in [None, Some(""), Some("1"), Some("x:y")] {
            assert!(!is_read_by_journal(other, &stream));
        }
        assert!(is_socket(&file));
        assert!(!is_socket(&tempfile::tempfile().unwrap()));
    }
}

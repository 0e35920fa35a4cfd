//! A file, a line at a time, in constant memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::{MAX_RECORD, segment};

/// How much is read at once.
const BUFFER: usize = 256 * 1024;

/// The next line.
#[derive(Debug)]
pub(super) enum Next<'a> {
    /// A whole one, without its newline.
    Line(&'a [u8]),
    /// The last bytes of the file, which no newline ends.
    Tail,
    /// Longer than a record can be.
    TooLong,
    /// Nothing more.
    End,
}

/// Reads lines.
#[derive(Debug)]
pub(super) struct Lines {
    reader: BufReader<File>,
    line: Vec<u8>,
    /// Where the line begins that was read last.
    at: u64,
    /// Where the next one does.
    next: u64,
}

impl Lines {
    pub(super) fn open(path: &Path) -> io::Result<Lines> {
        let reader = BufReader::with_capacity(BUFFER, segment::open(path)?);
        Ok(Lines { reader, line: Vec::new(), at: 0, next: 0 })
    }

    pub(super) fn next(&mut self) -> io::Result<Next<'_>> {
        self.line.clear();
        self.at = self.next;
        let mut limited = (&mut self.reader).take(MAX_RECORD as u64);
        let read = limited.read_until(b'\n', &mut self.line)?;
        self.next += read as u64;
        match self.line.strip_suffix(b"\n") {
            Some(line) => Ok(Next::Line(line)),
            None if read == 0 => Ok(Next::End),
            None if read == MAX_RECORD => Ok(Next::TooLong),
            None => Ok(Next::Tail),
        }
    }

    /// Where the next line begins.
    pub(super) fn at_next(&self) -> u64 {
        self.next
    }

    /// Reads the last line again, in case it has grown.
    pub(super) fn again(&mut self) -> io::Result<()> {
        self.reader.seek(SeekFrom::Start(self.at))?;
        self.next = self.at;
        Ok(())
    }

    /// The file's length now.
    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(self.reader.get_ref().metadata()?.len())
    }
}

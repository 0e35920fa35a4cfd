//! The key, taken out of whatever the service answers (MOD-1, MOD-11): some quote the credential that they refuse, and a
//! gateway may show the whole request.
//!
//! It is found as it is, and as JSON may write it within a string (`\/`, `\"`, `\u0073`), however the answer was cut into
//! pieces. Each of its bytes becomes one of filler, so that a length that was announced stays true. Found it is not in any
//! other clothes: in base64 or percent signs, in a string of JSON within a string, with something in between. A service
//! that means to give the key away has it, and can.

use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use crate::key::Key;

/// The shortest key that is looked for, in bytes. What is shorter is a word that servers without keys are given (`none`,
/// `ollama`): no secret, and in half of all answers.
const SHORTEST: usize = 8;
/// Stands where a byte of the key stood: it needs no escape, in a header or in JSON.
const FILLER: u8 = b'*';

/// What reads an answer before anybody else does. It holds back no more than what may be the beginning of the key: a line
/// that has ended is never kept.
pub(super) struct Redactor {
    key: Option<Rc<Key>>,
    held: Bytes,
}

impl Redactor {
    /// One for an answer from a service that was given this key.
    pub(super) fn new(key: Option<&Rc<Key>>) -> Redactor {
        let key = key.filter(|key| key.expose().len() >= SHORTEST).cloned();
        Redactor { key, held: Bytes::new() }
    }

    /// Takes the next piece, and gives what may go on of all that came. Only what has the key in it, or the end of what may
    /// be one, is copied.
    pub(super) fn next(&mut self, piece: Bytes) -> Bytes {
        self.judge(piece, false)
    }

    /// Gives what was held back, when nothing more comes.
    pub(super) fn rest(&mut self) -> Bytes {
        if self.held.is_empty() { Bytes::new() } else { self.judge(Bytes::new(), true) }
    }

    /// How many bytes are held back.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes the key out of the values of headers.
    pub(super) fn headers(&self, headers: &mut HeaderMap) {
        let Some(key) = &self.key else { return };
        for value in headers.values_mut() {
            let (places, _) = seek(key.expose(), value.as_bytes(), true);
            if !places.is_empty() {
                // Filler is a sound value; were it none, an empty one says as little.
                *value = HeaderValue::from_maybe_shared(filled(value.as_bytes(), &places))
                    .unwrap_or_else(|_| HeaderValue::from_static(""));
            }
        }
    }

    fn judge(&mut self, piece: Bytes, last: bool) -> Bytes {
        let Some(key) = &self.key else { return piece };
        let held = std::mem::take(&mut self.held);
        let mut text = if held.is_empty() { piece } else { Bytes::from([held, piece].concat()) };
        let (places, rest) = seek(key.expose(), &text, last);
        self.held = text.split_off(rest);
        if places.is_empty() { text } else { filled(&text, &places) }
    }
}

/// The text with filler in these places.
fn filled(text: &[u8], places: &[Range<usize>]) -> Bytes {
    let mut text = text.to_vec();
    for place in places {
        if let Some(place) = text.get_mut(place.clone()) {
            place.fill(FILLER);
        }
    }
    Bytes::from(text)
}

/// Where the key stands, and from where on the text may be the beginning of one; in the `last` of all text nothing is.
fn seek(key: &[u8], text: &[u8], last: bool) -> (Vec<Range<usize>>, usize) {
    let mut places = Vec::new();
    let mut start = 0;
    let may_begin = |byte: &u8| *byte == b'\\' || key.first() == Some(byte);
    while let Some(skipped) = text.get(start..).and_then(|rest| rest.iter().position(may_begin)) {
        start += skipped;
        match compare(key, text.get(start..).unwrap_or_default()) {
            Likeness::Whole(length) => {
                places.push(start..start + length);
                start += length;
            }
            Likeness::Beginning if !last => return (places, start),
            Likeness::Beginning | Likeness::None => start += 1,
        }
    }
    (places, text.len())
}

/// How much of the key a text begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Likeness {
    /// All of it, in so many bytes of the text.
    Whole(usize),
    /// Perhaps all of it: the text ends first.
    Beginning,
    /// Something else stands there.
    None,
}

/// Reads the text in both ways: a backslash of the key itself would be taken for an escape otherwise. JSON takes no fewer bytes
/// for the same, so that what is too short as it is, is too short for JSON.
fn compare(key: &[u8], text: &[u8]) -> Likeness {
    match compare_by(key, text, plain) {
        Likeness::None => compare_by(key, text, json),
        found @ (Likeness::Whole(_) | Likeness::Beginning) => found,
    }
}

fn compare_by(key: &[u8], text: &[u8], read: fn(&[u8]) -> Next) -> Likeness {
    let mut length = 0;
    for wanted in key {
        match read(text.get(length..).unwrap_or_default()) {
            Next::Byte(byte, read) if byte == *wanted => length += read,
            Next::Byte(..) | Next::Other => return Likeness::None,
            Next::Missing => return Likeness::Beginning,
        }
    }
    Likeness::Whole(length)
}

/// What a text begins with.
enum Next {
    /// This byte, written as so many.
    Byte(u8, usize),
    /// Something that no key has.
    Other,
    /// That has not come yet.
    Missing,
}

fn plain(text: &[u8]) -> Next {
    text.first().map_or(Next::Missing, |byte| Next::Byte(*byte, 1))
}

/// RFC 8259, section 7.
fn json(text: &[u8]) -> Next {
    match text {
        [] | [b'\\'] => Next::Missing,
        [b'\\', byte @ (b'"' | b'\\' | b'/'), ..] => Next::Byte(*byte, 2),
        [b'\\', b'u', digits @ ..] => unicode(digits),
        [b'\\', ..] => Next::Other,
        [byte, ..] => Next::Byte(*byte, 1),
    }
}

/// The four digits of `\u0073`.
fn unicode(text: &[u8]) -> Next {
    const DIGITS: usize = 4;
    let digits = text.get(..DIGITS).unwrap_or(text);
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Next::Other;
    }
    if digits.len() < DIGITS {
        return Next::Missing;
    }
    let number = std::str::from_utf8(digits).ok().and_then(|digits| u16::from_str_radix(digits, 16).ok());
    match number.map(u8::try_from) {
        Some(Ok(byte)) => Next::Byte(byte, r"\u".len() + DIGITS),
        Some(Err(_)) | None => Next::Other,
    }
}

#[cfg(test)]
mod tests;

//! One line of a chain. There is one way to write it, and whatever is not written in that way is none: what is hashed is
//! exactly the bytes of the line, and no two readers find different things in them.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::time::SystemTime;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{hex, rfc3339};

/// A SHA-256.
pub type Hash = [u8; 32];

/// What stands before the first line.
pub const ORIGIN: Hash = [0; 32];
/// The longest kind, in bytes.
pub const MAX_KIND: usize = 64;

const PREV_KEY: &str = ",\"prev\":\"";
const HASH_KEY: &str = ",\"hash\":\"";
const END: &str = "\"}";
/// Digits of a hash.
const DIGITS: usize = 64;
/// Bytes of a time.
const TIME: usize = "1970-01-01T00:00:00.000Z".len();

/// A line without its hash, in the order in which it is written.
#[derive(Serialize)]
struct Unhashed<'a> {
    seq: u64,
    time: &'a str,
    kind: &'a str,
    body: &'a Value,
    prev: &'a str,
}

/// The line of a record, with its newline, and its hash.
///
/// # Errors
/// When the body cannot be written as JSON.
pub fn write(seq: u64, at: SystemTime, kind: &str, body: &Value, prev: &Hash) -> io::Result<(String, Hash)> {
    let (time, prev) = (rfc3339(at), hex(prev));
    let mut line = serde_json::to_string(&Unhashed { seq, time: &time, kind, body, prev: &prev })
        .map_err(io::Error::other)?;
    let hash: Hash = Sha256::digest(line.as_bytes()).into();
    line.pop();
    line.push_str(HASH_KEY);
    line.push_str(&hex(&hash));
    line.push_str(END);
    line.push('\n');
    Ok((line, hash))
}

/// A line as it stands, taken apart. Its parts are well formed; that its hash fits is asked with [`Record::is_unchanged`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    /// Counts from 0.
    pub seq: u64,
    /// RFC 3339, UTC, milliseconds.
    pub time: &'a str,
    /// What happened, such as `run.admitted`.
    pub kind: &'a str,
    /// What belongs to it: a JSON object.
    pub body: &'a str,
    /// The hash of the line before.
    pub prev: Hash,
    /// The hash of this one, as it says.
    pub hash: Hash,
    /// What is hashed, but for the closing brace.
    unhashed: &'a str,
}

impl<'a> Record<'a> {
    /// Takes a line apart, without its newline; none: it is not written as [`write`] does.
    #[must_use]
    pub fn read(line: &'a [u8]) -> Option<Record<'a>> {
        let text = std::str::from_utf8(line).ok()?;
        let (seq, rest) = number(text.strip_prefix("{\"seq\":")?)?;
        let (time, rest) = rest.strip_prefix(",\"time\":\"")?.split_at_checked(TIME)?;
        let rest = rest.strip_prefix("\",\"kind\":\"")?;
        let (kind, rest) =
            rest.split_at_checked(rest.bytes().take(MAX_KIND + 1).position(|byte| byte == b'"')?)?;
        let rest = rest.strip_prefix("\",\"body\":")?;
        let (rest, hash) = hash_behind(rest.strip_suffix(END)?, HASH_KEY)?;
        let unhashed = text.get(..text.len() - END.len() - DIGITS - HASH_KEY.len())?;
        let (body, prev) = hash_behind(rest.strip_suffix('"')?, PREV_KEY)?;
        if !is_time(time) || !is_kind(kind) || !body.starts_with('{') {
            return None;
        }
        serde_json::from_str::<Plain>(body).ok()?;
        Some(Record { seq, time, kind, body, prev, hash, unhashed })
    }

    /// Whether its hash is that of what it says.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        let mut hasher = Sha256::new();
        hasher.update(self.unhashed.as_bytes());
        hasher.update(b"}");
        Hash::from(hasher.finalize()) == self.hash
    }

    /// The body's values.
    #[must_use]
    pub fn values(&self) -> Value {
        // It was read once already.
        serde_json::from_str(self.body).unwrap_or(Value::Null)
    }
}

/// A whole number as JSON writes it, and what stands behind it.
fn number(text: &str) -> Option<(u64, &str)> {
    let (digits, rest) = text.split_at_checked(text.bytes().position(|byte| !byte.is_ascii_digit())?)?;
    let plain = digits == "0" || !digits.starts_with('0');
    Some((digits.parse().ok().filter(|_| plain)?, rest))
}

/// What stands before a hash at the end of the text, and the hash.
fn hash_behind<'a>(text: &'a str, key: &str) -> Option<(&'a str, Hash)> {
    let (rest, digits) = text.split_at_checked(text.len().checked_sub(DIGITS)?)?;
    Some((rest.strip_suffix(key)?, unhex(digits)?))
}

/// Bytes out of lower-case hex.
#[must_use]
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != N * 2 {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let [high, low] = digits else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

/// Whether it has the form of a time. What the clock said may be wrong in every other way.
fn is_time(text: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00.000Z";
    let fits = |(byte, form): (u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == *form };
    text.len() == FORM.len() && text.bytes().zip(FORM).all(fits)
}

/// Whether it is the name of a kind: small letters, digits, `.` and `_`, a letter first.
#[must_use]
pub fn is_kind(text: &str) -> bool {
    (1..=MAX_KIND).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_'))
}

/// JSON with one meaning: the keys of each object ascend, so that none stands twice. Depth and numbers are bounded by
/// `serde_json` (128 levels, finite).
struct Plain;

/// A key, copied only where it is written with escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Plain, D::Error> {
        deserializer.deserialize_any(PlainVisitor)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = Plain;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Plain, E> {
        Ok(Plain)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Plain, E> {
        Ok(Plain)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Plain, E> {
        Ok(Plain)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Plain, E> {
        Ok(Plain)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Plain, E> {
        Ok(Plain)
    }

    fn visit_str<E>(self, _: &str) -> Result<Plain, E> {
        Ok(Plain)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Plain, A::Error> {
        while list.next_element::<Plain>()?.is_some() {}
        Ok(Plain)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Plain, A::Error> {
        let mut before: Option<Key<'de>> = None;
        while let Some(key) = object.next_key::<Key<'de>>()? {
            if before.is_some_and(|before| before.0 >= key.0) {
                return Err(A::Error::custom("keys do not ascend"));
            }
            object.next_value::<Plain>()?;
            before = Some(key);
        }
        Ok(Plain)
    }
}

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key<'de>, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chain::at_unix_ms;

    fn line(body: &Value) -> String {
        let (line, _) = write(7, at_unix_ms(0), "a.b", body, &[0xab; 32]).unwrap();
        line.trim_end().to_owned()
    }

    /// EVI-2: a line says what it was written with, and nothing else reads as a line.
    #[test]
    fn a_line_reads_back() {
        let body = json!({ "b": [1, -1, 1.5, null, true, { "\"": "\u{1f600}\n" }], "a": {} });
        let text = line(&body);
        let record = Record::read(text.as_bytes()).unwrap();
        assert_eq!((record.seq, record.time, record.kind), (7, "1970-01-01T00:00:00.000Z", "a.b"));
        assert_eq!(record.prev, [0xab; 32]);
        assert!(record.is_unchanged());
        assert_eq!(record.values(), body);
    }

    /// EVI-2: a line with the right hash that two readers could understand differently is none.
    #[test]
    fn lines_with_two_meanings_are_none() {
        let good = line(&json!({ "a": 1 }));
        let rehashed = |from: &str, to: &str| {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good);
            let unhashed = text.rfind(HASH_KEY).map(|cut| format!("{}}}", &text[..cut])).unwrap();
            let hash = hex(&Sha256::digest(unhashed.as_bytes()));
            let line = format!("{}{HASH_KEY}{hash}{END}", unhashed.strip_suffix('}').unwrap());
            Record::read(line.as_bytes()).is_some_and(|record| record.is_unchanged())
        };
        assert!(rehashed("{\"a\":1}", "{\"a\":1,\"b\":2}"));
        for (from, to) in [
            ("{\"a\":1}", "{\"a\":1,\"a\":2}"),
            ("{\"a\":1}", "{\"b\":1,\"a\":2}"),
            ("{\"a\":1}", "{\"a\":1,\"\\u0061\":2}"),
            ("{\"a\":1}", "{\"a\":1},\"more\":1"),
            ("{\"a\":1}", "{\"a\":1},\"body\":{}"),
            ("{\"a\":1}", "{\"a\":{\"c\":1,\"c\":1}}"),
            ("{\"a\":1}", "{\"a\":1e999}"),
            ("{\"a\":1}", "{\"a\":01}"),
            ("{\"a\":1}", "{\"a\":\"\\ud800\"}"),
            ("{\"a\":1}", "[1]"),
            ("{\"a\":1}", ""),
            ("\"seq\":7", "\"seq\":07"),
            ("\"seq\":7", "\"seq\":-7"),
            ("\"seq\":7", "\"seq\": 7"),
            ("\"seq\":7", "\"seq\":18446744073709551616"),
            ("\"seq\":7,", ""),
            ("\"time\":\"1", "\"time\":\"x"),
            ("a.b", "A.b"),
            ("a.b", ""),
            ("a.b", "a\\u002eb"),
            ("\"prev\":\"ab", "\"prev\":\"AB"),
            ("\"prev\":\"ab", "\"prev\":\""),
        ] {
            assert!(!rehashed(from, to), "{to}");
        }
        assert!(Record::read(format!(" {good}").as_bytes()).is_none());
        assert!(Record::read(format!("{good} ").as_bytes()).is_none());
        assert!(Record::read(b"").is_none());
    }

    /// EVI-2: objects and lists may be as deep as documented, and no deeper.
    #[test]
    fn depth_is_bounded() {
        let deep = |levels| (1..levels).fold(json!({}), |inner, _| json!({ "a": inner }));
        assert!(Record::read(line(&deep(127)).as_bytes()).is_some());
        assert!(Record::read(line(&deep(128)).as_bytes()).is_none());
    }

    /// EVI-3: nothing cut off a line leaves a line.
    #[test]
    fn a_part_of_a_line_is_none() {
        let good = line(&json!({ "a": { "b": "c" } }));
        for cut in 0..good.len() {
            assert!(Record::read(&good.as_bytes()[..cut]).is_none(), "{cut}");
            assert!(Record::read(&good.as_bytes()[cut + 1..]).is_none(), "{cut}");
        }
    }
}

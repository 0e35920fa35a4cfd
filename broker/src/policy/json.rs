//! JSON with one meaning (MOD-8): what two parsers could read differently is refused, so that the service cannot find in a
//! body what was not checked here. No key twice in an object (also not by another escape), UTF-8 alone, nothing behind the
//! object, bounded depth and number of values. Numbers: integers of 64 bits are exact, every other one is the nearest
//! double, and that is what is written.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::path::{printable, shown};
use super::{Refusal, Rule};

/// The deepest nesting: a schema of a tool stands some ten levels deep. Far below what a small stack or `serde_json` (128)
/// bears.
pub(super) const MAX_DEPTH: usize = 64;
/// The most values in one body, however few bytes they have there. Beside its text one takes 42 bytes in a long list
/// (`[0,0,...]`), 140 as a list of one, 270 as an object of one: as many as there may be are 130 MiB at most (measured with
/// glibc; such a body has 3 MiB). So one body of 32 MiB takes 260 MiB at most: as it came, its values, and as it goes out.
pub const MAX_VALUES: usize = 500_000;

/// Any JSON value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer from 0 on.
    Unsigned(u64),
    /// An integer below 0.
    Signed(i64),
    /// Any other number; finite.
    Float(f64),
    /// Text.
    String(String),
    /// A list.
    Array(Vec<Value>),
    /// An object.
    Object(Object),
}

impl Value {
    /// The text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    /// The list, if it is one.
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        if let Value::Array(values) = self { Some(values) } else { None }
    }

    /// The object, if it is one.
    #[must_use]
    pub fn as_object(&self) -> Option<&Object> {
        if let Value::Object(object) = self { Some(object) } else { None }
    }

    /// The object, if it is one, to be changed.
    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        if let Value::Object(object) = self { Some(object) } else { None }
    }

    /// Whether it is a number.
    #[must_use]
    pub fn is_number(&self) -> bool {
        matches!(self, Value::Unsigned(_) | Value::Signed(_) | Value::Float(_))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_owned())
    }
}

/// An object: its keys are distinct and keep their order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Object {
    pairs: Vec<(String, Value)>,
}

impl Object {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.pairs.iter_mut().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Sets a key where it stands, or behind all others.
    pub fn set(&mut self, key: &str, value: Value) {
        match self.get_mut(key) {
            Some(old) => *old = value,
            None => self.pairs.push((key.to_owned(), value)),
        }
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &str) {
        self.pairs.retain(|(name, _)| name != key);
    }

    /// Goes through all pairs; those that the closure answers with `false` are taken out.
    ///
    /// # Errors
    /// The first that the closure has.
    pub fn try_retain<E>(
        &mut self,
        mut keep: impl FnMut(&str, &mut Value) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut result = Ok(());
        self.pairs.retain_mut(|(key, value)| {
            if result.is_err() {
                return true;
            }
            keep(key, value).unwrap_or_else(|error| {
                result = Err(error);
                true
            })
        });
        result
    }

    /// All pairs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.pairs.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// An object of pairs; `Err` has the key that stands twice.
    fn of(pairs: Vec<(String, Value)>) -> Result<Object, String> {
        // Sorted rather than each against each: an object may have as many keys as a body has bytes.
        let mut keys: Vec<&str> = pairs.iter().map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        let twice = keys.windows(2).find_map(|pair| match pair {
            [first, second] if first == second => Some((*first).to_owned()),
            _ => None,
        });
        match twice {
            Some(key) => Err(key),
            None => Ok(Object { pairs }),
        }
    }
}

impl<const N: usize> From<[(&str, Value); N]> for Object {
    fn from(pairs: [(&str, Value); N]) -> Object {
        let mut object = Object::default();
        for (key, value) in pairs {
            object.set(key, value);
        }
        object
    }
}

/// Reads a body: one object.
///
/// # Errors
/// `body_missing` or one of the `json_` rules.
pub fn read(bytes: &[u8]) -> Result<Object, Refusal> {
    let malformed = |what: &str| Refusal::of(Rule::JsonMalformed, what);
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Refusal::plain(Rule::BodyMissing));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| malformed(&format!("byte {} is not UTF-8", error.valid_up_to())))?;
    if text.starts_with('\u{feff}') {
        return Err(malformed("it starts with a byte order mark"));
    }
    let reader = Reader { left: RefCell::new(MAX_VALUES), refusal: RefCell::new(None) };
    let mut input = serde_json::Deserializer::from_str(text);
    let value = Seed { reader: &reader, depth: 0 }.deserialize(&mut input).map_err(|error| {
        reader
            .refusal
            .take()
            .unwrap_or_else(|| malformed(&format!("line {}, column {}", error.line(), error.column())))
    })?;
    input.end().map_err(|error| {
        malformed(&format!(
            "something follows the object at line {}, column {}",
            error.line(),
            error.column()
        ))
    })?;
    if let Value::Object(object) = value {
        Ok(object)
    } else {
        Err(Refusal::of(Rule::JsonNotObject, &shown(&value)))
    }
}

/// Writes a body.
///
/// # Errors
/// None that is known: were there one, nothing is sent.
pub fn write(object: Object) -> Result<Vec<u8>, Refusal> {
    // There is nothing in a Value that cannot be written; were there, the request would end here.
    serde_json::to_vec(&Value::Object(object))
        .map_err(|_| Refusal::of(Rule::Internal, "the body cannot be written"))
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Unsigned(value) => serializer.serialize_u64(*value),
            Value::Signed(value) => serializer.serialize_i64(*value),
            Value::Float(value) => serializer.serialize_f64(*value),
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(values) => serializer.collect_seq(values),
            Value::Object(object) => {
                let mut map = serializer.serialize_map(Some(object.pairs.len()))?;
                for (key, value) in &object.pairs {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

/// What one reading counts, and why it ended: serde's errors carry text alone.
struct Reader {
    left: RefCell<usize>,
    refusal: RefCell<Option<Refusal>>,
}

impl Reader {
    fn refuse<E: serde::de::Error>(&self, refusal: Refusal) -> E {
        self.refusal.replace(Some(refusal));
        E::custom("refused")
    }
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    reader: &'a Reader,
    depth: usize,
}

impl Seed<'_> {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(self.reader.refuse(Refusal::of(Rule::JsonTooDeep, &MAX_DEPTH.to_string())));
        }
        Ok(Seed { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        {
            let mut left = self.reader.left.borrow_mut();
            let Some(rest) = left.checked_sub(1) else {
                return Err(self.reader.refuse(Refusal::of(Rule::JsonTooLarge, &MAX_VALUES.to_string())));
            };
            *left = rest;
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or(Value::Signed(value), Value::Unsigned))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        if value.is_finite() { Ok(Value::Float(value)) } else { Err(E::custom("not finite")) }
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut values = Vec::new();
        while let Some(value) = input.next_element_seed(inner)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut pairs = Vec::new();
        while let Some(key) = input.next_key::<String>()? {
            pairs.push((key, input.next_value_seed(inner)?));
        }
        Object::of(pairs).map(Value::Object).map_err(|key| {
            self.reader.refuse(Refusal::of(Rule::JsonDuplicateKey, &format!("\"{}\"", printable(&key))))
        })
    }
}

#[cfg(test)]
mod tests;

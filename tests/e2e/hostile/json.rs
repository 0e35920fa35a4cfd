//! MOD-8: bodies that are not one JSON object, or that two readers could read in two ways.

use serde_json::{Value, json};

use super::Case;
use crate::model::post;

pub(super) fn cases(path: &str, body: &Value) -> Vec<Case> {
    let text = body.to_string();
    let open = text.strip_suffix('}').expect("an object");
    let deep = |levels: usize| format!("{open},\"tools\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    let deep_objects =
        |levels: usize| format!("{open},\"x\":{}1{}}}", "{\"a\":".repeat(levels), "}".repeat(levels));
    let texts: Vec<(&str, String)> = vec![
        ("two objects", format!("{text}{text}")),
        ("two objects on two lines", format!("{text}\n{text}")),
        ("an object and a word", format!("{text} x")),
        ("an object and a comma", format!("{text},")),
        ("an object and a brace", format!("{text}}}")),
        ("an object and a NUL", format!("{text}\0")),
        ("a list", format!("[{text}]")),
        ("a text", json!(text).to_string()),
        ("a number", "5".into()),
        ("null", "null".into()),
        ("true", "true".into()),
        ("nothing", String::new()),
        ("white space", "  \r\n ".into()),
        ("a byte order mark", format!("\u{feff}{text}")),
        ("a form feed", format!("\u{c}{text}")),
        ("a no-break space", format!("\u{a0}{text}")),
        ("an unfinished object", open.to_owned()),
        ("a comma at the end", format!("{open},}}")),
        ("two commas", text.replacen(',', ",,", 1)),
        ("a comment", format!("{open}/* x */}}")),
        ("a line comment", format!("// x\n{text}")),
        ("single quotes", text.replace('"', "'")),
        ("a key without quotes", text.replacen("\"model\"", "model", 1)),
        ("a semicolon", text.replacen(',', ";", 1)),
        ("NaN", format!("{open},\"temperature\":NaN}}")),
        ("Infinity", format!("{open},\"temperature\":Infinity}}")),
        ("minus Infinity", format!("{open},\"temperature\":-Infinity}}")),
        ("a number over all bounds", format!("{open},\"temperature\":1e400}}")),
        ("a leading zero", format!("{open},\"temperature\":01}}")),
        ("a plus", format!("{open},\"temperature\":+1}}")),
        ("a hexadecimal number", format!("{open},\"temperature\":0x1}}")),
        ("a bare point", format!("{open},\"temperature\":.5}}")),
        ("a point at the end", format!("{open},\"temperature\":1.}}")),
        ("a control character", text.replacen("[[text", "\u{1}[[text", 1)),
        ("a line end in a text", text.replacen("[[text", "\n[[text", 1)),
        ("an unknown escape", text.replacen("[[text", "\\x41[[text", 1)),
        ("a short escape", text.replacen("[[text", "\\u12[[text", 1)),
        ("half a surrogate", text.replacen("[[text", "\\ud800[[text", 1)),
        ("the other half", text.replacen("[[text", "\\udc00[[text", 1)),
        ("halves in the wrong order", text.replacen("[[text", "\\udc00\\ud800[[text", 1)),
        ("half a surrogate in a key", format!("{open},\"\\ud800\":1}}")),
        ("a hundred lists", deep(100)),
        ("a hundred thousand lists", deep(100_000)),
        ("a hundred objects", deep_objects(100)),
        ("ten thousand objects", deep_objects(10_000)),
        ("a million open brackets", "[".repeat(1_000_000)),
        ("a million open braces", "{\"a\":".repeat(200_000)),
        // Twice the same key: one reader takes the first, another the last.
        ("the model twice", format!("{open},\"model\":\"other\"}}")),
        ("the model twice, once escaped", format!("{open},\"m\\u006fdel\":\"other\"}}")),
        ("the model first, escaped", format!("{{\"\\u006dodel\":\"other\",{}", &text[1..])),
        ("a key twice, equal", format!("{open},\"model\":{}}}", body["model"])),
        ("tools twice", format!("{open},\"tools\":[{{\"type\":\"unheard_of\"}}]}}")),
        ("tools twice, once escaped", format!("{open},\"t\\u006fols\":[{{\"type\":\"unheard_of\"}}]}}")),
        (
            "a type twice",
            text.replacen("\"tools\":[{", "\"tools\":[{\"type\":\"unheard_of\",\"type\":\"custom\",", 1),
        ),
        (
            "a type twice, once escaped",
            text.replacen(
                "\"tools\":[{",
                "\"tools\":[{\"type\":\"custom\",\"ty\\u0070e\":\"unheard_of\",",
                1,
            ),
        ),
        ("twice in a schema", text.replacen("\"object\"}", "\"object\",\"a\":1,\"a\":2}", 1)),
        (
            "twice in a schema, once escaped",
            text.replacen("\"object\"}", "\"object\",\"a\":1,\"\\u0061\":2}", 1),
        ),
        ("the empty key twice", format!("{open},\"\":1,\"\":2}}")),
    ];
    let mut cases: Vec<Case> = texts
        .into_iter()
        .map(|(label, text)| Case::new(format!("{path} body: {label}"), post(path, &Value::String(text))))
        .collect();
    // Bytes that no text holds, sent as they are.
    for (label, bytes) in [
        ("no UTF-8", text.replacen("[[text", "\\xff[[text", 1)),
        ("an overlong sequence", text.replacen("[[text", "\\xc0\\xaf[[text", 1)),
        ("a surrogate in UTF-8", text.replacen("[[text", "\\xed\\xa0\\x80[[text", 1)),
        ("half a sequence", text.replacen("[[text", "\\xe2\\x82[[text", 1)),
        (
            "UTF-16",
            text.bytes().fold("\\xff\\xfe".to_owned(), |all, byte| format!("{all}{}\\x00", char::from(byte))),
        ),
        ("gzip without saying so", "\\x1f\\x8b\\x08\\x00\\x00\\x00\\x00\\x00\\x00\\x03".into()),
    ] {
        let length = bytes.len() - 3 * bytes.matches("\\x").count();
        let send = format!(
            "POST {path} HTTP/1.1\r\nHost: {{host}}\r\nanthropic-version: 2023-06-01\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{bytes}"
        );
        cases.push(Case::new(format!("{path} body: {label}"), json!({ "send": send })));
    }
    cases
}

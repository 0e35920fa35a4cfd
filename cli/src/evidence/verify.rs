//! `anet evidence verify`.

use std::path::Path;

use ipc_proto::Code;
use ipc_proto::broker::PublicKey;
use serde_json::{Value, json};
use supervisor::error::Trouble;
use supervisor::evidence::{self, Fault, KeySource, Verified, key_text, parse_key, read_key};
use supervisor::node::NodeState;

use super::arguments::Verify;
use super::progress::Line;
use super::{STATUS_BAD, trouble};
use crate::arguments::Anet;
use crate::linux::{complain, print};
use crate::page::{self, Page, Screen, Tone};
use crate::time::count;

/// A node leaves no more records than this unsigned for long: it asks for a signature every 1024.
const USUAL: u64 = 2 * evidence::EVERY;

pub(super) fn perform(anet: &Anet, path: &Path, verify: &Verify) -> Result<u8, Trouble> {
    let key = verify.key.as_deref().map(key).transpose()?;
    match check(path, key) {
        Ok(verified) => {
            print(&if anet.json {
                page::json(&document(path, &verified))
            } else {
                shown(path, &verified, Screen::look()).whole()
            })?;
            Ok(0)
        }
        Err(fault @ (Fault::Record { .. } | Fault::NoKey(_))) => {
            if anet.json {
                print(&page::json(&json!({ "ok": false, "path": path, "fault": fault_document(&fault) })))?;
            }
            complain(&trouble(fault));
            Ok(STATUS_BAD)
        }
        Err(fault @ Fault::Unreadable { .. }) => Err(trouble(fault)),
    }
}

/// Everything, with progress on a terminal.
pub(super) fn check(path: &Path, key: Option<PublicKey>) -> Result<Verified, Fault> {
    let mut line = Line::new();
    evidence::verify::<NodeState>(path, key, &mut |progress| line.say("verifying", progress))
}

/// A key as text, or in a file.
fn key(text: &str) -> Result<PublicKey, Trouble> {
    if let Some(key) = parse_key(text) {
        return Ok(key);
    }
    match read_key(text.as_ref()) {
        Ok(Some(key)) => Ok(key),
        Ok(None) => Err(Trouble::new(
            Code::BadOption,
            format!("--key {text}: neither 64 digits 0-9 and a-f nor a file with them"),
        )),
        Err(fault) => Err(Trouble::new(Code::BadOption, format!("--key {text}: {fault}"))),
    }
}

fn fault_document(fault: &Fault) -> Value {
    let sentence = fault.to_string();
    match fault {
        Fault::Record { seq, segment, offset, what } => json!({
            "seq": seq, "segment": segment, "offset": offset, "what": what.to_string(), "sentence": sentence,
        }),
        Fault::NoKey(path) | Fault::Unreadable { path, .. } => {
            json!({ "segment": path, "sentence": sentence })
        }
    }
}

fn document(path: &Path, verified: &Verified) -> Value {
    let torn = verified.tail.as_ref().map(|tail| {
        json!({ "seq": tail.seq, "segment": tail.segment, "offset": tail.offset, "bytes": tail.bytes })
    });
    json!({
        "ok": true, "path": path, "records": verified.records, "segments": verified.segments, "bytes": verified.bytes,
        "checkpoints": verified.checkpoints, "signed": verified.signed, "unsigned": verified.unsigned,
        "key": verified.key.as_ref().map(key_text), "key_source": verified.key_source.map(KeySource::as_str),
        "states_compared": verified.compared, "torn": torn, "live": verified.live,
    })
}

fn shown(path: &Path, verified: &Verified, screen: Screen) -> Page {
    let mut page = Page::new(screen);
    page.labelled(Tone::Head, "evidence", &path.display().to_string());
    let records = format!(
        "{} in {}, {}: the chain holds",
        count(verified.records, "record"),
        count(verified.segments, "file"),
        ipc_proto::units::show_size(verified.bytes)
    );
    page.labelled(Tone::Good, "records", &records);
    let (tone, signed) = signed(verified);
    page.labelled(tone, "signed", &signed);
    match (&verified.key, verified.key_source) {
        (Some(key), Some(source)) => {
            let from = match source {
                KeySource::Given => "as given",
                KeySource::File => "from evidence.pub; a copy that is kept elsewhere proves more",
                KeySource::Header => {
                    "from the file itself; compare it with the node's, or give that with --key"
                }
                KeySource::Checkpoint => {
                    "from the first checkpoint; compare it with the node's, or give that with --key"
                }
            };
            page.labelled(Tone::Plain, "key", &format!("{} ({from})", key_text(key)));
        }
        _ => page.labelled(
            Tone::Warning,
            "key",
            "none is known, so whoever can write the files could have replaced them all",
        ),
    }
    if let Some(tail) = &verified.tail {
        let file = tail.segment.file_name().unwrap_or_default().to_string_lossy();
        let torn = format!(
            "{} at the end of {file} are a record that was not written to its end, as a crash leaves it (record {}, byte {}); a \
             node sets them aside when it starts",
            count(tail.bytes, "byte"),
            tail.seq,
            tail.offset
        );
        page.labelled(Tone::Warning, "torn", &torn);
    }
    if verified.live {
        page.labelled(Tone::Plain, "node", "it is running, and may have written more since");
    }
    page
}

fn signed(verified: &Verified) -> (Tone, String) {
    let unsigned = verified.unsigned;
    let rest = match unsigned {
        0 => "nothing is behind that".to_owned(),
        1 => "1 record is not signed yet".to_owned(),
        _ => format!("{unsigned} records are not signed yet"),
    };
    let Some(signed) = verified.signed else {
        return (Tone::Warning, format!("nothing: {rest}"));
    };
    let signatures = if verified.checkpoints == 1 {
        "1 signature holds".to_owned()
    } else {
        format!("{} signatures hold", verified.checkpoints)
    };
    if unsigned > USUAL {
        let more = "more than a node that signs leaves: see whether it could not, or whether somebody put them there";
        return (Tone::Warning, format!("up to record {signed}, {signatures}; {rest}, {more}"));
    }
    (Tone::Good, format!("up to record {signed}, {signatures}; {rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified() -> Verified {
        Verified {
            records: 3000,
            segments: 2,
            bytes: 900_000,
            checkpoints: 3,
            signed: Some(2998),
            unsigned: 0,
            key: Some([0xab; 32]),
            key_source: Some(KeySource::File),
            compared: 2,
            tail: None,
            live: false,
        }
    }

    /// EVI-2: what signatures do not cover is said, and more of it than usual is a warning.
    #[test]
    fn what_is_not_signed_is_said() {
        let good = verified();
        assert_eq!(
            signed(&good),
            (Tone::Good, "up to record 2998, 3 signatures hold; nothing is behind that".into())
        );
        let one = Verified { unsigned: 1, checkpoints: 1, ..good.clone() };
        assert_eq!(
            signed(&one),
            (Tone::Good, "up to record 2998, 1 signature holds; 1 record is not signed yet".into())
        );
        let many = signed(&Verified { unsigned: 5000, ..good.clone() });
        assert!(many.0 == Tone::Warning && many.1.contains("5000 records are not signed yet"), "{}", many.1);
        let none = signed(&Verified { signed: None, unsigned: 7, ..good });
        assert_eq!(none, (Tone::Warning, "nothing: 7 records are not signed yet".into()));
    }

    /// DIA-3: the document has the same fields whatever was found.
    #[test]
    fn the_document_is_stable() {
        let good = document("x".as_ref(), &verified());
        let tail = evidence::Tail { seq: 3000, segment: "x/1".into(), offset: 7, bytes: 5 };
        let torn =
            document("x".as_ref(), &Verified { tail: Some(tail), key: None, key_source: None, ..verified() });
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&good), keys(&torn));
        assert_eq!(good["key"], "ab".repeat(32));
        assert_eq!(torn["torn"], json!({ "seq": 3000, "segment": "x/1", "offset": 7, "bytes": 5 }));
        let path = std::path::PathBuf::from("x/1");
        let fault = Fault::Record { seq: 4, segment: path, offset: 9, what: evidence::What::Changed };
        let document = fault_document(&fault);
        assert_eq!((&document["seq"], &document["offset"]), (&json!(4), &json!(9)));
        assert!(document["sentence"].as_str().unwrap().contains("record 4 was changed"));
    }

    /// USE-2: the page fits the terminal, and says what a torn end is.
    #[test]
    fn the_page_fits() {
        let tail = evidence::Tail { seq: 3000, segment: "x/1.jsonl".into(), offset: 7, bytes: 5 };
        let torn = Verified { tail: Some(tail), live: true, ..verified() };
        let screen = Screen { columns: Some(60), rows: None, colour: false };
        let page = shown("/state/evidence".as_ref(), &torn, screen);
        assert!(page.lines().all(|line| line.chars().count() <= 76), "{}", page.whole());
        let whole = shown("/state/evidence".as_ref(), &torn, Screen::PLAIN).whole();
        assert!(
            whole.contains("3000 records in 2 files") && whole.contains("5 bytes at the end of 1.jsonl"),
            "{whole}"
        );
    }
}

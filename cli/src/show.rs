//! `anet show`: an interaction or run of the node, or the chain of a run of `anet run`, as a person or a program reads it.

use std::io::Read;
use std::path::Path;
use std::time::SystemTime;

use ipc_proto::control::{MAX_ID, Story, ToNode};
use ipc_proto::{Code, RunId};
use serde_json::{Value, json};
use supervisor::chain::{self, Line};
use supervisor::error::{Trouble, one_line};
use supervisor::guard::Directories;

use crate::arguments::{Anet, Show};
use crate::linux::print;
use crate::node::{Client, Failure, Patience, Places};
use crate::page::Screen;
use crate::{page, story};

/// The longest chain that is read, in bytes.
const MAX_CHAIN: u64 = 256 * 1024 * 1024;

/// Asks the node; what no node knows may be a run of `anet run`, which has a chain of its own.
pub(crate) fn perform(anet: &Anet, show: &Show) -> Result<u8, Trouble> {
    let told = told(anet, show);
    let failure = match told {
        Ok(story) => {
            print(&if anet.json {
                page::json(&story::document(&story))
            } else {
                story::page(&story, show.task, Screen::look(), SystemTime::now()).whole()
            })?;
            return Ok(0);
        }
        Err(failure) => failure,
    };
    let Ok(run) = show.id.parse::<RunId>() else { return Err(not_found(&show.id, failure)) };
    let path = Directories::find()?.state.join("runs").join(format!("{run}.jsonl"));
    if path.exists() { own_run(anet, run, &path) } else { Err(not_found(&show.id, failure)) }
}

fn told(anet: &Anet, show: &Show) -> Result<Story, Failure> {
    let mut client = Client::connect(Places::chosen(anet)?)?;
    if show.id.len() > MAX_ID {
        return Err(Trouble::new(Code::NoSuchInteraction, "no interaction or run has so long a name").into());
    }
    client.ask(|node| node.document(&ToNode::Show { id: show.id.clone() }, Patience::Prompt))
}

/// Nobody knows it. Without a node that is all that can be said of what looks like a run; an interaction may be the node's.
fn not_found(id: &str, failure: Failure) -> Trouble {
    match failure {
        Failure::Absent if id.starts_with('r') => Trouble::new(
            Code::NoSuchRun,
            format!(
                "{}: there is no such run in the state directory, and no node is running to ask",
                one_line(id)
            ),
        ),
        Failure::Trouble(trouble) if trouble.code == Code::NoSuchInteraction => {
            Trouble::new(trouble.code, format!("{}: {}", one_line(id), trouble.sentence))
        }
        failure @ (Failure::Absent | Failure::Lost | Failure::Trouble(_)) => failure.into(),
    }
}

/// Reads, verifies, prints.
fn own_run(anet: &Anet, run: RunId, path: &Path) -> Result<u8, Trouble> {
    let mut text = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(MAX_CHAIN + 1).read_to_end(&mut text)).map_err(
        |error| Trouble::new(Code::NoSuchRun, format!("{run}: {} cannot be read ({error})", path.display())),
    )?;
    if text.len() as u64 > MAX_CHAIN {
        let what = format!("{} is longer than a chain can be, so anet did not write it", path.display());
        return Err(Trouble::new(Code::RecordFailed, what));
    }
    let (lines, sealed) = chain::read(&text)
        .map_err(|fault| Trouble::new(Code::RecordFailed, format!("{}: {fault}", path.display())))?;
    if anet.json {
        let records: Vec<Value> = (lines.iter())
            .map(|line| json!({ "seq": line.seq, "time": line.time, "kind": line.kind, "body": line.body }))
            .collect();
        print(&page::json(&json!({ "run": run.to_string(), "sealed": sealed, "records": records })))?;
    } else {
        print(&words_of(run, &lines, sealed))?;
    }
    Ok(0)
}

fn words_of(run: RunId, lines: &[Line], sealed: bool) -> String {
    let state = if sealed { "ended and sealed" } else { "still running, or cut off" };
    let mut text = format!("run {run}: {state}, {} records, the chain holds\n", lines.len());
    for line in lines {
        text.push_str(&format!("{}  {:<16} {}\n", line.time, line.kind, words(line)));
    }
    text
}

/// The part of a record that a person looks for.
fn words(line: &Line) -> String {
    let text = |name: &str| match line.body.get(name) {
        Some(Value::String(text)) => one_line(text),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    match line.kind.as_str() {
        "run.admitted" => format!("{} as user {}", text("agent"), text("user")),
        "egress.decided" => {
            let moved = format!("{} bytes out, {} in", text("bytes_out"), text("bytes_in"));
            format!(
                "{}:{} {} {} ({}), {moved}",
                text("host"),
                text("port"),
                text("decision"),
                text("reason"),
                text("class")
            )
        }
        "egress.debited" => format!("{} granted: {}", text("destination"), text("granted")),
        "egress.leased" | "egress.recalled" => format!("{} bytes", text("bytes")),
        "model.dialled" => format!("{} {}", text("decision"), text("reason")),
        "model.debited" => {
            format!("request {}: {} bytes granted: {}", text("request"), text("bytes"), text("granted"))
        }
        "model.decided" => {
            let moved = format!("{} bytes out, {} in", text("bytes_out"), text("bytes_in"));
            let why = [text("rule"), text("trouble")].into_iter().filter(|word| !word.is_empty());
            let why: String = why.map(|word| format!(" {word}")).collect();
            format!(
                "request {}: {} {}{why}, status {}, {moved}",
                text("request"),
                text("interface"),
                text("decision"),
                text("status")
            )
        }
        "run.ended" => format!("exit {}", text("exit")),
        _ => String::new(),
    }
}

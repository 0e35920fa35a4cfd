//! What a service answers, whatever the interface: a call of a tool that runs a command, then a sentence.
//!
//! Directives in the text of the user order something else:
//!
//! | directive | does |
//! | --- | --- |
//! | `[[status:N]]` | the error of that status |
//! | `[[cut]]` | the connection breaks in the middle of the answer |
//! | `[[hang]]` `[[hang:head]]` `[[hang:middle]]` | nothing comes; nothing after the head; nothing after half of it |
//! | `[[slow]]` | a tenth of a second between two events |
//! | `[[text:WORDS]]` | these words, and no tool |
//! | `[[run:COMMAND]]` | the tool runs this command instead |
//! | `[[tool:NAME]]` | this tool is called, not the one that runs commands |
//! | `[[echo]]` | the key that came with the request stands in the answer: in its head, and twice in its body |
//! | `[[once:N]]` | the error of that status, once for each text: the next attempt gets the usual answer |

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex};

use serde_json::{Map, Value, json};

/// The file that the usual task makes.
pub const FILE: &str = "hello.txt";
/// The command that makes it.
pub const COMMAND: &str = "printf hello > hello.txt";
/// What the usual task ends with.
pub const DONE: &str = "Done: hello.txt is there.";
/// The answer to a request that offers nothing to run a command with (a title for the conversation, say).
const NO_TOOL: &str = "There is no tool here that runs a command.";
/// How many bytes of a text go into one event.
const PIECE: usize = 6;

/// Where a service falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hang {
    BeforeHead,
    AfterHead,
    InTheMiddle,
}

/// What the task's text orders.
#[derive(Clone, Debug, Default)]
pub(super) struct Directives {
    pub(super) status: Option<u16>,
    pub(super) cut: bool,
    pub(super) hang: Option<Hang>,
    pub(super) slow: bool,
    pub(super) echo: bool,
    tool: Option<String>,
    text: Option<String>,
    command: Option<String>,
}

impl Directives {
    /// Reads them from what the user said.
    pub(super) fn read(said: &str) -> Directives {
        static ONCE: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
        let mut found = Directives::default();
        for part in said.split("[[").skip(1) {
            let Some((order, _)) = part.split_once("]]") else { continue };
            let (name, value) = order.split_once(':').unwrap_or((order, ""));
            match (name, value) {
                ("status", status) => found.status = status.parse().ok(),
                ("once", status) if ONCE.lock().expect("lock").insert(said.to_owned()) => {
                    found.status = status.parse().ok();
                }
                ("cut", "") => found.cut = true,
                ("hang", "") => found.hang = Some(Hang::BeforeHead),
                ("hang", "head") => found.hang = Some(Hang::AfterHead),
                ("hang", "middle") => found.hang = Some(Hang::InTheMiddle),
                ("slow", "") => found.slow = true,
                ("echo", "") => found.echo = true,
                ("tool", name) => found.tool = Some(name.to_owned()),
                ("text", words) => found.text = Some(words.to_owned()),
                ("run", command) => found.command = Some(command.to_owned()),
                // Brackets that mean nothing to us: the text of an agent's own instructions.
                _ => {}
            }
        }
        found
    }
}

/// A tool that the request offers.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) kind: ToolKind,
    pub(super) schema: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolKind {
    /// Arguments by a schema.
    Function,
    /// One text.
    Custom,
    /// The Responses interface's own tool for commands.
    LocalShell,
}

/// What the model says.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Text(String),
    Call(Tool, Arguments),
}

#[derive(Clone, Debug)]
pub(super) enum Arguments {
    Object(Value),
    Text(String),
    Command(Vec<String>),
}

/// The tools that run a command, by agent: claude, opencode, hermes, codex (three ages of it), openclaw.
const RUNNERS: [&str; 7] = ["Bash", "bash", "terminal", "exec_command", "shell_command", "shell", "exec"];

/// What to say to a conversation.
pub(super) fn decide(directives: &Directives, has_result: bool, offered: &[Tool]) -> Reply {
    if let Some(text) = &directives.text {
        return Reply::Text(text.clone());
    }
    if has_result {
        return Reply::Text(DONE.to_owned());
    }
    let command = directives.command.as_deref().unwrap_or(COMMAND);
    let shell = || ["bash", "-c", command].map(str::to_owned).to_vec();
    let named = |name: &str| offered.iter().find(|tool| tool.name == name);
    let tool = match &directives.tool {
        Some(name) => named(name),
        None => RUNNERS
            .iter()
            .find_map(|name| named(name))
            .or_else(|| offered.iter().find(|tool| tool.kind == ToolKind::LocalShell)),
    };
    let Some(tool) = tool else { return Reply::Text(NO_TOOL.to_owned()) };
    let arguments = match tool.kind {
        ToolKind::LocalShell => Arguments::Command(shell()),
        // Code mode: the one tool takes a program, in which the others are functions.
        ToolKind::Custom => {
            let options = json!({ "cmd": command });
            Arguments::Text(format!(
                "const result = await tools.exec_command({options});\ntext(result.output);\n"
            ))
        }
        ToolKind::Function => Arguments::Object(by_schema(&tool.schema, command, shell())),
    };
    Reply::Call(tool.clone(), arguments)
}

/// Arguments for a tool that runs commands, as its own schema wants them.
fn by_schema(schema: &Value, command: &str, words: Vec<String>) -> Value {
    let mut arguments = Map::new();
    let properties = &schema["properties"];
    for name in ["command", "cmd"] {
        match properties[name]["type"].as_str() {
            Some("array") => arguments.insert(name.to_owned(), json!(words)),
            Some(_) => arguments.insert(name.to_owned(), json!(command)),
            None if properties[name].is_object() => arguments.insert(name.to_owned(), json!(command)),
            None => continue,
        };
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for name in required {
        if !arguments.contains_key(name) {
            let value = match properties[name]["type"].as_str() {
                Some("boolean") => json!(false),
                Some("integer" | "number") => json!(10),
                Some("array") => json!([]),
                Some(_) | None => json!("Create a file"),
            };
            arguments.insert(name.to_owned(), value);
        }
    }
    Value::Object(arguments)
}

/// A text in the pieces that a stream sends.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(PIECE).map(|piece| piece.iter().collect()).collect()
}

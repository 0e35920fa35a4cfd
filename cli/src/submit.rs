//! `anet submit`: a task into the inbox, and its answer out.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

use ipc_proto::control::{MAX_TASK, Outcome, State, ToNode};
use ipc_proto::{Aid, Code, InteractionId};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::stdio::{stdin, stdout};
use rustix::termios::isatty;
use serde_json::json as value;
use supervisor::error::{Trouble, one_line};

use crate::arguments::{Anet, Submit};
use crate::linux::{complain, print};
use crate::node::{Client, Failure, Places, sealed};
use crate::page::json;

/// The exit status where there is no answer (`EX_TEMPFAIL` of sysexits.h).
pub(crate) const STATUS_REFUSED: u8 = 75;

pub(crate) fn perform(anet: &Anet, submit: &Submit) -> Result<u8, Trouble> {
    let bad = |what: String| Trouble::new(Code::BadOption, what);
    let peer: Aid = submit.peer.parse().map_err(|error| bad(format!("--peer {}: {error}", submit.peer)))?;
    let interaction = match &submit.interaction {
        Some(text) => text.parse().map_err(|error| bad(format!("--interaction {text}: {error}")))?,
        // Made here, so that what is sent again after the node was lost is the same task.
        None => new_interaction()?,
    };
    let places = Places::chosen(anet)?;
    let task = task(submit.text.as_deref())?;
    let mut client = Client::connect(places)?;
    let known = match put(&mut client, &peer, &interaction, &task) {
        Ok(known) => known,
        Err(Failure::Trouble(trouble)) if is_refusal(trouble.code) => {
            complain(&trouble);
            return Ok(STATUS_REFUSED);
        }
        Err(failure) => return Err(failure.into()),
    };
    if !submit.wait {
        let id = interaction.as_str();
        print(&if anet.json {
            json(&value!({ "interaction": id, "known": known }))
        } else {
            format!("{id}\n")
        })?;
        return Ok(0);
    }
    let outcome = wait(&mut client, &interaction)?;
    tell(anet, &outcome)
}

/// Puts it on the node's disk. True: it was there already.
fn put(
    client: &mut Client,
    peer: &Aid,
    interaction: &InteractionId,
    task: &Vec<u8>,
) -> Result<bool, Failure> {
    let memory = sealed(task)?;
    let question = ToNode::Submit { peer: peer.clone(), interaction: Some(interaction.clone()) };
    let (_, known) = client.ask(|node| node.submit(&question, memory.as_fd()))?;
    Ok(known)
}

/// Waits for its end, over the node's own ends.
fn wait(client: &mut Client, interaction: &InteractionId) -> Result<Outcome, Trouble> {
    let question = ToNode::Wait { interaction: interaction.clone() };
    match client.ask(|node| node.outcome(&question, None, |_| {})) {
        Ok(outcome) => Ok(outcome),
        Err(Failure::Absent | Failure::Lost) => Err(Trouble::new(
            Code::NoNode,
            format!(
                "the node ended while {interaction} was waited for, and did not come back; the task is kept: start the node \
                 with `anet daemon`, and see `anet show {interaction}`"
            ),
        )),
        Err(Failure::Trouble(trouble)) => Err(trouble),
    }
}

/// Prints how it ended. The exit status.
pub(crate) fn tell(anet: &Anet, outcome: &Outcome) -> Result<u8, Trouble> {
    if anet.json {
        print(&json(outcome))?;
    } else if let Ok(answer) = answer_of(outcome) {
        print(&shown(answer, isatty(stdout())))?;
    }
    Ok(conclude(outcome))
}

/// The exit status, and a line on why there is no answer.
pub(crate) fn conclude(outcome: &Outcome) -> u8 {
    match answer_of(outcome) {
        Ok(_) => 0,
        Err(line) => {
            let _ = writeln!(std::io::stderr(), "anet: {line}");
            STATUS_REFUSED
        }
    }
}

/// The answer as it is printed: to the byte, and to a terminal without what would steer it.
fn shown(answer: &str, to_terminal: bool) -> String {
    let mut text = if to_terminal { supervisor::run::tame(answer) } else { answer.to_owned() };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The answer, or `CODE: sentence` on why there is none.
fn answer_of(outcome: &Outcome) -> Result<&str, String> {
    if let (State::Answered, Some(answer)) = (outcome.state, &outcome.answer) {
        return Ok(answer);
    }
    let Some(refusal) = &outcome.refusal else {
        return Err(format!("{}: the node gave neither an answer nor a reason", Code::AgentFailed));
    };
    let mut sentence = one_line(&refusal.sentence);
    // What the sentence does not say already.
    let more = [("until", &refusal.until), ("kind", &refusal.kind)];
    let more: Vec<String> = more
        .into_iter()
        .filter_map(|(name, text)| Some(format!("{name} {}", one_line(text.as_deref()?))))
        .filter(|text| text.split_once(' ').is_some_and(|(_, text)| !sentence.contains(text)))
        .collect();
    if !more.is_empty() {
        sentence.push_str(&format!(" ({})", more.join(", ")));
    }
    Err(format!("{}: {sentence}", one_line(&refusal.code)))
}

/// Whether the node said no to the task, and not to us.
fn is_refusal(code: Code) -> bool {
    !matches!(code, Code::NoNode | Code::NotAllowed | Code::OtherVersion | Code::BadOption)
}

fn new_interaction() -> Result<InteractionId, Trouble> {
    let mut chance = [0; 4];
    getrandom(&mut chance, GetRandomFlags::empty()).map_err(|errno| {
        Trouble::new(Code::StateUnusable, format!("no random number for the task's id ({errno})"))
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(InteractionId::new(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), chance))
}

/// The task: the argument, else standard input to its end.
pub(crate) fn task(text: Option<&OsStr>) -> Result<Vec<u8>, Trouble> {
    let bad = |what: String| Trouble::new(Code::BadTask, what);
    let task = match text {
        Some(text) => text.as_bytes().to_vec(),
        None if isatty(stdin()) => {
            return Err(bad("there is no task: give it as an argument, or on standard input".to_owned()));
        }
        None => {
            let mut task = Vec::new();
            let read = std::io::stdin().take(MAX_TASK as u64 + 1).read_to_end(&mut task);
            read.map_err(|error| bad(format!("the task cannot be read from standard input ({error})")))?;
            task
        }
    };
    if task.len() > MAX_TASK {
        return Err(bad("the task is longer than 1 MiB; give a shorter one".to_owned()));
    }
    if task.trim_ascii().is_empty() {
        return Err(bad("the task is empty; give it as an argument, or on standard input".to_owned()));
    }
    Ok(task)
}

//! `anet submit`: a task into the inbox, and its answer out.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

use ipc_proto::control::{MAX_TASK, Outcome, State, ToNode};
use ipc_proto::{Aid, Code, InteractionId};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::stdio::{stderr, stdin, stdout};
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
        Err(Failure::Lost) => {
            return Err(Trouble::new(
                Code::NoNode,
                format!(
                    "the node ended before it said that it has the task, and did not come back; start it, and send the task \
                     again with --interaction {interaction}: it is taken once"
                ),
            ));
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
    if isatty(stderr()) {
        let _ =
            writeln!(std::io::stderr(), "{interaction} waits for its answer; Ctrl-C leaves it in the inbox");
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
    !matches!(
        code,
        Code::NoNode | Code::NotAllowed | Code::OtherVersion | Code::BadOption | Code::NoAutoReply
    )
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ipc_proto::control::FromNode;

    use super::*;
    use crate::node::fake::{Fake, Life, answered, refusal, serves};

    fn ids() -> (Aid, InteractionId) {
        ("p1".parse().unwrap(), new_interaction().unwrap())
    }

    /// ACC-1: the text as it is, the peer, and an id that sorts by time.
    #[test]
    fn a_task_is_put_as_it_is() {
        let task = "a 'task'\0 \u{e4}\n".as_bytes().to_vec();
        let (peer, id) = ids();
        let (sent, named) = (task.clone(), id.to_string());
        let node = Fake::once(move |caller| {
            caller.greet();
            assert_eq!(caller.take_task(), ("p1".to_owned(), named, sent));
        });
        let mut client = Client::connect(node.places()).unwrap();
        assert!(!put(&mut client, &peer, &id, &task).unwrap());
        node.join();
        assert!(new_interaction().unwrap() >= id);
    }

    /// ACC-1, PRV-6: a node that ends at any moment gets the same task by the same id, and is waited for by it; the answer comes.
    #[test]
    fn a_node_that_ends_meanwhile_is_given_nothing_twice() {
        let (peer, id) = ids();
        let named = id.to_string();
        let [first, second, third, fourth] = [(); 4].map(|()| named.clone());
        let node = Fake::start(vec![
            // It ends with the task in its hand.
            serves(move |caller| {
                caller.greet();
                let (ToNode::Submit { interaction, .. }, _) = caller.hear().unwrap() else { panic!() };
                assert_eq!(interaction.unwrap().to_string(), first);
            }),
            Life::Away(Duration::from_millis(200)),
            // It takes it, is waited for, and ends.
            serves(move |caller| {
                caller.greet();
                assert_eq!(caller.take_task().1, second);
                assert_eq!(caller.is_waited_for(), third);
            }),
            Life::Away(Duration::from_millis(200)),
            serves(move |caller| {
                caller.greet();
                assert_eq!(caller.is_waited_for(), fourth);
                caller.give(&FromNode::Outcome, &answered(&fourth, "here"));
            }),
        ]);
        let mut client = Client::connect(node.places()).unwrap();
        put(&mut client, &peer, &id, &b"x".to_vec()).unwrap();
        let outcome = wait(&mut client, &id).unwrap();
        assert_eq!(answer_of(&outcome), Ok("here"));
        node.join();
    }

    /// CLI: a node that stays away while it is waited for: `no_node`, and where the task is.
    #[test]
    fn a_node_that_stays_away_keeps_the_task() {
        let (_, id) = ids();
        let node = Fake::start(vec![
            serves(|caller| {
                caller.greet();
                caller.is_waited_for();
            }),
            Life::Away(Duration::ZERO),
        ]);
        let mut client = Client::connect(node.places()).unwrap().patient_for(Duration::from_millis(100));
        let trouble = wait(&mut client, &id).unwrap_err();
        assert_eq!(trouble.code, Code::NoNode);
        assert!(trouble.sentence.contains(&format!("anet show {id}")), "{trouble}");
        node.join();
    }

    /// CLI: what the node says no to is a refusal of the task; what it does not hear at all is none.
    #[test]
    fn refusals_of_a_task_and_of_the_caller_differ() {
        for (code, is) in [
            (Code::OtherTask, true),
            (Code::InboxFull, true),
            (Code::BadTask, true),
            (Code::SandboxUnavailable, true),
            (Code::NotAllowed, false),
            (Code::OtherVersion, false),
            (Code::NoNode, false),
        ] {
            assert_eq!(is_refusal(code), is, "{code}");
        }
    }

    /// DIA-1, CLI: the code, the sentence, and with a budget when the day ends; nothing twice, nothing that steers a terminal.
    #[test]
    fn a_refusal_is_one_line() {
        let of = |refusal| Outcome {
            interaction: "i".to_owned(),
            state: State::Refused,
            answer: None,
            refusal: Some(refusal),
        };
        let line = answer_of(&of(refusal())).unwrap_err();
        assert_eq!(line, "budget: no more runs today (until 2026-03-29T00:00:00+01:00)");
        let mut told = refusal();
        told.sentence = "until 2026-03-29T00:00:00+01:00 no runs".to_owned();
        assert_eq!(answer_of(&of(told.clone())).unwrap_err(), format!("budget: {}", told.sentence));
        told.code = "a\x1b[2J".to_owned();
        told.kind = Some("k\x07\nx".to_owned());
        let line = answer_of(&of(told)).unwrap_err();
        assert!(!line.contains(['\x1b', '\x07', '\n']), "{line:?}");
        let nothing = Outcome { refusal: None, ..of(refusal()) };
        assert!(answer_of(&nothing).unwrap_err().starts_with("agent_failed: "));
        // An answer that does not belong to the state is none.
        let odd = Outcome { answer: Some("x".to_owned()), ..of(refusal()) };
        assert!(answer_of(&odd).is_err());
    }

    /// ACC-2: to a pipe to the byte, to a terminal without what steers it.
    #[test]
    fn an_answer_does_not_steer_a_terminal() {
        assert_eq!(shown("a\x1b[31mb\tc\n", false), "a\x1b[31mb\tc\n");
        assert_eq!(shown("a\x1b[31mb\tc", true), "a\u{fffd}[31mb\tc\n");
    }

    /// ACC-1: a task has 1 byte to 1 MiB.
    #[test]
    fn a_task_has_a_size() {
        let of = |text: &str| task(Some(OsStr::new(text))).map_err(|trouble| trouble.code);
        assert_eq!(of("x"), Ok(b"x".to_vec()));
        assert_eq!(of(" \n"), Err(Code::BadTask));
        assert_eq!(of(""), Err(Code::BadTask));
        assert!(of(&"x".repeat(MAX_TASK)).is_ok());
        assert_eq!(of(&"x".repeat(MAX_TASK + 1)), Err(Code::BadTask));
    }
}

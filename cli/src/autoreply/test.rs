//! `anet autoreply test`: one sandboxed turn from end to end, uncounted, that says what it does.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ipc_proto::Code;
use ipc_proto::control::{Outcome, ToNode};
use serde_json::json as value;
use supervisor::error::{Trouble, one_line};

use crate::arguments::{Anet, Test};
use crate::linux::{complain, print};
use crate::node::{Failure, Places, sealed};
use crate::page::json;
use crate::submit::{STATUS_REFUSED, conclude, task, tell};

/// What an agent is asked where the operator does not say.
const TASK: &str = "This is a test of your set-up. Answer with one short sentence, and do nothing else.";
/// How long a node that is starting anew may take.
const STARTING: Duration = Duration::from_secs(10);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) fn perform(anet: &Anet, test: &Test) -> Result<u8, Trouble> {
    let task = match &test.text {
        Some(text) => task(Some(text))?,
        None => TASK.as_bytes().to_vec(),
    };
    let places = Places::chosen(anet)?;
    let mut steps = Vec::new();
    let outcome = run(&places, &task, |step| {
        let step = one_line(step);
        let _ = writeln!(std::io::stderr(), "{step}");
        steps.push(step);
    });
    match outcome {
        Ok(outcome) if anet.json => {
            print(&json(&value!({ "steps": steps, "outcome": outcome })))?;
            Ok(conclude(&outcome))
        }
        Ok(outcome) => tell(anet, &outcome),
        Err(Failure::Trouble(trouble)) if is_verdict(trouble.code) => {
            if anet.json {
                let refusal = value!({ "code": trouble.code.as_str(), "sentence": trouble.sentence });
                print(&json(
                    &value!({ "steps": steps, "outcome": { "state": "refused", "answer": null, "refusal": refusal } }),
                ))?;
            }
            complain(&trouble);
            Ok(STATUS_REFUSED)
        }
        // A turn is not begun a second time: what it did, it did.
        Err(Failure::Lost) => {
            Err(Trouble::new(Code::NoNode, "the node ended during the test; see its log, and try again"))
        }
        Err(failure) => Err(failure.into()),
    }
}

/// Begins again only where nothing was begun: the node was starting.
fn run(places: &Places, task: &Vec<u8>, mut step: impl FnMut(&str)) -> Result<Outcome, Failure> {
    let began = Instant::now();
    let memory = sealed(task)?;
    loop {
        let told =
            places.reach().and_then(|node| node.outcome(&ToNode::Test, Some(memory.as_fd()), &mut step));
        match told {
            Err(Failure::Trouble(trouble))
                if trouble.code == Code::SandboxUnavailable && began.elapsed() < STARTING =>
            {
                std::thread::sleep(PAUSE);
            }
            told => return told,
        }
    }
}

/// Whether the node said why a turn cannot be run, and not why it does not listen to us.
fn is_verdict(code: Code) -> bool {
    !matches!(
        code,
        Code::NoNode
            | Code::NotAllowed
            | Code::OtherVersion
            | Code::BadOption
            | Code::BadTask
            | Code::NoAutoReply
    )
}

#[cfg(test)]
mod tests {
    use ipc_proto::control::FromNode;

    use super::*;
    use crate::node::fake::{Fake, answered, serves};

    fn refuses(code: Code) -> crate::node::fake::Life {
        serves(move |caller| {
            caller.greet();
            assert!(matches!(caller.hear().unwrap().0, ToNode::Test));
            caller.say(&FromNode::Refused { code, sentence: "no".to_owned() });
        })
    }

    fn tried(node: &Fake) -> (Result<Outcome, Failure>, Vec<String>) {
        let mut steps = Vec::new();
        let told = run(&node.places(), &b"x".to_vec(), |step| steps.push(step.to_owned()));
        (told, steps)
    }

    /// CLI: each step, then the outcome; a node that is starting is asked again, any other word against it is the last.
    #[test]
    fn a_test_says_its_steps() {
        let node = Fake::start(vec![
            refuses(Code::SandboxUnavailable),
            serves(|caller| {
                caller.greet();
                caller.hear();
                for text in ["one", "two"] {
                    caller.say(&FromNode::Step { text: text.to_owned() });
                }
                caller.give(&FromNode::Outcome, &answered("r", "well"));
            }),
        ]);
        let (told, steps) = tried(&node);
        assert_eq!(
            (told.unwrap().answer.as_deref(), steps),
            (Some("well"), vec!["one".to_owned(), "two".to_owned()])
        );
        node.join();

        let node = Fake::start(vec![refuses(Code::NoBwrap)]);
        assert!(matches!(tried(&node).0, Err(Failure::Trouble(trouble)) if trouble.code == Code::NoBwrap));
        node.join();
        assert!(is_verdict(Code::NoBwrap) && !is_verdict(Code::NotAllowed));
    }

    /// A turn is not begun a second time where the node ended during it.
    #[test]
    fn a_test_is_not_repeated() {
        let node = Fake::start(vec![serves(|caller| {
            caller.greet();
            caller.hear();
            caller.say(&FromNode::Step { text: "one".to_owned() });
        })]);
        let (told, steps) = tried(&node);
        assert!(matches!(told, Err(Failure::Lost)), "{told:?}");
        assert_eq!(steps, ["one"]);
        node.join();
    }
}

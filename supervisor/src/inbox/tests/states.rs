//! What becomes of an interaction, and what does not.

use ipc_proto::Code;
use ipc_proto::control::{MAX_TASK, RunStory};

use super::*;
use crate::inbox::Known;

/// ACC-1: the same name with the same text is the same task, whatever became of it; with another text or peer it is refused.
#[test]
fn a_name_means_one_task() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    assert_eq!(submit(&mut inbox, "p", "a", "text").unwrap(), Submitted { known: false, number: 1 });
    let before = everything(&inbox);
    assert_eq!(submit(&mut inbox, "p", "a", "text").unwrap(), Submitted { known: true, number: 1 });
    for (peer, text) in [("p", "texu"), ("q", "text"), ("p", "text ")] {
        let error = submit(&mut inbox, peer, "a", text).unwrap_err();
        assert!(matches!(error, InboxError::OtherTask(_)), "{error}");
        assert_eq!(error.code(), Code::OtherTask);
    }
    assert_eq!(everything(&inbox), before);
    inbox.begin(&id("a"), run(1), Way::Sandbox, false, 2000).unwrap();
    inbox.finish(&id("a"), 3000, &answered("done"), Some((run(1), "{}"))).unwrap();
    assert!(submit(&mut inbox, "p", "a", "text").unwrap().known);
    assert_eq!(inbox.queued_count().unwrap(), 0);
}

/// ACC-1: a task has a text, of at most 1 MiB; any bytes are one.
#[test]
fn a_task_has_a_length() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    for length in [0, MAX_TASK + 1] {
        let error = submit(&mut inbox, "p", "a", &"x".repeat(length)).unwrap_err();
        assert_eq!(error.code(), Code::BadTask);
    }
    submit(&mut inbox, "p", "a", &"x".repeat(MAX_TASK)).unwrap();
    assert_eq!(inbox.task(&id("a")).unwrap().len(), MAX_TASK);
    let bytes: Vec<u8> = (0..=255).collect();
    inbox.submit(1000, &aid("p"), &id("b"), &bytes, &Sha256::digest(&bytes).into()).unwrap();
    assert_eq!(inbox.task(&id("b")).unwrap(), bytes);
    let story = inbox.story("b").unwrap().unwrap();
    assert_eq!((story.task_bytes, story.task.chars().nth(65)), (256, Some('A')));
    assert!(matches!(inbox.task(&id("c")), Err(InboxError::Unknown(_))));
}

/// ACC-2: an answer is kept as it is, with the run's record, and shown by the interaction's name and by the run's.
#[test]
fn an_answer_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    let answer = "ja\0\u{1f980}\r\n".repeat(300_000);
    submit(&mut inbox, "p", "a", "text").unwrap();
    assert_eq!(inbox.outcome(&id("a")).unwrap(), Known::Open);
    inbox.begin(&id("a"), run(7), Way::Openai, true, 1_700_000_000_123).unwrap();
    assert_eq!(inbox.outcome(&id("a")).unwrap(), Known::Open);
    let open = inbox.story("a").unwrap().unwrap();
    assert_eq!((open.interaction.state, open.interaction.ended, open.answer), (State::Running, None, None));
    assert_eq!(open.runs.len(), 1);
    assert_eq!(open.runs[0].record, None);
    inbox.finish(&id("a"), 1_700_000_060_000, &answered(&answer), Some((run(7), "{\"run\":7}"))).unwrap();
    drop(inbox);

    let inbox = Inbox::open(dir.path()).unwrap();
    let Known::Final(outcome) = inbox.outcome(&id("a")).unwrap() else { panic!("it has ended") };
    assert_eq!((outcome.interaction.as_str(), outcome.state), ("a", State::Answered));
    assert!(outcome.answer.as_ref() == Some(&answer) && outcome.refusal.is_none());
    let story = inbox.story("a").unwrap().unwrap();
    assert_eq!(inbox.story(&run(7).to_string()).unwrap().unwrap(), story);
    assert_eq!(story.interaction.trusted, Some(true));
    assert_eq!(story.interaction.submitted, "1970-01-01T00:00:01.000Z");
    assert_eq!(story.interaction.ended.as_deref(), Some("2023-11-14T22:14:20.000Z"));
    let told = RunStory {
        run: run(7).to_string(),
        way: "openai".to_owned(),
        started: "2023-11-14T22:13:20.123Z".to_owned(),
        record: Some("{\"run\":7}".to_owned()),
    };
    assert_eq!(story.runs, [told]);
    assert_eq!(inbox.outcome(&id("b")).unwrap(), Known::No);
    assert_eq!(inbox.story("b").unwrap(), None);
    assert_eq!(inbox.story("' OR 1=1 --").unwrap(), None);
}

/// ACC-2, DIA-1: a refusal is kept whole, with a run and without one.
#[test]
fn a_refusal_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    let plain =
        Refusal { code: "agent_failed".to_owned(), kind: None, until: None, sentence: "no".to_owned() };
    for (name, state, refusal) in [
        ("a", State::Refused, refusal()),
        ("b", State::Exhausted, refusal()),
        ("c", State::Interrupted, plain.clone()),
    ] {
        submit(&mut inbox, "p", name, "text").unwrap();
        inbox.begin(&id(name), run(u64::from(name.as_bytes()[0])), Way::Sandbox, false, 2000).unwrap();
        inbox.finish(&id(name), 3000, &refused(state, &refusal), None).unwrap();
        let Known::Final(outcome) = inbox.outcome(&id(name)).unwrap() else { panic!("it has ended") };
        assert_eq!((outcome.state, outcome.answer, outcome.refusal.as_ref()), (state, None, Some(&refusal)));
    }
    submit(&mut inbox, "p", "d", "text").unwrap();
    inbox.refuse(&id("d"), 3000, false, &plain).unwrap();
    let story = inbox.story("d").unwrap().unwrap();
    assert_eq!((story.interaction.state, story.interaction.trusted), (State::Refused, Some(false)));
    assert_eq!((story.refusal, story.runs.len()), (Some(plain), 0));
    assert_eq!(inbox.rows(None, 9).unwrap()[0].code.as_deref(), Some("agent_failed"));
}

/// One interaction in each state, and one that is not there.
fn one_of_each() -> (tempfile::TempDir, Inbox) {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    for (number, state) in State::ALL.into_iter().enumerate() {
        let (name, run) = (state.as_str(), run(number as u64));
        submit(&mut inbox, "p", name, "text").unwrap();
        if state != State::Queued {
            inbox.begin(&id(name), run, Way::Sandbox, false, 2000).unwrap();
        }
        let refusal = refusal();
        let ending = if state == State::Answered { answered("answer") } else { refused(state, &refusal) };
        if state.is_final() {
            inbox.finish(&id(name), 3000, &ending, Some((run, "{}"))).unwrap();
        }
    }
    (dir, inbox)
}

/// ACC-1, ACC-2: a change that a state does not allow is refused, and changes nothing: no answer is ever given twice, and
/// nothing runs twice by itself.
#[test]
fn what_a_state_does_not_allow_changes_nothing() {
    let (_dir, mut inbox) = one_of_each();
    let before = everything(&inbox);
    let counted = inbox.waiting.clone();
    let refusal = refusal();
    for name in ["running", "answered", "refused", "exhausted", "interrupted", "nobody"] {
        let errors = [
            inbox.begin(&id(name), run(99), Way::Direct, true, 4000),
            inbox.refuse(&id(name), 4000, false, &refusal),
            // The first of both would be allowed alone.
            inbox.refuse_all(4000, [(&id("queued"), false, &refusal), (&id(name), false, &refusal)]),
        ];
        assert_all_refused(name, errors);
    }
    for name in ["queued", "answered", "refused", "exhausted", "interrupted", "nobody"] {
        let errors = [
            inbox.finish(&id(name), 4000, &answered("other"), None),
            inbox.finish(&id(name), 4000, &refused(State::Refused, &refusal), Some((run(0), "{}"))),
        ];
        assert_all_refused(name, errors);
    }
    assert_eq!(everything(&inbox), before);
    assert_eq!(inbox.waiting, counted);
    assert_sound(&inbox);
}

fn assert_all_refused<const N: usize>(name: &str, errors: [Result<(), InboxError>; N]) {
    for error in errors {
        match error {
            Err(InboxError::Unknown(unknown)) => assert_eq!((unknown.as_str(), name), (name, "nobody")),
            Err(InboxError::NotInState { found, .. }) => assert_eq!(found.as_str(), name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// ACC-2: an end is one of those that there are, of the run that is open.
#[test]
fn an_end_fits_its_state_and_run() {
    let (_dir, mut inbox) = one_of_each();
    let before = everything(&inbox);
    let (running, told) = (id("running"), refusal());
    for state in State::ALL {
        let (neither, both) = (
            Ending { state, answer: None, refusal: None },
            Ending { state, answer: Some("answer"), refusal: Some(&told) },
        );
        let turned = match state {
            State::Answered => refused(state, &told),
            State::Queued | State::Running | State::Refused | State::Exhausted | State::Interrupted => {
                Ending { state, answer: Some("answer"), refusal: None }
            }
        };
        for ending in [neither, both, turned] {
            let error = inbox.finish(&running, 4000, &ending, None).unwrap_err();
            assert!(matches!(error, InboxError::BadEnding(_)), "{error}");
        }
    }
    for wrong in [run(2), run(99)] {
        let error = inbox.finish(&running, 4000, &answered("answer"), Some((wrong, "{}"))).unwrap_err();
        assert!(matches!(error, InboxError::OtherRun(_)), "{error}");
    }
    // The name of a run is used once.
    let error = inbox.begin(&id("queued"), run(1), Way::Sandbox, false, 4000).unwrap_err();
    assert!(matches!(error, InboxError::OtherRun(_)), "{error}");
    assert_eq!(everything(&inbox), before);
    inbox.finish(&running, 4000, &answered("answer"), Some((run(1), "{}"))).unwrap();
}

/// RUN-1, EVI-3: what ran when the node ended is interrupted, once, and nothing else changes; it says which runs those were.
#[test]
fn whatever_ran_is_interrupted() {
    let (dir, mut inbox) = one_of_each();
    submit(&mut inbox, "q", "second", "text").unwrap();
    inbox.begin(&id("second"), run(50), Way::Direct, true, 2000).unwrap();
    drop(inbox);
    let mut inbox = Inbox::open(dir.path()).unwrap();
    let others = |inbox: &Inbox| {
        let rows = inbox.rows(None, 100).unwrap();
        let rows = rows.into_iter().filter(|row| !matches!(row.id.as_str(), "running" | "second"));
        rows.collect::<Vec<_>>()
    };
    let before = others(&inbox);
    let interrupted = inbox.interrupted(5000, &refusal()).unwrap();
    assert_eq!(interrupted, [(id("running"), run(1)), (id("second"), run(50))]);
    for name in ["running", "second"] {
        let Known::Final(outcome) = inbox.outcome(&id(name)).unwrap() else { panic!("it has ended") };
        assert_eq!((outcome.state, outcome.refusal), (State::Interrupted, Some(refusal())));
    }
    assert_eq!(inbox.story("second").unwrap().unwrap().interaction.trusted, Some(true));
    assert_eq!(others(&inbox), before);
    assert_eq!(inbox.interrupted(6000, &refusal()).unwrap(), []);
    assert_sound(&inbox);
}

/// CLI `anet inbox`: newest first, page by page.
#[test]
fn a_list_goes_from_the_newest_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = Inbox::open(dir.path()).unwrap();
    for number in 1..=5 {
        submit(&mut inbox, "p", &format!("i{number}"), "text").unwrap();
    }
    let numbers =
        |before, most| inbox.rows(before, most).unwrap().iter().map(|row| row.number).collect::<Vec<_>>();
    assert_eq!(numbers(None, 2), [5, 4]);
    assert_eq!(numbers(Some(4), 2), [3, 2]);
    assert_eq!(numbers(Some(2), 2), [1]);
    assert_eq!(numbers(Some(1), 2), [0u64; 0]);
    assert_eq!(numbers(Some(u64::MAX), u16::MAX), [5, 4, 3, 2, 1]);
    assert_eq!(numbers(None, 0), [0u64; 0]);
    let waiting: Vec<u64> = inbox.waiting().unwrap().iter().map(|task| task.number).collect();
    assert_eq!(waiting, [1, 2, 3, 4, 5]);
}

/// BUD-5: there is room for a further run of the same interaction.
#[test]
fn an_interaction_can_have_a_further_run() {
    let (_dir, mut inbox) = one_of_each();
    let again =
        "UPDATE interaction SET state = 'queued', ended = NULL, code = NULL, kind = NULL, until = NULL,
                 sentence = NULL WHERE id = 'exhausted'";
    inbox.connection.execute(again, []).unwrap();
    inbox.begin(&id("exhausted"), run(60), Way::Sandbox, false, 7000).unwrap();
    inbox.finish(&id("exhausted"), 8000, &answered("at last"), Some((run(60), "{}"))).unwrap();
    let story = inbox.story("exhausted").unwrap().unwrap();
    let runs: Vec<&str> = story.runs.iter().map(|run| run.run.as_str()).collect();
    assert_eq!(runs, [run(4).to_string(), run(60).to_string()]);
    assert_eq!(story.answer.as_deref(), Some("at last"));
}

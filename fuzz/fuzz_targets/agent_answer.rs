//! What an agent wrote, in every format that an answer is found in: an answer or one of the ways that it is missing, never a
//! panic. An answer is the output's own text, and it is found again in the same output. Starts from good outputs, or
//! nothing would be found.
#![no_main]

use ipc_proto::job::AnswerFormat;
use libfuzzer_sys::fuzz_target;
use supervisor::agents::{NoAnswer, answer};

const GOOD: [(AnswerFormat, &str); 6] = [
    (
        AnswerFormat::Claude,
        r#"{"type":"result","subtype":"success","is_error":false,"result":"Done.","errors":["x"],"num_turns":2}"#,
    ),
    (
        AnswerFormat::Codex,
        concat!(
            r#"{"type":"thread.started","thread_id":"t"}"#,
            "\n",
            r#"{"type":"turn.started"}"#,
            "\n",
            r#"{"type":"error","message":"Reconnecting"}"#,
            "\n",
            r#"{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"Done."}}"#,
            "\n",
            r#"{"type":"turn.completed","usage":{}}"#,
            "\n",
            r#"{"type":"turn.failed","error":{"message":"{\"error\":{\"message\":\"anet: no\"}}"}}"#,
            "\n",
        ),
    ),
    (
        AnswerFormat::Opencode,
        concat!(
            r#"{"type":"step_start","part":{}}"#,
            "\n",
            r#"{"type":"text","part":{"text":"Done."}}"#,
            "\n",
            r#"{"type":"error","error":{"name":"APIError","data":{"message":"no"}}}"#,
            "\n",
        ),
    ),
    (AnswerFormat::Hermes, "HTTP 400: anet: no\n"),
    (AnswerFormat::Openclaw, r#"{"ok":true,"status":"done","final":"Done.","error":{"message":"no"}}"#),
    (AnswerFormat::Text, "Done.\n"),
];

fn judge(format: AnswerFormat, output: &[u8]) {
    let found = answer(format, output);
    assert_eq!(answer(format, output), found, "the same output has the same answer");
    let is_blank = output.trim_ascii().is_empty();
    assert_eq!(found == Err(NoAnswer::Empty), is_blank);
    match found {
        // A byte of the output makes three of text at most (U+FFFD), and the texts of opencode one line end each.
        Ok(found) => assert!(found.text.len() <= output.len() * 3, "no more text than there was output"),
        Err(missing) => {
            assert!(!missing.to_string().is_empty());
            assert_ne!(missing, NoAnswer::TooLong, "this is a short output");
        }
    }
}

fuzz_target!(|input: (u8, Vec<(u16, u8)>, u16, &[u8])| {
    let (which, changes, place, raw) = input;
    for (format, _) in GOOD {
        judge(format, raw);
    }
    let (format, good) = GOOD[usize::from(which) % GOOD.len()];
    let mut bent = good.as_bytes().to_vec();
    for (place, byte) in changes {
        let place = usize::from(place) % bent.len();
        bent[place] = byte;
    }
    let place = usize::from(place) % bent.len();
    bent.splice(place..place, raw.iter().copied());
    judge(format, &bent);
});

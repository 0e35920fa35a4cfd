use proptest::prelude::*;

use super::*;

const FORMATS: [AnswerFormat; 5] = [
    AnswerFormat::Claude,
    AnswerFormat::Codex,
    AnswerFormat::Opencode,
    AnswerFormat::Openclaw,
    AnswerFormat::Text,
];
/// What the model services behind the fixtures said last.
const DONE: &str = "Done: hello.txt\nis written.";
const REFUSED: &str = "anet: web search is refused here (MOD-4); do without it, a retry is useless";

const CLAUDE: &[u8] = include_bytes!("../fixtures/claude.json");
const CLAUDE_REFUSED: &[u8] = include_bytes!("../fixtures/claude-refused.json");
const CODEX: &[u8] = include_bytes!("../fixtures/codex.jsonl");
const CODEX_REFUSED: &[u8] = include_bytes!("../fixtures/codex-refused.jsonl");
const CODEX_RETRIED: &[u8] = include_bytes!("../fixtures/codex-retried.jsonl");
const OPENCODE: &[u8] = include_bytes!("../fixtures/opencode.jsonl");
const OPENCODE_REFUSED: &[u8] = include_bytes!("../fixtures/opencode-refused.jsonl");
const OPENCLAW: &[u8] = include_bytes!("../fixtures/openclaw.json");
const OPENCLAW_REFUSED: &[u8] = include_bytes!("../fixtures/openclaw-refused.json");

fn text(format: AnswerFormat, output: &str) -> Result<Answer, NoAnswer> {
    answer(format, output.as_bytes())
}

/// ACC-2, MOD-14: what the published agents really wrote has the model's last words as its answer, whole.
#[test]
fn the_final_text_of_every_agent_is_found() {
    for (format, output) in [
        (AnswerFormat::Claude, CLAUDE),
        (AnswerFormat::Codex, CODEX),
        (AnswerFormat::Opencode, OPENCODE),
        (AnswerFormat::Openclaw, OPENCLAW),
        (AnswerFormat::Text, b"Done: hello.txt\nis written.\n"),
    ] {
        assert_eq!(answer(format, output), Ok(said(DONE.to_owned())), "{format:?}");
    }
}

/// MOD-10: what the broker says of a refusal reaches the person, as an error and not as the answer.
#[test]
fn a_refusal_is_told_as_the_agents_error() {
    for (format, output) in [
        (AnswerFormat::Claude, CLAUDE_REFUSED),
        (AnswerFormat::Codex, CODEX_REFUSED),
        (AnswerFormat::Codex, CODEX_RETRIED),
        (AnswerFormat::Opencode, OPENCODE_REFUSED),
    ] {
        let answer = answer(format, output).unwrap();
        assert!(answer.is_error && answer.text.contains(REFUSED), "{format:?}: {answer:?}");
    }
    // openclaw has words of its own for it.
    let answer = answer(AnswerFormat::Openclaw, OPENCLAW_REFUSED).unwrap();
    assert!(answer.is_error && answer.text.starts_with("LLM request failed"), "{answer:?}");
    // codex hands on a body; what a person reads is the sentence in it.
    assert_eq!(super::answer(AnswerFormat::Codex, CODEX_REFUSED).unwrap().text, REFUSED);
}

/// ACC-2: between tool calls an agent talks too; the answer is what it says in the end.
#[test]
fn words_between_tool_calls_are_not_the_answer() {
    let codex = r#"{"type":"turn.started"}
{"type":"item.completed","item":{"type":"agent_message","text":"First I look."}}
{"type":"item.completed","item":{"type":"a_later_kind","deep":{"a":[1]}}}
{"type":"a.later.event","x":[{"type":"y"}]}
{"type":"item.completed","item":{"type":"agent_message","text":"It is done."}}
{"type":"turn.completed","usage":{}}"#;
    assert_eq!(text(AnswerFormat::Codex, codex), Ok(said("It is done.".into())));
    let opencode = r#"{"type":"step_start","part":{}}
{"type":"text","part":{"text":"First I look."}}
{"type":"tool_use","part":{"type":"tool","state":{"output":"{\"type\":\"text\"}"}}}
{"type":"step_start","part":{}}
{"type":"text","part":{"text":"It is"}}
{"type":"text","part":{"text":"done."}}
{"type":"step_finish","part":{}}"#;
    assert_eq!(text(AnswerFormat::Opencode, opencode), Ok(said("It is\ndone.".into())));
}

/// ACC-2: codex announces a retry as an error; a turn that comes to its end has an answer all the same, and a failed turn
/// has none, whatever was said before.
#[test]
fn an_error_of_codex_counts_if_the_turn_fails() {
    let said_so = r#"{"type":"item.completed","item":{"type":"agent_message","text":"Nearly."}}"#;
    let retry = r#"{"type":"error","message":"Reconnecting... 1/1"}"#;
    let ended = r#"{"type":"turn.completed"}"#;
    let failed_so = r#"{"type":"turn.failed","error":{"message":"no"}}"#;
    let codex = |lines: &[&str]| text(AnswerFormat::Codex, &lines.join("\n"));
    assert_eq!(codex(&[retry, said_so, ended]), Ok(said("Nearly.".into())));
    assert_eq!(codex(&[said_so, failed_so]), Ok(failed("no".into())));
    assert_eq!(codex(&[said_so, retry]), Ok(failed("Reconnecting... 1/1".into())));
    assert_eq!(codex(&[said_so]), Err(NoAnswer::Unfinished));
    assert_eq!(codex(&[ended]), Err(NoAnswer::Unfinished));
}

/// ACC-2: claude may end without a result; then its own word for that is told.
#[test]
fn claude_without_a_result_is_an_error() {
    let claude =
        |rest: &str| text(AnswerFormat::Claude, &format!(r#"{{"type":"result","is_error":true{rest}}}"#));
    assert_eq!(claude(r#","subtype":"error_max_turns""#), Ok(failed("error_max_turns".into())));
    assert_eq!(claude(r#","subtype":"x","errors":["a","b"]"#), Ok(failed("a; b".into())));
    assert_eq!(claude(""), Err(NoAnswer::Unfinished));
    assert_eq!(
        text(AnswerFormat::Claude, r#"{"type":"system","is_error":false,"result":"x"}"#),
        Err(NoAnswer::Malformed)
    );
}

/// ACC-2: nothing, too much, something else, and half of it are told apart, and none of them is an answer.
#[test]
fn what_is_no_answer_is_said() {
    for format in FORMATS {
        assert_eq!(answer(format, b" \n\n"), Err(NoAnswer::Empty), "{format:?}");
        assert_eq!(answer(format, &vec![b' '; MAX_OUTPUT + 1]), Err(NoAnswer::TooLong), "{format:?}");
    }
    for (format, output) in [
        (AnswerFormat::Claude, CLAUDE),
        (AnswerFormat::Codex, CODEX),
        (AnswerFormat::Opencode, OPENCODE),
        (AnswerFormat::Openclaw, OPENCLAW),
    ] {
        assert_eq!(answer(format, b"I did it.\n"), Err(NoAnswer::Malformed), "{format:?}");
        let half = output.trim_ascii_end();
        assert_eq!(answer(format, &half[..half.len() - 2]), Err(NoAnswer::Malformed), "{format:?}");
        let twice = [output, output].concat();
        let again = answer(format, &twice);
        match format {
            AnswerFormat::Claude | AnswerFormat::Openclaw => assert_eq!(again, Err(NoAnswer::Malformed)),
            AnswerFormat::Codex | AnswerFormat::Opencode | AnswerFormat::Hermes | AnswerFormat::Text => {
                assert!(again.is_ok());
            }
        }
    }
}

/// ACC-2: hermes ends well whatever happened, and what failed stands where its answer would.
#[test]
fn what_hermes_says_of_a_failure_is_no_answer() {
    for failed in ["HTTP 400: anet: no such tool", "API call failed after 2 retries: HTTP 500: x"] {
        assert_eq!(text(AnswerFormat::Hermes, failed), Ok(Answer { text: failed.into(), is_error: true }));
    }
    for said in ["HTTP 400: is a status\nof the caller's", "HTTP is a protocol", "HTTP 4: x", "Done."] {
        assert_eq!(text(AnswerFormat::Hermes, said), Ok(Answer { text: said.into(), is_error: false }));
    }
}

/// PRV-5: nesting without end ends at the parser's bound, not at the stack's.
#[test]
fn deep_nesting_is_malformed() {
    let deep = format!("{{\"type\":\"x\",\"y\":{}", "[".repeat(100_000));
    for format in [AnswerFormat::Claude, AnswerFormat::Codex, AnswerFormat::Opencode, AnswerFormat::Openclaw]
    {
        assert_eq!(text(format, &deep), Err(NoAnswer::Malformed), "{format:?}");
    }
}

proptest! {
    /// PRV-5: no bytes make it panic.
    #[test]
    fn any_bytes_are_an_answer_or_none(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for format in FORMATS {
            let _ = answer(format, &bytes);
        }
    }

    /// PRV-5: nor do real outputs with one byte changed; they never gain words that were not there.
    #[test]
    fn a_changed_byte_is_an_answer_or_none(at in 0usize..4000, byte: u8) {
        for (format, output) in [
            (AnswerFormat::Claude, CLAUDE),
            (AnswerFormat::Codex, CODEX_RETRIED),
            (AnswerFormat::Opencode, OPENCODE),
            (AnswerFormat::Openclaw, OPENCLAW_REFUSED),
        ] {
            let mut changed = output.to_vec();
            let at = at % changed.len();
            changed[at] = byte;
            if let Ok(answer) = answer(format, &changed) {
                prop_assert!(answer.text.len() <= output.len());
            }
        }
    }

    /// ACC-2: whatever a model says, in whatever letters, is the answer as it was said.
    #[test]
    fn any_text_comes_through_whole(text in "\\PC{0,80}(\n\\PC{0,80}){0,3}") {
        let quoted = serde_json::to_string(&text).unwrap();
        let codex = format!("{{\"type\":\"item.completed\",\"item\":{{\"type\":\"agent_message\",\"text\":{quoted}}}}}\n\
                             {{\"type\":\"turn.completed\"}}\n");
        let claude = format!("{{\"type\":\"result\",\"is_error\":false,\"result\":{quoted}}}");
        let opencode = format!("{{\"type\":\"text\",\"part\":{{\"text\":{quoted}}}}}");
        let openclaw = format!("{{\"ok\":true,\"final\":{quoted}}}");
        for (format, output) in [
            (AnswerFormat::Codex, codex),
            (AnswerFormat::Claude, claude),
            (AnswerFormat::Opencode, opencode),
            (AnswerFormat::Openclaw, openclaw),
        ] {
            prop_assert_eq!(answer(format, output.as_bytes()), Ok(said(text.clone())));
        }
    }
}

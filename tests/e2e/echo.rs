//! MOD-1, MOD-11: a service that shows the key in its answers does not bring it into the sandbox.

use serde_json::{Value, json};
use tests::internet::Internet;
use tests::model::Service;
use tests::person::{Person, Who};

use crate::credentials::holding;
use crate::model::{KEY, World, client, merged, options, person_with_key, post};

/// How many of the answer's bodies stand in it, in `data:` lines or as a whole, with the key's place in them.
fn echoes(result: &Value) -> Vec<String> {
    let body = result["body"].as_str().unwrap_or_default();
    let texts: Vec<String> = if result["head"].as_str().unwrap_or_default().contains("text/event-stream") {
        // Chunks may end in the middle of an event: without their sizes it is whole.
        unchunked(body).lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    } else {
        vec![body.to_owned()]
    };
    let values = texts.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let lists = values.filter_map(|value| value["echo"].as_array().cloned());
    lists.flatten().map(|text| text.as_str().expect("text").to_owned()).collect()
}

fn unchunked(body: &str) -> String {
    let (mut rest, mut all) = (body, String::new());
    while let Some((size, more)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("the size of a chunk");
        all.push_str(&more[..size]);
        rest = more[size..].trim_start_matches("\r\n");
    }
    all
}

fn answers(person: &Person, net: &Internet, service: &Service, path: &str, body: &Value) {
    for (order, streamed, status) in [
        ("[[echo]]", false, 200),
        ("[[echo]]", true, 200),
        ("[[echo]][[status:401]]", false, 401),
        ("[[echo]][[status:500]]", true, 500),
    ] {
        let text = body.to_string().replace("[[text:Good day.]]", &format!("{order}[[text:Good day.]]"));
        let asked = merged(serde_json::from_str(&text).expect("JSON"), &json!({ "stream": streamed }));
        let steps = json!([post(path, &asked), post(path, body)]);
        let (results, outcome) = client(person, net, &options(service), &steps);
        let case = format!("{path} {order} streamed {streamed}");
        let (shown, next) = (&results[0], &results[1]);
        let shown_as_text = shown.to_string();
        assert!(!shown_as_text.contains(KEY), "MOD-1: {case}: the key is in the sandbox: {shown_as_text}");
        // The rest of the answer is as the service sent it, whole, and the key's place is still there: something as long
        // as the key stands in it, so that no length is wrong.
        assert_eq!((&shown["status"], &shown["end"]), (&json!(status), &json!("whole")), "{case}: {shown}");
        let echoes = echoes(shown);
        assert_eq!(echoes.len(), 2, "{case}: both places are there: {shown}");
        for echo in echoes {
            assert_eq!(echo.len(), KEY.len(), "{case}: {shown}");
            // Nor a part of it that says much: the first letters are every key's.
            assert!(!KEY.contains(&echo[echo.len() - 8..]), "MOD-1: {case}: {shown}");
        }
        let half = &KEY[KEY.len() / 2..];
        assert!(!shown_as_text.contains(half), "MOD-1: {case}: half of the key: {shown}");
        if status == 200 {
            assert!(unchunked_or_whole(shown).contains("Good"), "{case}: the answer itself: {shown}");
        }
        assert_eq!(next["status"], 200, "{case}: the run goes on: {outcome}");
        assert!(
            !outcome.err().contains(KEY) && !outcome.record().to_string().contains(KEY),
            "MOD-11: {case}"
        );
        assert_eq!(service.take().len(), 2, "{case}: the service did show it: {outcome}");
    }
}

fn unchunked_or_whole(result: &Value) -> String {
    let body = result["body"].as_str().unwrap_or_default();
    if body.starts_with('{') { body.to_owned() } else { unchunked(body) }
}

/// MOD-1, MOD-11: in a good answer, in an error, in a header, in a stream with a border in the middle of it; on every
/// interface. It is in no evidence either.
#[test]
fn a_service_that_shows_the_key_does_not_bring_it_in() {
    let Some(net) = Internet::new() else { return };
    let world = World::new(&net);
    let person = person_with_key(Who::User);
    for (service, path, body) in world.questions() {
        answers(&person, &net, service, path, &body);
    }
    let mut found = holding(&person.path(""), KEY.as_bytes());
    found.retain(|path| !path.components().any(|part| part.as_os_str() == "credentials"));
    assert!(found.is_empty(), "MOD-11: {found:?}");
}

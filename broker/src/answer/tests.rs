use proptest::prelude::*;

use super::*;

fn tail(text: &str) -> Tail {
    Tail::Boundary.after(text.as_bytes())
}

/// MOD-11: where one event ends and the next may begin, for every way to end a line.
#[test]
fn the_end_of_an_event_is_known() {
    for text in [
        "",
        "data: 1\n\n",
        "data: 1\r\n\r\n",
        "data: 1\r\r",
        "data: 1\n\n\n",
        "event: a\ndata: 1\n\n",
        ": ping\r\n\r\n",
        "data: 1\n\r\n",
    ] {
        assert_eq!(tail(text), Tail::Boundary, "{text:?}");
    }
    for text in
        ["d", "data: 1", "data: 1\n", "data: 1\r\n", "data: 1\r", "data: 1\n\nd", "event: a\ndata: 1\n"]
    {
        assert_ne!(tail(text), Tail::Boundary, "{text:?}");
    }
}

/// MOD-11: the last event of a cut stream is one event, of the shape that the interface's own errors have in a stream.
#[test]
fn the_last_event_has_the_interfaces_shape() {
    let refusal = Refusal::plain(policy::Rule::UpstreamClosed);
    for (interface, name, message) in [
        (Interface::Messages, "event: error\n", "/error/message"),
        (Interface::Responses, "event: error\n", "/message"),
        (Interface::ChatCompletions, "", "/error/message"),
    ] {
        let event = last_event(interface, &refusal);
        let event = std::str::from_utf8(&event).unwrap();
        assert_eq!(Tail::Text.after(event.as_bytes()), Tail::Boundary);
        let data = event.strip_prefix(name).unwrap().strip_prefix("data: ").unwrap();
        assert_eq!(data.trim_end().lines().count(), 1);
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data.pointer(message).unwrap(), &refusal.sentence, "{interface:?}");
        let kind = if interface == Interface::ChatCompletions { None } else { Some("error") };
        assert_eq!(data.get("type").and_then(|kind| kind.as_str()), kind);
    }
}

proptest! {
    /// MOD-11: however a stream is cut into pieces.
    #[test]
    fn pieces_make_no_difference(text in "[a\r\n]{0,20}", cut in 0..20usize) {
        let bytes = text.as_bytes();
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        prop_assert_eq!(Tail::Boundary.after(first).after(second), Tail::Boundary.after(bytes));
    }
}

use std::io::Write;

use proptest::prelude::*;

use super::*;

const KEY: &str = "sk-canary/5f2a";

fn key(text: &str) -> Rc<Key> {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(text.as_bytes()).unwrap();
    drop(writer);
    Rc::new(Key::read(reader.into()).unwrap())
}

/// What comes out of pieces: while they come, and in all.
fn through<'a>(key_: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, String) {
    let mut redactor = Redactor::new(Some(&key(key_)));
    let mut out: Vec<Bytes> =
        pieces.into_iter().map(|piece| redactor.next(Bytes::copy_from_slice(piece))).collect();
    out.push(redactor.rest());
    assert_eq!(redactor.held(), 0);
    let text: Vec<_> = out.iter().map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect();
    let all = text.concat();
    (text, all)
}

fn whole(key: &str, text: &str) -> String {
    through(key, [text.as_bytes()]).1
}

/// Every character as JSON may write it, in this way.
fn spelled(text: &str, way: u8) -> String {
    text.chars()
        .map(|character| match (way, character) {
            (1, '"' | '\\') | (2, '"' | '\\' | '/') => format!("\\{character}"),
            (3, _) => format!("\\u{:04x}", u32::from(character)),
            (4, _) => format!("\\u{:04X}", u32::from(character)),
            _ => character.to_string(),
        })
        .collect()
}

/// MOD-1, MOD-11: the key goes wherever it stands and however JSON writes it, and nothing else does; the length stays.
#[test]
fn the_key_goes_and_nothing_else_does() {
    for (text, expected) in [
        ("sk-canary/5f2a", "**************"),
        ("a sk-canary/5f2a", "a **************"),
        ("sk-canary/5f2a b", "************** b"),
        ("sk-canary/5f2ask-canary/5f2a", "****************************"),
        ("sk-sk-canary/5f2a", "sk-**************"),
        (r#"{"k":"sk-canary\/5f2a"}"#, r#"{"k":"***************"}"#),
        (r"\u0073k-canary\u002f5f2a\n", r"************************\n"),
        (r"\sk-canary/5f2a", r"\**************"),
        (r"\\sk-canary/5f2a", r"\\**************"),
        ("sk-canary/5f2", "sk-canary/5f2"),
        ("SK-CANARY/5F2A", "SK-CANARY/5F2A"),
        (r"sk-canary\/5f2", r"sk-canary\/5f2"),
        (r"sk\-canary/5f2a", r"sk\-canary/5f2a"),
        (r"\u00", r"\u00"),
        (r"\u", r"\u"),
        (r"\", r"\"),
        ("", ""),
    ] {
        assert_eq!(whole(KEY, text), expected);
        for cut in 0..text.len() {
            let (first, second) = text.as_bytes().split_at(cut);
            assert_eq!(through(KEY, [first, second]).1, expected, "cut at {cut}");
        }
        assert_eq!(through(KEY, text.as_bytes().chunks(1)).1, expected, "a byte at a time");
    }
}

/// MOD-1: keys whose own characters have a meaning in JSON, in both readings.
#[test]
fn keys_of_any_characters_go() {
    for text in
        [r#"quote"back\slash/"#, r"\\\\\\\\\\", r"\u0073k-canary", r#""""""""""#, "aaaaaaaa", "abababababab"]
    {
        for way in 0..5 {
            let answer = format!("<{}>", spelled(text, way));
            assert_eq!(whole(text, &answer), format!("<{}>", "*".repeat(answer.len() - 2)), "{answer}");
        }
    }
}

/// MOD-11: what may be the beginning of the key is held back, and only that; what has ended with its line is not.
#[test]
fn no_more_is_held_back_than_must_be() {
    let (pieces, all) =
        through(KEY, [&b"data: sk-can"[..], b"ada\n\n", b"data: s", b"\n\n", b"data: \\u0", b"0\n\n"]);
    assert_eq!(pieces, ["data: ", "sk-canada\n\n", "data: ", "s\n\n", "data: ", "\\u00\n\n", ""]);
    assert_eq!(all, "data: sk-canada\n\ndata: s\n\ndata: \\u00\n\n");
}

/// What has no key in it is passed on as it is, without a copy.
#[test]
fn nothing_is_copied_without_need() {
    let mut redactor = Redactor::new(Some(&key(KEY)));
    for text in [&b"data: nothing of that kind\n\n"[..], b"so it is, sk-canada or not: sk-"] {
        let piece = Bytes::copy_from_slice(text);
        let out = redactor.next(piece.clone());
        assert_eq!(out.as_ptr(), piece.as_ptr());
    }
    assert_eq!(redactor.held(), 3);
    assert_eq!(redactor.rest(), "sk-");
}

/// A word of less than eight bytes is no secret: were it looked for, answers would be full of holes.
#[test]
fn a_short_key_is_no_secret() {
    assert_eq!(whole("ollama!", "ollama! ollama!"), "ollama! ollama!");
    assert_eq!(whole("ollama!!", "ollama! ollama!!"), "ollama! ********");
    let mut none = Redactor::new(None);
    assert_eq!(none.next(Bytes::from_static(b"sk-")), "sk-");
}

/// MOD-1, MOD-11: the key goes out of headers too.
#[test]
fn the_key_goes_out_of_headers() {
    let mut headers = HeaderMap::new();
    headers.append("x-request-id", "r-1".parse().unwrap());
    headers.append("x-request-id", format!("{KEY}, Bearer {KEY}").parse().unwrap());
    headers.append("retry-after", "sk-canary".parse().unwrap());
    Redactor::new(Some(&key(KEY))).headers(&mut headers);
    let values: Vec<_> = headers.values().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(values, ["r-1", "**************, Bearer **************", "sk-canary"]);
}

proptest! {
    /// MOD-1, MOD-11: whatever stands around the key, however it is written and wherever the answer is cut, the key goes, all
    /// else stays, and of what has come no more is held back than the key is long.
    #[test]
    fn the_key_goes_wherever_it_stands(
        parts in prop::collection::vec((0..7u8, "[a-z \n\"]{0,6}", 0..KEY.len()), 0..8),
        cuts in prop::collection::vec(0..400usize, 0..12),
    ) {
        let (mut text, mut expected) = (String::new(), String::new());
        for (way, other, beginning) in &parts {
            let key = if *way < 5 { spelled(KEY, *way) } else { String::new() };
            text += &key;
            expected += &"*".repeat(key.len());
            // A beginning of the key, and what cannot go on with it.
            let other = if *way == 6 { format!("{}?", &KEY[..*beginning]) } else { format!("{other}?") };
            text += &other;
            expected += &other;
        }
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut redactor = Redactor::new(Some(&key(KEY)));
        let mut out = Vec::new();
        for cut in cuts.windows(2) {
            out.extend_from_slice(&redactor.next(Bytes::copy_from_slice(&text.as_bytes()[cut[0]..cut[1]])));
            prop_assert_eq!(out.len() + redactor.held(), cut[1]);
            prop_assert!(redactor.held() < 6 * KEY.len());
        }
        out.extend_from_slice(&redactor.rest());
        prop_assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// The same as the standard library's own replacing, for a key that is found as it is alone.
    #[test]
    fn replacing_is_replacing(text in "[ab]{0,60}", cut in 0..60usize) {
        const KEY: &str = "abaababb";
        let (first, second) = text.as_bytes().split_at(cut.min(text.len()));
        prop_assert_eq!(through(KEY, [first, second]).1, text.replace(KEY, "********"));
    }
}

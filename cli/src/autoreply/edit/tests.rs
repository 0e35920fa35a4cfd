//! Files that people wrote, with one key changed.

use proptest::prelude::*;
use supervisor::config::Config;

use super::*;

fn change(path: &[&'static str], value: Value) -> Change {
    Change { option: "--x", path: path.to_vec(), value }
}

fn untrusted(text: &str) -> Change {
    change(&["auto_reply", "untrusted"], Value::Text(text.to_owned()))
}

fn hosts(list: &[&str]) -> Change {
    let list = list.iter().map(|host| (*host).to_owned()).collect();
    change(&["auto_reply", "sandbox", "egress_allow"], Value::Members(list))
}

#[track_caller]
fn becomes(text: &str, changes: &[Change], wanted: &str) {
    let edited = edit(text, changes).unwrap();
    assert_eq!(edited.text, wanted);
    config::parse(wanted).unwrap();
}

/// A value that is there keeps its place, its spacing and its comment.
#[test]
fn a_value_is_changed_where_it_stands() {
    for (before, after) in [
        ("[auto_reply]\nuntrusted = \"off\"\n", "[auto_reply]\nuntrusted = \"sandbox\"\n"),
        (
            "[auto_reply]\n  untrusted   =  'off'   # now\n",
            "[auto_reply]\n  untrusted   =  \"sandbox\"   # now\n",
        ),
        ("auto_reply.untrusted = \"off\" # x\n", "auto_reply.untrusted = \"sandbox\" # x\n"),
        ("auto_reply = { untrusted = \"off\" } # x\n", "auto_reply = { untrusted = \"sandbox\" } # x\n"),
        (
            "[ auto_reply ] # head\n\"untrusted\" = \"off\"",
            "[ auto_reply ] # head\n\"untrusted\" = \"sandbox\"\n",
        ),
        (
            "[auto_reply]\r\nuntrusted = \"off\" # dos\r\n",
            "[auto_reply]\r\nuntrusted = \"sandbox\" # dos\r\n",
        ),
    ] {
        becomes(before, &[untrusted("sandbox")], after);
    }
}

/// A value that says the same already is left as it is written.
#[test]
fn what_holds_already_is_not_touched() {
    for text in ["[auto_reply]\nuntrusted='off'#x\n", "[auto_reply]\nuntrusted = \"\"\"off\"\"\"\n"] {
        let edited = edit(text, &[untrusted("off")]).unwrap();
        assert_eq!((edited.text.as_str(), edited.changed.len()), (text, 0));
    }
    let number = change(&["auto_reply", "sandbox", "runs_per_day"], Value::Number(16));
    let text = "[auto_reply.sandbox]\nruns_per_day = 0x10\n";
    assert_eq!(edit(text, &[number]).unwrap().text, text);
    assert_eq!(edit("", &[hosts(&[])]).unwrap().text, "");
}

/// What is missing is made, in the way in which the file is written.
#[test]
fn what_is_missing_is_made() {
    let runs = change(&["auto_reply", "sandbox", "runs_per_day"], Value::Number(9));
    for (before, after) in [
        ("", "[auto_reply.sandbox]\nruns_per_day = 9\n"),
        ("[auto_reply]\n", "[auto_reply]\n\n[auto_reply.sandbox]\nruns_per_day = 9\n"),
        ("auto_reply = {}\n", "auto_reply = { sandbox = { runs_per_day = 9 } }\n"),
        ("auto_reply.model = \"m\"\n", "auto_reply.model = \"m\"\nauto_reply.sandbox.runs_per_day = 9\n"),
        (
            "[auto_reply.sandbox.limits]\ntasks = 3\n",
            "[auto_reply.sandbox]\nruns_per_day = 9\n[auto_reply.sandbox.limits]\ntasks = 3\n",
        ),
        (
            "[auto_reply]\nmodel = \"m\"\n\n[credentials.anthropic] # key\n",
            "[auto_reply]\nmodel = \"m\"\n\n[auto_reply.sandbox]\nruns_per_day = 9\n\n[credentials.anthropic] # key\n",
        ),
    ] {
        becomes(before, std::slice::from_ref(&runs), after);
    }
    let trust = change(&["trust"], Value::Members(vec!["a".to_owned()]));
    becomes(
        "[auto_reply]\nmodel = \"m\"\n",
        std::slice::from_ref(&trust),
        "trust = [\"a\"]\n[auto_reply]\nmodel = \"m\"\n",
    );
}

/// A file of comments keeps them where they are: what is new comes after them.
#[test]
fn comments_at_the_end_stay_before_what_is_new() {
    becomes(
        "# mine\n# too\n",
        &[untrusted("sandbox")],
        "# mine\n# too\n\n[auto_reply]\nuntrusted = \"sandbox\"\n",
    );
    let trust = change(&["trust"], Value::Members(vec!["a".to_owned()]));
    becomes("# mine\n", &[trust], "# mine\ntrust = [\"a\"]\n");
    let nobody = change(&["trust"], Value::Members(Vec::new()));
    becomes("# a\ntrust = [\"a\"]\n# end\n", &[nobody], "# a\ntrust = []\n# end\n");
    becomes(
        "trust = []\n# end\n",
        &[untrusted("sandbox")],
        "trust = []\n# end\n\n[auto_reply]\nuntrusted = \"sandbox\"\n",
    );
}

/// EGR-1: hosts come and go one by one; those that stay keep their lines and comments, and the comments of one that goes stay.
#[test]
fn a_list_is_changed_member_by_member() {
    let head = "[auto_reply.sandbox]\negress_allow = ";
    for (before, wanted, after) in [
        (r#"["a.example"]"#, &["a.example", "b.example"][..], r#"["a.example", "b.example"]"#),
        (r#"["a.example", "b.example"] # x"#, &["b.example"], r#"["b.example"] # x"#),
        (r#"["a.example", "b.example"]"#, &["a.example"], r#"["a.example"]"#),
        (r#"[]"#, &["a.example"], r#"["a.example"]"#),
        (r#"["a.example"]"#, &[], r#"[]"#),
        // The order is that of the file.
        (r#"["b.example", "a.example"]"#, &["a.example", "b.example"], r#"["b.example", "a.example"]"#),
        (r#"["a.example", "a.example"]"#, &["a.example", "b.example"], r#"["a.example", "b.example"]"#),
        (
            "[\n  \"a.example\", # why a\n  \"b.example\", # why b\n]",
            &["a.example", "b.example", "c.example"],
            "[\n  \"a.example\", # why a\n  \"b.example\", # why b\n  \"c.example\",\n]",
        ),
        (
            "[\n\t\"a.example\", # why a\n\t\"b.example\" # why b\n]",
            &["a.example", "b.example", "c.example"],
            "[\n\t\"a.example\", # why a\n\t\"b.example\", # why b\n\t\"c.example\"\n]",
        ),
        (
            "[\n  \"a.example\",\n  \"b.example\",\n]",
            &["b.example", "c.example"],
            "[\n  \"b.example\",\n  \"c.example\",\n]",
        ),
        ("[\n  # none yet\n]", &["a.example"], "[\n  # none yet\n  \"a.example\"\n]"),
    ] {
        becomes(&format!("{head}{before}\n"), &[hosts(wanted)], &format!("{head}{after}\n"));
    }
    // Comments of whoever goes.
    let text = format!("{head}[\n  \"a.example\", # why a\n  # before b\n  \"b.example\", # why b\n]\n");
    for wanted in [&["a.example"][..], &["b.example"], &[], &["c.example"]] {
        let edited = edit(&text, &[hosts(wanted)]).unwrap();
        for comment in ["# why a", "# before b", "# why b"] {
            assert!(edited.text.contains(comment), "{wanted:?}: {}", edited.text);
        }
        assert_eq!(allowed(&config::parse(&edited.text).unwrap()), wanted);
    }
}

fn allowed(config: &Config) -> Vec<&str> {
    config.auto_reply.sandbox.egress_allow.iter().map(|host| host.as_str()).collect()
}

/// Peers by difference.
#[test]
fn peers_come_and_go() {
    let difference = |add: &[&str], remove: &[&str]| {
        let all = |list: &[&str]| list.iter().map(|aid| (*aid).to_owned()).collect();
        change(&["trust"], Value::Differences { add: all(add), remove: all(remove) })
    };
    becomes(
        "trust = [\"a\", \"b\"] # x\n",
        &[difference(&["c", "a"], &["b"])],
        "trust = [\"a\", \"c\"] # x\n",
    );
    assert_eq!(edit("", &[difference(&[], &["b"])]).unwrap().text, "");
    becomes("", &[difference(&["b"], &[])], "trust = [\"b\"]\n");
}

/// A limit that is taken out is the default again.
#[test]
fn a_key_goes() {
    let memory = change(&["auto_reply", "sandbox", "limits", "memory"], Value::Default);
    let text = "[auto_reply.sandbox.limits]\nmemory = \"1GiB\"\ntasks = 3 # few\n";
    let edited = edit(text, std::slice::from_ref(&memory)).unwrap();
    assert_eq!(edited.text, "[auto_reply.sandbox.limits]\ntasks = 3 # few\n");
    assert_eq!(
        (edited.changed[0].old.as_deref(), edited.changed[0].new.as_deref()),
        (Some("\"1GiB\""), None)
    );
    assert_eq!(edit("", &[memory]).unwrap().text, "");
}

/// Nothing comes out that is no configuration, and what is none is not worked on.
#[test]
fn nothing_invalid_comes_out() {
    assert_eq!(edit("[auto_reply\n", &[untrusted("off")]).unwrap_err().code, Code::BadConfig);
    assert_eq!(edit("auto_reply = 3\n", &[untrusted("off")]).unwrap_err().code, Code::BadConfig);
    assert_eq!(edit("[[auto_reply]]\n", &[untrusted("off")]).unwrap_err().code, Code::BadConfig);
    assert_eq!(edit("", &[untrusted("always")]).unwrap_err().code, Code::BadOption);
    assert_eq!(edit("no_such_key = 1\n", &[untrusted("sandbox")]).unwrap_err().code, Code::BadOption);
}

/// A file as somebody may have written it: its lines, with comments between them and behind them.
fn files() -> impl Strategy<Value = String> {
    let comment = || prop_oneof![Just(String::new()), "# [a-z \"'\\[\\]=]{0,12}"];
    let parts = [
        ("", vec!["trust = [\"a\", \"b\"]", "trust = [\n  \"a\", # A\n  \"b\",\n]"]),
        (
            "[auto_reply]",
            vec![
                "untrusted = 'off'",
                "untrusted=\"sandbox\"",
                "model   = \"m\"",
                "notify = [ \"x\" ]",
                "command=[]",
            ],
        ),
        (
            "[auto_reply.sandbox]",
            vec![
                "runs_per_day = 7",
                "egress_allow = [ 'h.example.com', ]",
                "egress_allow = [\n\t'h.example.com' # H\n]",
                "read_only = []",
            ],
        ),
        ("[auto_reply.sandbox.limits]", vec!["tasks = 3", "memory = '1GiB'"]),
        ("[credentials.x]", vec!["variable = \"V\"", "mode = 'deny'"]),
    ];
    let parts: Vec<_> = parts
        .into_iter()
        .map(|(head, lines)| {
            let line = prop::sample::select(lines);
            let lines = prop::collection::vec((line, comment(), comment(), 0..2usize), 0..3);
            (Just(head), any::<bool>(), comment(), comment(), lines)
        })
        .collect();
    (parts, comment()).prop_map(|(parts, end)| {
        let mut text = String::new();
        for (head, there, above, behind, lines) in parts {
            if !there {
                continue;
            }
            if !head.is_empty() {
                text.push_str(&format!("\n{above}\n{head} {behind}\n"));
            }
            let mut seen = Vec::new();
            for (line, above, behind, blank) in lines {
                let key = line.split('=').next().unwrap_or_default().trim();
                if seen.contains(&key) {
                    continue;
                }
                seen.push(key);
                text.push_str(&format!("{}{above}\n  {line} {behind}\n", "\n".repeat(blank)));
            }
        }
        text + &end
    })
}

fn any_change() -> impl Strategy<Value = Change> {
    let names = |list: &[&'static str]| prop::sample::subsequence(list.to_vec(), 0..=list.len());
    let owned = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<String>>();
    prop_oneof![
        prop::sample::select(vec!["off", "sandbox"]).prop_map(untrusted),
        (0u64..100).prop_map(|runs| change(&["auto_reply", "sandbox", "runs_per_day"], Value::Number(runs))),
        any::<bool>().prop_map(|flag| change(&["auto_reply", "api_base_private"], Value::Flag(flag))),
        names(&["a", "b", "c"]).prop_map(move |list| change(&["trust"], Value::Members(owned(list)))),
        names(&["h.example.com", "i.example.com"]).prop_map(|list| hosts(&list)),
        (1u64..9)
            .prop_map(|tasks| change(&["auto_reply", "sandbox", "limits", "tasks"], Value::Number(tasks))),
        Just(change(&["auto_reply", "sandbox", "limits", "tasks"], Value::Default)),
        prop::collection::vec("\\PC{0,6}", 0..3)
            .prop_map(|words| change(&["auto_reply", "notify"], Value::Words(words))),
    ]
}

/// The comments of a file, and every other line that has no key of the change in it.
fn kept<'a>(text: &'a str, change: &Change) -> Vec<&'a str> {
    let key = change.path.last().unwrap();
    let comment = |line: &'a str| {
        // No string of these files has such a mark in it.
        let at = line.find('#')?;
        Some(line[at..].trim_end())
    };
    let other = |line: &&str| {
        !line.trim().is_empty() && line.contains('=') && !line.contains(key) && !line.contains('#')
    };
    // A key that goes takes its own remarks with it.
    let comments = text.lines().filter(|_| change.value != Value::Default).filter_map(comment);
    comments.chain(text.lines().filter(other).map(str::trim)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// CLI: whatever the file looks like, its comments and every other key survive, and the key says what it was set to.
    #[test]
    fn a_change_changes_one_key(text in files(), change in any_change()) {
        let Ok(before) = config::parse(&text) else { return Ok(()) };
        let edited = edit(&text, std::slice::from_ref(&change)).unwrap();
        let after = config::parse(&edited.text).unwrap();
        if edited.changed.is_empty() {
            prop_assert_eq!(&edited.text, &text);
        }
        for line in kept(&text, &change) {
            prop_assert!(edited.text.contains(line), "{}\n---\n{}\n---\n{}", line, text, edited.text);
        }
        // All of it but the one key is what it was.
        let mut both = [before, after];
        let [wanted, got] = both.each_mut();
        let key = *change.path.last().unwrap();
        let equal = match (key, &change.value) {
            ("untrusted", Value::Text(text)) => {
                wanted.auto_reply.untrusted = got.auto_reply.untrusted;
                (got.auto_reply.untrusted == supervisor::config::Untrusted::Sandbox) == (text == "sandbox")
            }
            ("runs_per_day", Value::Number(runs)) => {
                wanted.auto_reply.sandbox.runs_per_day = got.auto_reply.sandbox.runs_per_day;
                u64::from(got.auto_reply.sandbox.runs_per_day) == *runs
            }
            ("api_base_private", Value::Flag(flag)) => {
                wanted.auto_reply.api_base_private = got.auto_reply.api_base_private;
                got.auto_reply.api_base_private == *flag
            }
            ("trust", Value::Members(members)) => {
                wanted.trust = got.trust.clone();
                let mut sorted = got.trust.clone();
                sorted.sort();
                sorted == *members
            }
            ("egress_allow", Value::Members(members)) => {
                wanted.auto_reply.sandbox.egress_allow = got.auto_reply.sandbox.egress_allow.clone();
                let mut sorted = allowed(got);
                sorted.sort_unstable();
                sorted == *members
            }
            ("tasks", Value::Number(tasks)) => {
                wanted.auto_reply.sandbox.limits.tasks = got.auto_reply.sandbox.limits.tasks;
                got.auto_reply.sandbox.limits.tasks == Some(*tasks)
            }
            ("tasks", Value::Default) => {
                wanted.auto_reply.sandbox.limits.tasks = None;
                got.auto_reply.sandbox.limits.tasks.is_none()
            }
            ("notify", Value::Words(words)) => {
                wanted.auto_reply.notify = got.auto_reply.notify.clone();
                got.auto_reply.notify == *words
            }
            (key, value) => panic!("{key} {value:?}"),
        };
        prop_assert!(equal, "{:?}\n{}", change, edited.text);
        prop_assert_eq!(format!("{wanted:?}"), format!("{got:?}"));
        // A second time it changes nothing.
        let again = edit(&edited.text, std::slice::from_ref(&change)).unwrap();
        prop_assert!(again.changed.is_empty(), "{:?}", again.changed);
    }
}

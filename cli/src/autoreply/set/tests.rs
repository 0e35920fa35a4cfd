//! The file on disk: who may change it, how, and what stays when it goes wrong.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use clap::Parser;

use super::*;
use crate::arguments::{AutoReplyAction, Subcommand};

/// Whoever says this.
struct Says(Option<&'static str>, usize);

impl Person for Says {
    fn is_there(&self) -> bool {
        self.0.is_some()
    }
    fn answer(&mut self, _question: &str) -> std::io::Result<String> {
        self.1 += 1;
        Ok(self.0.unwrap_or_default().to_owned())
    }
}

fn asked(words: &[&str]) -> Result<Vec<Change>, Trouble> {
    let anet = Anet::try_parse_from(["anet", "autoreply", "set"].iter().chain(words)).unwrap();
    let Subcommand::AutoReply(autoreply) = &anet.subcommand else { panic!() };
    let AutoReplyAction::Set(set) = &autoreply.action else { panic!() };
    changes(set)
}

fn place(file: PathBuf) -> Place {
    Place { file, mode: Mode::User }
}

fn set(file: &Path, words: &[&str], says: Option<&'static str>) -> Result<Vec<Changed>, Trouble> {
    change(&place(file.to_owned()), &asked(words)?, &mut Says(says, 0))
}

/// A file and its directory are made, closed to others; nothing else is left in it.
#[test]
fn a_missing_file_is_made() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("a/anet/anet.toml");
    let changed = set(&file, &["--untrusted", "sandbox"], None).unwrap();
    assert_eq!(changed.len(), 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), "[auto_reply]\nuntrusted = \"sandbox\"\n");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let directory = file.parent().unwrap();
    assert_eq!(fs::metadata(directory).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(directory).unwrap().count(), 1);
}

/// The mode stays, a link stays a link and what it leads to is changed; what says the same already is not written.
#[test]
fn mode_and_links_stay() {
    let root = tempfile::tempdir().unwrap();
    let (file, link) = (root.path().join("real.toml"), root.path().join("sub/anet.toml"));
    fs::create_dir(root.path().join("sub")).unwrap();
    fs::write(&file, "trust = [\"a\"] # who\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("../real.toml", &link).unwrap();
    set(&link, &["--trust-add", "b"], None).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().file_type().is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), "trust = [\"a\", \"b\"] # who\n");
    let found = fs::metadata(&file).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o640);
    assert!(set(&link, &["--trust", "a,b"], None).unwrap().is_empty());
    assert_eq!(fs::metadata(&file).unwrap().ino(), found.ino(), "not written again");
    // A link to a file that is not there yet.
    let (target, dangling) = (root.path().join("sub/new.toml"), root.path().join("dangling.toml"));
    symlink("sub/new.toml", &dangling).unwrap();
    set(&dangling, &["--model", "m"], None).unwrap();
    assert!(fs::read_to_string(target).unwrap().contains("\"m\""));
}

/// Whatever goes wrong leaves the file as it was, and nothing beside it.
#[test]
fn an_error_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("anet.toml");
    let good = "[auto_reply]\napi_base = \"https://models.example.com/v1\"\n";
    for (text, words, code) in [
        ("no_such_key = 1\n", &["--model", "m"][..], Code::BadConfig),
        ("[auto_reply\n", &["--model", "m"], Code::BadConfig),
        (good, &["--egress-allow", "models.example.com"], Code::BadHost),
        (good, &["--egress-allow", "*.example.com"], Code::BadHost),
        (good, &["--egress-allow", "10.0.0.1"], Code::BadHost),
        (good, &["--trust", "a/b"], Code::BadOption),
        (good, &["--trust-add", ""], Code::BadOption),
        (good, &["--model", "a b"], Code::BadOption),
        (good, &["--api-base", "http://api.example.com"], Code::BadOption),
        (good, &["--work-dir", "relative"], Code::BadOption),
        (good, &["--read-only", "/a,b"], Code::BadOption),
        (good, &["--command", "a 'b"], Code::BadOption),
        (good, &["--limit", "memory"], Code::BadOption),
        (good, &["--limit", "wall_clock=1s"], Code::BadOption),
        (good, &["--limit", "memory=2 apples"], Code::BadOption),
        (good, &["--limit", "memory=20000000000GiB"], Code::BadOption),
        (good, &["--limit", "output_tokens=0"], Code::BadOption),
        (good, &["--limit", "output_tokens=8193"], Code::BadOption),
        (good, &["--limit", "tasks=1", "--limit", "tasks=2"], Code::BadOption),
        (good, &["--budget", "credentials=1"], Code::BadOption),
        (good, &["--budget", "window=3"], Code::BadOption),
        (good, &["--budget-per-peer-day", "window=3s"], Code::BadOption),
        (good, &["--api-timeout-seconds", "0"], Code::BadOption),
        (good, &[], Code::BadOption),
    ] {
        fs::write(&file, text).unwrap();
        let trouble = set(&file, words, Some("yes")).unwrap_err();
        assert_eq!(trouble.code, code, "{words:?}: {trouble}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "{words:?}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "{words:?}");
    }
    let trouble = set(&file, &["--api-base", "https://u:sk-secret@api.example.com"], None).unwrap_err();
    assert!(!trouble.sentence.contains("sk-secret"), "{trouble}");
    assert!(set(root.path(), &["--model", "m"], None).is_err(), "a directory is no file");
    // What is no option, or none of its values, is refused before.
    for words in [
        &["--untrusted", "always"][..],
        &["--runs-per-day", "-1"],
        &["--runs-per-day", "many"],
        &["--agent", "aider"],
        &["--no-such-key", "1"],
    ] {
        assert!(Anet::try_parse_from(["anet", "autoreply", "set"].iter().chain(words)).is_err(), "{words:?}");
    }
}

/// Every key can be set, and the file says what was asked for.
#[test]
fn every_key_can_be_set() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("anet.toml");
    let words = [
        "--trust",
        "a,b",
        "--backend",
        "openai",
        "--agent",
        "custom",
        "--command",
        "/bin/sh -c 'cat; :'",
        "--trusted",
        "off",
        "--untrusted",
        "sandbox",
        "--model",
        "m",
        "--api-base",
        "http://127.0.0.1:11434/v1",
        "--api-base-private",
        "true",
        "--api-timeout-seconds",
        "60",
        "--work-dir",
        "/srv/w",
        "--retention-days",
        "3",
        "--notify",
        "[\"/bin/n\"]",
        "--runs-per-day",
        "0",
        "--runs-per-peer-per-day",
        "2",
        "--egress-allow",
        "b.example.com, a.example.com",
        "--read-only",
        "/opt/x",
        "--limit",
        "memory=1GiB",
        "--limit",
        "growth=1048576",
        "--limit",
        "tasks=8",
        "--budget",
        "destinations=1",
        "--budget",
        "bytes_out=1MiB",
        "--budget",
        "window=90s",
        "--budget-per-peer-day",
        "destinations=2",
        "--budget-per-peer-day",
        "bytes_out=2MiB",
    ];
    set(&file, &words, Some("yes")).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let config = config::parse(&text).unwrap();
    let reply = &config.auto_reply;
    assert_eq!(config.trust, ["a", "b"]);
    assert_eq!(reply.command, ["/bin/sh", "-c", "cat; :"]);
    assert_eq!(
        (reply.trusted, reply.untrusted),
        (Some(Trusted::Off), supervisor::config::Untrusted::Sandbox)
    );
    assert_eq!((reply.model.as_str(), reply.api_base_private), ("m", true));
    assert_eq!((reply.api_timeout_seconds, reply.retention_days, reply.work_dir.as_str()), (60, 3, "/srv/w"));
    assert_eq!(reply.notify, ["/bin/n"]);
    let sandbox = &reply.sandbox;
    assert_eq!((sandbox.runs_per_day, sandbox.runs_per_peer_per_day), (0, 2));
    assert_eq!(sandbox.limits.memory.unwrap().0, 1 << 30);
    assert_eq!((sandbox.limits.growth.unwrap().0, sandbox.limits.tasks), (1 << 20, Some(8)));
    assert_eq!((sandbox.budget.window.unwrap().0, sandbox.budget.destinations), (90_000, Some(1)));
    assert_eq!(sandbox.budget_per_peer_day.bytes_out.unwrap().0, 2 << 20);
    assert!(
        text.contains("memory = \"1GiB\"") && text.contains("growth = 1048576"),
        "as it was written: {text}"
    );
}

/// EGR-1: a host is added only with a yes; removing, and naming what is there, asks nobody.
#[test]
fn a_host_is_added_with_a_yes() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("anet.toml");
    let text = "[auto_reply.sandbox]\negress_allow = [\"a.example.com\"]\n";
    fs::write(&file, text).unwrap();
    for says in [None, Some("no\n"), Some("")] {
        for hosts in ["a.example.com,b.example.com", "b.example.com"] {
            let trouble = set(&file, &["--egress-allow", hosts], says).unwrap_err();
            assert_eq!(trouble.code, Code::BadOption);
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }
    let place = place(file.clone());
    let mut nobody = Says(None, 0);
    assert!(
        change(&place, &asked(&["--egress-allow", "a.example.com"]).unwrap(), &mut nobody)
            .unwrap()
            .is_empty()
    );
    let mut person = Says(Some("yes\n"), 0);
    change(&place, &asked(&["--egress-allow", "b.example.com,c.example.com"]).unwrap(), &mut person).unwrap();
    assert_eq!(person.1, 1, "asked once for all");
    change(&place, &asked(&["--egress-allow", "c.example.com"]).unwrap(), &mut nobody).unwrap();
    change(&place, &asked(&["--egress-allow", ""]).unwrap(), &mut nobody).unwrap();
    assert!(fs::read_to_string(&file).unwrap().contains("egress_allow = []"));
}

/// EGR-1: whoever changes the file while the question stands gets no host in that was not confirmed.
#[test]
fn what_was_confirmed_is_what_is_done() {
    struct Meddles(PathBuf);
    impl Person for Meddles {
        fn is_there(&self) -> bool {
            true
        }
        fn answer(&mut self, _question: &str) -> std::io::Result<String> {
            fs::write(&self.0, "[auto_reply.sandbox]\negress_allow = []\n").unwrap();
            Ok("yes\n".to_owned())
        }
    }
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("anet.toml");
    fs::write(&file, "[auto_reply.sandbox]\negress_allow = [\"a.example.com\"]\n").unwrap();
    let changes = asked(&["--egress-allow", "a.example.com,b.example.com"]).unwrap();
    let trouble = change(&place(file.clone()), &changes, &mut Meddles(file.clone())).unwrap_err();
    assert!(trouble.sentence.contains("meanwhile"), "{trouble}");
    assert!(!fs::read_to_string(&file).unwrap().contains("example"));
}

/// Two at once: neither is lost.
#[test]
fn two_at_once_are_both_done() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("anet.toml");
    fs::write(&file, "# mine\n").unwrap();
    std::thread::scope(|scope| {
        for number in 0..16 {
            let file = &file;
            scope.spawn(move || set(file, &["--trust-add", &format!("p{number}")], None).unwrap());
        }
    });
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(config::parse(&text).unwrap().trust.len(), 16, "{text}");
    assert!(text.starts_with("# mine\n"), "{text}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
}

/// SEL-4: a service never runs tasks directly.
#[test]
fn a_service_is_not_set_to_direct() {
    let root = tempfile::tempdir().unwrap();
    let service = Place { file: root.path().join("anet.toml"), mode: Mode::System };
    let trouble =
        change(&service, &asked(&["--trusted", "direct"]).unwrap(), &mut Says(None, 0)).unwrap_err();
    assert_eq!(trouble.code, Code::DirectInService);
    assert!(!service.file.exists());
}

/// DIA-3: old and new as values, and as words.
#[test]
fn what_changed_is_said() {
    let changed = [
        Changed { key: "trust".into(), old: Some("[\"a\"]".into()), new: Some("[\"a\", \"b\"]".into()) },
        Changed { key: "auto_reply.retention_days".into(), old: None, new: Some("3".into()) },
    ];
    let document: Value = serde_json::from_str(&document(Path::new("/x"), &changed)).unwrap();
    assert_eq!(document["changed"][0], value!({ "key": "trust", "old": ["a"], "new": ["a", "b"] }));
    assert_eq!(document["changed"][1]["old"], Value::Null);
    assert_eq!(document["changed"][1]["new"], 3);
    let text = words(Path::new("/x"), &changed);
    assert_eq!(text, "trust: [\"a\"] -> [\"a\", \"b\"]\nauto_reply.retention_days: (default) -> 3\n");
    assert!(words(Path::new("/x\x1b"), &[]).contains("already"));
}

//! MOD-1, MOD-11: a canary key is in no file, log, argument list, environment or other process's memory while a run
//! uses it, nor in any file afterwards. Looked for twice: where it was planted, the same search finds it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tests::harness::{self, Harness};
use tests::installed::installed;
use tests::internet::Internet;
use tests::model::Service;
use tests::person::{Person, Who};
use tests::processes;

use crate::credentials::holding;
use crate::model::{CREDENTIAL, KEY, MODEL, messages, person_with_key, post};

/// The one process that may hold it.
const BROKER: &str = "anet-broker";
/// How long a run may take until its command is there.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where in a process the key is: its arguments, its environment, its memory.
fn places(pid: u32, key: &[u8]) -> BTreeSet<&'static str> {
    let contains = |bytes: &[u8]| bytes.windows(key.len()).any(|window| window == key);
    let file = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let mut found = BTreeSet::new();
    if contains(&file("cmdline")) {
        found.insert("arguments");
    }
    if contains(&file("environ")) {
        found.insert("environment");
    }
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return found };
    let Ok(maps) = File::open(format!("/proc/{pid}/maps")) else { return found };
    for line in BufReader::new(maps).lines().map_while(Result::ok) {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        // The kernel's own pages, which cannot be read this way.
        if !rest.starts_with('r') || line.ends_with("[vvar]") || line.ends_with("[vsyscall]") {
            continue;
        }
        let mut ends = range.split('-').filter_map(|hex| u64::from_str_radix(hex, 16).ok());
        let (Some(start), Some(end)) = (ends.next(), ends.next()) else { continue };
        if holds(&memory, start, end, key) {
            found.insert("memory");
        }
    }
    found
}

fn holds(memory: &File, start: u64, end: u64, key: &[u8]) -> bool {
    // Blocks overlap by the key's length, so that none is cut by a border.
    const BLOCK: usize = 1 << 20;
    let mut buffer = vec![0; BLOCK];
    let mut at = start;
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(BLOCK).min(BLOCK);
        let Ok(length) = memory.read_at(&mut buffer[..wanted], at) else { return false };
        if length == 0 {
            return false;
        }
        if buffer[..length].windows(key.len()).any(|window| window == key) {
            return true;
        }
        if at + length as u64 >= end {
            return false;
        }
        at += (length - key.len().min(length - 1)) as u64;
    }
    false
}

/// Arguments, a variable, a line of input, and where the search has to find it.
type Planted<'a> = (&'a [&'a str], Option<&'a str>, &'a str, &'a [&'a str]);

/// The search itself: it finds what is planted in a file, an argument, a variable, and in memory alone.
#[test]
fn the_search_finds_what_is_planted() {
    if harness::kind() != Harness::Root {
        return harness::skip("the key in other processes' memory", "only root may read it");
    }
    let planted = "sk-planted-by-the-test";
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("file"), format!("x{planted}y")).expect("a file");
    assert_eq!(holding(dir.path(), planted.as_bytes()).len(), 1);
    let script =
        "import sys; x = sys.stdin.readline().strip().upper(); print('ready', flush=True); sys.stdin.read()";
    let start = |args: &[&str], env: Option<&str>, input: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", script]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(value) = env {
            command.env("PLANTED", value);
        }
        let mut child = command.spawn().expect("python3");
        writeln!(child.stdin.as_mut().expect("pipe"), "{input}").expect("a line");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("pipe")).read_line(&mut line).expect("ready");
        child
    };
    let cases: [Planted<'_>; 4] = [
        (&[planted], None, "x", &["arguments", "memory"]),
        (&[], Some(planted), "x", &["environment", "memory"]),
        // Only its capitals are made in the process: what stands there came from no argument and no pipe.
        (&[], None, planted, &["memory"]),
        (&[], None, "x", &[]),
    ];
    for (args, env, input, wanted) in cases {
        let mut child = start(args, env, input);
        let mut found = places(child.id(), planted.as_bytes());
        found.extend(places(child.id(), planted.to_uppercase().as_bytes()));
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), wanted, "{args:?} {env:?} {input}");
    }
}

/// How the run gets its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Variable,
    Store,
}

fn scan(who: Who, from: From) {
    let Some(net) = Internet::new() else { return };
    let service = Service::anthropic(&net, KEY);
    let person = match from {
        From::Store => person_with_key(who),
        From::Variable => Person::new(who),
    };
    let work = person.work_dir("work");
    person
        .write_work(&work.join("s.json"), json!([post("/v1/messages", &messages("[[text:x]]"))]).to_string());
    let program = installed().model_client();
    let program = program.to_str().expect("text");
    let dir = work.to_str().expect("text");
    let script = format!(
        "{program} s.json > out.json; touch ready; while [ ! -e done ]; do sleep 0.1; done; {program} s.json > out2.json"
    );
    let base = service.base();
    let mut words =
        vec!["--agent", "custom", "--api-base", base, "--model", MODEL, "--work", dir, "--ro", program];
    if from == From::Store {
        words.extend(["--credential", CREDENTIAL]);
    }
    let mut call = person.sh(&words, &script);
    if from == From::Variable {
        call = call.env("ANTHROPIC_API_KEY", KEY);
    }
    let mut child = net.inside(|| call.spawn());
    let end = Instant::now() + PATIENCE;
    while !work.join("ready").exists() {
        assert!(Instant::now() < end, "the command did not get so far");
        std::thread::sleep(Duration::from_millis(20));
    }
    let case = format!("{who:?} {from:?}");
    let tree = processes::tree(child.id());
    assert!(tree.len() >= 5, "{case}: every process of the run: {tree:?}");
    let mut broker = 0;
    for process in &tree {
        let found = places(process.pid, KEY.as_bytes());
        if process.name == BROKER {
            broker += 1;
            assert_eq!(
                found.iter().collect::<Vec<_>>(),
                [&"memory"],
                "{case}: the broker has it, in memory alone"
            );
            locked(process.pid);
        } else {
            assert!(
                found.is_empty(),
                "MOD-1: {case}: {} ({}) has it in {found:?}",
                process.name,
                process.command_line()
            );
        }
    }
    assert_eq!(broker, 1, "{case}: one broker: {tree:?}");
    files(&person, &work, from, &case);
    person.write_work(&work.join("done"), "");
    let end = Instant::now() + PATIENCE;
    while child.try_wait().expect("wait").is_none() {
        assert!(Instant::now() < end, "{case}: the run does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(service.settled().len(), 2, "{case}: before the search and after it");
    assert!(service.requests().iter().all(|r| r.status == 200), "{case}: with the right key");
    // Evidence, record, logs: whatever stays.
    files(&person, &work, from, &case);
}

/// Memory that cannot be swapped out.
fn locked(pid: u32) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find(|line| line.starts_with("VmLck:")).unwrap_or_default();
    assert!(!line.trim_end().ends_with(" 0 kB"), "the key's memory is locked: {line}");
}

/// The key is in the store, if it was stored, and in no other file of the person or the run.
fn files(person: &Person, work: &Path, from: From, case: &str) {
    let mut found = holding(&person.path(""), KEY.as_bytes());
    found.extend(holding(work, KEY.as_bytes()));
    found.retain(|path| !path.components().any(|part| part.as_os_str() == "credentials"));
    assert!(found.is_empty(), "MOD-11: {case}: {found:?}");
    let stored = holding(&person.path(""), KEY.as_bytes()).len();
    assert_eq!(stored, usize::from(from == From::Store), "{case}: the store alone");
    for dir in ["/run/user", "/dev/shm", "/var/log", "/var/tmp"] {
        assert!(holding(Path::new(dir), KEY.as_bytes()).is_empty(), "MOD-11: {case}: in {dir}");
    }
}

/// MOD-1: with the key from a variable of the operator's environment, and from the store, as everybody.
#[test]
fn the_key_is_in_the_broker_alone() {
    if harness::kind() != Harness::Root {
        return harness::skip("the key in other processes' memory", "only root may read it");
    }
    for who in Who::all() {
        for from in [From::Variable, From::Store] {
            scan(*who, from);
        }
    }
}

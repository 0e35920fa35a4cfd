//! EVI-2, EVI-3 and the states of a node on a bad day: torn and changed evidence, another database, a full or closed disk, no
//! descriptors left. Each ends in a clear state and sentence, never in a wrong count or an open run.

use std::fs;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tests::harness::{self, Harness};
use tests::internet::Internet;
use tests::node::{Node, PATIENCE, descriptors, is_final, shell_agent, until};
use tests::person::{Outcome, Person, Who};

use crate::node_basics::code_of;
use crate::node_kill::counts_are_exact;

/// A node that has answered a few tasks and was stopped.
fn used<'a>(person: &'a Person, net: Option<&'a Internet>) -> Node<'a> {
    let mut node = Node::serving(person, net, &shell_agent("", ""));
    for n in 0..3 {
        node.ask("p1", &format!("echo {n}")).expect_out(&n.to_string());
    }
    node.stop();
    node
}

/// The files of a node, to be put back.
struct Kept(Vec<(PathBuf, Vec<u8>)>);

impl Kept {
    fn of(dir: &Path) -> Kept {
        let files =
            fs::read_dir(dir).expect("a directory").flatten().map(|e| e.path()).filter(|p| p.is_file());
        Kept(files.map(|path| (path.clone(), fs::read(&path).expect("a file"))).collect())
    }

    fn put_back(&self, person: &Person) {
        let dir = self.0.first().and_then(|(path, _)| path.parent()).expect("a file");
        for entry in fs::read_dir(dir).expect("a directory").flatten().filter(|e| e.path().is_file()) {
            fs::remove_file(entry.path()).expect("remove");
        }
        for (path, bytes) in &self.0 {
            fs::write(path, bytes).expect("put back");
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("mode");
            person.give(path);
        }
    }
}

/// The number of a record, as a person reads it in a sentence.
fn names_record(outcome: &Outcome, seq: u64) -> bool {
    let text = outcome.out() + &outcome.err();
    let words = text.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse::<u64>().ok()).any(|number| number == seq)
}

/// EVI-3: the last record is torn at any byte: it is reported and set aside, the chain verifies, the node starts, and no count
/// is wrong.
#[test]
fn a_torn_last_record_is_set_aside() {
    let person = Person::new(Who::User);
    let mut node = used(&person, None);
    let dir = node.state_dir().join("evidence");
    let kept = Kept::of(&dir);
    let segment = node.segments().last().cloned().expect("a segment");
    let whole = fs::read(&segment).expect("the segment");
    let body = whole.strip_suffix(b"\n").expect("a whole line");
    let last = body.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let length = whole.len() - last;
    // At every byte the file is verified; at a few the node is started with it too.
    for cut in 1..length {
        let file = fs::File::options().write(true).open(&segment).expect("the segment");
        file.set_len((whole.len() - cut) as u64).expect("cut");
        drop(file);
        let some = [1, 2, length / 2, length - 1].contains(&cut);
        if cut % 16 == 0 || some {
            let outcome = node.verify().expect_code(0);
            let said = outcome.out() + &outcome.err();
            // Cut by its line end alone, or to its first byte: torn too.
            assert!(said.contains("torn"), "EVI-3: {cut} bytes cut: {outcome}");
        }
        if some {
            node.start();
            assert_eq!(node.status()["day"]["runs"]["used"], 3, "EVI-3: {cut} bytes cut\n{}", node.log());
            node.verify().expect_code(0);
            node.stop();
            node.verify().expect_code(0);
        }
        kept.put_back(&person);
    }
}

/// EVI-2: one changed byte, one removed line, two swapped, one cut out of the middle, one segment gone: `verify` says which
/// record, with a status that is a failure; a node does not go on as if nothing were.
#[test]
fn tampering_is_named() {
    let person = Person::new(Who::User);
    let mut node = used(&person, None);
    let dir = node.state_dir().join("evidence");
    let kept = Kept::of(&dir);
    let segment = node.segments().last().cloned().expect("a segment");
    let text = fs::read_to_string(&segment).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let seq = |line: &str| -> u64 {
        let record: Value = serde_json::from_str(line).unwrap_or_default();
        record["seq"].as_u64().unwrap_or_else(|| panic!("a record with a number: {line}"))
    };
    assert!(lines.len() > 8, "{}", lines.len());
    let middle = lines.len() / 2;
    let join = |lines: &[&str]| lines.join("\n") + "\n";
    let mut forged: Vec<(&str, String, Vec<u64>)> = Vec::new();
    // A digit of a time, so that the line is a record in every other way.
    let changed = {
        let line = lines[middle];
        let at = line.find("\"time\":").expect("a time") + 10;
        let digit = line[at..].find(|c: char| c.is_ascii_digit()).expect("a digit") + at;
        let other = if &line[digit..=digit] == "1" { "2" } else { "1" };
        format!("{}{other}{}", &line[..digit], &line[digit + 1..])
    };
    let mut with = lines.clone();
    with[middle] = &changed;
    forged.push(("one changed byte", join(&with), vec![seq(lines[middle])]));
    let without = [&lines[..middle], &lines[middle + 1..]].concat();
    forged.push(("one removed line", join(&without), vec![seq(lines[middle]), seq(lines[middle + 1])]));
    let mut swapped = lines.clone();
    swapped.swap(middle, middle + 1);
    forged.push(("two swapped lines", join(&swapped), vec![seq(lines[middle]), seq(lines[middle + 1])]));
    let half = &lines[middle][..lines[middle].len() / 2];
    let mut cut = lines.clone();
    cut[middle] = half;
    forged.push(("a line cut in the middle", join(&cut), vec![seq(lines[middle])]));
    let mut twice = lines.clone();
    twice.insert(middle, lines[middle]);
    forged.push(("one doubled line", join(&twice), vec![seq(lines[middle]), seq(lines[middle]) + 1]));
    for (what, text, records) in &forged {
        fs::write(&segment, text).expect("forge");
        let outcome = node.verify();
        assert_ne!(outcome.code(), 0, "EVI-2: {what}: {outcome}");
        assert_eq!(code_of(&outcome), "bad_evidence", "EVI-2: {what}: {outcome}");
        assert!(
            records.iter().any(|seq| names_record(&outcome, *seq)),
            "EVI-2: {what}: which of {records:?}: {outcome}"
        );
        kept.put_back(&person);
    }
    // A node on tampered evidence refuses to run anything, and says why; put back, it goes on.
    fs::write(&segment, &forged[0].1).expect("forge");
    refuses_to_run(&mut node, &["bad_evidence"]);
    kept.put_back(&person);
    node.start();
    assert_eq!(node.status()["day"]["runs"]["used"], 3);
    node.ask("p1", "echo on").expect_out("on");
}

/// EVI-2: a signed checkpoint says how long the chain was: a tail cut off at the end of a line is found.
#[test]
fn a_cut_off_tail_is_found() {
    let person = Person::new(Who::User);
    let node = used(&person, None);
    let segment = node.segments().last().cloned().expect("a segment");
    let text = fs::read_to_string(&segment).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    // What follows a stop is nothing: the last record is the checkpoint that was signed then.
    assert!(
        lines.last().is_some_and(|line| line.contains("checkpoint") || line.contains("sign")),
        "{:?}",
        lines.last()
    );
    fs::write(&segment, lines[..lines.len() - 3].join("\n") + "\n").expect("cut");
    let outcome = node.verify();
    let said = outcome.out() + &outcome.err();
    // Not provable from the chain alone; what is known is said: the chain does not end with a signed record.
    assert!(
        outcome.code() != 0 || said.contains("sign") || said.contains("checkpoint"),
        "EVI-2: it says up to where it is signed: {outcome}"
    );
}

/// The node comes up and says that it cannot work, or ends with that code; in both cases nothing is run.
#[track_caller]
fn refuses_to_run(node: &mut Node, codes: &[&str]) {
    node.spawn();
    until("it ends or serves", PATIENCE, || {
        if node.has_ended() || node.try_status().is_some() { Ok(()) } else { Err(node.log()) }
    });
    if node.has_ended() {
        let status = node.wait_ended();
        assert!(!status.success(), "{}", node.log());
        assert!(codes.iter().any(|code| node.log().contains(code)), "which of {codes:?}: {}", node.log());
        return;
    }
    let outcome = node
        .anet(["submit", "--peer", "friend", "--wait", "echo ran"])
        .timeout(Duration::from_secs(20))
        .attempt();
    assert!(outcome.code() != 0 && outcome.out() != "ran", "nothing is run: {outcome}\n{}", node.log());
    let said = format!("{} {}", node.log(), node.try_status().unwrap_or_default());
    assert!(codes.iter().any(|code| said.contains(code)), "which of {codes:?}: {said}");
    node.kill_all();
}

/// A database of a newer version, a file that is none, an empty one, one that is half written: each is named, and nothing of it
/// is changed; a missing one is made anew while the counts stay (RUN-4).
#[test]
fn another_database_is_refused_by_name() {
    let person = Person::new(Who::User);
    let mut node = used(&person, None);
    let database = node.database();
    let kept = Kept::of(database.parent().expect("a directory"));
    let whole = fs::read(&database).expect("the database");
    let mut newer = whole.clone();
    // SQLite's file format: the user version is a big-endian number at 60.
    newer[60..64].copy_from_slice(&1_000_000u32.to_be_bytes());
    let mut spoiled = whole.clone();
    for byte in spoiled.iter_mut().skip(4096) {
        *byte ^= 0x5a;
    }
    let cases: [(&str, Vec<u8>); 4] = [
        ("newer", newer),
        ("garbage", b"this is no database at all, whatever its name says\n".repeat(200)),
        ("half", whole[..whole.len() / 2].to_vec()),
        ("spoiled", spoiled),
    ];
    for (what, bytes) in cases {
        kept.put_back(&person);
        for other in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{other}", database.display()));
        }
        fs::write(&database, &bytes).expect("forge");
        refuses_to_run(&mut node, &["bad_database"]);
        if what == "newer" || what == "garbage" {
            assert_eq!(fs::read(&database).expect("the database"), bytes, "{what}: it is left as it is");
        }
        node.verify().expect_code(0);
    }
    kept.put_back(&person);
    node.start();
    assert_eq!(node.inbox().len(), 3);
    counts_are_exact(&node);
    node.stop();
    // Without its database a node has no tasks; what was used of the day is in the evidence.
    for other in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{other}", database.display()));
    }
    node.start();
    assert_eq!(node.status()["day"]["runs"]["used"], 3, "RUN-4: {}", node.status());
    assert_eq!(node.inbox().len(), 0);
    node.ask("p1", "echo on").expect_out("on");
}

/// RUN-4: the evidence is gone: the counts are what the evidence says, and that it is gone is said, by the node or `verify`.
#[test]
fn a_removed_chain_is_not_silent() {
    let person = Person::new(Who::User);
    let mut node = used(&person, None);
    for segment in node.segments() {
        fs::remove_file(segment).expect("remove");
    }
    let before = node.verify();
    refuses_or_says(&mut node, &before);
}

#[track_caller]
fn refuses_or_says(node: &mut Node, verify: &Outcome) {
    node.spawn();
    until("it ends or serves", PATIENCE, || {
        if node.has_ended() || node.try_status().is_some() { Ok(()) } else { Err(node.log()) }
    });
    let said =
        format!("{} {} {} {}", verify.out(), verify.err(), node.log(), node.try_status().unwrap_or_default());
    let words = ["missing", "gone", "not there", "bad_evidence", "no evidence", "empty", "removed"];
    assert!(words.iter().any(|word| said.contains(word)), "a removed chain is said somewhere: {said}");
    node.kill_all();
}

/// A state directory that cannot be written: the daemon says so and does not start.
#[test]
fn a_read_only_state_directory_is_said() {
    for who in Who::all() {
        let Some(net) = Internet::new() else { return };
        let person = Person::new(*who);
        let node = used(&person, Some(&net));
        net.read_only(person.path("state"));
        let outcome = node.anet(["daemon"]).timeout(Duration::from_secs(30)).attempt();
        if outcome.timed_out() {
            // It serves: then it says that it cannot work.
            panic!("it goes on with a state that it cannot write: {outcome}");
        }
        assert_ne!(outcome.code(), 0, "{outcome}");
        let code = code_of(&outcome);
        assert!(["state_unusable", "bad_database", "bad_evidence"].contains(&code.as_str()), "{outcome}");
        net.unmount(person.path("state"));
        let mut node = node;
        node.start();
        counts_are_exact(&node);
    }
}

/// A disk that fills up: a task that cannot be kept is refused, in words; nothing acknowledged is lost; with room again the node
/// goes on by itself, and no count is wrong (EVI-1: what is not on disk has no effect).
#[test]
fn a_full_disk_loses_nothing() {
    for who in Who::all() {
        let Some(net) = Internet::new() else { return };
        let person = Person::new(*who);
        let state = person.path("state");
        net.small_disk_over(&state, 8 << 20);
        net.inside(|| {
            fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).expect("mode");
            person.give(&state);
        });
        let mut node = Node::serving(
            &person,
            Some(&net),
            &shell_agent("", "runs_per_day = 1000\nruns_per_peer_per_day = 1000"),
        );
        node.ask("p1", "echo before").expect_out("before");
        let ballast = state.join("ballast");
        let fill = || {
            let mut file = fs::File::options().create(true).append(true).open(&ballast).expect("ballast");
            let (block, byte) = ([0u8; 65536], [0u8; 512]);
            while file.write_all(&block).is_ok() {}
            while file.write_all(&byte).is_ok() {}
        };
        net.inside(fill);
        let mut acknowledged = Vec::new();
        let mut refused = 0;
        for n in 0..12 {
            let id = format!("full-{n}");
            // Large ones find no room at once; the others when the last page is full.
            let padding = "# padding\n".repeat(if n % 3 == 0 { 40_000 } else { 1 });
            let args = ["submit", "--peer", "p1", "--interaction", &id];
            let call =
                node.anet(args).stdin(format!("echo {id}\n{padding}")).timeout(Duration::from_secs(20));
            let outcome = call.attempt();
            net.inside(fill);
            if outcome.timed_out() || outcome.code() != 0 {
                refused += 1;
                if !outcome.timed_out() {
                    let code = code_of(&outcome);
                    let known = [
                        "state_unusable",
                        "bad_database",
                        "record_failed",
                        "no_node",
                        "process_died",
                        "inbox_full",
                    ];
                    assert!(known.contains(&code.as_str()), "{outcome}");
                }
            } else {
                acknowledged.push(id);
            }
        }
        assert!(refused > 0, "{who:?}: the disk was full, and every task was taken\n{}", node.log());
        net.inside(|| fs::remove_file(&ballast)).expect("room");
        if node.has_ended() {
            // With no disk to work on a daemon may end; it says why, and starts again where it was.
            assert!(node.log().contains("anet: "), "{}", node.log());
            let _ = node.wait_ended();
            node.start();
        }
        node.wait_serving();
        for id in &acknowledged {
            let story = node.wait_final(id);
            let state = story["interaction"]["state"].as_str().unwrap_or_default();
            match state {
                "answered" => {
                    assert_eq!(story["answer"].as_str().map(str::trim_end), Some(id.as_str()), "{story}")
                }
                _ => assert_eq!(story["refusal"]["code"], "sandbox_unavailable", "{story}"),
            }
        }
        until("it works again", PATIENCE, || {
            let outcome = node
                .anet(["submit", "--peer", "p1", "--wait", "echo after"])
                .timeout(Duration::from_secs(30))
                .attempt();
            if outcome.code() == 0 { Ok(()) } else { Err(format!("{outcome}\n{}", node.log())) }
        });
        node.wait_idle(PATIENCE);
        net.inside(|| node.verify().expect_code(0));
        counts_are_exact(&node);
    }
}

/// No descriptors left in a process: what cannot be done is refused or waits; with descriptors again the node goes on, no run
/// is open and no count is wrong.
#[test]
fn no_descriptors_left() {
    if harness::kind() == Harness::User {
        return harness::skip(
            "a node without descriptors",
            "the limits of another process are root's to change",
        );
    }
    let person = Person::new(Who::User);
    for name in ["supervisor", "launcher", "proxy"] {
        let mut node = Node::serving(
            &person,
            None,
            &shell_agent("", "runs_per_day = 1000\nruns_per_peer_per_day = 1000"),
        );
        node.ask("p1", "echo before").expect_out("before");
        let pid = node.pids()[name];
        let Some(open) = descriptors(pid) else {
            return harness::skip("a node without descriptors", "its descriptors cannot be seen");
        };
        for more in [0, 1, 2, 3, 5, 8] {
            // Numbers below the limit that are free are few: the next ones cannot be opened.
            limit(&person, pid, open + more);
            let args = ["submit", "--peer", "p1", "--wait", "echo during"];
            let outcome = node.anet(args).timeout(Duration::from_secs(8)).attempt();
            assert!(outcome.code() != 0 || outcome.out() == "during", "{name} {more}: {outcome}");
        }
        limit(&person, pid, 512);
        until("it works again", PATIENCE, || {
            let outcome = node
                .anet(["submit", "--peer", "p1", "--wait", "echo after"])
                .timeout(Duration::from_secs(30))
                .attempt();
            if outcome.code() == 0 { Ok(()) } else { Err(format!("{name}: {outcome}\n{}", node.log())) }
        });
        let rows = node.wait_idle(PATIENCE);
        assert!(rows.iter().all(|row| is_final(row["state"].as_str().unwrap_or_default())), "{rows:?}");
        assert_eq!(node.status()["runs"], serde_json::json!([]), "{}", node.status());
        counts_are_exact(&node);
        node.verify().expect_code(0);
        node.stop();
    }
}

/// prlimit(1), since the limit of another process is no safe call; its owner may.
fn limit(person: &Person, pid: u32, descriptors: usize) {
    let limit = format!("--nofile={descriptors}:");
    let output = person.command("prlimit").args(["--pid", &pid.to_string(), &limit]).output();
    let output = output.expect("prlimit of util-linux");
    let said = String::from_utf8_lossy(&output.stderr);
    // The process may have ended meanwhile.
    assert!(output.status.success() || said.contains("No such process"), "{said}");
}

/// EVI-3: power fails: what was written last can be zeroes, or bytes of another file, at the end of the segment.
#[test]
fn what_a_power_failure_leaves_at_the_end() {
    let person = Person::new(Who::User);
    let mut node = used(&person, None);
    let dir = node.state_dir().join("evidence");
    let kept = Kept::of(&dir);
    let segment = node.segments().last().cloned().expect("a segment");
    let tails: [&[u8]; 5] =
        [&[0u8; 512], &[0u8; 1], b"{\"seq\":", b"\xff\xfe\xfd half a block", b"\0\0\0{\"seq\""];
    for tail in tails {
        let mut file = fs::File::options().append(true).open(&segment).expect("the segment");
        file.seek(std::io::SeekFrom::End(0)).expect("end");
        file.write_all(tail).expect("a tail");
        let shown = format!("{} bytes, the first {:?}", tail.len(), tail.first());
        drop(file);
        let outcome = node.verify();
        let said = outcome.out() + &outcome.err();
        assert!(outcome.code() != 0 || said.contains("torn"), "EVI-3: {shown}: it is said: {outcome}");
        node.start();
        assert_eq!(node.status()["day"]["runs"]["used"], 3, "EVI-3: {shown}\n{}", node.log());
        node.stop();
        node.verify().expect_code(0);
        kept.put_back(&person);
    }
    // A whole line that is no record was not left by a power failure.
    let mut file = fs::File::options().append(true).open(&segment).expect("the segment");
    file.write_all(b"\n").expect("a line");
    drop(file);
    assert_eq!(code_of(&node.verify()), "bad_evidence");
    refuses_to_run(&mut node, &["bad_evidence"]);
}

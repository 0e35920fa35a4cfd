use std::fs;

use proptest::prelude::*;

use super::lines::decode;
use super::*;

struct Place {
    _keep: tempfile::TempDir,
    root: PathBuf,
    record: Record,
}

fn place() -> Place {
    let keep = tempfile::tempdir().unwrap();
    let root = keep.path().canonicalize().unwrap();
    fs::create_dir(root.join("run")).unwrap();
    fs::create_dir(root.join("project")).unwrap();
    let directory = open(root.join("run"), OFlags::DIRECTORY, Mode::empty()).unwrap();
    let record = Record::create(&directory).unwrap();
    Place { _keep: keep, root: root.join("project"), record }
}

/// FS-4: nothing is left behind on the host, whether the run ended or the launcher was killed.
#[test]
fn placeholders_are_removed_from_the_record_alone() {
    let mut place = place();
    assert!(place.record.make(&place.root.join(".claude/commands")).unwrap());
    assert!(place.record.make(&place.root.join(".claude/agents")).unwrap());
    assert!(place.root.join(".claude/agents").is_dir());
    let run = open(place.root.join("../run"), OFlags::DIRECTORY, Mode::empty()).unwrap();
    let read = read(&run).unwrap();
    assert_eq!(read, place.record.entries());
    assert_eq!(sweep(&read, &[]), 0);
    assert_eq!(fs::read_dir(&place.root).unwrap().count(), 0);
}

/// FS-4: what the run or the operator made meanwhile stays, and so does another directory of the same name.
#[test]
fn only_empty_placeholders_are_removed() {
    let mut place = place();
    for name in [".claude/commands", ".vscode", ".idea"] {
        place.record.make(&place.root.join(name)).unwrap();
    }
    fs::write(place.root.join(".claude/notes"), "").unwrap();
    fs::create_dir(place.root.join("new")).unwrap();
    fs::remove_dir(place.root.join(".idea")).unwrap();
    fs::rename(place.root.join("new"), place.root.join(".idea")).unwrap();
    assert_eq!(undo(place.record.entries(), &[], "RUN").left, 0);
    assert!(place.root.join(".claude/notes").exists() && place.root.join(".idea").exists());
    assert!(!place.root.join(".claude/commands").exists() && !place.root.join(".vscode").exists());
}

/// FS-4: two runs in one directory: the placeholder stays until the last of them ends.
#[test]
fn shared_placeholders_stay_until_the_last_run_ends() {
    let (mut first, mut second) = (place(), place());
    first.record.make(&first.root.join(".bashrc")).unwrap();
    second.record.share(std::slice::from_ref(&first.root), first.record.entries()).unwrap();
    assert_eq!(undo(first.record.entries(), second.record.entries(), "RUN").left, 0);
    assert!(first.root.join(".bashrc").is_dir());
    assert_eq!(undo(second.record.entries(), &[], "RUN").left, 0);
    assert!(!first.root.join(".bashrc").exists());
}

/// FS-4, FS-5: a link is put back, and what stands in its place is the operator's: it is kept, with all in it, and
/// named; and no link leads the removal elsewhere.
#[test]
fn links_are_put_back_and_nothing_of_the_operators_is_removed() {
    let mut place = place();
    let (link, outside) = (place.root.join(".codex"), place.root.join("../outside"));
    place.record.watch(&[(link.clone(), "dot".into())]).unwrap();
    place.record.make(&place.root.join("a/b")).unwrap();
    fs::create_dir_all(link.join("sessions")).unwrap();
    fs::write(link.join("sessions/log"), "x").unwrap();
    fs::write(place.root.join(".codex.anet-kept-RUN"), "taken").unwrap();
    fs::create_dir_all(outside.join("b")).unwrap();
    fs::remove_dir(place.root.join("a/b")).unwrap();
    fs::remove_dir(place.root.join("a")).unwrap();
    std::os::unix::fs::symlink(&outside, place.root.join("a")).unwrap();
    let undone = undo(place.record.entries(), &[], "RUN");
    let kept = place.root.join(".codex.anet-kept-RUN-1");
    assert_eq!(undone, Undone { left: 0, kept: vec![(link.clone(), kept.clone())] });
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("dot"));
    assert_eq!(fs::read_to_string(kept.join("sessions/log")).unwrap(), "x");
    assert_eq!(fs::read_to_string(place.root.join(".codex.anet-kept-RUN")).unwrap(), "taken");
    assert!(outside.join("b").is_dir());
    // A link that is as it was, or only gone, is nothing to tell of.
    fs::remove_file(&link).unwrap();
    assert_eq!(undo(place.record.entries(), &[], "RUN"), Undone::default());
    assert_eq!(undo(place.record.entries(), &[], "RUN"), Undone::default());
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("dot"));
}

/// FS-4: after a crash what stands in a link's place is left alone: days may have passed.
#[test]
fn links_are_not_touched_after_a_crash() {
    let mut place = place();
    let link = place.root.join(".codex");
    place.record.watch(&[(link.clone(), "dot".into())]).unwrap();
    fs::create_dir(&link).unwrap();
    assert_eq!(sweep(place.record.entries(), &[]), 0);
    assert!(link.is_dir());
}

/// FS-4: a placeholder that is a file goes as long as it says what it said, and stays with what was written to it.
#[test]
fn files_are_removed_only_as_they_were_made() {
    let mut place = place();
    let names = [".gitconfig", ".git/commondir", ".bash_profile", ".npmrc", ".zshrc", ".profile"];
    for name in names {
        assert!(place.record.make_file(&place.root.join(name)).unwrap());
    }
    let at = |name: &str| place.root.join(name);
    assert_eq!(fs::read_to_string(at(".git/commondir")).unwrap(), ".\n");
    assert_eq!(fs::read_to_string(at(".gitconfig")).unwrap(), "");
    assert!(fs::read_to_string(at(".bash_profile")).unwrap().contains(".bash_login"));
    fs::write(at(".npmrc"), "written").unwrap();
    fs::hard_link(at(".zshrc"), at("other")).unwrap();
    fs::rename(at(".profile"), at("moved")).unwrap();
    fs::write(at(".profile"), "").unwrap();
    assert_eq!(sweep(place.record.entries(), &[]), 0);
    let there: Vec<bool> = names.iter().map(|name| at(name).exists()).collect();
    assert_eq!(there, [false, false, false, true, true, true]);
    assert!(!at(".git").exists());
}

/// FS-4: a crash between a placeholder and the line that says which one it is leaves nothing, and takes nothing.
#[test]
fn unfinished_placeholders_are_known_by_name() {
    let place = place();
    let at = |name: &str| place.root.join(name);
    fs::create_dir(at(".anet-new-1-1")).unwrap();
    fs::write(at(".anet-new-1-2"), "").unwrap();
    fs::create_dir_all(at(".anet-new-1-3/full")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    let names = [".anet-new-1-1", ".anet-new-1-2", ".anet-new-1-3", "empty"];
    let entries = names.map(|name| Entry::Intent(at(name)));
    assert_eq!(sweep(&entries, &[]), 0);
    assert_eq!(names.map(|name| at(name).exists()), [false, false, true, true]);
}

/// FS-4, FS-5: a record that is a link, a second name of another file, or a FIFO, is none.
#[test]
fn records_that_are_not_ours_are_not_read() {
    let place = place();
    let run = place.root.join("../run");
    let bytes = encode(&Entry::Intent("/x/.anet-new-1".into()));
    let forged = |make: &dyn Fn(&Path)| {
        let path = run.join(RECORD);
        fs::remove_file(&path).unwrap();
        make(&path);
        read(&open(&run, OFlags::DIRECTORY, Mode::empty()).unwrap()).unwrap().len()
    };
    let elsewhere = place.root.join("elsewhere");
    fs::write(&elsewhere, &bytes).unwrap();
    fs::set_permissions(&elsewhere, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(forged(&|path| std::os::unix::fs::symlink(&elsewhere, path).unwrap()), 0);
    assert_eq!(forged(&|path| fs::hard_link(&elsewhere, path).unwrap()), 0);
    assert_eq!(forged(&|path| rustix::fs::mkfifoat(CWD, path, Mode::RWXU).unwrap()), 0);
    assert_eq!(forged(&|path| fs::write(path, &bytes).unwrap()), 0, "others may read it: not as we make it");
    let ours = |path: &Path| assert!(fs::copy(&elsewhere, path).is_ok());
    assert_eq!(forged(&ours), 1);
}

proptest! {
    /// A record that a crash cut off gives the entries before the cut, and bytes of any kind no panic.
    #[test]
    fn records_are_read_as_far_as_they_go(cut in 0usize..80, noise in prop::collection::vec(any::<u8>(), 0..40)) {
        let entries = [
            Entry::Intent("/a/\n".into()),
            Entry::Made { path: "/a/\u{fffd}".into(), device: 7, inode: u64::MAX },
            Entry::Link { path: "/l".into(), target: "t/u".into() },
            Entry::File { path: "/b".into(), device: 0, inode: 1 },
        ];
        let bytes: Vec<u8> = entries.iter().flat_map(encode).collect();
        prop_assert_eq!(decode(&bytes), entries.clone());
        let read = decode(bytes.get(..cut).unwrap_or(&bytes));
        prop_assert!(entries.starts_with(&read));
        decode(&noise);
    }
}

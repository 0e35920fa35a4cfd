use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

fn run(number: u8) -> RunId {
    RunId::new(1, [0, 0, 0, number])
}

fn names_of(peer: &str, interaction: &str) -> (Aid, InteractionId) {
    (peer.parse().unwrap(), interaction.parse().unwrap())
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn no_words(text: &str) {
    panic!("{text}");
}

/// The run of this interaction ended so many seconds ago.
fn age(root: &Path, of: &str, seconds: u64) {
    let file = fs::File::options().write(true).open(root.join(of).join("ended")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

/// FS-3: an interaction has one private directory from run to run; a task is passed in another one, which goes with the run.
#[test]
fn work_stays_and_a_task_goes() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("cache/work");
    let places = Places::new(root.clone());
    let (peer, interaction) = names_of("p1@node", "i1");
    let place = places.enter(&peer, &interaction, run(1)).unwrap();
    assert_eq!(place.work(), root.join("p1@node/i1/work"));
    for path in ["", "p1@node", "p1@node/i1", "p1@node/i1/work"] {
        assert_eq!(mode(&root.join(path)), 0o700, "{path}");
    }
    fs::write(place.work().join("kept"), "x").unwrap();
    place.write_task(b"do it").unwrap();
    assert_eq!((mode(&place.task()), mode(place.task().parent().unwrap())), (0o600, 0o700));
    assert_eq!(fs::read(place.task()).unwrap(), b"do it");
    assert!(!place.task().starts_with(place.work()));
    assert!(matches!(places.enter(&peer, &interaction, run(2)), Err(PlaceError::Taken)));
    place.leave().unwrap();
    assert!(!place.task().parent().unwrap().exists() && root.join("p1@node/i1/ended").exists());
    drop(place);

    let again = places.enter(&peer, &interaction, run(2)).unwrap();
    assert!(again.work().join("kept").exists() && !root.join("p1@node/i1/ended").exists());
}

/// FS-5: what is no directory of ours is not worked in: a link, one that others can write, somebody else's root.
#[test]
fn nothing_is_followed() {
    let base = tempfile::tempdir().unwrap();
    let (root, elsewhere) = (base.path().join("work"), base.path().join("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    let places = Places::new(root.clone());
    let enter = |peer: &str, interaction: &str| {
        let (peer, interaction) = names_of(peer, interaction);
        places.enter(&peer, &interaction, run(1)).map(drop)
    };
    enter("p", "i").unwrap();
    symlink(&elsewhere, root.join("linked")).unwrap();
    symlink(&elsewhere, root.join("p/linked")).unwrap();
    fs::create_dir(root.join("p/i2")).unwrap();
    symlink(&elsewhere, root.join("p/i2/work")).unwrap();
    fs::create_dir(root.join("open")).unwrap();
    fs::set_permissions(root.join("open"), PermissionsExt::from_mode(0o777)).unwrap();
    for (peer, interaction) in [("linked", "i"), ("p", "linked"), ("p", "i2")] {
        assert!(matches!(enter(peer, interaction), Err(PlaceError::Unusable { .. })), "{peer} {interaction}");
    }
    assert!(matches!(enter("open", "i"), Err(PlaceError::NotOurs(_))));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    fs::set_permissions(&root, PermissionsExt::from_mode(0o770)).unwrap();
    assert!(matches!(enter("p", "i"), Err(PlaceError::NotOurs(_))));
    let linked_root = base.path().join("link");
    symlink(&elsewhere, &linked_root).unwrap();
    let (peer, interaction) = names_of("p", "i");
    assert!(Places::new(linked_root).enter(&peer, &interaction, run(1)).is_err());
}

/// FS-3: what ended long enough ago goes, with its peer if nothing else is left; what runs, is younger, or is none of ours
/// stays; what a crash left without an end gets one and goes in its turn.
#[test]
fn old_directories_are_swept() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("work");
    let places = Places::new(root.clone());
    assert_eq!(places.sweep(Duration::ZERO, &mut no_words), Swept::default(), "there is no root yet");
    let enter = |peer: &str, interaction: &str| {
        let (peer, interaction) = names_of(peer, interaction);
        places.enter(&peer, &interaction, run(1)).unwrap()
    };
    for (peer, interaction) in
        [("old", "i1"), ("old", "i2"), ("young", "i1"), ("both", "old"), ("both", "young")]
    {
        let place = enter(peer, interaction);
        fs::write(place.work().join("file"), "x").unwrap();
        place.leave().unwrap();
    }
    for of in ["old/i1", "old/i2", "both/old"] {
        age(&root, of, 1000);
    }
    let running = enter("old", "running");
    running.leave().unwrap();
    age(&root, "old/running", 1000);
    // Killed in the middle of its run.
    drop(enter("cut", "i1"));
    // A sweep that was cut short.
    fs::create_dir_all(root.join(".removing-7/work")).unwrap();
    // Not ours.
    fs::create_dir_all(root.join("not a peer/i1")).unwrap();
    fs::write(root.join("both/file"), "x").unwrap();
    symlink(base.path(), root.join("both/link")).unwrap();

    let minutes = Duration::from_secs(600);
    assert_eq!(places.sweep(minutes, &mut no_words), Swept { removed: 4, left: 0 });
    let left: Vec<bool> =
        ["old/i1", "old/i2", "both/old", ".removing-7"].map(|of| root.join(of).exists()).to_vec();
    assert_eq!(left, [false; 4]);
    for of in
        ["old/running", "young/i1", "both/young", "both/file", "both/link", "not a peer/i1", "cut/i1/ended"]
    {
        assert!(fs::symlink_metadata(root.join(of)).is_ok(), "{of}");
    }
    drop(running);
    age(&root, "cut/i1", 1000);
    assert_eq!(places.sweep(minutes, &mut no_words), Swept { removed: 2, left: 0 });
    assert!(!root.join("old").exists() && !root.join("cut").exists() && root.join("young").exists());
    assert!(base.path().exists() && fs::metadata(base.path()).unwrap().is_dir());
    // A clock that was set back.
    let file = fs::File::options().write(true).open(root.join("young/i1/ended")).unwrap();
    file.set_modified(SystemTime::now() + minutes).unwrap();
    assert_eq!(places.sweep(Duration::ZERO, &mut no_words).left, 0);
    assert!(root.join("young/i1").exists() && fs::metadata(root.join("young")).unwrap().is_dir());
    assert_eq!(fs::metadata(&root).unwrap().uid(), rustix::process::geteuid().as_raw());
}

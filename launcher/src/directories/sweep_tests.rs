use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ipc_proto::RunId;
use rustix::fs::{CWD, mkfifoat};

use super::*;
use crate::directories::kept::Kept;

const DAY: Duration = Duration::from_secs(24 * 3600);

struct Here {
    place: tempfile::TempDir,
    root: Rc<Root>,
}

impl Here {
    fn new() -> Here {
        let place = tempfile::tempdir().unwrap();
        let root = Rc::new(Root::open(&place.path().canonicalize().unwrap().join("runs")).unwrap());
        Here { place, root }
    }

    fn keep(&self, peer: &str, id: &str) -> Kept {
        self.root.lock().unwrap().keep(&peer.parse().unwrap(), &id.parse().unwrap()).unwrap()
    }

    /// One whose last run ended so long ago.
    fn ended(&self, peer: &str, id: &str, ago: Duration) -> PathBuf {
        let kept = self.keep(peer, id);
        let path = kept.path().to_owned();
        kept.end().unwrap();
        age(&path, ago);
        path
    }

    fn sweep(&self, older_than: Duration) -> (u64, u64) {
        let mut sweep = Sweep::new(Rc::clone(&self.root), older_than);
        while sweep.step(100, SystemTime::now()) == Step::More {}
        assert_eq!(sweep.step(1, SystemTime::now()), Step::Done);
        sweep.counted()
    }

    fn names(&self) -> Vec<String> {
        names(&self.root.path)
    }
}

fn age(path: &Path, ago: Duration) {
    let lock = fs::File::options().write(true).open(path.join("lock")).unwrap();
    lock.set_modified(SystemTime::now() - ago).unwrap();
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// FS-3: what is old enough goes, with the directory of a peer that has nothing else; what is young or in use stays.
#[test]
fn what_is_old_goes() {
    let here = Here::new();
    let old = here.ended("p1", "i1", 8 * DAY);
    fs::write(old.join("work/file"), "x").unwrap();
    let young = here.ended("p1", "i2", 6 * DAY);
    here.ended("p2", "i1", 8 * DAY);
    let used = here.keep("p3", "i1");
    age(used.path(), 8 * DAY);
    assert_eq!(here.sweep(7 * DAY), (2, 0));
    assert!(young.join("work").is_dir() && used.work().is_dir());
    assert_eq!(here.names(), [".lock", ".removing", "p1", "p3"]);
    assert_eq!(names(&here.root.path.join(".removing")), [""; 0]);
    assert_eq!(here.sweep(7 * DAY), (0, 0));
    drop(used);
    assert_eq!(here.sweep(7 * DAY), (1, 0), "the launcher of its run died a week ago");
}

/// FS-3: the clock is set back, or was wrong: what ends in the future ended now.
#[test]
fn a_time_that_has_not_come_counts_as_now() {
    let here = Here::new();
    let path = here.ended("p1", "i1", Duration::ZERO);
    let lock = fs::File::options().write(true).open(path.join("lock")).unwrap();
    lock.set_modified(SystemTime::now() + 3650 * DAY).unwrap();
    assert_eq!(here.sweep(DAY), (0, 0));
    let noted = lock.metadata().unwrap().modified().unwrap();
    assert!(noted <= SystemTime::now());
    let mut later = Sweep::new(Rc::clone(&here.root), DAY);
    while later.step(100, SystemTime::now() + 2 * DAY) == Step::More {}
    assert_eq!(later.counted(), (1, 0));
    // Times at both ends of what a file system knows.
    let path = here.ended("p1", "i2", Duration::ZERO);
    let lock = fs::File::options().write(true).open(path.join("lock")).unwrap();
    lock.set_modified(SystemTime::UNIX_EPOCH - DAY).unwrap();
    assert_eq!(here.sweep(Duration::MAX), (0, 0));
    assert_eq!(here.sweep(DAY), (1, 0));
}

/// FS-3, FS-5: what is no work directory of ours is neither believed nor removed: other names, links, what others could
/// change, `anet run`'s own root, and runs.
#[test]
fn nothing_else_is_removed() {
    let here = Here::new();
    let (root, outside) = (&here.root.path, here.place.path().join("outside"));
    fs::create_dir_all(outside.join("i1/work")).unwrap();
    fs::write(outside.join("i1/lock"), "").unwrap();
    age(&outside.join("i1"), 9 * DAY);
    let private = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    for path in [&outside, &outside.join("i1")] {
        private(path);
    }
    symlink(&outside, root.join("linked")).unwrap();
    let own = here.ended("p1", "i1", Duration::ZERO);
    symlink(outside.join("i1"), root.join("p1/i2")).unwrap();
    fs::write(root.join("p1/file"), "").unwrap();
    for place in ["p1/-x", "p1/i3", ".local/i1", ".hidden/i1"] {
        fs::create_dir_all(root.join(place).join("work")).unwrap();
        private(&root.join(place));
        private(root.join(place).parent().unwrap());
        fs::write(root.join(place).join("lock"), "").unwrap();
        age(&root.join(place), 9 * DAY);
    }
    fs::set_permissions(root.join("p1/i3"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = here.root.lock().unwrap().create(RunId::new(1, [0; 4]), &["home", "tmp"]).unwrap();
    age(run.path(), 9 * DAY);
    let before = (here.names(), names(&root.join("p1")), names(run.path()));
    assert_eq!(here.sweep(DAY), (0, 0));
    assert_eq!((here.names(), names(&root.join("p1")), names(run.path())), before);
    assert!(outside.join("i1/work").is_dir() && own.join("work").is_dir());
}

/// FS-5: whatever a run left in its directory, only that goes, and its own account of time counts for nothing.
#[test]
fn hostile_work_is_removed_and_nothing_else() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let here = Here::new();
    let outside = here.place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "x").unwrap();
    let path = here.ended("p1", "i1", 9 * DAY);
    let work = path.join("work");
    fs::create_dir_all(work.join("lock/work/lock")).unwrap();
    symlink(&outside, work.join("out")).unwrap();
    symlink("..", work.join("up")).unwrap();
    fs::hard_link(outside.join("kept"), work.join("hard")).unwrap();
    mkfifoat(CWD, work.join("fifo"), Mode::RWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(work.join("socket")).unwrap();
    fs::write(work.join(OsStr::from_bytes(b"\xff\n -rf *")), "").unwrap();
    fs::create_dir_all(work.join("closed/inner/deep")).unwrap();
    for closed in ["closed/inner/deep", "closed/inner", "closed", ""] {
        fs::set_permissions(work.join(closed), fs::Permissions::from_mode(0o0)).unwrap();
    }
    assert_eq!(here.sweep(DAY), (1, 0));
    assert_eq!(here.names(), [".lock", ".removing"]);
    assert_eq!(names(&outside), ["kept"]);
    assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "x");
}

/// FS-3: a run that wants a directory which is being removed gets a new one, whole; a launcher that dies meanwhile leaves
/// nothing for good.
#[test]
fn a_directory_is_whole_or_gone() {
    let here = Here::new();
    let path = here.ended("p1", "i1", 9 * DAY);
    for number in 0..100 {
        fs::write(path.join(format!("work/{number}")), "").unwrap();
    }
    let mut sweep = Sweep::new(Rc::clone(&here.root), DAY);
    while path.exists() {
        assert_eq!(sweep.step(5, SystemTime::now()), Step::More);
    }
    assert_eq!(sweep.step(20, SystemTime::now()), Step::More);
    assert_eq!(names(&here.root.path.join(".removing")), ["i1"]);
    let anew = here.keep("p1", "i1");
    assert_eq!(names(&anew.work()), [""; 0]);
    // Another launcher leaves it alone as long as this one lives.
    assert_eq!(here.sweep(DAY), (0, 0));
    drop(sweep);
    // The same name once more.
    anew.end().unwrap();
    age(&path, 9 * DAY);
    let mut second = Sweep::new(Rc::clone(&here.root), DAY);
    second.place = Place::Peers(here.root.reading().unwrap());
    while path.exists() {
        assert_eq!(second.step(5, SystemTime::now()), Step::More);
    }
    assert_eq!(names(&here.root.path.join(".removing")), ["i1", "i1-1"]);
    drop(second);
    assert_eq!(here.sweep(DAY), (2, 0));
    assert_eq!(names(&here.root.path.join(".removing")), [""; 0]);
}

/// FS-3: a launcher that died while it made a directory; one whose run never ended.
#[test]
fn what_a_dead_launcher_left_has_its_time() {
    let here = Here::new();
    let torn = here.root.path.join("p1/i1");
    fs::create_dir_all(&torn).unwrap();
    for path in [&torn, torn.parent().unwrap()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    assert_eq!(here.sweep(DAY), (0, 0), "it was made a moment ago, as far as anybody knows");
    age(&torn, 2 * DAY);
    assert_eq!(here.sweep(DAY), (1, 0));
}

/// FS-3: what cannot be removed is counted and told, and keeps nothing else from being removed.
#[test]
fn what_stays_is_counted() {
    let here = Here::new();
    here.ended("p1", "i1", 2 * DAY);
    here.ended("p2", "i1", 2 * DAY);
    // Nothing can be moved there.
    fs::create_dir(here.root.path.join(".removing")).unwrap();
    fs::set_permissions(here.root.path.join(".removing"), fs::Permissions::from_mode(0o777)).unwrap();
    let mut sweep = Sweep::new(Rc::clone(&here.root), DAY);
    while sweep.step(100, SystemTime::now()) == Step::More {}
    assert_eq!(sweep.counted(), (0, 2));
    let complaints = sweep.complaints();
    assert!(
        complaints.len() == 2 && complaints.iter().all(|line| line.contains(".removing")),
        "{complaints:?}"
    );
}

/// FS-3: as long as another launcher has the root, nothing is waited for, and after a while nothing is tried any more.
#[test]
fn a_locked_root_is_not_waited_for() {
    let here = Here::new();
    let path = here.ended("p1", "i1", 2 * DAY);
    let other = Root::open(&here.root.path).unwrap();
    let locked = other.lock().unwrap();
    let mut sweep = Sweep::new(Rc::clone(&here.root), DAY);
    let began = Instant::now();
    assert_eq!(sweep.step(1000, SystemTime::now()), Step::Later);
    assert!(began.elapsed() < Duration::from_millis(100));
    drop(locked);
    while sweep.step(1000, SystemTime::now()) != Step::Done {}
    assert_eq!(sweep.counted(), (1, 0));
    assert!(!path.exists());
    here.ended("p1", "i1", 2 * DAY);
    let _locked = other.lock().unwrap();
    let mut sweep = Sweep::new(Rc::clone(&here.root), DAY);
    while sweep.step(1000, SystemTime::now()) != Step::Done {}
    assert_eq!(sweep.counted(), (0, 1));
    assert!(path.exists());
}

/// Processor time of this thread: what others on the machine do does not count.
fn spent() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap(), u32::try_from(now.tv_nsec).unwrap())
}

/// Sweeps in steps of 50, and says how long each took, the shortest first.
fn sweep_in_small_steps(here: &Here) -> (Vec<Duration>, (u64, u64)) {
    let mut sweep = Sweep::new(Rc::clone(&here.root), DAY);
    let mut times = Vec::new();
    loop {
        let began = spent();
        let step = sweep.step(50, SystemTime::now());
        times.push(spent().saturating_sub(began));
        match step {
            Step::More => {}
            Step::Done => break,
            Step::Later => panic!("nobody else is there"),
        }
    }
    times.sort();
    println!(
        "{} steps; median {:?}, longest {:?}",
        times.len(),
        times[times.len() / 2],
        times[times.len() - 1]
    );
    (times, sweep.counted())
}

fn fill(directory: &Path, files: usize) {
    for number in 0..files {
        fs::write(directory.join(format!("{number}")), "").unwrap();
    }
}

/// Makes so many directories of ten peers. Every other one is old.
fn many(here: &Here, directories: usize) {
    let private = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    for number in 0..directories {
        let path = here.root.path.join(format!("p{}/i{number}", number % 10));
        fs::create_dir_all(path.join("work")).unwrap();
        private(&path);
        fs::write(path.join("lock"), "").unwrap();
        if number % 2 == 0 {
            age(&path, 2 * DAY);
        }
    }
    for number in 0..10 {
        private(&here.root.path.join(format!("p{number}")));
    }
}

/// FS-3: many directories, and one with very many files: no step removes more than it may, and none is wasted.
#[test]
fn many_and_large_directories_are_swept_in_short_steps() {
    let here = Here::new();
    fill(&here.ended("p0", "large", 2 * DAY).join("work"), 5_000);
    many(&here, 1_000);
    let (times, counted) = sweep_in_small_steps(&here);
    assert_eq!(counted, (501, 0));
    // The files, and of each directory at least its work.
    let names = 5_000 + 500;
    assert!((names / 50..names / 10).contains(&times.len()), "{}", times.len());
    assert_eq!(here.names().len(), 2 + 5, "five peers have young ones");
}

/// What many cost: `cargo test --release -- --ignored --nocapture ten_thousand`.
#[test]
#[ignore = "a measurement"]
fn ten_thousand_directories() {
    let here = Here::new();
    many(&here, 10_000);
    let (_, counted) = sweep_in_small_steps(&here);
    assert_eq!(counted, (5_000, 0));
}

/// The same with a million files in one directory: `cargo test --release -- --ignored a_million --nocapture`.
#[test]
#[ignore = "a measurement"]
fn a_million_files() {
    let here = Here::new();
    fill(&here.ended("p0", "large", 2 * DAY).join("work"), 1_000_000);
    let (_, counted) = sweep_in_small_steps(&here);
    assert_eq!(counted, (1, 0));
}

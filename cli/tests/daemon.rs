//! `anet daemon` with programs in place of anet's other ones that do as each test wants: what keeper and guard make of that.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);
/// The others wait for their end.
const WAITS: &str = "while :; do sleep 0.1; done";
/// A supervisor that serves until it is told to end: a word to the guard, and the signals of a node's.
const SERVES: &str = "printf LR >&8; trap 'exit 0' TERM; while :; do sleep 0.05; done";

/// A program that is being written while another thread starts one is open in that one's child for a moment, and busy.
static WRITING: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place with programs, a home, and nothing else of this machine's.
struct Stage {
    place: tempfile::TempDir,
}

impl Stage {
    fn new(supervisor: &str, configuration: &str) -> Stage {
        let stage = Stage { place: tempfile::tempdir().unwrap() };
        fs::set_permissions(stage.place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["home", "config", "cache", "state", "runtime", "bin", "config/anet"] {
            fs::create_dir(stage.path(name)).unwrap();
            let mode = if name == "bin" { 0o755 } else { 0o700 };
            fs::set_permissions(stage.path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let copying = alone();
        fs::copy(env!("CARGO_BIN_EXE_anet"), stage.path("bin/anet")).unwrap();
        drop(copying);
        for name in ["launcher", "proxy", "broker", "terminal", "init", "outside"] {
            stage.program(name, WAITS);
        }
        stage.program("supervisor", supervisor);
        stage.configure(configuration);
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A script in the place of a program, whole at any moment.
    fn program(&self, name: &str, script: &str) {
        let (draft, program) = (self.path("draft"), self.path(&format!("bin/anet-{name}")));
        let _writing = alone();
        fs::write(&draft, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(draft, program).unwrap();
    }

    fn configure(&self, text: &str) {
        fs::write(self.path("config/anet/anet.toml"), text).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.path("bin/anet"));
        command.arg("daemon").env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.path("home"));
        for (name, place) in [
            ("CONFIG_HOME", "config"),
            ("CACHE_HOME", "cache"),
            ("STATE_HOME", "state"),
            ("RUNTIME_DIR", "runtime"),
        ] {
            command.env(format!("XDG_{name}"), self.path(place));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::from(self.log_file()));
        command
    }

    fn log_file(&self) -> fs::File {
        fs::File::options().create(true).append(true).open(self.path("log")).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn start(&self) -> Daemon {
        spawn(&mut self.command())
    }

    #[track_caller]
    fn wait_for(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < until, "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    fn wait_log(&self, words: &str, times: usize) {
        self.wait_for(words, || self.log().matches(words).count() >= times);
    }

    fn socket(&self) -> PathBuf {
        self.path("runtime/anet/control.sock")
    }
}

fn spawn(command: &mut Command) -> Daemon {
    let _starting = alone();
    Daemon(command.spawn().unwrap())
}

/// Ended with the value.
struct Daemon(Child);

impl Daemon {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    #[track_caller]
    fn wait(&mut self, stage: &Stage) -> ExitStatus {
        let mut status = None;
        stage.wait_for("the daemon ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Already gone: nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processes of this place, by number, with their words.
fn processes(stage: &Stage) -> Vec<(i32, String)> {
    let place = c_text(stage.place.path());
    let of = |entry: fs::DirEntry| {
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        // Of a confined one only root reads which file it is.
        let program = fs::read_link(entry.path().join("exe")).unwrap_or_default();
        (words.contains(&place) || program.starts_with(&place)).then_some((number, words))
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
}

fn living(stage: &Stage) -> Vec<String> {
    processes(stage).into_iter().map(|(_, words)| words).collect()
}

/// The number of one of the node's processes.
#[track_caller]
fn number_of(name: &str, stage: &Stage, daemon: &Daemon) -> i32 {
    let keeper = Pid::from_child(&daemon.0).as_raw_nonzero().get();
    if name == "keeper" {
        return keeper;
    }
    let [guard] = children(keeper)[..] else { panic!("{:?}", living(stage)) };
    if name == "guard" {
        return guard;
    }
    let program = c_text(&stage.path(&format!("bin/anet-{name}")));
    // A script's own children are of its name for a moment.
    let of = |(number, words): (i32, String)| words.contains(&program).then_some(number);
    let found: Vec<i32> = processes(stage).into_iter().filter_map(of).collect();
    let [found] = children(guard).into_iter().filter(|number| found.contains(number)).collect::<Vec<_>>()[..]
    else {
        panic!("{name}: {:?}", living(stage))
    };
    found
}

fn children(number: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{number}/task/{number}/children")).unwrap_or_default();
    text.split_ascii_whitespace().map(|number| number.parse().unwrap()).collect()
}

fn c_text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// PRV-6: a process that dies again and again is started again with pauses that double, the reason reaches the next life, and
/// the end that is asked for in such a pause comes at once.
#[test]
fn what_dies_is_started_again_with_pauses() {
    let stage = Stage::new("exit 3", "");
    let mut daemon = stage.start();
    let reason = "anet-supervisor ended with status 3";
    for pause in ["100 ms", "200 ms", "400 ms"] {
        stage.wait_log(&format!("the node starts again in {pause}: {reason}"), 1);
    }
    // The job of the next life, as it is: the reason is in it.
    let job = stage.path("job");
    stage.program("supervisor", &format!("cat <&5 >{0}.new; mv {0}.new {0}; {SERVES}", job.display()));
    stage.wait_for("the next life has its job", || job.exists());
    let bytes = fs::read(&job).unwrap();
    assert!(bytes.windows(reason.len()).any(|words| words == reason.as_bytes()), "{}", stage.log());
    stage.wait_log("the node serves at", 1);
    assert!(stage.socket().exists());
    daemon.signal(Signal::TERM);
    assert!(daemon.wait(&stage).success(), "{}", stage.log());
    assert!(!stage.socket().exists(), "clients are told at once");
    assert_eq!(living(&stage), Vec::<String>::new());

    stage.program("supervisor", "exit 3");
    let mut daemon = stage.start();
    stage.wait_log("the node starts again in 800 ms", 1);
    let asked = Instant::now();
    daemon.signal(Signal::INT);
    assert!(daemon.wait(&stage).success());
    assert!(asked.elapsed() < Duration::from_millis(700), "{:?}", asked.elapsed());
}

/// What keeps the node from coming up the first time is one sentence and 125, and nothing is left.
#[test]
fn what_is_missing_at_the_first_start_ends_it() {
    let stage = Stage::new(SERVES, "");
    fs::remove_file(stage.path("bin/anet-proxy")).unwrap();
    assert_eq!(stage.start().wait(&stage).code(), Some(125));
    assert!(stage.log().starts_with("anet: program_missing: "), "{}", stage.log());
    stage.program("proxy", WAITS);
    stage.configure("[auto_reply]\nuntrusted = \"sometimes\"\n");
    assert_eq!(stage.start().wait(&stage).code(), Some(125));
    assert!(stage.log().contains("anet.toml: line 2: untrusted"), "{}", stage.log());
    assert_eq!(living(&stage), Vec::<String>::new());
}

/// PRV-6, SBX-5: whichever process is killed, all others end, and the node is back; the guard's own death too. The keeper's
/// ends all.
#[test]
fn any_death_ends_all_and_the_node_is_back() {
    let stage = Stage::new(SERVES, "[auto_reply]\nnotify = [\"/bin/true\"]\n");
    let daemon = stage.start();
    let mut lives = 1;
    for name in ["launcher", "proxy", "broker", "outside", "supervisor", "guard"] {
        stage.wait_log("the node serves at", lives);
        let number = number_of(name, &stage, &daemon);
        kill_process(Pid::from_raw(number).unwrap(), Signal::KILL).unwrap();
        lives += 1;
        let who = if name == "guard" { "the guard".to_owned() } else { format!("anet-{name}") };
        stage.wait_log(&format!("ms: {who} was ended by SIGKILL"), 1);
    }
    stage.wait_log("the node serves at", lives);
    daemon.signal(Signal::KILL);
    stage.wait_for("all end with the keeper", || living(&stage).is_empty());
}

/// A configuration that breaks while the node serves is said by the next life, which comes up; it is read on SIGHUP, and when
/// the supervisor says that it has changed. Neither counts as a death.
#[test]
fn a_life_begins_anew_when_it_is_asked_to() {
    let stage = Stage::new(
        "printf LR >&8; trap 'printf N >&8' HUP; trap 'exit 0' TERM; while :; do sleep 0.05; done",
        "",
    );
    let mut daemon = stage.start();
    stage.wait_log("the node serves at", 1);
    daemon.signal(Signal::HUP);
    stage.wait_log("the node serves at", 2);
    stage.configure("no_such_key = 1\n");
    daemon.signal(Signal::HUP);
    stage.wait_log("bad_config: ", 1);
    stage.wait_log("the node serves at", 3);
    assert!(!stage.log().contains("starts again in"), "{}", stage.log());
    daemon.signal(Signal::TERM);
    assert!(daemon.wait(&stage).success());
}

/// A supervisor that does not end is ended.
#[test]
fn an_end_that_does_not_come_is_made() {
    let stage = Stage::new("printf LR >&8; trap '' TERM; while :; do sleep 0.05; done", "");
    let mut daemon = stage.start();
    stage.wait_log("the node serves at", 1);
    let asked = Instant::now();
    daemon.signal(Signal::TERM);
    let status = daemon.wait(&stage);
    assert_eq!((status.code(), status.signal()), (Some(0), None), "{}", stage.log());
    assert!((14..25).contains(&asked.elapsed().as_secs()), "{:?}", asked.elapsed());
    assert_eq!(living(&stage), Vec::<String>::new());
}

/// The service manager is told when the node serves, and when it stops.
#[test]
fn the_service_manager_is_told() {
    let stage = Stage::new(SERVES, "");
    let manager = UnixDatagram::bind(stage.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut daemon = spawn(stage.command().env("NOTIFY_SOCKET", stage.path("notify")));
    let mut heard = [0u8; 128];
    let length = manager.recv(&mut heard).unwrap();
    assert!(heard[..length].starts_with(b"READY=1\n"), "{:?}", &heard[..length]);
    daemon.signal(Signal::TERM);
    let length = manager.recv(&mut heard).unwrap();
    assert!(heard[..length].starts_with(b"STOPPING=1\n"), "{:?}", &heard[..length]);
    assert!(daemon.wait(&stage).success());
}

/// Two at once: the second is told, and a guard that nobody keeps does not start.
#[test]
fn one_node_a_state_directory() {
    let stage = Stage::new(SERVES, "");
    let mut first = stage.start();
    stage.wait_log("the node serves at", 1);
    assert_eq!(stage.start().wait(&stage).code(), Some(125));
    stage.wait_log("anet: node_running: ", 1);
    first.signal(Signal::TERM);
    assert!(first.wait(&stage).success());
    let mut unkept = stage.command();
    std::os::unix::process::CommandExt::arg0(&mut unkept, "anet-guard");
    assert_eq!(spawn(&mut unkept).wait(&stage).code(), Some(125));
    assert_eq!(stage.log().matches("the node serves at").count(), 1, "{}", stage.log());
}

/// MOD-1: a key that stands in a variable is in neither keeper's nor guard's nor supervisor's environment or memory; the broker
/// has it by its descriptor in each life, and the operator's own agent by what starts it.
#[test]
fn a_key_in_a_variable_goes_to_the_broker_alone() {
    let key = format!("sk-canary-{}", std::process::id());
    let stage = Stage::new(
        SERVES,
        "[auto_reply]\nagent = \"custom\"\ncommand = [\"/bin/sh\"]\nuntrusted = \"sandbox\"\nmodel = \"m\"\n\
         api_base = \"https://api.anthropic.com\"\n",
    );
    let places = stage.path("seen");
    fs::create_dir(&places).unwrap();
    fs::set_permissions(&places, fs::Permissions::from_mode(0o777)).unwrap();
    // What the broker has is of no user but whoever started it; what is given to `outside` has a number of two digits.
    for (name, source) in [("broker", "cat <&7"), ("outside", "cat /proc/self/fd/20")] {
        stage.program(name, &format!("{source} >{}/{name}-$$; {WAITS}", places.display()));
    }
    let mut daemon = spawn(stage.command().env("ANTHROPIC_API_KEY", &key));
    let seen = |name: &str| -> Vec<String> {
        let files = fs::read_dir(&places).unwrap().flatten();
        let ours = files.filter(|file| file.file_name().to_str().unwrap().starts_with(name));
        ours.map(|file| fs::read_to_string(file.path()).unwrap()).filter(|text| !text.is_empty()).collect()
    };
    for life in 1..=2 {
        stage.wait_log("the node serves at", life);
        stage.wait_for("the broker has the key", || seen("broker").len() == life);
        for name in ["keeper", "guard", "supervisor"] {
            assert!(!holds(number_of(name, &stage, &daemon), &key), "{name} has the key");
        }
        if life == 1 {
            let broker = number_of("broker", &stage, &daemon);
            kill_process(Pid::from_raw(broker).unwrap(), Signal::KILL).unwrap();
        }
    }
    assert!(seen("broker").iter().all(|text| *text == key), "{:?}", seen("broker"));
    assert!(seen("outside").contains(&key), "{:?}", seen("outside"));
    daemon.signal(Signal::TERM);
    assert!(daemon.wait(&stage).success());
}

/// Whether the process's environment or memory has these bytes, as far as it can be read.
fn holds(number: i32, bytes: &str) -> bool {
    let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
    let found = |text: &[u8]| text.windows(bytes.len()).any(|window| window == bytes.as_bytes());
    if found(&environment) {
        return true;
    }
    let maps = fs::read_to_string(format!("/proc/{number}/maps")).unwrap_or_default();
    let Ok(memory) = fs::File::open(format!("/proc/{number}/mem")) else { return false };
    maps.lines().any(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let Some((start, end)) = range else { return false };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else {
            return false;
        };
        let mut part = vec![0u8; usize::try_from(end - start).unwrap().min(64 << 20)];
        let mut at = 0;
        while at < part.len() {
            match std::os::unix::fs::FileExt::read_at(&memory, &mut part[at..], start + at as u64) {
                Ok(0) | Err(_) => break,
                Ok(read) => at += read,
            }
        }
        found(&part[..at])
    })
}

/// USE-1: a log that nobody reads any more ends nothing.
#[test]
fn a_log_that_is_closed_does_not_matter() {
    let stage = Stage::new(SERVES, "");
    let mut daemon = spawn(stage.command().stderr(Stdio::piped()));
    let mut log = daemon.0.stderr.take().unwrap();
    let mut first = [0u8; 1];
    log.read_exact(&mut first).unwrap();
    drop(log);
    stage.wait_for("it serves", || stage.socket().exists());
    daemon.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    daemon.signal(Signal::TERM);
    assert!(daemon.wait(&stage).success());
}

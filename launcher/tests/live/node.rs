//! Plays the supervisor: starts the real anet-launcher as the guard does, and speaks to it over the channel.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use confine::sys::spawn::{Child, Command, Identity, Namespaces, Program};
use ipc_proto::init::{CommandPlan, Exit, ProbeFailure, ProbePlan, Purpose, TerminalPlan};
use ipc_proto::launcher::{
    Endpoints, Exceeded, Failure, FilePlan, FromLauncher, INSIDE_PATH, INSIDE_WORK, LaunchPlan, Programs,
    ToLauncher, Used, WorkDirectory,
};
use ipc_proto::{Channel, Received, RunId, bulk};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, pidfd_send_signal};

/// Whom a run belongs to when the tests are started by root.
const USER: u32 = 1234;
/// Longer than anything takes, shorter than somebody waits.
const PATIENCE: Duration = Duration::from_secs(30);

static SERIAL: AtomicU32 = AtomicU32::new(0);

pub fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// A launcher, and a place for its runs and for the test's own files.
pub struct Node {
    pub channel: Channel<ToLauncher, FromLauncher>,
    pub child: Child,
    pub hello: FromLauncher,
    pub place: tempfile::TempDir,
    log: PathBuf,
}

/// How a run went.
#[derive(Debug, Default)]
pub struct Went {
    pub failure: Option<Failure>,
    pub exit: Option<Option<Exit>>,
    pub over: Option<Exceeded>,
    pub probed: Option<Vec<ProbeFailure>>,
    pub stopped: Vec<u8>,
    pub used: Option<Used>,
    pub output: String,
}

impl Went {
    pub fn status(&self) -> Option<u8> {
        match self.exit {
            Some(Some(Exit::Status(status))) => Some(status),
            _ => None,
        }
    }
}

pub fn c(text: impl AsRef<OsStr>) -> CString {
    CString::new(text.as_ref().as_bytes()).unwrap()
}

fn null() -> File {
    File::options().read(true).write(true).open("/dev/null").unwrap()
}

impl Node {
    pub fn start() -> Node {
        Node::start_limited(None)
    }

    /// The same with so many descriptors at most.
    pub fn start_limited(descriptors: Option<u32>) -> Node {
        let place = tempfile::Builder::new().prefix("anet-launcher-").tempdir().unwrap();
        for part in ["runs", "project"] {
            std::fs::create_dir(place.path().join(part)).unwrap();
        }
        let node = Node::start_as(place, descriptors);
        for part in ["", "runs", "project"] {
            node.own(&node.place.path().join(part));
        }
        node
    }

    /// A second launcher, or one after a crash, in the same place.
    pub fn start_in(place: tempfile::TempDir) -> Node {
        Node::start_as(place, None)
    }

    fn start_as(place: tempfile::TempDir, descriptors: Option<u32>) -> Node {
        let log = place.path().join("log");
        let (channel, far) = Channel::<ToLauncher, FromLauncher>::pair().unwrap();
        let (null, file) = (null(), File::options().append(true).create(true).open(&log).unwrap());
        // As the guard does.
        let launcher = c(env!("CARGO_BIN_EXE_anet-launcher"));
        let mut command = Command::new(Program::Path(launcher.clone()));
        command.argv = vec![c("anet-launcher")];
        if let Some(most) = descriptors {
            command.program = Program::Path(c("/usr/bin/prlimit"));
            command.argv = vec![c("prlimit"), c(format!("--nofile={most}:{most}")), launcher];
        }
        command.namespaces = Namespaces { user: !is_root(), pid: true, proc: true, net: true };
        command.identity = is_root().then_some(Identity { uid: USER, gid: USER });
        command.descriptors = vec![
            (null.as_fd(), 0),
            (null.as_fd(), 1),
            (null.as_fd(), 2),
            (far.as_fd(), 3),
            (file.as_fd(), 4),
        ];
        command.parent_death_signal = true;
        let child = command.spawn().unwrap();
        drop(far);
        let hello = receive(&channel).expect("a launcher says who it is").0;
        Node { channel, child, hello, place, log }
    }

    pub fn own(&self, path: &Path) {
        if is_root() {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
    }

    pub fn project(&self) -> PathBuf {
        self.place.path().canonicalize().unwrap().join("project")
    }

    /// Writes a file of the operator's, with the directories above it.
    pub fn file(&self, path: &str, text: &str) -> PathBuf {
        let path = self.project().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        for part in path.ancestors().take_while(|part| part.starts_with(self.project())) {
            self.own(part);
        }
        path
    }

    pub fn plan(&self, argv: &[&str]) -> LaunchPlan {
        let environment =
            [format!("PATH={INSIDE_PATH}"), "HOME=/home/anet".to_owned(), "LANG=C.UTF-8".to_owned()];
        let chance = SERIAL.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
        LaunchPlan {
            run: RunId::new(now as u64, chance),
            purpose: Purpose::Command(CommandPlan {
                argv: argv.iter().map(c).collect(),
                environment: environment.iter().map(c).collect(),
                directory: c(INSIDE_WORK),
                terminal: None,
            }),
            endpoints: Endpoints { egress: false, model: false },
            home: Vec::new(),
            files: FilePlan {
                root: c(self.runs()),
                work: WorkDirectory::Fresh,
                read_write: Vec::new(),
                read_only: Vec::new(),
                deny: Vec::new(),
                masked: Vec::new(),
            },
            growth: None,
            memory: None,
            tasks: None,
            programs: Programs { bwrap: c("/usr/bin/bwrap"), init: c(env!("CARGO_BIN_EXE_anet-init")) },
        }
    }

    pub fn sh(&self, script: &str) -> LaunchPlan {
        self.plan(&["/bin/sh", "-c", script])
    }

    /// As `--here` in the project.
    pub fn here(&self, script: &str) -> LaunchPlan {
        let mut plan = self.sh(script);
        plan.files.work = WorkDirectory::Named(c(self.project()));
        command(&mut plan).directory = c(self.project());
        plan
    }

    pub fn probe(&self, probe: ProbePlan) -> LaunchPlan {
        let mut plan = self.plan(&[]);
        plan.purpose = Purpose::Probe(probe);
        plan
    }

    pub fn send(&self, message: &ToLauncher) {
        if let Err(error) = self.channel.send(message, &[]) {
            panic!("{error}: {:?} {}", wait_for_end(&self.child), self.log());
        }
    }

    pub fn launch(&self, plan: &LaunchPlan, stdio: [BorrowedFd<'_>; 3]) {
        let memory = bulk::seal(plan).unwrap();
        self.channel.send(&ToLauncher::Plan(plan.run), &[memory.as_fd()]).unwrap();
        self.channel.send(&ToLauncher::Launch(plan.run), &stdio).unwrap();
    }

    pub fn receive(&self) -> (FromLauncher, Vec<OwnedFd>) {
        receive(&self.channel)
            .unwrap_or_else(|| panic!("the launcher is gone: {:?} {}", wait_for_end(&self.child), self.log()))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A whole run, with its output and errors in one.
    pub fn run(&self, plan: &LaunchPlan) -> Went {
        self.run_with(plan, |_, _| {})
    }

    /// The same; `seen` is called with each message.
    pub fn run_with(&self, plan: &LaunchPlan, seen: impl FnMut(&Node, &FromLauncher)) -> Went {
        let went = self.whole(plan, seen);
        let left = self.left();
        assert!(left.is_empty(), "left behind: {left:?}; {}", self.log());
        went
    }

    /// One beside others that go on and have nothing to say.
    pub fn run_beside(&self, plan: &LaunchPlan) -> Went {
        self.whole(plan, |_, _| {})
    }

    fn whole(&self, plan: &LaunchPlan, mut seen: impl FnMut(&Node, &FromLauncher)) -> Went {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let null = null();
        self.launch(plan, [null.as_fd(), writer.as_fd(), writer.as_fd()]);
        drop(writer);
        let output = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let mut went = Went::default();
        loop {
            let (message, _descriptors) = self.receive();
            seen(self, &message);
            match message {
                FromLauncher::Ready { run, .. } => self.send(&ToLauncher::Go(run)),
                FromLauncher::Failed { failure, .. } => went.failure = Some(failure),
                FromLauncher::Probed { failures, .. } => went.probed = Some(failures),
                FromLauncher::Stopped { signal, .. } => went.stopped.push(signal),
                FromLauncher::Over { exceeded, .. } => went.over = Some(exceeded),
                FromLauncher::Exited { exit, .. } => went.exit = Some(exit),
                FromLauncher::Closed { used, .. } => {
                    eprintln!("{went:?}");
                    went.used = Some(used);
                    break;
                }
                FromLauncher::Hello { .. } | FromLauncher::Swept { .. } => panic!("nobody asked"),
            }
        }
        went.output = output.join().unwrap();
        went
    }

    /// How many descriptors the launcher has; none where it cannot be looked at, since it belongs to the same ordinary user.
    pub fn descriptors(&self) -> Option<usize> {
        let place = format!("/proc/{}/fd", self.child.pid.as_raw_nonzero());
        is_root().then(|| std::fs::read_dir(place).unwrap().count())
    }

    /// A number of its /proc/PID/status.
    pub fn status_of(&self, name: &str) -> usize {
        let place = format!("/proc/{}/status", self.child.pid.as_raw_nonzero());
        let text = std::fs::read_to_string(place).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
    }

    /// What is in the root of the runs beside its lock and the directories of peers.
    pub fn left(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.runs()).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names.filter(|name| name != ".lock" && name != ".removing" && !name.starts_with("peer-")).collect()
    }

    pub fn runs(&self) -> PathBuf {
        self.place.path().canonicalize().unwrap().join("runs")
    }

    /// A run of a peer's task, in its kept work directory.
    pub fn kept(&self, peer: &str, interaction: &str, script: &str) -> LaunchPlan {
        let mut plan = self.sh(script);
        plan.files.work = WorkDirectory::Kept {
            peer: format!("peer-{peer}").parse().unwrap(),
            interaction: interaction.parse().unwrap(),
        };
        plan
    }

    /// Where that is.
    pub fn kept_at(&self, peer: &str, interaction: &str) -> PathBuf {
        self.runs().join(format!("peer-{peer}")).join(interaction)
    }

    /// Sweeps, and says how many directories were removed and left. No run may have anything to say meanwhile.
    pub fn sweep(&self, older_than: Duration) -> (u64, u64) {
        let older_than = u64::try_from(older_than.as_millis()).unwrap();
        self.send(&ToLauncher::Sweep { root: c(self.runs()), older_than });
        match self.receive().0 {
            FromLauncher::Swept { removed, left } => (removed, left),
            other => panic!("{other:?}"),
        }
    }

    /// SIGKILL for the launcher itself.
    pub fn kill(&self) {
        pidfd_send_signal(&self.child.pidfd, Signal::KILL).unwrap();
        wait_for_end(&self.child);
    }

    /// bwrap and process 1 of the sandbox, as far as they are there.
    pub fn below(&self) -> Vec<Pid> {
        std::iter::successors(Some(self.child.pid), |pid| child_of(*pid)).skip(1).take(2).collect()
    }

    /// Whether the launcher ends by itself, and with which status.
    pub fn end(self) -> Option<i32> {
        drop(self.channel);
        wait_for_end(&self.child)
    }
}

fn child_of(parent: Pid) -> Option<Pid> {
    let number = parent.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{number}/task/{number}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok().and_then(Pid::from_raw)
}

pub fn wait_for_end(child: &Child) -> Option<i32> {
    let mut fds = [PollFd::new(&child.pidfd, PollFlags::IN)];
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    if poll(&mut fds, Some(&patience)).unwrap() == 0 {
        pidfd_send_signal(&child.pidfd, Signal::KILL).unwrap();
        return None;
    }
    match confine::sys::wait::wait(child.pidfd.as_fd(), confine::sys::wait::Ask::default()) {
        Ok(Some(confine::sys::wait::Status::Exited(status))) => Some(status),
        _ => None,
    }
}

pub fn command(plan: &mut LaunchPlan) -> &mut CommandPlan {
    match &mut plan.purpose {
        Purpose::Command(command) => command,
        Purpose::Probe(_) => panic!("a probe"),
    }
}

pub fn with_terminal(plan: &mut LaunchPlan, terminal: TerminalPlan) {
    command(plan).terminal = Some(terminal);
}

fn receive(channel: &Channel<ToLauncher, FromLauncher>) -> Option<(FromLauncher, Vec<OwnedFd>)> {
    let mut fds = [PollFd::new(channel, PollFlags::IN)];
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert!(poll(&mut fds, Some(&patience)).unwrap() > 0, "the launcher says nothing");
    match channel.receive().unwrap() {
        Received::Message(message, descriptors) => Some((message, descriptors)),
        Received::Empty | Received::Closed => None,
    }
}

/// Waits until `holds`, for a few seconds.
pub fn eventually(holds: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Numbers of processes with `word` in their arguments.
pub fn processes(word: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    all.filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

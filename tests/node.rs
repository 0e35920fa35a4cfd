//! A node: `anet daemon` of a person, asked through `anet` as people ask it, and ended with the value.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::internet::Internet;
use crate::person::{Call, Outcome, Person};
use crate::processes;

/// How long a thing that a test waits for may take on a loaded machine with two processors.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A question that a live node does not answer in this time is asked again.
const ANSWER: Duration = Duration::from_secs(5);

/// Asks again and again until there is an answer.
///
/// # Panics
/// With the last reason why not, when the time is over.
#[track_caller]
pub fn until<T>(what: &str, time: Duration, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + time;
    loop {
        match ask() {
            Ok(found) => return found,
            Err(why) => assert!(Instant::now() < end, "{what}: not within {time:?}: {why}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The configuration of a node whose agent is a shell that does what the task says: a task is a script. Peers are all
/// run in the sandbox, `friend` and `buddy` are trusted. More keys of `[auto_reply]` and `[auto_reply.sandbox]` can be given.
pub fn shell_agent(auto_reply: &str, sandbox: &str) -> String {
    let usual = |text: &str, key: &str, line: &str| {
        // TOML refuses a key that stands there twice.
        let given = text.lines().any(|l| l.split('=').next().is_some_and(|k| k.trim() == key));
        if given { String::new() } else { format!("{line}\n") }
    };
    let mut text = String::from("trust = [\"friend\", \"buddy\"]\n[auto_reply]\n");
    text += &usual(auto_reply, "agent", "agent = \"custom\"");
    text += &usual(auto_reply, "command", "command = [\"/bin/sh\"]");
    text += &usual(auto_reply, "trusted", "trusted = \"sandbox\"");
    text += &usual(auto_reply, "untrusted", "untrusted = \"sandbox\"");
    format!("{text}{auto_reply}\n[auto_reply.sandbox]\n{sandbox}\n")
}

/// A running node.
#[derive(Debug)]
pub struct Node<'a> {
    person: &'a Person,
    net: Option<&'a Internet>,
    options: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    keeper: Option<Child>,
    /// Every process that the node named as its own: ended with the value if one of them is still there.
    seen: Mutex<BTreeSet<u32>>,
}

impl<'a> Node<'a> {
    /// A node with this configuration, which is not started yet.
    pub fn new(person: &'a Person, net: Option<&'a Internet>, configuration: &str) -> Node<'a> {
        let node = Node {
            person,
            net,
            options: Vec::new(),
            environment: Vec::new(),
            keeper: None,
            seen: Mutex::default(),
        };
        node.configure(configuration);
        node
    }

    /// A node with this configuration that serves.
    ///
    /// # Panics
    /// When it does not come up.
    #[track_caller]
    pub fn serving(person: &'a Person, net: Option<&'a Internet>, configuration: &str) -> Node<'a> {
        let mut node = Node::new(person, net, configuration);
        node.start();
        node
    }

    /// One more option of `anet daemon`.
    pub fn option(mut self, option: impl Into<OsString>) -> Self {
        self.options.push(option.into());
        self
    }

    /// One more variable in the daemon's environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Whose node it is.
    pub fn person(&self) -> &'a Person {
        self.person
    }

    /// The configuration file.
    pub fn configuration(&self) -> PathBuf {
        self.person.path("config").join("anet/anet.toml")
    }

    /// Writes the configuration, whole at any moment as an editor does it.
    pub fn configure(&self, text: &str) {
        let file = self.configuration();
        let dir = file.parent().expect("a directory");
        fs::create_dir_all(dir).expect("the directory of the configuration");
        self.person.give(dir);
        let draft = dir.join("anet.toml.draft");
        fs::write(&draft, text).expect("the configuration");
        self.person.give(&draft);
        fs::rename(&draft, &file).expect("the configuration");
    }

    /// Starts the daemon and does not wait for it.
    pub fn spawn(&mut self) {
        let log = File::options().create(true).append(true).open(self.log_file()).expect("a log");
        self.spawn_logging_to(log);
    }

    /// Starts the daemon with this as its standard output and error, and does not wait for it.
    pub fn spawn_logging_to(&mut self, log: File) {
        assert!(self.keeper.is_none(), "the daemon was started already");
        let mut args: Vec<OsString> = vec!["daemon".into()];
        args.extend(self.options.iter().cloned());
        let call = self.environment.iter().fold(self.person.anet(args), |call, (n, v)| call.env(n, v));
        let mut command = call.command();
        command.stdin(Stdio::null());
        command.stdout(Stdio::from(log.try_clone().expect("the log"))).stderr(Stdio::from(log));
        let mut spawn = || command.spawn().expect("the daemon starts");
        self.keeper = Some(match self.net {
            Some(net) => net.inside(spawn),
            None => spawn(),
        });
    }

    /// Starts the daemon and waits until it serves.
    ///
    /// # Panics
    /// When it does not come up.
    #[track_caller]
    pub fn start(&mut self) {
        self.spawn();
        self.wait_serving();
    }

    /// Waits until it serves; gives its state.
    ///
    /// # Panics
    /// When it does not, or the daemon ends.
    #[track_caller]
    pub fn wait_serving(&mut self) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.try_status() {
                return status;
            }
            let ended = self.keeper.as_mut().expect("a daemon").try_wait().expect("wait");
            assert!(ended.is_none(), "the daemon ended: {ended:?}\n{}", self.log());
            assert!(Instant::now() < end, "the node does not serve\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What daemons of this value wrote.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_file(&self) -> PathBuf {
        self.person.path("daemon.log")
    }

    /// A call of `anet` beside this node.
    pub fn anet<I: IntoIterator<Item = S>, S: Into<OsString>>(&self, args: I) -> Call<'a> {
        let call = self.person.anet(args);
        match self.net {
            Some(net) => call.within(net),
            None => call,
        }
    }

    /// `anet status --json`, if a node answers.
    pub fn try_status(&self) -> Option<Value> {
        let outcome = self.anet(["status", "--json"]).timeout(ANSWER).attempt();
        if outcome.timed_out() || outcome.code() != 0 {
            return None;
        }
        let status = outcome.json();
        let pids = status["processes"].as_array().into_iter().flatten();
        let pids = pids.filter_map(|p| p["pid"].as_u64()).filter_map(|pid| u32::try_from(pid).ok());
        self.seen.lock().expect("lock").extend(pids);
        Some(status)
    }

    /// `anet status --json`.
    ///
    /// # Panics
    /// When no node answers.
    #[track_caller]
    pub fn status(&self) -> Value {
        until("the node's status", PATIENCE, || self.try_status().ok_or_else(|| self.log()))
    }

    /// Waits until the status is as wanted.
    ///
    /// # Panics
    /// When it does not become so.
    #[track_caller]
    pub fn wait_status(&self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        until(what, PATIENCE, || match self.try_status() {
            Some(status) if wanted(&status) => Ok(status),
            Some(status) => Err(format!("{status}\n{}", self.log())),
            None => Err(format!("no node answers\n{}", self.log())),
        })
    }

    /// The processes that the node names, by name.
    #[track_caller]
    pub fn pids(&self) -> BTreeMap<String, u32> {
        let status = self.status();
        let processes = status["processes"].as_array().expect("a list");
        let one = |p: &Value| {
            let pid = p["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid");
            (p["name"].as_str().expect("a name").to_owned(), pid)
        };
        processes.iter().map(one).collect()
    }

    /// The process that keeps the node: the one that was started.
    pub fn keeper(&self) -> u32 {
        self.keeper.as_ref().expect("a daemon").id()
    }

    /// The keeper and everything below it.
    pub fn tree(&self) -> Vec<processes::Process> {
        processes::tree(self.keeper())
    }

    /// Puts a task into the inbox; gives its name.
    ///
    /// # Panics
    /// When it is not taken.
    #[track_caller]
    pub fn submit(&self, peer: &str, task: &str) -> String {
        let outcome = self.anet(["submit", "--peer", peer]).stdin(task).output().expect_code(0);
        let name = outcome.out();
        assert!(!name.is_empty() && !name.contains(char::is_whitespace), "an interaction's id: {outcome}");
        name
    }

    /// Puts a task into the inbox and waits for its answer.
    pub fn ask(&self, peer: &str, task: &str) -> Outcome {
        self.anet(["submit", "--peer", peer, "--wait"]).stdin(task).timeout(PATIENCE).output()
    }

    /// `anet inbox --json`: newest first.
    ///
    /// # Panics
    /// When it cannot be read.
    #[track_caller]
    pub fn inbox(&self) -> Vec<Value> {
        let outcome = self.anet(["inbox", "--json"]).output().expect_code(0);
        rows(&outcome)
    }

    /// `anet show --json` of an interaction.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn show(&self, id: &str) -> Value {
        self.anet(["show", "--json", id]).output().expect_code(0).json()
    }

    /// Where an interaction is.
    #[track_caller]
    pub fn state(&self, id: &str) -> String {
        state_of(&self.show(id))
    }

    /// Waits until an interaction is in this state; gives its story.
    ///
    /// # Panics
    /// When it does not come there.
    #[track_caller]
    pub fn wait_state(&self, id: &str, state: &str) -> Value {
        until(&format!("{id} becomes {state}"), PATIENCE, || {
            let outcome = self.anet(["show", "--json", id]).timeout(ANSWER).attempt();
            if outcome.timed_out() || outcome.code() != 0 {
                return Err(format!("{outcome}\n{}", self.log()));
            }
            let story = outcome.json();
            if state_of(&story) == state { Ok(story) } else { Err(format!("{story}\n{}", self.log())) }
        })
    }

    /// Waits until an interaction has come to its end; gives its story.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn wait_final(&self, id: &str) -> Value {
        until(&format!("{id} comes to an end"), PATIENCE, || {
            let outcome = self.anet(["show", "--json", id]).timeout(ANSWER).attempt();
            if outcome.timed_out() || outcome.code() != 0 {
                return Err(format!("{outcome}\n{}", self.log()));
            }
            let story = outcome.json();
            if is_final(&state_of(&story)) { Ok(story) } else { Err(format!("{story}\n{}", self.log())) }
        })
    }

    /// Waits until no interaction waits or runs; gives the inbox.
    ///
    /// # Panics
    /// When that does not come.
    #[track_caller]
    pub fn wait_idle(&self, time: Duration) -> Vec<Value> {
        until("the node is idle", time, || {
            let outcome = self.anet(["inbox", "--json"]).timeout(ANSWER).attempt();
            if outcome.timed_out() || outcome.code() != 0 {
                return Err(format!("{outcome}\n{}", self.log()));
            }
            let rows = rows(&outcome);
            let open: Vec<String> = rows
                .iter()
                .filter(|row| !is_final(row["state"].as_str().unwrap_or_default()))
                .map(Value::to_string)
                .collect();
            if open.is_empty() { Ok(rows) } else { Err(format!("{open:?}\n{}", self.log())) }
        })
    }

    /// The records of the evidence, first to last, out of its files. A line that is being written is none yet.
    ///
    /// # Panics
    /// When a line is no record.
    #[track_caller]
    pub fn evidence(&self) -> Vec<Value> {
        let read = || -> Vec<(PathBuf, String)> {
            let read = |path: PathBuf| fs::read_to_string(&path).map(|text| (path, text)).ok();
            self.segments().into_iter().filter_map(read).collect()
        };
        let segments = match self.net {
            Some(net) => net.inside(read),
            None => read(),
        };
        let whole = |text: &str| text.rfind('\n').map_or(0, |end| end + 1);
        let mut records = Vec::new();
        for (path, text) in &segments {
            for line in text.get(..whole(text)).unwrap_or_default().lines() {
                let record = serde_json::from_str(line);
                records.push(record.unwrap_or_else(|e| panic!("{}: {e}: {line}", path.display())));
            }
        }
        records
    }

    /// `anet evidence verify`.
    pub fn verify(&self) -> Outcome {
        self.anet(["evidence", "verify"]).output()
    }

    /// Ends it as systemd does, and waits.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        // What it named as its own is looked at again when the value is dropped.
        let _ = self.try_status();
        processes::signal(self.keeper(), Signal::SIGTERM);
        self.wait_ended()
    }

    /// Waits for the daemon's end.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn wait_ended(&mut self) -> ExitStatus {
        let mut keeper = self.keeper.take().expect("a daemon");
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = keeper.try_wait().expect("wait") {
                return status;
            }
            if Instant::now() > end {
                self.keeper = Some(keeper);
                panic!("the daemon does not end\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The daemon has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.keeper.as_mut().is_none_or(|keeper| keeper.try_wait().expect("wait").is_some())
    }

    /// SIGKILL to every process of the node, the keeper first so that nothing comes back; they are gone then.
    pub fn kill_all(&mut self) {
        let _ = self.try_status();
        let Some(mut keeper) = self.keeper.take() else { return };
        let tree = processes::tree(keeper.id());
        let seen = std::mem::take(&mut *self.seen.lock().expect("lock"));
        processes::signal(keeper.id(), Signal::SIGKILL);
        let _ = keeper.wait();
        let named = |p: &processes::Process| seen.contains(&p.pid) && p.name.starts_with("anet");
        let mut ours: Vec<processes::Process> = processes::all().into_iter().filter(named).collect();
        ours.extend(tree);
        for process in processes::still(&ours) {
            processes::signal(process.pid, Signal::SIGKILL);
        }
        // One that does not go is the matter of whoever looks for it.
        processes::wait_gone(Duration::from_secs(10), || processes::still(&ours));
    }

    /// The directory of a sandboxed run's work: FS-3.
    pub fn sandbox_dir(&self, peer: &str, interaction: &str) -> PathBuf {
        self.cache().join("work-sandbox").join(peer).join(interaction)
    }

    /// The directory of a direct run's work: FS-3.
    pub fn direct_dir(&self, peer: &str, interaction: &str) -> PathBuf {
        self.cache().join("work").join(peer).join(interaction)
    }

    /// anet's cache.
    pub fn cache(&self) -> PathBuf {
        self.person.cache()
    }

    /// anet's state.
    pub fn state_dir(&self) -> PathBuf {
        self.person.path("state").join("anet")
    }

    /// The segments of the evidence, first to last.
    pub fn segments(&self) -> Vec<PathBuf> {
        let dir = self.state_dir().join("evidence");
        let files = fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut segments: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
        segments.sort();
        segments
    }

    /// The inbox's database.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn database(&self) -> PathBuf {
        let dir = self.state_dir().join("inbox");
        let is_database =
            |path: &PathBuf| fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"SQLite format 3\0"));
        let found = fs::read_dir(&dir).into_iter().flatten().flatten().map(|e| e.path()).find(is_database);
        found.unwrap_or_else(|| panic!("no database in {}", dir.display()))
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && self.keeper.is_some() {
            eprintln!("--- the daemon's log\n{}", self.log());
        }
        self.kill_all();
        let log = self.log();
        let raw = ["panicked at", "RUST_BACKTRACE", "Os {", "Error {", "Err("];
        let raw = raw.iter().find(|raw| log.contains(**raw));
        assert!(raw.is_none() || std::thread::panicking(), "USE-1: {raw:?} in the daemon's log:\n{log}");
    }
}

/// The rows of `anet inbox --json`.
#[track_caller]
fn rows(outcome: &Outcome) -> Vec<Value> {
    outcome.json().as_array().unwrap_or_else(|| panic!("a list: {outcome}")).clone()
}

/// The state in a story.
pub fn state_of(story: &Value) -> String {
    story["interaction"]["state"].as_str().unwrap_or_default().to_owned()
}

/// Nothing more becomes of an interaction in this state.
pub fn is_final(state: &str) -> bool {
    matches!(state, "answered" | "refused" | "exhausted" | "interrupted")
}

/// Descriptors that a process has open; none where it cannot be seen.
pub fn descriptors(pid: u32) -> Option<usize> {
    Some(fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).ok()?.count())
}

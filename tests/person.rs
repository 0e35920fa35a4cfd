//! Whoever calls `anet`: root or an ordinary user, with a home of their own and nothing else of the machine's.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{self, Harness};
use crate::installed::{Installed, installed};
use crate::internet::Internet;

/// The ordinary user of the tests: a user of the machine without an entry in /etc/passwd, which is nobody's.
pub const ORDINARY_UID: u32 = 12_345;
/// What an ordinary user is called inside the namespace that a harness without root runs it in.
const NAMESPACE_UID: &str = "1000";
/// A call that takes longer than this hangs; a loaded machine with two processors needs some of it.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// User 0 of the machine.
    Root,
    /// A user without any privilege.
    User,
}

impl Who {
    /// Everybody whom this harness can be; `ANET_TESTS_AS=user` (or `root`) makes it one of them.
    pub fn all() -> &'static [Who] {
        match std::env::var("ANET_TESTS_AS").as_deref() {
            Ok("user") => return &[Who::User],
            Ok("root") => return &[Who::Root],
            Ok(_) | Err(_) => {}
        }
        match harness::kind() {
            Harness::Root => &[Who::Root, Who::User],
            Harness::Namespace | Harness::User => {
                harness::skip("runs started by root", "the tests themselves do not run as root");
                &[Who::User]
            }
        }
    }
}

/// One caller, with directories of their own that vanish with the value.
#[derive(Debug)]
pub struct Person {
    who: Who,
    dir: tempfile::TempDir,
    programs: PathBuf,
}

impl Person {
    /// A caller with an empty home.
    pub fn new(who: Who) -> Person {
        Person::with_programs(who, installed())
    }

    /// A caller who starts the programs of another copy.
    pub fn with_programs(who: Who, programs: &Installed) -> Person {
        let dir = tempfile::Builder::new().prefix("anet-person-").tempdir_in("/tmp").expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("mode");
        let person = Person { who, dir, programs: programs.dir().to_owned() };
        for name in ["home", "config", "cache", "state", "data", "runtime", "records"] {
            let path = person.path(name);
            fs::create_dir(&path).expect("a directory of the person");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("mode");
            person.give(&path);
        }
        person
    }

    /// From now on the person starts the programs of another copy.
    pub fn use_programs(&mut self, programs: &Installed) {
        programs.dir().clone_into(&mut self.programs);
    }

    /// Root or not.
    pub fn who(&self) -> Who {
        self.who
    }

    /// The user of the person's own processes and files.
    fn uid(&self) -> Option<u32> {
        match (harness::kind(), self.who) {
            (Harness::Root, Who::Root) => Some(0),
            (Harness::Root, Who::User) => Some(ORDINARY_UID),
            (Harness::Namespace | Harness::User, _) => None,
        }
    }

    /// A path in the person's own directory: `home`, `config`, `state` ... are there.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// anet's cache: root's is where other users can reach what is theirs in it.
    pub fn cache(&self) -> PathBuf {
        match (harness::kind(), self.who) {
            (Harness::Root, Who::Root) => PathBuf::from("/var/cache/anet"),
            (Harness::Root, Who::User) | (Harness::Namespace | Harness::User, _) => {
                self.path("cache").join("anet")
            }
        }
    }

    /// Hands a file to the person.
    pub fn give(&self, path: &Path) {
        if let Some(uid) = self.uid() {
            std::os::unix::fs::lchown(path, Some(uid), Some(uid)).expect("chown");
        }
    }

    /// An empty directory that can be a work directory: of the person, or for root of an ordinary user (SBX-3 refuses
    /// one of root's own).
    pub fn work_dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).expect("a work directory");
        self.give_work(&path);
        path
    }

    /// Hands a file in a work directory to its owner.
    pub fn give_work(&self, path: &Path) {
        if harness::kind() == Harness::Root {
            std::os::unix::fs::lchown(path, Some(ORDINARY_UID), Some(ORDINARY_UID)).expect("chown");
        }
    }

    /// A file with this content in a work directory.
    pub fn write_work(&self, path: &Path, content: impl AsRef<[u8]>) {
        fs::write(path, content).expect("a file in the work directory");
        self.give_work(path);
    }

    /// A program, started as this person and with their environment, nothing else.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let command = match harness::kind() {
            Harness::Root => {
                let Some(uid) = self.uid().filter(|uid| *uid != 0).map(|uid| uid.to_string()) else {
                    return self.at_home(Command::new(program));
                };
                // A program and not the methods of Command: terminals put another program in front of all of it.
                let mut command = Command::new(self.programs.join("setpriv"));
                command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]).arg(program);
                command
            }
            Harness::User => Command::new(program),
            // A nested namespace, whose user is not 0: what it starts is as unprivileged as the user who is behind it.
            Harness::Namespace => {
                let mut command = Command::new(self.programs.join("unshare"));
                command.args(["--user", "--map-user", NAMESPACE_UID, "--map-group", NAMESPACE_UID, "--"]);
                command.arg(program);
                command
            }
        };
        self.at_home(command)
    }

    fn at_home(&self, mut command: Command) -> Command {
        command.env_clear().envs(self.environment()).current_dir(self.path("home"));
        command
    }

    /// The person's environment.
    pub fn environment(&self) -> BTreeMap<&'static str, OsString> {
        let dir = |name: &str| self.path(name).into_os_string();
        BTreeMap::from([
            ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into()),
            ("LANG", "C.UTF-8".into()),
            ("HOME", dir("home")),
            ("XDG_CONFIG_HOME", dir("config")),
            ("XDG_CACHE_HOME", dir("cache")),
            ("XDG_STATE_HOME", dir("state")),
            ("XDG_DATA_HOME", dir("data")),
            ("XDG_RUNTIME_DIR", dir("runtime")),
        ])
    }

    /// A call of `anet` with these arguments.
    pub fn anet<I: IntoIterator<Item = S>, S: Into<OsString>>(&self, args: I) -> Call<'_> {
        let args = args.into_iter().map(Into::into).collect();
        let program = self.programs.join("anet");
        Call {
            person: self,
            net: None,
            program,
            args,
            stdin: Vec::new(),
            cwd: None,
            env: Vec::new(),
            timeout: CALL_TIMEOUT,
            record: None,
        }
    }

    /// `anet run --record FILE OPTIONS -- COMMAND`.
    pub fn run<'a, A: AsRef<OsStr>, B: AsRef<OsStr>>(
        &'a self,
        options: impl IntoIterator<Item = A>,
        command: impl IntoIterator<Item = B>,
    ) -> Call<'a> {
        let file =
            tempfile::Builder::new().prefix("r").suffix(".json").make_in(self.path("records"), |path| {
                // Only the name: anet makes the file.
                if path.exists() { Err(std::io::ErrorKind::AlreadyExists.into()) } else { Ok(()) }
            });
        let record = file.expect("a name for the record").into_temp_path().keep().expect("a name");
        let mut args: Vec<OsString> = vec!["run".into(), "--record".into(), record.clone().into_os_string()];
        args.extend(options.into_iter().map(|o| o.as_ref().to_owned()));
        args.push("--".into());
        args.extend(command.into_iter().map(|c| c.as_ref().to_owned()));
        let mut call = self.anet(args);
        call.record = Some(record);
        call
    }

    /// `anet run OPTIONS -- sh -c SCRIPT`.
    pub fn sh<'a, A: AsRef<OsStr>>(&'a self, options: impl IntoIterator<Item = A>, script: &str) -> Call<'a> {
        self.run(options, ["sh", "-c", script])
    }
}

/// One call of a program, before it is made.
#[derive(Debug)]
pub struct Call<'a> {
    person: &'a Person,
    net: Option<&'a Internet>,
    program: PathBuf,
    args: Vec<OsString>,
    stdin: Vec<u8>,
    cwd: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    timeout: Duration,
    record: Option<PathBuf>,
}

impl<'a> Call<'a> {
    /// It is the `anet` of another copy that is called.
    pub fn by(mut self, programs: &Installed) -> Self {
        self.program = programs.anet();
        self
    }

    /// Makes the call inside this network.
    pub fn within(mut self, net: &'a Internet) -> Self {
        self.net = Some(net);
        self
    }

    /// What the program reads.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Where the program starts.
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    /// One more variable in the caller's environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// How long the call may take before the test fails.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The command, without standard streams: for tests that hold the process in their own hands.
    pub fn command(&self) -> Command {
        let mut command = self.person.command(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(k, v)| (k, v)));
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        command
    }

    /// The call as words for a shell that the person has started already.
    pub fn words(&self) -> String {
        let words =
            std::iter::once(self.program.as_os_str()).chain(self.args.iter().map(OsString::as_os_str));
        let quoted = words.map(|word| format!("'{}'", word.to_string_lossy().replace('\'', "'\\''")));
        quoted.collect::<Vec<_>>().join(" ")
    }

    /// Starts it with null streams and leaves it running. In a network, the caller has to be in it already.
    pub fn spawn(&self) -> Child {
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the program starts")
    }

    /// Makes the call and waits for its end.
    ///
    /// # Panics
    /// When it takes longer than its time-out.
    pub fn output(self) -> Outcome {
        let outcome = self.attempt();
        assert!(!outcome.timed_out, "{self:?} did not end within {:?}: {outcome}", self.timeout);
        outcome
    }

    /// Makes the call and waits for its end, or ends it with its time-out: [`Outcome::timed_out`].
    pub fn attempt(&self) -> Outcome {
        match self.net {
            Some(net) => net.inside(|| self.call()),
            None => self.call(),
        }
    }

    fn call(&self) -> Outcome {
        let started = Instant::now();
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (mut stdin, mut stdout, mut stderr) = (
            child.stdin.take().expect("pipe"),
            child.stdout.take().expect("pipe"),
            child.stderr.take().expect("pipe"),
        );
        // Detached threads, not scoped ones: a survivor that holds a pipe must not hold the test.
        let input = self.stdin.clone();
        thread::spawn(move || {
            // A program that does not read its input closes the pipe: no fault of the call.
            let _ = stdin.write_all(&input);
        });
        let out = collect(move |bytes| stdout.read_to_end(bytes).map(drop));
        let err = collect(move |bytes| stderr.read_to_end(bytes).map(drop));
        let mut timed_out = false;
        let status = loop {
            if let Some(status) = child.try_wait().expect("wait") {
                break status;
            }
            if started.elapsed() > self.timeout {
                timed_out = true;
                let _ = child.kill();
                break child.wait().expect("wait");
            }
            thread::sleep(Duration::from_millis(2));
        };
        let took = started.elapsed();
        let grace = Duration::from_secs(10);
        let held = |stream: &str| {
            format!("<{stream} is still held open by a process that outlived the call>").into_bytes()
        };
        let stdout = out.recv_timeout(grace).unwrap_or_else(|_| held("standard output"));
        let stderr = err.recv_timeout(grace).unwrap_or_else(|_| held("standard error"));
        // One that was made and never written is none.
        let record =
            self.record.as_ref().and_then(|path| fs::read(path).ok()).filter(|bytes| !bytes.is_empty());
        let record = record.map(|bytes| {
            serde_json::from_slice(&bytes).unwrap_or_else(|e| {
                panic!("the record is no JSON ({e}): {}", String::from_utf8_lossy(&bytes))
            })
        });
        Outcome { status, stdout, stderr, record, took, timed_out }
    }
}

fn collect(
    read: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()> + Send + 'static,
) -> std::sync::mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = read(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

/// What became of a call.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// The run's record, where one was asked for and written.
    pub record: Option<Value>,
    /// How long it took.
    pub took: Duration,
    timed_out: bool,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cut = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes.get(..bytes.len().min(4096)).unwrap_or(bytes)).into_owned()
        };
        writeln!(f, "{} after {:?}", self.status, self.took)?;
        writeln!(f, "--- standard output\n{}", cut(&self.stdout))?;
        writeln!(f, "--- standard error\n{}", cut(&self.stderr))?;
        match &self.record {
            // The attempts one a line: a test that fails over one of fifty should show it.
            Some(record) => {
                let mut short = record.clone();
                let egress = short["egress"].take();
                writeln!(f, "--- record\n{short}")?;
                egress.as_array().into_iter().flatten().try_for_each(|attempt| writeln!(f, "  {attempt}"))
            }
            None => writeln!(f, "--- no record"),
        }
    }
}

impl Outcome {
    /// The exit status as a shell shows it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }

    /// It did not end in its time and was killed.
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }

    /// Standard output as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self}"))
    }

    /// Standard output as text, its last line end removed.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The exit status is this one.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "exit status: {self}");
        self
    }

    /// The call succeeded and wrote this text.
    #[track_caller]
    pub fn expect_out(self, text: &str) -> Self {
        assert_eq!((self.code(), self.out().as_str()), (0, text), "status and standard output: {self}");
        self
    }

    /// anet itself failed: 125 (or the status given) and exactly one line `anet: CODE: sentence`. Gives the code.
    #[track_caller]
    pub fn expect_failure_of_anet(&self, code: i32) -> String {
        assert_eq!(self.code(), code, "exit status: {self}");
        let text = self.err();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1, "one line on standard error: {self}");
        let mut parts = lines.first().expect("one line").splitn(3, ": ");
        let (name, code, sentence) = (parts.next(), parts.next(), parts.next());
        assert_eq!(name, Some("anet"), "who says it: {self}");
        let code = code.expect("a code");
        assert!(
            !code.is_empty() && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
            "code {code:?}: {self}"
        );
        let sentence = sentence.unwrap_or_default();
        assert!(sentence.len() > 10 && sentence.contains(' '), "a sentence, not {sentence:?}");
        assert!(!sentence.contains("Error {") && !sentence.contains("Os {"), "no raw debug text: {sentence}");
        code.to_owned()
    }

    /// The record of the run.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn record(&self) -> &Value {
        self.record.as_ref().unwrap_or_else(|| panic!("no record was written: {self}"))
    }

    /// The egress decisions of the record, in their order.
    #[track_caller]
    pub fn egress(&self) -> &[Value] {
        self.record()["egress"].as_array().unwrap_or_else(|| panic!("no egress list in the record: {self}"))
    }

    /// The reason of every refused connection of the record, in their order.
    #[track_caller]
    pub fn refusals(&self) -> Vec<String> {
        let refused = self.egress().iter().filter(|e| e["decision"] == "deny");
        refused.map(|e| e["reason"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

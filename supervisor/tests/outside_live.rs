//! `anet-outside` as it is started, with the supervisor played by the test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::wildcard_enum_match_arm)]

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use confine::sys::spawn::{Child, Command, Program};
use confine::sys::wait::{Ask, Status, wait};
use ipc_proto::init::Exit;
use ipc_proto::outside::{FromOutside, Surroundings, ToOutside};
use ipc_proto::{Channel, Received, RunId, bulk, descriptors};
use rustix::process::{Signal, kill_process};
use supervisor::config::Agent;
use supervisor::outside::{DirectAgent, KEYS, OutsidePlan};
use tempfile::TempDir;

/// Longer than anything takes on a busy machine.
const WAIT: Duration = Duration::from_secs(30);
/// What is asked to end has so long.
const GRACE: Duration = Duration::from_secs(5);

/// A running `anet-outside`.
struct Outside {
    channel: Option<Channel<ToOutside, FromOutside>>,
    child: Child,
    base: TempDir,
    log: PipeReader,
}

/// The output of a run.
struct Output {
    run: RunId,
    output: PipeReader,
    errors: PipeReader,
}

impl Output {
    /// Everything that it wrote: its writers have to be gone.
    fn text(&mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        text
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        self.errors.read_to_string(&mut text).unwrap();
        text
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Outside {
    /// One whose agent is this command.
    fn with_agent(command: &[&str]) -> Outside {
        let agent = DirectAgent { agent: Agent::Custom, installed: None, command: words(command) };
        Outside::start(Some(agent), &[])
    }

    /// One whose agent is this script.
    fn with_script(script: &str) -> Outside {
        Outside::with_agent(&["sh", "-c", script])
    }

    /// One with this `notify` command alone.
    fn with_notify(command: &[&str]) -> Outside {
        Outside::start(None, command)
    }

    fn start(direct: Option<DirectAgent>, notify: &[&str]) -> Outside {
        let base = tempfile::tempdir().unwrap();
        let (channel, far) = Channel::<ToOutside, FromOutside>::pair().unwrap();
        let bytes = |path: PathBuf| CString::new(path.as_os_str().as_bytes()).unwrap();
        let environment = [
            CString::new(format!("PATH={}", std::env::var("PATH").unwrap())).unwrap(),
            CString::new(format!("BASE={}", base.path().display())).unwrap(),
            c"ANET_RUN=of the operator's own shell".to_owned(),
            CString::new(b"ODD=\xff \n".to_vec()).unwrap(),
        ];
        let plan = OutsidePlan {
            surroundings: Surroundings {
                root: bytes(base.path().join("cache/work")),
                environment: environment.to_vec(),
            },
            keys: vec![c"WITHHELD".to_owned()],
            notify: notify.iter().map(|word| CString::new(*word).unwrap()).collect(),
            direct,
        };
        let plan = bulk::seal(&plan).unwrap();
        let withheld = confine::memory::sealed(c"anet-secret", &[b"a key"]).unwrap();
        // Whoever read it first has left it at its end.
        rustix::fs::seek(&withheld, rustix::fs::SeekFrom::End(0)).unwrap();
        let (log, writer) = std::io::pipe().unwrap();
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let far = far.into_fd();
        let program = CString::new(env!("CARGO_BIN_EXE_anet-outside")).unwrap();
        let mut command = Command::new(Program::Path(program));
        command.argv = vec![c"anet-outside".to_owned()];
        command.descriptors = vec![
            (null.as_fd(), 0),
            (null.as_fd(), 1),
            (null.as_fd(), 2),
            (far.as_fd(), descriptors::CHANNEL),
            (writer.as_fd(), descriptors::LOG),
            (plan.as_fd(), descriptors::PLAN),
            (withheld.as_fd(), KEYS),
        ];
        command.parent_death_signal = true;
        let child = command.spawn().unwrap();
        drop(command);
        drop((far, writer));
        let outside = Outside { channel: Some(channel), child, base, log };
        assert!(matches!(outside.next(), FromOutside::Hello));
        outside
    }

    fn channel(&self) -> &Channel<ToOutside, FromOutside> {
        self.channel.as_ref().unwrap()
    }

    fn send(&self, message: &ToOutside) {
        self.channel().send(message, &[]).unwrap();
    }

    /// The next message.
    fn next(&self) -> FromOutside {
        let end = Instant::now() + WAIT;
        loop {
            match self.channel().try_receive().unwrap() {
                Received::Message(message, _) => return message,
                Received::Empty => {
                    assert!(Instant::now() < end, "it says nothing");
                    std::thread::sleep(Duration::from_millis(2));
                }
                Received::Closed => panic!("it is gone"),
            }
        }
    }

    /// Orders a run of `peer` and `interaction`.
    fn order(&self, number: u64, of: (&str, &str), task: &[u8]) -> Output {
        let run = RunId::new(number, [3; 4]);
        let task = bulk::seal(&task.to_vec()).unwrap();
        let (output, out) = std::io::pipe().unwrap();
        let (errors, err) = std::io::pipe().unwrap();
        let direct =
            ToOutside::Direct { run, peer: of.0.parse().unwrap(), interaction: of.1.parse().unwrap() };
        self.channel().send(&direct, &[task.as_fd(), out.as_fd(), err.as_fd()]).unwrap();
        Output { run, output, errors }
    }

    /// The same, and it runs.
    fn run(&self, number: u64, of: (&str, &str), task: &[u8]) -> Output {
        let output = self.order(number, of, task);
        assert!(matches!(self.next(), FromOutside::Started { run } if run == output.run));
        output
    }

    fn exited(&self, of: &Output) -> Exit {
        match self.next() {
            FromOutside::Exited { run, exit } if run == of.run => exit,
            other => panic!("{other:?}"),
        }
    }

    fn failed(&self, of: &Output) -> String {
        match self.next() {
            FromOutside::Failed { run, text } if run == of.run => text,
            other => panic!("{other:?}"),
        }
    }

    fn end(&self, of: &Output) {
        self.send(&ToOutside::End { run: of.run });
    }

    fn notify(&self, event: u64, text: &str) {
        let memory = confine::memory::sealed(c"event", &[text.as_bytes()]).unwrap();
        self.channel().send(&ToOutside::Notify { event }, &[memory.as_fd()]).unwrap();
    }

    fn path(&self, of: &str) -> PathBuf {
        self.base.path().join(of)
    }

    fn read(&self, of: &str) -> String {
        fs::read_to_string(self.path(of)).unwrap_or_default()
    }

    /// Waits for what a script writes into a file.
    fn wait_for(&self, of: &str, lines: usize) -> Vec<String> {
        let end = Instant::now() + WAIT;
        loop {
            let text = self.read(of);
            if text.lines().count() >= lines {
                return text.lines().map(str::to_owned).collect();
            }
            assert!(Instant::now() < end, "{of} has only {text:?}; log: {}", self.log_so_far());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for processes whose numbers a script writes into a file.
    fn processes(&self, of: &str, count: usize) -> Vec<i32> {
        self.wait_for(of, count).iter().map(|line| line.parse().unwrap()).collect()
    }

    fn ended(&self) -> Status {
        let end = Instant::now() + WAIT;
        loop {
            let ask = Ask { no_hang: true, stopped: false };
            if let Some(status) = wait(self.child.pidfd.as_fd(), ask).unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What it wrote to its log so far.
    fn log_so_far(&self) -> String {
        let mut text = vec![0; 64 * 1024];
        rustix::io::ioctl_fionbio(&self.log, true).unwrap();
        let count = (&self.log).read(&mut text).unwrap_or(0);
        String::from_utf8_lossy(&text[..count]).into_owned()
    }

    /// How many descriptors it has open; none: only root sees the list of a process that is not dumpable.
    fn descriptors(&self) -> Option<usize> {
        Some(fs::read_dir(format!("/proc/{}/fd", self.child.pid.as_raw_nonzero())).ok()?.count())
    }
}

/// A process runs: it is there and has not ended.
fn lives(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !matches!(stat.rsplit(") ").next().unwrap().chars().next(), Some('Z' | 'X'))
}

fn all_gone(pids: &[i32], within: Duration) {
    let end = Instant::now() + within;
    while let Some(left) = pids.iter().find(|pid| lives(**pid)) {
        assert!(Instant::now() < end, "process {left} lives on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// SEL-4, FS-3, SBX-8: an agent for a trusted peer runs as the operator's own program: the task on standard input, in a private
/// work directory, with exactly the operator's environment (keys that were withheld from everybody else too) and the names of its
/// run, with three descriptors, and with none of the sandbox's walls.
#[test]
fn a_task_is_the_operators_own_program() {
    let outside = Outside::with_agent(&["env", "-0"]);
    let mut run = outside.run(1, ("p@n", "i1"), b"");
    assert_eq!(outside.exited(&run), Exit::Status(0));
    let mut output = Vec::new();
    run.output.read_to_end(&mut output).unwrap();
    let mut environment: Vec<&[u8]> =
        output.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).collect();
    environment.sort_unstable();
    let base = format!("BASE={}", outside.base.path().display());
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    let id = format!("ANET_RUN={}", run.run);
    let expected: [&[u8]; 7] = [
        b"ANET_INTERACTION=i1",
        b"ANET_PEER=p@n",
        id.as_bytes(),
        base.as_bytes(),
        b"ODD=\xff \n",
        path.as_bytes(),
        b"WITHHELD=a key",
    ];
    assert_eq!(environment, expected);

    let script =
        "cat; echo; pwd; umask; cat /proc/self/status; ls /proc/self/fd; echo in errors >&2; stat -c %a . ..";
    let outside = Outside::with_script(script);
    let mut run = outside.run(1, ("p@n", "i1"), "a task\n\u{e9}".as_bytes());
    assert_eq!(outside.exited(&run), Exit::Status(0));
    let text = run.text();
    assert!(text.starts_with("a task\n\u{e9}\n"), "{text}");
    let work = outside.path("cache/work/p@n/i1/work");
    assert!(text.contains(&format!("\n{}\n", work.display())), "{text}");
    for line in ["NoNewPrivs:\t0", "Seccomp:\t0", "SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    // Beside its three ls has the directory open that it reads.
    assert!(text.ends_with("\n0\n1\n2\n3\n700\n700\n"), "{text}");
    assert_eq!(run.errors(), "in errors\n");
    assert_eq!(outside.log_so_far(), "");
}

/// MOD-12, SEL-4: a custom command that asks for a file gets one outside of the work directory, private, and gone with the run;
/// one that asks for the task in an argument gets that; standard input is empty then.
#[test]
fn a_custom_command_has_its_task_where_it_asks_for_it() {
    let script = r#"cat; echo "$1"; cat "$1"; echo; stat -c %a "$1" "$(dirname "$1")"; echo "$2""#;
    let outside = Outside::with_agent(&["sh", "-c", script, "x", "{task_file}", "<{task}>"]);
    let mut run = outside.run(1, ("p", "i"), b"see {task_file}");
    assert_eq!(outside.exited(&run), Exit::Status(0));
    let text = run.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1..], ["see {task_file}", "600", "700", "<see {task_file}>"]);
    let file = Path::new(lines[0]);
    assert!(
        file.starts_with(outside.path("cache/work/p/i"))
            && !file.starts_with(outside.path("cache/work/p/i/work"))
    );
    assert!(!file.exists() && !file.parent().unwrap().exists());
    assert!(outside.path("cache/work/p/i/ended").exists());
}

/// FS-3, ACC-2: what an agent leaves is there in the interaction's next run and in no other's; how it ended is told.
#[test]
fn work_is_kept_and_endings_are_told() {
    let outside = Outside::with_script("ls; cat > task; . ./task");
    for (number, of, task, exit, listed) in [
        (1, ("p", "i"), "touch made; exit 7", Exit::Status(7), ""),
        (2, ("p", "i"), "kill -TERM $$", Exit::Signal(15), "made\ntask\n"),
        (3, ("p", "other"), "kill -KILL $$", Exit::Signal(9), ""),
        (4, ("q", "i"), "exit 0", Exit::Status(0), ""),
    ] {
        let mut run = outside.run(number, of, task.as_bytes());
        assert_eq!(outside.exited(&run), exit);
        assert_eq!(run.text(), listed, "{of:?}");
        // What crosses its end is no breach.
        outside.end(&run);
    }
}

/// USE-1, FS-5: what cannot be started says why and leaves nothing under way; the next one runs.
#[test]
fn what_cannot_be_started_says_why() {
    let missing = Outside::with_agent(&["no-such-agent-at-all"]);
    let run = missing.order(1, ("p", "i"), b"task");
    let text = missing.failed(&run);
    assert!(text.contains("no-such-agent-at-all is not there"), "{text}");
    assert!(missing.path("cache/work/p/i/ended").exists());

    let outside = Outside::with_agent(&["echo", "{task}"]);
    let run = outside.order(1, ("p", "i"), b"a\0b");
    assert!(outside.failed(&run).contains("NUL"));
    let long = vec![b'x'; 200_000];
    let run = outside.order(2, ("p", "i"), &long);
    assert!(outside.failed(&run).contains("131071"));
    // A link where an agent would work.
    let elsewhere = outside.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, outside.path("cache/work/linked")).unwrap();
    let run = outside.order(3, ("linked", "i"), b"task");
    assert!(outside.failed(&run).contains("linked"));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    fs::set_permissions(outside.path("cache/work"), PermissionsExt::from_mode(0o777)).unwrap();
    let run = outside.order(4, ("p", "i"), b"task");
    assert!(outside.failed(&run).contains("can be written by others"));
    fs::set_permissions(outside.path("cache/work"), PermissionsExt::from_mode(0o700)).unwrap();
    let mut run = outside.run(5, ("p", "i"), b"task");
    assert_eq!((outside.exited(&run), run.text().as_str()), (Exit::Status(0), "task\n"));
    assert!(outside.descriptors().is_none_or(|count| count < 20));
}

/// What runs away: in sessions of their own, their parents gone, deaf to what asks, stopped, one below the other. Each writes
/// its number into the file that is argument 1.
const RUNAWAYS: &str = r#"
    : >> "$1"
    setsid sh -c 'trap "" TERM HUP INT; echo $$ >> "$0"; while :; do sleep 1000; done' "$1" &
    (setsid sh -c 'echo $$ >> "$0"; kill -STOP $$; sleep 1000' "$1" &)
    (setsid sh -c '(setsid sh -c '\''(trap "" TERM; echo $$ >> "$0"; setsid sleep 1000)'\'' "$0" &) ; exit' "$1" &)
    sh -c 'exec 3>&1; sh -c "echo \$\$ >> \"$0\"; exec sleep 1000" "$0"' "$1" &
"#;
const RUNAWAY_COUNT: usize = 4;

/// SEL-4: told to end, a run is over when the last of what it started has gone, wherever that went; another run that is under
/// way meanwhile loses nothing.
#[test]
fn an_ended_run_leaves_nothing_and_touches_nobody() {
    let script = format!("set -- \"$BASE/$ANET_INTERACTION\"\n{RUNAWAYS}\necho $$ >> \"$1\"; sleep 1000");
    let outside = Outside::with_script(&script);
    let (one, two) = (outside.run(1, ("p", "one"), b""), outside.run(2, ("p", "two"), b""));
    let of_one = outside.processes("one", RUNAWAY_COUNT + 1);
    let of_two = outside.processes("two", RUNAWAY_COUNT + 1);
    let asked = Instant::now();
    outside.end(&one);
    // Twice is as once.
    outside.end(&one);
    assert_eq!(outside.exited(&one), Exit::Signal(15));
    assert!(of_one.iter().all(|pid| !lives(*pid)), "it was said to be over");
    let took = asked.elapsed();
    assert!((GRACE..GRACE + Duration::from_secs(5)).contains(&took), "{took:?}");
    assert!(of_two.iter().all(|pid| lives(*pid)));
    outside.end(&two);
    assert_eq!(outside.exited(&two), Exit::Signal(15));
    assert!(of_two.iter().all(|pid| !lives(*pid)));
    assert_eq!(outside.log_so_far(), "");
}

/// SEL-4: an agent that ends of its own leaves nothing either, and is over only then; one that takes its time to end is given it,
/// and its own status counts.
#[test]
fn an_agent_that_ends_leaves_nothing() {
    let script = format!(
        "set -- \"$BASE/pids\"\n{RUNAWAYS}\nwhile [ \"$(wc -l < \"$1\")\" -lt 4 ]; do sleep 0.05; done; exit 3"
    );
    let outside = Outside::with_script(&script);
    let run = outside.run(1, ("p", "i"), b"");
    assert_eq!(outside.exited(&run), Exit::Status(3));
    assert!(outside.processes("pids", RUNAWAY_COUNT).iter().all(|pid| !lives(*pid)));

    let script = r#"trap 'sleep 1; echo done > "$BASE/done"; exit 9' TERM; echo > "$BASE/ready"; while :; do sleep 0.1; done"#;
    let outside = Outside::with_script(script);
    let run = outside.run(1, ("p", "i"), b"");
    outside.wait_for("ready", 1);
    let asked = Instant::now();
    outside.end(&run);
    assert_eq!(outside.exited(&run), Exit::Status(9));
    assert_eq!(outside.read("done"), "done\n");
    assert!(asked.elapsed() < GRACE);
}

/// SBX-5, PRV-6: whatever ends `anet-outside` ends all that it started, deaf or not: its supervisor's end, SIGKILL, and a word
/// that it does not expect.
#[test]
fn nothing_outlives_the_process() {
    let script = format!(
        "set -- \"$BASE/pids\"\n{RUNAWAYS}\ntrap '' TERM; echo $$ >> \"$1\"; while :; do sleep 1000; done"
    );
    for end in ["channel", "kill", "violation"] {
        let mut outside = Outside::with_script(&script);
        let run = outside.run(1, ("p", "i"), b"");
        let pids = outside.processes("pids", RUNAWAY_COUNT + 1);
        let began = Instant::now();
        let expected = match end {
            "channel" => {
                drop(outside.channel.take());
                Status::Exited(0)
            }
            "kill" => {
                kill_process(outside.child.pid, Signal::KILL).unwrap();
                Status::Killed(9)
            }
            _ => {
                outside.send(&ToOutside::End { run: RunId::new(99, [0; 4]) });
                Status::Exited(1)
            }
        };
        assert_eq!(outside.ended(), expected, "{end}");
        if end != "kill" {
            // What can wait for them does.
            assert!(pids.iter().all(|pid| !lives(*pid)), "{end}");
        }
        all_gone(&pids, Duration::from_secs(2));
        assert!(began.elapsed() < Duration::from_secs(5), "{end}: {:?}", began.elapsed());
        drop(run);
    }
}

/// SEL-4: an agent that kills the process above it gains nothing: it ends, and so does what it started; the others run on.
#[test]
fn a_killed_minder_is_made_up_for() {
    let script = format!(
        "set -- \"$BASE/$ANET_INTERACTION\"\n{RUNAWAYS}\necho $$ >> \"$1\"\n\
         [ $ANET_INTERACTION = bad ] || exec sleep 1000\n\
         while [ \"$(wc -l < \"$1\")\" -lt 5 ]; do sleep 0.05; done; kill -KILL $PPID; sleep 1000"
    );
    let outside = Outside::with_script(&script);
    let good = outside.run(1, ("p", "good"), b"");
    let of_good = outside.processes("good", RUNAWAY_COUNT + 1);
    let bad = outside.run(2, ("p", "bad"), b"");
    let of_bad = outside.processes("bad", RUNAWAY_COUNT + 1);
    assert_eq!(outside.exited(&bad), Exit::Signal(9));
    assert!(of_bad.iter().all(|pid| !lives(*pid)));
    assert!(of_good.iter().all(|pid| lives(*pid)));
    assert!(outside.log_so_far().contains("was killed"));
    assert!(outside.path("cache/work/p/bad/ended").exists());
    // Its directory is free, its name is known.
    outside.end(&bad);
    let again = outside.order(3, ("p", "bad"), b"");
    assert!(matches!(outside.next(), FromOutside::Started { .. }));
    drop((again, good));
}

/// SEL-4: an agent that stops the process above it is ended all the same.
#[test]
fn a_stopped_minder_goes_on_to_end_its_run() {
    let script =
        r#"echo $$ > "$BASE/pids"; sleep 0.5; kill -STOP $PPID; echo > "$BASE/stopped"; exec sleep 1000"#;
    let outside = Outside::with_script(script);
    let run = outside.run(1, ("p", "i"), b"");
    outside.wait_for("stopped", 1);
    outside.end(&run);
    assert_eq!(outside.exited(&run), Exit::Signal(15));
    assert!(outside.processes("pids", 1).iter().all(|pid| !lives(*pid)));
    // One that stops it again and again is not waited for.
    let script = r#"trap '' TERM; sleep 0.5; echo $$ > "$BASE/pids"; while :; do kill -STOP $PPID; done"#;
    let outside = Outside::with_script(script);
    let run = outside.run(1, ("p", "i"), b"");
    let pids = outside.processes("pids", 1);
    outside.end(&run);
    assert_eq!(outside.exited(&run), Exit::Signal(9));
    assert!(pids.iter().all(|pid| !lives(*pid)));
}

/// DIA-2: the `notify` command gets each event on standard input, one at a time and in order, with the operator's environment,
/// and says by its status whether it went well.
#[test]
fn events_reach_the_command_one_at_a_time() {
    let script = r#"
        mkdir "$BASE/busy" || exit 9
        cat >> "$BASE/events"; echo >> "$BASE/events"
        env | grep -c ANET_PEER >> "$BASE/events"
        echo noise; echo trouble >&2
        sleep 0.05; rmdir "$BASE/busy"
        ! tail -n 2 "$BASE/events" | grep -q '"event":3'
    "#;
    let outside = Outside::with_notify(&["sh", "-c", script]);
    for event in 1..=5 {
        outside.notify(event, &format!("{{\"event\":{event}}}"));
    }
    for event in 1..=5 {
        let FromOutside::Notified { event: notified, well } = outside.next() else { panic!("no word") };
        assert_eq!((notified, well), (event, event != 3));
    }
    let lines: Vec<String> =
        (1..=5).flat_map(|event| [format!("{{\"event\":{event}}}"), "0".to_owned()]).collect();
    assert_eq!(outside.wait_for("events", 10), lines);
    let log = outside.log_so_far();
    assert!(log.contains("trouble") && log.contains("status 1") && !log.contains("noise"), "{log}");

    let missing = Outside::with_notify(&["no-such-command-at-all"]);
    missing.notify(1, "{}");
    assert!(matches!(missing.next(), FromOutside::Notified { event: 1, well: false }));
    assert!(missing.log_so_far().contains("no-such-command-at-all is not there"));
}

/// DIA-2: events wait in a bounded line, the oldest goes first when it is full; a command that hangs is ended after 30 s with what
/// it started, and the next event has its turn.
#[test]
fn a_command_that_hangs_holds_up_a_bounded_line() {
    let script = r#"cat >> "$BASE/events"; [ -e "$BASE/hung" ] || { echo $$ > "$BASE/hung"; setsid sleep 1000 & echo $! >> "$BASE/hung"; sleep 1000; }"#;
    let outside = Outside::with_notify(&["sh", "-c", script]);
    outside.notify(0, "0\n");
    let hung = outside.processes("hung", 2);
    let began = Instant::now();
    for event in 1..=105 {
        outside.notify(event, &format!("{event}\n"));
    }
    for dropped in 1..=5 {
        assert!(matches!(outside.next(), FromOutside::Notified { event, well: false } if event == dropped));
    }
    std::thread::sleep(Duration::from_secs(20));
    assert!(hung.iter().all(|pid| lives(*pid)));
    assert!(matches!(outside.next(), FromOutside::Notified { event: 0, well: false }));
    let took = began.elapsed().as_secs();
    assert!((28..40).contains(&took), "{took} s");
    assert!(hung.iter().all(|pid| !lives(*pid)));
    for event in 6..=105 {
        assert!(
            matches!(outside.next(), FromOutside::Notified { event: notified, well: true } if notified == event)
        );
    }
    let expected: Vec<String> =
        std::iter::once(0).chain(6..=105).map(|event: u64| event.to_string()).collect();
    assert_eq!(outside.wait_for("events", 101), expected);
    let log = outside.log_so_far();
    assert!(log.contains("event 1 is dropped") && log.contains("over 30 s"), "{log}");
}

/// FS-3: a sweep takes what ended long enough ago, read-only directories and links with it, and nothing else; runs go on
/// meanwhile, also in a directory that is old enough.
#[test]
fn old_work_is_swept_while_others_work() {
    let script = r#"mkdir -p go/pkg/mod; echo x > go/pkg/mod/file; chmod -R a-w go; ln -s "$BASE" out; [ $ANET_INTERACTION != stays ] || sleep 1000"#;
    let outside = Outside::with_script(script);
    for (number, of) in [(1, ("p", "old")), (2, ("q", "old")), (3, ("p", "young"))] {
        let run = outside.run(number, of, b"");
        assert_eq!(outside.exited(&run), Exit::Status(0));
    }
    for of in ["p/old", "q/old"] {
        let ended =
            File::options().write(true).open(outside.path("cache/work").join(of).join("ended")).unwrap();
        ended.set_modified(std::time::SystemTime::now() - Duration::from_secs(100)).unwrap();
    }
    let stays = outside.run(4, ("p", "stays"), b"");
    outside.send(&ToOutside::Sweep { older_than: 50_000 });
    outside.send(&ToOutside::Sweep { older_than: 50_000 });
    assert!(matches!(outside.next(), FromOutside::Swept { removed: 2, left: 0 }));
    assert!(matches!(outside.next(), FromOutside::Swept { removed: 0, left: 0 }));
    let there = |of: &str| outside.path("cache/work").join(of).exists();
    assert!(!there("p/old") && !there("q") && there("p/young/work/go/pkg/mod/file"));
    // The link's end is not the sweep's.
    assert!(outside.base.path().exists());
    outside.send(&ToOutside::Sweep { older_than: 0 });
    assert!(matches!(outside.next(), FromOutside::Swept { removed: 1, left: 0 }));
    assert!(there("p/stays/work") && !there("p/young"));
    drop(stays);
    // Nothing there yet.
    let fresh = Outside::with_script("exit 0");
    fresh.send(&ToOutside::Sweep { older_than: 0 });
    assert!(matches!(fresh.next(), FromOutside::Swept { removed: 0, left: 0 }));
}

/// PRV-5, SEL-4: the supervisor can have nothing started that the plan does not name, and a word that the state does not expect
/// ends the process.
#[test]
fn an_unexpected_word_ends_the_process() {
    let null = File::open("/dev/null").unwrap();
    let task = bulk::seal(&b"task".to_vec()).unwrap();
    let direct = || ToOutside::Direct {
        run: RunId::new(1, [1; 4]),
        peer: "p".parse().unwrap(),
        interaction: "i".parse().unwrap(),
    };
    let agent = || Outside::with_script("sleep 1000");
    let notify = || Outside::with_notify(&["true"]);
    type Case<'a> = (&'a str, Outside, Vec<(ToOutside, Vec<&'a OwnedFd>)>);
    let null: OwnedFd = null.into();
    let cases: Vec<Case<'_>> = vec![
        ("no agent", notify(), vec![(direct(), vec![&task, &null, &null])]),
        ("no command", agent(), vec![(ToOutside::Notify { event: 1 }, vec![&task])]),
        ("an end of no run", agent(), vec![(ToOutside::End { run: RunId::new(1, [1; 4]) }, vec![])]),
        (
            "a run twice",
            agent(),
            vec![(direct(), vec![&task, &null, &null]), (direct(), vec![&task, &null, &null])],
        ),
        ("a task that can change", agent(), vec![(direct(), vec![&null, &null, &null])]),
    ];
    for (name, outside, words) in cases {
        for (message, descriptors) in words {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            // It may have ended already.
            let _ = outside.channel().send(&message, &descriptors);
        }
        assert_eq!(outside.ended(), Status::Exited(1), "{name}");
        let log = outside.log_so_far();
        assert!(log.contains("protocol violation"), "{name}: {log}");
    }
}

/// PRV-5, SEL-4: a hundred runs, some at once, leave no descriptor and no process behind.
#[test]
fn runs_come_and_go() {
    let outside = Outside::with_script("cat; setsid sleep 1000 & exit 0");
    let before = outside.descriptors();
    for round in 0..10 {
        let runs: Vec<Output> = (0..10)
            .map(|number| outside.order(round * 10 + number, ("p", &format!("i{number}")), b"task"))
            .collect();
        let (mut started, mut exited) = (0, 0);
        while exited < 10 {
            match outside.next() {
                FromOutside::Started { .. } => started += 1,
                FromOutside::Exited { exit, .. } => {
                    assert_eq!(exit, Exit::Status(0));
                    exited += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(started, 10);
        for mut run in runs {
            assert_eq!(run.text(), "task");
        }
    }
    assert_eq!(outside.descriptors(), before);
    let status = fs::read_to_string(format!("/proc/{}/status", outside.child.pid.as_raw_nonzero())).unwrap();
    assert!(status.contains("Threads:\t1\n"), "{status}");
    let children = format!("/proc/{0}/task/{0}/children", outside.child.pid.as_raw_nonzero());
    assert_eq!(fs::read_to_string(children).unwrap(), "");
    assert_eq!(outside.log_so_far(), "");
}

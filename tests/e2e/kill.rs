//! SBX-5: no process of a run survives the death of any anet process, at any moment, whatever else is stopped.
//!
//! A run's processes are known by their program files: anet's own programs, bubblewrap and the agent are copies made
//! for one test. `ANET_KILL_ROUNDS` says how often each is killed (a few in a usual run, 200 by hand).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tests::harness::{self, Harness};
use tests::installed::{copy_program, installed};
use tests::internet::Internet;
use tests::person::{Outcome, Person, Who};
use tests::processes::{self, Process};

/// All that a start consists of; the agent is a copy of sleep(1).
const TARGETS: [&str; 8] =
    ["anet", "anet-supervisor", "anet-launcher", "anet-proxy", "anet-broker", "anet-init", "bwrap", "agent"];
/// anet's own processes that one can stop while another one dies.
const OURS: [&str; 5] = ["anet", "anet-supervisor", "anet-launcher", "anet-proxy", "anet-broker"];
/// A run with a broker; nothing is at its service, and nobody asks.
const MODEL: [&str; 6] = ["--agent", "custom", "--api-base", "http://127.0.0.1:9", "--model", "m"];
/// The time in which everything has to be gone.
const GONE: Duration = Duration::from_secs(5);
/// Longer than a start takes on this machine, probe included.
const START: Duration = Duration::from_millis(250);

fn rounds() -> u32 {
    std::env::var("ANET_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

/// Numbers without a pattern that matters, the same in each run of the tests.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A caller whose programs are nobody else's.
struct Stage {
    net: Internet,
    person: Person,
    programs: HashMap<(u64, u64), String>,
    agent: String,
    work: String,
    _dir: tempfile::TempDir,
}

impl Stage {
    fn new(who: Who) -> Option<Stage> {
        if harness::kind() != Harness::Root {
            harness::skip(
                "killing each process of a run",
                "only root sees the program file of every process",
            );
            return None;
        }
        let net = Internet::new()?;
        let dir = tempfile::Builder::new().prefix("anet-kill-").tempdir_in("/tmp").expect("a directory");
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
        let copy = installed().copy_to(&dir.path().join("bin"));
        let bwrap = dir.path().join("bwrap");
        copy_program(Path::new("/usr/bin/bwrap"), &bwrap);
        net.bind(&bwrap, "/usr/bin/bwrap");
        let person = Person::with_programs(who, &copy);
        let work = person.work_dir("work");
        let agent = work.join("agent");
        copy_program(Path::new("/usr/bin/sleep"), &agent);
        let mut programs = HashMap::new();
        let mut add = |path: &Path, name: &str| {
            let m = fs::metadata(path).expect("a program");
            programs.insert((m.dev(), m.ino()), name.to_owned());
        };
        let ours = [
            "anet",
            "anet-supervisor",
            "anet-launcher",
            "anet-proxy",
            "anet-broker",
            "anet-init",
            "anet-terminal",
        ];
        for name in ours {
            add(&copy.dir().join(name), name);
        }
        add(&bwrap, "bwrap");
        add(&agent, "agent");
        let (agent, work) = (agent.display().to_string(), work.display().to_string());
        Some(Stage { net, person, programs, agent, work, _dir: dir })
    }

    fn start(&self) -> Child {
        let options =
            ["--work", &self.work, "--allow", "pkg.example.com", "--quiet"].into_iter().chain(MODEL);
        let call = self.person.run(options, [self.agent.as_str(), "3600"]);
        self.net.inside(|| call.spawn())
    }

    /// A whole run, undisturbed: killed ones must not keep the next one from starting.
    fn one(&self) -> Outcome {
        let options = ["--work", &self.work, "--allow", "pkg.example.com"].into_iter().chain(MODEL);
        self.person.run(options, [self.agent.as_str(), "0"]).within(&self.net).output()
    }

    fn all(&self) -> Vec<(Process, String)> {
        let inodes: HashSet<(u64, u64)> = self.programs.keys().copied().collect();
        let name = |p: &Process| {
            let m = fs::metadata(format!("/proc/{}/exe", p.pid)).ok()?;
            self.programs.get(&(m.dev(), m.ino())).cloned()
        };
        processes::executing(&inodes).into_iter().filter_map(|p| name(&p).map(|name| (p, name))).collect()
    }

    fn named(&self, name: &str) -> Vec<Process> {
        self.all().into_iter().filter(|(_, n)| n == name).map(|(p, _)| p).collect()
    }

    /// Waits for the agent itself: then everything is up.
    fn wait_up(&self) {
        let up = processes::wait_for(Duration::from_secs(20), || self.named("agent"));
        assert!(!up.is_empty(), "the run did not start");
    }

    fn wait_gone(&self, but: &[u32]) -> Vec<(Process, String)> {
        let end = Instant::now() + GONE;
        loop {
            let left: Vec<_> = self.all().into_iter().filter(|(p, _)| !but.contains(&p.pid)).collect();
            if left.is_empty() || Instant::now() > end {
                return left;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends what a failed round left, so that the next one begins clean: only processes that this test started.
    fn clean(&self) {
        for (process, _) in self.all() {
            processes::signal(process.pid, Signal::SIGKILL);
        }
        self.wait_gone(&[]);
    }

    /// The directories that a run makes are not the subject here, and a killed one leaves them.
    fn warm_up(&self) {
        let mut child = self.start();
        self.wait_up();
        // What is not found while it runs would not be found as a survivor either.
        for target in TARGETS {
            assert!(!self.named(target).is_empty(), "{target} is not seen: {:?}", self.all());
        }
        processes::signal(child.id(), Signal::SIGTERM);
        child.wait().expect("wait");
        assert_eq!(self.wait_gone(&[]), [], "after an orderly end");
    }
}

/// Each process is killed while the run is up.
#[test]
fn killing_any_process_of_a_running_sandbox_leaves_nothing() {
    for who in Who::all() {
        let Some(stage) = Stage::new(*who) else { return };
        stage.warm_up();
        let mut survivors = Vec::new();
        for target in TARGETS {
            let mut child = stage.start();
            stage.wait_up();
            // bwrap is two processes, outside and process 1; each in its turn.
            let victims = stage.named(target).len();
            for number in 0..victims.max(1) {
                let victim = stage.named(target).get(number).cloned();
                let Some(victim) = victim.or_else(|| stage.named(target).first().cloned()) else { break };
                processes::signal(victim.pid, Signal::SIGKILL);
                let left = stage.wait_gone(&[]);
                if !left.is_empty() {
                    survivors.push(format!("{who:?}: {target} {number} killed: {left:?}"));
                    stage.clean();
                }
                child.wait().expect("wait");
                if number + 1 < victims {
                    child = stage.start();
                    stage.wait_up();
                }
            }
            stage.clean();
            let _ = child.wait();
        }
        assert!(survivors.is_empty(), "{}", survivors.join("\n"));
    }
}

/// Each process is killed at random moments of a start.
#[test]
fn killing_any_process_at_any_moment_of_a_start_leaves_nothing() {
    for who in Who::all() {
        let Some(stage) = Stage::new(*who) else { return };
        stage.warm_up();
        let mut random = Random(0x5eed_0000_0000_0001);
        let mut survivors = Vec::new();
        let mut hits: HashMap<&str, u32> = HashMap::new();
        for target in TARGETS {
            for round in 0..rounds() {
                // A start puts right first what killed ones left; a thousand of them keep it busy for a while.
                if round % 25 == 0 {
                    stage.one().expect_code(0);
                }
                let mut child = stage.start();
                let delay =
                    Duration::from_micros(random.below(u64::try_from(START.as_micros()).expect("short") / 2));
                std::thread::sleep(delay);
                // The target may not be there yet: it dies in the first moment that it is seen. Where it never comes,
                // the guard does.
                let victim = processes::wait_for(START, || stage.named(target));
                let victim = victim.get(random.below(victim.len().max(1) as u64) as usize);
                *hits.entry(target).or_default() += u32::from(victim.is_some());
                processes::signal(victim.map_or(child.id(), |p| p.pid), Signal::SIGKILL);
                let left = stage.wait_gone(&[]);
                if !left.is_empty() {
                    survivors.push(format!("{who:?}: {target}, round {round}, after {delay:?}: {left:?}"));
                    stage.clean();
                }
                child.wait().expect("wait");
            }
        }
        eprintln!("{who:?}: killed {hits:?} of {} each", rounds());
        let enough = hits.values().all(|n| *n * 2 >= rounds());
        assert!(enough, "most rounds have to hit their target: {hits:?}; now a run gives {}", stage.one());
        assert!(survivors.is_empty(), "{} survived:\n{}", survivors.len(), survivors.join("\n"));
        stage.one().expect_code(0);
    }
}

/// Moments that are measured from the start, not from the target's appearance: whatever there is, dies.
#[test]
fn killing_whatever_there_is_at_any_microsecond_leaves_nothing() {
    for who in Who::all() {
        let Some(stage) = Stage::new(*who) else { return };
        stage.warm_up();
        let mut random = Random(0x5eed_0000_0000_0002);
        let mut survivors = Vec::new();
        for round in 0..rounds() * 4 {
            let mut child = stage.start();
            let delay = Duration::from_micros(random.below(60_000));
            std::thread::sleep(delay);
            let all = stage.all();
            let victim = all.get(random.below(all.len().max(1) as u64) as usize);
            let name = victim.map_or("anet", |(_, name)| name).to_owned();
            processes::signal(victim.map_or(child.id(), |(p, _)| p.pid), Signal::SIGKILL);
            let left = stage.wait_gone(&[]);
            if !left.is_empty() {
                survivors.push(format!("{who:?}: {name}, round {round}, after {delay:?}: {left:?}"));
                stage.clean();
            }
            child.wait().expect("wait");
        }
        assert!(survivors.is_empty(), "{} survived:\n{}", survivors.len(), survivors.join("\n"));
    }
}

/// One of anet's processes is stopped, another one dies: the run ends. (What is stopped may stay; it is no process of
/// the run.)
#[test]
fn killing_one_process_while_another_is_stopped_ends_the_run() {
    for who in Who::all() {
        let Some(stage) = Stage::new(*who) else { return };
        stage.warm_up();
        let mut survivors = Vec::new();
        for stopped in OURS {
            for killed in OURS.iter().filter(|name| **name != stopped) {
                let mut child = stage.start();
                stage.wait_up();
                let stop = stage.named(stopped).first().cloned().expect("a process to stop");
                let kill = stage.named(killed).first().cloned().expect("a process to kill");
                processes::signal(stop.pid, Signal::SIGSTOP);
                processes::signal(kill.pid, Signal::SIGKILL);
                let of_the_run = |(_, name): &(Process, String)| !OURS.contains(&name.as_str());
                let end = Instant::now() + GONE;
                let mut left: Vec<_> = stage.all().into_iter().filter(of_the_run).collect();
                while !left.is_empty() && Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(10));
                    left = stage.all().into_iter().filter(of_the_run).collect();
                }
                if !left.is_empty() {
                    survivors.push(format!("{who:?}: {stopped} stopped, {killed} killed: {left:?}"));
                }
                stage.clean();
                let _ = child.wait();
            }
        }
        assert!(survivors.is_empty(), "{} survived:\n{}", survivors.len(), survivors.join("\n"));
    }
}

/// An agent that defends itself: signals ignored, sessions of its own, forking all the time, parts of it stopped.
#[test]
fn a_stubborn_agent_ends_with_any_process_of_anet() {
    for who in Who::all() {
        let Some(stage) = Stage::new(*who) else { return };
        stage.warm_up();
        let script = format!(
            "trap '' TERM INT HUP QUIT TSTP; \
             for i in 1 2 3; do (setsid sh -c \"trap '' TERM INT HUP; exec {0} 3600\" &) ; done; \
             (sh -c 'kill -STOP $$; exec {0} 3600' &); while :; do {0} 0.02 & {0} 0.03; done",
            stage.agent
        );
        let mut survivors = Vec::new();
        for target in OURS {
            let options = ["--work", &stage.work, "--allow", "pkg.example.com"].into_iter().chain(MODEL);
            let call = stage.person.sh(options, &script);
            let mut child = stage.net.inside(|| call.spawn());
            stage.wait_up();
            std::thread::sleep(Duration::from_millis(200));
            let victim = stage.named(target).first().cloned().expect("a process to kill");
            processes::signal(victim.pid, Signal::SIGKILL);
            let left = stage.wait_gone(&[]);
            if !left.is_empty() {
                survivors.push(format!("{who:?}: {target} killed: {left:?}"));
                stage.clean();
            }
            let _ = child.wait();
        }
        assert!(survivors.is_empty(), "{}", survivors.join("\n"));
    }
}

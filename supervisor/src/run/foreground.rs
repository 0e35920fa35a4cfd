//! The supervisor of `anet run`: one run in the foreground, with its probe, its terminal, its signals and its answer.

mod ending;
mod hearing;
mod waiting;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use confine::sys::signal::{Signal, Signals};
use ipc_proto::job::{Job, Word};
use ipc_proto::launcher::{FromLauncher, ToLauncher};
use ipc_proto::proxy::FromProxy;
use ipc_proto::terminal::{FromTerminal, ToTerminal};
use ipc_proto::{Channel, ChannelError, Code, Message, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use super::answer::Output;
use super::egress::Taken;
use super::one::{Event, Parts, Phase, Run};
use super::trial::Trial;
use super::{Fatal, Journal, Lines, probe, summary};
use crate::chain::Chain;
use crate::error::one_line;
use crate::record::Ended;

/// From a signal that asks the command to end until it is ended.
const GRACE: Duration = Duration::from_secs(10);
/// How long a decision may wait until it is on disk (EVI-1).
const COMMIT: Duration = Duration::from_millis(100);

/// The ends that the supervisor was started with.
#[derive(Debug)]
pub struct Ends {
    /// To launcher, proxy and broker.
    pub lines: Lines,
    /// Where the agent's answer is read, and where it is written.
    pub answer: Option<(File, File)>,
    /// To the terminal process, where there is one.
    pub terminal: Option<Channel<ToTerminal, FromTerminal>>,
    /// The run's chain, empty.
    pub chain: File,
    /// Where the guard hears its words.
    pub guard: File,
    /// What becomes 0, 1 and 2 of the command.
    pub stdio: [OwnedFd; 3],
    /// Where the record goes.
    pub record: Option<File>,
    /// Where the probe's result is kept.
    pub probe_cache: Option<File>,
    /// The control group.
    pub control_group: Option<OwnedFd>,
    /// Where words for the operator go.
    pub log: File,
    /// /dev/null, for the probe.
    pub null: OwnedFd,
}

/// What has been said by whom, beyond what belongs to the run itself.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    launched: bool,
    launcher_hello: bool,
    proxy_hello: bool,
    broker_hello: bool,
    attach_sent: bool,
    attached: bool,
    finished: bool,
}

/// One run in the foreground.
#[derive(Debug)]
pub struct Foreground {
    job: Job,
    lines: Rc<Lines>,
    terminal: Option<Channel<ToTerminal, FromTerminal>>,
    guard: File,
    log: File,
    null: OwnedFd,
    record: Option<File>,
    probe_cache: Option<File>,
    /// What the run is made of, until the probe has found the sandbox good.
    waiting: Option<(File, [OwnedFd; 3], Option<OwnedFd>)>,
    trial: Option<Trial>,
    run: Option<Run>,
    signals: Signals,
    told: Told,
    output: Option<Output>,
    /// Where the answer goes.
    operator: Option<File>,
    failed: Option<Code>,
    walls: Value,
    stopped: bool,
    /// Suspends that the terminal process has not answered.
    suspending: u32,
    grace_ends: Option<Instant>,
}

/// The run's own chain.
#[derive(Debug)]
struct OwnChain {
    chain: Option<Chain>,
    due: Option<Instant>,
}

impl Journal for OwnChain {
    fn append(&mut self, kind: &str, body: &Value) -> io::Result<()> {
        if let Some(chain) = &mut self.chain {
            chain.append(SystemTime::now(), kind, body)?;
            self.due.get_or_insert(Instant::now() + COMMIT);
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.due = None;
        self.chain.as_ref().map_or(Ok(()), Chain::sync)
    }

    fn close(&mut self) -> io::Result<()> {
        self.due = None;
        self.chain.take().map_or(Ok(()), |chain| chain.seal(SystemTime::now()))
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Foreground {
    /// A run that has not begun.
    ///
    /// # Errors
    /// When the ends cannot be used.
    pub fn new(job: Job, ends: Ends, signals: Signals) -> Result<Foreground, Fatal> {
        let Ends { lines, answer, terminal, chain, guard, stdio, record, probe_cache, .. } = ends;
        let (output, operator) = answer.unzip();
        let output = job.answer.zip(output).map(|(answer, reader)| Output::new(answer.format, reader));
        Ok(Foreground {
            record: record.filter(|_| job.record),
            job,
            lines: Rc::new(lines),
            terminal,
            guard,
            log: ends.log,
            null: ends.null,
            probe_cache,
            waiting: Some((chain, stdio, ends.control_group)),
            trial: None,
            run: None,
            signals,
            told: Told::default(),
            output,
            operator,
            failed: None,
            walls: Value::Null,
            stopped: false,
            suspending: 0,
            grace_ends: None,
        })
    }

    /// Runs it to its end. The exit status of `anet run`.
    pub fn run(mut self) -> u8 {
        match self.serve() {
            Ok(()) => {}
            Err(fatal) => {
                let code = fatal.code();
                self.say(&format!("anet: {code}: {}\n", one_line(&fatal.to_string())));
                self.failed = Some(code);
            }
        }
        match self.finish() {
            Ok(status) => status,
            Err(fatal) => {
                self.say(&format!("anet: {}: {}\n", fatal.code(), one_line(&fatal.to_string())));
                crate::error::STATUS_FAILED
            }
        }
    }

    fn serve(&mut self) -> Result<(), Fatal> {
        match &self.job.probe {
            Some(probe) => {
                let trial = Trial::start(probe.run, &probe.plan, &self.job.plan, &self.lines, &self.null)?;
                self.trial = Some(trial);
                self.launched()?;
            }
            None => self.start_run()?,
        }
        while !self.is_over() {
            self.wait()?;
        }
        match self.run.as_mut().and_then(Run::take_unavailable) {
            Some(trouble) => Err(Fatal::Unavailable(trouble)),
            None => Ok(()),
        }
    }

    fn is_over(&self) -> bool {
        let terminal = !self.told.attach_sent || self.told.finished;
        match &self.run {
            Some(run) => run.is_over() && terminal,
            None => self.trial.is_none(),
        }
    }

    /// The guard starts the proxy now, and not before: on a small machine the two starts would wait for each other, and the
    /// proxy is not needed until the sandbox stands.
    fn launched(&mut self) -> Result<(), Fatal> {
        if self.told.launched {
            return Ok(());
        }
        self.told.launched = true;
        self.word(Word::Launched)
    }

    fn start_run(&mut self) -> Result<(), Fatal> {
        if self.job.probe_only {
            return Ok(());
        }
        let Some((chain, stdio, control_group)) = self.waiting.take() else { return Ok(()) };
        let journal = Box::new(OwnChain { chain: Some(Chain::new(chain)), due: None });
        let mut run = Run::new(Parts {
            job: self.job.clone(),
            origin: Value::Null,
            lines: Rc::clone(&self.lines),
            journal,
            stdio,
            control_group,
            walls: std::mem::take(&mut self.walls),
        });
        run.start()?;
        self.launched()?;
        run.admit()?;
        self.run = Some(run);
        Ok(())
    }

    /// What the run wants of the rest.
    fn take_events(&mut self) -> Result<(), Fatal> {
        while let Some(event) = self.run.as_mut().and_then(Run::next_event) {
            match event {
                Event::Opened(outer) => {
                    if let (Some(channel), Some(mode)) = (&self.terminal, self.job.terminal) {
                        let outer = outer.as_ref().map_or(self.null.as_fd(), |outer| outer.as_fd());
                        channel.send(&ToTerminal::Attach(mode), &[outer])?;
                        self.told.attach_sent = true;
                    }
                }
                Event::Started => self.word(Word::Started)?,
                Event::Stopped => self.suspend()?,
                Event::Ending => {
                    self.grace_ends = None;
                    if let Some(channel) = self.terminal.as_ref().filter(|_| self.told.attach_sent) {
                        channel.send(&ToTerminal::Finish, &[])?;
                    }
                }
            }
        }
        Ok(())
    }

    fn phase(&self) -> Option<Phase> {
        self.run.as_ref().map(Run::phase)
    }

    fn unexpected<M: Message>(&self, message: &M) -> Fatal {
        let state = self.phase().map_or("the sandbox is tried", Phase::as_str);
        ChannelError::unexpected(message, state).into()
    }

    fn word(&mut self, word: Word) -> Result<(), Fatal> {
        self.guard.write_all(&[word.byte()]).map_err(|_| Fatal::Gone("the guard"))
    }

    fn say(&mut self, text: &str) {
        // Where nobody can hear it there is nobody to tell that.
        let _ = self.log.write_all(text.as_bytes());
    }
}

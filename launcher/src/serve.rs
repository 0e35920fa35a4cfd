//! The launcher's loop: one table of runs, one place that waits.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use confine::sys::signal::Signals;
use ipc_proto::init::ToInit;
use ipc_proto::launcher::{Failure, FromLauncher, ToLauncher};
use ipc_proto::{Received, RunId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, wait};

use crate::cleaning::{Cleaning, Swept};
use crate::directories::Root;
use crate::room::Room;
use crate::run::{Run, Supervisor};
use crate::{Fatal, Log, Surroundings};

/// So many closed runs are remembered: a word for one may have been under way when it closed, and all that there is room for
/// may close before it is heard.
const REMEMBERED: usize = 256;

/// The launcher at work.
#[derive(Debug)]
pub struct Launcher<'a> {
    supervisor: Supervisor,
    children: Signals,
    surroundings: Surroundings,
    log: &'a Log,
    runs: BTreeMap<RunId, Run>,
    closed: VecDeque<RunId>,
    roots: BTreeMap<PathBuf, Rc<Root>>,
    cleaning: Cleaning,
    room: Room,
}

impl<'a> Launcher<'a> {
    /// A launcher without runs.
    #[must_use]
    pub fn new(
        supervisor: Supervisor,
        children: Signals,
        surroundings: Surroundings,
        log: &'a Log,
    ) -> Launcher<'a> {
        Launcher {
            supervisor,
            children,
            surroundings,
            log,
            runs: BTreeMap::new(),
            closed: VecDeque::new(),
            roots: BTreeMap::new(),
            cleaning: Cleaning::default(),
            room: Room::look(),
        }
    }

    /// Serves until the supervisor is gone.
    ///
    /// # Errors
    /// [`Fatal`]: the process ends, and with it every run.
    pub fn serve(&mut self) -> Result<(), Fatal> {
        loop {
            let readable = self.wait()?;
            self.reap()?;
            if readable.contains(&self.supervisor.as_fd().as_raw_fd()) && !self.hear()? {
                return Ok(());
            }
            for run in self.runs.values_mut() {
                let is_readable = |fd: BorrowedFd<'_>| readable.contains(&fd.as_raw_fd());
                run.turn(&self.supervisor, &is_readable, self.log)?;
            }
            self.forget_closed();
            self.clean()?;
        }
    }

    /// Waits until something happens, and says on which descriptors.
    fn wait(&self) -> Result<Vec<RawFd>, Fatal> {
        let mut fds =
            vec![PollFd::new(&self.supervisor, PollFlags::IN), PollFd::new(&self.children, PollFlags::IN)];
        let watched = self.runs.values().flat_map(Run::descriptors);
        fds.extend(watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let cleaning = self.cleaning.due(self.is_idle());
        let deadline = self.runs.values().filter_map(Run::deadline).chain(cleaning).min();
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        match poll(&mut fds, left.and_then(|left| Timespec::try_from(left).ok()).as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => return Err(Fatal::System { what: "poll", errno }),
        }
        let happened = fds.iter().filter(|fd| !fd.revents().is_empty());
        Ok(happened.map(|fd| fd.as_fd().as_raw_fd()).collect())
    }

    /// As process 1 of its namespace the launcher has every orphan for a child: all are reaped, bwraps are noted.
    fn reap(&mut self) -> Result<(), Fatal> {
        while matches!(self.children.next(), Ok(Some(_))) {}
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, _))) => self.reaped(pid),
                Ok(None) | Err(Errno::CHILD) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Fatal::System { what: "wait", errno }),
            }
        }
    }

    fn reaped(&mut self, pid: Pid) {
        // The first that knows it: a number means one process until it is reaped.
        let _ = self.runs.values_mut().any(|run| run.reaped(pid));
    }

    /// Takes the supervisor's words. Says no when it is gone.
    fn hear(&mut self) -> Result<bool, Fatal> {
        loop {
            let (message, descriptors) = match self.supervisor.try_receive()? {
                Received::Message(message, descriptors) => (message, descriptors),
                Received::Empty => return Ok(true),
                Received::Closed => return Ok(false),
            };
            self.heard(&message, descriptors)?;
        }
    }

    fn heard(&mut self, message: &ToLauncher, descriptors: Vec<OwnedFd>) -> Result<(), Fatal> {
        let mut descriptors = descriptors.into_iter();
        match message {
            ToLauncher::Plan(run) => {
                let Some(memory) = descriptors.next().filter(|_| !self.runs.contains_key(run)) else {
                    return Err(Fatal::Plan { run: *run });
                };
                let planned = Run::plan(*run, memory.as_fd())?;
                self.runs.insert(*run, planned);
                Ok(())
            }
            ToLauncher::ControlGroup(run) => match (self.find(*run, "ControlGroup")?, descriptors.next()) {
                (Some(known), Some(directory)) => known.control_group(message, directory),
                (Some(_) | None, _) => Err(Fatal::NoSuchRun { run: *run, message: "ControlGroup" }),
            },
            ToLauncher::Launch(run) => self.launch(*run, message, &descriptors.collect::<Vec<_>>()),
            ToLauncher::Go(run) => self.find(*run, "Go")?.map_or(Ok(()), |known| known.go(message)),
            ToLauncher::Signal(run, number) => {
                let word = ToInit::Signal(*number);
                self.find(*run, "Signal")?.map_or(Ok(()), |known| known.pass(message, &word))
            }
            ToLauncher::Resume(run) => {
                self.find(*run, "Resume")?.map_or(Ok(()), |known| known.pass(message, &ToInit::Resume))
            }
            ToLauncher::Sweep { root, older_than } => {
                let path = PathBuf::from(OsStr::from_bytes(root.to_bytes()));
                self.sweep(&path, Duration::from_millis(*older_than))
            }
            ToLauncher::End(run) => {
                if let Some(known) = self.find(*run, "End")? {
                    known.end();
                }
                Ok(())
            }
        }
    }

    fn launch(&mut self, run: RunId, message: &ToLauncher, stdio: &[OwnedFd]) -> Result<(), Fatal> {
        let Some(known) = self.runs.get(&run) else {
            return Err(Fatal::NoSuchRun { run, message: "Launch" });
        };
        let path = PathBuf::from(OsStr::from_bytes(known.launch_plan().files.root.to_bytes()));
        let taken = self.runs.values().map(Run::needs).sum();
        let room = self.room.holds(taken, self.cleaning.waiting(), known.launch_plan());
        let root = room.and_then(|()| self.root(&path));
        let Some(known) = self.runs.get_mut(&run) else { return Ok(()) };
        let stale = known.launch(message, root.clone(), stdio, &self.surroundings, self.log)?;
        if let Ok(root) = root {
            self.cleaning.left_behind(&root, stale);
        }
        Ok(())
    }

    fn sweep(&mut self, root: &Path, older_than: Duration) -> Result<(), Fatal> {
        for run in self.runs.values() {
            // So that the end of a run that is never noted was not long after this.
            run.goes_on(self.log);
        }
        match self.root(root) {
            Ok(root) => self.cleaning.sweep(root, older_than),
            Err(failure) => {
                self.log.line(&format!("work directories cannot be removed: {}", failure.text));
                self.supervisor.send(&FromLauncher::Swept { removed: 0, left: 0 }, &[])?;
            }
        }
        Ok(())
    }

    fn root(&mut self, path: &Path) -> Result<Rc<Root>, Failure> {
        if let Some(root) = self.roots.get(path).filter(|root| root.is_there()) {
            return Ok(Rc::clone(root));
        }
        let root = Rc::new(Root::open(path)?);
        self.roots.insert(path.to_owned(), Rc::clone(&root));
        Ok(root)
    }

    /// The run of a message; none where it closed while the message was under way.
    fn find(&mut self, run: RunId, message: &'static str) -> Result<Option<&mut Run>, Fatal> {
        match self.runs.get_mut(&run) {
            Some(known) => Ok(Some(known)),
            None if self.closed.contains(&run) => Ok(None),
            None => Err(Fatal::NoSuchRun { run, message }),
        }
    }

    fn forget_closed(&mut self) {
        for (run, _) in self.runs.extract_if(.., |_, run| run.is_closed()) {
            self.closed.push_back(run);
            if self.closed.len() > REMEMBERED {
                self.closed.pop_front();
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.runs.values().all(|run| run.deadline().is_none())
    }

    fn clean(&mut self) -> Result<(), Fatal> {
        let idle = self.is_idle();
        if let Some(Swept { removed, left }) = self.cleaning.step(idle, self.log) {
            self.supervisor.send(&FromLauncher::Swept { removed, left }, &[])?;
        }
        Ok(())
    }
}

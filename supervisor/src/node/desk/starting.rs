//! Starting turns: from a decision to a run that is admitted and on its way.

use ipc_proto::launcher::WorkDirectory;
use ipc_proto::limits::LimitName;
use ipc_proto::{Aid, InteractionId, bulk};

use super::direct::{self, Direct};
use super::setup;
use super::state::Counted;
use super::store::{chance, unix_ms};
use super::turns::{Streams, Task};
use super::*;
use crate::agents::MAX_OUTPUT;
use crate::inbox::Way;
use crate::run::one::Parts;

/// What a turn is started with.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) run: RunId,
    pub(super) started: u64,
    pub(super) interaction: InteractionId,
    pub(super) peer: Aid,
    pub(super) trusted: bool,
    pub(super) way: Way,
    pub(super) counted: Option<Counted>,
    pub(super) task: Vec<u8>,
}

impl Node {
    /// Starts a turn. A task that its agent cannot take is an answer, and no reason to end anything.
    pub(super) fn start(&mut self, start: Start) -> Result<Result<(), Trouble>, Fatal> {
        let (run, started) = (start.run, start.started);
        let task = Task {
            interaction: start.interaction.clone(),
            peer: start.peer.to_string(),
            trusted: start.trusted,
        };
        let origin = json!({
            "interaction": start.interaction, "peer": start.peer, "trusted": start.trusted,
            "way": start.way.as_str(), "counted": start.counted,
        });
        let turn = match start.way {
            Way::Sandbox => {
                let work = WorkDirectory::Kept { peer: start.peer, interaction: start.interaction };
                self.sandboxed(run, started, work, &start.task, origin)?
            }
            Way::Openai => self.asked(run, started, &start.task, origin)?,
            Way::Direct => {
                self.direct(run, started, start.peer, start.interaction, &start.task, origin)?.map_or_else(
                    || {
                        Err(Trouble::new(
                            Code::DirectInService,
                            "nothing here starts agents outside of the sandbox",
                        ))
                    },
                    Ok,
                )
            }
        };
        let (work, output) = match turn {
            Ok(turn) => turn,
            Err(trouble) => return Ok(Err(trouble)),
        };
        self.desk.turns.insert(run, Turn { task: Some(task), started, work, output, interrupted: false });
        Ok(Ok(()))
    }

    /// The operator's own test.
    pub(super) fn start_test(
        &mut self,
        task: &[u8],
        work: WorkDirectory,
    ) -> Result<Result<RunId, Trouble>, Fatal> {
        let started = unix_ms(SystemTime::now());
        let run = RunId::new(started, chance()?);
        let way = match self.job.policy.backend {
            crate::config::Backend::Exec => Way::Sandbox,
            crate::config::Backend::Openai => Way::Openai,
        };
        let origin = json!({ "test": true, "way": way.as_str(), "counted": null });
        let turn = match way {
            Way::Openai => self.asked(run, started, task, origin)?,
            Way::Sandbox | Way::Direct => self.sandboxed(run, started, work, task, origin)?,
        };
        let (work, output) = match turn {
            Ok(turn) => turn,
            Err(trouble) => return Ok(Err(trouble)),
        };
        self.desk.turns.insert(run, Turn { task: None, started, work, output, interrupted: false });
        Ok(Ok(run))
    }

    fn sandboxed(
        &mut self,
        run: RunId,
        started: u64,
        work: WorkDirectory,
        task: &[u8],
        origin: Value,
    ) -> Result<Result<(Work, Option<crate::run::answer::Output>), Trouble>, Fatal> {
        let (Ok(turn), Ok(store)) = (&self.job.turn, &self.store) else { return Ok(Err(self.no_turn())) };
        let prepared = match setup::sandboxed(&self.job, turn, run, started, work, task) {
            Ok(prepared) => prepared,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let input = confine::memory::sealed(c"anet-task", &[&prepared.input])
            .map_err(|errno| Fatal::System { what: "memory for a task", errno })?;
        let Streams { stdio, output } = Streams::new(input, &self.null, prepared.format)?;
        let mut job = prepared.job;
        if !self.apart {
            job.warnings.push(Code::LauncherNotApart);
        }
        let mut run = Run::new(Parts {
            journal: store.journal(run),
            job,
            origin,
            lines: Rc::clone(&self.lines),
            stdio,
            control_group: None,
            walls: self.walls.clone(),
        });
        run.start()?;
        run.admit()?;
        Ok(Ok((Work::Run(Box::new(run)), Some(output))))
    }

    /// SEL-3: the node itself asks the model.
    fn asked(
        &mut self,
        run: RunId,
        started: u64,
        task: &[u8],
        origin: Value,
    ) -> Result<Result<(Work, Option<crate::run::answer::Output>), Trouble>, Fatal> {
        let (Ok(turn), Ok(store)) = (&self.job.turn, &self.store) else { return Ok(Err(self.no_turn())) };
        let text = bulk::seal(&String::from_utf8_lossy(task).into_owned())?;
        let null = || {
            rustix::io::fcntl_dupfd_cloexec(&self.null, 3)
                .map_err(|errno| Fatal::System { what: "a descriptor", errno })
        };
        let mut run = Run::new(Parts {
            journal: store.journal(run),
            job: setup::asking(&self.job, turn, run, started),
            origin,
            lines: Rc::clone(&self.lines),
            stdio: [null()?, null()?, null()?],
            control_group: None,
            walls: Value::Null,
        });
        run.admit()?;
        run.ask(&text)?;
        Ok(Ok((Work::Run(Box::new(run)), None)))
    }

    fn direct(
        &mut self,
        run: RunId,
        started: u64,
        peer: Aid,
        interaction: InteractionId,
        task: &[u8],
        origin: Value,
    ) -> Result<Option<(Work, Option<crate::run::answer::Output>)>, Fatal> {
        let (Some(channel), Ok(store)) =
            (self.desk.outside.as_ref().filter(|_| self.job.outside.direct), &self.store)
        else {
            return Ok(None);
        };
        let policy = &self.job.policy;
        let format = crate::agents::answer_format(policy.agent);
        let Streams { stdio: [_, output_end, errors], output } =
            Streams::new(bulk::seal(&task.to_vec())?, &self.null, format)?;
        let mut direct = Direct::new(direct::Parts {
            run,
            agent: policy.agent.as_str().to_owned(),
            started,
            wall_clock: policy.limits.get(LimitName::WallClock),
            channel: Rc::clone(channel),
            journal: store.journal(run),
        });
        let memory = bulk::seal(&task.to_vec())?;
        direct.start(peer, interaction, origin, &memory, &output_end, &errors)?;
        Ok(Some((Work::Direct(Box::new(direct)), Some(output))))
    }

    fn no_turn(&self) -> Trouble {
        match (&self.job.turn, &self.store) {
            (Err(trouble), _) | (_, Err(trouble)) => trouble.clone(),
            (Ok(_), Ok(_)) => Trouble::new(Code::SandboxUnavailable, "try again"),
        }
    }

    /// What a test says before its run begins.
    pub(super) fn test_steps(&self, run: RunId) -> Vec<String> {
        let policy = &self.job.policy;
        let Ok(turn) = &self.job.turn else { return Vec::new() };
        let agent = match &turn.installed {
            Some(installed) => format!("agent: {} at {}", policy.agent.as_str(), installed.program.display()),
            None => format!("agent: {}", policy.agent.as_str()),
        };
        let model = match &turn.model {
            Some(model) => format!("model: {} at {}", model.policy.model.as_str(), model.upstream),
            None => "model: none".to_owned(),
        };
        let hosts: Vec<&str> = policy.hosts.iter().map(ipc_proto::HostName::as_str).collect();
        let hosts = if hosts.is_empty() { "no host".to_owned() } else { hosts.join(", ") };
        let read = format!("an answer has at most {MAX_OUTPUT} bytes");
        vec![agent, model, format!("egress: {hosts}"), format!("run: {run}, uncounted; {read}")]
    }
}

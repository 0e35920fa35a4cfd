//! The last of a run in the foreground: its chain sealed, its record written, its operator told.

use super::super::answer::tame;
use super::*;

impl Foreground {
    pub(super) fn finish(&mut self) -> Result<u8, Fatal> {
        if self.job.probe_only {
            return Ok(self.failed.map_or(0, |code| Ended::Failed(code).exit_status()));
        }
        let Some(mut run) = self.unstarted_or_run() else { return Ok(crate::error::STATUS_FAILED) };
        if let Some(code) = self.failed {
            run.failed(code);
        }
        let ended = self.tell_answer(run.ended())?;
        let (record, sealed) = run.close("run.ended", ended);
        let not_started = run.not_started(ended);
        self.say(&not_started);
        if !self.job.quiet {
            let text = summary::refusals(self.job.run, &record.egress);
            self.say(&text);
            let text = run.requests.refusals(self.job.run);
            self.say(&text);
        }
        if let Some(model) = &self.job.model {
            let text = run.requests.failures(self.job.run, model);
            self.say(&text);
        }
        if let Some(file) = &mut self.record {
            let mut text = serde_json::to_vec(&record).map_err(std::io::Error::other)?;
            text.push(b'\n');
            // A pipe or a terminal cannot be cut, and needs not to be.
            let _ = file.set_len(0);
            file.write_all(&text)?;
        }
        sealed?;
        Ok(ended.exit_status())
    }

    /// The run; one that its probe kept from starting has an end and a record all the same.
    fn unstarted_or_run(&mut self) -> Option<Run> {
        if let Some(run) = self.run.take() {
            return Some(run);
        }
        let (chain, stdio, control_group) = self.waiting.take()?;
        let journal = Box::new(OwnChain { chain: Some(Chain::new(chain)), due: None });
        let walls = std::mem::take(&mut self.walls);
        let (job, lines) = (self.job.clone(), Rc::clone(&self.lines));
        Some(Run::new(Parts { job, origin: Value::Null, lines, journal, stdio, control_group, walls }))
    }

    /// The agent's answer, where one is read from its output. An agent that ends well without one has failed all the same.
    fn tell_answer(&mut self, ended: Ended) -> Result<Ended, Fatal> {
        let Some(mut output) = self.output.take() else { return Ok(ended) };
        let Ended::Status(status) = ended else { return Ok(ended) };
        let mut text = match output.finish() {
            Ok(text) => text,
            Err(why) => {
                self.say(&format!("anet: {}: {why}\n", self.job.agent));
                return Ok(Ended::Status(status.max(1)));
            }
        };
        let Some(operator) = &mut self.operator else { return Ok(ended) };
        // What is written to a terminal must not steer it.
        if self.job.answer.is_some_and(|answer| answer.to_terminal) {
            text = tame(&text);
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        match operator.write_all(text.as_bytes()) {
            // A reader that went away has read enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            Ok(()) | Err(_) => Ok(ended),
        }
    }
}

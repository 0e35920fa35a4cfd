//! What is said to the process outside of the sandbox, and what it says.

use std::os::fd::AsFd;

use ipc_proto::Received;

use super::*;
use crate::node::hearing::unexpected;

impl Node {
    pub(in crate::node) fn hear_outside(&mut self) -> Result<(), Fatal> {
        let Some(channel) = &self.desk.outside else { return Ok(()) };
        let message = match channel.try_receive()? {
            Received::Message(message, _) => message,
            Received::Empty => return Ok(()),
            Received::Closed => return Err(Fatal::Gone("anet-outside")),
        };
        let run = match &message {
            FromOutside::Hello if !self.desk.outside_hello => {
                self.desk.outside_hello = true;
                return self.ready_if_all_are();
            }
            FromOutside::Hello => return Err(unexpected(&message)),
            FromOutside::Notified { event, well } => {
                if !well {
                    let line = format!("the notify command failed for event {event}");
                    self.say(&line);
                }
                return Ok(());
            }
            FromOutside::Swept { removed, left } => {
                if *left > 0 {
                    let line =
                        format!("{left} old direct work directories could not be removed ({removed} were)");
                    self.say(&line);
                }
                return Ok(());
            }
            FromOutside::Failed { run, text } => {
                let line = format!("{run}: the agent cannot be started outside of the sandbox: {text}");
                let run = *run;
                self.say(&line);
                run
            }
            FromOutside::Started { run } | FromOutside::Exited { run, .. } => *run,
        };
        match self.desk.turns.get_mut(&run).map(|turn| &mut turn.work) {
            Some(Work::Direct(direct)) => direct.hear(&message),
            Some(Work::Run(_)) | None => Err(unexpected(&message)),
        }
    }

    /// An event for the operator's `notify` command, one JSON object.
    pub(in crate::node) fn notify(&mut self, event: &str, mut body: Value) -> Result<(), Fatal> {
        let Some(channel) = self.desk.outside.as_ref().filter(|_| self.job.outside.notify) else {
            return Ok(());
        };
        if let Some(body) = body.as_object_mut() {
            body.insert("event".to_owned(), Value::String(event.to_owned()));
            body.insert("time".to_owned(), Value::String(crate::chain::rfc3339(SystemTime::now())));
        }
        let mut text = body.to_string();
        text.push('\n');
        let memory = confine::memory::sealed(c"anet-event", &[text.as_bytes()])
            .map_err(|errno| Fatal::System { what: "memory for an event", errno })?;
        self.desk.events += 1;
        Ok(channel.send(&ToOutside::Notify { event: self.desk.events }, &[memory.as_fd()])?)
    }

    /// The same, once in a row: what goes on being so is told when it begins.
    pub(in crate::node) fn notify_once(&mut self, event: &str, of: &str, body: Value) -> Result<(), Fatal> {
        let name = format!("{event} {of}");
        if self.desk.last_event.as_ref() == Some(&name) {
            return Ok(());
        }
        self.desk.last_event = Some(name);
        self.notify(event, body)
    }

    /// FS-3, for what agents outside of the sandbox left.
    pub(in crate::node) fn sweep_outside(&self, older_than: u64) -> Result<(), Fatal> {
        if let Some(channel) = &self.desk.outside {
            channel.send(&ToOutside::Sweep { older_than }, &[])?;
        }
        Ok(())
    }
}

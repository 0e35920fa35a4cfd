//! EGR-1: a host is added only after a person at a terminal has said so.

use std::io::{BufRead, Write};

use ipc_proto::Code;
use rustix::stdio::{stderr, stdin};
use rustix::termios::{QueueSelector, isatty, tcflush};
use supervisor::error::Trouble;

/// What has to be typed.
const WORD: &str = "yes";

/// Where the question is put.
pub(super) trait Person {
    /// Whether somebody sits there.
    fn is_there(&self) -> bool;
    /// Shows the question, and reads one line.
    fn answer(&mut self, question: &str) -> std::io::Result<String>;
}

/// Standard input and standard error, where both are a terminal.
pub(super) struct Terminal;

impl Person for Terminal {
    fn is_there(&self) -> bool {
        isatty(stdin()) && isatty(stderr())
    }

    fn answer(&mut self, question: &str) -> std::io::Result<String> {
        // What was typed before the question answers another one.
        let _ = tcflush(stdin(), QueueSelector::IFlush);
        let mut output = std::io::stderr().lock();
        output.write_all(question.as_bytes())?;
        output.flush()?;
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        Ok(line)
    }
}

/// Asks about the hosts, all at once.
///
/// # Errors
/// [`Code::BadOption`] when nobody is there, or says anything but yes.
pub(super) fn confirm(person: &mut impl Person, hosts: &[String]) -> Result<(), Trouble> {
    if hosts.is_empty() {
        return Ok(());
    }
    let refused = |why: String| Trouble::new(Code::BadOption, format!("{why}; nothing was changed"));
    if !person.is_there() {
        return Err(refused(format!(
            "--egress-allow would add {}, which needs a confirmation typed on a terminal; call it from one",
            hosts.join(", ")
        )));
    }
    let answer = person
        .answer(&question(hosts))
        .map_err(|error| refused(format!("the terminal cannot be read ({error})")))?;
    if answer.trim() == WORD { Ok(()) } else { Err(refused(format!("not confirmed with {WORD}"))) }
}

fn question(hosts: &[String]) -> String {
    let list: String = hosts.iter().map(|host| format!("  {host}\n")).collect();
    let what = if hosts.len() == 1 { "this host" } else { "these hosts" };
    format!(
        "From the next run on, agents that work on tasks of others may reach {what}:\n{list}An allowed host is a way out for \
         whatever a run knows.\nType {WORD} to allow {what}: "
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Somebody(Option<&'static str>, String);

    impl Person for Somebody {
        fn is_there(&self) -> bool {
            self.0.is_some()
        }
        fn answer(&mut self, question: &str) -> std::io::Result<String> {
            question.clone_into(&mut self.1);
            Ok(self.0.unwrap_or_default().to_owned())
        }
    }

    /// EGR-1: only the whole word, only of somebody who is there; every host is named; where none is added nobody is asked.
    #[test]
    fn a_host_needs_a_person_who_says_yes() {
        let hosts = ["a.example.com".to_owned(), "b.example.com".to_owned()];
        for (says, agreed) in [
            (Some("yes\n"), true),
            (Some(" yes \n"), true),
            (Some("y\n"), false),
            (Some("YES\n"), false),
            (Some("yes please\n"), false),
            (Some("no\n"), false),
            (Some("\n"), false),
            (Some(""), false),
            (None, false),
        ] {
            let mut person = Somebody(says, String::new());
            let told = confirm(&mut person, &hosts);
            assert_eq!(told.is_ok(), agreed, "{says:?}");
            if says.is_some() {
                assert!(hosts.iter().all(|host| person.1.contains(host)), "{}", person.1);
            } else {
                assert!(told.unwrap_err().sentence.contains("terminal"));
            }
            assert!(confirm(&mut Somebody(says, String::new()), &[]).is_ok());
        }
    }
}

//! What stands in its place in a build without auto-reply: nothing is started outside of the sandbox.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use confine::sys::spawn::Starting;
use ipc_proto::Code;

use super::choices::Choices;
use super::prepare::Prepared;
use super::turn::Facts;
use crate::error::Trouble;
use crate::node::job::{Outside, Turn};

/// There is none.
#[derive(Debug)]
pub(super) enum Started {}

impl Started {
    /// An operator who has a `notify` command is told that nothing calls it.
    pub(super) fn prepare(
        facts: &Facts<'_>,
        _choices: &Choices,
        _turn: &Result<Turn, Trouble>,
        warnings: &mut Vec<Trouble>,
    ) -> Result<Option<Started>, Trouble> {
        if !facts.config.auto_reply.notify.is_empty() {
            let what = "this build of anet has no auto-reply, so auto_reply.notify is not called; remove it, or use a build \
                        with the feature auto-reply";
            warnings.push(Trouble::new(Code::NoAutoReply, what));
        }
        Ok(None)
    }

    pub(super) fn program(&self) -> &CString {
        match *self {}
    }

    pub(super) fn offers(&self) -> Outside {
        match *self {}
    }

    pub(super) fn start(&self, _prepared: &Prepared, _end: &OwnedFd) -> Result<Starting, Trouble> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::path::Path;

    use confine::sys::spawn::Identity;
    use ipc_proto::limits::Limits;

    use super::super::super::Directories;
    use super::super::super::identity::Identities;
    use super::super::super::programs::Found;
    use super::super::keys::Keys;
    use super::super::turn;
    use super::*;
    use crate::config::parse;
    use crate::node::job::Mode;

    /// SEL-5: where auto-reply is left out a node needs neither an agent nor a model nor a key; it has what the sandbox is tried
    /// and old directories are removed with, starts nothing outside, and says so where somebody counts on it.
    #[test]
    fn left_out_means_no_agent_and_nothing_outside() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let directory = |name: &str| root.join(name);
        let directories = Directories {
            configuration: directory("config"),
            state: directory("state"),
            cache: directory("cache"),
            data: directory("data"),
        };
        for made in [&directories.state, &directories.cache] {
            std::fs::create_dir(made).unwrap();
        }
        let program = || CString::new("/bin/sh").unwrap();
        let programs = Found {
            supervisor: program(),
            launcher: program(),
            proxy: program(),
            broker: program(),
            terminal: program(),
            init: program(),
            bwrap: program(),
        };
        let run =
            Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
        for (text, warned) in [
            ("[auto_reply]\nagent = \"claude\"", 0),
            ("[auto_reply]\nbackend = \"openai\"\ntrusted = \"direct\"", 0),
            ("[auto_reply]\nagent = \"custom\"\nnotify = [\"/bin/true\"]", 1),
        ] {
            let config = parse(text).unwrap();
            let choices = Choices::of(&config, Mode::User, &directories).unwrap();
            let facts = Facts {
                config: &config,
                limits: &Limits::untrusted(),
                directories: &directories,
                programs: &programs,
                identities: Identities { launcher: None, supervisor: None, proxy: None, broker: None, run },
                root: &directories.sandboxed(),
                path: Path::new("/nowhere").as_os_str(),
                home: None,
                keys: &Keys::none(),
            };
            let made = turn::turn(&facts).map(|(turn, model)| {
                assert!(turn.installed.is_none() && turn.model.is_none() && model.is_none(), "{text}");
                turn
            });
            let root = directories.sandboxed();
            assert_eq!(
                made.as_ref().unwrap().plan.files.root.to_bytes(),
                root.as_os_str().as_encoded_bytes()
            );
            let mut warnings = Vec::new();
            assert!(Started::prepare(&facts, &choices, &made, &mut warnings).unwrap().is_none(), "{text}");
            let codes: Vec<Code> = warnings.iter().map(|trouble| trouble.code).collect();
            assert_eq!(codes, vec![Code::NoAutoReply; warned], "{text}");
        }
    }
}

//! What every process of anet is started from, and the starts that a run in the foreground and a node have in common: each
//! process gets its own ends of channels and nothing else.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use confine::sys::spawn::{Child, Command, Identity, Namespaces, Program, SpawnError, Starting};
use ipc_proto::broker::{BrokerPlan, FromBroker, ToBroker};
use ipc_proto::dial::{FromDialer, ToDialer};
use ipc_proto::proxy::ProxyPlan;
use ipc_proto::{Channel, Code, Upstream, bulk, descriptors};

use super::identity::Identities;
use super::programs::Found;
use crate::error::Trouble;

/// What every process is started from.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) programs: Found,
    pub(super) identities: Identities,
    pub(super) null: OwnedFd,
    /// What the processes that serve the supervisor say of themselves: for who asked for it.
    pub(super) chatter: File,
}

/// The launcher, before and after it is known to run.
pub(super) enum Launched {
    Starting(Starting),
    Running(Child),
}

/// The broker's own ends, and the proxy's of the channel between the two.
pub(super) struct BrokerEnds {
    channel: OwnedFd,
    dialer: OwnedFd,
    /// The proxy's.
    pub(super) proxy: OwnedFd,
}

impl BrokerEnds {
    /// The supervisor's end first.
    pub(super) fn make() -> Result<(OwnedFd, BrokerEnds), Trouble> {
        let (near, far) = Channel::<ToBroker, FromBroker>::pair().map_err(channel)?;
        let (dialer, proxy) = Channel::<ToDialer, FromDialer>::pair().map_err(channel)?;
        let ends = BrokerEnds { channel: far.into_fd(), dialer: dialer.into_fd(), proxy: proxy.into_fd() };
        Ok((near.into_fd(), ends))
    }
}

impl Ground {
    /// What all of them have in common: nothing of ours but what is given, and no life after ours.
    pub(super) fn command<'a>(
        &'a self,
        program: &CStr,
        name: &'static CStr,
        mut given: Vec<(BorrowedFd<'a>, RawFd)>,
        identity: Option<Identity>,
    ) -> Command<'a> {
        given.extend((0..3).map(|number| (self.null.as_fd(), number)));
        let mut command = Command::new(Program::Path(program.to_owned()));
        command.argv = vec![CString::from(name)];
        command.descriptors = given;
        command.identity = identity;
        command.parent_death_signal = true;
        command.new_session = true;
        command.no_new_privs = true;
        command.working_directory = Some(CString::from(c"/"));
        command
    }

    /// The launcher: process 1 of namespaces of its own, where this host lets us make them. Says whether it is.
    pub(super) fn start_launcher(&self, channel: &OwnedFd, apart: bool) -> Result<(Launched, bool), Trouble> {
        let given = vec![(channel.as_fd(), descriptors::CHANNEL), (self.chatter.as_fd(), descriptors::LOG)];
        let mut command =
            self.command(&self.programs.launcher, c"anet-launcher", given, self.identities.launcher);
        if apart {
            // Namespaces without a user namespace are root's to make.
            command.namespaces =
                Namespaces { user: !rustix::process::geteuid().is_root(), pid: true, proc: true, net: true };
        }
        if !apart {
            // Whatever loses its parent becomes our child then, so that none is out of reach.
            let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        }
        match command.start() {
            Err(SpawnError::NamespacesRefused { .. }) if apart => self.start_launcher(channel, false),
            Ok(starting) => Ok((Launched::Starting(starting), apart)),
            Err(error) => Err(not_started("anet-launcher", &error)),
        }
    }

    /// Until the launcher runs; without namespaces of its own where it turned out that there are none.
    pub(super) fn confirm_launcher(
        &self,
        launcher: Launched,
        channel: &OwnedFd,
        apart: &mut bool,
    ) -> Result<Child, Trouble> {
        let starting = match launcher {
            Launched::Running(child) => return Ok(child),
            Launched::Starting(starting) => starting,
        };
        match starting.confirm() {
            Err(SpawnError::NamespacesRefused { .. }) => {
                let (again, _) = self.start_launcher(channel, false)?;
                *apart = false;
                match again {
                    Launched::Running(child) => Ok(child),
                    Launched::Starting(starting) => confirm("anet-launcher", starting),
                }
            }
            other => other.map_err(|error| not_started("anet-launcher", &error)),
        }
    }

    /// The proxy, with its end of the channel to the broker where there is a model service.
    pub(super) fn start_proxy(
        &self,
        channel: &OwnedFd,
        upstream: Option<Upstream>,
        broker: Option<&BrokerEnds>,
    ) -> Result<Starting, Trouble> {
        let broker = broker.filter(|_| upstream.is_some());
        let plan = seal(&ProxyPlan { upstream })?;
        let mut given = vec![
            (channel.as_fd(), descriptors::CHANNEL),
            (self.chatter.as_fd(), descriptors::LOG),
            (plan.as_fd(), descriptors::PLAN),
        ];
        given.extend(broker.map(|ends| (ends.proxy.as_fd(), descriptors::DIAL)));
        self.command(&self.programs.proxy, c"anet-proxy", given, self.identities.proxy)
            .start()
            .map_err(|error| not_started("anet-proxy", &error))
    }

    /// The broker, with the keys, of which the guard keeps nothing.
    pub(super) fn start_broker(
        &self,
        ends: &BrokerEnds,
        plan: &BrokerPlan,
        key: Option<OwnedFd>,
        signing: Option<&File>,
    ) -> Result<Starting, Trouble> {
        let sealed = seal(plan)?;
        let mut given = vec![
            (ends.channel.as_fd(), descriptors::CHANNEL),
            (self.chatter.as_fd(), descriptors::LOG),
            (sealed.as_fd(), descriptors::PLAN),
        ];
        given.extend(plan.upstream.as_ref().map(|_| (ends.dialer.as_fd(), descriptors::DIAL)));
        given.extend(key.as_ref().map(|key| (key.as_fd(), descriptors::KEY)));
        given.extend(signing.map(|file| (file.as_fd(), descriptors::SIGNING_KEY)));
        self.command(&self.programs.broker, c"anet-broker", given, self.identities.broker)
            .start()
            .map_err(|error| not_started("anet-broker", &error))
    }
}

/// A value in sealed memory.
pub(super) fn seal<T: serde::Serialize>(plan: &T) -> Result<OwnedFd, Trouble> {
    bulk::seal(plan).map_err(|error| Trouble::new(Code::BadOption, error.to_string()))
}

/// Until the program runs.
pub(super) fn confirm(name: &str, starting: Starting) -> Result<Child, Trouble> {
    starting.confirm().map_err(|error| not_started(name, &error))
}

/// The sentence for a program that was not started.
pub(super) fn not_started(name: &str, error: &SpawnError) -> Trouble {
    Trouble::new(Code::ProgramMissing, format!("{name}: {error}"))
}

/// The sentence for a channel that was not made.
pub(super) fn channel(error: ipc_proto::ChannelError) -> Trouble {
    Trouble::new(Code::ProcessDied, format!("{error}; see the limits on open files"))
}

/// The sentence for a pipe that was not made.
pub(super) fn channel_errno(errno: rustix::io::Errno) -> Trouble {
    Trouble::new(Code::ProcessDied, format!("no pipe could be made ({errno}); see the limits on open files"))
}

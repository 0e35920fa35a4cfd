//! `anet-broker`: the only process of anet that holds a key.
//!
//! Its life: take its descriptors, read which certificates are trusted, confine itself, read the key, serve until the
//! supervisor is gone.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::sync::Arc;

use broker::key::Key;
use broker::requests::Service;
use broker::service::{self, Facts};
use broker::upstream::{self, Dialer, Upstreams};
use broker::whose;
use confine::manifest::Role;
use confine::sys::inherited;
use ipc_proto::broker::{BrokerPlan, KeyState};
use ipc_proto::{Channel, ChannelError, bulk, descriptors};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("descriptor {number} is not there ({source}); anet-broker is started by anet, not by hand")]
    NotInherited { number: RawFd, source: rustix::io::Errno },
    #[error("the runtime could not be made: {0}")]
    Runtime(io::Error),
    #[error(transparent)]
    NotConfined(#[from] confine::Error),
    #[error(transparent)]
    Plan(#[from] bulk::BulkError),
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Service(#[from] service::Error),
    #[error("the proxy is gone")]
    NoProxy,
}

fn main() -> ExitCode {
    let mut log = inherited::take(descriptors::LOG).map(File::from).ok();
    match run(&mut log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&mut log, &error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn say(log: &mut Option<File>, text: &str) {
    if let Some(log) = log {
        // Nobody may be reading; where it matters the status says that it went wrong.
        let _ = writeln!(log, "anet-broker: {text}");
    }
}

fn take(number: RawFd) -> Result<OwnedFd, Error> {
    inherited::take(number).map_err(|source| Error::NotInherited { number, source })
}

fn run(log: &mut Option<File>) -> Result<(), Error> {
    let channel = Channel::from_fd(take(descriptors::CHANNEL)?)?;
    let dial = Channel::from_fd(take(descriptors::DIAL)?)?;
    let plan: BrokerPlan = bulk::open(take(descriptors::PLAN)?.as_fd())?;
    let key = if plan.has_key { Some(take(descriptors::KEY)?) } else { None };
    // The last files that this process opens.
    let Some(service) = plan.upstream else { return Ok(()) };
    let roots = upstream::system_roots();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
    let confined = confine::enter(Role::Broker, &confine::Paths::default())?;
    // From here on nobody of the same user can look inside, so that this is the moment for the key.
    let (key, state) = read_key(key, log);

    let facts = Facts {
        landlock: confined.landlock_abi,
        key: state,
        roots: u32::try_from(roots.len()).unwrap_or(u32::MAX),
    };
    let has_key = key.is_some() || service.is_loopback();
    let whose = whose::service(&service);
    runtime.block_on(LocalSet::new().run_until(async {
        let dialer = Dialer::new(dial).map_err(service::Error::from)?;
        let upstreams = Upstreams::new(dialer.clone(), service, key, Arc::new(roots));
        let served = service::serve(channel, Service { upstreams, whose, has_key }, facts);
        tokio::select! {
            biased;
            served = served => Ok(served?),
            dialled = dialer.run() => {
                dialled.map_err(service::Error::from)?;
                Err(Error::NoProxy)
            }
        }
    }))
}

fn read_key(source: Option<OwnedFd>, log: &mut Option<File>) -> (Option<Key>, KeyState) {
    let Some(source) = source else { return (None, KeyState::None) };
    match Key::read(source) {
        Ok(key) => {
            if !key.is_locked() {
                say(log, "the key's memory could not be locked (RLIMIT_MEMLOCK): it may be written to swap");
            }
            (Some(key), KeyState::Ready)
        }
        Err(error) => {
            say(log, &error.to_string());
            (None, error.state())
        }
    }
}

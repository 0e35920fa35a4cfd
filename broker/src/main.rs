//! `anet-broker`: the only process of anet that holds a key.
//!
//! Its life: take its descriptors, read the signing key, read which certificates are trusted, confine itself, read the model
//! service's key, serve until the supervisor is gone.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::sync::Arc;

use broker::key::Key;
use broker::requests::Service;
use broker::service::{self, Facts};
use broker::signing::{Signer, SigningError};
use broker::upstream::{self, Dialer, Upstreams};
use broker::whose;
use confine::manifest::Role;
use confine::sys::inherited;
use ipc_proto::broker::{BrokerPlan, KeyState};
use ipc_proto::{Channel, ChannelError, Upstream, bulk, descriptors};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustls::RootCertStore;
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
    #[error(transparent)]
    Signing(#[from] SigningError),
    #[error("the signing key's memory cannot be closed to others ({0}), so it is not read")]
    Dumpable(rustix::io::Errno),
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

/// The service that runs reach, before anything was asked of it.
struct Model {
    upstream: Upstream,
    dial: OwnedFd,
    key: Option<OwnedFd>,
}

fn run(log: &mut Option<File>) -> Result<(), Error> {
    let channel = Channel::from_fd(take(descriptors::CHANNEL)?)?;
    let plan: BrokerPlan = bulk::open(take(descriptors::PLAN)?.as_fd())?;
    let model = match plan.upstream {
        Some(upstream) => {
            let key = if plan.has_key { Some(take(descriptors::KEY)?) } else { None };
            Some(Model { upstream, dial: take(descriptors::DIAL)?, key })
        }
        None => None,
    };
    let signer = if plan.signs { Some(signer(log)?) } else { None };
    // The last files that this process opens.
    let roots = model.as_ref().map(|_| upstream::system_roots()).unwrap_or_else(RootCertStore::empty);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
    let confined = confine::enter(Role::Broker, &confine::Paths::default())?;
    let mut facts = Facts {
        landlock: confined.landlock_abi,
        key: KeyState::None,
        roots: u32::try_from(roots.len()).unwrap_or(u32::MAX),
        signing: signer.as_ref().map(Signer::public),
    };
    let Some(Model { upstream, dial, key }) = model else {
        let local = LocalSet::new();
        return Ok(runtime.block_on(local.run_until(service::serve(channel, None, signer, facts)))?);
    };
    // From here on nobody of the same user can look inside, so that this is the moment for the key.
    let (key, state) = read_key(key, log);
    facts.key = state;
    let has_key = key.is_some() || upstream.is_loopback();
    let whose = whose::service(&upstream);
    let dial = Channel::from_fd(dial)?;
    runtime.block_on(LocalSet::new().run_until(async {
        let dialer = Dialer::new(dial).map_err(service::Error::from)?;
        let upstreams = Upstreams::new(dialer.clone(), upstream, key, Arc::new(roots));
        let service = Service::new(upstreams, whose, has_key);
        let served = service::serve(channel, Some(service), signer, facts);
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

/// The signing key is read, and made where there is none, before the process may write no file any more; but not before its
/// memory is closed to neighbours.
fn signer(log: &mut Option<File>) -> Result<Signer, Error> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Error::Dumpable)?;
    let signer = Signer::open(take(descriptors::SIGNING_KEY)?)?;
    if !signer.is_locked() {
        say(log, "the signing key's memory could not be locked (RLIMIT_MEMLOCK): it may be written to swap");
    }
    Ok(signer)
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

//! `anet-proxy`: the only process of anet with a network.
//!
//! Its life: take the channels and its plan, read which name servers there are, confine itself, serve until the supervisor
//! is gone.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use confine::manifest::Role;
use confine::sys::inherited;
use ipc_proto::bulk::{self, BulkError};
use ipc_proto::proxy::ProxyPlan;
use ipc_proto::{Channel, ChannelError, Upstream, descriptors};
use proxy::reach::Internet;
use proxy::resolve::{Names, name_servers};
use proxy::service;
use proxy::upstream::Broker;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

/// Where the system says which name servers there are.
const RESOLV_CONF: &str = "/etc/resolv.conf";

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("descriptor {number} is not there ({source}); anet-proxy is started by anet, not by hand")]
    NotInherited { number: i32, source: rustix::io::Errno },
    #[error(transparent)]
    Plan(#[from] BulkError),
    #[error("the runtime could not be made: {0}")]
    Runtime(io::Error),
    #[error("the resolver could not be made: {0}")]
    Resolver(#[from] hickory_resolver::net::NetError),
    #[error(transparent)]
    NotConfined(#[from] confine::Error),
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Service(#[from] service::Error),
}

fn main() -> ExitCode {
    let log = inherited::take(descriptors::LOG).map(File::from);
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Ok(mut log) = log {
                // Nobody may be reading; the status says that it went wrong.
                let _ = writeln!(log, "anet-proxy: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let channel = Channel::from_fd(take(descriptors::CHANNEL)?)?;
    let plan: ProxyPlan = bulk::open(take(descriptors::PLAN)?.as_fd())?;
    let ports: Vec<u16> = plan.upstream.iter().map(Upstream::port).collect();
    let broker = match plan.upstream {
        Some(service) => Some(Broker { channel: Channel::from_fd(take(descriptors::DIAL)?)?, service }),
        None => None,
    };
    let servers = system_name_servers();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
    let confined =
        confine::enter(Role::Proxy, &confine::Paths { ports: &ports, ..confine::Paths::default() })?;
    let internet = Internet::new(Names::new(&servers)?);
    let service = service::serve(channel, internet, confined.landlock_abi, broker);
    runtime.block_on(LocalSet::new().run_until(service))?;
    Ok(())
}

fn take(number: i32) -> Result<OwnedFd, Error> {
    inherited::take(number).map_err(|source| Error::NotInherited { number, source })
}

/// Read once, before the process has no files any more. A file that is missing means the local host, as to glibc.
fn system_name_servers() -> Vec<IpAddr> {
    name_servers(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default())
}

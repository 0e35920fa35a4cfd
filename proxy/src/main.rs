//! `anet-proxy`: the only process of anet with a network.
//!
//! Its life: take the channel, read which name servers there are, confine itself, serve until the supervisor is gone.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;

use confine::manifest::Role;
use confine::sys::inherited;
use ipc_proto::{Channel, ChannelError, descriptors};
use proxy::reach::Internet;
use proxy::resolve::{Names, name_servers};
use proxy::service;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

/// Where the system says which name servers there are.
const RESOLV_CONF: &str = "/etc/resolv.conf";

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("descriptor {number} is not there ({source}); anet-proxy is started by anet, not by hand")]
    NotInherited { number: i32, source: rustix::io::Errno },
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
    let number = descriptors::CHANNEL;
    let channel = inherited::take(number).map_err(|source| Error::NotInherited { number, source })?;
    let channel = Channel::from_fd(channel)?;
    let servers = system_name_servers();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
    let confined = confine::enter(Role::Proxy, &confine::Paths::default())?;
    let internet = Internet::new(Names::new(&servers)?);
    let service = service::serve(channel, internet, confined.landlock_abi);
    runtime.block_on(LocalSet::new().run_until(service))?;
    Ok(())
}

/// Read once, before the process has no files any more. A file that is missing means the local host, as to glibc.
fn system_name_servers() -> Vec<IpAddr> {
    name_servers(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default())
}

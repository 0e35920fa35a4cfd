//! The outside half of the probe: what really listens while the sandbox tries to reach it, and what a result holds
//! for (PRB-1, PRB-2).

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::SystemTime;

use ipc_proto::Code;
use ipc_proto::init::{NamespaceId, NamespaceKind, ProbePlan};
use sha2::{Digest, Sha256};

use super::Directories;
use super::open::system;
use super::programs::Found;
use crate::chain::hex;
use crate::error::{Trouble, one_line};
use crate::run::{PROBE_FILE_LIMIT, probe_remembered};

/// A sandbox that can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// When it was tried.
    pub at: SystemTime,
}

/// The host's half.
#[derive(Debug)]
pub(super) struct Listeners {
    tcp: Vec<TcpListener>,
    _abstract_socket: UnixListener,
    name: Vec<u8>,
}

impl Listeners {
    /// Listens on the host's loopback, IPv6 where there is one, and on an abstract socket.
    pub(super) fn open() -> Result<Listeners, Trouble> {
        let four =
            TcpListener::bind("127.0.0.1:0").map_err(|error| system("a port for the probe", &error))?;
        let mut tcp = vec![four];
        tcp.extend(TcpListener::bind("[::1]:0").ok());
        let mut chance = [0u8; 16];
        let _ = rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::empty());
        let name = format!("anet-probe-{}", hex(&chance)).into_bytes();
        let socket = SocketAddr::from_abstract_name(&name)
            .and_then(|address| UnixListener::bind_addr(&address))
            .map_err(|error| system("an abstract socket for the probe", &error))?;
        Ok(Listeners { tcp, _abstract_socket: socket, name })
    }

    /// What the sandbox tries.
    pub(super) fn plan(&self, outside: Vec<NamespaceId>) -> ProbePlan {
        ProbePlan {
            tcp: self.tcp.iter().filter_map(|listener| listener.local_addr().ok()).collect(),
            abstract_sockets: vec![self.name.clone()],
            outside,
        }
    }
}

/// The namespaces of this process, which a sandbox must not share.
pub(super) fn namespaces() -> Result<Vec<NamespaceId>, Trouble> {
    NamespaceKind::ALL
        .into_iter()
        .map(|kind| {
            let path = format!("/proc/self/ns/{}", kind.as_str());
            let found = fs::metadata(&path).map_err(|error| system(&path, &error))?;
            Ok(NamespaceId { kind, device: found.dev(), inode: found.ino() })
        })
        .collect()
}

/// What a result holds for: bubblewrap, anet, the kernel since its start, the configuration, the run's user.
pub(super) fn key(programs: &Found, user: u32, config: &str) -> Result<String, Trouble> {
    let mut hasher = Sha256::new();
    for program in [&programs.bwrap, &programs.init, &programs.launcher] {
        let path = std::path::Path::new(program.to_str().unwrap_or_default());
        let found = match fs::metadata(path) {
            // A node that comes up without it has no sandbox to try, until it comes up with it.
            Err(_) if program == &programs.bwrap => continue,
            found => found.map_err(|error| system(&path.display().to_string(), &error))?,
        };
        hasher.update(program.as_bytes_with_nul());
        for number in [found.dev(), found.ino(), found.size(), found.mode().into(), found.uid().into()] {
            hasher.update(number.to_le_bytes());
        }
        for time in [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()] {
            hasher.update(time.to_le_bytes());
        }
    }
    let kernel = rustix::system::uname();
    hasher.update(kernel.release().to_bytes_with_nul());
    hasher.update(kernel.version().to_bytes_with_nul());
    hasher.update(fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default());
    hasher.update(config.as_bytes());
    hasher.update(user.to_le_bytes());
    Ok(hex(&hasher.finalize()))
}

/// The file that keeps the result.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) file: File,
    /// When the sandbox was found good, where that still holds.
    pub(super) good: Option<SystemTime>,
}

/// Opens it, and looks whether it still holds.
pub(super) fn open(directories: &Directories, user: u32, key: &str) -> Result<Kept, Trouble> {
    directories.make_chains()?;
    let path = directories.state.join(format!("probe-{user}"));
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0))
        .open(&path)
        .map_err(|error| {
            let what = format!("{} cannot be opened ({error}); remove it", path.display());
            Trouble::new(Code::StateUnusable, what)
        })?;
    let mut text = String::new();
    let read = (&mut file).take(PROBE_FILE_LIMIT).read_to_string(&mut text);
    let good = read.ok().and_then(|_| probe_remembered(&text, key, SystemTime::now()));
    file.rewind().map_err(|error| system("the probe's result", &error))?;
    Ok(Kept { file, good })
}

/// Memory for the troubles of a check.
pub(super) fn log_memory() -> Result<File, Trouble> {
    rustix::fs::memfd_create("anet-log", rustix::fs::MemfdFlags::CLOEXEC)
        .map(File::from)
        .map_err(|errno| system("memory", &errno.into()))
}

/// What a check's processes wrote: one line, `anet: CODE: sentence`.
pub(super) fn read_trouble(log: &File) -> Trouble {
    let mut text = String::new();
    let mut log = log;
    let _ = log.rewind();
    let _ = log.take(PROBE_FILE_LIMIT).read_to_string(&mut text);
    let said = text.lines().filter_map(|line| line.strip_prefix("anet: ")).find_map(|line| {
        let (code, sentence) = line.split_once(": ")?;
        Some(Trouble::new(Code::parse(code)?, sentence))
    });
    said.unwrap_or_else(|| {
        Trouble::new(
            Code::SandboxStartFailed,
            crate::explain::with_detail(Code::SandboxStartFailed, &one_line(&text)),
        )
    })
}

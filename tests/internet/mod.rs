//! The internet in a box: a network that exists for one test.
//!
//! ```text
//!   near (where anet runs)                       far (everything else there is)
//!   lo, NEAR_V4, NEAR_V6 ── veth ── FAR_V4, FAR_V6: any address at all is "local" here,
//!   /etc/resolv.conf and the certificate           one DNS server that can lie, one listener on 443
//!   store are this network's own                   for every address; whatever else is knocked at is noted
//! ```
//! Both sides are network namespaces that threads of this process hold; no file, no name and no process of the
//! machine is involved, so tests run in parallel, and the end of the process (or of the value) ends the network.
//! Addresses are globally routable ones, because the proxy refuses all others: the documentation ranges too.

mod authority;
mod dns;
mod namespace;
mod server;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

pub(crate) use authority::server_config;
pub use dns::{Answer, Dns, Query, Transport};
pub use server::{Host, Raw, Request, Response};

use crate::harness;
use namespace::Namespace;
use server::World;

/// The near side's own addresses: global ones, so that refusing them proves the rule "not the host's own".
pub const NEAR_V4: Ipv4Addr = Ipv4Addr::new(52, 95, 110, 2);
/// See [`NEAR_V4`].
pub const NEAR_V6: Ipv6Addr = Ipv6Addr::new(0x2600, 0x1f18, 0x77, 0, 0, 0, 0, 2);
const FAR_V4: Ipv4Addr = Ipv4Addr::new(52, 95, 110, 1);
const FAR_V6: Ipv6Addr = Ipv6Addr::new(0x2600, 0x1f18, 0x77, 0, 0, 0, 0, 1);
/// The DNS server that /etc/resolv.conf of the near side names.
pub const DNS_V4: Ipv4Addr = Ipv4Addr::new(45, 90, 28, 53);
/// Ports where a connection is noted although no service is there: what a wrongly open proxy would reach.
const STRAY_PORTS: [u16; 4] = [22, 80, 8080, 8443];

/// A network of its own for one test.
#[derive(Debug)]
pub struct Internet {
    near: Namespace,
    far: Namespace,
    dns: Dns,
    world: Arc<World>,
    files: tempfile::TempDir,
    hosts: AtomicU16,
}

impl Internet {
    /// A network, or None when this test was run (and passed) in a user namespace instead, because the harness is an
    /// ordinary user: then there is nothing left to do.
    pub fn new() -> Option<Internet> {
        if harness::reexec_in_namespace() {
            return None;
        }
        Some(Internet::build().unwrap_or_else(|e| panic!("the internet in a box cannot be built: {e}")))
    }

    fn build() -> std::io::Result<Internet> {
        let far = Namespace::network()?;
        let near = Namespace::network_and_mounts()?;
        let far_fd = format!("/proc/{}/fd/{}", std::process::id(), far.network_fd().as_raw_fd());
        near.enter(|| {
            namespace::ip(&format!(
                "link set lo up\n\
                 link add near0 type veth peer name far0 netns {far_fd}\n\
                 addr add {NEAR_V4}/24 dev near0\n\
                 addr add {NEAR_V6}/64 dev near0 nodad\n\
                 link set near0 up\n"
            ))
        })?;
        far.enter(|| {
            namespace::ip(&format!(
                "link set lo up\n\
                 addr add {FAR_V4}/24 dev far0\n\
                 addr add {FAR_V6}/64 dev far0 nodad\n\
                 addr add {DNS_V4}/32 dev lo\n\
                 link set far0 up\n\
                 route add local 0.0.0.0/0 dev lo table main\n\
                 route add local ::/0 dev lo table main\n"
            ))
        })?;
        // Routes only now: they need the other end to be up.
        near.enter(|| {
            namespace::ip(&format!("route add 0.0.0.0/0 via {FAR_V4}\nroute add ::/0 via {FAR_V6}\n"))
        })?;

        let world = Arc::new(World::default());
        let dns = far.enter(|| Dns::serve(DNS_V4, world.stop()))?;
        far.enter(|| -> std::io::Result<()> {
            // Dual stack: Linux gives IPv4 connections to it too, with mapped addresses.
            world.serve(TcpListener::bind((Ipv6Addr::UNSPECIFIED, 443))?);
            for port in STRAY_PORTS {
                world.note_strays(TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?);
            }
            Ok(())
        })?;

        let files = tempfile::Builder::new().prefix("anet-net-").tempdir_in("/tmp")?;
        std::fs::set_permissions(files.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let net = Internet { near, far, dns, world, files, hosts: AtomicU16::new(1) };
        net.replace_file("/etc/resolv.conf", format!("nameserver {DNS_V4}\n").as_bytes());
        net.replace_file("/etc/ssl/certs/ca-certificates.crt", authority::certificate_pem().as_bytes());
        Ok(net)
    }

    /// Runs this on a thread of the near side: what it starts and opens is there.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.near.enter(work)
    }

    /// Runs this on a thread of the far side.
    pub fn outside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.far.enter(work)
    }

    /// The name server.
    pub fn dns(&self) -> &Dns {
        &self.dns
    }

    /// A host with an address of each family, known to the name server, that answers HTTPS requests.
    pub fn https(&self, name: &str, handler: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Host {
        let host = self.named(name);
        self.world.add_https(&host, handler);
        host
    }

    /// A host whose connections are given to this function as they are, from the first byte.
    pub fn raw(&self, name: &str, handler: impl Fn(Raw) + Send + Sync + 'static) -> Host {
        let host = self.named(name);
        self.world.add_raw(&host, handler);
        host
    }

    /// The same at an IPv4 address of the caller's choice, such as a private one; it has no other.
    pub fn raw_at(
        &self,
        name: &str,
        address: Ipv4Addr,
        handler: impl Fn(Raw) + Send + Sync + 'static,
    ) -> Host {
        self.dns.a(name, &[address]);
        self.dns.set_aaaa(name, Answer::Addresses(Vec::new()));
        // An address that no name leads to, in the place of the one that it has not.
        let host = Host::new(name, address, Ipv6Addr::UNSPECIFIED);
        self.world.add_raw(&host, handler);
        host
    }

    /// The next unused addresses under a name, and the DNS records for them.
    fn named(&self, name: &str) -> Host {
        let number = self.hosts.fetch_add(1, Ordering::Relaxed);
        let [high, low] = number.to_be_bytes();
        let v4 = Ipv4Addr::new(151, 101, high, low);
        let v6 = Ipv6Addr::new(0x2a04, 0x4e42, 0, 0, 0, 0, 0, number);
        self.dns.a(name, &[v4]);
        self.dns.aaaa(name, &[v6]);
        Host::new(name, v4, v6)
    }

    /// Connections to an address or port that no host has: what a proxy without its checks would have made.
    pub fn strays(&self) -> Vec<SocketAddr> {
        self.world.strays()
    }

    /// From now on nobody can be reached at this address: the attempt fails at once.
    pub fn unreachable(&self, address: Ipv4Addr) {
        self.near.enter(|| namespace::ip(&format!("route add unreachable {address}/32\n"))).expect("a route");
    }

    /// From now on nobody answers at this address: the attempt waits.
    pub fn silent(&self, address: Ipv4Addr) {
        self.far.enter(|| namespace::ip(&format!("route add blackhole {address}/32\n"))).expect("a route");
    }

    /// Puts other bytes in the place of a file of the machine, for the near side only.
    pub fn replace_file(&self, path: impl AsRef<Path>, content: &[u8]) {
        let file =
            tempfile::Builder::new().tempfile_in(self.files.path()).expect("a file").into_temp_path().keep();
        let file = file.expect("a file");
        std::fs::write(&file, content).expect("content");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("mode");
        self.bind(&file, path);
    }

    /// Binds a file or directory over another one (whose links are followed), for the near side only.
    pub fn bind(&self, source: impl AsRef<Path>, target: impl AsRef<Path>) {
        let (source, target) = (source.as_ref().to_owned(), target.as_ref().to_owned());
        self.near.enter(move || {
            let target =
                std::fs::canonicalize(&target).unwrap_or_else(|e| panic!("{}: {e}", target.display()));
            namespace::bind(&source, &target)
                .unwrap_or_else(|e| panic!("bind over {}: {e}", target.display()));
        });
    }

    /// An empty directory over another one, for the near side only, in which mount points can be made.
    pub fn empty_dir_over(&self, target: impl AsRef<Path>) {
        let target = target.as_ref().to_owned();
        self.near.enter(move || namespace::tmpfs(&target).expect("a tmpfs"));
    }

    /// An empty directory of at most so many bytes over another one, for the near side only: a disk that fills up.
    pub fn small_disk_over(&self, target: impl AsRef<Path>, bytes: u64) {
        let target = target.as_ref().to_owned();
        self.near.enter(move || namespace::small(&target, bytes).expect("a small disk"));
    }

    /// Makes a directory of the machine one that the near side alone can change: files can be removed from it and come
    /// back.
    pub fn change_here(&self, target: impl AsRef<Path>) {
        let target = target.as_ref().to_owned();
        let make = || tempfile::Builder::new().tempdir_in(self.files.path()).expect("a directory").keep();
        let (upper, work) = (make(), make());
        std::fs::set_permissions(&upper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
        self.near.enter(move || namespace::overlay(&target, &upper, &work).expect("an overlay"));
    }

    /// Makes a directory one that the near side cannot write.
    pub fn read_only(&self, target: impl AsRef<Path>) {
        let target = target.as_ref().to_owned();
        self.near.enter(move || namespace::read_only(&target).expect("a read-only mount"));
    }

    /// Takes away what was mounted over a directory last.
    pub fn unmount(&self, target: impl AsRef<Path>) {
        let target = target.as_ref().to_owned();
        self.near.enter(move || namespace::unmount(&target).expect("unmount"));
    }

    /// A listener on the near side, which to anet is a service of the host: accepts, greets and counts.
    pub fn host_service(&self, address: IpAddr, port: u16) -> SocketAddr {
        let listener = self.inside(|| TcpListener::bind((address, port))).expect("a service of the host");
        let own = listener.local_addr().expect("its address");
        self.world.note_strays(listener);
        own
    }

    /// A UDP echo on the near side.
    pub fn host_echo(&self, address: IpAddr) -> SocketAddr {
        let socket = self.inside(|| UdpSocket::bind((address, 0))).expect("an echo of the host");
        let own = socket.local_addr().expect("its address");
        let stop = self.world.stop();
        socket.set_read_timeout(Some(server::POLL)).expect("time-out");
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(buffer.get(..length).unwrap_or_default(), peer);
                }
            }
        });
        own
    }
}

impl Drop for Internet {
    /// Threads hold namespaces: they are told to end, and a connection wakes those that wait for one.
    fn drop(&mut self) {
        self.world.stop().store(true, Ordering::Relaxed);
        self.far.enter(|| {
            for port in STRAY_PORTS.into_iter().chain([443]) {
                let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
            }
            let _ = TcpStream::connect((DNS_V4, 53));
        });
        for address in self.world.host_listeners() {
            self.near.enter(|| TcpStream::connect(address).map(drop).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests;

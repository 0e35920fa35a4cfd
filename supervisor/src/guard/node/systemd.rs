//! What the service manager hears: that the node serves, and that it stops (sd_notify(3)).

use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;

use sd_notify::NotifyState;

/// The way to it, opened before the guard may make no socket any more.
#[derive(Debug)]
pub(super) struct Manager(Option<UnixDatagram>);

impl Manager {
    /// Connects to whoever wants to hear, if anybody does. One that cannot be reached is nobody.
    pub(super) fn find() -> Manager {
        Manager(std::env::var_os("NOTIFY_SOCKET").and_then(|name| connect(name.as_bytes())))
    }

    /// The node serves.
    pub(super) fn ready(&self) {
        self.tell(&[NotifyState::Ready, NotifyState::Status("serving")]);
    }

    /// The node ends.
    pub(super) fn stopping(&self) {
        self.tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        let Manager(Some(socket)) = self else { return };
        let text: String = states.iter().map(|state| format!("{state}\n")).collect();
        // Who does not listen any more is not waiting either.
        let _ = socket.send(text.as_bytes());
    }
}

/// An absolute path, or an abstract name, written with an `@`.
fn connect(name: &[u8]) -> Option<UnixDatagram> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    let address = match name.split_first()? {
        (b'@', name) => SocketAddr::from_abstract_name(name).ok()?,
        (b'/', _) => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)).ok()?,
        _ => return None,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address).ok()?;
    // A manager that reads nothing does not hold the node up.
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    use super::*;

    /// The manager hears it by either kind of name; where there is none, nothing happens.
    #[test]
    fn the_manager_hears_of_readiness_and_end() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let abstract_name = format!("anet-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(abstract_name.as_bytes()).unwrap();
        let listeners = [
            (path.as_os_str().as_bytes().to_vec(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{abstract_name}").into_bytes(), UnixDatagram::bind_addr(&address).unwrap()),
        ];
        for (name, listener) in listeners {
            let manager = Manager(connect(&name));
            let mut heard = [0u8; 64];
            manager.ready();
            let length = listener.recv(&mut heard).unwrap();
            assert_eq!(&heard[..length], b"READY=1\nSTATUS=serving\n");
            manager.stopping();
            let length = listener.recv(&mut heard).unwrap();
            assert_eq!(&heard[..length], b"STOPPING=1\nSTATUS=stopping\n");
        }
        for name in [&b""[..], b"relative", b"/nowhere/at/all", b"@nobody"] {
            let manager = Manager(connect(name));
            assert!(manager.0.is_none());
            manager.ready();
        }
    }
}

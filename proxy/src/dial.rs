//! Connecting to one of the verified addresses of a host.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ipc_proto::proxy::Reason;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::address::PublicAddr;

/// How long all attempts together may take.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// How long one address is waited for before the next is tried beside it (RFC 8305, section 5).
const STAGGER: Duration = Duration::from_millis(250);

/// Connects to the first address that answers. Nothing but an address that was verified in this request can be named.
///
/// # Errors
/// [`Reason::ConnectTimeout`] or [`Reason::ConnectFailed`].
pub async fn dial(addresses: &[PublicAddr]) -> Result<(TcpStream, PublicAddr), Reason> {
    let order = interleave(addresses);
    let sockets = order.iter().map(|address| address.socket()).collect::<Vec<_>>();
    let (stream, peer) = race(&sockets).await?;
    let address = order.into_iter().find(|address| address.socket() == peer).ok_or(Reason::ConnectFailed)?;
    Ok((stream, address))
}

/// The families in turn, IPv6 first (RFC 8305, section 4), each in the order of the answer.
fn interleave(addresses: &[PublicAddr]) -> Vec<PublicAddr> {
    let (v6, v4): (Vec<PublicAddr>, Vec<PublicAddr>) =
        addresses.iter().partition(|address| address.ip().is_ipv6());
    let (mut v6, mut v4) = (v6.into_iter(), v4.into_iter());
    let mut order = Vec::with_capacity(addresses.len());
    loop {
        let pair = [v6.next(), v4.next()];
        if pair == [None, None] {
            return order;
        }
        order.extend(pair.into_iter().flatten());
    }
}

/// Tries all addresses, each a little after the one before or as soon as that one failed; the first that stands wins.
async fn race(addresses: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), Reason> {
    let mut attempts = JoinSet::new();
    let mut waiting = addresses.iter().copied();
    let contest = async {
        let mut last = None;
        loop {
            let started = waiting.next().map(|address| attempts.spawn(connect(address))).is_some();
            if !started && attempts.is_empty() {
                return Err(last.unwrap_or(Reason::ConnectFailed));
            }
            tokio::select! {
                Some(done) = attempts.join_next() => match done {
                    Ok(Ok(connected)) => return Ok(connected),
                    Ok(Err(error)) => last = Some(reason(&error)),
                    Err(_) => last = Some(Reason::ConnectFailed),
                },
                () = sleep(STAGGER), if started => {}
            }
        }
    };
    timeout(DEADLINE, contest).await.unwrap_or(Err(Reason::ConnectTimeout))
}

async fn connect(address: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok((stream, address))
}

fn reason(error: &io::Error) -> Reason {
    if error.kind() == io::ErrorKind::TimedOut { Reason::ConnectTimeout } else { Reason::ConnectFailed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::PublicAddr;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn families_take_turns() {
        let public = |text: &str| PublicAddr::verify(text.parse().unwrap(), &[], |_| false).unwrap();
        let given: Vec<PublicAddr> =
            ["1.1.1.1", "1.0.0.1", "8.8.8.8", "2606:4700::1111"].into_iter().map(public).collect();
        let order: Vec<String> = interleave(&given).iter().map(|address| address.ip().to_string()).collect();
        assert_eq!(order, ["2606:4700::1111", "1.1.1.1", "1.0.0.1", "8.8.8.8"]);
    }

    /// An address that refuses costs no time when another accepts.
    #[test]
    fn the_next_address_is_tried_at_once_after_a_failure() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let started = std::time::Instant::now();
        let (_, peer) = runtime().block_on(race(&[dead, dead, good])).unwrap();
        assert_eq!(peer, good);
        assert!(started.elapsed() < STAGGER);
    }

    #[test]
    fn nobody_answers() {
        let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(runtime().block_on(race(&[dead, dead])).unwrap_err(), Reason::ConnectFailed);
        assert_eq!(runtime().block_on(race(&[])).unwrap_err(), Reason::ConnectFailed);
    }
}

//! Connecting to one of the verified addresses of a host.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use ipc_proto::proxy::Reason;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::address::VerifiedAddr;

/// How long all attempts together may take.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// How long one address is waited for before the next is tried beside it (RFC 8305, section 5).
const STAGGER: Duration = Duration::from_millis(250);

/// Connects to the first address that answers. Nothing but an address that was verified in this request can be named.
///
/// # Errors
/// [`Reason::ConnectTimeout`] or [`Reason::ConnectFailed`].
pub async fn dial(addresses: &[VerifiedAddr]) -> Result<(TcpStream, VerifiedAddr), Reason> {
    let order = interleave(addresses);
    let sockets = order.iter().map(|address| address.socket()).collect::<Vec<_>>();
    let (stream, peer) = race(&sockets).await?;
    let address = order.into_iter().find(|address| address.socket() == peer).ok_or(Reason::ConnectFailed)?;
    Ok((stream, address))
}

/// The families in turn, IPv6 first (RFC 8305, section 4), each in the order of the answer.
fn interleave(addresses: &[VerifiedAddr]) -> Vec<VerifiedAddr> {
    let (v6, v4): (Vec<VerifiedAddr>, Vec<VerifiedAddr>) =
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
    let contest = async {
        let mut waiting = addresses.iter().copied().peekable();
        let mut attempts = Vec::new();
        let mut last = Reason::ConnectFailed;
        loop {
            attempts.extend(waiting.next().map(|address| Box::pin(connect(address))));
            if attempts.is_empty() {
                return Err(last);
            }
            tokio::select! {
                done = first_of(&mut attempts) => match done {
                    Ok(connected) => return Ok(connected),
                    Err(error) => last = reason(&error),
                },
                () = sleep(STAGGER), if waiting.peek().is_some() => {}
            }
        }
    };
    timeout(DEADLINE, contest).await.unwrap_or(Err(Reason::ConnectTimeout))
}

/// What the first of several is that is done; it is taken out. Of none: waits forever.
async fn first_of<F: Future + Unpin>(running: &mut Vec<F>) -> F::Output {
    std::future::poll_fn(|context| {
        let done =
            running.iter_mut().enumerate().find_map(|(place, future)| match Pin::new(future).poll(context) {
                Poll::Ready(output) => Some((place, output)),
                Poll::Pending => None,
            });
        let Some((place, output)) = done else { return Poll::Pending };
        drop(running.swap_remove(place));
        Poll::Ready(output)
    })
    .await
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
    use crate::address::VerifiedAddr;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn families_take_turns() {
        let public = |text: &str| VerifiedAddr::public(text.parse().unwrap(), &[], |_| false).unwrap();
        let given: Vec<VerifiedAddr> =
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

//! Bytes both ways, from kernel to kernel.
//!
//! splice(2) moves them from one socket through a pipe to the other without a copy into this process, which costs about
//! half the processor time of reading and writing, and says how many it moved, so that counts stay exact. What one
//! call may take is what the meter grants: the limit is the length of the call.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use ipc_proto::proxy::Reason;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::meter::{Direction, Grant, Meter};

/// The size of a pipe, in bytes: the default limit for an unprivileged user. Measured for 1 GiB on loopback, it takes
/// half the processor time of the default 64 KiB.
const PIPE: usize = 1 << 20;
/// How many bytes a direction carries before it gets a pipe.
const BULK: u64 = 64 * 1024;
/// How many bytes are read at once before that.
const CHUNK: usize = 16 * 1024;
/// How long a tunnel may be silent, both ways.
pub const IDLE: Duration = Duration::from_secs(600);
/// How long the other direction may go on after one was refused, so that what is under way arrives.
const GRACE: Duration = Duration::from_secs(2);

/// What a tunnel has carried.
#[derive(Default, Debug)]
pub struct Carried {
    out: Cell<u64>,
    back: Cell<u64>,
    refused: Cell<Option<Reason>>,
}

impl Carried {
    /// Bytes that went one way.
    #[must_use]
    pub fn get(&self, direction: Direction) -> u64 {
        self.cell(direction).get()
    }

    /// Counts bytes that left.
    pub fn add(&self, direction: Direction, bytes: u64) {
        let cell = self.cell(direction);
        cell.set(cell.get() + bytes);
    }

    /// Notes what the tunnel is refused for, at the moment that it is: the last words to both sides may take a while, and the
    /// run may end before they are said. The first reason counts.
    pub fn refuse(&self, reason: Reason) {
        if self.refused.get().is_none() {
            self.refused.set(Some(reason));
        }
    }

    /// What it was refused for.
    #[must_use]
    pub fn refused(&self) -> Option<Reason> {
        self.refused.get()
    }

    fn cell(&self, direction: Direction) -> &Cell<u64> {
        match direction {
            Direction::Out => &self.out,
            Direction::In => &self.back,
        }
    }
}

/// How one direction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The sender has no more.
    Finished,
    /// A connection broke.
    Broken,
    /// A limit or budget was reached, or a check failed, and more waits.
    Refused(Reason),
}

/// Relays until both sides have finished, one breaks, a limit is reached or nothing moves for [`IDLE`]. `up` and `down`
/// are the two directions, so that what must be read before may stand in front of [`pump`].
pub async fn relay(up: impl Future<Output = End>, down: impl Future<Output = End>, carried: &Carried) -> End {
    let both = async {
        let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
        tokio::select! {
            end = &mut up => join(end, down).await,
            end = &mut down => join(end, up).await,
        }
    };
    tokio::select! {
        end = both => end,
        () = silence(carried, IDLE) => End::Refused(Reason::Idle),
    }
}

/// What follows when one direction has ended.
async fn join(first: End, second: impl Future<Output = End>) -> End {
    match first {
        // A half-closed connection: the other direction may have much to say.
        End::Finished => second.await,
        End::Broken => End::Broken,
        End::Refused(_) => {
            // Its end does not matter any more: the first reason is the one that counts.
            let _ = timeout(GRACE, second).await;
            first
        }
    }
}

/// Ends between one and two periods after the last byte: no timer has to be moved for each one.
async fn silence(carried: &Carried, period: Duration) {
    let moved = || (carried.get(Direction::Out), carried.get(Direction::In));
    let mut before = moved();
    loop {
        sleep(period).await;
        let now = moved();
        if now == before {
            return;
        }
        before = now;
    }
}

/// Moves bytes one way until their end, and then says so to the receiver.
pub async fn pump(
    from: &TcpStream,
    to: &TcpStream,
    meter: &Meter,
    direction: Direction,
    carried: &Carried,
) -> End {
    let store = Store::Memory(Vec::new());
    let mut pump = Pump { from, to, meter, direction, carried, store, moved: 0, held: 0 };
    let end = pump.run().await.unwrap_or(End::Broken);
    if let End::Refused(reason) = end {
        carried.refuse(reason);
    }
    // The receiver gets all that was granted and then an end, not a reset that would take queued bytes with it.
    let _ = rustix::net::shutdown(to, rustix::net::Shutdown::Write);
    end
}

/// One direction.
struct Pump<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    meter: &'a Meter,
    direction: Direction,
    carried: &'a Carried,
    store: Store,
    /// Bytes that reached `to`.
    moved: u64,
    /// Bytes that left `from` and have not reached `to`: they are in the store, and taken from the meter.
    held: u64,
}

/// Where bytes are on their way.
enum Store {
    /// Here, for the first few: most tunnels carry a page or an answer, for which a pipe is not worth its making.
    Memory(Vec<u8>),
    /// In the kernel.
    Pipe(Pipe),
}

struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Refused when this user's pipes have used up their pages: then the default has to do.
        let _ = fcntl_setpipe_size(&into, PIPE);
        Ok(Pipe { out, into })
    }
}

impl Pump<'_> {
    async fn run(&mut self) -> io::Result<End> {
        loop {
            self.from.readable().await?;
            match self.meter.take(self.direction, PIPE as u64) {
                Grant::Bytes(granted) => match self.fill(granted) {
                    Ok(0) => return Ok(End::Finished),
                    Ok(_) => self.drain().await?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                },
                // Only a byte that waits makes a limit exceeded, and a lease needed.
                Grant::Empty | Grant::Refused(_) if !self.more_waits().await? => return Ok(End::Finished),
                Grant::Empty => self.meter.refill().await,
                Grant::Refused(reason) => return Ok(End::Refused(reason)),
            }
        }
    }

    /// Takes what the sender has into the store, which is empty: that nothing could be moved means that nothing was there.
    fn fill(&mut self, granted: u64) -> io::Result<usize> {
        if let Store::Memory(_) = self.store
            && self.moved >= BULK
            && let Ok(pipe) = Pipe::new()
        {
            self.store = Store::Pipe(pipe);
        }
        let from = self.from;
        let filled = match &mut self.store {
            Store::Memory(bytes) => {
                bytes.resize(usize::try_from(granted).unwrap_or(CHUNK).min(CHUNK), 0);
                let filled = from.try_read(bytes);
                bytes.truncate(*filled.as_ref().unwrap_or(&0));
                filled
            }
            Store::Pipe(pipe) => from.try_io(Interest::READABLE, || step(from, &pipe.into, granted)),
        };
        self.held = *filled.as_ref().unwrap_or(&0) as u64;
        self.meter.give_back(self.direction, granted - self.held);
        filled
    }

    /// Empties the store into the receiver.
    async fn drain(&mut self) -> io::Result<()> {
        while self.held > 0 {
            self.to.writable().await?;
            let (to, held) = (self.to, self.held);
            let drained = match &mut self.store {
                Store::Memory(bytes) => {
                    let drained = to.try_write(bytes);
                    bytes.drain(..*drained.as_ref().unwrap_or(&0));
                    drained
                }
                Store::Pipe(pipe) => to.try_io(Interest::WRITABLE, || step(&pipe.out, to, held)),
            };
            match drained {
                Ok(moved) => {
                    self.held -= moved as u64;
                    self.moved += moved as u64;
                    self.carried.add(self.direction, moved as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the sender has more to say; waits until that is known.
    async fn more_waits(&self) -> io::Result<bool> {
        Ok(self.from.peek(&mut [0]).await? > 0)
    }
}

impl Drop for Pump<'_> {
    fn drop(&mut self) {
        self.meter.give_back(self.direction, self.held);
    }
}

fn step(from: impl AsFd, to: impl AsFd, bytes: u64) -> io::Result<usize> {
    let length = usize::try_from(bytes).unwrap_or(PIPE);
    Ok(splice(from, None, to, None, length, SpliceFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests;

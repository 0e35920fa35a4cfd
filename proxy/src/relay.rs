//! Bytes both ways, from kernel to kernel.
//!
//! splice(2) moves them from one socket through a pipe to the other without a copy into this process, which costs about
//! half the processor time of reading and writing, and says how many it moved, so that counts stay exact. What one
//! splice may take is what the meter grants: the limit is the length of the call.

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
/// How long a tunnel may be silent, both ways.
pub const IDLE: Duration = Duration::from_secs(600);
/// How long the other direction may go on after one was refused, so that what is under way arrives.
const GRACE: Duration = Duration::from_secs(2);

/// What a tunnel has carried.
#[derive(Default, Debug)]
pub struct Carried {
    out: Cell<u64>,
    back: Cell<u64>,
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
        () = silence(carried) => End::Refused(Reason::Idle),
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

/// Ends between one and two [`IDLE`] after the last byte: no timer has to be moved for each one.
async fn silence(carried: &Carried) {
    let moved = || (carried.get(Direction::Out), carried.get(Direction::In));
    let mut before = moved();
    loop {
        sleep(IDLE).await;
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
    let end = match Pump::new(from, to, meter, direction, carried) {
        Ok(mut pump) => pump.run().await.unwrap_or(End::Broken),
        Err(_) => End::Broken,
    };
    // The receiver gets all that was granted and then an end, not a reset that would take queued bytes with it.
    let _ = rustix::net::shutdown(to, rustix::net::Shutdown::Write);
    end
}

/// One direction: its pipe, and what is in it.
struct Pump<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    meter: &'a Meter,
    direction: Direction,
    carried: &'a Carried,
    out_of_pipe: OwnedFd,
    into_pipe: OwnedFd,
    /// Bytes that left `from` and have not reached `to`; they are taken from the meter.
    held: u64,
}

impl<'a> Pump<'a> {
    fn new(
        from: &'a TcpStream,
        to: &'a TcpStream,
        meter: &'a Meter,
        direction: Direction,
        carried: &'a Carried,
    ) -> io::Result<Self> {
        let (out_of_pipe, into_pipe) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Refused when this user's pipes have used up their pages: then the default has to do.
        let _ = fcntl_setpipe_size(&into_pipe, PIPE);
        Ok(Pump { from, to, meter, direction, carried, out_of_pipe, into_pipe, held: 0 })
    }

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

    /// Takes what the sender has into the pipe, which is empty: that nothing could be moved means that nothing was there.
    fn fill(&mut self, granted: u64) -> io::Result<usize> {
        let moved = self.from.try_io(Interest::READABLE, || step(self.from, &self.into_pipe, granted));
        self.held = *moved.as_ref().unwrap_or(&0) as u64;
        self.meter.give_back(self.direction, granted - self.held);
        moved
    }

    /// Empties the pipe into the receiver.
    async fn drain(&mut self) -> io::Result<()> {
        while self.held > 0 {
            self.to.writable().await?;
            match self.to.try_io(Interest::WRITABLE, || step(&self.out_of_pipe, self.to, self.held)) {
                Ok(moved) => {
                    self.held -= moved as u64;
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

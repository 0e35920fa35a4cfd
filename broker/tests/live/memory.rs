//! What a run can make the broker hold.

use std::os::fd::AsRawFd;

use crate::exchange::OK;
use crate::stage::{Broker, Model, Terms};

/// Pieces of a dripped body: each would keep the buffer that it came in, were it kept as it came.
const PIECES: usize = 20_000;
/// What the broker may need for them, in KiB: far less than those buffers, far more than the bytes.
const MOST: u64 = 24 * 1024;

/// Resident memory, KiB.
fn resident(broker: &Broker) -> u64 {
    // Its pidfd knows its number; its /proc/PID/status may be read, being not dumpable hides the rest.
    let info =
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", broker.child.pidfd.as_raw_fd())).unwrap();
    let field = |text: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let status = std::fs::read_to_string(format!("/proc/{}/status", field(&info, "Pid:"))).unwrap();
    field(&status, "VmRSS:")
}

/// LIM, PRV-4: a body that comes byte by byte takes its size of the broker's memory, not a buffer a byte.
#[test]
fn a_dripped_body_takes_no_more_than_its_size() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let run = broker.open(1, &Terms::default());
    let before = resident(&broker);
    let mut agent = run.connect();
    agent.send(
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: \
             1000000\r\n\r\n",
            run.endpoint
        )
        .as_bytes(),
    );
    for _ in 0..PIECES {
        agent.send(b" ");
        std::thread::yield_now();
    }
    let grown = resident(&broker).saturating_sub(before);
    assert!(grown < MOST, "{grown} KiB for {PIECES} bytes");
    agent.leave();
    run.report();
}

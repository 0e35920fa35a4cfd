//! What a run can make the broker hold.

use crate::exchange::OK;
use crate::stage::{Model, Terms};

/// Pieces of a dripped body: each would keep the buffer that it came in, were it kept as it came.
const PIECES: usize = 20_000;
/// What the broker may need for them, in KiB: far less than those buffers, far more than the bytes.
const MOST: u64 = 24 * 1024;

/// LIM, PRV-4: a body that comes byte by byte takes its size of the broker's memory, not a buffer a byte.
#[test]
fn a_dripped_body_takes_no_more_than_its_size() {
    let model = Model::fixed(OK);
    let broker = model.broker();
    let run = broker.open(1, &Terms::default());
    let before = broker.resident();
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
    let grown = broker.resident().saturating_sub(before);
    assert!(grown < MOST, "{grown} KiB for {PIECES} bytes");
    agent.leave();
    run.report();
}

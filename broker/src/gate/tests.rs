use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const HOST: &str = "localhost:61081";

/// A gate, its turn, and the agent before it.
async fn gate() -> (Gate, Rc<Turn>, TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let agent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let turn = Rc::new(Turn::default());
    let hosts = Rc::from([HOST.to_owned()]);
    (Gate::new(Rc::new(socket), hosts, Rc::clone(&turn)), turn, agent)
}

fn request(body: &str) -> String {
    format!("POST /v1/messages HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// All that passes within a moment.
async fn passed(gate: &mut Gate) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 100];
    loop {
        match tokio::time::timeout(Duration::from_millis(50), gate.read(&mut buffer)).await {
            Ok(Ok(count)) if count > 0 => all.extend_from_slice(&buffer[..count]),
            Ok(_) | Err(_) => return String::from_utf8(all).unwrap(),
        }
    }
}

/// MOD-8: one request passes as it came; the next only when the answer to it has ended, and whoever waits is woken.
#[tokio::test]
async fn requests_pass_one_at_a_time() {
    let (mut gate, turn, mut agent) = gate().await;
    agent.write_all(format!("{}{}", request("one"), request("")).as_bytes()).await.unwrap();
    assert_eq!(passed(&mut gate).await, request("one"));
    assert!(turn.refused().is_none());
    let answering = turn.answer();
    assert_eq!(passed(&mut gate).await, "");
    let end = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(answering);
    };
    let (next, ()) = tokio::join!(passed(&mut gate), end);
    assert_eq!(next, request(""));
}

/// MOD-8: a refused head does not pass, nor does anything after it; the stand-in does, and the refusal waits for who answers.
#[tokio::test]
async fn a_refused_head_does_not_pass() {
    let (mut gate, turn, mut agent) = gate().await;
    agent.write_all(format!("GET / HTTP/1.0\r\n\r\n{}", request("")).as_bytes()).await.unwrap();
    assert_eq!(passed(&mut gate).await.as_bytes(), STAND_IN);
    assert_eq!(turn.refused().unwrap().rule, Rule::MalformedHead);
    assert!(turn.refused().is_none());
    drop(turn.answer());
    assert_eq!(passed(&mut gate).await, "");
}

/// MOD-11: while an answer is on its way the end of the connection is seen, also behind a request that came in advance.
#[tokio::test]
async fn the_end_is_seen_while_an_answer_is_on_its_way() {
    let (mut gate, turn, mut agent) = gate().await;
    agent.write_all(format!("{}{}", request("one"), request("two")).as_bytes()).await.unwrap();
    assert_eq!(passed(&mut gate).await, request("one"));
    let _answering = turn.answer();
    drop(agent);
    let end = tokio::time::timeout(Duration::from_secs(5), gate.read(&mut [0; 10])).await.unwrap();
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

/// MOD-8: a head that does not come is refused when its time is over, counted from its first byte; an idle connection is none.
#[tokio::test]
async fn a_head_has_its_time() {
    let (mut gate, turn, mut agent) = gate().await;
    gate.head_time = Duration::from_millis(200);
    let mut buffer = [0; 100];
    let idle = tokio::time::timeout(Duration::from_millis(400), gate.read(&mut buffer)).await;
    assert!(idle.is_err(), "{idle:?}");
    let slow = async {
        for byte in b"POST /v1/messages HTTP/1.1\r\n" {
            agent.write_all(&[*byte]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    let (count, ()) = tokio::join!(gate.read(&mut buffer), slow);
    assert_eq!(&buffer[..count.unwrap()], STAND_IN);
    assert_eq!(turn.refused().unwrap().rule, Rule::HeadTimeout);
}

/// MOD-8: bodies pass to the byte, however large they are.
#[tokio::test]
async fn a_large_body_passes_to_the_byte() {
    let (mut gate, turn, mut agent) = gate().await;
    let body = "b".repeat(3_000_000);
    let all = request(&body);
    let send = async {
        agent.write_all(all.as_bytes()).await.unwrap();
        agent.write_all(request("").as_bytes()).await.unwrap();
    };
    let read = async {
        let mut got = vec![0; all.len()];
        gate.read_exact(&mut got).await.unwrap();
        got
    };
    let (got, ()) = tokio::join!(read, send);
    assert!(got == all.as_bytes());
    let _answering = turn.answer();
    assert_eq!(passed(&mut gate).await, "");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// MOD-8: however a request is cut into segments, and whatever room the reader has, the same bytes pass.
    #[test]
    fn segments_make_no_difference(
        body in "[a-z]{0,60}",
        cuts in prop::collection::vec(1..150usize, 0..5),
        room in 1..40usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let whole = request(&body);
        let got = runtime.block_on(async {
            let (mut gate, _turn, mut agent) = gate().await;
            agent.set_nodelay(true).unwrap();
            let send = async {
                let mut rest = whole.as_bytes();
                for cut in cuts {
                    let (now, later) = rest.split_at(cut.min(rest.len()));
                    agent.write_all(now).await.unwrap();
                    tokio::task::yield_now().await;
                    rest = later;
                }
                agent.write_all(rest).await.unwrap();
                agent.write_all(b"NEXT").await.unwrap();
            };
            let read = async {
                let mut got = Vec::new();
                let mut buffer = vec![0; room];
                while got.len() < whole.len() {
                    let count = gate.read(&mut buffer).await.unwrap();
                    assert!(count > 0);
                    got.extend_from_slice(&buffer[..count]);
                }
                got
            };
            tokio::join!(read, send).0
        });
        prop_assert_eq!(String::from_utf8(got).unwrap(), whole);
    }
}

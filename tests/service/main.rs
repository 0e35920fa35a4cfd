//! A model service of the tests on its own: `model-service anthropic|compatible PORT [KEY]` on the loopback, for trying
//! agents by hand and for measuring. Says on standard error what reached it, a line each.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use tests::model::Service;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (kind, port, key) = match args.as_slice() {
        [kind, port] => (kind, port, None),
        [kind, port, key] => (kind, port, Some(key.as_str())),
        _ => panic!("usage: model-service anthropic|compatible PORT [KEY]"),
    };
    let port: u16 = port.parse().expect("a port");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
    let service = Service::plain(listener, kind == "compatible", key);
    let bodies = std::env::var_os("MODEL_SERVICE_BODIES").is_some();
    eprintln!("listening at {}", service.base());
    loop {
        std::thread::sleep(Duration::from_millis(200));
        for request in service.take() {
            eprintln!(
                "{} {} {} bytes -> {}",
                request.method(),
                request.target(),
                request.body.len(),
                request.status
            );
            if bodies {
                eprintln!("{}\n{}", request.head.join("\n"), String::from_utf8_lossy(&request.body));
            }
        }
    }
}

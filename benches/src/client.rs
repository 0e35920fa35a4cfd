//! The client of the tunnel benchmarks: the same one through anet, through haproxy and to nobody in between.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

#[allow(dead_code, clippy::indexing_slicing)]
#[path = "../../tests/client/hello.rs"]
mod hello;

/// `fetch ADDRESS HOST BYTES connect|plain`: prints the seconds that it took to receive that many bytes.
pub(crate) fn fetch(arguments: &[&str]) {
    let [address, host, bytes, how] = arguments else { panic!("fetch ADDRESS HOST BYTES connect|plain") };
    let expected: u64 = bytes.parse().unwrap();
    let mut stream = begin(address, host, how);
    let began = Instant::now();
    let mut buffer = vec![0u8; 256 * 1024];
    let mut received = 0u64;
    while received < expected {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            length => received += length as u64,
        }
    }
    assert_eq!(received, expected, "the far side sent another number of bytes");
    println!("{}", began.elapsed().as_secs_f64());
}

/// `open ADDRESS HOST COUNT connect|plain`: opens that many, one after the other, and prints the microseconds that each
/// took until the first byte from the far side.
pub(crate) fn open(arguments: &[&str]) {
    let [address, host, count, how] = arguments else { panic!("open ADDRESS HOST COUNT connect|plain") };
    for _ in 0..count.parse::<u32>().unwrap() {
        let began = Instant::now();
        let mut stream = begin(address, host, how);
        let mut first = [0u8; 1];
        stream.read_exact(&mut first).unwrap();
        println!("{}", began.elapsed().as_secs_f64() * 1e6);
    }
}

fn begin(address: &str, host: &str, how: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    if how == "connect" {
        write!(stream, "CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n").unwrap();
        let mut head = Vec::new();
        let mut byte = [0u8; 1];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    }
    stream.write_all(&hello::bytes("plain", host)).unwrap();
    stream
}

//! A name server that can lie, fall silent and change its mind, and remembers every question.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::server::POLL;

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

const NO_ERROR: u16 = 0;
const SERVER_FAILURE: u16 = 2;
const NAME_ERROR: u16 = 3;
const REFUSED: u16 = 5;
/// RFC 1035 4.1.1: response, recursion desired, recursion available.
const RESPONSE: u16 = 0x8180;
const TRUNCATED: u16 = 0x0200;
/// RFC 1035 4.1.4: the name at offset 12, which is the question's.
const QUESTION_NAME: u16 = 0xc00c;

/// What a name answers in one address family.
#[derive(Clone, Debug)]
pub enum Answer {
    /// These addresses; none: the name is there, but not in this family.
    Addresses(Vec<IpAddr>),
    /// There is no such name.
    NoName,
    /// The server failed.
    ServFail,
    /// The server does not want to say.
    Refused,
    /// Nothing ever comes.
    Silence,
    /// Another name, with these addresses.
    Alias(String, Vec<IpAddr>),
    /// A name that leads to itself by way of another.
    AliasLoop,
    /// Over UDP "too long, ask over TCP"; there these addresses, or a closed connection.
    Truncated(Option<Vec<IpAddr>>),
    /// First a reply with a wrong identifier and these addresses, then the true one with those.
    Spoofed(Vec<IpAddr>, Vec<IpAddr>),
    /// Addresses for a question spelled in another case: a forger's who cannot see the question.
    OtherCase(Vec<IpAddr>),
    /// One after the other, a question each; the last one stays.
    Turns(Vec<Answer>),
}

/// How a question came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A datagram.
    Udp,
    /// A connection.
    Tcp,
}

/// One question that was asked.
#[derive(Clone, Debug)]
pub struct Query {
    /// The name, in lower case and without a last dot.
    pub name: String,
    /// The record type: 1 is A, 28 is AAAA.
    pub kind: u16,
    /// How it came.
    pub transport: Transport,
}

#[derive(Debug, Default)]
struct Zone {
    answers: HashMap<(String, u16), Answer>,
    asked: Vec<Query>,
}

/// The name server.
#[derive(Clone, Debug)]
pub struct Dns {
    zone: Arc<Mutex<Zone>>,
}

impl Dns {
    /// Serves on the calling thread's network.
    pub(super) fn serve(address: Ipv4Addr, stop: Arc<AtomicBool>) -> std::io::Result<Dns> {
        let dns = Dns { zone: Arc::default() };
        let socket = UdpSocket::bind((address, 53))?;
        socket.set_read_timeout(Some(POLL))?;
        let listener = TcpListener::bind((address, 53))?;
        let (udp, tcp, tcp_stop) = (dns.clone(), dns.clone(), Arc::clone(&stop));
        thread::spawn(move || {
            let mut buffer = [0; 1500];
            while !stop.load(Ordering::Relaxed) {
                let Ok((length, peer)) = socket.recv_from(&mut buffer) else { continue };
                for reply in udp.reply(buffer.get(..length).unwrap_or_default(), Transport::Udp) {
                    let _ = socket.send_to(&reply, peer);
                }
            }
        });
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if tcp_stop.load(Ordering::Relaxed) {
                    return;
                }
                let dns = tcp.clone();
                thread::spawn(move || dns.connection(stream));
            }
        });
        Ok(dns)
    }

    fn connection(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        loop {
            let mut length = [0; 2];
            stream.read_exact(&mut length).ok()?;
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut query).ok()?;
            for reply in self.reply(&query, Transport::Tcp) {
                let length = u16::try_from(reply.len()).ok()?.to_be_bytes();
                stream.write_all(&[length.as_slice(), &reply].concat()).ok()?;
            }
        }
    }

    /// Sets the IPv4 addresses of a name.
    pub fn a(&self, name: &str, addresses: &[Ipv4Addr]) {
        self.set_a(name, Answer::Addresses(addresses.iter().copied().map(IpAddr::V4).collect()));
    }

    /// Sets the IPv6 addresses of a name.
    pub fn aaaa(&self, name: &str, addresses: &[Ipv6Addr]) {
        self.set_aaaa(name, Answer::Addresses(addresses.iter().copied().map(IpAddr::V6).collect()));
    }

    /// Sets what a question for IPv4 addresses is answered with.
    pub fn set_a(&self, name: &str, answer: Answer) {
        self.zone.lock().expect("lock").answers.insert((name.to_owned(), A), answer);
    }

    /// Sets what a question for IPv6 addresses is answered with.
    pub fn set_aaaa(&self, name: &str, answer: Answer) {
        self.zone.lock().expect("lock").answers.insert((name.to_owned(), AAAA), answer);
    }

    /// Every question so far.
    pub fn queries(&self) -> Vec<Query> {
        self.zone.lock().expect("lock").asked.clone()
    }

    /// How often this name was asked for.
    pub fn asked(&self, name: &str) -> usize {
        self.queries().iter().filter(|q| q.name == name).count()
    }

    fn reply(&self, query: &[u8], transport: Transport) -> Vec<Vec<u8>> {
        let Some(question) = Question::parse(query) else { return Vec::new() };
        let mut zone = self.zone.lock().expect("lock");
        zone.asked.push(Query { name: question.name.clone(), kind: question.kind, transport });
        let known = zone.answers.keys().any(|(name, _)| *name == question.name);
        let answer = match zone.answers.get_mut(&(question.name.clone(), question.kind)) {
            Some(Answer::Turns(turns)) if turns.len() > 1 => turns.remove(0),
            Some(Answer::Turns(turns)) => turns.first().cloned().unwrap_or(Answer::NoName),
            Some(answer) => answer.clone(),
            None if known => Answer::Addresses(Vec::new()),
            None => Answer::NoName,
        };
        question.answered(&answer, transport)
    }
}

/// A question, as it was spelled: a resolver that mixes cases wants it back the same way.
struct Question<'a> {
    id: [u8; 2],
    name: String,
    kind: u16,
    bytes: &'a [u8],
}

impl<'a> Question<'a> {
    fn parse(query: &'a [u8]) -> Option<Question<'a>> {
        let id = query.first_chunk::<2>().copied()?;
        let body = query.get(12..)?;
        let mut labels = Vec::new();
        let mut at = 0;
        loop {
            let length = usize::from(*body.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            labels.push(String::from_utf8_lossy(body.get(at..at + length)?).to_ascii_lowercase());
            at += length;
        }
        let kind = u16::from_be_bytes(*body.get(at..)?.first_chunk::<2>()?);
        Some(Question { id, name: labels.join("."), kind, bytes: body.get(..at + 4)? })
    }

    fn answered(&self, answer: &Answer, transport: Transport) -> Vec<Vec<u8>> {
        match answer {
            Answer::Addresses(addresses) => vec![self.addresses(self.id, addresses)],
            Answer::NoName => vec![self.message(self.id, NAME_ERROR, &[])],
            Answer::ServFail => vec![self.message(self.id, SERVER_FAILURE, &[])],
            Answer::Refused => vec![self.message(self.id, REFUSED, &[])],
            Answer::Silence | Answer::Turns(_) => Vec::new(),
            Answer::Alias(target, addresses) => {
                let mut records = vec![record(&QUESTION_NAME.to_be_bytes(), CNAME, &encode(target))];
                records.extend(
                    self.of_family(addresses).map(|(kind, data)| record(&encode(target), kind, &data)),
                );
                vec![self.message(self.id, NO_ERROR, &records)]
            }
            Answer::AliasLoop => {
                let (here, there) = (encode(&self.name), encode("there.example.com"));
                let records = [record(&here, CNAME, &there), record(&there, CNAME, &here)];
                vec![self.message(self.id, NO_ERROR, &records)]
            }
            Answer::Truncated(_) if transport == Transport::Udp => {
                vec![self.message(self.id, TRUNCATED, &[])]
            }
            Answer::Truncated(addresses) => addresses.iter().map(|a| self.addresses(self.id, a)).collect(),
            Answer::Spoofed(forged, real) => {
                let wrong = [self.id[0] ^ 0x55, self.id[1]];
                vec![self.addresses(wrong, forged), self.addresses(self.id, real)]
            }
            Answer::OtherCase(addresses) => {
                let mut reply = self.addresses(self.id, addresses);
                // Every letter of the question turned round; the length bytes are below the letters.
                for byte in
                    reply.iter_mut().skip(12).take(self.bytes.len() - 4).filter(|b| b.is_ascii_alphabetic())
                {
                    *byte ^= 0x20;
                }
                vec![reply]
            }
        }
    }

    fn of_family(&self, addresses: &[IpAddr]) -> impl Iterator<Item = (u16, Vec<u8>)> {
        let records = addresses.iter().map(|address| match address {
            IpAddr::V4(v4) => (A, v4.octets().to_vec()),
            IpAddr::V6(v6) => (AAAA, v6.octets().to_vec()),
        });
        let kind = self.kind;
        records.filter(move |(k, _)| *k == kind).collect::<Vec<_>>().into_iter()
    }

    fn addresses(&self, id: [u8; 2], addresses: &[IpAddr]) -> Vec<u8> {
        let name = QUESTION_NAME.to_be_bytes();
        let records: Vec<_> =
            self.of_family(addresses).map(|(kind, data)| record(&name, kind, &data)).collect();
        self.message(id, NO_ERROR, &records)
    }

    fn message(&self, id: [u8; 2], flags: u16, records: &[Vec<u8>]) -> Vec<u8> {
        let count = u16::try_from(records.len()).expect("few records").to_be_bytes();
        let mut message = id.to_vec();
        message.extend((RESPONSE | flags).to_be_bytes());
        message.extend([0, 1]);
        message.extend(count);
        message.extend([0, 0, 0, 0]);
        message.extend(self.bytes);
        message.extend(records.concat());
        message
    }
}

/// A record with a time to live of zero.
fn record(name: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).expect("short data").to_be_bytes();
    [name, &kind.to_be_bytes(), &[0, 1], &[0, 0, 0, 0], &length, data].concat()
}

fn encode(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).expect("a short label"));
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

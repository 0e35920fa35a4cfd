//! Against name servers of the test's own on loopback, which answer whatever the test says.

use std::net::UdpSocket;
use std::sync::{Arc, Mutex};

use hickory_resolver::config::{ConnectionConfig, ProtocolConfig};
use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::Record;
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME};

use super::*;

/// What a server says to a question.
type Answer = fn(&str, RecordType) -> Reply;

enum Reply {
    Records(Vec<RData>),
    Code(ResponseCode),
    Silence,
    /// The question's name in other letters, as a forger who did not see it would have to guess.
    OtherCase(Vec<RData>),
    /// Another number than the question's.
    OtherId(Vec<RData>),
}

fn v4(text: &str) -> RData {
    RData::A(A(text.parse().unwrap()))
}

fn v6(text: &str) -> RData {
    RData::AAAA(AAAA(text.parse().unwrap()))
}

fn records(texts: &[&str]) -> Reply {
    Reply::Records(texts.iter().map(|text| if text.contains(':') { v6(text) } else { v4(text) }).collect())
}

type Asked = Arc<Mutex<Vec<(String, RecordType)>>>;

/// A server, and what it was asked.
fn server(answer: Answer) -> (Names, Asked) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    // Lives as long as the test's process, which is short.
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let question = Message::from_vec(&buffer[..length]).unwrap();
            let query = question.queries[0].clone();
            let name = query.name().to_ascii().to_ascii_lowercase();
            log.lock().unwrap().push((name.clone(), query.query_type()));
            let mut reply = Message::response(question.metadata.id, question.metadata.op_code);
            reply.add_query(query.clone());
            let mut owner = query.name().clone();
            let data = match answer(&name, query.query_type()) {
                Reply::Silence => continue,
                Reply::Records(data) => data,
                Reply::Code(code) => {
                    reply.metadata.response_code = code;
                    Vec::new()
                }
                Reply::OtherCase(data) => {
                    let swapped: String = query.name().to_ascii().chars().map(swap_case).collect();
                    owner = Name::from_ascii(swapped).unwrap();
                    reply.queries[0].set_name(owner.clone());
                    data
                }
                Reply::OtherId(data) => {
                    reply.metadata.id = question.metadata.id.wrapping_add(1);
                    data
                }
            };
            for data in data {
                reply.add_answer(Record::from_rdata(owner.clone(), 0, data));
            }
            socket.send_to(&reply.to_vec().unwrap(), peer).unwrap();
        }
    });
    (names_at(address.port()), asked)
}

fn swap_case(letter: char) -> char {
    if letter.is_ascii_uppercase() { letter.to_ascii_lowercase() } else { letter.to_ascii_uppercase() }
}

fn names_at(port: u16) -> Names {
    let mut udp = ConnectionConfig::new(ProtocolConfig::Udp);
    let mut tcp = ConnectionConfig::new(ProtocolConfig::Tcp);
    (udp.port, tcp.port) = (port, port);
    Names::of(vec![NameServerConfig::new(Ipv4Addr::LOCALHOST.into(), true, vec![udp, tcp])]).unwrap()
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn addresses(answer: Answer) -> Result<Vec<String>, Reason> {
    let (names, _) = server(answer);
    let addresses = wait(names.addresses("api.example.com"))?;
    Ok(addresses.iter().map(ToString::to_string).collect())
}

fn found(texts: &[&str]) -> Result<Vec<String>, Reason> {
    Ok(texts.iter().map(ToString::to_string).collect())
}

/// EGR-8: both families are asked, of the whole name and no other; each asked once.
#[test]
fn both_families_are_asked() {
    let (names, asked) = server(|_, family| match family {
        RecordType::A => records(&["1.1.1.1", "8.8.8.8"]),
        _ => records(&["2606:4700::1111"]),
    });
    assert_eq!(wait(names.addresses("api.example.com")).unwrap().len(), 3);
    let mut asked = asked.lock().unwrap().clone();
    asked.sort_by_key(|question| question.1.to_string());
    let question = |family| ("api.example.com.".to_owned(), family);
    assert_eq!(asked, [question(RecordType::A), question(RecordType::AAAA)]);
}

/// EGR-8: an empty family is an answer; two are no host.
#[test]
fn a_family_may_be_empty() {
    let v4_only = addresses(|_, family| match family {
        RecordType::A => records(&["1.1.1.1"]),
        _ => records(&[]),
    });
    assert_eq!(v4_only, found(&["1.1.1.1"]));
    assert_eq!(addresses(|_, _| records(&[])), Err(Reason::NameNotFound));
    assert_eq!(addresses(|_, _| Reply::Code(ResponseCode::NXDomain)), Err(Reason::NameNotFound));
}

/// EGR-8, table C 59: one family that fails refuses the name, whichever it is.
#[test]
fn a_family_that_fails_refuses_the_name() {
    for code in [0, 1, 2] {
        // Function pointers take no captured value.
        let answer: Answer = match code {
            0 => |_, family| {
                if family == RecordType::A {
                    records(&["1.1.1.1"])
                } else {
                    Reply::Code(ResponseCode::ServFail)
                }
            },
            1 => |_, family| {
                if family == RecordType::A {
                    records(&["1.1.1.1"])
                } else {
                    Reply::Code(ResponseCode::Refused)
                }
            },
            _ => |_, family| {
                if family == RecordType::AAAA {
                    records(&["2606:4700::1111"])
                } else {
                    Reply::Code(ResponseCode::ServFail)
                }
            },
        };
        assert_eq!(addresses(answer), Err(Reason::DnsIncomplete), "{code}");
    }
}

/// EGR-8, table C 59: one that never answers, too, within the deadline.
#[test]
fn a_family_that_is_silent_refuses_the_name() {
    let started = std::time::Instant::now();
    let answer =
        addresses(|_, family| if family == RecordType::A { records(&["1.1.1.1"]) } else { Reply::Silence });
    assert_eq!(answer, Err(Reason::DnsIncomplete));
    assert!(started.elapsed() <= DEADLINE + Duration::from_secs(1));
}

/// Table C 63: 32 addresses pass, one more refuses the name.
#[test]
fn addresses_are_limited_exactly() {
    fn many(count: u8) -> Reply {
        Reply::Records((0..count).map(|last| RData::A(A::new(1, 1, 1, last))).collect())
    }
    let exactly =
        addresses(|_, family| if family == RecordType::A { many(31) } else { records(&["2606:4700::1"]) });
    assert_eq!(exactly.map(|all| all.len()), Ok(32));
    let over =
        addresses(|_, family| if family == RecordType::A { many(32) } else { records(&["2606:4700::1"]) });
    assert_eq!(over, Err(Reason::TooManyAddresses));
}

/// EGR-4, table C 61: each request asks anew; an earlier answer plays no part, whatever its lifetime.
#[test]
fn nothing_is_cached() {
    let (names, asked) =
        server(|_, family| if family == RecordType::A { records(&["1.1.1.1"]) } else { records(&[]) });
    wait(async {
        for _ in 0..3 {
            names.addresses("api.example.com").await.unwrap();
        }
    });
    assert_eq!(asked.lock().unwrap().len(), 6);
}

/// EGR-8, table C 64: localhost is in every hosts file; here only the name server counts.
#[test]
fn hosts_files_play_no_part() {
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let listed =
        hosts.lines().filter(|line| !line.starts_with('#')).flat_map(|line| line.split_whitespace().skip(1));
    let (names, _) =
        server(|_, family| if family == RecordType::A { records(&["1.1.1.1"]) } else { records(&[]) });
    for name in listed.filter(|name| *name != "localhost") {
        assert_eq!(wait(names.addresses(name)), Ok(vec!["1.1.1.1".parse().unwrap()]), "{name}");
    }
}

/// Table C 62: of a chain only the addresses at its end count.
#[test]
fn chains_are_followed_to_their_addresses() {
    let answer = addresses(|_, family| match family {
        RecordType::A => {
            let target = Name::from_ascii("internal.example.net.").unwrap();
            let mut data = vec![RData::CNAME(CNAME(target))];
            data.push(v4("10.0.0.7"));
            Reply::Records(data)
        }
        _ => records(&[]),
    });
    // The owner of the address is the question's name here; a server that says so is believed, and the address judged.
    assert_eq!(answer, found(&["10.0.0.7"]));
}

/// Table C 67: an answer with another number, or with the name in letters that were not asked for, is no answer.
#[test]
fn forged_answers_are_ignored() {
    let other_id =
        addresses(
            |_, family| {
                if family == RecordType::A { Reply::OtherId(vec![v4("1.1.1.1")]) } else { records(&[]) }
            },
        );
    assert_eq!(other_id, Err(Reason::DnsIncomplete));
    let other_case =
        addresses(
            |_, family| {
                if family == RecordType::A { Reply::OtherCase(vec![v4("1.1.1.1")]) } else { records(&[]) }
            },
        );
    assert_eq!(other_case, Err(Reason::DnsIncomplete));
}

/// EGR-4: the translator's prefix is asked for once, and only its absence is no news.
#[test]
fn the_nat64_prefix_is_asked_for_once() {
    let (names, asked) = server(|name, _| {
        assert_eq!(name, "ipv4only.arpa.");
        records(&["2a00:db8:122:344::192.0.0.170", "2a00:db8:122:344::192.0.0.171"])
    });
    wait(async {
        for _ in 0..3 {
            let prefixes = names.nat64().await.unwrap();
            assert!(prefixes.iter().all(|prefix| prefix.contains("2a00:db8:122:344::1".parse().unwrap())));
            assert_eq!(prefixes.len(), 2);
        }
    });
    assert_eq!(asked.lock().unwrap().len(), 1);
    for none in [|_: &str, _| records(&[]), |_: &str, _| Reply::Code(ResponseCode::NXDomain)] {
        let (names, _) = server(none);
        assert!(wait(names.nat64()).unwrap().is_empty());
    }
}

/// EGR-4: where nobody says whether there is a translator, IPv6 addresses are not used; the next name asks again.
#[test]
fn an_unknown_nat64_prefix_refuses() {
    let (names, asked) = server(|_, _| Reply::Code(ResponseCode::ServFail));
    wait(async {
        assert_eq!(names.nat64().await, Err(Reason::DnsIncomplete));
        let before = asked.lock().unwrap().len();
        assert_eq!(names.nat64().await, Err(Reason::DnsIncomplete));
        assert!(asked.lock().unwrap().len() > before);
    });
}

/// EGR-8: of resolv.conf only the name servers count.
#[test]
fn only_name_servers_are_read() {
    let text = "# nameserver 9.9.9.9\nsearch corp.example\ndomain corp.example\noptions ndots:5\n\
                nameserver 127.0.0.53\n  nameserver\t2001:4860:4860::8888 \nnameserver fe80::1%eth0\n\
                nameserver example.com\nnameservers 1.2.3.4\nnameserver 1.1.1.1 # trailing\nnameserver 8.8.8.8\n";
    let servers: Vec<String> = name_servers(text).iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["127.0.0.53", "2001:4860:4860::8888", "1.1.1.1"]);
    assert_eq!(name_servers(""), [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
}

//! The box itself: what it promises, without anet.

use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;

use super::*;

fn curl(net: &Internet, args: &[&str]) -> (bool, String) {
    let output = net.inside(|| {
        // The variables of the machine that runs the tests name proxies and certificate stores of its own.
        Command::new("curl")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .args(["-sS", "--max-time", "10"])
            .args(args)
            .output()
    });
    let output = output.expect("curl");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[test]
fn curl_reaches_an_https_server_over_both_families() {
    let Some(net) = Internet::new() else { return };
    let host = net.https("pkg.example.com", |request| Response::ok(format!("path {}", request.path())));
    for family in ["-4", "-6"] {
        assert_eq!(curl(&net, &[family, "https://pkg.example.com/a?b"]), (true, "path /a".into()));
    }
    assert_eq!(host.connections(), 2);
    assert!(host.received() > 0);
    assert_eq!(net.dns().asked("other.example.com"), 0);
    assert!(net.dns().asked("pkg.example.com") > 0);
    assert!(net.strays().is_empty());
}

#[test]
fn any_address_is_reachable_and_noted() {
    let Some(net) = Internet::new() else { return };
    for address in ["10.0.0.1", "169.254.169.254", "[fd00:ec2::254]", "[64:ff9b::1]", "240.0.0.1"] {
        let (_, text) = curl(&net, &["-k", &format!("https://{address}/")]);
        assert!(!text.contains("connect to") || text.contains("reset"), "{address}: {text}");
    }
    let strays: Vec<String> = net.strays().iter().map(ToString::to_string).collect();
    assert_eq!(strays.len(), 5, "{strays:?}");
}

#[test]
fn a_certificate_of_another_authority_is_not_believed() {
    let Some(net) = Internet::new() else { return };
    net.https("pkg.example.com", |_| Response::ok("x"));
    net.replace_file("/etc/ssl/certs/ca-certificates.crt", b"");
    assert!(!curl(&net, &["https://pkg.example.com/"]).0);
}

#[test]
fn networks_do_not_see_one_another_nor_the_machine() {
    let (Some(one), Some(two)) = (Internet::new(), Internet::new()) else { return };
    one.https("one.example.com", |_| Response::ok("one"));
    two.https("two.example.com", |_| Response::ok("two"));
    assert_eq!(curl(&one, &["https://one.example.com/"]), (true, "one".into()));
    assert_eq!(curl(&two, &["https://two.example.com/"]), (true, "two".into()));
    assert!(!curl(&one, &["https://two.example.com/"]).0);
    let machine = TcpListener::bind("127.0.0.1:0").expect("bind").local_addr().expect("address");
    assert!(one.inside(|| TcpStream::connect(machine)).is_err());
}

#[test]
fn a_raw_host_counts_every_byte() {
    let Some(net) = Internet::new() else { return };
    let (sender, receiver) = mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let host = net.raw("raw.example.com", move |mut raw| {
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut raw, &mut all).expect("read");
        sender.lock().expect("lock").send(all).expect("send");
    });
    net.inside(|| {
        let mut stream = TcpStream::connect((host.v4, 443)).expect("connect");
        std::io::Write::write_all(&mut stream, &[7; 12_345]).expect("write");
    });
    assert_eq!(receiver.recv().expect("received"), vec![7; 12_345]);
    assert_eq!(host.received(), 12_345);
}

fn ask(net: &Internet, name: &str, kind: &str) -> String {
    let output = net.inside(|| {
        Command::new("dig").args(["+tries=1", "+time=1", "+short", name, kind]).output().expect("dig")
    });
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn the_name_server_lies_as_told() {
    if Command::new("dig").arg("-v").output().is_err() {
        return harness::skip("the name server's lies", "no dig here");
    }
    let Some(net) = Internet::new() else { return };
    let dns = net.dns();
    let v4 = |last| IpAddr::V4(Ipv4Addr::new(151, 101, 9, last));
    dns.set_a("many.example.com", Answer::Addresses((0..33).map(v4).collect()));
    assert_eq!(ask(&net, "many.example.com", "A").lines().count(), 33);
    dns.set_a(
        "turns.example.com",
        Answer::Turns(vec![Answer::Addresses(vec![v4(1)]), Answer::Addresses(vec![v4(2)])]),
    );
    let turns = Arc::new([ask(&net, "turns.example.com", "A"), ask(&net, "turns.example.com", "A")]);
    assert_eq!(*turns, ["151.101.9.1", "151.101.9.2"]);
    assert_eq!(ask(&net, "turns.example.com", "A"), "151.101.9.2");
    dns.set_a("long.example.com", Answer::Truncated(Some(vec![v4(3)])));
    assert_eq!(ask(&net, "long.example.com", "A"), "151.101.9.3");
    let long: Vec<_> = dns.queries().into_iter().filter(|q| q.name == "long.example.com").collect();
    assert_eq!(long.iter().map(|q| q.transport).collect::<Vec<_>>(), [Transport::Udp, Transport::Tcp]);
    dns.set_a("alias.example.com", Answer::Alias("real.example.com".into(), vec![v4(4)]));
    assert_eq!(ask(&net, "alias.example.com", "A"), "real.example.com.\n151.101.9.4");
    dns.set_a("silent.example.com", Answer::Silence);
    assert!(
        ask(&net, "silent.example.com", "A").contains("timed out")
            || ask(&net, "silent.example.com", "A").is_empty()
    );
    dns.set_a("spoof.example.com", Answer::Spoofed(vec![v4(5)], vec![v4(6)]));
    assert!(ask(&net, "spoof.example.com", "A").ends_with("151.101.9.6"));
    assert_eq!(ask(&net, "nobody.example.com", "A"), "");
}

/// What a test changes in a directory of the machine is changed for the near side alone, and can be changed back.
#[test]
fn files_can_be_removed_here_and_come_back() {
    let Some(net) = Internet::new() else { return };
    net.change_here("/usr/bin");
    let there = |net: &Internet| net.inside(|| std::fs::metadata("/usr/bin/bwrap").is_ok());
    assert!(there(&net));
    // Not by another name: a user namespace cannot copy a file of an owner that it does not know.
    net.inside(|| std::fs::remove_file("/usr/bin/bwrap")).expect("remove");
    assert!(!there(&net) && std::fs::metadata("/usr/bin/bwrap").is_ok());
    let kept = tempfile::tempdir().expect("a directory");
    std::fs::copy("/usr/bin/bwrap", kept.path().join("bwrap")).expect("copy");
    net.inside(|| std::fs::copy(kept.path().join("bwrap"), "/usr/bin/bwrap")).expect("back");
    assert!(there(&net));
}

/// A disk that fills up, and one that cannot be written.
#[test]
fn a_disk_can_be_full_or_read_only() {
    let Some(net) = Internet::new() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let write =
        |name: &str, bytes: usize| net.inside(|| std::fs::write(dir.path().join(name), vec![1; bytes]));
    net.small_disk_over(dir.path(), 1 << 20);
    write("small", 1000).expect("room");
    assert_eq!(write("large", 2 << 20).map_err(|e| e.kind()), Err(std::io::ErrorKind::StorageFull));
    net.unmount(dir.path());
    assert!(!dir.path().join("small").exists());
    net.read_only(dir.path());
    assert_eq!(write("small", 1).map_err(|e| e.kind()), Err(std::io::ErrorKind::ReadOnlyFilesystem));
    net.unmount(dir.path());
    write("small", 1).expect("written");
}

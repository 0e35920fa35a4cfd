//! Bytes through a tunnel and the opening of one, beside haproxy in tcp mode, in the same network of the benchmark's own.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tests::internet::Internet;
use tests::person::{Person, Who};
use tests::processes;

use crate::median;

const ROUNDS: usize = 5;
const OPENS: usize = 200;
const VOLUME: u64 = 1 << 30;
const HAPROXY: &str = "/usr/sbin/haproxy";
const HAPROXY_ADDRESS: &str = "127.0.0.1:7443";
const ENDPOINT: &str = "127.0.0.1:61080";
/// Ticks of utime and stime a second (USER_HZ).
const TICKS: f64 = 100.0;

/// The first byte of a TLS alert: an answer that the proxy lets pass without a word more.
const ALERT: u8 = 21;

/// One measurement.
struct Sample {
    seconds: f64,
    cpu: f64,
}

/// The rows of tunnels.
pub(crate) fn print() {
    let Some(net) = Internet::new() else { return };
    let big = net.raw("big.example.com", |mut raw| {
        let mut hello = [0u8; 4096];
        let chunk = vec![ALERT; 1 << 20];
        let _ = raw.read(&mut hello);
        for _ in 0..VOLUME >> 20 {
            if raw.write_all(&chunk).is_err() {
                return;
            }
        }
    });
    net.raw("small.example.com", |mut raw| {
        let mut hello = [0u8; 4096];
        let _ = raw.read(&mut hello);
        let _ = raw.write_all(&[ALERT]);
        let _ = raw.read(&mut hello);
    });
    let person = Person::new(Who::Root);
    let bench = person.path("anet-bench");
    std::fs::copy(std::env::current_exe().unwrap(), &bench).unwrap();
    let haproxy = Haproxy::start(&net, &person, &format!("{}:443", big.v4), HAPROXY_ADDRESS);
    let (mut ours, mut theirs, mut direct) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(through_anet(&net, &person, &bench));
        theirs.push(fetch(&net, &bench, HAPROXY_ADDRESS, haproxy.as_ref().map(|haproxy| haproxy.0.id())));
        direct.push(fetch(&net, &bench, &format!("{}:443", big.v4), None));
    }
    drop(haproxy);
    let rate = |samples: &[Sample]| median(samples.iter().map(|sample| 1.0 / sample.seconds).collect());
    let cpu = |samples: &[Sample]| median(samples.iter().map(|sample| sample.cpu).collect());
    println!(
        "| 1 GiB through a tunnel against haproxy in tcp mode | {:.2} × its throughput ({:.2} and {:.2} GiB/s; direct \
         {:.2}) | ≥ 1.0 × |",
        rate(&ours) / rate(&theirs),
        rate(&ours),
        rate(&theirs),
        rate(&direct)
    );
    println!(
        "| CPU of it | {:.2} × ({:.2} and {:.2} s a GiB) | ≤ 0.7 × |",
        cpu(&ours) / cpu(&theirs),
        cpu(&ours),
        cpu(&theirs)
    );
    opening(&net, &person, &bench);
}

fn opening(net: &Internet, person: &Person, bench: &std::path::Path) {
    let address = net.raw("haproxy.example.com", |mut raw| {
        let mut hello = [0u8; 4096];
        let _ = raw.read(&mut hello);
        let _ = raw.write_all(&[ALERT]);
        let _ = raw.read(&mut hello);
    });
    let _haproxy = Haproxy::start(net, person, &format!("{}:443", address.v4), "127.0.0.1:7444");
    let count = OPENS.to_string();
    let plain = ["open", "127.0.0.1:7444", "haproxy.example.com", &count, "plain"];
    let connect = ["open", ENDPOINT, "small.example.com", &count, "connect"];
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let output = person
            .anet(
                [
                    "run",
                    "--ro",
                    bench.to_str().unwrap(),
                    "--allow",
                    "small.example.com",
                    "--",
                    bench.to_str().unwrap(),
                ]
                .into_iter()
                .chain(connect),
            )
            .within(net)
            .timeout(Duration::from_secs(120))
            .output();
        ours.extend(numbers(&output.out()));
        let output = net.inside(|| Command::new(bench).args(plain).output().unwrap());
        theirs.extend(numbers(&String::from_utf8_lossy(&output.stdout)));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "| opening a tunnel, the name's lookup included, against haproxy in tcp mode | {:.2} × ({ours:.0} and \
         {theirs:.0} µs, medians of {}) | ≤ 1.5 × without the lookup |",
        ours / theirs,
        OPENS * 3
    );
}

fn numbers(text: &str) -> Vec<f64> {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

fn through_anet(net: &Internet, person: &Person, bench: &std::path::Path) -> Sample {
    let bench = bench.to_str().unwrap();
    let volume = VOLUME.to_string();
    // The command stays for a moment, so that the proxy's own account of its time can be read.
    let script = format!("{bench} fetch {ENDPOINT} big.example.com {volume} connect; sleep 1");
    let call = person.anet(["run", "--ro", bench, "--allow", "big.example.com", "--", "sh", "-c", &script]);
    let mut child =
        net.inside(|| call.command().stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    let root = child.id();
    let mut out = child.stdout.take().unwrap();
    let mut text = Vec::new();
    let mut byte = [0u8; 1];
    while !text.ends_with(b"\n") && out.read(&mut byte).unwrap() == 1 {
        text.extend(byte);
    }
    let proxy =
        processes::tree(root).into_iter().find(|process| process.command_line().contains("anet-proxy"));
    let cpu = proxy.map_or(f64::NAN, |process| cpu_seconds(process.pid));
    child.wait().unwrap();
    Sample { seconds: numbers(&String::from_utf8_lossy(&text)).first().copied().expect("a time"), cpu }
}

fn fetch(net: &Internet, bench: &std::path::Path, address: &str, relay: Option<u32>) -> Sample {
    let before = relay.map_or(0.0, cpu_seconds);
    let volume = VOLUME.to_string();
    let arguments = ["fetch", address, "big.example.com", &volume, "plain"];
    let output =
        net.inside(|| Command::new(bench).args(arguments).stderr(Stdio::inherit()).output().unwrap());
    let seconds = numbers(&String::from_utf8_lossy(&output.stdout)).first().copied().expect("a time");
    Sample { seconds, cpu: relay.map_or(f64::NAN, cpu_seconds) - before }
}

/// User and system time of a process.
fn cpu_seconds(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks =
        |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(11) + ticks(12)) / TICKS
}

/// haproxy in tcp mode, on the near side's loopback.
struct Haproxy(Child);

impl Haproxy {
    fn start(net: &Internet, person: &Person, server: &str, listen: &str) -> Option<Haproxy> {
        if !std::path::Path::new(HAPROXY).exists() {
            println!("| (haproxy is not installed here) | | |");
            return None;
        }
        let file = person.path(&format!("haproxy-{}.cfg", listen.replace(':', "-")));
        let text = format!(
            "global\n  nbthread 1\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n\
             listen bench\n  bind {listen}\n  server far {server}\n"
        );
        std::fs::write(&file, text).unwrap();
        let child = net.inside(|| {
            Command::new(HAPROXY)
                .arg("-db")
                .arg("-f")
                .arg(&file)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        });
        std::thread::sleep(Duration::from_millis(500));
        Some(Haproxy(child))
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

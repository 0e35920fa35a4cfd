//! Every attack twice: outside, where it must succeed, and inside, where it must fail.
//!
//! A row is one call of the probe. Outside it runs as root in a mount namespace of its own, with what it needs set up;
//! an attack that this kernel cannot do at all is reported by its name, and any other failure outside is a failure
//! of the test: a probe that fails everywhere proves nothing. Inside, all rows of a theme run one after the other in
//! one sandbox, so that an attack which breaks it spoils the rest.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tests::harness::{self, Harness};
use tests::installed::{copy_program, installed};
use tests::internet::{Internet, NEAR_V4, NEAR_V6};
use tests::person::{Person, Who};
use tests::processes;

/// One attack.
struct Row {
    name: &'static str,
    arguments: Vec<String>,
    /// Where the arguments differ inside.
    inside: Option<Vec<String>>,
    /// A shell script that makes it possible outside, in the attack's own mount namespace.
    outside: &'static str,
}

impl Row {
    fn of(name: &'static str, arguments: &[&str]) -> Row {
        let arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
        Row { name, arguments, inside: None, outside: "" }
    }

    fn inside(mut self, arguments: &[&str]) -> Row {
        self.inside = Some(arguments.iter().map(|a| (*a).to_owned()).collect());
        self
    }

    fn outside(mut self, script: &'static str) -> Row {
        self.outside = script;
        self
    }

    fn label(&self) -> String {
        format!("{} {}", self.name, self.arguments.join(" ")).trim_end().to_owned()
    }
}

fn rows(names: &[&'static str]) -> Vec<Row> {
    names.iter().map(|name| Row::of(name, &[])).collect()
}

/// Answers of a kernel that does not have the thing at all.
const ABSENT: [&str; 6] = [
    "os error 38)", // ENOSYS
    "os error 97)", // EAFNOSUPPORT
    "os error 93)", // EPROTONOSUPPORT
    "os error 95)", // EOPNOTSUPP
    "os error 94)", // ESOCKTNOSUPPORT
    "os error 2)",  // ENOENT: no such file in /proc, /sys or /dev
];

#[derive(Debug)]
struct Verdict {
    status: Option<i32>,
    detail: String,
}

impl Verdict {
    fn parse(status: Option<i32>, line: &str) -> Verdict {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        let detail = value["detail"].as_str().map_or_else(|| format!("no answer: {line:?}"), str::to_owned);
        Verdict { status, detail }
    }
}

/// A theme: the directory the attacks run in, and where they run.
struct Theme<'a> {
    rows: Vec<Row>,
    net: Option<&'a Internet>,
    options: Vec<String>,
}

impl Theme<'_> {
    /// Outside: each row in a mount namespace of its own, all as the user of the harness.
    fn outside(&self, dir: &Path) -> Vec<Verdict> {
        let probe = installed().probe();
        let one = |row: &Row| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "--", "sh", "-c"]);
            command.arg(format!("{}\nexec \"$@\"", row.outside)).arg("sh").arg(&probe).arg(row.name);
            command.args(&row.arguments).current_dir(dir).env("PWD", dir).stdin(Stdio::null());
            command.output().expect("unshare of util-linux")
        };
        let verdict = |output: Output| Verdict::parse(output.status.code(), last_line(&output.stdout));
        self.rows
            .iter()
            .map(|row| match self.net {
                Some(net) => net.inside(|| verdict(one(row))),
                None => verdict(one(row)),
            })
            .collect()
    }

    /// Inside: one run, one line for each row.
    fn inside(&self, person: &Person, work: &Path) -> Vec<Verdict> {
        let probe = work.join("probe");
        copy_program(&installed().probe(), &probe);
        person.give_work(&probe);
        let mut script = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let arguments = row.inside.as_ref().unwrap_or(&row.arguments);
            let arguments: String = arguments.iter().map(|a| format!(" '{a}'")).collect();
            script.push_str(&format!(
                "echo \"{number} $(./probe {}{arguments} 2>/dev/null | tail -n 1)\" ",
                row.name
            ));
            // The status of the probe, not of the pipe, is in its own words; a crash says nothing at all.
            script.push_str("< /dev/null\n");
        }
        let options =
            ["--work".to_owned(), work.display().to_string()].into_iter().chain(self.options.clone());
        let mut call = person.sh(options, &script).timeout(Duration::from_secs(180));
        if let Some(net) = self.net {
            call = call.within(net);
        }
        let outcome = call.output();
        let text = outcome.out();
        let lines: HashMap<usize, &str> = text
            .lines()
            .filter_map(|l| l.split_once(' '))
            .filter_map(|(n, l)| Some((n.parse().ok()?, l)))
            .collect();
        let verdict = |number: usize| {
            let line = lines.get(&number).copied().unwrap_or_default();
            let value: Value = serde_json::from_str(line).unwrap_or_default();
            let broken = value["detail"].as_str().is_none_or(|d| d.starts_with("broken"));
            let status = if broken { 2 } else { i32::from(value["succeeded"] != true) };
            Verdict::parse(Some(status), line)
        };
        let verdicts: Vec<Verdict> = (0..self.rows.len()).map(verdict).collect();
        assert!(verdicts.iter().any(|v| v.status != Some(2)), "the probe does not run inside: {outcome}");
        verdicts
    }

    /// The table.
    fn judge(&self, theme: &str) {
        if harness::kind() != Harness::Root {
            harness::skip(
                &format!("attacks outside ({theme})"),
                "the tests do not run as root; inside they are made all the same",
            );
        }
        let dir = tempfile::Builder::new().prefix("anet-attack-").tempdir_in("/tmp").expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("mode");
        let outside = if harness::kind() == Harness::Root { self.outside(dir.path()) } else { Vec::new() };
        let mut wrong = Vec::new();
        for (row, verdict) in self.rows.iter().zip(&outside) {
            match verdict.status {
                Some(0) => {}
                Some(1) if ABSENT.iter().any(|absent| verdict.detail.ends_with(absent)) => {
                    harness::skip(
                        &format!("attack {} outside", row.label()),
                        &format!("not on this kernel: {}", verdict.detail),
                    );
                }
                status => wrong.push(format!(
                    "outside {}: has to succeed, got {status:?} {}",
                    row.label(),
                    verdict.detail
                )),
            }
        }
        for who in Who::all() {
            let person = Person::new(*who);
            let work = person.work_dir("work");
            for (row, verdict) in self.rows.iter().zip(self.inside(&person, &work)) {
                if verdict.status != Some(1) {
                    wrong.push(format!(
                        "inside ({who:?}) {}: has to be refused, got {} {}",
                        row.label(),
                        if verdict.status == Some(0) { "SUCCESS" } else { "a crash" },
                        verdict.detail
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{theme}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
    }
}

fn last_line(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default().lines().last().unwrap_or_default()
}

fn judge(theme: &str, rows: Vec<Row>) {
    Theme { rows, net: None, options: Vec::new() }.judge(theme);
}

/// A process of the host that waits to be attacked.
struct Victim(Child);

impl Victim {
    fn start() -> Victim {
        let child = Command::new("sleep").arg("600").env("MY_SECRET", "canary-77aa").spawn().expect("sleep");
        Victim(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("wait").is_none()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// SBX-2: no way out over any family.
#[test]
fn network() {
    let Some(net) = Internet::new() else { return };
    net.https("pkg.example.com", |_| tests::internet::Response::ok("x"));
    let services: Vec<String> = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V4(NEAR_V4),
        IpAddr::V6(NEAR_V6),
    ]
    .map(|address| net.host_service(address, 0).to_string())
    .to_vec();
    let echoes: Vec<String> = [IpAddr::V4(NEAR_V4), IpAddr::V6(NEAR_V6), IpAddr::V4(Ipv4Addr::LOCALHOST)]
        .map(|address| net.host_echo(address).to_string())
        .to_vec();
    let abstract_name = format!("anet-attack-{}", std::process::id());
    let _stream = net.inside(|| {
        UnixListener::bind_addr(&UnixAddr::from_abstract_name(&abstract_name).expect("a name"))
            .expect("a socket")
    });
    let datagram_name = format!("{abstract_name}-datagram");
    let _datagram = net.inside(|| {
        let address = UnixAddr::from_abstract_name(&datagram_name).expect("a name");
        std::os::unix::net::UnixDatagram::bind_addr(&address).expect("a socket")
    });
    let dir = tempfile::Builder::new().prefix("anet-socket-").tempdir_in("/tmp").expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("mode");
    let path = dir.path().join("socket");
    let _path = UnixListener::bind(&path).expect("a socket");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("mode");
    let path = path.to_str().expect("text").to_owned();

    let mut rows = rows(&[
        "netlink_links",
        "netlink_add_link",
        "vsock",
        "packet",
        "packet_datagram",
        "raw_v4",
        "raw_v6",
        "raw_socket_flags",
        "xdp",
        "key_socket",
        "bluetooth",
        "tipc",
        "can",
    ]);
    // A service on the far side says nothing first: its stray ports greet.
    rows.extend(services.iter().map(|address| Row::of("connect_tcp", &[address])));
    rows.push(Row::of("connect_tcp", &["93.184.216.34:80"]));
    rows.push(Row::of("connect_tcp", &["[2606:2800:220:1::1]:80"]));
    rows.push(Row::of("connect_tcp", &["10.0.0.1:8080"]));
    rows.push(Row::of("connect_tcp", &["169.254.169.254:80"]));
    rows.extend(echoes.iter().map(|address| Row::of("send_udp", &[address])));
    rows.push(Row::of("connect_abstract", &[&abstract_name]));
    rows.push(Row::of("send_abstract", &[&datagram_name]));
    rows.push(Row::of("connect_path", &[&path]));
    rows.push(Row::of("resolve", &["pkg.example.com"]));
    let before = net.strays().len();
    let theme = Theme { rows, net: Some(&net), options: vec!["--allow".into(), "pkg.example.com".into()] };
    theme.judge("network");
    // Outside each was noted once; inside none.
    let noted = net.strays().len() - before;
    let outside = if harness::kind() == Harness::Root { 8 } else { 0 };
    assert_eq!(noted, outside, "{:?}", net.strays());
}

/// SBX-2: a socket of somebody else in an opened directory is still somebody else's.
#[test]
fn a_socket_in_the_work_directory_is_not_reached() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        let socket = work.join("service");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).expect("mode");
        person.give_work(&socket);
        let row = Row::of("connect_path", &["./service"]);
        let theme = Theme { rows: vec![row], net: None, options: Vec::new() };
        let verdict = theme.inside(&person, &work).remove(0);
        assert_eq!(verdict.status, Some(1), "{who:?}: {verdict:?}");
    }
}

/// SBX-4: no new namespaces, by any call.
#[test]
fn namespaces() {
    let kinds = ["user", "mount", "pid", "net", "ipc", "uts", "cgroup", "user+net", "user+mount+pid"];
    let mut rows = Vec::new();
    for name in ["unshare", "clone", "clone3"] {
        rows.extend(kinds.iter().map(|kind| Row::of(name, &[kind])));
    }
    for name in ["unshare", "clone3"] {
        rows.push(Row::of(name, &["time"]));
    }
    rows.extend(
        ["mount", "pid", "net", "ipc", "uts", "cgroup", "time"].map(|kind| Row::of("setns_pidfd", &[kind])),
    );
    for kind in ["net", "ipc", "uts", "cgroup", "pid"] {
        rows.push(Row::of("setns_file", &[kind, &format!("/proc/self/ns/{kind}")]));
    }
    judge("namespaces", rows);
}

/// SBX-4: no mounting, by the old and the new interface.
#[test]
fn mounts() {
    let read_only = "mount --bind /usr /usr && mount -o remount,ro,bind /usr || exit 9";
    let mut rows = rows(&[
        "mount_tmpfs",
        "mount_bind",
        "mount_proc",
        "pivot_root",
        "chroot",
        "fsopen",
        "fspick",
        "open_tree",
        "move_mount",
        "swapon",
    ]);
    rows.push(Row::of("remount_writable", &["/usr"]).outside(read_only));
    rows.push(Row::of("mount_setattr", &["/usr"]).outside(read_only));
    rows.push(Row::of("umount", &["/usr"]).outside(read_only));
    rows.push(Row::of("umount", &["/proc"]));
    judge("mounts", rows);
}

/// SBX-4: no tracing, reading or signalling of other processes.
#[test]
fn other_processes() {
    let mut victim = Victim::start();
    let mut doomed = Victim::start();
    let pid = victim.pid();
    let mut rows = rows(&[
        "ptrace_attach",
        "ptrace_seize",
        "ptrace_traceme",
        "vm_readv",
        "vm_writev",
        "pidfd_getfd",
        "kcmp",
    ]);
    for name in ["proc_mem", "proc_environ", "proc_fd", "proc_root", "proc_cwd", "proc_maps"] {
        // Process 1 inside is bubblewrap's, or anet-init.
        rows.push(Row::of(name, &[&pid]).inside(&["1"]));
        rows.push(Row::of(name, &[&pid]));
    }
    rows.push(Row::of("proc_exists", &[&pid]));
    rows.push(Row::of("find_secret", &["canary-", "77aa"]));
    rows.push(Row::of("signal_queue", &[&pid]));
    rows.push(Row::of("kill", &[&doomed.pid()]).inside(&[&pid]));
    rows.push(Row::of("kill", &[&Victim::start_for_good().to_string()]).inside(&["1"]));
    judge("other processes", rows);
    assert!(victim.is_alive(), "the victim of the runs inside");
    assert!(harness::kind() != Harness::Root || !doomed.is_alive(), "the victim outside");
}

impl Victim {
    /// One that dies of the attack itself, or when the tests end.
    fn start_for_good() -> u32 {
        let child = Command::new("timeout").args(["60", "sleep", "60"]).spawn().expect("sleep");
        let pid = child.id();
        std::thread::spawn(move || {
            let mut child = child;
            let _ = child.wait();
        });
        pid
    }
}

/// SBX-4: any other system call interface.
#[test]
fn foreign_interfaces() {
    judge(
        "foreign interfaces",
        rows(&[
            "int80_getpid",
            "int80_socket",
            "int80_vsock",
            "int80_unshare_user",
            "int80_mount",
            "int80_ptrace_traceme",
            "int80_add_key",
            "int80_keyctl",
            "int80_bpf",
            "int80_io_uring_setup",
            "int80_ioctl_tiocsti",
            "x32_getpid",
            "x32_unshare_user",
            "x32_socket",
        ]),
    );
}

/// SBX-4, SBX-3: parts of the kernel that no agent needs; no capability.
#[test]
fn kernel() {
    judge(
        "kernel",
        rows(&[
            "io_uring_setup",
            "io_uring_enter",
            "io_uring_register",
            "add_key",
            "keyctl",
            "request_key",
            "bpf_map",
            "bpf_load",
            "perf_event_open",
            "userfaultfd",
            "init_module",
            "finit_module",
            "delete_module",
            "kexec_load",
            "kexec_file_load",
            "open_by_handle_at",
            "syslog",
            "acct",
            "fanotify",
            "iopl",
            "ioperm",
            "adjtimex",
            "sethostname",
            "setdomainname",
            "reboot",
            "vhangup",
            "setpriority",
            "capset_all",
            "setuid_0",
            "setgid_0",
            "setgroups",
        ]),
    );
}

/// SBX-4: terminal injection, also with high bits in the request.
#[test]
fn terminals() {
    judge("terminals", rows(&["tiocsti", "tiocsti_high_bits", "tioclinux", "tioclinux_high_bits"]));
}

/// SBX-3: device nodes, and what container runtimes mask or make read-only.
#[test]
fn devices_and_masks() {
    let mut all = rows(&["mknod_char", "mknod_block"]);
    for device in [
        "/dev/kvm",
        "/dev/kmsg",
        "/dev/mem",
        "/dev/port",
        "/dev/vsock",
        "/dev/fuse",
        "/dev/net/tun",
        "/dev/loop-control",
        "/dev/console",
    ] {
        all.push(Row::of("open_device", &[device]));
    }
    for path in [
        "/proc/kcore",
        "/proc/keys",
        "/proc/timer_list",
        "/proc/latency_stats",
        "/proc/sched_debug",
        "/proc/interrupts",
        "/proc/kpagecount",
        "/proc/kpageflags",
        "/proc/vmallocinfo",
        "/proc/slabinfo",
        "/proc/kmsg",
    ] {
        // A log that is read up waits for more: only a look.
        if path != "/proc/kmsg" {
            all.push(Row::of("read_some", &[path]));
        }
    }
    for path in
        ["/sys/firmware", "/sys/devices/virtual/powercap", "/sys/kernel", "/sys/fs/cgroup", "/sys/class/net"]
    {
        all.push(Row::of("list_dir", &[path]));
    }
    for path in [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/domainname",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/irq/default_smp_affinity",
    ] {
        all.push(Row::of("write_back", &[path]));
    }
    for path in [
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/fs/file-max",
        "/proc/bus/pci/devices",
        "/proc/fs/ext4",
    ] {
        all.push(Row::of("open_for_writing", &[path]));
    }
    // What only some machines have: listed where there is something to list.
    for path in ["/proc/acpi", "/proc/scsi", "/proc/asound"] {
        if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            all.push(Row::of("list_dir", &[path]));
        } else {
            harness::skip(&format!("attack list_dir {path}"), "there is nothing in it on this machine");
        }
    }
    let (present, absent): (Vec<Row>, Vec<Row>) = all.into_iter().partition(|row| {
        row.name != "open_for_writing"
            || fs::metadata(&row.arguments[0])
                .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o222 != 0)
    });
    for row in absent {
        harness::skip(&format!("attack {}", row.label()), "no writable file of that name on this machine");
    }
    judge("devices and masks", present);
}

/// SBX-3: a program of user 0 with the setuid bit gains nothing.
#[test]
fn setuid_programs() {
    if harness::kind() != Harness::Root {
        return harness::skip("a setuid program", "only root can make one");
    }
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        let setuid = |path: &Path| {
            copy_program(&installed().probe(), path);
            std::os::unix::fs::chown(path, Some(0), Some(0)).expect("chown");
            fs::set_permissions(path, fs::Permissions::from_mode(0o4755)).expect("mode");
        };
        let (inside, beside) = (work.join("setuid-probe"), person.path("setuid-probe"));
        setuid(&inside);
        setuid(&beside);
        let ordinary = Person::new(Who::User);
        for path in [&inside, &beside] {
            let mut outside = ordinary.command(path);
            assert!(
                outside.args(["setuid_program", "inside"]).status().expect("probe").success(),
                "outside it is user 0"
            );
            let path = path.to_str().expect("text");
            let options = ["--work", work.to_str().expect("text"), "--ro", beside.to_str().expect("text")];
            let outcome = person.run(options, [path, "setuid_program", "inside"]).output();
            outcome.expect_code(1);
        }
        // The system's own.
        let script = "for p in /usr/bin/su /usr/bin/passwd /usr/bin/mount /usr/bin/newgrp; do \
                      [ -u $p ] && echo x | $p 2>/dev/null >/dev/null; done; id -u";
        person.sh(crate::NONE, script).output().expect_out("1000");
    }
}

/// FS-2, FS-5: files outside, by links, renames and names.
#[test]
fn files_outside() {
    let dir = tempfile::Builder::new().prefix("anet-outside-").tempdir_in("/tmp").expect("a directory");
    let place = |name: &str| -> PathBuf { dir.path().join(name) };
    let open =
        |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    open(dir.path(), 0o777);
    for name in ["write", "append", "link", "up", "hard", "delete", "mode", "over", "read"] {
        fs::write(place(name), "outside\n").expect("file");
        open(&place(name), 0o666);
    }
    let text = |name: &str| place(name).to_str().expect("text").to_owned();
    let tmpfs = "mount -t tmpfs none /usr/local/share || exit 9";
    let rows = vec![
        Row::of("write_file", &[&text("write")]),
        Row::of("append_file", &[&text("append")]),
        Row::of("write_through_link", &[&text("link")]),
        Row::of("write_dot_dot", &[&text("up")]),
        Row::of("hard_link_in", &[&text("hard")]),
        Row::of("hard_link_out", &[&text("made-by-link")]),
        Row::of("rename_out", &[&text("made-by-rename")]),
        Row::of("rename_over", &[&text("over"), &text("over2")]),
        Row::of("delete", &[&text("delete")]),
        Row::of("chmod", &[&text("mode")]),
        Row::of("read_some", &[&text("read")]),
        Row::of("list_dir", &[dir.path().to_str().expect("text")]),
        Row::of("read_some", &["/etc/shadow"]),
        Row::of("write_file", &["/usr/local/share/anet-probe"]).outside(tmpfs),
        Row::of("append_file", &["/etc/hostname"]).outside(
            "mount -t tmpfs none /srv && cp /etc/hostname /srv/h && mount --bind /srv/h /etc/hostname || exit 9",
        ),
        // A program of the system, by a second name where the run may write.
        Row::of("hard_link_in", &["/etc/passwd"]),
        Row::of("list_dir", &["/root"]),
    ];
    if harness::kind() != Harness::Root {
        harness::skip("attacks on files of root", "the tests do not run as root");
    }
    // Inside first, while everything is as it was: the outside runs are meant to leave traces.
    let theme = Theme { rows, net: None, options: Vec::new() };
    let snapshot = || {
        let mut all: Vec<_> = fs::read_dir(dir.path())
            .expect("directory")
            .flatten()
            .map(|e| {
                (
                    e.path(),
                    fs::read(e.path()).expect("file"),
                    e.metadata().expect("metadata").permissions().mode(),
                )
            })
            .collect();
        all.sort();
        all
    };
    let before = snapshot();
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        for (row, verdict) in theme.rows.iter().zip(theme.inside(&person, &work)) {
            assert_eq!(verdict.status, Some(1), "inside ({who:?}) {}: {verdict:?}", row.label());
        }
        assert_eq!(snapshot(), before, "{who:?}");
    }
    theme.judge("files outside");
}

/// LIM: a fork bomb and a full disk, bounded outside too.
#[test]
fn exhaustion() {
    let row = Row::of("fill_disk", &["24"]);
    let theme = Theme { rows: vec![row], net: None, options: Vec::new() };
    let dir = tempfile::tempdir_in("/tmp").expect("directory");
    if harness::kind() == Harness::Root {
        let verdict = theme.outside(dir.path()).remove(0);
        assert_eq!(verdict.status, Some(0), "outside: {verdict:?}");
    } else {
        harness::skip("attack fill_disk outside", "the tests do not run as root");
    }
    let program = installed().probe();
    let program = program.to_str().expect("text");
    for who in Who::all() {
        let person = Person::new(*who);
        let options = ["--limit", "growth=8MiB", "--ro", program];
        person.run(options, [program, "fill_disk", "24"]).output().expect_code(123);
        // Bounded by the clock where nothing else bounds it; nothing of it is left.
        let options = ["--untrusted", "--timeout", "3s", "--ro", program];
        let script = format!("{program} fork_many 200; {program} fork_many 300; sleep 60");
        let outcome = person.sh(options, &script).output();
        outcome.expect_code(124);
        let left = processes::wait_gone(Duration::from_secs(2), || processes::with_argument("fork_many 300"));
        assert_eq!(left, []);
    }
}

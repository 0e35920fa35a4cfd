//! Landlock inside the sandbox (SBX-7), and the domains of the roles.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

use confine::landlock::{abi, missing, restrict, restrict_run};
use confine::sys::wait::Status;
use confine::{Paths, Role, privileges};

use crate::attack::attack;
use crate::harness::{Action, Test, outcome};

pub(crate) const TESTS: &[Test] = &[
    ("sbx_7_a_run_writes_only_where_it_may", writes),
    ("sbx_7_standard_streams_open_again_with_the_rights_they_have", streams),
    ("sbx_7_abstract_sockets_and_signals_stay_inside", scopes),
    ("prv_4_the_supervisors_domain_has_its_directories_only", supervisor),
    ("sbx_7_what_an_older_kernel_lacks_is_named", degrades),
    ("sbx_7_a_kernel_without_landlock_is_said_and_served", without_landlock),
];

pub(crate) const CHILDREN: &[Action] = &[
    ("run_writes", run_writes),
    ("run_streams", run_streams),
    ("run_scopes", run_scopes),
    ("supervisor_opens", supervisor_opens),
    ("without_landlock", enter_without_landlock),
];

fn answer<T>(what: &str, result: std::io::Result<T>) {
    println!("{what} {}", result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1)));
}

/// A directory to write in, one that is not, and a file in each.
fn directories() -> tempfile::TempDir {
    let base = tempfile::tempdir().unwrap();
    for name in ["mine", "other"] {
        fs::create_dir(base.path().join(name)).unwrap();
        fs::write(base.path().join(name).join("file"), "text").unwrap();
    }
    base
}

/// `run_writes no|run BASE`.
fn run_writes(words: &[&str]) {
    let base = Path::new(words[1]);
    let (mine, other) = (base.join("mine"), base.join("other"));
    let directory = File::open(&mine).unwrap();
    if words[0] == "run" {
        assert_eq!(restrict_run(&[directory.as_fd()], true).unwrap(), abi());
    }
    // Allowed.
    answer("read other", fs::read(other.join("file")));
    answer("list other", fs::read_dir(&other));
    answer("write mine", fs::write(mine.join("new"), "text"));
    answer("append mine", OpenOptions::new().append(true).open(mine.join("file")));
    answer("mkdir mine", fs::create_dir(mine.join("sub")));
    answer("move within mine", fs::rename(mine.join("new"), mine.join("sub/new")));
    answer("link within mine", fs::hard_link(mine.join("sub/new"), mine.join("linked")));
    answer("symlink mine", std::os::unix::fs::symlink("/etc", mine.join("symlink")));
    let listener = UnixListener::bind(mine.join("socket"));
    answer(
        "socket mine",
        listener.as_ref().map_err(|error| std::io::Error::from_raw_os_error(error.raw_os_error().unwrap())),
    );
    answer("connect mine", UnixStream::connect(mine.join("socket")));
    answer("remove mine", fs::remove_file(mine.join("linked")));
    answer("null", OpenOptions::new().write(true).truncate(true).open("/dev/null"));
    answer("terminal", OpenOptions::new().read(true).write(true).open("/dev/ptmx"));
    answer(
        "execute",
        std::process::Command::new("/bin/true").env_clear().spawn().map(|mut child| child.wait()),
    );
    answer("tcp", std::net::TcpListener::bind("127.0.0.1:0"));
    println!("--");
    // Refused.
    answer("write other", OpenOptions::new().append(true).open(other.join("file")));
    answer("truncate other", fs::File::options().write(true).truncate(true).open(other.join("file")));
    answer("truncate by path", rustix_truncate(&other.join("file")));
    answer("create other", fs::write(other.join("new"), "text"));
    answer("mkdir other", fs::create_dir(other.join("sub")));
    answer("symlink other", std::os::unix::fs::symlink("/etc", other.join("symlink")));
    answer("link into other", fs::hard_link(mine.join("file"), other.join("linked")));
    answer("link out of other", fs::hard_link(other.join("file"), mine.join("stolen")));
    answer("through a link", {
        let _ = std::os::unix::fs::symlink(&other, mine.join("way"));
        fs::write(mine.join("way/new2"), "text")
    });
    answer("remove other", fs::remove_file(other.join("file")));
    answer("move into other", fs::rename(mine.join("file"), other.join("file2")));
    answer("core pattern", OpenOptions::new().write(true).open("/proc/sys/kernel/core_pattern"));
}

fn rustix_truncate(path: &Path) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a C string.
    if unsafe { libc::truncate(path.as_ptr(), 0) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

fn writes() {
    if abi() == 0 {
        return;
    }
    let base = directories();
    let told = outcome("run_writes", &["run", base.path().to_str().unwrap()], |_| ());
    assert_eq!(told.status, Status::Exited(0), "{}", told.text);
    let (allowed, refused) = told.text.split_once("--\n").unwrap();
    for line in allowed.lines() {
        assert!(line.ends_with(" 0"), "{line}");
    }
    for line in refused.lines() {
        // EACCES; EXDEV for a move or link whose directory's rights differ.
        let since_3 = line.starts_with("truncate by path") && abi() < 3;
        assert!(since_3 || line.ends_with(" 13") || line.ends_with(" 18"), "{line}");
    }
    // The same without the wall: each of them works (the last for root).
    let free = directories();
    let told = outcome("run_writes", &["no", free.path().to_str().unwrap()], |_| ());
    let lines: Vec<&str> = told.text.lines().filter(|line| !line.starts_with("core pattern")).collect();
    assert!(lines.iter().all(|line| *line == "--" || line.ends_with(" 0")), "{lines:?}");
}

/// `run_streams no|run`: 0 is a file opened for reading, 1 a pipe, 2 a file opened for writing.
fn run_streams(words: &[&str]) {
    if words[0] == "run" {
        restrict_run(&[], true).unwrap();
    }
    answer("read 0", File::open("/dev/stdin"));
    answer("write 0", OpenOptions::new().write(true).open("/proc/self/fd/0"));
    answer("write 1", OpenOptions::new().write(true).open("/dev/stdout"));
    answer("write 2", File::create("/dev/stderr"));
    answer("read 2", File::open("/proc/self/fd/2"));
}

fn streams() {
    if abi() == 0 {
        return;
    }
    let base = directories();
    let path = base.path().join("other/file");
    for (confined, expected) in [
        ("no", "read 0 0\nwrite 0 0\nwrite 1 0\nwrite 2 0\n"),
        ("run", "read 0 0\nwrite 0 13\nwrite 1 0\nwrite 2 0\n"),
    ] {
        let input: &'static File = Box::leak(Box::new(File::open(&path).unwrap()));
        let output: &'static File = Box::leak(Box::new(
            File::options().append(true).create(true).open(base.path().join("log")).unwrap(),
        ));
        let told = outcome("run_streams", &[confined], |command| {
            command.descriptors[0].0 = input.as_fd();
            command.descriptors[2].0 = output.as_fd();
        });
        assert!(told.text.starts_with(expected), "{confined}: {}", told.text);
    }
}

/// `run_scopes no|run NAME`: an abstract socket of the test's, and the test itself.
fn run_scopes(words: &[&str]) {
    if words[0] == "run" {
        restrict_run(&[], true).unwrap();
    }
    let address = SocketAddr::from_abstract_name(words[1]).unwrap();
    answer("abstract", UnixStream::connect_addr(&address));
    println!("signal {}", attack("kill_parent"));
    let own = SocketAddr::from_abstract_name(format!("{}-own", words[1])).unwrap();
    let _listener = UnixListener::bind_addr(&own).unwrap();
    answer("own", UnixStream::connect_addr(&own));
}

fn scopes() {
    let name = format!("anet-test-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    assert_eq!(outcome("run_scopes", &["no", &name], |_| ()).text, "abstract 0\nsignal 0\nown 0\n");
    if abi() >= 6 {
        assert_eq!(outcome("run_scopes", &["run", &name], |_| ()).text, "abstract 1\nsignal -1\nown 0\n");
    }
}

/// The supervisor's domain without its filter, which would end it at the first open.
fn supervisor_opens(words: &[&str]) {
    let base = Path::new(words[0]);
    rustix::thread::set_no_new_privs(true).unwrap();
    let (mine, other) = (File::open(base.join("mine")).unwrap(), File::open(base.join("other")).unwrap());
    let domain = privileges(Role::Supervisor).landlock.unwrap();
    restrict(&domain, &Paths { writable: &[mine.as_fd()], readable: &[other.as_fd()], ..Paths::default() })
        .unwrap();
    answer("write mine", fs::write(base.join("mine/new"), "text"));
    answer("read other", fs::read(base.join("other/file")));
    println!("--");
    answer("write other", fs::write(base.join("other/file"), "text"));
    answer("elsewhere", fs::read("/etc/passwd"));
    answer("execute", std::process::Command::new("/bin/true").spawn());
    answer("listen", std::net::TcpListener::bind("127.0.0.1:0"));
    std::io::stdout().flush().unwrap();
}

fn supervisor() {
    if abi() < 4 {
        return;
    }
    let base = directories();
    let told = outcome("supervisor_opens", &[base.path().to_str().unwrap()], |_| ());
    assert_eq!(
        told.text,
        "write mine 0\nread other 0\n--\nwrite other 13\nelsewhere 13\nexecute 13\nlisten 13\n"
    );
}

fn degrades() {
    let domain = privileges(Role::Supervisor).landlock.unwrap();
    assert_eq!(missing(&domain, abi().max(6)), Vec::<&str>::new());
    // Ubuntu 24.04 and Debian 12.
    assert_eq!(missing(&domain, 4), ["device commands", "abstract sockets", "signals"]);
    assert_eq!(
        missing(&domain, 2),
        ["truncation", "TCP ports", "device commands", "abstract sockets", "signals"]
    );
    let launcher = privileges(Role::Launcher).landlock.unwrap();
    assert_eq!(missing(&launcher, 0), ["abstract sockets", "signals"]);
}

/// A filter that answers ENOSYS to Landlock's first call, as a kernel built without it.
fn hide_landlock() {
    let i = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let call = u32::try_from(libc::SYS_landlock_create_ruleset).unwrap();
    rustix::thread::set_no_new_privs(true).unwrap();
    confine::sys::seccomp::install(&[
        i(0x20, 0, 0, 0),
        i(0x15, 0, 1, call),
        i(0x06, 0, 0, 0x0005_0000 | libc::ENOSYS.cast_unsigned()),
        i(0x06, 0, 0, 0x7fff_0000),
    ])
    .unwrap();
}

fn enter_without_landlock(words: &[&str]) {
    hide_landlock();
    if words[0] == "run" {
        println!("{}", restrict_run(&[rustix::stdio::stdout()], true).unwrap());
        return;
    }
    let role = *Role::ALL.iter().find(|role| role.name() == words[0]).unwrap();
    let report = confine::enter(role, &Paths::default()).unwrap();
    println!("{} {}", report.landlock_abi, report.landlock_missing.join(","));
}

fn without_landlock() {
    let told = |name: &str| outcome("without_landlock", &[name], |_| ()).text;
    assert_eq!(told("run"), "0\n");
    assert_eq!(told("guard"), "0 \n");
    assert_eq!(told("launcher"), "0 abstract sockets,signals\n");
    for name in ["supervisor", "proxy", "terminal"] {
        assert!(told(name).starts_with("0 files,moves between directories,truncation,TCP ports,"), "{name}");
    }
}

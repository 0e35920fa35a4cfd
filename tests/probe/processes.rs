//! Other processes: tracing, reading, signalling; and as many of them as there is room for.

use std::fs;

use crate::call::{At, Errno, Sleeper, call, in_child, wait};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[(&str, Attack)] = &[
    ("ptrace_attach", |_| of_child(|pid| call(libc::SYS_ptrace, &[&libc::PTRACE_ATTACH, &pid, &0, &0]))),
    ("ptrace_seize", |_| of_child(|pid| call(libc::SYS_ptrace, &[&libc::PTRACE_SEIZE, &pid, &0, &0]))),
    ("ptrace_traceme", ptrace_traceme),
    ("vm_readv", vm_readv),
    ("vm_writev", vm_writev),
    ("pidfd_getfd", pidfd_getfd),
    ("kcmp", |_| of_child(|pid| call(libc::SYS_kcmp, &[&pid, &pid, &0, &0, &0]))),
    ("proc_mem", proc_mem),
    ("proc_environ", |a| of_other(a, "environ", |path| fs::read(path).map(|b| b.len()))),
    ("proc_fd", |a| of_other(a, "fd", |path| fs::read_dir(path).map(Iterator::count))),
    ("proc_root", |a| of_other(a, "root", |path| fs::read_dir(format!("{path}/")).map(Iterator::count))),
    ("proc_cwd", |a| of_other(a, "cwd", |path| fs::read_dir(format!("{path}/")).map(Iterator::count))),
    ("proc_maps", |a| of_other(a, "maps", |path| fs::read(path).map(|b| b.len()))),
    ("proc_exists", |a| of_other(a, "stat", |path| fs::read(path).map(|b| b.len()))),
    ("find_secret", find_secret),
    ("kill", kill),
    ("signal_queue", signal_queue),
    ("fork_many", fork_many),
    ("threads_many", threads_many),
    ("memory", memory),
];

fn of_child(attack: impl FnOnce(i32) -> Result<i64, Errno>) -> Verdict {
    match Sleeper::start() {
        Ok(sleeper) => Verdict::of(attack(sleeper.0)),
        Err(errno) => Verdict::Broken(format!("no child: {errno}")),
    }
}

fn ptrace_traceme(_: &[String]) -> Verdict {
    let status =
        in_child(|| call(libc::SYS_ptrace, &[&libc::PTRACE_TRACEME, &0, &0, &0]).map_or_else(|e| e.0, |_| 0));
    match status {
        Ok(0) => Verdict::Succeeded("traced".into()),
        Ok(errno) => Verdict::Refused(Errno(errno).to_string()),
        Err(errno) => Verdict::Broken(errno.to_string()),
    }
}

static SECRET: [u8; 8] = *b"a secret";

/// Reads a child's memory: the child is a copy, so the address is the same in it.
fn vm_readv(_: &[String]) -> Verdict {
    vm(libc::SYS_process_vm_readv)
}

fn vm_writev(_: &[String]) -> Verdict {
    vm(libc::SYS_process_vm_writev)
}

fn vm(number: i64) -> Verdict {
    // On the heap, so that the child's copy can be written.
    let mut remote = SECRET.to_vec();
    let mut buffer = [0u8; 8];
    let mut local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: 8 };
    let mut there = libc::iovec { iov_base: remote.as_mut_ptr().cast(), iov_len: 8 };
    of_child(|pid| call(number, &[&pid, &At(&mut local), &1, &At(&mut there), &1, &0]))
}

fn pidfd_getfd(_: &[String]) -> Verdict {
    of_child(|pid| {
        let pidfd = call(libc::SYS_pidfd_open, &[&pid, &0])?;
        call(libc::SYS_pidfd_getfd, &[&pidfd, &1, &0])
    })
}

/// What another process shows of itself; nothing in it is as good as a refusal.
fn of_other(arguments: &[String], file: &str, read: impl FnOnce(&str) -> std::io::Result<usize>) -> Verdict {
    let Some(pid) = arguments.first() else { return Verdict::Broken("a process number is missing".into()) };
    match read(&format!("/proc/{pid}/{file}")) {
        Ok(0) => Verdict::Refused("there is nothing in it".into()),
        Ok(found) => Verdict::Succeeded(format!("{found} in {file} of {pid}")),
        Err(error) => Verdict::Refused(error.to_string()),
    }
}

/// Opens another process's memory and reads the start of its first mapping.
fn proc_mem(arguments: &[String]) -> Verdict {
    use std::os::unix::fs::FileExt as _;
    of_other(arguments, "mem", |path| {
        let maps = fs::read_to_string(path.replace("/mem", "/maps"))?;
        let start =
            maps.split('-').next().and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or_default();
        let mut byte = [0];
        fs::File::open(path)?.read_exact_at(&mut byte, start).map(|()| 1)
    })
}

/// Looks for a text in what every process in /proc shows of itself. The text comes in two halves, so that the
/// argument lists which carry them here do not hold it.
fn find_secret(arguments: &[String]) -> Verdict {
    let secret = arguments.concat();
    if secret.is_empty() {
        return Verdict::Broken("a text in two halves is missing".into());
    }
    let Ok(entries) = fs::read_dir("/proc") else { return Verdict::Broken("no /proc".into()) };
    let mut looked = 0;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        for file in ["environ", "cmdline", "comm", "mountinfo", "cgroup"] {
            let Ok(bytes) = fs::read(format!("/proc/{name}/{file}")) else { continue };
            looked += 1;
            if bytes.windows(secret.len()).any(|window| window == secret.as_bytes()) {
                return Verdict::Succeeded(format!("/proc/{name}/{file}"));
            }
        }
    }
    Verdict::Refused(format!("not in {looked} files"))
}

/// Ends a process and looks whether it is gone.
fn kill(arguments: &[String]) -> Verdict {
    let Some(pid) = arguments.first().and_then(|a| a.parse::<i32>().ok()) else {
        return Verdict::Broken("a process number is missing".into());
    };
    if let Err(errno) = call(libc::SYS_kill, &[&pid, &libc::SIGKILL]) {
        return Verdict::Refused(errno.to_string());
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    match state.rsplit_once(") ").map(|(_, rest)| rest.starts_with('Z')) {
        Some(false) => Verdict::Refused("the signal was taken and did nothing".into()),
        Some(true) | None => Verdict::Succeeded("it is gone".into()),
    }
}

fn signal_queue(arguments: &[String]) -> Verdict {
    let Some(pid) = arguments.first().and_then(|a| a.parse::<i32>().ok()) else {
        return Verdict::Broken("a process number is missing".into());
    };
    // The kernel reads a struct siginfo of 128 bytes; its code has to be negative to be another process's.
    let mut info = [0i32; 32];
    info[0] = libc::SIGURG;
    info[2] = libc::SI_QUEUE;
    Verdict::of(call(libc::SYS_rt_sigqueueinfo, &[&pid, &libc::SIGURG, &At(&mut info)]))
}

fn count(arguments: &[String]) -> Option<usize> {
    arguments.first()?.parse().ok()
}

/// So many children at once.
fn fork_many(arguments: &[String]) -> Verdict {
    let Some(wanted) = count(arguments) else { return Verdict::Broken("a number is missing".into()) };
    let mut children = Vec::new();
    for _ in 0..wanted {
        match Sleeper::start() {
            Ok(child) => children.push(child),
            Err(errno) => return Verdict::Refused(format!("{errno} after {}", children.len())),
        }
    }
    Verdict::Succeeded(format!("{} at once", children.len()))
}

fn threads_many(arguments: &[String]) -> Verdict {
    let Some(wanted) = count(arguments) else { return Verdict::Broken("a number is missing".into()) };
    for started in 0..wanted {
        let builder = std::thread::Builder::new().stack_size(64 * 1024);
        if let Err(error) = builder.spawn(|| std::thread::sleep(std::time::Duration::from_secs(60))) {
            return Verdict::Refused(format!("{error} after {started}"));
        }
    }
    Verdict::Succeeded(format!("{wanted} at once"))
}

/// So many MiB of memory, written to, in a child (which the kernel may end).
fn memory(arguments: &[String]) -> Verdict {
    let Some(wanted) = count(arguments) else { return Verdict::Broken("a number of MiB is missing".into()) };
    // SAFETY: as in `in_child`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut blocks = Vec::new();
        for number in 0..wanted {
            // Other bytes each time, so that nothing merges them.
            blocks.push(vec![(number % 251) as u8 + 1; 1 << 20]);
        }
        // SAFETY: ends this process.
        unsafe { libc::_exit(i32::from(blocks.len() != wanted)) }
    }
    match wait(child) {
        Ok(0) => Verdict::Succeeded(format!("{wanted} MiB")),
        Ok(status) => Verdict::Refused(format!("ended with {status}")),
        Err(errno) => Verdict::Broken(errno.to_string()),
    }
}

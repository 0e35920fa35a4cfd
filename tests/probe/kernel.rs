//! Parts of the kernel that no agent needs and many exploits do.

use crate::call::{At, call, text};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[(&str, Attack)] = &[
    ("io_uring_setup", io_uring_setup),
    ("io_uring_enter", |_| reaching(libc::SYS_io_uring_enter, &[&-1, &0, &0, &0, &0, &0])),
    ("io_uring_register", |_| reaching(libc::SYS_io_uring_register, &[&-1, &0, &0, &0])),
    ("add_key", add_key),
    ("keyctl", |_| Verdict::of(call(libc::SYS_keyctl, &[&0, &USER_SESSION_KEYRING, &1]))),
    ("request_key", request_key),
    ("bpf_map", bpf_map),
    ("bpf_load", |_| reaching(libc::SYS_bpf, &[&5, &0, &0])),
    ("perf_event_open", perf_event_open),
    ("userfaultfd", |_| Verdict::of(call(libc::SYS_userfaultfd, &[&0]))),
    ("init_module", |_| reaching(libc::SYS_init_module, &[&0, &0, &0])),
    ("finit_module", |_| reaching(libc::SYS_finit_module, &[&-1, &0, &0])),
    ("delete_module", |_| reaching(libc::SYS_delete_module, &[&&text("no_such_module"), &0])),
    ("kexec_load", |_| reaching(libc::SYS_kexec_load, &[&0, &1_000_000, &0, &0])),
    ("kexec_file_load", |_| reaching(libc::SYS_kexec_file_load, &[&-1, &-1, &0, &0, &0])),
    ("open_by_handle_at", open_by_handle_at),
    ("syslog", |_| Verdict::of(call(libc::SYS_syslog, &[&10, &0, &0]))),
    ("acct", |_| reaching(libc::SYS_acct, &[&&text("/nowhere/at/all")])),
    ("fanotify", |_| Verdict::of(call(libc::SYS_fanotify_init, &[&0x4, &0]))),
    ("iopl", |_| Verdict::of(call(libc::SYS_iopl, &[&3]))),
    ("ioperm", |_| Verdict::of(call(libc::SYS_ioperm, &[&0x80, &1, &1]))),
    ("adjtimex", adjtimex),
    ("sethostname", sethostname),
    ("setdomainname", |_| reaching(libc::SYS_setdomainname, &[&0, &1_000_000])),
    ("reboot", |_| reaching(libc::SYS_reboot, &[&0, &0, &0, &0])),
    ("vhangup", |_| Verdict::of(call(libc::SYS_vhangup, &[]))),
    ("setpriority", |_| Verdict::of(call(libc::SYS_setpriority, &[&0, &0, &-20]))),
    ("capset_all", capset_all),
    ("setuid_0", |_| Verdict::of(call(libc::SYS_setresuid, &[&0, &0, &0]))),
    ("setgid_0", |_| Verdict::of(call(libc::SYS_setresgid, &[&0, &0, &0]))),
    ("setgroups", |_| Verdict::of(call(libc::SYS_setgroups, &[&0, &0]))),
];

const USER_SESSION_KEYRING: i32 = -5;

fn reaching(number: i64, arguments: &[&dyn crate::call::Argument]) -> Verdict {
    Verdict::of_reaching_the_kernel(call(number, arguments))
}

fn io_uring_setup(_: &[String]) -> Verdict {
    // struct io_uring_params has 120 bytes.
    Verdict::of(call(libc::SYS_io_uring_setup, &[&4, &At(&mut [0u64; 15])]))
}

fn add_key(_: &[String]) -> Verdict {
    let (kind, name, data) = (text("user"), text("anet-probe"), text("x"));
    // The process's own keyring (-2): nothing stays behind.
    Verdict::of(call(libc::SYS_add_key, &[&&kind, &&name, &&data, &1, &-2]))
}

fn request_key(_: &[String]) -> Verdict {
    let (kind, name) = (text("user"), text("anet-no-such-key"));
    // ENOKEY: the store was searched.
    reaching(libc::SYS_request_key, &[&&kind, &&name, &0, &0])
}

fn bpf_map(_: &[String]) -> Verdict {
    // union bpf_attr for BPF_MAP_CREATE: an array of one element.
    let mut attr = [0u32; 32];
    attr[0] = 2;
    attr[1] = 4;
    attr[2] = 4;
    attr[3] = 1;
    Verdict::of(call(libc::SYS_bpf, &[&0, &At(&mut attr), &128]))
}

fn perf_event_open(_: &[String]) -> Verdict {
    // struct perf_event_attr: a software event (1), the processor clock (0), of this process.
    let mut attr = [0u32; 32];
    attr[0] = 1;
    attr[1] = 128;
    Verdict::of(call(libc::SYS_perf_event_open, &[&At(&mut attr), &0, &-1, &-1, &0]))
}

/// A handle of a file leads to the file on any mount of its file system: names and mounts do not count.
fn open_by_handle_at(_: &[String]) -> Verdict {
    /// `struct file_handle`, with room for the largest.
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        data: [u8; 128],
    }
    let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount = 0i32;
    let named = call(
        libc::SYS_name_to_handle_at,
        &[&libc::AT_FDCWD, &&text("/usr/bin/env"), &At(&mut handle), &At(&mut mount), &0],
    );
    if let Err(errno) = named {
        // Some file systems have no handles. A refusal to name one is a refusal of the attack.
        return if errno.is_refusal() {
            Verdict::Refused(errno.to_string())
        } else {
            Verdict::Broken(errno.to_string())
        };
    }
    let Ok(directory) = std::fs::File::open("/usr/bin") else { return Verdict::Broken("no /usr/bin".into()) };
    use std::os::fd::AsRawFd as _;
    let descriptor = directory.as_raw_fd();
    Verdict::of(call(libc::SYS_open_by_handle_at, &[&descriptor, &At(&mut handle), &libc::O_RDONLY]))
}

/// A tick of zero is refused (EINVAL), but only to somebody who may set the clock at all.
fn adjtimex(_: &[String]) -> Verdict {
    const ADJ_TICK: u64 = 0x4000;
    // struct timex has 208 bytes, the modes first.
    let mut timex = [0u64; 26];
    timex[0] = ADJ_TICK;
    reaching(libc::SYS_adjtimex, &[&At(&mut timex)])
}

fn sethostname(_: &[String]) -> Verdict {
    // The name that it has already: outside, nothing changes.
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = text(name.trim_end());
    Verdict::of(call(libc::SYS_sethostname, &[&&name, &name.as_bytes().len()]))
}

/// Any capability at all, in any set.
fn capset_all(_: &[String]) -> Verdict {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut sets = status.lines().filter(|line| line.starts_with("Cap")).map(|line| line.replace('\t', " "));
    match sets.find(|line| !line.ends_with("0000000000000000")) {
        Some(set) => Verdict::Succeeded(set),
        None => Verdict::Refused("every set is empty".into()),
    }
}

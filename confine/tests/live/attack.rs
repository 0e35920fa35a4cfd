//! Calls that a process under somebody else's control might try, each with the answer of the kernel.

use std::io::Error;
use std::sync::OnceLock;

static PARENT: OnceLock<u64> = OnceLock::new();

/// Asks what the attacks need to know, before the process is confined: a question that is forbidden would end it, and prove
/// nothing of the attack.
pub(crate) fn prepare() {
    let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    PARENT.set(u64::from(parent.cast_unsigned())).unwrap();
}

/// A call by its number: its result, or its errno as a negative number.
pub(crate) fn call(number: libc::c_long, arguments: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: none; the tests give arguments with which the calls do nothing to this process's memory.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if answer == -1 { -i64::from(Error::last_os_error().raw_os_error().unwrap()) } else { answer }
}

/// The same with fewer arguments.
pub(crate) fn call_with(number: libc::c_long, arguments: &[u64]) -> i64 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    call(number, all)
}

/// A call through the i386 interface.
#[cfg(target_arch = "x86_64")]
pub(crate) fn call_i386(number: i64) -> i64 {
    let mut answer = number;
    // SAFETY: the arguments are zero, and the calls asked for take none. The kernel may clobber r8 to r11.
    unsafe {
        std::arch::asm!(
            "push rbx", "xor ebx, ebx", "int 0x80", "pop rbx",
            inout("rax") answer,
            inout("rcx") 0i64 => _, inout("rdx") 0i64 => _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    answer
}

/// Something to attack with, by name.
pub(crate) fn attack(name: &str) -> i64 {
    let path = c"/etc/hostname".as_ptr() as u64;
    let here = libc::AT_FDCWD as u64;
    let parent = *PARENT.get().unwrap();
    match name {
        "openat" => call_with(libc::SYS_openat, &[here, path, 0]),
        "socket_inet" => call_with(libc::SYS_socket, &[2, 1, 0]),
        "socket_unix" => call_with(libc::SYS_socket, &[1, 1, 0]),
        "socket_netlink" => call_with(libc::SYS_socket, &[16, 3, 0]),
        "socket_raw" => call_with(libc::SYS_socket, &[2, 3, 1]),
        "socket_packet" => call_with(libc::SYS_socket, &[17, 3, 0]),
        "socket_vsock" => call_with(libc::SYS_socket, &[40, 1, 0]),
        "socket_alg" => call_with(libc::SYS_socket, &[38, 5, 0]),
        "socket_netlink_high_bits" => call_with(libc::SYS_socket, &[16 | 1 << 32, 3, 4]),
        "listen" => call_with(libc::SYS_listen, &[0, 1]),
        // To itself as a program that is not there: nothing happens where it is allowed.
        "execve" => call_with(libc::SYS_execve, &[c"/nonexistent".as_ptr() as u64, 0, 0]),
        // Signal 0: only the permission is asked for.
        "kill_parent" => call_with(libc::SYS_kill, &[parent, 0]),
        "tgkill_parent" => call_with(libc::SYS_tgkill, &[parent, parent, 0]),
        "fork" => match call_with(libc::SYS_clone, &[17, 0, 0, 0, 0]) {
            // SAFETY: the child only ends.
            0 => unsafe { libc::_exit(0) },
            pid => pid.min(1),
        },
        "ptrace" => call_with(libc::SYS_ptrace, &[0, 0, 0, 0]),
        "process_vm_readv" => call_with(libc::SYS_process_vm_readv, &[parent, 0, 0, 0, 0, 0]),
        "mmap_exec" => call_with(libc::SYS_mmap, &[0, 4096, 5, 0x22, u64::MAX, 0]).min(1),
        "mmap_data" => call_with(libc::SYS_mmap, &[0, 4096, 3, 0x22, u64::MAX, 0]).min(1),
        "prctl" => call_with(libc::SYS_prctl, &[libc::PR_GET_DUMPABLE as u64, 0, 0, 0, 0]),
        "prlimit" => call_with(libc::SYS_prlimit64, &[0, 0, 0, 0]),
        "setresuid" => call_with(libc::SYS_setresuid, &[u64::MAX, u64::MAX, u64::MAX]),
        "capset" => call_with(libc::SYS_capset, &[0, 0]),
        "mount" => call_with(libc::SYS_mount, &[0, c"/nonexistent".as_ptr() as u64, 0, 0, 0]),
        "unshare_user" => call_with(libc::SYS_unshare, &[libc::CLONE_NEWUSER as u64]),
        "clone_user" => match call_with(libc::SYS_clone, &[17 | libc::CLONE_NEWUSER as u64, 0, 0, 0, 0]) {
            // SAFETY: the child only ends.
            0 => unsafe { libc::_exit(0) },
            pid => pid.min(1),
        },
        // A size too small: the call is known by EINVAL.
        "clone3" => call_with(libc::SYS_clone3, &[0, 0]),
        "io_uring_setup" => call_with(libc::SYS_io_uring_setup, &[0, 0]),
        "bpf" => call_with(libc::SYS_bpf, &[u64::MAX, 0, 0]),
        "keyctl" => call_with(libc::SYS_keyctl, &[0, u64::from((-3i32).cast_unsigned()), 0]).min(1),
        "perf_event_open" => call_with(libc::SYS_perf_event_open, &[0, 0, u64::MAX, u64::MAX, 0]),
        "userfaultfd" => call_with(libc::SYS_userfaultfd, &[1]).min(1),
        "open_by_handle_at" => call_with(libc::SYS_open_by_handle_at, &[u64::MAX, 0, 0]),
        "kcmp" => {
            let own = u64::from(std::process::id());
            call_with(libc::SYS_kcmp, &[own, own, 0, 1, 1])
        }
        "personality" => call_with(libc::SYS_personality, &[0x0004_0000]).min(1),
        "beyond_the_last_call" => call_with(5000, &[]),
        #[cfg(target_arch = "x86_64")]
        "x32" => call_with(0x4000_0000 | libc::SYS_getpid, &[]),
        #[cfg(target_arch = "x86_64")]
        "i386" => call_i386(20).min(1),
        other => panic!("no attack {other}"),
    }
}

//! The other system call interfaces of an x86-64 kernel: i386 by `int 0x80`, and x32 by bit 30 of the number. A filter
//! that looks at numbers without looking at the interface lets them through.

use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[(&str, Attack)] = &[
    ("int80_getpid", |_| i386(20, [0; 5], 0)),
    ("int80_socket", |_| i386(359, [1, 1, 0, 0, 0], 0)),
    ("int80_vsock", |_| i386(359, [40, 1, 0, 0, 0], 0)),
    ("int80_unshare_user", |_| i386(310, [0x1000_0000, 0, 0, 0, 0], 0)),
    ("int80_mount", |_| i386(21, [0; 5], FAULT)),
    ("int80_ptrace_traceme", |_| i386(26, [0; 5], 0)),
    ("int80_add_key", |_| i386(286, [0; 5], FAULT)),
    ("int80_keyctl", |_| i386(288, [0, 0xffff_fffd, 1, 0, 0], 0)),
    ("int80_bpf", |_| i386(357, [99, 0, 0, 0, 0], INVALID)),
    ("int80_io_uring_setup", |_| i386(425, [1, 0, 0, 0, 0], FAULT)),
    ("int80_ioctl_tiocsti", |_| i386(54, [0, 0x5412, 0, 0, 0], NO_TERMINAL)),
    ("x32_getpid", |_| x32(libc::SYS_getpid)),
    ("x32_unshare_user", |_| x32(libc::SYS_unshare)),
    ("x32_socket", |_| x32(libc::SYS_socket)),
];

/// Answers of the kernel's own for the arguments above; 0: only a result counts.
const FAULT: i64 = libc::EFAULT as i64;
const INVALID: i64 = libc::EINVAL as i64;
const NO_TERMINAL: i64 = libc::ENOTTY as i64;

/// Done in a child: a filter that kills must not look like a refusal, it is a crash of the agent (SBX-4).
#[cfg(target_arch = "x86_64")]
fn i386(number: i64, arguments: [i64; 5], kernels_own: i64) -> Verdict {
    report(kernels_own, move || {
        let [b, c, d, s, di] = arguments;
        let result: i64;
        // SAFETY: the arguments are numbers or null; rbx, which the compiler keeps for itself, is put back.
        unsafe {
            std::arch::asm!(
                "xchg {b}, rbx",
                "int 0x80",
                "xchg {b}, rbx",
                b = inout(reg) b => _,
                inlateout("rax") number => result,
                in("rcx") c, in("rdx") d, in("rsi") s, in("rdi") di,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
        // The interface is one of 32 bits: so is its answer.
        i64::from(result as i32)
    })
}

#[cfg(target_arch = "x86_64")]
fn x32(number: i64) -> Verdict {
    const X32: i64 = 0x4000_0000;
    report(0, move || {
        let result: i64;
        // SAFETY: numbers only; unshare(CLONE_NEWUSER), socket(AF_UNIX, SOCK_STREAM) and getpid() all take this one.
        unsafe {
            std::arch::asm!(
                "syscall",
                inlateout("rax") number | X32 => result,
                in("rdi") if number == libc::SYS_socket { 1i64 } else { 0x1000_0000 },
                in("rsi") 1i64, in("rdx") 0i64,
                out("rcx") _, out("r11") _,
            );
        }
        result
    })
}

/// The answer comes through a pipe, because an error number and an exit status are both a byte wide.
#[cfg(target_arch = "x86_64")]
fn report(kernels_own: i64, attack: impl FnOnce() -> i64) -> Verdict {
    use std::io::{Read as _, Write as _};
    let Ok((mut reader, mut writer)) = std::io::pipe() else { return Verdict::Broken("no pipe".into()) };
    let status = crate::call::in_child(|| {
        let result = attack();
        let _ = writer.write_all(&result.to_ne_bytes());
        0
    });
    if status != Ok(0) {
        return Verdict::Broken(format!("the call ended the process: {status:?} (159 is SIGSYS)"));
    }
    let mut bytes = [0; 8];
    if reader.read_exact(&mut bytes).is_err() {
        return Verdict::Broken("no answer from the child".into());
    }
    let result = i64::from_ne_bytes(bytes);
    if result >= 0 || -result == kernels_own {
        return Verdict::Succeeded(format!("result {result}"));
    }
    Verdict::Refused(crate::call::Errno((-result) as i32).to_string())
}

#[cfg(not(target_arch = "x86_64"))]
fn i386(_: i64, _: [i64; 5], _: i64) -> Verdict {
    Verdict::Refused("this processor has no such interface".into())
}

#[cfg(not(target_arch = "x86_64"))]
fn x32(_: i64) -> Verdict {
    Verdict::Refused("this processor has no such interface".into())
}

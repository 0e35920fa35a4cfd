//! The filters as they are entered, run in an interpreter for every call and both architectures.

mod interpreter;
mod lists;

use super::assemble::{ARCHITECTURES, Architecture, assemble, value};
use super::calls::{CALLS, Call};
use super::rule::{Action, List, Rule, Test};
use super::{Filter, aarch64, lists as data, x86_64};
use interpreter::{Data, run};
use proptest::prelude::*;

const X86_64: usize = 0;
const AARCH64: usize = 1;

/// The number of the process that entered, for lists that ask for it.
const OWN: u32 = 4711;

/// The filters of an architecture.
fn built(architecture: usize) -> [&'static Filter; 8] {
    match architecture {
        X86_64 => [
            &x86_64::GUARD,
            &x86_64::SUPERVISOR,
            &x86_64::NODE,
            &x86_64::LAUNCHER,
            &x86_64::PROXY,
            &x86_64::BROKER,
            &x86_64::TERMINAL,
            &x86_64::RUN,
        ],
        _ => [
            &aarch64::GUARD,
            &aarch64::SUPERVISOR,
            &aarch64::NODE,
            &aarch64::LAUNCHER,
            &aarch64::PROXY,
            &aarch64::BROKER,
            &aarch64::TERMINAL,
            &aarch64::RUN,
        ],
    }
}

/// The same, each with its own number filled in.
fn filters(architecture: usize) -> Vec<(&'static List, Vec<libc::sock_filter>)> {
    let filters = built(architecture);
    assert_eq!(filters.len(), data::ALL.len(), "every list is tested");
    filters.iter().map(|filter| (filter.list, filled(filter))).collect()
}

fn filled(filter: &Filter) -> Vec<libc::sock_filter> {
    let mut program = filter.program.to_vec();
    for at in filter.own_process {
        program[*at].k = OWN;
    }
    program
}

fn number(architecture: &Architecture, name: &str) -> Option<u32> {
    CALLS.iter().find(|call| call.name == name).and_then(architecture.number)
}

/// What a filter answers to a call by its name; nothing where the architecture has no such call.
fn answer(architecture: usize, list: &List, name: &str, arguments: [u64; 6]) -> Option<u32> {
    let (_, program) = filters(architecture).into_iter().find(|(of, _)| of.name == list.name).unwrap();
    let architecture = &ARCHITECTURES[architecture];
    let number = number(architecture, name)?;
    Some(run(&program, &Data { number, architecture: architecture.audit, arguments }))
}

/// What the list says, read as its documentation tells: the other way to the same answer.
fn decide(list: &List, architecture: &Architecture, data: &Data) -> Action {
    if data.architecture != architecture.audit {
        return list.foreign;
    }
    let Some(call) = CALLS.iter().find(|call| (architecture.number)(call) == Some(data.number)) else {
        return list.unknown;
    };
    let Some(rule) = list.rules.iter().find(|rule| rule.call == call.name) else {
        return list.otherwise;
    };
    let arm = rule.arms.iter().find(|arm| arm.when.iter().all(|test| holds(*test, &data.arguments)));
    arm.map_or(list.otherwise, |arm| arm.then)
}

fn holds(test: Test, arguments: &[u64; 6]) -> bool {
    match test {
        Test::OneOf(at, values) => values.contains(&(arguments[at] as u32)),
        Test::Bits(at, mask, bits) => arguments[at] as u32 & mask == bits,
        Test::OwnProcess(at) => arguments[at] as u32 == OWN,
    }
}

/// Values of an argument at which some rule may change its mind.
fn interesting(rule: Option<&Rule>) -> Vec<u64> {
    let mut values = vec![0, 1, u64::MAX];
    for test in rule.into_iter().flat_map(|rule| rule.arms).flat_map(|arm| arm.when) {
        match test {
            Test::OneOf(_, of) => values.extend(of.iter().map(|value| u64::from(*value))),
            Test::Bits(_, mask, bits) => values.extend([*mask, *bits, !mask, !bits].map(u64::from)),
            Test::OwnProcess(_) => values.push(u64::from(OWN)),
        }
    }
    let near = values.clone();
    values.extend(near.iter().map(|value| value.wrapping_add(1)));
    // The kernel ignores the high half of these arguments: so must the filter.
    values.extend(near.iter().map(|value| value | 1 << 32));
    values.extend(near.iter().map(|value| value | 0xffff_ffff << 32));
    values.sort_unstable();
    values.dedup();
    values
}

/// PRV-3, SBX-4: every call of every list answers as the list says, on both architectures, at every value of up to three
/// arguments that a rule names, in either half of the register.
#[test]
fn every_call_answers_as_its_list_says() {
    for (at, architecture) in ARCHITECTURES.iter().enumerate() {
        for (list, program) in filters(at) {
            for call in CALLS {
                let Some(number) = (architecture.number)(call) else { continue };
                let rule = list.rules.iter().find(|rule| rule.call == call.name);
                let values = interesting(rule);
                let few: &[u64] =
                    if rule.is_some_and(|rule| rule.arms.len() > 1) { &values } else { &[0, 1] };
                for first in &values {
                    for second in &values {
                        for third in few {
                            let arguments = [*first, *second, *third, *second, 0, 0];
                            let data = Data { number, architecture: architecture.audit, arguments };
                            let expected = value(decide(list, architecture, &data));
                            let found = run(&program, &data);
                            assert_eq!(
                                found, expected,
                                "{} {} {} {arguments:x?}",
                                architecture.name, list.name, call.name
                            );
                        }
                    }
                }
            }
        }
    }
}

/// SBX-4: no number is let through that belongs to no known call: beyond the last, in the gaps, with bit 30 (x32), negative.
#[test]
fn unknown_numbers_are_refused() {
    for (at, architecture) in ARCHITECTURES.iter().enumerate() {
        let known: Vec<u32> = CALLS.iter().filter_map(architecture.number).collect();
        let highest = *known.iter().max().unwrap();
        for (list, program) in filters(at) {
            let x32 = (0..=highest + 100).map(|number| number | 0x4000_0000);
            let unknown = (0..2048).filter(|number| !known.contains(number));
            for number in unknown.chain(x32).chain([0x8000_0000, u32::MAX, u32::MAX - 1, i32::MAX as u32]) {
                let data = Data { number, architecture: architecture.audit, arguments: [0; 6] };
                let expected = if list.otherwise == Action::Allow { 0x0005_0000 | 38 } else { 0x8000_0000 };
                assert_eq!(run(&program, &data), expected, "{} {} {number}", architecture.name, list.name);
            }
        }
    }
}

/// SBX-4: a call of another architecture never reaches the numbers of this one; it answers ENOSYS where programs run that
/// are not ours, and ends a process of ours.
#[test]
fn other_architectures_are_refused() {
    // AUDIT_ARCH_ of i386, arm, and each other's.
    let all = [0x4000_0003, 0x4000_0028, 0, ARCHITECTURES[X86_64].audit, ARCHITECTURES[AARCH64].audit];
    for (at, architecture) in ARCHITECTURES.iter().enumerate() {
        for (list, program) in filters(at) {
            for foreign in all.into_iter().filter(|audit| *audit != architecture.audit) {
                for number in 0..600 {
                    let data = Data { number, architecture: foreign, arguments: [0; 6] };
                    let expected =
                        if list.otherwise == Action::Allow { 0x0005_0000 | 38 } else { 0x8000_0000 };
                    assert_eq!(run(&program, &data), expected);
                }
            }
        }
    }
}

/// What was built is what the lists say now, and short enough for the kernel.
#[test]
fn the_built_programs_are_those_of_the_lists() {
    // BPF_MAXINSNS of linux/bpf_common.h.
    const LONGEST: usize = 4096;
    for (at, architecture) in ARCHITECTURES.iter().enumerate() {
        for filter in built(at) {
            let program = assemble(filter.list, architecture);
            assert_eq!(program.own_process, filter.own_process);
            assert!(program.instructions.len() < LONGEST);
            let built = filter.program.iter().map(|i| (i.code, i.jt, i.jf, i.k));
            assert!(built.eq(program.instructions.iter().map(|i| (i.code, i.jt, i.jf, i.k))));
        }
    }
}

/// A name that one architecture does not have is an old call, or one of its own: no list is shorter by a slip.
#[test]
fn lists_hold_on_both_architectures() {
    let only_x86_64 = [
        "access",
        "epoll_wait",
        "ioperm",
        "iopl",
        "modify_ldt",
        "poll",
        "readlink",
        "rename",
        "unlink",
        "uselib",
    ];
    for list in data::ALL {
        for rule in list.rules {
            let call = CALLS.iter().find(|call| call.name == rule.call).unwrap();
            assert!(call.x86_64.is_some(), "{}", rule.call);
            assert_eq!(call.aarch64.is_none(), only_x86_64.contains(&rule.call), "{}", rule.call);
        }
    }
}

/// A list longer than an eight-bit jump: the assembler bridges it.
#[test]
fn long_lists_are_bridged() {
    const MANY: [u32; 300] = {
        let mut values = [0; 300];
        let mut at = 0;
        while at < values.len() {
            values[at] = 2 * at as u32;
            at += 1;
        }
        values
    };
    use super::rule::{Arm, allow, decide as by_arguments};
    const ARMS: &[Arm] = &[Arm { when: &[Test::OneOf(0, &MANY)], then: Action::Errno(7) }];
    const RULES: &[Rule] =
        &[by_arguments("bind", ARMS, "-"), by_arguments("ioctl", ARMS, "-"), allow("read", "-")];
    let list = List {
        name: "long",
        rules: RULES,
        otherwise: Action::KillProcess,
        unknown: Action::Errno(38),
        foreign: Action::Errno(1),
    };
    for architecture in &ARCHITECTURES {
        let program: Vec<libc::sock_filter> = assemble(&list, architecture)
            .instructions
            .iter()
            .map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k })
            .collect();
        for call in ["bind", "ioctl", "read", "write"] {
            for argument in 0..700 {
                let number = number(architecture, call).unwrap();
                let data =
                    Data { number, architecture: architecture.audit, arguments: [argument, 0, 0, 0, 0, 0] };
                assert_eq!(
                    run(&program, &data),
                    value(decide(&list, architecture, &data)),
                    "{call} {argument}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// SBX-4: whatever the registers hold, the program and the list agree.
    #[test]
    fn any_call_answers_as_its_list_says(
        at in 0usize..2,
        which in 0usize..8,
        number in prop_oneof![0u32..500, any::<u32>(), (0u32..500).prop_map(|n| n | 0x4000_0000)],
        foreign in prop::bool::weighted(0.1),
        arguments in prop::array::uniform6(prop_oneof![any::<u64>(), 0u64..32, Just(u64::from(OWN))]),
    ) {
        let architecture = &ARCHITECTURES[at];
        let (list, program) = filters(at).swap_remove(which);
        let audit = if foreign { 0x4000_0003 } else { architecture.audit };
        let data = Data { number, architecture: audit, arguments };
        prop_assert_eq!(run(&program, &data), value(decide(list, architecture, &data)));
    }
}

fn native_number(call: &Call) -> Option<u32> {
    if cfg!(target_arch = "x86_64") { call.x86_64 } else { call.aarch64 }
}

/// The table of numbers agrees with libc's on this machine, for every call that a list names.
#[test]
fn numbers_are_those_of_libc() {
    macro_rules! known {
        ($($name:ident = $constant:ident,)*) => { vec![$((stringify!($name), libc::$constant),)*] };
    }
    let known = known![
        read = SYS_read,
        write = SYS_write,
        close = SYS_close,
        mmap = SYS_mmap,
        mprotect = SYS_mprotect,
        ioctl = SYS_ioctl,
        clone = SYS_clone,
        clone3 = SYS_clone3,
        unshare = SYS_unshare,
        setns = SYS_setns,
        mount = SYS_mount,
        umount2 = SYS_umount2,
        pivot_root = SYS_pivot_root,
        chroot = SYS_chroot,
        fsopen = SYS_fsopen,
        fsmount = SYS_fsmount,
        open_tree = SYS_open_tree,
        move_mount = SYS_move_mount,
        mount_setattr = SYS_mount_setattr,
        ptrace = SYS_ptrace,
        process_vm_readv = SYS_process_vm_readv,
        process_vm_writev = SYS_process_vm_writev,
        kcmp = SYS_kcmp,
        pidfd_getfd = SYS_pidfd_getfd,
        bpf = SYS_bpf,
        perf_event_open = SYS_perf_event_open,
        userfaultfd = SYS_userfaultfd,
        add_key = SYS_add_key,
        request_key = SYS_request_key,
        keyctl = SYS_keyctl,
        kexec_load = SYS_kexec_load,
        open_by_handle_at = SYS_open_by_handle_at,
        io_uring_setup = SYS_io_uring_setup,
        io_uring_enter = SYS_io_uring_enter,
        io_uring_register = SYS_io_uring_register,
        socket = SYS_socket,
        socketpair = SYS_socketpair,
        connect = SYS_connect,
        sendmsg = SYS_sendmsg,
        recvmsg = SYS_recvmsg,
        execve = SYS_execve,
        execveat = SYS_execveat,
        kill = SYS_kill,
        tgkill = SYS_tgkill,
        personality = SYS_personality,
        init_module = SYS_init_module,
        finit_module = SYS_finit_module,
        reboot = SYS_reboot,
        splice = SYS_splice,
        memfd_create = SYS_memfd_create,
        statx = SYS_statx,
        prctl = SYS_prctl,
        seccomp = SYS_seccomp,
        openat = SYS_openat,
        openat2 = SYS_openat2,
    ];
    for (name, libc) in known {
        let call = CALLS.iter().find(|call| call.name == name).unwrap();
        assert_eq!(native_number(call).map(i64::from), Some(libc), "{name}");
    }
    // The other architecture, from include/uapi/asm-generic/unistd.h.
    for (name, number) in [
        ("ioctl", 29),
        ("umount2", 39),
        ("mount", 40),
        ("openat", 56),
        ("close", 57),
        ("read", 63),
        ("write", 64),
        ("unshare", 97),
        ("ptrace", 117),
        ("socket", 198),
        ("keyctl", 219),
        ("clone", 220),
        ("execve", 221),
        ("mmap", 222),
        ("setns", 268),
        ("bpf", 280),
        ("io_uring_setup", 425),
        ("clone3", 435),
    ] {
        let call = CALLS.iter().find(|call| call.name == name).unwrap();
        assert_eq!(call.aarch64, Some(number), "{name}");
    }
}

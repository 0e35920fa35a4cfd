//! What a list of system calls is made of. Built into the crate and into its build script.

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The kernel does it.
    Allow,
    /// The kernel answers this error and does nothing.
    Errno(u16),
    /// The process ends by SIGSYS.
    KillProcess,
}

/// A test of one argument's low 32 bits.
///
/// All arguments that the lists look at are `int` or `unsigned int` to the kernel, or flags that all lie in the low half:
/// it ignores the high half of the register, so a test of 64 bits would be stepped around by setting one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// The argument is one of these values.
    OneOf(usize, &'static [u32]),
    /// Of the bits of the mask, exactly these are set.
    Bits(usize, u32, u32),
    /// The argument is the number of the process that entered the filter.
    OwnProcess(usize),
}

/// An action for the calls that pass all tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// All of them must hold; none: always.
    pub when: &'static [Test],
    /// What happens then.
    pub then: Action,
}

/// One call of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The call's name.
    pub call: &'static str,
    /// Tried in this order; if none matches, [`List::otherwise`] holds.
    pub arms: &'static [Arm],
    /// Why the rule is there.
    pub reason: &'static str,
}

/// A filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// What it is called.
    pub name: &'static str,
    /// The calls that it names, sorted.
    pub rules: &'static [Rule],
    /// For every other call that exists.
    pub otherwise: Action,
    /// For a number that belongs to no known call, x32 (bit 30) included.
    pub unknown: Action,
    /// For a call of another architecture, as i386 through `int 0x80`: its numbers mean other calls.
    pub foreign: Action,
}

/// As the kernel refuses what a process may not do. The same on every architecture, as ENOSYS is.
pub const EPERM: u16 = libc::EPERM as u16;
/// As a kernel answers that never had the call: programs fall back then.
pub const ENOSYS: u16 = libc::ENOSYS as u16;

const ALWAYS: &[Test] = &[];

/// A call that may be made with any arguments.
pub const fn allow(call: &'static str, reason: &'static str) -> Rule {
    Rule { call, arms: &[Arm { when: ALWAYS, then: Action::Allow }], reason }
}

/// A call that answers EPERM.
pub const fn refuse(call: &'static str, reason: &'static str) -> Rule {
    Rule { call, arms: &[Arm { when: ALWAYS, then: Action::Errno(EPERM) }], reason }
}

/// A call that answers ENOSYS, because programs probe for it and go on without.
pub const fn absent(call: &'static str, reason: &'static str) -> Rule {
    Rule { call, arms: &[Arm { when: ALWAYS, then: Action::Errno(ENOSYS) }], reason }
}

/// A call whose arguments decide.
pub const fn decide(call: &'static str, arms: &'static [Arm], reason: &'static str) -> Rule {
    Rule { call, arms, reason }
}

/// Allowed if all tests hold.
pub const fn allow_if(when: &'static [Test]) -> Arm {
    Arm { when, then: Action::Allow }
}

/// EPERM if all tests hold.
pub const fn refuse_if(when: &'static [Test]) -> Arm {
    Arm { when, then: Action::Errno(EPERM) }
}

/// EPERM for all that the arms above did not allow.
pub const REFUSE: Arm = Arm { when: ALWAYS, then: Action::Errno(EPERM) };

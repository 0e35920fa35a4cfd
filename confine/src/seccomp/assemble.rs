//! From a list to a BPF program, when the crate is built: at run time a filter costs one system call.
//!
//! The program looks at the architecture, then finds the call's number in a balanced tree (a chain of 450 comparisons would
//! be walked 450 times when the kernel precomputes which calls are always allowed), then tries the arms.
//!
//! BPF only jumps forward, so it is written from its end: whatever an instruction jumps to is there already.

use std::collections::BTreeMap;

use super::calls::{CALLS, Call};
use super::rule::{Action, List, Rule, Test};

/// An architecture: how the kernel names it to a filter, and its numbers.
pub struct Architecture {
    /// As Rust names it.
    pub name: &'static str,
    /// `AUDIT_ARCH_*` of linux/audit.h.
    pub audit: u32,
    /// The number of a call.
    pub number: fn(&Call) -> Option<u32>,
}

/// Those that anet runs on. Both are little-endian: the low half of an argument comes first.
pub const ARCHITECTURES: [Architecture; 2] = [
    Architecture { name: "x86_64", audit: 0xC000_003E, number: |call| call.x86_64 },
    Architecture { name: "aarch64", audit: 0xC000_00B7, number: |call| call.aarch64 },
];

/// One BPF instruction, as `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// A program, and the instructions whose value is the process's own number, known only when it is entered.
pub struct Program {
    pub instructions: Vec<Instruction>,
    pub own_process: Vec<usize>,
}

// linux/bpf_common.h.
pub const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
pub const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
pub const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
pub const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
pub const JUMP_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
pub const RETURN: u16 = 0x06; // BPF_RET | BPF_K

// struct seccomp_data of linux/seccomp.h.
pub const NUMBER_AT: u32 = 0;
pub const ARCHITECTURE_AT: u32 = 4;
pub const ARGUMENTS_AT: u32 = 16;

/// The value that SECCOMP_RET_* gives to an action.
pub fn value(action: Action) -> u32 {
    match action {
        Action::Allow => 0x7FFF_0000,
        Action::Errno(errno) => 0x0005_0000 | u32::from(errno),
        Action::KillProcess => 0x8000_0000,
    }
}

/// An instruction, counted from the end of the program.
type Label = usize;

#[derive(Default)]
struct Assembler {
    reversed: Vec<Instruction>,
    returns: Vec<(Action, Label)>,
    own_process: Vec<Label>,
}

impl Assembler {
    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> Label {
        self.reversed.push(Instruction { code, jt, jf, k });
        self.reversed.len() - 1
    }

    fn distance(&self, target: Label) -> usize {
        self.reversed.len() - 1 - target
    }

    fn answer(&mut self, action: Action) -> Label {
        if let Some((_, label)) = self.returns.iter().find(|(known, _)| *known == action) {
            return *label;
        }
        let label = self.push(RETURN, 0, 0, value(action));
        self.returns.push((action, label));
        label
    }

    /// Makes `target` reachable by a conditional jump, whose distance has only eight bits.
    fn near(&mut self, target: Label, instructions_between: usize) -> Label {
        if self.distance(target) + instructions_between <= usize::from(u8::MAX) {
            return target;
        }
        let distance = u32::try_from(self.distance(target)).expect("programs are short");
        self.push(JUMP, 0, 0, distance)
    }

    fn branch(&mut self, code: u16, k: u32, yes: Label, no: Label) -> Label {
        // A jump added for `no` moves `yes` one away.
        let yes = self.near(yes, 1);
        let no = self.near(no, 0);
        let (jt, jf) = (self.distance(yes), self.distance(no));
        self.push(code, u8::try_from(jt).expect("near"), u8::try_from(jf).expect("near"), k)
    }

    fn load(&mut self, offset: u32) -> Label {
        self.push(LOAD, 0, 0, offset)
    }

    fn load_argument(&mut self, argument: usize) -> Label {
        self.load(ARGUMENTS_AT + 8 * u32::try_from(argument).expect("six arguments"))
    }

    fn test(&mut self, test: Test, yes: Label, no: Label) -> Label {
        match test {
            Test::OneOf(argument, values) => {
                let mut next = no;
                for value in values.iter().rev() {
                    next = self.branch(JUMP_EQUAL, *value, yes, next);
                }
                // The load falls through to the first comparison, which is the last instruction written.
                self.load_argument(argument)
            }
            Test::Bits(argument, mask, value) => {
                self.branch(JUMP_EQUAL, value, yes, no);
                self.push(AND, 0, 0, mask);
                self.load_argument(argument)
            }
            Test::OwnProcess(argument) => {
                let comparison = self.branch(JUMP_EQUAL, 0, yes, no);
                self.own_process.push(comparison);
                self.load_argument(argument)
            }
        }
    }

    fn rule(&mut self, rule: &Rule, otherwise: Action) -> Label {
        let mut next = self.answer(otherwise);
        for arm in rule.arms.iter().rev() {
            let mut entry = self.answer(arm.then);
            for test in arm.when.iter().rev() {
                entry = self.test(*test, entry, next);
            }
            next = entry;
        }
        next
    }

    /// A tree over ranges of numbers, each from its start to the next one's.
    fn tree(&mut self, ranges: &[(u32, Label)]) -> Label {
        match ranges {
            [] => unreachable!("the first range starts at 0"),
            [(_, label)] => *label,
            _ => {
                let (lower, upper) = ranges.split_at(ranges.len() / 2);
                let start = upper[0].0;
                let (no, yes) = (self.tree(lower), self.tree(upper));
                self.branch(JUMP_AT_LEAST, start, yes, no)
            }
        }
    }

    fn finish(mut self) -> Program {
        let last = self.reversed.len() - 1;
        self.reversed.reverse();
        let own_process = self.own_process.iter().map(|label| last - label).collect();
        Program { instructions: self.reversed, own_process }
    }
}

/// The program of a list for an architecture.
pub fn assemble(list: &List, architecture: &Architecture) -> Program {
    let mut assembler = Assembler::default();
    let rules: BTreeMap<&str, &Rule> = list.rules.iter().map(|rule| (rule.call, rule)).collect();
    let otherwise = assembler.answer(list.otherwise);
    let unknown = assembler.answer(list.unknown);
    let foreign = assembler.answer(list.foreign);

    let mut known = BTreeMap::new();
    for call in CALLS {
        if let Some(number) = (architecture.number)(call) {
            let label = match rules.get(call.name) {
                Some(rule) => assembler.rule(rule, list.otherwise),
                None => otherwise,
            };
            known.insert(number, label);
        }
    }

    let mut ranges = vec![];
    let mut add = |start: u32, label: Label| {
        if ranges.last().is_none_or(|(_, last)| *last != label) {
            ranges.push((start, label));
        }
    };
    let mut next = 0;
    for (number, label) in known {
        if number != next {
            add(next, unknown);
        }
        add(number, label);
        next = number + 1;
    }
    add(next, unknown);

    assert!(ranges.len() > 1, "the number is loaded for the tree's first comparison");
    assembler.tree(&ranges);
    assembler.load(NUMBER_AT);
    let number = assembler.reversed.len() - 1;
    assembler.branch(JUMP_EQUAL, architecture.audit, number, foreign);
    assembler.load(ARCHITECTURE_AT);
    assembler.finish()
}

//! The part of BPF that a filter may use, run as the kernel does.

use super::super::assemble::{AND, JUMP, JUMP_AT_LEAST, JUMP_EQUAL, LOAD, RETURN};

/// `struct seccomp_data`: what a filter sees of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) number: u32,
    pub(super) architecture: u32,
    pub(super) arguments: [u64; 6],
}

impl Data {
    fn bytes(&self) -> Vec<u8> {
        // The instruction pointer stands between the architecture and the arguments; no filter of ours looks at it.
        let words = [0u64].into_iter().chain(self.arguments);
        let head = self.number.to_le_bytes().into_iter().chain(self.architecture.to_le_bytes());
        head.chain(words.flat_map(u64::to_le_bytes)).collect()
    }
}

/// What the program answers: a SECCOMP_RET value.
pub(super) fn run(program: &[libc::sock_filter], data: &Data) -> u32 {
    let bytes = data.bytes();
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let libc::sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        match code {
            LOAD => {
                let from = k as usize;
                assert!(from.is_multiple_of(4), "the kernel takes aligned words only");
                accumulator = u32::from_le_bytes(bytes[from..from + 4].try_into().unwrap());
            }
            AND => accumulator &= k,
            JUMP => at += k as usize,
            JUMP_EQUAL => at += usize::from(if accumulator == k { jt } else { jf }),
            JUMP_AT_LEAST => at += usize::from(if accumulator >= k { jt } else { jf }),
            RETURN => return k,
            other => panic!("no instruction of ours: {other:#x}"),
        }
    }
}

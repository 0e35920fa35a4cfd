//! A variable with a secret is moved out of the process that was started with it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use confine::sys::environment::withdraw;

use crate::harness::{Action, Test};

pub(crate) const TESTS: &[Test] = &[("mod_1_a_variable_is_withdrawn_from_memory", withdrawn)];
pub(crate) const CHILDREN: &[Action] = &[("withdraw", withdraw_and_look)];

const NAME: &str = "ANET_TEST_SECRET";

/// Whether a value is anywhere in this process's memory. It is given in halves, so that looking for it does not make it.
fn in_memory(first: &[u8], second: &[u8]) -> usize {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut found = 0;
    let mut buffer = vec![0u8; 1 << 16];
    let own = buffer.as_ptr() as u64..buffer.as_ptr() as u64 + buffer.len() as u64;
    for line in maps.lines().filter(|line| line.contains(" r") && !line.contains("[v")) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let (mut at, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
        while at < end {
            let length = usize::try_from((end - at).min(buffer.len() as u64)).unwrap();
            let read = memory.read_at(&mut buffer[..length], at).unwrap_or(0);
            let starts = buffer[..read].windows(first.len() + second.len());
            found += starts
                .enumerate()
                .filter(|(place, window)| {
                    !own.contains(&(at + *place as u64))
                        && window.starts_with(first)
                        && window.ends_with(second)
                })
                .count();
            if read < length {
                break;
            }
            // Overlapping, so that a value across two pieces is found.
            at += (length as u64).saturating_sub(64).max(1);
        }
    }
    found
}

fn withdraw_and_look(words: &[&str]) {
    let name = std::ffi::CString::new(NAME).unwrap();
    let (first, second): (Vec<u8>, Vec<u8>) =
        (words[0].bytes().rev().collect(), words[1].bytes().rev().collect());
    let before = in_memory(&first, &second);
    let mut memory = File::from(withdraw(&name).unwrap().unwrap());
    let after = in_memory(&first, &second);
    let mut value = Vec::new();
    memory.read_to_end(&mut value).unwrap();
    let kept = value.starts_with(&first) && value.ends_with(&second);
    let block = std::fs::read("/proc/self/environ").unwrap();
    let shown = block.windows(first.len()).any(|window| window == first);
    let empty = std::env::var(NAME).unwrap().is_empty() && std::env::var("OTHER").unwrap() == "kept";
    let again = withdraw(&name).unwrap().is_none();
    println!("{} {after} {kept} {shown} {empty} {again}", before > 0);
}

/// MOD-1: the key that came in a variable is neither in the guard's memory nor in its /proc/PID/environ any more; that the
/// search finds it before shows that it searches.
fn withdrawn() {
    let chance: Vec<String> = ["/proc/sys/kernel/random/uuid"; 2]
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap().trim().to_owned())
        .collect();
    let reversed = |text: &String| text.chars().rev().collect::<String>();
    // Backwards in the arguments, which are memory too.
    let output = std::process::Command::new("/proc/self/exe")
        .args(["child", "withdraw", &reversed(&chance[0]), &reversed(&chance[1])])
        .env_clear()
        .env(NAME, format!("{}{}", chance[0], chance[1]))
        .env("OTHER", "kept")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "true 0 true false true true\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

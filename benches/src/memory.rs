//! Memory of anet's own processes while a run sleeps.

use std::process::Stdio;
use std::time::Duration;

use tests::person::{Person, Who};
use tests::processes;

/// One row a process, and their sum.
pub(crate) fn print() {
    let person = Person::new(Who::Root);
    let mut child = person
        .anet(["run", "--", "sleep", "3"])
        .command()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let mut rows = Vec::new();
    for process in processes::tree(child.id()) {
        let name = process.command_line().split_whitespace().next().unwrap_or_default().to_owned();
        let name = name.rsplit('/').next().unwrap_or_default().to_owned();
        if name.contains("anet") || name == "bwrap" {
            rows.push((name, pss_kib(process.pid)));
        }
    }
    child.wait().unwrap();
    let sum: u64 = rows.iter().map(|(_, kib)| kib).sum();
    let each: Vec<String> = rows.iter().map(|(name, kib)| format!("{name} {kib}")).collect();
    println!("| PSS of all processes of one run, KiB | {sum} ({}) | |", each.join(", "));
}

fn pss_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

//! The manifest as a table for people.

use std::fmt::Write as _;

use rustix::thread::CapabilitySet;

use super::{Files, Landlock, Network, Peer, Privileges, Role, privileges};
use crate::seccomp::lists;
use crate::seccomp::rule::{Action, Arm, ENOSYS, Rule};

/// What one role has in one row.
type Cell = fn(&Privileges) -> String;

/// The privileges of all roles as a Markdown table, a column each.
pub fn table() -> String {
    let mut text = String::from("| |");
    for role in Role::ALL {
        let _ = write!(text, " {role} |");
    }
    text.push_str("\n| --- |");
    text.push_str(&" --- |".repeat(Role::ALL.len()));
    text.push('\n');
    let rows: [(&str, Cell); 10] = [
        ("program (mode)", |p| format!("{} ({:04o})", p.program, p.file_mode)),
        ("user, as a service", |p| p.service_user.to_owned()),
        ("capabilities", |p| capabilities(p.capabilities)),
        ("no_new_privs / dumpable", |p| format!("{} / {}", u8::from(p.no_new_privs), u8::from(p.dumpable))),
        ("Landlock", |p| p.landlock.map_or_else(|| "none".to_owned(), landlock)),
        ("system calls", |p| calls(p)),
        ("network", |p| p.network.to_owned()),
        ("limits", limits),
        ("secrets", |p| p.secrets.to_owned()),
        ("talks to", |p| join(p.talks_to.iter().map(|peer| peer_name(*peer).to_owned()))),
    ];
    for (title, cell) in rows {
        let _ = write!(text, "| {title} |");
        for role in Role::ALL {
            let _ = write!(text, " {} |", cell(privileges(*role)));
        }
        text.push('\n');
    }
    text
}

/// The table, then each list of system calls with its reasons: a page of the documentation.
pub fn document() -> String {
    let mut text = String::from(
        "# Privileges\n\nMade from the code by `cargo run -p confine --example privileges`: what each process of anet may do.\n\n",
    );
    text.push_str(&table());
    for list in lists::ALL {
        let _ =
            write!(text, "\n## System calls: {}\n\nEvery other call: {}.", list.name, action(list.otherwise));
        let _ = write!(text, " Of another architecture: {}.", action(list.foreign));
        let _ = writeln!(
            text,
            " Unknown numbers: {}.\n\n| call | answer | reason |\n| --- | --- | --- |",
            action(list.unknown)
        );
        for rule in list.rules {
            let _ = writeln!(text, "| {} | {} | {} |", rule.call, answer(rule), rule.reason);
        }
    }
    text
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Allow => "allowed",
        Action::Errno(ENOSYS) => "ENOSYS",
        Action::Errno(_) => "EPERM",
        Action::KillProcess => "the process ends",
    }
}

fn answer(rule: &Rule) -> &'static str {
    match rule.arms {
        [Arm { when: [], then }] => action(*then),
        _ => "by its arguments",
    }
}

fn join(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.collect();
    if words.is_empty() { "nobody".to_owned() } else { words.join(", ") }
}

fn capabilities(set: CapabilitySet) -> String {
    if set.is_all() {
        return "as it was started with".to_owned();
    }
    let names: Vec<&str> = set.iter_names().map(|(name, _)| name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn landlock(domain: Landlock) -> String {
    let files = match domain.files {
        Files::Unrestricted => "no rule on files",
        Files::Named => "no file but those named at its start; no exec",
    };
    let network = match domain.network {
        Network::Unrestricted => "no rule on ports".to_owned(),
        Network::None => "no port".to_owned(),
        Network::ConnectTcp(ports) => {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            format!("TCP only to {} and ports named at its start", ports.join(", "))
        }
    };
    format!("{files}; {network}{}", if domain.scoped { "; scoped" } else { "" })
}

fn calls(privileges: &Privileges) -> String {
    let Some(list) = privileges.seccomp.map(|filter| filter.list) else { return "all".to_owned() };
    match list.otherwise {
        Action::Allow => format!("all but {} that are refused", list.rules.len()),
        Action::Errno(_) | Action::KillProcess => format!("these {} only", list.rules.len()),
    }
}

fn limits(privileges: &Privileges) -> String {
    join(
        privileges
            .limits
            .iter()
            .map(|limit| format!("{:?} {}", limit.resource, limit.at_most).to_lowercase()),
    )
}

fn peer_name(peer: Peer) -> &'static str {
    match peer {
        Peer::Process(role) => role.name(),
        Peer::Init => "anet-init",
        Peer::Run => "runs",
        Peer::Operator => "the operator",
        Peer::Client => "clients of the control socket",
        Peer::Network => "the network",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PRV-3: the table has a cell for each role in each row.
    #[test]
    fn the_table_is_a_rectangle() {
        let table = table();
        assert_eq!(table.lines().count(), 12);
        for line in table.lines() {
            assert_eq!(line.matches(" |").count(), Role::ALL.len() + 1, "{line}");
        }
        assert!(table.contains("TCP only to 443, 53"), "{table}");
    }
}

//! `anet status`: what an operator needs at a glance.

use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime};

use confine::sys::signal::{Signal, Signals};
use ipc_proto::Code;
use ipc_proto::control::{Status as State, ToNode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json as value;
use supervisor::error::Trouble;

use crate::arguments::{Anet, Status};
use crate::linux::print;
use crate::node::{Client, Failure, Node, Patience, Places};
use crate::page::{Page, Screen, Tone, json};
use crate::table::{Column, Table, cut};
use crate::time::{age, count, duration, moment, seconds_since, seconds_until};

#[cfg(test)]
mod tests;

/// How often `--watch` asks.
const EACH: Duration = Duration::from_secs(1);
/// The cursor goes home; what follows is written over what was there.
const HOME: &str = "\x1b[H";
/// The rest of the line is cleared.
const END_OF_LINE: &str = "\x1b[K";
/// The rest of the screen is cleared.
const END_OF_SCREEN: &str = "\x1b[J";

const PEERS: [Column; 3] = [
    Column { title: "PEER", least: 8, spare: 0 },
    Column { title: "RUNS", least: 4, spare: 0 },
    Column { title: "LIMIT", least: 5, spare: 1 },
];
const RUNS: [Column; 5] = [
    Column { title: "RUN", least: 17, spare: 0 },
    Column { title: "INTERACTION", least: 11, spare: 2 },
    Column { title: "PEER", least: 6, spare: 0 },
    Column { title: "STATE", least: 8, spare: 1 },
    Column { title: "AGE", least: 3, spare: 0 },
];

pub(crate) fn perform(anet: &Anet, status: &Status) -> Result<u8, Trouble> {
    let places = Places::chosen(anet)?;
    if status.watch {
        return watch(anet, places);
    }
    let state: State = Client::connect(places)?.ask(ask)?;
    print(&if anet.json { json(&state) } else { page(&state, Screen::look(), SystemTime::now()).whole() })?;
    Ok(0)
}

fn ask(node: &Node) -> Result<State, Failure> {
    node.document(&ToNode::Status, Patience::Prompt)
}

/// The page for people.
fn page(state: &State, screen: Screen, now: SystemTime) -> Page {
    let mut page = Page::new(screen);
    let whose = match state.mode.as_str() {
        "system" => "the service",
        "user" => "a user's node",
        other => other,
    };
    page.text(Tone::Head, &format!("anet {}, {whose}, up {}", state.version, duration(state.uptime_seconds)));
    if state.restarts > 0 {
        let why =
            state.last_end.as_ref().map_or_else(String::new, |why| format!("; the last time since {why}"));
        page.labelled(Tone::Warning, "restarts", &format!("{}{why}", state.restarts));
    }
    sandbox(&mut page, state, now);
    let reply = &state.auto_reply;
    let what =
        if reply.backend == "exec" { reply.agent.clone() } else { format!("{} backend", reply.backend) };
    let how = format!("{what}; trusted peers: {}, others: {}", reply.trusted, reply.untrusted);
    let how = if reply.backend == "off" { "left out of this build" } else { &how };
    page.labelled(Tone::Plain, "auto-reply", how);
    let day = &state.day;
    let left =
        seconds_until(&day.ends, now).map_or_else(String::new, |left| format!(" (in {})", duration(left)));
    let tone =
        if day.runs.limit > 0 && day.runs.used >= day.runs.limit { Tone::Warning } else { Tone::Plain };
    let runs = format!(
        "{}: {} of {} for untrusted peers; ends {}{left}",
        day.date,
        day.runs.used,
        count(day.runs.limit, "run"),
        day.ends
    );
    page.labelled(tone, "day", &runs);
    page.labelled(Tone::Plain, "queued", &count(state.queued, "task"));
    let signed =
        state.evidence.signed.map_or("none signed yet".to_owned(), |last| format!("signed up to {last}"));
    page.labelled(Tone::Plain, "evidence", &format!("{}, {signed}", count(state.evidence.records, "record")));
    let hosts = if state.egress_allow.is_empty() { "none".to_owned() } else { state.egress_allow.join(", ") };
    page.labelled(Tone::Plain, "hosts", &hosts);
    page.labelled(Tone::Plain, "processes", &processes(state));
    for warning in &state.warnings {
        page.labelled(Tone::Warning, "warning", &format!("{}: {}", warning.code, warning.sentence));
    }
    tables(&mut page, state, now);
    page
}

/// Each with its number, and its user where they are not all of one.
fn processes(state: &State) -> String {
    let first = state.processes.first().map(|process| process.uid);
    let one = state.processes.iter().all(|process| Some(process.uid) == first);
    let each = state.processes.iter().map(|process| {
        let user = if one { String::new() } else { format!(" (user {})", process.uid) };
        format!("{} {}{user}", process.name, process.pid)
    });
    let each: Vec<String> = each.collect();
    let all = first.filter(|_| one).map_or_else(String::new, |user| format!(" (user {user})"));
    format!("{}{all}", each.join(", "))
}

fn sandbox(page: &mut Page, state: &State, now: SystemTime) {
    let sandbox = &state.sandbox;
    let when = match sandbox.checked.as_deref().and_then(|at| seconds_since(at, now)) {
        Some(ago) => format!("tried {} ago", duration(ago)),
        None => "not tried yet".to_owned(),
    };
    match (&sandbox.code, &sandbox.sentence) {
        (None, _) if sandbox.available => page.labelled(Tone::Good, "sandbox", &format!("available, {when}")),
        (None, _) => {
            page.labelled(Tone::Warning, "sandbox", "not known yet: it is tried before the next run")
        }
        (Some(code), sentence) => {
            let sentence = sentence.as_deref().unwrap_or("see `anet doctor`");
            page.labelled(Tone::Bad, "sandbox", &format!("UNAVAILABLE: {code}: {sentence}"));
        }
    }
    let landlock = match sandbox.landlock_abi {
        0 => "none".to_owned(),
        abi => format!("version {abi}"),
    };
    page.labelled(Tone::Plain, "limits", &format!("{}; Landlock: {landlock}", sandbox.limits));
}

fn tables(page: &mut Page, state: &State, now: SystemTime) {
    let mut peers = Table::new(&PEERS);
    for peer in &state.day.peers {
        peers.row(vec![peer.aid.clone(), peer.used.to_string(), peer.limit.to_string()]);
    }
    let mut runs = Table::new(&RUNS);
    for run in &state.runs {
        let test = |text: &str| if text.is_empty() { "(test)".to_owned() } else { text.to_owned() };
        runs.row(vec![
            run.run.clone(),
            test(&run.interaction),
            test(&run.peer),
            run.state.clone(),
            age(seconds_since(&run.started, now)),
        ]);
    }
    for table in [&runs, &peers] {
        if !table.is_empty() {
            page.gap();
            page.table(table);
        }
    }
}

/// A node that is looked at again and again.
struct Watched {
    places: Places,
    node: Option<Node>,
    away: Option<Instant>,
}

/// What a look found.
enum Seen {
    There(Box<State>),
    /// For how long.
    Away(Duration),
}

impl Watched {
    /// One that is there.
    fn new(places: Places) -> Result<Watched, Failure> {
        let node = Some(places.reach()?);
        Ok(Watched { places, node, away: None })
    }

    fn look(&mut self) -> Result<Seen, Trouble> {
        let node = self.node.take().map_or_else(|| self.places.connect(), Ok);
        match node.and_then(|node| Ok((ask(&node)?, node))) {
            Ok((state, node)) => {
                self.node = Some(node);
                self.away = None;
                Ok(Seen::There(Box::new(state)))
            }
            Err(Failure::Absent | Failure::Lost) => {
                Ok(Seen::Away(self.away.get_or_insert_with(Instant::now).elapsed()))
            }
            Err(Failure::Trouble(trouble)) => Err(trouble),
        }
    }
}

/// Shows it anew each second, also over the node's restarts, until it is interrupted or its reader is gone.
fn watch(anet: &Anet, places: Places) -> Result<u8, Trouble> {
    // Before the first look, so that Ctrl-C always ends it in the same way.
    let stopping = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH];
    let signals = Signals::block(&stopping).map_err(|errno| {
        Trouble::new(Code::BadOption, format!("signals cannot be waited for ({errno}); leave --watch out"))
    })?;
    let mut watched = Watched::new(places)?;
    let mut view = View::new(anet.json);
    loop {
        let due = Instant::now() + EACH;
        let going_on = match watched.look()? {
            Seen::There(state) => view.show(state),
            Seen::Away(time) => view.show_away(time),
        };
        if !going_on || interrupted(&signals, due, || view.was_resized())? {
            return Ok(0);
        }
    }
}

/// Waits until it is due. True: it is to end.
fn interrupted(signals: &Signals, due: Instant, resized: impl Fn() -> bool) -> Result<bool, Trouble> {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        let mut fds = [PollFd::new(signals, PollFlags::IN)];
        let _ = poll(&mut fds, timeout.as_ref());
        match signals.next() {
            Ok(Some(Signal::SIGWINCH)) if resized() => return Ok(false),
            Ok(Some(Signal::SIGWINCH)) => {}
            Ok(Some(_)) => return Ok(true),
            Ok(None) if Instant::now() >= due => return Ok(false),
            Ok(None) => {}
            Err(errno) => {
                return Err(Trouble::new(Code::BadOption, format!("signals cannot be waited for ({errno})")));
            }
        }
    }
}

/// Where `--watch` shows what it sees.
struct View {
    as_json: bool,
    screen: Screen,
    /// What the node said last, and when: shown while it is away.
    last: Option<(Box<State>, SystemTime)>,
}

impl View {
    fn new(as_json: bool) -> View {
        let screen = if as_json { Screen::PLAIN } else { Screen::look() };
        View { as_json, screen, last: None }
    }

    /// False: nobody reads any longer.
    fn show(&mut self, state: Box<State>) -> bool {
        if self.as_json {
            return write(&json(&state));
        }
        let now = SystemTime::now();
        self.last = Some((state, now));
        let title = format!("{}  (Ctrl-C ends this)", moment(&supervisor::chain::rfc3339(now)));
        self.draw(&title)
    }

    fn show_away(&mut self, time: Duration) -> bool {
        let trouble = Trouble::from(Failure::Absent);
        if self.as_json {
            return write(&json(
                &value!({ "error": { "code": trouble.code.as_str(), "sentence": trouble.sentence } }),
            ));
        }
        let since = duration(time.as_secs());
        self.draw(&format!(
            "THE NODE IS AWAY for {since}; what follows is what it said last  (Ctrl-C ends this)"
        ))
    }

    fn was_resized(&self) -> bool {
        self.screen.rows.is_some()
    }

    fn draw(&mut self, title: &str) -> bool {
        if self.screen.rows.is_some() {
            self.screen = Screen::look();
        }
        let last = self.last.as_ref().map(|(state, at)| (state.as_ref(), *at));
        write(&drawn(title, last, self.screen))
    }
}

/// The page below its title: over what was there on a terminal, else after it.
fn drawn(title: &str, last: Option<(&State, SystemTime)>, screen: Screen) -> String {
    let mut head = Page::new(screen);
    head.text(Tone::Head, title);
    head.gap();
    let mut lines: Vec<String> = head.lines().collect();
    if let Some((state, at)) = last {
        lines.extend(page(state, screen, at).lines());
    }
    let Some(rows) = screen.rows else {
        return format!("{}\n\n", lines.join("\n"));
    };
    // The last row stays empty: a line feed there would move everything up.
    let room = rows.saturating_sub(1).max(1);
    let shown = if lines.len() > room { room.saturating_sub(1) } else { lines.len() };
    let mut text = HOME.to_owned();
    for line in lines.iter().take(shown) {
        text.push_str(&format!("{line}{END_OF_LINE}\n"));
    }
    if lines.len() > shown {
        let left = u64::try_from(lines.len() - shown).unwrap_or(0);
        let what = format!("... {} more; make the window taller", count(left, "line"));
        text.push_str(&format!("{}{END_OF_LINE}\n", cut(&what, screen.columns.unwrap_or(80))));
    }
    text.push_str(END_OF_SCREEN);
    text
}

/// False: nobody reads any longer.
fn write(text: &str) -> bool {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_ok()
}

//! Decisions over days, with clocks, zones and nodes that change: what must never happen.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

const ZONES: [&str; 7] = [
    "Europe/Berlin",
    "UTC",
    "Pacific/Kiritimati",
    "Pacific/Pago_Pago",
    "America/Sao_Paulo",
    "America/Havana",
    "Asia/Kathmandu",
];
const PEERS: [&str; 6] = ["a", "b", "c", "d", "friend", "friend2"];

#[derive(Clone, Debug)]
enum Event {
    Submit {
        peer: usize,
    },
    /// One of the runs ends: as it should, or without its agent having started.
    End {
        which: usize,
        started: bool,
    },
    /// The clock, to so many minutes from where it began.
    Clock {
        minutes: i64,
    },
    /// So many minutes pass.
    Pass {
        minutes: u64,
    },
    Zone {
        which: usize,
    },
    Sandbox {
        which: u8,
    },
    /// The node is killed and starts again.
    Restart,
    Policy {
        trusted: u8,
        openai: bool,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => (0..PEERS.len()).prop_map(|peer| Event::Submit { peer }),
        8 => (0..6usize, any::<bool>()).prop_map(|(which, started)| Event::End { which, started }),
        1 => (-3 * 24 * 60..3 * 24 * 60i64).prop_map(|minutes| Event::Clock { minutes }),
        3 => (0..600u64).prop_map(|minutes| Event::Pass { minutes }),
        1 => (0..ZONES.len()).prop_map(|which| Event::Zone { which }),
        1 => (0..4u8).prop_map(|which| Event::Sandbox { which }),
        1 => Just(Event::Restart),
        1 => (0..3u8, any::<bool>()).prop_map(|(trusted, openai)| Event::Policy { trusted, openai }),
    ]
}

struct Active {
    peer: Aid,
    trusted: bool,
    counted: Option<Date>,
}

/// A line of the evidence that matters here.
enum Line {
    Counted(Date, Aid),
    GivenBack(Date, Aid),
}

struct Node {
    policy: Policy,
    zone: Zone,
    rules: jiff::tz::TimeZone,
    clock: SystemTime,
    sandbox: Sandbox,
    counts: Counts,
    evidence: Vec<Line>,
    waiting: Vec<Queued>,
    active: Vec<Active>,
    submitted: u64,
    /// What really started and was not given back, by date and peer, told by other means.
    truth: BTreeMap<(jiff::civil::Date, Aid), u32>,
    starts: u32,
    refusals: u32,
}

impl Node {
    fn new(begin: SystemTime) -> Node {
        let mut node = Node {
            policy: Policy { runs_per_day: 5, runs_per_peer_per_day: 2, ..policy() },
            zone: Zone::utc(),
            rules: jiff::tz::TimeZone::UTC,
            clock: begin,
            sandbox: Sandbox::Available,
            counts: Counts::default(),
            evidence: Vec::new(),
            waiting: Vec::new(),
            active: Vec::new(),
            submitted: 0,
            truth: BTreeMap::new(),
            starts: 0,
            refusals: 0,
        };
        node.use_zone(ZONES[0]);
        node
    }

    fn use_zone(&mut self, name: &str) {
        self.zone = Zone::load(Some(name));
        let bytes = std::fs::read(format!("/usr/share/zoneinfo/{name}")).unwrap();
        self.rules = jiff::tz::TimeZone::tzif(name, &bytes).unwrap();
    }

    fn write(&mut self, line: Line) {
        Node::apply(&mut self.counts, &line);
        self.evidence.push(line);
    }

    fn apply(counts: &mut Counts, line: &Line) {
        match line {
            Line::Counted(date, peer) => {
                counts.reserve(*date, peer.as_str());
                counts.forget_before(*date);
            }
            Line::GivenBack(date, peer) => counts.give_back(*date, peer.as_str()),
        }
    }

    fn end(&mut self, which: usize, counts: bool) {
        let Active { peer, counted, .. } = self.active.swap_remove(which);
        if let (Some(date), false) = (counted, counts) {
            *self.truth.get_mut(&(date.0, peer.clone())).unwrap() -= 1;
            self.write(Line::GivenBack(date, peer));
        }
    }

    fn hear(&mut self, event: Event, begin: SystemTime) {
        match event {
            Event::Submit { peer } => {
                self.submitted += 1;
                self.waiting.push(queued(self.submitted, PEERS[peer]));
            }
            Event::End { which, started } => {
                if which < self.active.len() {
                    self.end(which, started);
                }
            }
            Event::Clock { minutes } => {
                let by = Duration::from_secs(60 * minutes.unsigned_abs());
                self.clock = if minutes < 0 { begin - by } else { begin + by };
            }
            Event::Pass { minutes } => {
                let latest = begin + Duration::from_secs(3 * 24 * 3600);
                self.clock = latest.min(self.clock + Duration::from_secs(60 * minutes));
            }
            Event::Zone { which } => self.use_zone(ZONES[which]),
            Event::Sandbox { which } => {
                let all = [Sandbox::Available, Sandbox::Available, Sandbox::Unavailable, Sandbox::Unknown];
                self.sandbox = all[usize::from(which)];
            }
            Event::Restart => {
                let mut rebuilt = Counts::default();
                self.evidence.iter().for_each(|line| Node::apply(&mut rebuilt, line));
                assert_eq!(rebuilt, self.counts, "RUN-4: a restart changes the counts");
                self.counts = rebuilt;
                while !self.active.is_empty() {
                    self.end(0, false);
                }
            }
            Event::Policy { trusted, openai } => {
                self.policy.trusted = [Trusted::Off, Trusted::Direct, Trusted::Sandbox][usize::from(trusted)];
                self.policy.backend = if openai { Backend::Openai } else { Backend::Exec };
            }
        }
        self.scan();
    }

    fn scan(&mut self) {
        let active: Vec<(Aid, bool)> =
            self.active.iter().map(|run| (run.peer.clone(), run.trusted)).collect();
        let situation = Situation {
            day: self.zone.day(self.clock),
            counts: &self.counts,
            sandbox: self.sandbox,
            active: &active,
            direct: true,
            model: true,
        };
        let (day, decisions) = (situation.day, next(&self.policy, &situation, &self.waiting));
        for (task, decision) in decisions {
            let is_friend = task.peer.as_str().starts_with("friend");
            match decision {
                Decision::Start { trusted, way, counted } => {
                    self.starts += 1;
                    assert_eq!((trusted, counted), (is_friend, !is_friend));
                    assert!(trusted || way != Way::Direct, "SEL-2");
                    assert!(way != Way::Sandbox || self.sandbox == Sandbox::Available, "SEL-2");
                    if counted {
                        let local = self.rules.to_datetime(Timestamp::try_from(self.clock).unwrap()).date();
                        *self.truth.entry((local, task.peer.clone())).or_default() += 1;
                        self.write(Line::Counted(day.date, task.peer.clone()));
                    }
                    let counted = counted.then_some(day.date);
                    self.active.push(Active { peer: task.peer.clone(), trusted, counted });
                }
                Decision::Refuse { .. } => self.refusals += 1,
                Decision::Wait(Why::SandboxUnknown) => continue,
                Decision::Wait(why) => panic!("{why:?} is no decision"),
            }
            let before = self.waiting.len();
            self.waiting.retain(|other| other.number != task.number);
            assert_eq!(self.waiting.len() + 1, before, "each task once");
        }
        self.check();
    }

    fn check(&self) {
        let strangers: Vec<&Aid> =
            self.active.iter().filter(|run| !run.trusted).map(|run| &run.peer).collect();
        assert!(strangers.len() <= PLACES, "RUN-5: {strangers:?}");
        assert!(strangers.len() < 2 || strangers[0] != strangers[1], "RUN-5: {strangers:?}");
        assert!(self.active.len() - strangers.len() <= TRUSTED_AT_ONCE);
        let mut dates: BTreeMap<jiff::civil::Date, u32> = BTreeMap::new();
        for ((date, peer), runs) in &self.truth {
            assert!(*runs <= self.policy.runs_per_peer_per_day, "RUN-1: {date} {peer}: {runs}");
            *dates.entry(*date).or_default() += runs;
        }
        assert!(dates.values().all(|runs| *runs <= self.policy.runs_per_day), "RUN-1: {dates:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// RUN-1, RUN-4, RUN-5, SEL-2: whatever is sent and ends, however the clock is put, the zone changed and the node killed:
    /// never more runs in a local date than there are, of all or of one peer; never a third place, never two of one peer;
    /// nothing of a stranger outside of the sandbox.
    #[test]
    fn no_history_breaks_a_bound(
        begin in prop_oneof![
            // Around changes of the clocks, and any time.
            Just("2026-03-29T00:00:00Z"), Just("2026-10-25T00:00:00Z"), Just("2018-11-04T02:00:00Z"),
            Just("2018-02-18T02:00:00Z"), Just("2026-11-01T04:00:00Z"), Just("2027-01-01T00:00:00Z"),
        ],
        events in proptest::collection::vec(event(), 1..150),
    ) {
        let begin = at(begin);
        let mut node = Node::new(begin);
        for event in events {
            node.hear(event, begin);
        }
    }
}

/// The histories of the test above do start and refuse: a policy that starts nothing would pass it.
#[test]
fn a_day_is_used_to_its_last_run() {
    let begin = at("2026-10-25T00:00:00Z");
    let mut node = Node::new(begin);
    for _ in 0..20 {
        for peer in 0..4 {
            node.hear(Event::Submit { peer }, begin);
            node.hear(Event::End { which: 0, started: true }, begin);
        }
    }
    assert_eq!((node.starts, node.refusals), (5, 75));
    // A clock that is put ahead has a new day, and one that is put back the old one.
    node.hear(Event::Clock { minutes: 24 * 60 }, begin);
    node.hear(Event::Submit { peer: 0 }, begin);
    node.hear(Event::Clock { minutes: 0 }, begin);
    node.hear(Event::Submit { peer: 1 }, begin);
    assert_eq!((node.starts, node.refusals), (6, 76));
    // A zone in which it is still yesterday has yesterday's runs.
    node.hear(Event::Zone { which: 3 }, begin);
    node.hear(Event::Submit { peer: 1 }, begin);
    assert_eq!((node.starts, node.refusals), (7, 76));
    // What a crash interrupted is not counted.
    node.hear(Event::Zone { which: 0 }, begin);
    node.hear(Event::Restart, begin);
    assert_eq!(node.counts.of(date("2026-10-25")).runs(), 5);
    assert_eq!(node.counts.of(date("2026-10-24")).runs(), 0);
}

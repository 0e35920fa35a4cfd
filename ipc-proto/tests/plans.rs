//! What is too long for a packet: the plans that processes are started with, in sealed memory (PRV-1, PRV-5).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Debug;
use std::os::fd::{AsFd, OwnedFd};

use ipc_proto::broker::{BrokerPlan, ModelId, ModelPolicy};
use ipc_proto::init::{CommandPlan, InitPlan, ProbePlan, Purpose};
use ipc_proto::job::{AnswerFormat, AnswerJob, Budget, Job, KeySource, ModelJob, ProbeJob};
use ipc_proto::launcher::{
    Endpoints, FilePlan, HomeFile, LaunchPlan, MAX_HOME_FILES, Programs, WorkDirectory,
};
use ipc_proto::limits::Limits;
use ipc_proto::proxy::ProxyPlan;
use ipc_proto::{RunId, Upstream, bulk};
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create};
use rustix::io::{pread, write};
use serde::{Serialize, de::DeserializeOwned};

fn run() -> RunId {
    RunId::new(1_700_000_000_000, [1, 2, 3, 4])
}

fn upstreams() -> Vec<Upstream> {
    ["https://api.anthropic.com", "https://models.example.com:8443/api/v1", "http://[::1]:11434/v1"]
        .map(|text| text.parse::<Upstream>().unwrap().allow_private(text.contains("8443")))
        .to_vec()
}

fn broker_plans() -> Vec<BrokerPlan> {
    let plan = |upstream: Upstream| BrokerPlan {
        has_key: !upstream.is_loopback(),
        signs: upstream.is_loopback(),
        upstream: Some(upstream),
    };
    let signing = BrokerPlan { upstream: None, has_key: false, signs: true };
    upstreams().into_iter().map(plan).chain([signing]).collect()
}

fn proxy_plans() -> Vec<ProxyPlan> {
    let with = upstreams().into_iter().map(|upstream| ProxyPlan { upstream: Some(upstream) });
    std::iter::once(ProxyPlan { upstream: None }).chain(with).collect()
}

fn launch_plan(purpose: Purpose) -> LaunchPlan {
    let file = |number: usize| HomeFile {
        path: std::ffi::CString::new(format!(".agent/file-{number}")).unwrap(),
        // Any bytes: a NUL and what is no UTF-8 too.
        contents: vec![0, 0xff, b'x'],
        executable: number == 0,
    };
    LaunchPlan {
        run: run(),
        purpose,
        endpoints: Endpoints { egress: true, model: true },
        home: (0..MAX_HOME_FILES).map(file).collect(),
        files: FilePlan {
            root: c"/root".into(),
            work: WorkDirectory::Named(c"/work dir".into()),
            read_write: vec![c"/rw".into()],
            read_only: vec![c"/ro\xff".into(); 2],
            deny: vec![],
            masked: vec![c"/state".into()],
        },
        growth: Some(u64::MAX),
        memory: None,
        tasks: Some(1),
        programs: Programs { bwrap: c"/usr/bin/bwrap".into(), init: c"/usr/libexec/anet/anet-init".into() },
    }
}

fn command() -> Purpose {
    Purpose::Command(CommandPlan {
        argv: vec![c"sh".into(), c"-c".into(), c"true".into()],
        environment: vec![c"HOME=/home/anet".into()],
        directory: c"/work".into(),
        terminal: None,
    })
}

fn probe() -> ProbePlan {
    ProbePlan {
        tcp: vec!["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()],
        abstract_sockets: vec![vec![0, 1, 2]],
        outside: vec![],
    }
}

fn launch_plans() -> Vec<LaunchPlan> {
    vec![launch_plan(command()), launch_plan(Purpose::Probe(probe()))]
}

fn init_plans() -> Vec<InitPlan> {
    vec![InitPlan {
        purpose: command(),
        ports: vec![61_080, 61_081],
        writable: vec![c"/work".into()],
        file_rules: true,
        expected: None,
        largest_file: Some(1),
    }]
}

fn jobs() -> Vec<Job> {
    let formats = [
        AnswerFormat::Claude,
        AnswerFormat::Codex,
        AnswerFormat::Opencode,
        AnswerFormat::Openclaw,
        AnswerFormat::Hermes,
        AnswerFormat::Text,
    ];
    let keys =
        [KeySource::None, KeySource::Variable("ANTHROPIC_API_KEY".into()), KeySource::Stored("work".into())];
    let model = |key: &KeySource| ModelJob {
        policy: ModelPolicy {
            model: ModelId::try_from("claude-sonnet-4-5".to_owned()).unwrap(),
            output_tokens: 8192,
            silence: 180_000,
        },
        upstream: upstreams().remove(0),
        key: key.clone(),
    };
    let job = |model: Option<ModelJob>, format: Option<AnswerFormat>| Job {
        run: run(),
        started: 1,
        agent: "claude".into(),
        user: 1000,
        operator: 0,
        plan: launch_plan(command()),
        hosts: vec!["pkg.example.com".parse().unwrap()],
        limits: Limits::untrusted(),
        budget: Budget::untrusted(None),
        probe: Some(ProbeJob { run: run(), plan: probe(), key: "key".into() }),
        warnings: vec![],
        record: true,
        control_group: false,
        model,
        answer: format.map(|format| AnswerJob { format, to_terminal: true }),
        terminal: None,
        quiet: false,
        probe_only: false,
    };
    let mut all = vec![job(None, None)];
    all.extend(keys.iter().map(|key| job(Some(model(key)), None)));
    all.extend(formats.into_iter().map(|format| job(Some(model(&keys[1])), Some(format))));
    all
}

/// Calls a function for the samples of every kind of plan.
macro_rules! every_plan {
    ($check:ident) => {
        $check(broker_plans());
        $check(proxy_plans());
        $check(launch_plans());
        $check(init_plans());
        $check(jobs());
    };
}

/// What a plan is in memory.
fn bytes_of<T: Serialize>(plan: &T) -> Vec<u8> {
    let memory = bulk::seal(plan).unwrap();
    let mut bytes = vec![0u8; usize::try_from(fstat(&memory).unwrap().st_size).unwrap()];
    assert_eq!(pread(&memory, &mut bytes[..], 0).unwrap(), bytes.len());
    bytes
}

/// Memory with these bytes, sealed as its receiver wants it.
fn sealed(bytes: &[u8]) -> OwnedFd {
    let memory = memfd_create("plan", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = &rest[write(&memory, rest).unwrap()..];
    }
    fcntl_add_seals(&memory, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)
        .unwrap();
    memory
}

fn arrives_whole<T: Serialize + DeserializeOwned + Debug>(plans: Vec<T>) {
    assert!(!plans.is_empty());
    for plan in plans {
        let got: T = bulk::open(bulk::seal(&plan).unwrap().as_fd()).unwrap();
        assert_eq!(format!("{got:?}"), format!("{plan:?}"));
        assert_eq!(bytes_of(&got), bytes_of(&plan));
    }
}

/// PRV-1: every plan arrives as it was made.
#[test]
fn every_plan_arrives_whole() {
    every_plan!(arrives_whole);
}

fn cut_and_padded_are_refused<T: Serialize + DeserializeOwned + Debug>(plans: Vec<T>) {
    for plan in plans {
        let bytes = bytes_of(&plan);
        for length in 0..bytes.len() {
            let got = bulk::open::<T>(sealed(&bytes[..length]).as_fd());
            assert!(got.is_err(), "{plan:?} cut to {length} bytes was taken");
        }
        let padded = [bytes.as_slice(), &[0]].concat();
        assert!(bulk::open::<T>(sealed(&padded).as_fd()).is_err(), "{plan:?} with a trailing byte was taken");
    }
}

/// PRV-5: no part of a plan, and none with something behind it.
#[test]
fn cut_and_padded_plans_are_refused() {
    every_plan!(cut_and_padded_are_refused);
}

/// A plan of bytes that somebody changed is refused, or it is a plan that can be passed on and says the same then.
fn holds_or_is_refused<T: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) {
    if let Ok(plan) = bulk::open::<T>(sealed(bytes).as_fd()) {
        let again: T = bulk::open(bulk::seal(&plan).unwrap().as_fd()).unwrap();
        assert_eq!(format!("{again:?}"), format!("{plan:?}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// PRV-5: a few bytes changed, and read as a plan of any kind: refused, or a plan like any other; never a panic.
    #[test]
    fn changed_plans_are_refused_or_hold(
        which in any::<prop::sample::Index>(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut all: Vec<Vec<u8>> = Vec::new();
        all.extend(broker_plans().iter().map(bytes_of));
        all.extend(proxy_plans().iter().map(bytes_of));
        all.extend(launch_plans().iter().map(bytes_of));
        all.extend(init_plans().iter().map(bytes_of));
        all.extend(jobs().iter().map(bytes_of));
        let mut bytes = all[which.index(all.len())].clone();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        holds_or_is_refused::<BrokerPlan>(&bytes);
        holds_or_is_refused::<ProxyPlan>(&bytes);
        holds_or_is_refused::<LaunchPlan>(&bytes);
        holds_or_is_refused::<InitPlan>(&bytes);
        holds_or_is_refused::<Job>(&bytes);
    }
}

/// MOD-12, MOD-15: an address that no operator could write comes in no plan either.
#[test]
fn a_service_in_a_plan_is_parsed_again() {
    let good = bytes_of(&ProxyPlan { upstream: Some("https://api.example.com".parse().unwrap()) });
    let at = good.windows(8).position(|w| w == b"https://").unwrap();
    for (place, byte) in [(at, b'H'), (at + 4, b'x'), (at + 8, b'A'), (at + 11, b'@'), (at + 12, b'?')] {
        let mut bytes = good.clone();
        bytes[place] = byte;
        let got = bulk::open::<ProxyPlan>(sealed(&bytes).as_fd());
        assert!(got.is_err(), "{got:?}");
    }
}

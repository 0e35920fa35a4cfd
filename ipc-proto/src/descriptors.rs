//! The numbers of the descriptors that each program is started with. Everything else is closed.
//!
//! 0, 1 and 2 are /dev/null everywhere but where a page below says otherwise.

use std::os::fd::RawFd;

/// The channel to the supervisor, in launcher, proxy, broker and terminal; to the launcher in the supervisor and in
/// anet-init.
pub const CHANNEL: RawFd = 3;
/// Where a program writes what goes wrong, a line each. Nobody reads it but a person.
pub const LOG: RawFd = 4;

/// anet-init: its plan, in sealed memory (`init::InitPlan`).
pub const INIT_PLAN: RawFd = 4;
/// anet-init: what becomes 0, 1 and 2 of the program, before it is started.
pub const INIT_STDIO: [RawFd; 3] = [5, 6, 7];

/// proxy, broker: what they are started for, in sealed memory (`proxy::ProxyPlan`, `broker::BrokerPlan`).
pub const PLAN: RawFd = 5;
/// proxy, broker: the channel between the two, if there is a broker.
pub const DIAL: RawFd = 6;
/// broker: the key, if there is one: a file or memory that the guard opened and never read.
pub const KEY: RawFd = 7;

/// broker of a node: the signing key's file, 0600, open to read and write; the broker fills an empty one (32 bytes, the Ed25519
/// seed) before it is confined.
pub const SIGNING_KEY: RawFd = 8;

/// supervisor of a node: the listening control socket.
pub const CONTROL: RawFd = 7;
/// supervisor of a node: a pipe on which the guard writes once, when all are started, who they are (`control::Process`, sealed
/// memory is not needed: one line of JSON, at most 4 KiB).
pub const PROCESSES: RawFd = 9;
/// supervisor of a node: the channel to the process that starts programs outside of the sandbox, if there is one.
pub const OUTSIDE: RawFd = 10;

/// supervisor of a node: the file that has the public half of the signing key, for whoever verifies the evidence; empty until the
/// first start.
pub const PUBLIC_KEY: RawFd = 11;

/// supervisor: its job, in sealed memory (`job::Job`; of a node `supervisor::node::NodeJob`).
pub const JOB: RawFd = 5;
/// supervisor: the channel to the proxy.
pub const PROXY: RawFd = 6;
/// supervisor: the run's chain, open for writing.
pub const CHAIN: RawFd = 7;
/// supervisor: the pipe whose words the guard understands (`job::Word`).
pub const GUARD: RawFd = 8;
/// supervisor: what becomes 0, 1 and 2 of the program.
pub const STDIO: [RawFd; 3] = [9, 10, 11];
/// supervisor: where the record goes, if somebody asked (`job::Job::record`).
pub const RECORD: RawFd = 12;
/// supervisor: the file that keeps the probe's result (`job::Job::probe`).
pub const PROBE_CACHE: RawFd = 13;
/// supervisor: the channel to the terminal process, if there is one (`job::Job::terminal`).
pub const TERMINAL: RawFd = 14;
/// supervisor: the run's control group, if there is one (`job::Job::control_group`).
pub const CONTROL_GROUP: RawFd = 15;

/// supervisor: the channel to the broker, if there is one (`job::Job::model`).
pub const BROKER: RawFd = 16;
/// supervisor: the reading end of the agent's standard output, where its answer is read from it (`job::Job::answer`).
pub const ANSWER: RawFd = 17;
/// supervisor: where that answer is written: the operator's standard output.
pub const OUTPUT: RawFd = 18;

/// terminal: the operator's terminal, or what stands for it: where input is read, output and errors written.
pub const OPERATOR: [RawFd; 3] = [5, 6, 7];
/// terminal: our ends of the pipes that stand for the run's 0, 1 and 2 where those are no pseudo-terminal although
/// the operator's are terminals (`terminal::TerminalMode`).
pub const RUN_PIPES: [RawFd; 3] = [8, 9, 10];

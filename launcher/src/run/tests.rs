use std::ffi::CString;

use ipc_proto::Received;
use ipc_proto::init::{CommandPlan, Purpose};
use ipc_proto::launcher::{Endpoints, Exceeded, FilePlan, Programs, WorkDirectory};

use super::*;

fn run(state: State) -> Run {
    let id = RunId::new(1, [0; 4]);
    let c = |text: &str| CString::new(text).unwrap();
    let command =
        CommandPlan { argv: vec![c("true")], environment: Vec::new(), directory: c("/"), terminal: None };
    let plan = LaunchPlan {
        run: id,
        purpose: Purpose::Command(command),
        endpoints: Endpoints { egress: false, model: false },
        home: Vec::new(),
        files: FilePlan {
            root: c("/nonexistent"),
            work: WorkDirectory::Fresh,
            read_write: Vec::new(),
            read_only: Vec::new(),
            deny: Vec::new(),
            masked: Vec::new(),
        },
        growth: Some(1),
        memory: None,
        tasks: None,
        programs: Programs { bwrap: c("/usr/bin/bwrap"), init: c("/anet-init") },
    };
    let mut run = Run::plan(id, bulk::seal(&plan).unwrap().as_fd()).unwrap();
    run.state = state;
    run.went = matches!(state, State::Running | State::Ending | State::Measuring);
    run.watch = Some(Watch::gone());
    run
}

/// LIM: what nobody measures any more counts as exceeded, but only for a program that was started.
#[test]
fn a_run_that_nobody_measures_is_ended() {
    for (state, exceeded, next) in [
        (State::Starting, false, State::Ending),
        (State::Ready, false, State::Ending),
        (State::Running, true, State::Ending),
        (State::Ending, true, State::Ending),
        (State::Measuring, true, State::Removing),
        (State::Removing, false, State::Removing),
    ] {
        let (supervisor, far) = Supervisor::pair().unwrap();
        let mut run = run(state);
        run.hear_watch(&supervisor, &Log::new(None)).unwrap();
        assert_eq!(run.state, next, "{state:?}");
        let over = matches!(
            far.try_receive().unwrap(),
            Received::Message(FromLauncher::Over { exceeded: Exceeded::Growth, .. }, _)
        );
        assert_eq!(over, exceeded, "{state:?}");
        assert!(run.descriptors().is_empty(), "its pipe is not waited on again");
        assert!(state != State::Starting || matches!(run.outcome, Some(Outcome::Failed(_))));
    }
}

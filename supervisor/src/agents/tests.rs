use std::path::PathBuf;

use super::find::Via;
use super::*;

const ALL: [Agent; 7] = [
    Agent::Claude,
    Agent::Codex,
    Agent::Opencode,
    Agent::Hermes,
    Agent::Openclaw,
    Agent::Cursor,
    Agent::Custom,
];
/// Those that are found and started here.
const STARTED: [Agent; 5] = [Agent::Claude, Agent::Codex, Agent::Opencode, Agent::Hermes, Agent::Openclaw];

/// A name that would end a string, an argument list or a table, if anything took it for more than a name.
const MODEL: &str = "vendor/model\"x]-1\n--y";

fn setup() -> Setup<'static> {
    Setup {
        model: MODEL,
        model_url: "http://127.0.0.1:61081",
        output_tokens: 4321,
        directory: Path::new("/work"),
    }
}

fn installed(agent: Agent) -> Installed {
    let runtime = match agent {
        Agent::Hermes => Some(PathBuf::from("/opt/venv/bin/python")),
        Agent::Openclaw => Some(PathBuf::from("/opt/node")),
        Agent::Claude | Agent::Codex | Agent::Opencode | Agent::Cursor | Agent::Custom => None,
    };
    Installed {
        agent,
        program: "/opt/program".into(),
        runtime,
        visible: vec!["/opt".into()],
        via: Via::Script,
    }
}

fn argv(start: &Start) -> Vec<&str> {
    start.argv.iter().map(|word| word.to_str().unwrap()).collect()
}

/// Everything that an agent is given, as text.
fn everything(agent: Agent) -> String {
    let start = start(&installed(agent), &setup(), b"task").unwrap();
    let mut all = argv(&start).join("\n");
    for (name, value) in environment(agent, &setup()) {
        all.push_str(&format!("\n{name}={value}"));
    }
    for file in home_files(agent, &setup()) {
        all.push_str(&String::from_utf8(file.contents).unwrap());
    }
    all
}

/// MOD-1, MOD-2, MOD-3: every agent is told where its model is, that it has no key, which model it has, and how much that
/// may say; claude adds the path itself.
#[test]
fn every_agent_knows_its_model() {
    for agent in STARTED {
        let all = everything(agent);
        let url =
            if agent == Agent::Claude { "http://127.0.0.1:61081\n" } else { "http://127.0.0.1:61081/v1\"" };
        for word in [url, PLACEHOLDER_KEY, "vendor/model"] {
            assert!(all.contains(word), "{agent:?} lacks {word}: {all}");
        }
        // codex has no such setting: the broker puts it into the request.
        assert_eq!(all.contains("4321"), agent != Agent::Codex, "{agent:?}: {all}");
    }
}

/// MOD-14: with the proxy's variables in its environment an agent must not send the model's requests there, as claude does.
#[test]
fn the_model_is_not_reached_through_the_proxy() {
    for agent in ALL {
        let environment = environment(agent, &setup());
        for name in ["NO_PROXY", "no_proxy"] {
            let value = environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
            assert_eq!(value, Some("127.0.0.1"), "{agent:?}");
        }
    }
}

/// MOD-2: a model's name is one value in every syntax that it is written in.
#[test]
fn a_models_name_stays_a_name() {
    let setup = setup();
    let codex: toml::Table =
        toml::from_str(std::str::from_utf8(&home_files(Agent::Codex, &setup)[0].contents).unwrap()).unwrap();
    assert_eq!(codex["model"].as_str(), Some(MODEL));
    assert_eq!(codex["model_providers"]["anet"]["wire_api"].as_str(), Some("responses"));
    let hermes: serde_json::Value =
        serde_json::from_slice(&home_files(Agent::Hermes, &setup)[0].contents).unwrap();
    assert_eq!(hermes["model"]["default"], MODEL);
    let openclaw: serde_json::Value =
        serde_json::from_slice(&home_files(Agent::Openclaw, &setup)[0].contents).unwrap();
    assert_eq!(openclaw["models"]["providers"]["anet"]["models"][0]["id"], MODEL);
    let environment = environment(Agent::Opencode, &setup);
    let (_, opencode) = environment.iter().find(|(name, _)| name == "OPENCODE_CONFIG_CONTENT").unwrap();
    let opencode: serde_json::Value = serde_json::from_str(opencode).unwrap();
    assert_eq!(opencode["provider"]["anet"]["models"][MODEL]["limit"]["output"], 4321);
}

/// MOD-4: what runs at the service is off at the agent already, so that a usual run is never refused for it.
#[test]
fn web_search_is_off() {
    assert!(everything(Agent::Claude).contains("--disallowedTools=WebSearch,WebFetch"));
    assert!(everything(Agent::Codex).contains("web_search = \"disabled\""));
    assert!(everything(Agent::Openclaw).contains(r#""search":{"enabled":false}"#));
}

/// SBX-6: where an agent takes its task on standard input it stands in no argument; where it does not, it stands in one,
/// behind the option, so that a dash at its beginning is no option.
#[test]
fn a_task_is_never_an_option() {
    let task = b"--dangerous -x";
    for agent in STARTED {
        let start = start(&installed(agent), &setup(), task).unwrap();
        let words = argv(&start);
        let in_argv: Vec<&&str> = words.iter().filter(|word| word.contains("--dangerous -x")).collect();
        if agent != Agent::Hermes {
            assert_eq!((start.stdin, in_argv.len()), (Stdin::Task, 0), "{agent:?}");
        } else {
            assert_eq!(
                (start.stdin, in_argv),
                (Stdin::Nothing, vec![&"--oneshot=--dangerous -x"]),
                "{agent:?}"
            );
        }
    }
    // A slash at the beginning would be a command of claude's own.
    assert_eq!(start(&installed(Agent::Claude), &setup(), b"").unwrap().before_task, b"\n");
}

/// MOD-14: a task that cannot be an argument is refused with what to do, and the longest that can is not.
#[test]
fn a_task_that_is_no_argument_is_refused() {
    let hermes = installed(Agent::Hermes);
    let room = MAX_ARGUMENT - b"--oneshot=".len();
    assert!(start(&hermes, &setup(), &vec![b'a'; room]).is_ok());
    let long = start(&hermes, &setup(), &vec![b'a'; room + 1]).unwrap_err();
    assert!(long.code == Code::BadOption && long.sentence.contains("131071"), "{long}");
    let nul = start(&hermes, &setup(), b"a\0b").unwrap_err();
    assert!(nul.code == Code::BadOption && nul.sentence.contains("NUL"), "{nul}");
}

/// MOD-14: a script is started by its runtime; hermes's packages are named where its Python would not find them.
#[test]
fn a_script_is_started_by_its_runtime() {
    let openclaw = start(&installed(Agent::Openclaw), &setup(), b"").unwrap();
    assert_eq!(argv(&openclaw)[..4], ["/opt/node", "/opt/program", "agent", "exec"]);
    let hermes = start(&installed(Agent::Hermes), &setup(), b"x").unwrap();
    assert_eq!(argv(&hermes), ["/opt/venv/bin/python", "/opt/program", "--oneshot=x"]);
    let linked = Installed { via: Via::Packages("/opt/packages".into()), ..installed(Agent::Hermes) };
    let hermes = start(&linked, &setup(), b"x").unwrap();
    assert_eq!(argv(&hermes)[4..], ["/opt/packages", "--oneshot=x"]);
}

/// FS-2: files of a home stay below it.
#[test]
fn home_files_are_below_home() {
    for agent in ALL {
        for file in home_files(agent, &setup()) {
            let mut parts = Path::new(file.path).components();
            assert!(parts.all(|part| matches!(part, std::path::Component::Normal(_))), "{}", file.path);
            assert!(!file.contents.is_empty());
        }
    }
}

/// MOD-12: a custom agent's places are filled, once, and only where the operator wrote them.
#[test]
fn a_custom_command_has_its_task_where_it_asks_for_it() {
    let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let plain = start_custom(&command(&["my-agent", "-x"]), b"task").unwrap();
    assert_eq!((argv(&plain), plain.stdin, plain.files.len()), (vec!["my-agent", "-x"], Stdin::Task, 0));
    let filled =
        start_custom(&command(&["a", "--t={task}", "{task_file}"]), b"see {task_file} {task}").unwrap();
    assert_eq!(argv(&filled), ["a", "--t=see {task_file} {task}", "/home/anet/.anet-task"]);
    assert_eq!(filled.stdin, Stdin::Nothing);
    assert_eq!(filled.files, [HomeFile { path: TASK_FILE, contents: b"see {task_file} {task}".to_vec() }]);
    assert_eq!(start_custom(&command(&["a", "{task}"]), b"\0").unwrap_err().code, Code::BadOption);
    // A file takes what an argument cannot.
    assert!(start_custom(&command(&["a", "{task_file}"]), b"\0").is_ok());
    for nothing in [vec![], command(&[""])] {
        assert_eq!(start_custom(&nothing, b"x").unwrap_err().code, Code::BadOption);
    }
}

/// SEL-4: outside of the sandbox an agent has the operator's own configuration and nothing of anet's: no address, no key, no
/// model, no switch that takes its own walls or questions away; and its output is read as inside.
#[test]
fn a_direct_start_is_the_operators_own() {
    let expected: [(Agent, &[&str]); 5] = [
        (Agent::Claude, &["/opt/program", "--print", "--output-format=json"]),
        (Agent::Codex, &["/opt/program", "exec", "--skip-git-repo-check", "--color=never", "--json", "-"]),
        (Agent::Opencode, &["/opt/program", "run", "--format=json"]),
        (Agent::Hermes, &["/opt/venv/bin/python", "/opt/program", "--oneshot=-x task"]),
        (
            Agent::Openclaw,
            &[
                "/opt/node",
                "/opt/program",
                "agent",
                "exec",
                "--json",
                "--timeout",
                "86400",
                "--cwd",
                "/cache/p/i/work",
                "--message-file",
                "-",
            ],
        ),
    ];
    for (agent, words) in expected {
        let direct = start_direct(&installed(agent), Path::new("/cache/p/i/work"), b"-x task").unwrap();
        assert_eq!(argv(&direct), words, "{agent:?}");
        let inside = start(&installed(agent), &setup(), b"-x task").unwrap();
        assert_eq!((direct.answer, direct.stdin), (inside.answer, inside.stdin), "{agent:?}");
        assert!(direct.before_task == inside.before_task && direct.files.is_empty(), "{agent:?}");
        let text = argv(&direct).join(" ");
        for ours in ["dangerously", "bypass", "anet", PLACEHOLDER_KEY, "61081", "model=", "--config"] {
            assert!(!text.contains(ours), "{agent:?}: {text}");
        }
    }
    for agent in [Agent::Cursor, Agent::Custom] {
        assert!(start_direct(&installed(agent), Path::new("/w"), b"x").is_err());
    }
}

/// SEL-4: a custom agent's file stands where it is said to, whatever bytes its name has.
#[test]
fn a_custom_commands_file_stands_where_it_is_said_to() {
    let command = vec!["a".to_owned(), "--file={task_file}".to_owned()];
    let start = start_custom_with(&command, b"task", b"/x\xff/task").unwrap();
    assert_eq!(start.argv[1].as_bytes(), b"--file=/x\xff/task");
    assert_eq!((start.files.len(), start.stdin), (1, Stdin::Nothing));
}

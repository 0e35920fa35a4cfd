//! What a run costs beside bare bwrap with the same mounts. Not a test of anything: `cargo test --release -- --ignored cost`.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use ipc_proto::launcher::{FromLauncher, LaunchPlan, ToLauncher};

use crate::node::{Node, c, is_root};

const ROUNDS: usize = 50;

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// The options that the launcher gives bwrap, with lasting directories in place of the run's.
fn options(node: &Node, plan: &LaunchPlan) -> Vec<u8> {
    let (shim, kept) = (node.place.path().join("bwrap"), node.place.path().join("options"));
    std::fs::write(
        &shim,
        format!(
            "#!/usr/bin/python3\nimport os\nopen('{}', 'wb').write(os.read(8, 1 << 20))\n",
            kept.display()
        ),
    )
    .unwrap();
    std::fs::set_permissions(&shim, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut plan = plan.clone();
    plan.programs.bwrap = c(&shim);
    node.run(&plan);
    let lasting = node.place.path().join("lasting");
    for part in ["work", "home", "tmp"] {
        std::fs::create_dir_all(lasting.join(part)).unwrap();
        node.own(&lasting.join(part));
    }
    let text = String::from_utf8(std::fs::read(&kept).unwrap()).unwrap();
    let runs = node.place.path().canonicalize().unwrap().join("runs").join(plan.run.to_string());
    let mut out: Vec<String> = Vec::new();
    let mut words = text.split_terminator('\0');
    while let Some(word) = words.next() {
        if word == "--file" {
            words.nth(1);
            out.truncate(out.len() - 2);
        } else if word == "--as-pid-1" {
            out.push(word.to_owned());
        } else {
            out.push(word.replace(runs.to_str().unwrap(), lasting.to_str().unwrap()));
        }
    }
    out.join("\0").into_bytes()
}

fn bare(options: &[u8], file: &std::path::Path) -> Duration {
    std::fs::File::create(file).unwrap().write_all(&[options, b"\0"].concat()).unwrap();
    let input = std::fs::File::open(file).unwrap();
    let began = Instant::now();
    let mut command = std::process::Command::new(if is_root() { "setpriv" } else { "env" });
    if is_root() {
        command.args(["--reuid=1234", "--regid=1234", "--clear-groups"]);
    }
    command.args(["bwrap", "--args", "0", "--", "/usr/bin/true"]).stdin(input);
    assert!(command.status().unwrap().success());
    began.elapsed()
}

fn whole(node: &Node, plan: &LaunchPlan) -> [Duration; 4] {
    let null = std::fs::File::open("/dev/null").unwrap();
    let began = Instant::now();
    let mut marks = [Duration::ZERO; 4];
    node.launch(plan, [null.as_fd(), null.as_fd(), null.as_fd()]);
    loop {
        match node.receive().0 {
            FromLauncher::Ready { run, .. } => {
                marks[0] = began.elapsed();
                node.send(&ToLauncher::Go(run));
            }
            FromLauncher::Exited { .. } => marks[1] = began.elapsed(),
            FromLauncher::Closed { .. } => {
                marks[2] = began.elapsed();
                return marks;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn cost() {
    let node = Node::start();
    for here in [false, true] {
        let make = || {
            let mut plan = if here { node.here("") } else { node.sh("") };
            crate::node::command(&mut plan).argv = vec![c("/usr/bin/true")];
            plan
        };
        let options = options(&node, &make());
        let file = node.place.path().join("arguments");
        let mut times: [Vec<Duration>; 4] = Default::default();
        if here {
            // The placeholders of the run that was asked for its options are gone: they are part of "the same mounts".
            for path in String::from_utf8(options.clone())
                .unwrap()
                .split('\0')
                .filter(|word| word.starts_with(node.project().to_str().unwrap()))
            {
                std::fs::create_dir_all(path).unwrap();
            }
        }
        for _ in 0..ROUNDS {
            if !here {
                times[3].push(bare(&options, &file));
            }
            let [ready, exited, closed, _] = whole(&node, &make());
            times[0].push(ready);
            times[1].push(exited);
            times[2].push(closed);
        }
        if here {
            for _ in 0..ROUNDS {
                times[3].push(bare(&options, &file));
            }
        }
        let [ready, exited, closed, bare] = times.map(median);
        println!(
            "here={here}: bare bwrap {bare:.2} ms; ready {ready:.2}, exited {exited:.2}, closed {closed:.2}; ratio {:.2}",
            closed / bare
        );
    }
}

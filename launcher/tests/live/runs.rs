//! What a run sees, does and leaves.

use ipc_proto::Code;
use ipc_proto::init::Exit;
use ipc_proto::launcher::FromLauncher;

use crate::node::{Node, command};

/// The launcher is process 1 of its own namespace, without a network.
#[test]
fn the_launcher_has_namespaces_of_its_own() {
    let node = Node::start();
    let FromLauncher::Hello { namespaces, own_pid_namespace, own_network, .. } = &node.hello else {
        panic!()
    };
    assert_eq!(namespaces.len(), 7);
    assert!(*own_pid_namespace && *own_network);
    assert_eq!(node.end(), Some(0), "an end of the channel is its end");
}

#[test]
fn programs_run_and_their_end_is_told() {
    let node = Node::start();
    let went = node.run(&node.sh("echo out; echo err >&2; exit 7"));
    assert_eq!((went.status(), went.output.as_str()), (Some(7), "out\nerr\n"), "{:?} {}", went, node.log());
    assert_eq!(node.run(&node.sh("kill -9 $$")).exit, Some(Some(Exit::Signal(9))));
    assert_eq!(node.run(&node.plan(&["true"])).status(), Some(0));
    assert_eq!(node.run(&node.plan(&["no-such-program"])).exit, Some(Some(Exit::NotFound)));
    assert_eq!(node.run(&node.plan(&["/etc/passwd"])).exit, Some(Some(Exit::NotExecutable)));
    let script = node.run(&node.sh("printf 'echo from a script' > s; chmod +x s; ./s; exec ./s"));
    assert_eq!(script.output, "from a script\nfrom a script\n");
    let mut plan = node.sh("");
    node.file("text", "echo text $1");
    std::fs::set_permissions(
        node.project().join("text"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    plan.files.read_only.push(crate::node::c(node.project()));
    command(&mut plan).argv = vec![crate::node::c(node.project().join("text")), crate::node::c("arg")];
    assert_eq!(node.run(&plan).output, "text arg\n");
}

/// FS-1, FS-2, SBX-6: what a run sees.
#[test]
fn a_run_sees_its_own_and_nothing_else() {
    let node = Node::start();
    let went = node.run(&node.sh(
        "id -u; id -un; pwd; echo $HOME $TMPDIR; cat /etc/hosts; ls /; ls /etc; ls /run /root /boot /srv /mnt; \
         tr '\\0' '\\n' < /proc/1/environ; touch $HOME/a $TMPDIR/b /work/c /dev/shm/d; ls $TMPDIR",
    ));
    println!("{}", went.output);
    assert!(
        went.output.starts_with("1000\nanet\n/work\n/home/anet /tmp\n127.0.0.1 localhost\n::1 localhost\n")
    );
    assert!(went.output.ends_with("b\nd\n"));
    assert!(!went.output.contains("shadow"));
    for path in ["/x", "/usr/x", "/etc/x", "/dev/x", "/proc/x", "/home/x", "/run/x", "/var/x", "/sys/x"] {
        let went = node.run(&node.sh(&format!("echo > {path}")));
        assert_ne!(went.status(), Some(0), "{path}: {}", went.output);
    }
}

#[test]
fn bad_paths_fail_with_a_sentence() {
    let node = Node::start();
    let mut plan = node.sh("true");
    plan.files.read_only.push(crate::node::c("/does/not/exist"));
    let went = node.run(&plan);
    let failure = went.failure.unwrap();
    assert_eq!(failure.code, Code::BadPath);
    assert!(failure.text.contains("/does/not/exist"));
    let mut plan = node.sh("true");
    plan.programs.bwrap = crate::node::c("/no/bwrap");
    assert_eq!(node.run(&plan).failure.unwrap().code, Code::NoBwrap);
}

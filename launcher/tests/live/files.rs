//! FS-4: the operator's own directories, with what stays as it is in them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ipc_proto::Code;
use ipc_proto::launcher::WorkDirectory;

use crate::node::{Node, c};

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// FS-4: a named directory appears under its own name and is written; nothing is left on the host beside that.
#[test]
fn here_is_the_real_directory() {
    let node = Node::start();
    let went = node.run(&node.here("pwd; echo 1 > x; mkdir y; touch y/z; ls -A /work"));
    assert!(went.output.starts_with(&format!("{}\n", node.project().display())), "{went:?}");
    assert_eq!(names(&node.project()), ["x", "y"]);
}

/// FS-4: hooks, start-up files and settings stay, whether they exist or not, and are not renamed away.
#[test]
fn protected_names_stay() {
    let node = Node::start();
    node.file(".bashrc", "kept");
    node.file(".git/hooks/pre-commit", "kept");
    node.file(".git/HEAD", "ref: refs/heads/main");
    node.file(".git/objects/x", "");
    node.file(".git/config", "[core]\n");
    node.file("sub/lib/.git/HEAD", "x");
    node.file("sub/lib/.git/objects/x", "");
    node.file("sub/lib/.git/config", "[core]\n");
    let before = names(&node.project());
    for attack in [
        "echo evil > .bashrc",
        "echo evil >> .bashrc",
        "rm -f .bashrc && ! test -e .bashrc",
        "mv .bashrc x",
        "echo evil > .zshrc",
        "mkdir -p .claude && echo evil > .claude/settings.json",
        "mkdir -p .vscode && echo evil > .vscode/tasks.json",
        "echo evil > .mcp.json",
        "echo evil > .git/hooks/pre-commit",
        "echo evil > .git/hooks/post-checkout",
        "mv .git/hooks .git/h",
        "rm -rf .git/hooks; ! test -e .git/hooks/pre-commit",
        "mv .git g",
        "mv .git/config .git/c",
        "echo evil > .git/config",
        "rmdir .claude/commands",
        "mv .claude c",
        "ln -s /tmp .claude/commands/x",
        "echo evil > sub/lib/.git/config",
        "mkdir -p sub/lib/.git/hooks; echo evil > sub/lib/.git/hooks/x",
        "mv sub s",
        "mv sub/lib sub/l",
        "mv sub/lib/.git sub/lib/g",
        "ln .bashrc other && echo evil > other",
    ] {
        let went = node.run(&node.here(attack));
        assert!(went.status().is_some_and(|status| status != 0), "{attack}: {went:?}");
        assert_eq!(names(&node.project()), before, "{attack}");
    }
    assert_eq!(fs::read_to_string(node.project().join(".bashrc")).unwrap(), "kept");
    assert_eq!(fs::read_to_string(node.project().join(".git/hooks/pre-commit")).unwrap(), "kept");
    // What is not protected works.
    let went = node
        .run(&node.here("echo x > .claude/notes && echo y > .git/index && mkdir sub/more && cat .bashrc"));
    assert_eq!((went.status(), went.output.as_str()), (Some(0), "kept"), "{went:?}");
    assert_eq!(names(&node.project().join(".claude")), ["notes"]);
    assert!(!node.project().join("sub/lib/.git/hooks").exists());
}

/// FS-4: unless opened by name.
#[test]
fn protected_names_are_opened_by_name() {
    let node = Node::start();
    node.file(".git/hooks/pre-commit", "old");
    let mut plan = node.here("echo new > .git/hooks/pre-commit; echo evil > .bashrc; true");
    plan.files.read_write.push(c(node.project().join(".git/hooks")));
    assert_eq!(node.run(&plan).status(), Some(0));
    assert_eq!(fs::read_to_string(node.project().join(".git/hooks/pre-commit")).unwrap(), "new\n");
    assert!(!node.project().join(".bashrc").exists());
}

/// FS-4: also through a link: what it leads to stays, and the link is put back.
#[test]
fn links_to_protected_files_stay() {
    let node = Node::start();
    node.file("dotfiles/bashrc", "kept");
    symlink("dotfiles/bashrc", node.project().join(".bashrc")).unwrap();
    node.own(&node.project().join(".bashrc"));
    let went = node
        .run(&node.here("echo evil > .bashrc; echo evil > dotfiles/bashrc; rm .bashrc; echo evil > .bashrc"));
    println!("{}", went.output);
    assert_eq!(fs::read_to_string(node.project().join(".bashrc")).unwrap(), "kept");
    assert_eq!(fs::read_link(node.project().join(".bashrc")).unwrap(), Path::new("dotfiles/bashrc"));
}

/// FS-4: what the operator put in the place of a link meanwhile is kept, and told of.
#[test]
fn what_stands_in_a_links_place_is_kept() {
    let node = Node::start();
    node.file("dot/config", "kept");
    symlink("dot", node.project().join(".codex")).unwrap();
    node.own(&node.project().join(".codex"));
    let plan = node.here("rm .codex && mkdir -p .codex/sessions && echo x > .codex/sessions/log");
    assert_eq!(node.run(&plan).status(), Some(0));
    assert_eq!(fs::read_link(node.project().join(".codex")).unwrap(), Path::new("dot"));
    let kept = node.project().join(format!(".codex.anet-kept-{}/sessions/log", plan.run));
    assert_eq!(fs::read_to_string(kept).unwrap(), "x\n");
}

/// FS-4: in a home, the operator's own git and shells work while the run lasts, and what is started later is protected.
#[test]
fn a_home_goes_on_working() {
    let node = Node::start();
    node.file(".profile", "echo profile\n");
    let home = node.project();
    let went = node.run(&node.here(
        "test -f .gitconfig && test -f .bashrc && HOME=$PWD git config --get user.name; test $? = 1 && \
         HOME=$PWD bash -lc 'echo in'",
    ));
    assert_eq!((went.status(), went.output.as_str()), (Some(0), "profile\nin\n"), "{went:?}");
    for attack in [
        "echo evil > .gitconfig",
        "rm -f .gitconfig",
        "echo evil > .config/git/config",
        "echo evil > .ssh/authorized_keys",
        "mkdir -p .config/systemd/user && echo evil > .config/systemd/user/x.service",
        "echo evil > .config/autostart/x.desktop",
        "echo evil > .config/environment.d/x.conf",
        "echo evil > .xprofile",
        "mv .config c",
    ] {
        let went = node.run(&node.here(attack));
        assert!(went.status().is_some_and(|status| status != 0), "{attack}: {went:?}");
        assert_eq!(names(&home), [".profile"], "{attack}");
    }
}

/// FS-4: git works in a directory whose hooks it cannot write.
#[test]
fn git_works_here() {
    let node = Node::start();
    let went = node.run(&node.here(
        "set -e; git init -q -b main .; git config user.email a@b.c; git config user.name n; echo 1 > f; git add -A; \
         git commit -qm one; git status --porcelain; git log --oneline | wc -l; git clone -q . /tmp/clone; \
         git clone -q . sub; ls /tmp/clone sub",
    ));
    assert_eq!(
        (went.status(), went.output.as_str()),
        (Some(0), "1\n/tmp/clone:\nf\n\nsub:\nf\n"),
        "{went:?}"
    );
    assert_eq!(names(&node.project()), [".git", "f", "sub"]);
    assert!(!node.project().join(".git/hooks").exists());
    let went = node.run(&node.here(
        "set -e; echo 2 > f; git commit -qam two; git checkout -qb other; git tag t; git gc -q; git stash list; \
         git log --oneline | wc -l",
    ));
    assert_eq!((went.status(), went.output.as_str()), (Some(0), "2\n"), "{went:?}");
    // FS-4: what leads git elsewhere cannot be written, so that the operator's git is safe while the run lasts too.
    for attack in ["echo /tmp/evil > .git/commondir", "echo x > .git/config.worktree", "rm -f .git/commondir"]
    {
        let went = node.run(&node.here(attack));
        assert!(went.status().is_some_and(|status| status != 0), "{attack}: {went:?}");
    }
    for name in [".git/commondir", ".git/config.worktree"] {
        assert!(!node.project().join(name).exists(), "{name}");
    }
}

/// FS-4: denied and masked paths, and the precedence of the rules, in a real sandbox.
#[test]
fn closed_paths_are_closed() {
    let node = Node::start();
    for (path, text) in [
        ("open/a", "a"),
        ("open/secret/b", "b"),
        ("open/secret/shown/c", "c"),
        ("open/file", "d"),
        ("anet/conf", "e"),
        ("more/f", "f"),
    ] {
        node.file(path, text);
    }
    let at = |path: &str| node.project().join(path);
    let mut plan = node.sh("");
    plan.files.read_write = vec![c(at("")), c(at("open/secret/shown"))];
    plan.files.read_only = vec![c(at("more"))];
    plan.files.deny = vec![c(at("open/secret")), c(at("open/file")), c(at("later"))];
    plan.files.masked = vec![c(at("anet")), c(at("state/anet"))];
    let mut attempt = |script: &str| {
        let argv = ["/bin/sh", "-c", script].map(c).to_vec();
        crate::node::command(&mut plan).argv = argv;
        crate::node::command(&mut plan).directory = c(node.project());
        plan.run = node.sh("").run;
        node.run(&plan)
    };
    assert_eq!(attempt("cat open/a open/secret/shown/c more/f").output, "acf");
    for attack in [
        "cat open/secret/b",
        "ls open/secret",
        "cat open/file",
        "cat anet/conf",
        "ls anet",
        "echo > open/secret/new",
        "echo > open/secret/shown/new",
        "echo > more/new",
        "echo > open/file",
        "mv open o",
        "mv anet a",
        "echo > later",
        "mkdir later",
        "mkdir -p state/anet && echo > state/anet/conf",
        "mv state s",
        "chmod 777 open/secret && ls open/secret",
    ] {
        let went = attempt(attack);
        assert_ne!(went.status(), Some(0), "{attack}: {}", went.output);
    }
    assert_eq!(names(&node.project()), ["anet", "more", "open"]);
    let mut plan = node.sh("true");
    plan.files.masked = vec![c(at("anet"))];
    plan.files.read_only = vec![c(at("anet/conf"))];
    assert_eq!(node.run(&plan).failure.unwrap().code, Code::BadPath);
}

/// FS-4: what is closed and not there yet, also in a directory that is only read, and in one that nobody may write.
#[test]
fn closed_paths_may_be_missing() {
    let node = Node::start();
    node.file("shown/a", "a");
    let mut plan = node.sh(&format!("cd {}; cat shown/a; ls -A . && ls later", node.project().display()));
    plan.files.read_only = vec![c(node.project())];
    plan.files.masked = vec![c(node.project().join("later/on"))];
    plan.files.deny = vec![c("/usr/no-such-place/below")];
    let went = node.run(&plan);
    assert_eq!((went.status(), went.output.as_str()), (Some(0), "alater\nshown\non\n"), "{went:?}");
    assert_eq!(names(&node.project()), ["shown"]);
}

/// FS-5: who sends the plan has followed links; one that is there now was put there since.
#[test]
fn names_that_became_links_are_refused() {
    let node = Node::start();
    node.file("real/a", "a");
    symlink(node.project().join("real"), node.place.path().join("link")).unwrap();
    let link = node.place.path().canonicalize().unwrap().join("link");
    let mut plan = node.sh(&format!("cat {}/a", link.display()));
    plan.files.read_only.push(c(&link));
    assert_eq!(node.run(&plan).failure.unwrap().code, Code::BadPath);
}

/// FS-1: a socket in an opened directory is not reachable.
#[test]
fn sockets_in_opened_directories_are_closed() {
    let node = Node::start();
    let path = node.project().join("agent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    node.own(&path);
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ntry:\n s.connect(sys.argv[1])\nexcept OSError as e:\n sys.exit(3)";
    let mut plan = node.plan(&["python3", "-c", script, path.to_str().unwrap()]);
    plan.files.work = WorkDirectory::Named(c(node.project()));
    crate::node::command(&mut plan).directory = c(node.project());
    assert_eq!(node.run(&plan).status(), Some(3));
}

/// FS-4: two runs in one directory: what the first made for both stays until the second ends.
#[test]
fn two_runs_share_their_placeholders() {
    use ipc_proto::launcher::{FromLauncher, ToLauncher};
    use std::os::fd::AsFd;
    let node = Node::start();
    let first = node.here("while ! test -e go; do sleep 0.02; done");
    let second = node.here("while ! test -e end; do sleep 0.02; done; echo evil > .bashrc; echo evil > .claude/settings.json; true");
    let null = node_null();
    node.launch(&first, [null.as_fd(), null.as_fd(), null.as_fd()]);
    node.launch(&second, [null.as_fd(), null.as_fd(), null.as_fd()]);
    let mut ready = 0;
    let mut closed = Vec::new();
    while closed.len() < 2 {
        match node.receive().0 {
            FromLauncher::Ready { run, .. } => {
                node.send(&ToLauncher::Go(run));
                ready += 1;
                if ready == 2 {
                    fs::write(node.project().join("go"), "").unwrap();
                }
            }
            FromLauncher::Closed { run, .. } => {
                closed.push(run);
                if closed.len() == 1 {
                    assert_eq!(run, first.run);
                    assert!(node.project().join(".bashrc").is_dir());
                    fs::write(node.project().join("end"), "").unwrap();
                }
            }
            _ => {}
        }
    }
    assert_eq!(names(&node.project()), ["end", "go"]);
}

/// FS-4: a launcher that is killed leaves placeholders; the next start removes them and everything else.
#[test]
fn the_next_start_cleans_up_after_a_kill() {
    let node = Node::start();
    let script = format!("touch started; sleep 60.5{}", rustix::process::getuid().as_raw());
    let mut plan = node.here(&script);
    plan.files.root = c(node.place.path().canonicalize().unwrap().join("runs"));
    let null = fs::File::open("/dev/null").unwrap();
    use std::os::fd::AsFd;
    node.launch(&plan, [null.as_fd(), null.as_fd(), null.as_fd()]);
    loop {
        if let (ipc_proto::launcher::FromLauncher::Ready { run, .. }, _) = node.receive() {
            break node.send(&ipc_proto::launcher::ToLauncher::Go(run));
        }
    }
    assert!(crate::node::eventually(|| node.project().join("started").exists()));
    assert!(node.project().join(".bashrc").is_dir());
    node.kill();
    assert!(crate::node::eventually(|| crate::node::processes(&script).is_empty()));
    // Days later: what the operator made meanwhile is his, with or without our directory below it.
    fs::remove_dir(node.project().join(".bashrc")).unwrap();
    fs::write(node.project().join(".bashrc"), "").unwrap();
    fs::write(node.project().join(".idea/workspace.xml"), "x").unwrap();
    let Node { place, .. } = node;
    let again = Node::start_in(place);
    let null = node_null();
    let plan = again.sh("true");
    again.launch(&plan, [null.as_fd(), null.as_fd(), null.as_fd()]);
    assert!(crate::node::eventually(|| names(&again.project()) == [".bashrc", ".idea", "started"]));
    assert!(again.project().join(".bashrc").is_file());
    loop {
        match again.receive().0 {
            ipc_proto::launcher::FromLauncher::Ready { run, .. } => {
                again.send(&ipc_proto::launcher::ToLauncher::Go(run))
            }
            ipc_proto::launcher::FromLauncher::Closed { .. } => break,
            _ => {}
        }
    }
    assert!(crate::node::eventually(|| names(&again.place.path().join("runs")) == [".lock"]));
}

fn node_null() -> fs::File {
    fs::File::open("/dev/null").unwrap()
}

use std::os::unix::fs::symlink;

use super::*;

/// A file system of our own: what is found must not depend on this machine.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        Tree(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn link(&self, name: &str, target: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, &path).unwrap();
        path
    }

    /// With only these directories of the tree in PATH.
    fn find(&self, agent: Agent, path: &[&str]) -> Result<Installed, Trouble> {
        let path = std::env::join_paths(path.iter().map(|name| self.path(name))).unwrap();
        self.find_with(agent, &Search { path: &path, home: Some(&self.path("home")), more: &[] })
    }

    /// As [`find`], but for what is installed on this machine.
    fn find_with(&self, agent: Agent, search: &Search<'_>) -> Result<Installed, Trouble> {
        find_in(agent, &places(search, own_places(agent)), search)
    }
}

const PROGRAM: &str = "\x7fELF and so on";
const SCRIPT: &str = "#!/usr/bin/env node\n";

fn arch() -> &'static str {
    if cfg!(target_arch = "x86_64") { "x64" } else { "arm64" }
}

fn triple() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// MOD-14: npm's script stands for the program in this machine's own package, beside it or nested in it; that package is
/// what a run sees, and no other.
#[test]
fn a_program_is_found_behind_the_script_of_npm() {
    for nested in [false, true] {
        let tree = Tree::new();
        let modules = "p/lib/node_modules";
        tree.file(&format!("{modules}/@openai/codex/package.json"), "{}");
        tree.file(&format!("{modules}/@openai/codex/bin/codex.js"), SCRIPT);
        let inner = if nested { format!("{modules}/@openai/codex/node_modules") } else { modules.to_owned() };
        let package = format!("{inner}/@openai/codex-linux-{}", arch());
        tree.file(&format!("{package}/package.json"), "{}");
        let program = tree.file(&format!("{package}/vendor/{}/bin/codex", triple()), PROGRAM);
        tree.link("p/bin/codex", "../lib/node_modules/@openai/codex/bin/codex.js");
        let found = tree.find(Agent::Codex, &["p/bin"]).unwrap();
        assert_eq!((found.program, found.visible), (program, vec![tree.path(&package)]), "nested {nested}");
    }
}

/// MOD-14: where npm may run its install scripts, the script was replaced by the program.
#[test]
fn a_program_in_place_of_the_script_is_taken() {
    let tree = Tree::new();
    let package = "w/node_modules/@anthropic-ai/claude-code";
    tree.file(&format!("{package}/package.json"), "{}");
    let program = tree.file(&format!("{package}/bin/claude.exe"), PROGRAM);
    tree.link("w/node_modules/.bin/claude", "../@anthropic-ai/claude-code/bin/claude.exe");
    let found = tree.find(Agent::Claude, &["w/node_modules/.bin"]).unwrap();
    assert_eq!((found.program, found.visible), (program, vec![tree.path(package)]));
}

/// MOD-14: pnpm's store, where the package of this machine is a link beside the agent's.
#[test]
fn a_program_is_found_in_a_store_of_links() {
    let tree = Tree::new();
    let package = format!("opencode-linux-{}", arch());
    let store = "w/node_modules/.pnpm";
    tree.file(&format!("{store}/o@1/node_modules/opencode-ai/bin/opencode"), SCRIPT);
    for variant in ["", "-baseline"] {
        tree.file(&format!("{store}/b@1/node_modules/{package}{variant}/package.json"), "{}");
        tree.file(&format!("{store}/b@1/node_modules/{package}{variant}/bin/opencode"), PROGRAM);
        let link = format!("{store}/o@1/node_modules/{package}{variant}");
        tree.link(&link, &format!("../../b@1/node_modules/{package}{variant}"));
    }
    tree.link("w/bin/opencode", "../node_modules/.pnpm/o@1/node_modules/opencode-ai/bin/opencode");
    let found = tree.find(Agent::Opencode, &["w/bin"]).unwrap();
    assert!(found.program.starts_with(tree.path(&format!("{store}/b@1/node_modules"))), "{found:?}");
    assert!(found.visible.iter().all(|shown| found.program.starts_with(shown)), "{found:?}");
}

/// FS-1: a program that was installed alone is seen alone: what is beside it, or above it, may be anything of the
/// operator's.
#[test]
fn a_program_alone_shows_nothing_else() {
    let tree = Tree::new();
    let program = tree.file("home/.local/share/claude/versions/2.1.332", PROGRAM);
    tree.file("home/package.json", "{}");
    tree.link("home/.local/bin/claude", "../share/claude/versions/2.1.332");
    let found = tree.find(Agent::Claude, &["empty"]).unwrap();
    assert_eq!((&found.program, &found.visible), (&program, &vec![program.clone()]));
    // codex's newer models need a second program beside it.
    let codex = tree.file("o/codex", PROGRAM);
    let host = tree.file("o/codex-code-mode-host", PROGRAM);
    tree.file("o/other", PROGRAM);
    assert_eq!(tree.find(Agent::Codex, &["o"]).unwrap().visible, [codex, host]);
}

/// MOD-14: PATH comes first, then what is opened for reading, then where installers put things; a file that is not the
/// agent is passed over for one that is.
#[test]
fn the_first_that_is_the_agent_is_taken() {
    let tree = Tree::new();
    tree.file("a/opencode", "#!/bin/sh\nexec something\n");
    tree.link("b/opencode", "../mise");
    tree.file("mise", PROGRAM);
    let home = tree.file("home/.opencode/bin/opencode", PROGRAM);
    let found = tree.find(Agent::Opencode, &["a", "b"]).unwrap();
    assert_eq!(found.program, home);
    let more = [tree.path("more")];
    let opened = tree.file("more/bin/opencode", PROGRAM);
    let path = tree.path("a").into_os_string();
    let search = Search { path: &path, home: Some(&tree.path("home")), more: &more };
    assert_eq!(tree.find_with(Agent::Opencode, &search).unwrap().program, opened);
    let last = tree.file("c/opencode", PROGRAM);
    assert_eq!(tree.find(Agent::Opencode, &["a", "c"]).unwrap().program, last);
}

/// DIA-2: an agent that is not there, or not whole, is said with where it was looked for and what to do.
#[test]
fn what_is_missing_is_said() {
    let tree = Tree::new();
    let trouble = tree.find(Agent::Openclaw, &["a", "b"]).unwrap_err();
    assert_eq!(trouble.code, Code::AgentMissing);
    for word in [&*tree.path("a").display().to_string(), "npm install -g openclaw", "read_only"] {
        assert!(trouble.sentence.contains(word), "{trouble}");
    }
    tree.file("a/codex", SCRIPT);
    let trouble = tree.find(Agent::Codex, &["a"]).unwrap_err();
    assert!(trouble.sentence.contains("no program for this machine"), "{trouble}");
    tree.file("a/hermes", "#!/bin/bash\n");
    assert!(tree.find(Agent::Hermes, &["a"]).unwrap_err().sentence.contains("Python"));
    for agent in [Agent::Cursor, Agent::Custom] {
        let search = Search { path: OsStr::new(""), home: None, more: &[] };
        assert_eq!(find(agent, &search).unwrap_err().code, Code::AgentUnsupported, "{agent:?}");
    }
}

/// FS-1: a relative entry of PATH would be the directory of whoever the operator works for.
#[test]
fn a_relative_place_is_not_looked_in() {
    let search = Search { path: OsStr::new(".:bin::/opt/x"), home: None, more: &[] };
    assert_eq!(places(&search, &[]), [PathBuf::from("/opt/x")]);
}

/// FS-1: a program that anybody on this host could replace is not run for the operator; a group's is.
#[test]
fn a_program_that_anybody_can_replace_is_refused() {
    let tree = Tree::new();
    let program = tree.file("a/codex", PROGRAM);
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&program, 0o775);
    assert!(tree.find(Agent::Codex, &["a"]).is_ok());
    mode(&program, 0o757);
    let sentence = tree.find(Agent::Codex, &["a"]).unwrap_err().sentence;
    assert!(sentence.contains("replaced by anybody") && sentence.contains("a/codex"), "{sentence}");
    mode(&program, 0o755);
    mode(&tree.path("a"), 0o777);
    assert!(tree.find(Agent::Codex, &["a"]).is_err());
    // As /tmp is: the entry below is our own.
    mode(&tree.path("a"), 0o1777);
    assert!(tree.find(Agent::Codex, &["a"]).is_ok());
}

/// A virtual environment with hermes in it.
fn environment(tree: &Tree, at: &str, python: &str) {
    tree.file(&format!("{at}/pyvenv.cfg"), "home = x\n");
    tree.link(&format!("{at}/bin/python3.11"), python);
    tree.link(&format!("{at}/bin/python"), "python3.11");
    tree.file(&format!("{at}/lib/python3.11/site-packages/hermes_cli/main.py"), "");
}

/// A Python with its library.
fn python(tree: &Tree, at: &str) -> PathBuf {
    tree.file(&format!("{at}/lib/python3.11/os.py"), "");
    tree.file(&format!("{at}/bin/python3.11"), PROGRAM)
}

/// FS-1: a link that an earlier run left in a directory of PATH shows nothing of the operator's: what is shown has the marks of
/// a Python, or of openclaw's package and a node.
#[test]
fn planted_links_show_nothing() {
    let tree = Tree::new();
    tree.file("home/.ssh/id", "secret");
    let planted = tree.file("home/project/py", PROGRAM);
    environment(&tree, "home/project/venv", &planted.display().to_string());
    let named = tree.path("home/project/venv/bin/python");
    tree.file("home/project/venv/bin/hermes", &format!("#!{}\n", named.display()));
    assert!(tree.find(Agent::Hermes, &["home/project/venv/bin"]).is_err());

    let secret = tree.file("home/.bashrc", "TOKEN=secret");
    tree.file("home/package.json", "{\"name\":\"openclaw\"}");
    node(&tree, "new", (24, 21));
    tree.file("p/bin/openclaw", SCRIPT);
    tree.link("p/node_modules/openclaw/openclaw.mjs", &secret.display().to_string());
    assert!(tree.find(Agent::Openclaw, &["p/bin", "new/bin"]).is_err());
    let script = tree.file("q/openclaw.mjs", SCRIPT);
    tree.link("q/bin/openclaw", &script.display().to_string());
    assert!(tree.find(Agent::Openclaw, &["q/bin", "new/bin"]).is_err(), "no package");
    tree.file("q/package.json", "{\"name\":\"openclaw\"}");
    assert!(tree.find(Agent::Openclaw, &["q/bin", "new/bin"]).is_ok());
}

/// MOD-14: hermes is started by the Python of its own environment, and both it and the Python that it is a link to are
/// seen.
#[test]
fn hermes_comes_with_its_python() {
    let tree = Tree::new();
    let python = python(&tree, "py");
    environment(&tree, "venv", &python.display().to_string());
    let script = format!("#!{}\nimport sys\n", tree.path("venv/bin/python").display());
    let script = tree.file("venv/bin/hermes", &script);
    tree.link("bin/hermes", "../venv/bin/hermes");
    let found = tree.find(Agent::Hermes, &["bin"]).unwrap();
    assert_eq!(found.program, script);
    assert_eq!(found.runtime, Some(tree.path("venv/bin/python")));
    assert_eq!(found.visible, [tree.path("venv"), tree.path("py")]);
    assert_eq!(found.via, Via::Script);
}

/// MOD-14: a Python behind a directory that is a link is not there under that name inside; the environment's packages are
/// given to the Python itself then. The script's first line may be a shell's.
#[test]
fn hermes_with_a_linked_python_has_its_packages_named() {
    let tree = Tree::new();
    let python = python(&tree, "python-3.11.9");
    tree.link("python-3.11", "python-3.11.9");
    environment(&tree, "a venv", &tree.path("python-3.11/bin/python3.11").display().to_string());
    let named = tree.path("a venv/bin/python");
    tree.file(
        "a venv/bin/hermes",
        &format!("#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n' '''\n", named.display()),
    );
    let found = tree.find(Agent::Hermes, &["a venv/bin"]).unwrap();
    assert_eq!(found.runtime, Some(python));
    assert_eq!(found.via, Via::Packages(tree.path("a venv/lib/python3.11/site-packages")));
    assert_eq!(found.visible, [tree.path("a venv"), tree.path("python-3.11.9")]);
}

/// FS-1: hermes's own installer puts it into its source, below the directory that has its keys: the source is seen, the
/// keys are not.
#[test]
fn hermes_installed_in_its_source_shows_the_source_alone() {
    let tree = Tree::new();
    let python = python(&tree, "py");
    let source = "home/.hermes/hermes-agent";
    environment(&tree, &format!("{source}/venv"), &python.display().to_string());
    fs::remove_dir_all(tree.path(&format!("{source}/venv/lib/python3.11/site-packages/hermes_cli"))).unwrap();
    tree.file(&format!("{source}/hermes_cli/main.py"), "");
    tree.file("home/.hermes/.env", "KEY=secret");
    let named = tree.path(&format!("{source}/venv/bin/python"));
    tree.file(&format!("{source}/venv/bin/hermes"), &format!("#!{}\n", named.display()));
    let found = tree.find(Agent::Hermes, &["empty"]).unwrap();
    assert_eq!(found.visible, [tree.path(source), tree.path("py")]);
    // Without the source it is nothing.
    fs::remove_dir_all(tree.path(&format!("{source}/hermes_cli"))).unwrap();
    assert!(tree.find(Agent::Hermes, &["empty"]).unwrap_err().sentence.contains("hermes_cli"));
}

/// A node of that version.
fn node(tree: &Tree, at: &str, version: (u32, u32)) -> PathBuf {
    let header =
        format!("#define NODE_MAJOR_VERSION {}\n#define NODE_MINOR_VERSION {}\n", version.0, version.1);
    tree.file(&format!("{at}/include/node/node_version.h"), &header);
    tree.file(&format!("{at}/bin/node"), PROGRAM)
}

/// MOD-14: openclaw comes with a node that it runs on, whichever stands first in PATH, and with the `node_modules` that its
/// own dependencies are in.
#[test]
fn openclaw_comes_with_a_node_that_does() {
    let tree = Tree::new();
    node(&tree, "old", (20, 20));
    let new = node(&tree, "new", (24, 21));
    let script = tree.file("p/lib/node_modules/openclaw/openclaw.mjs", SCRIPT);
    tree.file("p/lib/node_modules/openclaw/package.json", "{\"name\":\"openclaw\",\"version\":\"1\"}");
    tree.link("p/bin/openclaw", "../lib/node_modules/openclaw/openclaw.mjs");
    let found = tree.find(Agent::Openclaw, &["p/bin", "old/bin", "new/bin"]).unwrap();
    assert_eq!((&found.program, &found.runtime), (&script, &Some(new.clone())));
    assert_eq!(found.visible, [tree.path("p/lib/node_modules"), new]);
}

/// FS-1: of several paths those that hold the others are enough, and below /usr nothing needs to be shown.
#[test]
fn what_is_seen_already_is_not_shown_again() {
    let paths = ["/usr/lib/x", "/opt/a/b", "/opt/a", "/opt/a/c", "/opt/ab"].map(PathBuf::from);
    assert_eq!(shown(paths), ["/opt/a", "/opt/ab"].map(PathBuf::from));
}

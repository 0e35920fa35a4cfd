use std::os::unix::fs::symlink;

use super::survey::survey_within;
use super::*;
use crate::files::rules::{Access, Opened, Origin};

struct Place {
    _keep: tempfile::TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Place {
        let keep = tempfile::tempdir().unwrap();
        let root = keep.path().canonicalize().unwrap().join("project");
        fs::create_dir(&root).unwrap();
        Place { _keep: keep, root }
    }
    fn file(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fn git(&self, at: &str) {
        self.file(&format!("{at}/HEAD"), "ref: refs/heads/main\n");
        self.file(&format!("{at}/config"), "[core]\n\tbare = false\n");
        fs::create_dir_all(self.root.join(at).join("objects")).unwrap();
    }
    fn opened(&self) -> Opened {
        let (dest, source) = (self.root.clone(), self.root.clone());
        Opened { dest, source, access: Access::ReadWrite, origin: Origin::Operator }
    }
    fn look(&self) -> Found {
        let view = View::new(vec![self.opened()], Vec::new()).unwrap();
        Found::look(&view, &self.root, &survey(&self.opened()), None)
    }
    fn has(&self, list: &[PathBuf], path: &str) -> bool {
        list.contains(&self.root.join(path))
    }
}

/// FS-4: names are protected whether they exist or not, and each says why.
#[test]
fn names_are_protected_whether_they_exist_or_not() {
    let place = Place::new();
    place.file(".zshenv", "");
    place.file(".vscode/tasks.json", "{}");
    let found = place.look();
    assert!(place.has(&found.present, ".zshenv") && place.has(&found.present, ".vscode"));
    for name in [".zshrc", ".claude/settings.json", ".mcp.json", ".git/hooks", ".hg/hgrc", ".config/fish"] {
        assert!(place.has(&found.missing, name), "{name}");
    }
    assert!(!place.has(&found.missing, ".ssh") && !place.has(&found.missing, ".config/git"));
    assert!(table().all(|(path, reason)| !reason.is_empty() && Path::new(path).is_relative()));
}

/// FS-4: a repository's hooks and configuration, and what the configuration names.
#[test]
fn a_repository_is_protected_with_what_it_names() {
    let place = Place::new();
    place.git(".git");
    place.file(".git/config", "[core]\n\thooksPath = tools/hooks\n[include] path = ../shared.cfg\n");
    place.file("tools/hooks/pre-commit", "");
    let found = place.look();
    assert!(place.has(&found.present, ".git/config") && place.has(&found.present, "tools/hooks"));
    assert!(place.has(&found.missing, ".git/hooks") && place.has(&found.missing, "shared.cfg"));
    // What leads git elsewhere is a file that leads nowhere.
    for name in [".git/commondir", ".git/config.worktree"] {
        assert!(place.has(&found.missing_files, name), "{name}");
    }
}

/// FS-4: a home has names that matter whether they exist or not, and its files have files for placeholders.
#[test]
fn a_home_is_protected_as_one() {
    const LATER: [&str; 7] = [
        ".ssh",
        ".config/git",
        ".config/systemd/user",
        ".local/share/systemd/user",
        ".config/autostart",
        ".config/environment.d",
        ".codex",
    ];
    let by_looks = Place::new();
    by_looks.file(".profile", "");
    let by_name = Place::new();
    let above = Place::new();
    fs::create_dir(above.root.join("alice")).unwrap();
    let look = |place: &Place, home: &Path| {
        let view = View::new(vec![place.opened()], Vec::new()).unwrap();
        Found::look(&view, &place.root, &Survey::default(), Some(home))
    };
    let alice = above.root.join("alice");
    for (found, home) in [
        (by_looks.look(), &by_looks.root),
        (look(&by_name, &by_name.root), &by_name.root),
        (look(&above, &alice), &alice),
    ] {
        for name in LATER {
            assert!(found.missing.contains(&home.join(name)), "{name}");
        }
        for name in [".gitconfig", ".bashrc", ".xprofile", ".hgrc", ".claude/settings.json"] {
            assert!(found.missing_files.contains(&home.join(name)), "{name}");
            assert!(!found.missing.contains(&home.join(name)), "{name}");
        }
    }
    // A repository of start-up files: git would show a file and not a directory.
    by_looks.git(".git");
    let found = by_looks.look();
    assert!(by_looks.has(&found.missing, ".gitconfig") && by_looks.has(&found.missing, ".ssh"));
    assert!(!by_looks.has(&found.missing_files, ".gitconfig"));
}

/// FS-4: the home is what the system says.
#[test]
fn the_home_is_the_one_in_passwd() {
    let users =
        b"root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000:A,,:/home/alice:/bin/sh\nbad:x:7\nempty:x:8:8::\n";
    assert_eq!(home_of(users, 1000), Some("/home/alice".into()));
    assert_eq!((home_of(users, 7), home_of(users, 8), home_of(users, 9)), (None, None, None));
}

/// FS-4: what the operator's own configuration names is protected in a directory that is opened.
#[test]
fn the_operators_configuration_is_read() {
    let place = Place::new();
    let home = place.root.parent().unwrap().join("home");
    fs::create_dir(&home).unwrap();
    let text = format!("[include]\npath = {}/work.cfg # mine\n", place.root.display());
    fs::write(home.join(".gitconfig"), text).unwrap();
    place.file("work.cfg", "[core]\nhooksPath = ~/../project/hooks\n");
    let view = View::new(vec![place.opened()], Vec::new()).unwrap();
    let found = Found::look(&view, &place.root, &Survey::default(), Some(&home));
    assert!(place.has(&found.present, "work.cfg") && place.has(&found.missing, "hooks"));
}

/// FS-4: nested repositories, submodules, and work trees whose repository is elsewhere.
#[test]
fn nested_repositories_are_found() {
    let place = Place::new();
    place.git(".git/modules/vendor/lib");
    place.git(".git");
    place.file("vendor/lib/.git", "gitdir: ../../.git/modules/vendor/lib\n");
    place.git("a/b/.git");
    place.file("a/b/.git/hooks/post-checkout", "");
    place.git("1/2/3/4/5/6/.git");
    place.git("1/2/3/4/5/6/7/.git");
    place.git("node_modules/dependency/.git");
    place.file("tree/.git", "gitdir: ../store/worktrees/tree\n");
    place.git("store");
    place.file("store/worktrees/tree/commondir", "../..\n");
    let found = place.look();
    for name in [
        ".git/modules/vendor/lib/config",
        "vendor/lib/.git",
        "a/b/.git/hooks",
        "a/b/.git/config",
        "tree/.git",
        "1/2/3/4/5/6/.git/config",
        "node_modules/dependency/.git/config",
        "store/worktrees/tree/commondir",
        "store/config",
    ] {
        assert!(place.has(&found.present, name), "{name}");
    }
    assert!(place.has(&found.missing, ".git/modules/vendor/lib/hooks"));
    assert!(!place.has(&found.present, "1/2/3/4/5/6/7/.git/config"), "deeper than is looked");
}

/// FS-4: below the top, the table in every repository, and the settings of agents and editors everywhere, where they exist.
#[test]
fn names_below_are_protected_where_they_exist() {
    let place = Place::new();
    place.git("sub/.git");
    place.file("hg/.hg/requires", "");
    let there = [
        "sub/.envrc",
        "sub/.mcp.json",
        "sub/.husky/pre-commit",
        "sub/.claude/notes",
        "a/b/.vscode/tasks.json",
    ];
    for name in there.into_iter().chain(["a/.envrc", "node_modules/x/.vscode/tasks.json", "target/.mcp.json"])
    {
        place.file(name, "");
    }
    fs::create_dir(place.root.join("shared")).unwrap();
    symlink("../shared", place.root.join("a/.cursor")).unwrap();
    let found = place.look();
    for name in [
        "sub/.envrc",
        "sub/.mcp.json",
        "sub/.husky",
        "sub/.claude",
        "a/b/.vscode",
        "shared",
        "target/.mcp.json",
    ] {
        assert!(place.has(&found.present, name), "{name}");
    }
    // A shell's file means nothing outside of a home or a repository, and packages have to be removable.
    assert!(!place.has(&found.present, "a/.envrc") && !place.has(&found.present, "node_modules/x/.vscode"));
    assert!(found.links.iter().any(|(link, _)| *link == place.root.join("a/.cursor")));
    // No placeholders, but for what makes a repository dangerous.
    let below =
        |path: &&PathBuf| ["sub", "a", "hg", "target"].iter().any(|d| path.starts_with(place.root.join(d)));
    let mut made: Vec<&PathBuf> = found.missing.iter().filter(below).collect();
    made.sort();
    assert_eq!(made, [&place.root.join("hg/.hg/hgrc"), &place.root.join("sub/.git/hooks")]);
}

/// FS-4: what is known for its size is looked into last, so that it uses up no bound before the operator's own work is seen.
#[test]
fn heavy_directories_hide_nothing() {
    let place = Place::new();
    place.git("1/2/3/4/.git");
    fs::create_dir(place.root.join("target")).unwrap();
    for number in 0..100 {
        fs::write(place.root.join(format!("target/{number}")), "").unwrap();
    }
    let survey = survey_within(&place.opened(), 50);
    assert!(survey.cut && place.has(&survey.repositories, "1/2/3/4"));
}

/// FS-4: a link is protected where it leads, and is put back; one that leads out of what is writable needs no mount.
#[test]
fn links_are_protected_where_they_lead() {
    let place = Place::new();
    place.file("dotfiles/bashrc", "");
    symlink("dotfiles/bashrc", place.root.join(".bashrc")).unwrap();
    symlink("shared", place.root.join(".claude")).unwrap();
    fs::create_dir(place.root.join("shared")).unwrap();
    symlink("/etc/profile", place.root.join(".profile")).unwrap();
    symlink("later", place.root.join(".zshrc")).unwrap();
    let found = place.look();
    assert!(place.has(&found.present, "dotfiles/bashrc"));
    // With a start-up file in it this is a home, so what is missing is made as a file.
    assert!(place.has(&found.missing_files, "shared/settings.json"));
    assert!(place.has(&found.missing_files, "later") && place.has(&found.missing, "shared/commands"));
    assert!(!found.present.iter().any(|path| path.starts_with("/etc")));
    let links: Vec<_> =
        found.links.iter().map(|(link, _)| link.file_name().unwrap().to_str().unwrap()).collect();
    for name in [".bashrc", ".claude", ".profile", ".zshrc"] {
        assert!(links.contains(&name), "{name}");
    }
}

/// FS-1: sockets in an opened directory are found, to be closed.
#[test]
fn sockets_are_found() {
    let place = Place::new();
    fs::create_dir_all(place.root.join("a/b")).unwrap();
    let socket = place.root.join("a/b/agent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_eq!(survey(&place.opened()).sockets, [socket]);
}

/// The survey is bounded, and says when it was cut.
#[test]
fn the_survey_is_bounded() {
    let place = Place::new();
    for number in 0..100 {
        fs::write(place.root.join(number.to_string()), "").unwrap();
    }
    assert!(survey_within(&place.opened(), 99).cut);
    assert!(!survey_within(&place.opened(), 100).cut);
}

/// What the survey costs: `cargo test --release survey_cost -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn survey_cost() {
    let place = Place::new();
    for number in 0..20_000 {
        place.file(&format!("{}/{}/{number}", number % 40, number % 400), "");
    }
    for _ in 0..5 {
        let began = std::time::Instant::now();
        assert!(!survey(&place.opened()).cut);
        println!("{:?}", began.elapsed());
    }
}

//! FS-4: version-control hooks, shell start-up files and agent settings in a writable directory stay read-only unless
//! opened by name, whether they exist yet or not, and also through a link; nothing is left behind for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tests::person::{Person, Who};
use tests::processes;

/// Files that a program of the operator would execute or obey later.
const PROTECTED: [&str; 13] = [
    ".git/hooks/pre-commit",
    ".git/config",
    ".bashrc",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".gitconfig",
    ".mcp.json",
    ".claude/settings.json",
    ".claude/commands/x.md",
    ".codex/config.toml",
    ".vscode/settings.json",
];

/// Every file below a directory with its content; directories as such; links by their target.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = entry.file_type().expect("type");
        if kind.is_dir() {
            found.insert(path.clone(), "directory".to_owned());
            found.extend(snapshot(&path));
        } else if kind.is_symlink() {
            found.insert(path.clone(), format!("link to {}", fs::read_link(&path).expect("link").display()));
        } else {
            found.insert(path.clone(), String::from_utf8_lossy(&fs::read(&path).expect("file")).into_owned());
        }
    }
    found
}

/// What differs between two snapshots.
fn differences(before: &BTreeMap<PathBuf, String>, after: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let gone = before.keys().filter(|p| !after.contains_key(*p)).map(|p| format!("{} is gone", p.display()));
    let other = after.iter().filter(|(p, content)| before.get(*p) != Some(content));
    gone.chain(other.map(|(p, content)| format!("{}: {content:?}", p.display()))).collect()
}

fn write_all(person: &Person, work: &Path, files: &[&str], content: &str) {
    for file in files {
        let path = work.join(file);
        let mut dirs: Vec<_> = path.ancestors().skip(1).take_while(|dir| *dir != work).collect();
        dirs.reverse();
        for dir in dirs {
            if !dir.exists() {
                fs::create_dir(dir).expect("directory");
                person.give_work(dir);
            }
        }
        person.write_work(&path, content);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// What a hostile run tries with each of the files.
fn attack(files: &[&str]) -> String {
    let mut script = String::new();
    for file in files {
        let dir = Path::new(file).parent().expect("a parent").to_str().expect("text");
        let dir = if dir.is_empty() { "." } else { dir };
        script.push_str(&format!(
            "mkdir -p {dir} 2>/dev/null; (echo evil > {file}) 2>/dev/null; (echo evil >> {file}) 2>/dev/null; \
             (ln -s {file} l && echo evil > l) 2>/dev/null; rm -f l; \
             (echo evil > evil && mv evil {file}) 2>/dev/null; (ln evil {file}) 2>/dev/null; (cp evil {file}) 2>/dev/null; \
             rm -f evil {file} 2>/dev/null; (chmod 777 {file}) 2>/dev/null; "
        ));
    }
    script + "true"
}

#[test]
fn files_that_exist_stay_as_they_are() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        write_all(&person, &work, &PROTECTED, "operator's\n");
        let before = snapshot(&work);
        person.sh(["--here"], &attack(&PROTECTED)).cwd(&work).output().expect_code(0);
        assert_eq!(differences(&before, &snapshot(&work)), Vec::<String>::new());
        // They can be read.
        let read = person.run(["--here"], ["cat", ".git/hooks/pre-commit"]).cwd(&work).output();
        read.expect_out("operator's");
    }
}

#[test]
fn files_that_do_not_exist_do_not_come_into_being() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        person.write_work(&work.join("code.txt"), "code\n");
        person.sh(["--here"], &attack(&PROTECTED)).cwd(&work).output().expect_code(0);
        let after = snapshot(&work);
        let evil: Vec<_> = after.iter().filter(|(_, content)| content.contains("evil")).collect();
        assert_eq!(evil, Vec::<(&PathBuf, &String)>::new());
        // Nothing is left behind on the host for it: no placeholder, and no file in a protected place.
        for file in PROTECTED {
            assert!(!after.contains_key(&work.join(file)), "{file} was left behind");
        }
        // An untouched directory stays untouched.
        let quiet = person.work_dir("quiet");
        person.run(["--here"], ["true"]).cwd(&quiet).output().expect_code(0);
        assert_eq!(differences(&BTreeMap::new(), &snapshot(&quiet)), Vec::<String>::new(), "placeholders");
    }
}

#[test]
fn directories_on_the_way_cannot_be_moved_aside() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        write_all(&person, &work, &PROTECTED, "operator's\n");
        let script = "(mv .git .git2; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; \
                      mv .claude .claude2; mkdir .claude; echo evil > .claude/settings.json; \
                      mv .git2/hooks .git2/hooks2; mkdir -p .git2/hooks; echo evil > .git2/hooks/pre-commit) 2>/dev/null; true";
        person.sh(["--here"], script).cwd(&work).output().expect_code(0);
        for file in [".git/hooks/pre-commit", ".claude/settings.json"] {
            assert_eq!(fs::read_to_string(work.join(file)).unwrap_or_default(), "operator's\n", "{file}");
        }
    }
}

/// Also through a link: one that the operator has, and one that leads to a place outside.
#[test]
fn links_in_protected_places_do_not_open_them() {
    let person = Person::new(Who::User);
    let work = person.work_dir("work");
    let elsewhere = person.work_dir("elsewhere");
    person.write_work(&elsewhere.join("pre-commit"), "operator's\n");
    write_all(&person, &work, &[".git/HEAD", "hooks/pre-commit", "rc"], "operator's\n");
    std::os::unix::fs::symlink("../hooks", work.join(".git/hooks")).expect("link");
    std::os::unix::fs::symlink("rc", work.join(".bashrc")).expect("link");
    let script = "(echo evil > hooks/pre-commit; echo evil > hooks/post-commit; echo evil > .git/hooks/pre-commit; \
                  echo evil > rc; echo evil > .bashrc; rm .bashrc; echo evil > .bashrc) 2>/dev/null; true";
    person.sh(["--here"], script).cwd(&work).output().expect_code(0);
    // What git and the shell would read: neither by the link's name nor by the target's.
    assert_eq!(fs::read_to_string(work.join(".git/hooks/pre-commit")).expect("hook"), "operator's\n");
    assert!(!work.join(".git/hooks/post-commit").exists());
    assert_eq!(fs::read_to_string(work.join(".bashrc")).expect("start-up file"), "operator's\n");
}

#[test]
fn repositories_below_are_protected_too() {
    let person = Person::new(Who::User);
    let work = person.work_dir("work");
    let files = ["sub/.git/hooks/pre-commit", "a/b/.git/hooks/pre-commit", "sub/.git/config"];
    write_all(&person, &work, &files, "operator's\n");
    let before = snapshot(&work);
    person.sh(["--here"], &attack(&files)).cwd(&work).output().expect_code(0);
    assert_eq!(differences(&before, &snapshot(&work)), Vec::<String>::new());
}

/// An agent that is started in a repository below obeys the settings there.
#[test]
fn agent_settings_of_repositories_below_are_protected_too() {
    let person = Person::new(Who::User);
    let work = person.work_dir("work");
    let files = ["sub/.claude/settings.json", "sub/.mcp.json", "sub/.codex/config.toml"];
    write_all(&person, &work, &files, "operator's\n");
    write_all(&person, &work, &["sub/.git/HEAD"], "ref: refs/heads/main\n");
    let before = snapshot(&work);
    person.sh(["--here"], &attack(&files)).cwd(&work).output().expect_code(0);
    assert_eq!(differences(&before, &snapshot(&work)), Vec::<String>::new());
}

#[test]
fn a_path_opened_by_name_is_open() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        write_all(&person, &work, &[".git/hooks/pre-commit", ".bashrc"], "operator's\n");
        let hooks = work.join(".git/hooks");
        let script = "echo wanted > .git/hooks/pre-commit; (echo evil > .bashrc) 2>/dev/null; true";
        person.sh(["--here", "--rw", text(&hooks)], script).cwd(&work).output().expect_code(0);
        assert_eq!(fs::read_to_string(work.join(".git/hooks/pre-commit")).expect("hook"), "wanted\n");
        assert_eq!(fs::read_to_string(work.join(".bashrc")).expect("file"), "operator's\n");
    }
}

/// What an agent does all day still works.
#[test]
fn a_repository_can_be_worked_in() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        let git = |args: &[&str]| {
            let mut command = Command::new("/usr/bin/git");
            command
                .args(["-c", "safe.directory=*", "-c", "user.name=x", "-c", "user.email=x@example.com"])
                .args(args);
            let output = command.current_dir(&work).env("HOME", "/nonexistent").output().expect("git");
            assert!(output.status.success(), "{output:?}");
        };
        git(&["init", "-q"]);
        git(&["commit", "-q", "--allow-empty", "-m", "first"]);
        let mut stack = vec![work.clone()];
        while let Some(path) = stack.pop() {
            person.give_work(&path);
            stack.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
        }
        let script = "set -e; export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@example.com \
                      GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@example.com; \
                      echo code > code.txt; git add code.txt; git commit -q -m second; git checkout -q -b topic; \
                      git log --format=%s | head -1; git status --porcelain";
        person.sh(["--here"], script).cwd(&work).output().expect_out("second");
    }
}

/// Nothing is left behind for it: after a run that was killed, the next one puts things right.
#[test]
fn placeholders_of_a_killed_run_do_not_stay() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        person.write_work(&work.join("code.txt"), "code\n");
        let before = snapshot(&work);
        let marker = crate::marker();
        let mut child = person.run(["--work", text(&work)], ["sleep", &marker]).spawn();
        let running =
            || processes::with_argument(&marker).into_iter().filter(|p| p.name == "sleep").collect();
        assert!(!processes::wait_for(Duration::from_secs(20), running).is_empty(), "it runs");
        processes::signal(child.id(), nix::sys::signal::Signal::SIGKILL);
        child.wait().expect("wait");
        let left = processes::wait_gone(Duration::from_secs(5), || processes::with_argument(&marker));
        assert_eq!(left, []);
        person.run(["--work", text(&work)], ["true"]).output().expect_code(0);
        assert_eq!(differences(&before, &snapshot(&work)), Vec::<String>::new(), "{who:?}");
    }
}

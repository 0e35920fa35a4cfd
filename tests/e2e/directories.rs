//! FS-1, FS-2, FS-4, FS-5: which files a run sees, writes, and leaves behind.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tests::harness;
use tests::person::{ORDINARY_UID, Person, Who};

use crate::NONE;

/// Everything below a directory, links not followed.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        found.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(walk(&entry.path()));
        }
    }
    found
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

#[test]
fn here_writes_into_the_current_directory() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        let command = ["python3", "-c", "open('x','w').write('1')"];
        person.run(["--here"], command).cwd(&work).output().expect_code(0);
        assert_eq!(fs::read_to_string(work.join("x")).expect("the file"), "1");
        if harness::kind() == harness::Harness::Root {
            // As root too, the run is an ordinary user: the owner of the directory (where there is no anet-run).
            let owner = fs::metadata(work.join("x")).expect("metadata").uid();
            assert_ne!(owner, 0, "{who:?}");
            assert!(owner == ORDINARY_UID || *who == Who::Root, "{owner}");
        }
        person.run(["--here"], ["pwd"]).cwd(&work).output().expect_out(text(&work));
    }
}

#[test]
fn without_here_the_current_directory_stays_untouched() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("work");
        person.write_work(&work.join("mine"), "mine");
        let script = "pwd; ls -A; echo 1 > x && cat x";
        person.sh(NONE, script).cwd(&work).output().expect_out("/work\n1");
        assert_eq!(walk(&work), [work.join("mine")]);
        // Nor is it visible under its own name.
        person.run(NONE, ["cat", text(&work.join("mine"))]).cwd(&work).output().expect_code(1);
    }
}

#[test]
fn work_names_the_work_directory() {
    for who in Who::all() {
        let person = Person::new(*who);
        let work = person.work_dir("a b");
        person.sh(["--work", text(&work)], "pwd; echo 2 > y").output().expect_out(text(&work));
        assert_eq!(fs::read_to_string(work.join("y")).expect("the file"), "2\n");
    }
}

#[test]
fn a_work_directory_that_cannot_be_one_is_refused() {
    let person = Person::new(Who::User);
    let file = person.path("home").join("file");
    fs::write(&file, "x").expect("file");
    person.give(&file);
    for path in ["/nowhere/at/all", text(&file)] {
        let outcome = person.anet(["run", "--work", path, "--", "true"]).output();
        assert_eq!(outcome.expect_failure_of_anet(125), "bad_path", "{path}: {outcome}");
    }
}

/// SBX-3: a root-owned work directory is refused with a sentence.
#[test]
fn root_cannot_give_a_directory_of_its_own() {
    if harness::kind() != harness::Harness::Root {
        return harness::skip("a root-owned work directory", "the tests do not run as root");
    }
    let person = Person::new(Who::Root);
    let dir = person.path("roots");
    fs::create_dir(&dir).expect("directory");
    for (call, cwd) in [
        (vec!["run", "--work", text(&dir), "--", "true"], "/"),
        (vec!["run", "--here", "--", "true"], text(&dir)),
    ] {
        let outcome = person.anet(call).cwd(cwd).output();
        assert_eq!(outcome.expect_failure_of_anet(125), "bad_path", "{outcome}");
    }
    assert_eq!(walk(&dir), Vec::<PathBuf>::new());
}

/// FS-1: HOME and TMPDIR are made for the run and removed at its end.
#[test]
fn home_and_the_temporary_directory_last_as_long_as_the_run() {
    for who in Who::all() {
        let person = Person::new(*who);
        let script = "set -e; ls -A $HOME $TMPDIR | grep -v : ; \
                      for d in $HOME $TMPDIR . ; do mkdir $d/deep; echo anet-leftover > $d/deep/anet-leftover-file; done; \
                      chmod 0 $HOME/deep; test -w $HOME; test -w $TMPDIR; touch /tmp/x; echo done";
        let outcome = person.sh(NONE, script).output().expect_code(0);
        assert!(outcome.out().ends_with("done"), "{outcome}");
        let left =
            ["home", "config", "cache", "state", "data", "runtime"].map(|d| walk(&person.path(d))).concat();
        let left: Vec<_> = left.iter().filter(|p| text(p).contains("deep")).collect();
        assert_eq!(left, Vec::<&PathBuf>::new(), "left behind");
        let again = person.sh(NONE, "ls -A $HOME/deep $TMPDIR/deep").output();
        assert_ne!(again.code(), 0, "the next run sees the last one's files: {again}");
    }
}

/// FS-2: only the work directory, HOME and the temporary directory are writable.
#[test]
fn nothing_else_is_writable() {
    for who in Who::all() {
        let person = Person::new(*who);
        let script = "for d in $(find / -xdev -type d 2>/dev/null; ls -d /* /dev/* /usr/* /etc/* /var/* 2>/dev/null); do \
                        [ -d \"$d\" ] && [ -w \"$d\" ] && d=$(readlink -f \"$d\") && case $d in /work*|/tmp*|\"$HOME\"*|/proc/*|/dev/pts|/dev/shm) ;; \
                        *) (: > \"$d/anet-write-test\") 2>/dev/null && echo $d; esac; \
                      done; true";
        let outcome = person.sh(NONE, script).output().expect_code(0);
        let writable: Vec<_> = outcome.out().lines().filter(|d| *d != "/dev").map(str::to_owned).collect();
        assert_eq!(writable, Vec::<String>::new());
        for path in ["/usr/x", "/etc/x", "/bin/x", "/x", "/var/x"] {
            assert_ne!(person.sh(NONE, &format!(": > {path}")).output().code(), 0, "{path} was written");
        }
    }
}

/// FS-1: what is never visible.
#[test]
fn the_operators_files_and_the_machines_secrets_are_not_there() {
    for who in Who::all() {
        let person = Person::new(*who);
        for dir in ["home", "config", "cache", "state", "data"] {
            let file = person.path(dir).join("anet-operators-file");
            fs::write(&file, "operator's").expect("file");
            person.give(&file);
        }
        let socket = person.path("runtime").join("anet-operators-socket");
        let _listener = UnixListener::bind(&socket).expect("socket");
        person.give(&socket);
        let missing = [
            "/etc/shadow",
            "/etc/gshadow",
            "/etc/ssh",
            "/etc/machine-id",
            "/etc/sudoers",
            "/etc/fstab",
            "/etc/cron.d",
            "/root",
            "/boot",
            "/srv",
            "/mnt",
            "/media",
            "/var/lib/anet",
            "/var/log",
            "/var/lib/dpkg",
            "/run/systemd",
            "/run/dbus",
            "/run/docker.sock",
            "/sys/fs/cgroup",
        ];
        for path in missing {
            let outcome = person.sh(NONE, &format!("ls -A {path} | head -1")).output();
            assert_eq!(outcome.out(), "", "{path} is there: {outcome}");
        }
        let find =
            "find / -xdev \\( -name 'anet-operators-*' -o -type s \\) -not -path '/proc/*' 2>/dev/null; true";
        assert_eq!(person.sh(NONE, find).output().expect_code(0).out(), "");
        let passwd = person.run(NONE, ["cat", "/etc/passwd"]).output().expect_code(0).out();
        assert!(
            passwd.lines().count() <= 4 && !passwd.contains("/root") && !passwd.contains("daemon"),
            "a made-up one: {passwd}"
        );
        for needed in ["/etc/ssl/certs/ca-certificates.crt", "/etc/hosts", "/etc/nsswitch.conf", "/etc/group"]
        {
            person.run(NONE, ["test", "-r", needed]).output().expect_code(0);
        }
    }
}

/// FS-4: paths that the operator opens, under their real names.
#[test]
fn more_paths_are_opened_for_reading_and_writing() {
    for who in Who::all() {
        let person = Person::new(*who);
        let (ro, rw) = (person.work_dir("read"), person.work_dir("write"));
        person.write_work(&ro.join("f"), "readable\n");
        let single = person.path("single");
        person.write_work(&single, "one\n");
        let script = format!(
            "cat {ro}/f; cat {single}; (echo x > {ro}/g) 2>/dev/null || echo read-only; echo y > {rw}/g && cat {rw}/g",
            ro = text(&ro),
            rw = text(&rw),
            single = text(&single)
        );
        // Of the same owner as the paths: root's runs are the owner's of the work directory.
        let work = person.work_dir("work");
        let options = ["--work", text(&work), "--ro", text(&ro), "--rw", text(&rw), "--ro", text(&single)];
        person.sh(options, &script).output().expect_out("readable\none\nread-only\ny");
        assert_eq!(fs::read_to_string(rw.join("g")).expect("written"), "y\n");
        assert_eq!(walk(&ro), [ro.join("f")]);
    }
}

/// FS-4: precedence of the rules. Write: deny beats allow. Read: allow beats deny, the more special one counts.
#[test]
fn denied_paths_are_closed_inside_open_ones() {
    for who in Who::all() {
        let person = Person::new(*who);
        let open = person.work_dir("open");
        for dir in ["closed", "closed/ajar"] {
            fs::create_dir(open.join(dir)).expect("directory");
            person.give_work(&open.join(dir));
        }
        for file in ["closed/f", "closed/ajar/f", "secret.txt", "plain.txt"] {
            person.write_work(&open.join(file), "content\n");
        }
        let paths = ["closed", "secret.txt", "closed/ajar"].map(|p| open.join(p));
        let [closed, secret, ajar] = &paths;
        let work = person.work_dir("work");
        let options = ["--work", text(&work), "--rw", text(&open), "--deny", text(closed)];
        let options = [&options[..], &["--deny", text(secret), "--ro", text(ajar)]].concat();
        let script = format!(
            "cd {open}; cat closed/f secret.txt 2>/dev/null; cat closed/ajar/f; cat plain.txt; \
             (echo x > closed/new) 2>/dev/null; (echo x > secret.txt) 2>/dev/null; (echo x > closed/ajar/f) 2>/dev/null; \
             (rm -rf closed secret.txt) 2>/dev/null; (mv closed other) 2>/dev/null; (mv secret.txt other.txt) 2>/dev/null; \
             echo ok > plain.txt",
            open = text(&open)
        );
        person.sh(options, &script).output().expect_out("content\ncontent");
        for file in ["closed/f", "closed/ajar/f", "secret.txt"] {
            assert_eq!(fs::read_to_string(open.join(file)).expect("still there"), "content\n", "{file}");
        }
        assert_eq!(fs::read_to_string(open.join("plain.txt")).expect("written"), "ok\n");
        assert!(!open.join("closed/new").exists() && !open.join("other").exists());
    }
}

/// FS-4: a link into a denied place does not open it.
#[test]
fn a_link_to_a_denied_path_stays_closed() {
    let person = Person::new(Who::User);
    let open = person.work_dir("open");
    person.write_work(&open.join("secret"), "content\n");
    std::os::unix::fs::symlink("secret", open.join("link")).expect("link");
    let (deny, link) = (open.join("secret"), open.join("link"));
    for denied in [&deny, &link] {
        let options = ["--work", text(&open), "--deny", text(denied)];
        let outcome = person.sh(options, "cat secret link 2>/dev/null; true").output().expect_code(0);
        assert_eq!(outcome.out(), "", "deny {}", denied.display());
    }
}

#[test]
fn a_path_that_is_not_there_is_refused() {
    let person = Person::new(Who::User);
    for option in ["--ro", "--rw"] {
        let outcome = person.anet(["run", option, "/nowhere/at/all", "--", "true"]).output();
        assert_eq!(outcome.expect_failure_of_anet(125), "bad_path", "{option}: {outcome}");
    }
}

/// FS-4: anet's own configuration, state and credentials stay masked even inside a widened directory.
#[test]
fn anets_own_directories_stay_masked_inside_open_ones() {
    for who in Who::all() {
        let person = Person::new(*who);
        for dir in ["config", "cache", "state", "data"] {
            let own = person.path(dir).join("anet");
            fs::create_dir_all(&own).expect("directory");
            fs::write(own.join("credential"), "canary\n").expect("file");
            person.give(&own);
            person.give(&own.join("credential"));
            // Open to everybody, so that only the mask is in the way.
            for path in [&person.path(dir), &own] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("mode");
            }
        }
        let whole = person.path("");
        let config = person.path("config").join("anet");
        let script = format!(
            "grep -r canary {0} 2>/dev/null; for d in config cache state data; do \
             (echo evil > {0}/$d/anet/credential) 2>/dev/null; (rm -rf {0}/$d/anet) 2>/dev/null; done; true",
            text(&whole)
        );
        for options in [["--ro", text(&whole)], ["--rw", text(&whole)], ["--ro", text(&config)]] {
            let outcome = person.sh(options, &script).output();
            assert_eq!(outcome.out(), "", "{options:?}: {outcome}");
            for dir in ["config", "state", "data"] {
                let file = person.path(dir).join("anet/credential");
                assert_eq!(fs::read_to_string(&file).expect("still there"), "canary\n", "{options:?}");
            }
        }
    }
}

/// FS-5: whatever a run makes of its directories, nothing outside is read, written or removed, and it all goes away.
#[test]
fn hostile_directories_are_removed_without_touching_anything_else() {
    for who in Who::all() {
        let person = Person::new(*who);
        let outside = person.path("outside");
        fs::create_dir(&outside).expect("directory");
        fs::write(outside.join("precious"), "precious").expect("file");
        for path in [&outside, &outside.join("precious")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("mode");
        }
        let script = format!(
            "cd $HOME; ln -s {out} link; ln -s {out}/precious file; ln -s / root; ln -s . loop; mkfifo fifo; \
             mkdir -p a/b/c; chmod 0 a/b; ln -s {out} a/d; touch \"$(printf 'x\\ny')\" \"$(printf '\\377\\376')\" -- -rf; \
             python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; \
             d=$(printf 'd%.0s' $(seq 200)); i=0; while [ $i -lt 60 ]; do mkdir $d && cd $d; i=$((i+1)); done; \
             cd $TMPDIR; for i in $(seq 2000); do : > f$i; done; ln f1 hard; ln -s {out} link; \
             rm -rf $HOME/.cache; ln -s {out} $HOME/.cache; echo end",
            out = text(&outside)
        );
        let outcome = person.sh(NONE, &script).output().expect_code(0);
        assert!(outcome.out().ends_with("end"), "{outcome}");
        assert_eq!(fs::read_to_string(outside.join("precious")).expect("still there"), "precious");
        assert_eq!(walk(&outside).len(), 1);
        let left = ["cache", "state", "runtime"].map(|d| walk(&person.path(d))).concat();
        let left: Vec<_> =
            left.iter().filter(|p| text(p).contains("fifo") || text(p).contains("/ddd")).collect();
        assert_eq!(left, Vec::<&PathBuf>::new(), "left behind");
    }
}

/// FS-5: the run swaps its directories for links while they are being removed.
#[test]
fn directories_that_change_while_they_are_removed_lead_nowhere() {
    let person = Person::new(Who::User);
    let outside = person.path("outside");
    fs::create_dir(&outside).expect("directory");
    for number in 0..50 {
        fs::write(outside.join(format!("precious{number}")), "precious").expect("file");
    }
    person.give(&outside);
    // A process that outlives the command and swaps until the sandbox ends.
    let script = format!(
        "cd $HOME; mkdir swap other; (setsid sh -c 'while :; do mv swap swap2; ln -s {} swap; rm swap; mv swap2 swap; done' \
         >/dev/null 2>&1 &); sleep 0.3; true",
        text(&outside)
    );
    for _ in 0..5 {
        person.sh(NONE, &script).output().expect_code(0);
        assert_eq!(walk(&outside).len(), 50);
    }
}

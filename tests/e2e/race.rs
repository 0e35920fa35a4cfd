//! Two runs in one directory: what one does to names while the other starts.

use std::time::Duration;

use tests::person::{Person, Who};

/// Swaps a repository and a link that leads outside, for as long as it is let.
const SWAPPER: &str = r#"
import ctypes, os, time
os.makedirs("x/.git/hooks"); os.makedirs("x/.git/objects")
open("x/.git/HEAD", "w").write("ref: refs/heads/main\n"); open("x/.git/config", "w").write("[core]\n")
os.symlink(os.environ["TARGET"], "y")
libc = ctypes.CDLL(None)
end = time.time() + 20
while time.time() < end:
    libc.syscall(316, -100, b"x", -100, b"y", 2)
    time.sleep(0.00015)
    libc.syscall(316, -100, b"x", -100, b"y", 2)
    time.sleep(0.0004)
"#;

/// FS-4, FS-5: whatever name another run puts in the place of a repository while this one starts, nothing outside the
/// opened directory is ever mounted: the run does not start, or has what was opened and nothing else.
#[test]
fn a_swapped_name_opens_nothing_else() {
    let person = Person::new(Who::User);
    let work = person.work_dir("work");
    // Where the link leads: a place with the same shape, so that every mount of the protected names would find its own.
    let outside = person.work_dir("outside");
    for directory in [".git", ".git/hooks", ".git/objects"] {
        std::fs::create_dir_all(outside.join(directory)).expect("directory");
        person.give_work(&outside.join(directory));
    }
    for (file, text) in
        [(".git/HEAD", "ref: x\n"), (".git/config", "secret of the operator"), (".git/hooks/own", "own")]
    {
        person.write_work(&outside.join(file), text);
    }
    let work = work.to_str().expect("text");
    let target = format!("TARGET={}", outside.to_str().expect("text"));
    let swapper = person.anet([
        "run",
        "--quiet",
        "--timeout",
        "25s",
        "--work",
        work,
        "--env",
        &target,
        "--",
        "python3",
        "-c",
        SWAPPER,
    ]);
    let mut swapping = swapper.spawn();
    std::thread::sleep(Duration::from_millis(500));
    let (mut started, mut refused) = (0, 0);
    for _ in 0..40 {
        let look = "cat */.git/config 2>/dev/null; grep -c outside /proc/self/mountinfo; true";
        let outcome = person.anet(["run", "--quiet", "--work", work, "--", "sh", "-c", look]).output();
        assert!(!outcome.out().contains("secret"), "{outcome}");
        match outcome.code() {
            0 => {
                started += 1;
                assert!(outcome.out().trim_end().ends_with('0'), "something outside is mounted: {outcome}");
            }
            _ => refused += 1,
        }
    }
    let _ = swapping.kill();
    let _ = swapping.wait();
    println!("{started} started, {refused} were refused");
    assert!(started + refused == 40);
}

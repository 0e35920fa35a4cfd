//! The programs under test, where an ordinary user can start them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The programs of a release, each with the file mode that a package gives it. A proxy or broker that others could
/// read would be dumpable from its exec to its first line: hence 0711.
const PROGRAMS: [(&str, u32); 8] = [
    ("anet", 0o755),
    ("anet-supervisor", 0o755),
    ("anet-launcher", 0o755),
    ("anet-init", 0o755),
    ("anet-proxy", 0o711),
    ("anet-broker", 0o711),
    ("anet-terminal", 0o755),
    ("anet-outside", 0o755),
];
/// The programs that run inside, from this crate.
const INSIDE: [&str; 3] = ["probe", "tunnel-client", "model-client"];

/// Copies a program. Another process writes it: a descriptor of this one, open for writing, would be inherited by
/// whatever another thread starts just now, and until that has executed its program the copy is "text file busy".
///
/// # Panics
/// When it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("--preserve=mode").arg(from).arg(to).status();
    assert!(status.is_ok_and(|s| s.success()), "cp {} {}", from.display(), to.display());
}

/// Writes a script that can be executed at once; see [`copy_program`].
///
/// # Panics
/// When it cannot be written.
pub fn write_script(text: &str, to: &Path) {
    let draft = to.with_extension("draft");
    fs::write(&draft, text).expect("a script");
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).expect("mode");
    copy_program(&draft, to);
}

/// A copy of the release in a directory of its own.
#[derive(Debug)]
pub struct Installed {
    dir: PathBuf,
}

impl Installed {
    /// The directory of the programs, which nobody but its owner can change.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The program that an operator calls.
    pub fn anet(&self) -> PathBuf {
        self.dir.join("anet")
    }

    /// The attack program of this crate.
    pub fn probe(&self) -> PathBuf {
        self.dir.join("probe")
    }

    /// The client that speaks to the proxy byte by byte.
    pub fn client(&self) -> PathBuf {
        self.dir.join("tunnel-client")
    }

    /// The client that speaks to the broker byte by byte.
    pub fn model_client(&self) -> PathBuf {
        self.dir.join("model-client")
    }

    /// A second copy, so that the caller's processes can be told from everybody else's by their program files.
    pub fn copy_to(&self, dir: &Path) -> Installed {
        fs::create_dir_all(dir).expect("a directory for the copy");
        for entry in fs::read_dir(&self.dir).expect("the installed programs").flatten() {
            copy_program(&entry.path(), &dir.join(entry.file_name()));
        }
        Installed { dir: dir.to_owned() }
    }

    /// Device and inode of each program here: what `/proc/PID/exe` leads to.
    pub fn inodes(&self) -> Vec<(u64, u64)> {
        let entries = fs::read_dir(&self.dir).expect("the installed programs").flatten();
        entries.filter_map(|e| e.metadata().ok()).map(|m| (m.dev(), m.ino())).collect()
    }
}

/// The release binaries, from `ANET_BIN_DIR` or the workspace's own release directory, copied once in this process.
///
/// # Panics
/// When a program is missing: the tests of a release without the release have nothing to say.
pub fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let from = std::env::var_os("ANET_BIN_DIR").map_or_else(release_dir, PathBuf::from);
        install(&from, &PROGRAMS)
    })
}

/// A build without auto-reply, from `ANET_LEFT_OUT_DIR`; none: the variable is not set.
///
/// # Panics
/// When a program is missing, or there is the one that such a build does not have.
pub fn left_out() -> Option<Installed> {
    let from = PathBuf::from(std::env::var_os("ANET_LEFT_OUT_DIR")?);
    let [programs @ .., (outside, _)] = &PROGRAMS;
    assert!(!from.join(outside).exists(), "{outside} is no part of a build without auto-reply");
    Some(install(&from, programs))
}

fn release_dir() -> PathBuf {
    // CARGO_TARGET_DIR moves everything; otherwise the release lies in the workspace.
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let own = target.map(|dir| dir.join("release")).filter(|dir| dir.join("anet").exists());
    own.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release"))
}

fn install(from: &Path, programs: &[(&str, u32)]) -> Installed {
    remove_what_dead_processes_left();
    let dir = tempfile::Builder::new()
        .prefix(&format!("anet-bin-{}-", std::process::id()))
        .tempdir_in("/tmp")
        .expect("a directory under /tmp")
        .keep();
    let place = |source: PathBuf, name: &str, mode: u32| {
        let target = dir.join(name);
        assert!(
            source.is_file(),
            "{} is missing. Build the release first (cargo build --release), or set ANET_BIN_DIR.",
            source.display()
        );
        copy_program(&source, &target);
        fs::set_permissions(&target, fs::Permissions::from_mode(mode)).expect("mode of a copied program");
    };
    for &(name, mode) in programs {
        place(from.join(name), name, mode);
    }
    for name in INSIDE {
        place(beside_the_test(name), name, 0o755);
    }
    // Beside them the tools that make the harness an ordinary user: a test may have hidden /usr/bin.
    for tool in ["setpriv", "unshare"] {
        copy_program(&Path::new("/usr/bin").join(tool), &dir.join(tool));
    }
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("mode of the directory");
    Installed { dir }
}

/// A binary of this crate: cargo puts it one directory above the test program.
fn beside_the_test(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    let dirs = exe.ancestors().skip(1).take(2);
    dirs.map(|dir| dir.join(name)).find(|path| path.is_file()).unwrap_or_else(|| {
        panic!("no program {name} beside {}: run the tests with cargo test -p tests", exe.display())
    })
}

/// A test program cannot remove its copies when it ends (statics are not dropped): the next one does.
fn remove_what_dead_processes_left() {
    for entry in fs::read_dir("/tmp").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("anet-bin-").and_then(|rest| rest.split('-').next());
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        let own =
            entry.metadata().is_ok_and(|m| m.uid() == rustix::process::geteuid().as_raw() && m.is_dir());
        if own && !Path::new(&format!("/proc/{pid}")).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

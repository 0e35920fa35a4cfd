//! bubblewrap: what it is told, and its start.
//!
//! Nothing about a run is in its arguments, which everybody on the host can read, nor in its environment, which the run
//! itself could: all options come through a descriptor.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use confine::sys::spawn::{Child, Command, ProcessGroup, Program, SpawnError};
use ipc_proto::descriptors::{CHANNEL, INIT_PLAN, INIT_STDIO};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::io::write;

use crate::files::rules::{Access, Mount};
use crate::system;

/// Where bwrap finds its options.
const OPTIONS: RawFd = 8;
/// The first of the small files.
const FILES: RawFd = 9;

/// bwrap takes no more arguments from a descriptor (MAX_ARGS in its source).
const MAX_ARGUMENTS: usize = 9000;

/// New everything, no capability, nothing to gain any. `--disable-userns` nests a second user namespace in the first, whose
/// limit on further ones is 0. `--as-pid-1`: anet-init reaps and reports itself. `--new-session`: no terminal.
const NAMESPACES: &[&str] = &[
    "--unshare-user",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup",
    "--unshare-net",
    "--disable-userns",
    "--hostname",
    "anet",
    "--new-session",
    "--die-with-parent",
    "--cap-drop",
    "ALL",
    "--as-pid-1",
    "--clearenv",
    "--chdir",
    "/",
];

/// bwrap's options, and the descriptors that they name.
#[derive(Debug)]
pub struct Options {
    bytes: Vec<u8>,
    count: usize,
    files: Vec<OwnedFd>,
}

impl Options {
    /// Everything but the operator's own: namespaces, /proc, /dev, the made-up /etc and links.
    ///
    /// # Errors
    /// When no memory can be had for the small files.
    pub fn new(home: &Path, links: &[(impl AsRef<Path>, impl AsRef<Path>)]) -> io::Result<Options> {
        let mut options = Options { bytes: Vec::new(), count: 0, files: Vec::new() };
        options.push(NAMESPACES);
        options.push(&["--proc", "/proc", "--dev", "/dev"]);
        options.close_proc();
        for (path, content) in system::etc(home) {
            let number = FILES + RawFd::try_from(options.files.len()).unwrap_or(0);
            options.files.push(memory(&content)?);
            options.push(&["--perms", "0444", "--file", &number.to_string(), path]);
        }
        for (link, target) in links {
            options.link(link.as_ref(), target.as_ref());
        }
        Ok(options)
    }

    /// What container runtimes close and make read-only below /proc. The sources are the host's own of the same kernel,
    /// whose content does not depend on where it is mounted.
    fn close_proc(&mut self) {
        for path in system::PROC_CLOSED {
            match std::fs::metadata(path) {
                Ok(found) if found.is_dir() => {
                    self.push(&["--perms", "0555", "--tmpfs", path, "--remount-ro", path]);
                }
                Ok(_) => self.push(&["--ro-bind", "/dev/null", path]),
                Err(_) => {}
            }
        }
        for path in system::PROC_READ_ONLY.iter().filter(|path| Path::new(path).exists()) {
            self.push(&["--ro-bind", path, path]);
        }
    }

    /// Adds mounts, in their order, and after the last of them makes read-only what they were made on.
    pub fn mounts(&mut self, mounts: &[Mount]) {
        for mount in mounts {
            match mount {
                Mount::Bind { source, dest, access } => {
                    self.push(&[match access {
                        Access::ReadOnly => "--ro-bind",
                        Access::ReadWrite => "--bind",
                    }]);
                    self.path(source);
                    self.path(dest);
                }
                Mount::CloseDirectory { dest, passable } => {
                    // A directory that can be written, as an empty one usually is, would be a place to hide things in.
                    self.push(&["--perms", if *passable { "0111" } else { "0000" }, "--tmpfs"]);
                    self.path(dest);
                }
                // Bound without the right to devices: opening it is refused.
                Mount::CloseFile { dest } => {
                    self.push(&["--ro-bind", "/dev/null"]);
                    self.path(dest);
                }
            }
        }
        for mount in mounts {
            if let Mount::CloseDirectory { dest, .. } = mount {
                self.push(&["--remount-ro"]);
                self.path(dest);
            }
        }
    }

    /// A link that says `target`.
    pub fn link(&mut self, link: &Path, target: &Path) {
        self.push(&["--symlink"]);
        self.path(target);
        self.path(link);
    }

    /// An empty directory that can be read, in place of one that is there.
    pub fn empty(&mut self, path: &str) {
        self.push(&["--perms", "0555", "--tmpfs", path, "--remount-ro", path]);
    }

    /// The last options: the root and /dev are bwrap's own, in memory, and the run's user owns them.
    #[must_use]
    pub fn finish(mut self) -> Options {
        self.push(&["--remount-ro", "/dev", "--remount-ro", "/"]);
        self
    }

    /// Whether bwrap takes so many.
    #[must_use]
    pub fn fit(&self) -> bool {
        self.count < MAX_ARGUMENTS
    }

    fn push(&mut self, arguments: &[&str]) {
        for argument in arguments {
            self.argument(argument.as_bytes());
        }
    }

    fn path(&mut self, path: &Path) {
        self.argument(path.as_os_str().as_bytes());
    }

    fn argument(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.push(0);
        self.count += 1;
    }
}

/// What the sandbox is started with.
#[derive(Debug)]
pub struct Start<'a> {
    /// bwrap itself.
    pub bwrap: &'a CStr,
    /// anet-init, as seen inside.
    pub init: &'a CStr,
    /// Its end of the channel.
    pub channel: BorrowedFd<'a>,
    /// Its plan.
    pub plan: BorrowedFd<'a>,
    /// What becomes 0, 1 and 2 of the program.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Where bwrap writes what goes wrong.
    pub errors: BorrowedFd<'a>,
    /// /dev/null.
    pub null: BorrowedFd<'a>,
}

/// Starts bwrap.
///
/// # Errors
/// The outer one when the options cannot be passed, the inner one when it cannot be started.
pub fn start(options: &Options, start: &Start<'_>) -> io::Result<Result<Child, SpawnError>> {
    let arguments = memory(&options.bytes)?;
    let mut command = Command::new(Program::Path(start.bwrap.to_owned()));
    let number = CString::new(OPTIONS.to_string()).map_err(io::Error::other)?;
    command.argv =
        vec![c"bwrap".to_owned(), c"--args".to_owned(), number, c"--".to_owned(), start.init.to_owned()];
    let [input, output, errors] = start.stdio;
    let [as_input, as_output, as_errors] = INIT_STDIO;
    command.descriptors = vec![
        (start.null, 0),
        (start.null, 1),
        (start.errors, 2),
        (start.channel, CHANNEL),
        (start.plan, INIT_PLAN),
        (input, as_input),
        (output, as_output),
        (errors, as_errors),
        (arguments.as_fd(), OPTIONS),
    ];
    command
        .descriptors
        .extend(options.files.iter().zip(FILES..).map(|(file, number)| (file.as_fd(), number)));
    command.parent_death_signal = true;
    // Until its child has armed its own death signal, the group is how to reach both.
    command.process_group = Some(ProcessGroup::New);
    command.no_new_privs = true;
    Ok(command.spawn())
}

/// A file in memory that is read from its beginning.
fn memory(content: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create("anet-options", MemfdFlags::CLOEXEC)?;
    let mut rest = content;
    while !rest.is_empty() {
        rest = rest.get(write(&file, rest)?..).unwrap_or_default();
    }
    seek(&file, SeekFrom::Start(0))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(options: &Options) -> Vec<String> {
        let all = String::from_utf8(options.bytes.clone()).unwrap();
        all.split_terminator('\0').map(str::to_owned).collect()
    }

    /// SBX-1, SBX-3: every namespace, no capability; FS-2: the root and /dev are made read-only last.
    #[test]
    fn options_hold_every_wall() {
        let mut options = Options::new(Path::new("/home/anet"), system::LINKS).unwrap();
        options.mounts(&[
            Mount::Bind { source: "/a".into(), dest: "/work".into(), access: Access::ReadWrite },
            Mount::CloseDirectory { dest: "/work/x".into(), passable: false },
            Mount::CloseFile { dest: "/work/y".into() },
        ]);
        let options = options.finish();
        let all = arguments(&options);
        for wall in ["user", "pid", "ipc", "uts", "cgroup", "net"] {
            assert!(all.contains(&format!("--unshare-{wall}")), "{wall}");
        }
        for flag in ["--disable-userns", "--new-session", "--die-with-parent", "--clearenv", "--as-pid-1"] {
            assert!(all.iter().any(|argument| argument == flag), "{flag}");
        }
        assert!(all.windows(2).any(|pair| pair == ["--cap-drop", "ALL"]));
        assert_eq!(all[all.len() - 4..], ["--remount-ro", "/dev", "--remount-ro", "/"]);
        assert!(all.windows(2).any(|pair| pair == ["--remount-ro", "/work/x"]));
        assert_eq!(options.count, all.len());
        assert!(!all.windows(3).any(|three| three == ["--ro-bind", "/", "/"]));
    }
}

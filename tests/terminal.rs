//! A terminal with a person at it: the test types, reads and resizes.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::person::Person;

/// How long a word may take to appear.
const PATIENCE: Duration = Duration::from_secs(20);

/// A terminal and the program in it.
#[derive(Debug)]
pub struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    /// What has been waited for already.
    read: usize,
    child: Child,
    /// Held open, so that the terminal can be looked at after its program's end.
    line: File,
}

impl Terminal {
    /// Starts a program on a terminal of 24 rows and 80 columns, as the leader of a session that the terminal controls.
    pub fn start(person: &Person, command: &Command) -> Terminal {
        let keyboard =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&keyboard).expect("grantpt");
        unlockpt(&keyboard).expect("unlockpt");
        let path = ptsname(&keyboard, Vec::new()).expect("its name").into_string().expect("its name");
        let open = || File::options().read(true).write(true).open(&path).expect("the terminal's line");
        let line = open();
        // As a login gives it.
        person.give(Path::new(&path));
        let keyboard = File::from(keyboard);
        tcsetwinsize(&keyboard, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })
            .expect("size");
        // setsid -c takes the terminal on its standard input as the controlling one, then executes the program.
        let mut outer = Command::new("setsid");
        outer.arg("--ctty").arg("--").arg(command.get_program()).args(command.get_args());
        outer.env_clear().env("TERM", "xterm");
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                outer.env(name, value);
            }
        }
        if let Some(dir) = command.get_current_dir() {
            outer.current_dir(dir);
        }
        outer.stdin(Stdio::from(open())).stdout(Stdio::from(open())).stderr(Stdio::from(open()));
        let child = outer.spawn().expect("setsid of util-linux");
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut source, target) = (keyboard.try_clone().expect("clone"), Arc::clone(&screen));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length) = source.read(&mut buffer) {
                target.lock().expect("lock").extend(buffer.get(..length).unwrap_or_default());
            }
        });
        Terminal { keyboard, screen, read: 0, child, line }
    }

    /// The program's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Types.
    pub fn type_in(&mut self, text: impl AsRef<[u8]>) {
        self.keyboard.write_all(text.as_ref()).expect("type");
    }

    /// Waits for a text behind what was waited for before; gives everything up to its end.
    ///
    /// # Panics
    /// When it does not appear.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen.lock().expect("lock").clone();
            let new = screen.get(self.read..).unwrap_or_default();
            if let Some(at) = new.windows(text.len()).position(|window| window == text.as_bytes()) {
                let length = at + text.len();
                self.read += length;
                return String::from_utf8_lossy(new.get(..length).unwrap_or_default()).into_owned();
            }
            let shown = String::from_utf8_lossy(&screen);
            assert!(Instant::now() < end, "{text:?} does not appear on the terminal, which shows:\n{shown}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Everything that was shown so far.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("lock")).into_owned()
    }

    /// Another size; the kernel tells the terminal's foreground programs.
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keyboard, size).expect("size");
    }

    /// How the terminal treats what is typed and shown.
    pub fn attributes(&self) -> Attributes {
        let t: Termios = tcgetattr(&self.line).expect("attributes");
        Attributes(format!("{:?} {:?} {:?}", t.input_modes, t.output_modes, t.local_modes))
    }

    /// Waits for the program's end.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return status;
            }
            assert!(Instant::now() < end, "the program does not end; the terminal shows:\n{}", self.shown());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Comparable settings of a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes(String);

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

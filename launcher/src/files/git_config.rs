//! What git's configuration names that is as good as itself: the directory of hooks, and the files that it includes, and
//! theirs.
//!
//! Read as git-config(1) says ("Syntax"), since a line that git understands and we do not is a way around the protection:
//! comments behind values, quotes, escapes, lines that go on, and a key on the line of its section. Where git would stop at
//! an error, the reading goes on: to protect too much does no harm.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::resolve;

/// As deep as git follows includes (MAX_INCLUDE_DEPTH in its source).
const DEPTH: usize = 10;
/// How many files are read for one configuration.
const MAX_FILES: usize = 64;
/// The longest configuration that is read, in bytes.
const MAX_LENGTH: u64 = 1024 * 1024;

/// Where relative paths begin, and `~`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bases<'a> {
    /// Hooks run there.
    pub(super) tree: &'a Path,
    /// The operator's home.
    pub(super) home: Option<&'a Path>,
}

/// The paths that `config` names, with those of what it includes. They need not exist.
pub(super) fn named(config: &Path, bases: Bases<'_>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut read = BTreeSet::new();
    let mut next = vec![config.to_owned()];
    for _ in 0..=DEPTH {
        for file in std::mem::take(&mut next) {
            // git follows links, and takes `..` from where they lead.
            let Ok((file, Some(_))) = resolve(&file) else { continue };
            if read.len() >= MAX_FILES || !read.insert(file.clone()) {
                continue;
            }
            for value in values(&super::protected::read(&file, MAX_LENGTH).unwrap_or_default()) {
                let path = PathBuf::from(OsString::from_vec(value.text));
                let base = match value.names {
                    Names::Hooks => bases.tree,
                    Names::Include => file.parent().unwrap_or(Path::new("/")),
                };
                let path = match (path.strip_prefix("~"), bases.home) {
                    (Ok(rest), Some(home)) => home.join(rest),
                    (Ok(_), None) => continue,
                    (Err(_), _) => base.join(path),
                };
                if value.names == Names::Include {
                    next.push(path.clone());
                }
                found.push(path);
            }
        }
    }
    found
}

/// What a value names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Hooks,
    Include,
}

#[derive(Debug, PartialEq, Eq)]
struct Value {
    names: Names,
    text: Vec<u8>,
}

/// The values of a configuration that name something.
fn values(text: &[u8]) -> Vec<Value> {
    let mut reader = Reader { rest: text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text) };
    let mut section = Vec::new();
    let mut values = Vec::new();
    while let Some(byte) = reader.next() {
        match byte {
            b'#' | b';' => reader.skip_line(),
            b'[' => section = reader.section(),
            _ if byte.is_ascii_alphabetic() => {
                let key = reader.key(byte);
                let Some(text) = reader.value() else { continue };
                let names = match (section.as_slice(), key.as_slice()) {
                    (b"core", b"hookspath") => Names::Hooks,
                    (b"include" | b"includeif", b"path") => Names::Include,
                    _ => continue,
                };
                if !text.is_empty() {
                    values.push(Value { names, text });
                }
            }
            _ => {}
        }
    }
    values
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    /// The next byte; a line ends in one, however it was written.
    fn next(&mut self) -> Option<u8> {
        if let Some(rest) = self.rest.strip_prefix(b"\r\n") {
            self.rest = rest;
            return Some(b'\n');
        }
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn peek(&self) -> Option<u8> {
        match self.rest {
            [b'\r', b'\n', ..] => Some(b'\n'),
            rest => rest.first().copied(),
        }
    }

    fn skip_line(&mut self) {
        while self.next().is_some_and(|byte| byte != b'\n') {}
    }

    /// A section's name in small letters, after its `[`; without the subsection, which decides over nothing here.
    fn section(&mut self) -> Vec<u8> {
        let mut name = Vec::new();
        let mut named = false;
        let mut quoted = false;
        while let Some(byte) = self.next() {
            match byte {
                b'\n' => break,
                b'\\' if quoted => drop(self.next()),
                b'"' => quoted = !quoted,
                b']' if !quoted => break,
                // `[section.subsection]` is the older way to write it.
                b' ' | b'\t' | b'.' => named = true,
                _ if !named => name.push(byte.to_ascii_lowercase()),
                _ => {}
            }
        }
        name
    }

    fn key(&mut self, first: u8) -> Vec<u8> {
        let mut key = vec![first.to_ascii_lowercase()];
        while let Some(byte) = self.peek().filter(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') {
            key.push(byte.to_ascii_lowercase());
            self.next();
        }
        key
    }

    /// What stands behind the `=`, if there is one.
    fn value(&mut self) -> Option<Vec<u8>> {
        while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            self.next();
        }
        if self.peek() != Some(b'=') {
            return None;
        }
        self.next();
        let mut value = Vec::new();
        // How much of it counts: blanks at the end do not, unless they are in quotes.
        let mut length = 0;
        let mut quoted = false;
        while let Some(byte) = self.next() {
            match byte {
                b'\n' => break,
                b'#' | b';' if !quoted => {
                    self.skip_line();
                    break;
                }
                b'"' => quoted = !quoted,
                b' ' | b'\t' | b'\r' if !quoted => {
                    if length > 0 {
                        value.push(byte);
                    }
                    continue;
                }
                b'\\' => match self.next() {
                    Some(b'\n') | None => continue,
                    Some(b't') => value.push(b'\t'),
                    Some(b'n') => value.push(b'\n'),
                    Some(b'b') => value.push(8),
                    Some(other) => value.push(other),
                },
                _ => value.push(byte),
            }
            length = value.len();
        }
        value.truncate(length);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn texts(text: &str) -> Vec<String> {
        values(text.as_bytes()).into_iter().map(|value| String::from_utf8(value.text).unwrap()).collect()
    }

    /// FS-4: what git takes for the path of hooks or an included file, we do too.
    #[test]
    fn values_are_read_as_git_reads_them() {
        for (text, expected) in [
            ("[core]\n\thooksPath = tools/hooks # ours\n", "tools/hooks"),
            ("[core]\nhooksPath=tools/hooks;ours", "tools/hooks"),
            ("[CORE] HOOKSPATH = \"a # b\" ; c\n", "a # b"),
            ("[include] path = a\\\\b\\\"c\n", "a\\b\"c"),
            ("[include]\npath = one\\\ntwo  \r\n", "onetwo"),
            ("[include]\r\n\tpath = \"x\" y\\ty\r\n", "x y\ty"),
            ("[includeIf \"gitdir:~/a]b\\\"c/\"]\npath = d\n", "d"),
            ("# [core]\n[include]path=e", "e"),
            ("\u{feff}[include]\npath = f]g", "f]g"),
            ("[include.old]\npath = h", "h"),
        ] {
            assert_eq!(texts(text), [expected], "{text}");
        }
        for text in
            ["[core]\nhooksPath\n", "[other]\npath = x", "[core]\n# hooksPath = x\n", "[include]\npath =\n"]
        {
            assert!(texts(text).is_empty(), "{text}");
        }
    }

    /// FS-4: the same with git itself as the judge, where there is one.
    #[test]
    fn git_agrees() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("config");
        for value in ["a#b", "\"a#b\";c", "a  b  # c", "\\\"a\\\"", "\" a \" b ", "a\\\n  b", "a\\tb"] {
            let text = format!("[core]\n\thooksPath = {value}\n");
            fs::write(&file, &text).unwrap();
            let mut git = std::process::Command::new("git");
            let Ok(said) = git.args(["config", "-z", "-f"]).arg(&file).arg("core.hooksPath").output() else {
                return;
            };
            assert_eq!(
                texts(&text),
                [String::from_utf8(said.stdout).unwrap().trim_end_matches('\0')],
                "{text}"
            );
        }
    }

    /// FS-4: includes within included files, relative to these, and in circles.
    #[test]
    fn includes_are_followed() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        for (path, text) in [
            ("r/.git/config", "[include]\npath = ../a/one ; first\n"),
            ("r/a/one", "[include]\npath = two\npath = ../.git/config\npath = ~/three\n"),
            ("r/a/two", "[core]\nhooksPath = tools\n[include]\npath = missing\n"),
            ("h/three", "[core]\nhooksPath = ~/hooks\n"),
        ] {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        let home = root.join("h");
        let bases = Bases { tree: &root.join("r"), home: Some(&home) };
        let found: BTreeSet<PathBuf> = named(&root.join("r/.git/config"), bases)
            .into_iter()
            .map(|path| resolve(&path).unwrap().0)
            .collect();
        let expected =
            ["h/hooks", "h/three", "r/.git/config", "r/a/missing", "r/a/one", "r/a/two", "r/tools"];
        assert_eq!(found, expected.iter().map(|path| root.join(path)).collect());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            values(&bytes);
        }
    }
}

//! Node.js for an agent that is a script of it: which one, without starting it.

use std::path::{Path, PathBuf};

use super::find::{Search, Why, file_name, head, is_program, places, resolve};

/// What openclaw asks for (`engines` of its package.json, 2026.9): from 24.16 within 24, or from 26.1 on.
fn is_supported((major, minor): (u32, u32)) -> bool {
    match major {
        24 => minor >= 16,
        26 => minor >= 1,
        _ => major > 26,
    }
}

/// The first that is known to do, else the first whose version cannot be read: the script itself says if it does not do.
/// `beside` is looked in first: a node and its packages are often installed together.
pub(super) fn find(beside: &Path, search: &Search<'_>) -> Result<PathBuf, Why> {
    let (mut unknown, mut old) = (None, None);
    let places = std::iter::once(beside.to_path_buf()).chain(places(search, &[]));
    for node in places.map(|place| place.join("node")).filter(|file| is_program(file)) {
        let real = resolve(&node)?;
        match version(&real) {
            Some(version) if is_supported(version) => return Ok(real),
            Some((major, minor)) => old = old.or(Some(Why::OldNode(node, format!("{major}.{minor}")))),
            // A version manager's switch, or a build of a distribution.
            None if file_name(&real) == "node" => unknown = unknown.or(Some(real)),
            None => {}
        }
    }
    match (unknown, old) {
        (Some(node), _) => Ok(node),
        (None, Some(old)) => Err(old),
        (None, None) => Err(Why::NoNode),
    }
}

/// From the header file that is installed with it, else from a directory that is named for it.
fn version(node: &Path) -> Option<(u32, u32)> {
    let prefix = node.parent()?.parent()?;
    let header = head(&prefix.join("include/node/node_version.h"));
    header
        .as_deref()
        .and_then(in_header)
        .or_else(|| node.ancestors().find_map(|part| in_name(file_name(part))))
}

fn in_header(bytes: &[u8]) -> Option<(u32, u32)> {
    let text = String::from_utf8_lossy(bytes);
    let number = |name: &str| {
        text.lines().find_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let is_it = words.next() == Some("#define") && words.next() == Some(name);
            if is_it { words.next()?.parse().ok() } else { None }
        })
    };
    Some((number("NODE_MAJOR_VERSION")?, number("NODE_MINOR_VERSION")?))
}

/// `v24.21.0`, `24.21.0` or `node-v24.21.0-linux-x64`.
fn in_name(name: &str) -> Option<(u32, u32)> {
    let name = name.strip_prefix("node-").unwrap_or(name);
    let name = name.strip_prefix('v').unwrap_or(name);
    let mut parts = name.split('-').next()?.split('.');
    let version = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next()?.parse::<u32>().ok()?;
    Some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MOD-14: the versions that openclaw names, and no others.
    #[test]
    fn only_a_node_that_openclaw_runs_on_is_taken() {
        for (version, expected) in [
            ((20, 20), false),
            ((24, 15), false),
            ((24, 16), true),
            ((25, 3), false),
            ((26, 0), false),
            ((26, 1), true),
            ((28, 0), true),
        ] {
            assert_eq!(is_supported(version), expected, "{version:?}");
        }
    }

    /// MOD-14: a version is read where installers write it, and nothing else is taken for one.
    #[test]
    fn a_version_is_read_from_header_or_name() {
        let header = b"// x\n#define NODE_MAJOR_VERSION 24\n#define NODE_MINOR_VERSION 21\n";
        assert_eq!(in_header(header), Some((24, 21)));
        assert_eq!(in_header(b"#define NODE_MAJOR_VERSION x\n#define NODE_MINOR_VERSION 1\n"), None);
        assert_eq!(in_name("v24.21.0"), Some((24, 21)));
        assert_eq!(in_name("node-v24.21.0-linux-x64"), Some((24, 21)));
        for name in ["node", "24", "24.1", "lib", "python3.11", "v1.x.2", ""] {
            assert_eq!(in_name(name), None, "{name}");
        }
    }
}

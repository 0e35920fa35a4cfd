use proptest::prelude::*;

use super::*;

fn open(path: &str, access: Access) -> Opened {
    Opened { dest: path.into(), source: path.into(), access, origin: Origin::Operator }
}
fn rw(path: &str) -> Opened {
    open(path, Access::ReadWrite)
}
fn ro(path: &str) -> Opened {
    open(path, Access::ReadOnly)
}
fn system(path: &str) -> Opened {
    Opened { origin: Origin::System, ..ro(path) }
}
fn deny(path: &str) -> Closed {
    Closed { path: path.into(), node: Node::Directory, masked: false }
}
fn mask(path: &str) -> Closed {
    Closed { masked: true, ..deny(path) }
}
fn view(opened: &[Opened], closed: &[Closed]) -> View {
    View::new(opened.to_vec(), closed.to_vec()).unwrap()
}
/// `w` writable, `r` readable, `c` closed, `-` absent.
fn seen(view: &View, path: &str) -> char {
    match view.seen(Path::new(path)) {
        Seen::Absent => '-',
        Seen::Closed => 'c',
        Seen::ReadOnly => 'r',
        Seen::Writable(_) => 'w',
    }
}
fn dests(mounts: &[Mount]) -> Vec<&str> {
    mounts.iter().map(|mount| mount.dest().to_str().unwrap()).collect()
}

/// FS-4: the longest path decides on reading.
#[test]
fn a_denied_part_of_an_opened_directory_is_closed() {
    let view = view(&[rw("/a")], &[deny("/a/secret")]);
    assert_eq!(seen(&view, "/a/x"), 'w');
    assert_eq!(seen(&view, "/a/secret"), 'c');
    assert_eq!(seen(&view, "/a/secret/deep"), 'c');
    assert_eq!(seen(&view, "/a/secrets"), 'w');
    assert_eq!(seen(&view, "/b"), '-');
}

/// FS-4: read: allow beats deny, write: deny beats allow.
#[test]
fn a_part_of_a_denied_directory_is_opened_for_reading_only() {
    let view = view(&[rw("/a"), rw("/a/b/c"), ro("/a/b/d")], &[deny("/a/b")]);
    assert_eq!(seen(&view, "/a/x"), 'w');
    assert_eq!(seen(&view, "/a/b/x"), 'c');
    assert_eq!(seen(&view, "/a/b/c"), 'r');
    assert_eq!(seen(&view, "/a/b/d"), 'r');
    let mounts = view.mounts(&[]);
    assert_eq!(dests(&mounts), ["/a", "/a/b", "/a/b/c", "/a/b/d"]);
    assert!(mounts.contains(&Mount::CloseDirectory { dest: "/a/b".into(), passable: true }));
}

/// FS-4: on the same path allow beats deny for reading, deny beats allow for writing.
#[test]
fn opened_and_denied_by_the_same_path_is_read_only() {
    let view = view(&[rw("/a")], &[deny("/a")]);
    assert_eq!(seen(&view, "/a/x"), 'r');
    assert_eq!(view.mounts(&[]).len(), 1);
}

/// FS-4: a denial above a work directory takes the right to write, although nothing shows what was denied.
#[test]
fn a_denial_above_that_nothing_shows_still_forbids_writing() {
    let view = view(&[rw("/home/alice/work")], &[deny("/home/alice")]);
    assert_eq!(seen(&view, "/home/alice/work"), 'r');
    assert_eq!(seen(&view, "/home/alice"), '-');
    assert_eq!(dests(&view.mounts(&[])), ["/home/alice/work"]);
}

/// FS-4: a longer read-only path keeps its part of a writable one from being written, and the other way round.
#[test]
fn the_longer_path_decides_on_writing() {
    let view = view(&[rw("/a"), ro("/a/b"), rw("/a/b/c")], &[]);
    assert_eq!([seen(&view, "/a"), seen(&view, "/a/b/x"), seen(&view, "/a/b/c/x")], ['w', 'r', 'w']);
}

/// FS-4: the same path named twice is as wide as was asked for.
#[test]
fn named_twice_is_writable() {
    assert_eq!(seen(&view(&[ro("/a"), rw("/a")], &[]), "/a"), 'w');
    assert_eq!(seen(&view(&[rw("/a"), ro("/a")], &[]), "/a"), 'w');
}

/// FS-1, FS-4: what belongs to anet is closed inside an opened directory and refused by name, at and below it.
#[test]
fn masked_paths_stay_closed() {
    let masked = mask("/home/a/.config/anet");
    let view = view(&[rw("/home/a")], std::slice::from_ref(&masked));
    assert_eq!(seen(&view, "/home/a/.config/anet/anet.toml"), 'c');
    for path in ["/home/a/.config/anet", "/home/a/.config/anet/x"] {
        let refused = View::new(vec![ro(path)], vec![masked.clone()]);
        assert_eq!(refused.unwrap_err(), RuleError::Masked { path: path.into() });
    }
    let both = View::new(vec![rw("/home/a")], vec![deny("/home/a/.config/anet"), masked]).unwrap();
    assert_eq!(seen(&both, "/home/a/.config/anet"), 'c');
}

/// FS-4: what nothing shows gets no mount: it would tell that it exists.
#[test]
fn closed_paths_that_nothing_shows_get_no_mount() {
    let view = view(&[rw("/a")], &[deny("/b"), mask("/home/x/.cache/anet"), deny("/a/b"), deny("/a/b/c")]);
    assert_eq!(dests(&view.mounts(&[])), ["/a", "/a/b"]);
}

/// FS-4: a system directory can be denied in whole or in part.
#[test]
fn system_directories_can_be_denied() {
    let part = view(&[system("/usr")], &[deny("/usr/local")]);
    assert_eq!([seen(&part, "/usr/bin"), seen(&part, "/usr/local/bin")], ['r', 'c']);
    let whole = view(&[system("/usr")], &[deny("/usr")]);
    assert_eq!(seen(&whole, "/usr/bin"), 'c');
    assert_eq!(dests(&whole.mounts(&[])), ["/usr"]);
    let named = view(&[system("/usr"), rw("/usr")], &[]);
    assert_eq!(seen(&named, "/usr/bin"), 'w');
}

/// FS-4: protected paths are read-only, their parents cannot be renamed, and who names one opens it.
#[test]
fn protected_paths_are_pinned_down_to_the_writable_root() {
    let protected: Vec<PathBuf> =
        ["/p/.git/hooks", "/p/.git/config", "/p/.bashrc", "/q/.bashrc"].map(Into::into).into();
    let closed = view(&[rw("/p")], &[]);
    let mounts = closed.mounts(&protected);
    assert_eq!(dests(&mounts), ["/p", "/p/.bashrc", "/p/.git", "/p/.git/config", "/p/.git/hooks"]);
    let access = |dest: &str| {
        mounts.iter().find_map(|mount| match mount {
            Mount::Bind { dest: found, access, .. } if found == Path::new(dest) => Some(*access),
            Mount::Bind { .. } | Mount::CloseDirectory { .. } | Mount::CloseFile { .. } => None,
        })
    };
    assert_eq!(access("/p/.git"), Some(Access::ReadWrite));
    assert_eq!(access("/p/.git/hooks"), Some(Access::ReadOnly));

    let opened = view(&[rw("/p"), rw("/p/.git/hooks")], &[]);
    assert!(!opened.protects(Path::new("/p/.git/hooks")));
    assert!(opened.protects(Path::new("/p/.git/config")));
    assert_eq!(seen(&opened, "/p/.git/hooks/x"), 'w');
}

/// FS-4: a closed path in a writable directory is pinned too: its parent renamed, another could be made in its place.
#[test]
fn closed_paths_are_pinned() {
    let view = view(&[rw("/home/a")], &[mask("/home/a/.config/anet")]);
    assert_eq!(dests(&view.mounts(&[])), ["/home/a", "/home/a/.config", "/home/a/.config/anet"]);
}

fn path() -> impl Strategy<Value = PathBuf> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4)
        .prop_map(|parts| PathBuf::from(format!("/{}", parts.join("/"))))
}
fn opened() -> impl Strategy<Value = Vec<Opened>> {
    prop::collection::vec(
        (path(), any::<bool>()).prop_map(|(dest, write)| {
            let access = if write { Access::ReadWrite } else { Access::ReadOnly };
            Opened { source: dest.clone(), dest, access, origin: Origin::Operator }
        }),
        0..5,
    )
}
fn closed() -> impl Strategy<Value = Vec<Closed>> {
    prop::collection::vec(
        (path(), any::<bool>()).prop_map(|(path, masked)| Closed { path, node: Node::Directory, masked }),
        0..4,
    )
}

/// What the list of mounts leaves of `path`, as the kernel would: the last mount over it decides.
fn effect(mounts: &[Mount], path: &Path) -> char {
    match mounts.iter().rfind(|mount| path.starts_with(mount.dest())) {
        None => '-',
        Some(Mount::Bind { access: Access::ReadWrite, .. }) => 'w',
        Some(Mount::Bind { access: Access::ReadOnly, .. }) => 'r',
        Some(Mount::CloseDirectory { .. } | Mount::CloseFile { .. }) => 'c',
    }
}

proptest! {
    /// FS-4: for any rules: no denial and no mask ever leaves something writable, a mask nothing readable; the mounts do
    /// what `seen` says; and each follows those around it.
    #[test]
    fn mounts_keep_the_rules(opened in opened(), closed in closed(), asked in path(), kept in path()) {
        let Ok(view) = View::new(opened.clone(), closed.clone()) else {
            prop_assert!(closed.iter().any(|shut| shut.masked));
            return Ok(());
        };
        let mounts = view.mounts(std::slice::from_ref(&kept));
        let effect = effect(&mounts, &asked);
        if closed.iter().any(|shut| asked.starts_with(&shut.path)) {
            prop_assert_ne!(effect, 'w');
        }
        if closed.iter().any(|shut| shut.masked && asked.starts_with(&shut.path)) {
            prop_assert!(matches!(effect, 'c' | '-'));
        }
        let named = opened.iter().any(|rule| rule.dest == asked);
        let below = opened.iter().any(|rule| rule.dest != kept && rule.dest.starts_with(&kept) && asked.starts_with(&rule.dest));
        if asked.starts_with(&kept) && !named && !below && view.protects(&kept) {
            prop_assert_ne!(effect, 'w');
        } else {
            prop_assert_eq!(effect, match view.seen(&asked) {
                Seen::Absent => '-', Seen::Closed => 'c', Seen::ReadOnly => 'r', Seen::Writable(_) => 'w',
            });
        }
        for (place, mount) in mounts.iter().enumerate() {
            prop_assert!(mounts[..place].iter().all(|before| !before.dest().starts_with(mount.dest())));
        }
    }
}

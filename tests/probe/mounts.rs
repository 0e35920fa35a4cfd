//! Mounts, by the old and the new interface. Outside they are tried in a mount namespace of their own.

use crate::call::{At, Errno, call, text};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[(&str, Attack)] = &[
    ("mount_tmpfs", mount_tmpfs),
    ("mount_bind", mount_bind),
    ("mount_proc", mount_proc),
    ("remount_writable", remount_writable),
    ("umount", umount),
    ("pivot_root", pivot_root),
    ("chroot", chroot),
    ("fsopen", fsopen),
    ("open_tree", open_tree),
    ("move_mount", move_mount),
    ("mount_setattr", mount_setattr),
    ("fspick", fspick),
    ("swapon", |_| Verdict::of_reaching_the_kernel(call(libc::SYS_swapon, &[&&text("/nowhere"), &0]))),
];

const OPEN_TREE_CLONE: u32 = 1;
const MOUNT_ATTR_RDONLY: u64 = 1;

/// A directory that the attack may use as a mount point.
fn place() -> String {
    let path =
        format!("{}/probe-mount-{}", std::env::var("PWD").unwrap_or_else(|_| ".".into()), std::process::id());
    let _ = std::fs::create_dir(&path);
    path
}

fn mount(source: &str, target: &str, kind: &str, flags: u64) -> Result<i64, Errno> {
    let (source, target, kind) = (text(source), text(target), text(kind));
    call(libc::SYS_mount, &[&&source, &&target, &&kind, &flags, &0])
}

fn at_place(work: impl FnOnce(&str) -> Result<i64, Errno>) -> Verdict {
    let place = place();
    let result = work(&place);
    // With the mount in the way this fails, and the mount namespace ends with the attack anyway.
    let _ = std::fs::remove_dir(&place);
    Verdict::of(result)
}

fn mount_tmpfs(_: &[String]) -> Verdict {
    at_place(|place| mount("none", place, "tmpfs", 0))
}

fn mount_bind(_: &[String]) -> Verdict {
    at_place(|place| mount("/", place, "none", libc::MS_BIND))
}

fn mount_proc(_: &[String]) -> Verdict {
    at_place(|place| mount("proc", place, "proc", 0))
}

/// Makes a read-only mount writable again: `remount_writable /usr`.
fn remount_writable(arguments: &[String]) -> Verdict {
    let Some(path) = arguments.first() else { return Verdict::Broken("a mount point is missing".into()) };
    Verdict::of(mount("none", path, "none", libc::MS_REMOUNT | libc::MS_BIND))
}

fn umount(arguments: &[String]) -> Verdict {
    let Some(path) = arguments.first() else { return Verdict::Broken("a mount point is missing".into()) };
    Verdict::of(call(libc::SYS_umount2, &[&&text(path), &libc::MNT_DETACH]))
}

fn pivot_root(_: &[String]) -> Verdict {
    // The root of the machine is no place to pivot from (EINVAL): reaching that answer is the success.
    Verdict::of_reaching_the_kernel(call(libc::SYS_pivot_root, &[&&text("."), &&text(".")]))
}

fn chroot(_: &[String]) -> Verdict {
    Verdict::of(call(libc::SYS_chroot, &[&&text("/tmp")]))
}

fn fsopen(_: &[String]) -> Verdict {
    Verdict::of(call(libc::SYS_fsopen, &[&&text("tmpfs"), &0]))
}

fn open_tree(_: &[String]) -> Verdict {
    Verdict::of(call(libc::SYS_open_tree, &[&libc::AT_FDCWD, &&text("/"), &OPEN_TREE_CLONE]))
}

fn move_mount(_: &[String]) -> Verdict {
    let arguments = (text("/nowhere"), text("/nowhere"));
    Verdict::of_reaching_the_kernel(call(
        libc::SYS_move_mount,
        &[&libc::AT_FDCWD, &&arguments.0, &libc::AT_FDCWD, &&arguments.1, &0],
    ))
}

/// `struct mount_attr` of linux/mount.h.
#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Takes read-only away from a mount: `mount_setattr /usr`.
fn mount_setattr(arguments: &[String]) -> Verdict {
    let Some(path) = arguments.first() else { return Verdict::Broken("a mount point is missing".into()) };
    let mut attr = MountAttr { clear: MOUNT_ATTR_RDONLY, ..MountAttr::default() };
    let size = size_of::<MountAttr>();
    Verdict::of(call(libc::SYS_mount_setattr, &[&libc::AT_FDCWD, &&text(path), &0, &At(&mut attr), &size]))
}

fn fspick(_: &[String]) -> Verdict {
    Verdict::of(call(libc::SYS_fspick, &[&libc::AT_FDCWD, &&text("/proc"), &0]))
}

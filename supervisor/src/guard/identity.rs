//! Which host users anet's processes and the run have (SBX-3).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use confine::sys::spawn::Identity;
use ipc_proto::Code;

use crate::error::Trouble;
use crate::node::job::Mode;

/// The user of runs, made by the package.
const RUN_USER: &str = "anet-run";
/// The supervisor's user, made by the package.
const SUPERVISOR_USER: &str = "anet";
/// The proxy's user, made by the package.
const PROXY_USER: &str = "anet-proxy";
/// The broker's user, made by the package.
const BROKER_USER: &str = "anet-broker";
/// Its members command a service.
const COMMANDERS: &str = "anet";
/// The kernel's overflow user and group, "nobody": owns nothing.
const NOBODY: u32 = 65_534;

/// Whom each process runs as. None: as whoever started anet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identities {
    pub(super) launcher: Option<Identity>,
    pub(super) supervisor: Option<Identity>,
    pub(super) proxy: Option<Identity>,
    pub(super) broker: Option<Identity>,
    /// The host's user of the run.
    pub(super) run: Identity,
}

/// Decides them for a run in `work` (none: a fresh directory) that may write below `read_write`.
pub(super) fn decide(work: Option<&Path>, read_write: &[PathBuf]) -> Result<Identities, Trouble> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid != 0 {
        let own = Identity { uid, gid };
        return Ok(Identities { launcher: None, supervisor: None, proxy: None, broker: None, run: own });
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let nobody = Identity { uid: NOBODY, gid: NOBODY };
    // Without a work directory of its own, what is opened for writing says whose the run is.
    let run = match work.or_else(|| read_write.first().map(PathBuf::as_path)) {
        // A directory that the operator names can only be used by its owner.
        Some(directory) => owner_of(directory, &passwd)?,
        None => named_user(&passwd, RUN_USER).unwrap_or(nobody),
    };
    Ok(Identities {
        launcher: Some(run),
        supervisor: Some(named_user(&passwd, SUPERVISOR_USER).unwrap_or(nobody)),
        proxy: Some(named_user(&passwd, PROXY_USER).unwrap_or(nobody)),
        broker: Some(named_user(&passwd, BROKER_USER).unwrap_or(nobody)),
        run,
    })
}

/// Decides them for a node. Whoever of root's own node keeps its evidence and inbox is root without a capability: below root's
/// home nobody else gets to them.
pub(super) fn of_node(mode: Mode) -> Result<Identities, Trouble> {
    match mode {
        Mode::User => Ok(Identities { supervisor: None, ..decide(None, &[])? }),
        Mode::System => service(&fs::read_to_string("/etc/passwd").unwrap_or_default()),
    }
}

/// PRV-2: as a service each process has a user of its own.
fn service(passwd: &str) -> Result<Identities, Trouble> {
    let mut missing = Vec::new();
    let mut user = |name: &'static str| {
        let found = named_user(passwd, name);
        if found.is_none() {
            missing.push(name);
        }
        found
    };
    let (supervisor, run, proxy, broker) =
        (user(SUPERVISOR_USER), user(RUN_USER), user(PROXY_USER), user(BROKER_USER));
    let Some(run_user) = run.filter(|_| missing.is_empty()) else {
        return Err(Trouble::new(
            Code::NotConfined,
            format!(
                "a service's processes have a user each, and there is no {}; install anet's package, which makes them, or run \
                 the node as a user: anet daemon",
                missing.join(", ")
            ),
        ));
    };
    Ok(Identities { launcher: run, supervisor, proxy, broker, run: run_user })
}

/// The group whose members may command a service.
pub(super) fn commanders() -> Result<u32, Trouble> {
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    // Its lines begin as those of the users do: name, password, number.
    let line = groups.lines().find_map(|line| line.strip_prefix(COMMANDERS)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split(':').nth(1)?.parse().ok()).filter(|gid| *gid != 0);
    number.ok_or_else(|| {
        Trouble::new(
            Code::NotConfined,
            format!("there is no group {COMMANDERS}, whose members command a service; install anet's package, which makes it"),
        )
    })
}

fn owner_of(directory: &Path, passwd: &str) -> Result<Identity, Trouble> {
    let found = fs::metadata(directory)
        .map_err(|error| Trouble::new(Code::BadPath, format!("{}: {error}", directory.display())))?;
    if found.uid() == 0 {
        return Err(Trouble::new(
            Code::BadPath,
            format!(
                "{} belongs to root, and a run never has the host's user 0; give a directory of another user, or leave \
                 it out for a fresh one",
                directory.display()
            ),
        ));
    }
    // The owner's own group where it is known; the directory's may be one that means something elsewhere.
    let gid = passwd
        .lines()
        .filter_map(entry)
        .find(|(_, identity)| identity.uid == found.uid())
        .map_or(if found.gid() == 0 { NOBODY } else { found.gid() }, |(_, identity)| identity.gid);
    if gid == 0 {
        return Err(Trouble::new(
            Code::BadPath,
            format!(
                "{} belongs to a user whose group is root's, and a run never has the host's group 0; give a directory \
                 of another user",
                directory.display()
            ),
        ));
    }
    Ok(Identity { uid: found.uid(), gid })
}

/// A system user by name: only the file is asked, since a name service may hang, and none of these users comes from
/// one. User or group 0 is never meant.
fn named_user(passwd: &str, name: &str) -> Option<Identity> {
    let (_, identity) = passwd.lines().filter_map(entry).find(|(found, _)| *found == name)?;
    (identity.uid != 0 && identity.gid != 0).then_some(identity)
}

fn entry(line: &str) -> Option<(&str, Identity)> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some((name, Identity { uid, gid }))
}

/// The home of the user who started anet, where HOME does not say.
pub(super) fn home_of(uid: u32) -> Option<std::path::PathBuf> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| entry(line).is_some_and(|(_, identity)| identity.uid == uid))?;
    line.split(':').nth(5).filter(|home| home.starts_with('/')).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nanet-run:x:991:990::/nonexistent:/usr/sbin/nologin\n\
                          anet-proxy:x:0:990::/:/bin/sh\nbroken\nalice:x:1000:1001::/home/alice:/bin/sh\n";

    /// SBX-3: a run's user is never 0, whatever the file says.
    #[test]
    fn user_zero_is_never_taken() {
        assert_eq!(named_user(PASSWD, "anet-run"), Some(Identity { uid: 991, gid: 990 }));
        assert_eq!(named_user(PASSWD, "anet-proxy"), None);
        assert_eq!(named_user(PASSWD, "root"), None);
        assert_eq!(named_user(PASSWD, "anet"), None);
        let trouble = service(PASSWD).unwrap_err();
        assert_eq!(trouble.code, Code::NotConfined);
        assert!(trouble.sentence.contains("no anet, anet-proxy, anet-broker;"), "{trouble}");
        assert!(owner_of(Path::new("/usr"), PASSWD).unwrap_err().sentence.contains("belongs to root"));
    }
}

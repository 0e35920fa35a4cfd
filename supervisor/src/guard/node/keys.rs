//! Keys of model services that the operator keeps in variables: taken out of the environment before anything else is done, and
//! passed on as descriptors, unread, from keeper to guard and on to the broker (MOD-1).

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use confine::sys::environment::withdraw;
use confine::sys::inherited;
use ipc_proto::Code;
use rustix::fs::{SeekFrom, seek};

use super::super::open::system;
use crate::error::Trouble;
use crate::models::SERVICES;

/// Where the guard has them: the key of the first known service, and so on.
const FIRST: RawFd = 20;

/// Those that there are.
#[derive(Debug)]
pub(super) struct Keys(Vec<(&'static str, OwnedFd)>);

impl Keys {
    /// Takes the variables of all known services out of this process.
    ///
    /// # Errors
    /// [`Code::NoApiKey`], when there is no memory to move them to.
    pub(super) fn withdraw() -> Result<Keys, Trouble> {
        let mut keys = Vec::new();
        for variable in SERVICES.iter().map(|service| service.variable) {
            let name = CString::new(variable).unwrap_or_default();
            let moved = withdraw(&name).map_err(|errno| {
                let what = format!("{variable} cannot be moved to where the broker reads it ({errno})");
                Trouble::new(Code::NoApiKey, what)
            })?;
            keys.extend(moved.map(|key| (variable, key)));
        }
        Ok(Keys(keys))
    }

    /// None.
    #[cfg(test)]
    pub(super) fn none() -> Keys {
        Keys(Vec::new())
    }

    /// Those that the guard was started with. To be called before anything is opened.
    pub(super) fn inherited() -> Keys {
        let numbered = SERVICES.iter().map(|service| service.variable).zip(FIRST..);
        Keys(
            numbered
                .filter_map(|(variable, number)| Some((variable, inherited::take(number).ok()?)))
                .collect(),
        )
    }

    /// For the guard that is started.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, RawFd)> {
        self.0.iter().filter_map(|(variable, key)| {
            let at = SERVICES.iter().position(|service| service.variable == *variable)?;
            Some((key.as_fd(), FIRST + RawFd::try_from(at).ok()?))
        })
    }

    /// Whether the variable is one of them.
    pub(super) fn has(&self, variable: &str) -> bool {
        self.0.iter().any(|(known, _)| *known == variable)
    }

    /// The key of a variable, to be read from its beginning, whoever read it in an earlier life.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn key(&self, variable: &str) -> Result<Option<OwnedFd>, Trouble> {
        let Some((_, key)) = self.0.iter().find(|(known, _)| *known == variable) else { return Ok(None) };
        seek(key, SeekFrom::Start(0)).map_err(|errno| system("the key's memory", &errno.into()))?;
        key.try_clone().map(Some).map_err(|error| system("the key's memory", &error))
    }

    /// All of them.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn all(&self) -> Result<Vec<(CString, OwnedFd)>, Trouble> {
        let one = |(variable, key): &(&'static str, OwnedFd)| {
            let key = key.try_clone().map_err(|error| system("the key's memory", &error))?;
            Ok((CString::new(*variable).unwrap_or_default(), key))
        };
        self.0.iter().map(one).collect()
    }
}

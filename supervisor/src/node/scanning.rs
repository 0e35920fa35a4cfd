//! Looking again and again: whether the node is still what it was started as, what is too old, and what waits.

use ipc_proto::launcher::ToLauncher;

use super::*;

impl Node {
    pub(super) fn scan_if_due(&mut self) -> Result<(), Fatal> {
        let now = Instant::now();
        if self.scan_at > now {
            return Ok(());
        }
        self.scan_at = now + SCAN;
        self.look_for_changes();
        if !self.told.ready || self.stopping || self.anew {
            return Ok(());
        }
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP;
            self.prune_at = now;
            self.sweep()?;
        }
        if self.prune_at <= now {
            self.prune_at = now + SWEEP;
            self.prune(self.retention())?;
        }
        self.scan()
    }

    /// A file that the node was started from is not what it was: everything is taken up anew, when nothing is under way.
    pub(super) fn look_for_changes(&mut self) {
        if !self.anew && !self.stopping {
            self.anew = self.job.watched.iter().any(job::Watched::has_changed);
        }
        if let Some(trouble) = self.store.as_ref().ok().and_then(super::store::Store::is_gone) {
            // What is written from now on would be lost: nothing more is taken.
            self.say(&trouble.to_string());
            self.store = Err(trouble);
            self.store_again = Some(Instant::now() + STORE_AGAIN);
        }
        if self.zone.has_changed() {
            self.zone = Zone::load(self.job.zone.as_deref());
        }
    }

    /// FS-3: what is older than the retention is removed.
    fn sweep(&mut self) -> Result<(), Fatal> {
        let older_than = self.retention();
        if let Ok(turn) = &self.job.turn {
            let root = turn.plan.files.root.clone();
            self.lines.launcher.send(&ToLauncher::Sweep { root, older_than }, &[])?;
        }
        self.sweep_outside(older_than)
    }

    /// Milliseconds.
    fn retention(&self) -> u64 {
        const DAY: u64 = 24 * 3600 * 1000;
        u64::from(self.job.policy.retention_days).saturating_mul(DAY)
    }
}

//! What a node adds, as it adds it.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use supervisor::error::Trouble;

use super::show::{Shower, ended, from};

/// How often the files are looked at.
const PAUSE: Duration = Duration::from_millis(250);

/// Shows every record from `next` on, until nobody reads any more.
pub(super) fn perform(directory: &Path, mut next: u64, shower: &mut Shower) -> Result<u8, Trouble> {
    let mut seen = size(directory);
    loop {
        std::thread::sleep(PAUSE);
        let now = size(directory);
        if now == seen {
            continue;
        }
        seen = now;
        let found = from(directory, next, &mut |record| {
            shower.text(record).map_or(ControlFlow::Continue(()), |text| shower.output.put(&text))
        });
        shower.output.end()?;
        match found {
            Ok(_) if shower.output.gone => return Ok(0),
            Ok(records) => next = records,
            Err(fault) => return ended(fault),
        }
    }
}

/// How much there is, in how many files.
fn size(directory: &Path) -> (u64, usize) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let lengths: Vec<u64> = entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).collect();
    (lengths.iter().sum(), lengths.len())
}

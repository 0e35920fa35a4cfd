//! Opening the database: made where there is none, brought up where it is older, refused and left alone where it is anything
//! else.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::InboxError;
use super::schema::APPLICATION_ID;

/// How long another process may take to let go of it: one that was just ended does so at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// The shortest database, bytes; a shorter one that is about to be made has a journal.
const SHORTEST: u64 = 512;
/// The most interactions that are looked through when it is opened.
const CHECKED: i64 = 20_000;
/// Pages that are held in memory, KiB.
const CACHE_KIB: i64 = 1024;

/// Opens the database in `dir`, of as many versions as there are `steps`. `most` is how large it may become, bytes.
pub(super) fn open(dir: &Path, steps: &[&str], most: u64) -> Result<Connection, InboxError> {
    let path = prepare(dir)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let mut connection = Connection::open_with_flags(&path, flags)?;
    before_the_first_read(&connection)?;
    let known = i32::try_from(steps.len()).unwrap_or(i32::MAX);
    match identify(&connection)? {
        Found::Nothing => {
            // Before the first table, or never.
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
            bring_up(&mut connection, 0, steps)?;
        }
        Found::Inbox(found) if found > known => return Err(InboxError::Newer { found, known }),
        Found::Inbox(found) => {
            let has = steps.get(..usize::try_from(found).unwrap_or(0)).unwrap_or_default();
            compare(&connection, has)?;
            check(&connection)?;
            bring_up(&mut connection, found, steps)?;
        }
        Found::Other(words) => return Err(InboxError::Damaged(words)),
    }
    for_good(&connection, most)?;
    Ok(connection)
}

/// The file's path, and the file itself where there is none: ours alone from its first moment.
///
/// It is never opened here if it exists: closing it again would drop the locks that this process has on it.
fn prepare(dir: &Path) -> Result<PathBuf, InboxError> {
    // SQLite refuses links anywhere in the path; those above the directory are the operator's own.
    let dir = dir.canonicalize()?;
    let path = dir.join(super::DATABASE);
    let log = length(&dir.join("inbox.db-wal"))?.unwrap_or(0);
    let damaged = |words: &str| Err(InboxError::Damaged(words.to_owned()));
    match length(&path)? {
        None if log > 0 => damaged("inbox.db is missing, and its inbox.db-wal is there"),
        None => {
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            File::open(&dir)?.sync_all()?;
            Ok(path)
        }
        // SQLite would take either for new, and remove the log.
        Some(0) if log > 0 => damaged("inbox.db is empty, and its inbox.db-wal is not"),
        Some(1..SHORTEST) if length(&dir.join("inbox.db-journal"))?.unwrap_or(0) == 0 => {
            damaged("inbox.db is too short")
        }
        Some(_) => Ok(path),
    }
}

/// The length of a regular file; none: nothing is there.
fn length(path: &Path) -> io::Result<Option<u64>> {
    match path.symlink_metadata() {
        Ok(found) if found.is_file() => Ok(Some(found.len())),
        Ok(_) => Err(io::Error::other(format!("{} is no regular file", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What has to hold before anything is read.
fn before_the_first_read(connection: &Connection) -> Result<(), InboxError> {
    connection.busy_timeout(PATIENCE)?;
    // A database that is refused is left as it is, its log too.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    // One process for as long as it lives: no shared memory, and a lock that keeps out a second one.
    connection.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(()))?;
    // Reads come with an error, not with a signal.
    connection.execute_batch("PRAGMA mmap_size = 0")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(())
}

/// What lies there.
enum Found {
    /// A file without a table.
    Nothing,
    /// An inbox of this version.
    Inbox(i32),
    /// Something else, in words.
    Other(String),
}

fn identify(connection: &Connection) -> Result<Found, InboxError> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (application, version) {
        (APPLICATION_ID, 1..) => Found::Inbox(version),
        (APPLICATION_ID, _) => Found::Other("its version is no number of a version".to_owned()),
        (0, 0) if tables == 0 => Found::Nothing,
        _ => Found::Other("it is a database of another program".to_owned()),
    })
}

/// Takes the missing steps, all or none.
fn bring_up(connection: &mut Connection, from: i32, steps: &[&str]) -> Result<(), InboxError> {
    let missing = steps.get(usize::try_from(from).unwrap_or(0)..).unwrap_or_default();
    if missing.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Exclusive)?;
    for step in missing {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", i32::try_from(steps.len()).unwrap_or(i32::MAX))?;
    transaction.commit()?;
    Ok(())
}

/// Whether the tables are those that these steps make: nothing missing, nothing added.
fn compare(connection: &Connection, steps: &[&str]) -> Result<(), InboxError> {
    let reference = Connection::open_in_memory()?;
    for step in steps {
        reference.execute_batch(step)?;
    }
    if tables(connection)? == tables(&reference)? {
        Ok(())
    } else {
        Err(InboxError::Damaged("its tables are not those of its version".to_owned()))
    }
}

/// Looks through the list of interactions, where that is quick: 100,000 of them take some 100 ms, and a node has to be back soon.
/// Texts are checked when they are read.
fn check(connection: &Connection) -> Result<(), InboxError> {
    let span = "SELECT (SELECT max(number) FROM interaction) - (SELECT min(number) FROM interaction)";
    let span: Option<i64> = connection.query_row(span, [], |row| row.get(0))?;
    if span.is_some_and(|span| span > CHECKED) {
        return Ok(());
    }
    let word: String = connection.query_row("PRAGMA quick_check(interaction)", [], |row| row.get(0))?;
    if word == "ok" { Ok(()) } else { Err(InboxError::Damaged(crate::error::one_line(&word))) }
}

fn tables(connection: &Connection) -> Result<Vec<(String, String, Option<String>)>, rusqlite::Error> {
    let mut statement =
        connection.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

/// What holds from here on, for a database that is ours.
fn for_good(connection: &Connection, most: u64) -> Result<(), InboxError> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(InboxError::Unusable("it cannot have a write-ahead log".to_owned()));
    }
    // Every commit is on disk when it returns.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    let page: u64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = i64::try_from(most / page.max(1)).unwrap_or(i64::MAX);
    connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(())
}

//! The tables of the inbox, one step of them for each version.

/// `application_id` of the file: `anet` in ASCII. It tells an inbox from any other SQLite database.
pub(super) const APPLICATION_ID: i32 = 0x616e_6574;

/// What makes version N + 1 of version N. A version that was ever released is not changed any more: the next step goes behind
/// it. `user_version` of the file is the number of steps that it has.
pub(super) const STEPS: &[&str] = &[FIRST];

/// Texts have tables of their own, so that lists and scans never read over them. Times are milliseconds since 1970, UTC.
///
/// `number` is never used twice, whatever is removed. An interaction may have several runs, of which at most one is open.
const FIRST: &str = "
CREATE TABLE interaction (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    peer TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'answered', 'refused', 'exhausted', 'interrupted')),
    trusted INTEGER CHECK (trusted IN (0, 1)),
    submitted INTEGER NOT NULL,
    ended INTEGER,
    task_bytes INTEGER NOT NULL,
    task_sha256 BLOB NOT NULL CHECK (length(task_sha256) = 32),
    code TEXT,
    kind TEXT,
    until TEXT,
    sentence TEXT,
    CHECK ((state IN ('queued', 'running')) = (ended IS NULL)),
    CHECK ((state IN ('refused', 'exhausted', 'interrupted')) = (code IS NOT NULL)),
    CHECK ((code IS NULL) = (sentence IS NULL)),
    CHECK (code IS NOT NULL OR (kind IS NULL AND until IS NULL))
) STRICT;
CREATE INDEX interaction_queued ON interaction (number) WHERE state = 'queued';
CREATE INDEX interaction_running ON interaction (number) WHERE state = 'running';
CREATE INDEX interaction_ended ON interaction (ended) WHERE ended IS NOT NULL;
CREATE TABLE task (
    number INTEGER PRIMARY KEY REFERENCES interaction ON DELETE CASCADE,
    text BLOB NOT NULL
) STRICT;
CREATE TABLE answer (
    number INTEGER PRIMARY KEY REFERENCES interaction ON DELETE CASCADE,
    text TEXT NOT NULL
) STRICT;
CREATE TABLE run (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    interaction INTEGER NOT NULL REFERENCES interaction ON DELETE CASCADE,
    way TEXT NOT NULL CHECK (way IN ('sandbox', 'direct', 'openai')),
    started INTEGER NOT NULL,
    ended INTEGER,
    record TEXT,
    CHECK (record IS NULL OR ended IS NOT NULL)
) STRICT;
CREATE INDEX run_interaction ON run (interaction);
CREATE UNIQUE INDEX run_open ON run (interaction) WHERE ended IS NULL;
";

-- One row for every attempt of a lane, from the moment it is accepted. A column
-- that is NULL is not known, or not so yet. Times are RFC 3339, UTC, milliseconds.
CREATE TABLE attempts (
	seq         INTEGER PRIMARY KEY,
	id          TEXT    NOT NULL UNIQUE,
	lane        TEXT    NOT NULL,
	turn        INTEGER NOT NULL DEFAULT 0, -- 0 while it waits, its seq from then on
	state       TEXT    NOT NULL CHECK (state IN ('queued', 'starting', 'running', 'ended')),
	state_since TEXT    NOT NULL,

	queue_start   TEXT    NOT NULL,
	boot_start_ns INTEGER NOT NULL DEFAULT 0,
	boot_id       TEXT,
	epoch_ms      INTEGER NOT NULL DEFAULT 0,
	priority      INTEGER NOT NULL,

	cwd         TEXT,
	engine      TEXT,
	workload    TEXT,
	confinement TEXT,
	author      TEXT,
	labels      TEXT, -- JSON, as after, more and reason are
	not_before  TEXT,
	after       TEXT,
	argv0       TEXT,
	argc        INTEGER NOT NULL DEFAULT 0,
	command     TEXT,
	more        TEXT, -- what few rows have

	starts       INTEGER NOT NULL DEFAULT 0,
	unclaimed    INTEGER NOT NULL DEFAULT 0,
	last_failure TEXT,
	admitted_at  TEXT,
	token        BLOB, -- the hash of the open offer's token

	fence        INTEGER NOT NULL DEFAULT 0,
	granted_at   TEXT,
	granted_boot TEXT,
	driver_pid   INTEGER,
	driver_ticks INTEGER,
	driver_boot  TEXT,
	begun_at     TEXT,

	outcome   TEXT,
	result    TEXT,
	kind      TEXT,
	reason    TEXT,
	exit_code INTEGER,
	signal    INTEGER,
	ended_at  TEXT,
	tally     TEXT CHECK (tally IN ('succeeded', 'failed', 'lost', 'unstarted')),

	UNIQUE (lane, turn), -- so that no lane has two waiting rows
	CHECK (turn = (CASE WHEN ended_at IS NULL AND granted_at IS NULL THEN 0 ELSE seq END)),
	CHECK ((state = 'ended') = (ended_at IS NOT NULL)),
	CHECK ((ended_at IS NULL) = (tally IS NULL)),
	CHECK ((token IS NOT NULL) = (state = 'starting' AND granted_at IS NULL)),
	CHECK (state <> 'running' OR granted_at IS NOT NULL AND begun_at IS NOT NULL)
) STRICT;

CREATE INDEX alive ON attempts (seq) WHERE ended_at IS NULL;
CREATE INDEX open  ON attempts (seq) WHERE ended_at IS NULL AND granted_at IS NOT NULL;
CREATE INDEX ended ON attempts (ended_at, tally) WHERE ended_at IS NOT NULL;

-- The last fence of every lane that ever had one. It is never removed and never
-- falls.
CREATE TABLE lanes (
	lane  TEXT    PRIMARY KEY,
	fence INTEGER NOT NULL CHECK (fence > 0)
) STRICT, WITHOUT ROWID;

-- What happened, in order: one row for each change, written with it.
CREATE TABLE events (
	seq     INTEGER PRIMARY KEY,
	at      TEXT    NOT NULL,
	attempt INTEGER NOT NULL REFERENCES attempts (seq),
	what    TEXT    NOT NULL,
	was     TEXT,
	became  TEXT,
	detail  TEXT
) STRICT;

CREATE INDEX of_attempt ON events (attempt);

-- How many attempts of each tally are not in attempts any more.
CREATE TABLE pruned (
	tally TEXT    PRIMARY KEY,
	n     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

//! A queue as one would write it by hand in SQLite: WAL, synchronous=FULL, one row per job, a unique
//! key, a partial index of what is ready.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use crate::group::{Engine, Grouped};
use crate::workload::{Contender, PAYLOAD};

const SCHEMA: &str = "
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY,
        queue TEXT NOT NULL,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        payload BLOB,
        state INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        deliveries INTEGER NOT NULL,
        UNIQUE (queue, key)
    );
    CREATE INDEX ready ON jobs (queue, priority, id) WHERE state = 0;
";

struct Sqlite(Connection);

pub fn open(directory: &Path) -> Box<dyn Contender> {
    let connection = Connection::open(directory.join("jobs.sqlite")).unwrap();
    let read = |pragma: &str| -> String {
        let query = format!("PRAGMA {pragma}");
        let read = connection.query_row(&query, [], |row| row.get::<_, rusqlite::types::Value>(0));
        format!("{:?}", read.unwrap())
    };
    read("journal_mode = wal");
    connection.execute_batch("PRAGMA synchronous = FULL").unwrap();
    let pragmas = ["journal_mode", "synchronous", "wal_autocheckpoint"];
    let settings: Vec<_> = pragmas.map(|pragma| format!("{pragma} = {}", read(pragma))).into();
    assert_eq!(settings[..2], ["journal_mode = Text(\"wal\")", "synchronous = Integer(2)"]);
    connection.execute_batch(SCHEMA).unwrap();
    let version = format!("SQLite {}", rusqlite::version());
    Grouped::start(Sqlite(connection), format!("{version}, {}", settings.join(", ")))
}

impl Engine for Sqlite {
    fn begin(&mut self) {
        self.0.execute_batch("BEGIN IMMEDIATE").unwrap();
    }

    fn enqueue(&mut self, key: &str) {
        let sql = "INSERT INTO jobs (queue, kind, key, payload, state, priority, deliveries)
                   VALUES ('queue', 'work', ?1, ?2, 0, 100, 0)";
        let mut insert = self.0.prepare_cached(sql).unwrap();
        insert.execute((key, &PAYLOAD[..])).unwrap();
    }

    fn claim(&mut self) -> Option<u64> {
        let sql = "UPDATE jobs SET state = 1, deliveries = deliveries + 1
                   WHERE id = (SELECT id FROM jobs WHERE state = 0 AND queue = 'queue'
                               ORDER BY priority, id LIMIT 1)
                   RETURNING id, payload";
        let mut update = self.0.prepare_cached(sql).unwrap();
        let claimed = update.query_row([], |row| {
            let payload: Vec<u8> = row.get(1)?;
            assert_eq!(payload.len(), PAYLOAD.len());
            row.get::<_, i64>(0)
        });
        claimed.optional().unwrap().map(i64::cast_unsigned)
    }

    fn complete(&mut self, job: u64) {
        // The key goes on being known; the payload goes.
        let sql = "UPDATE jobs SET state = 2, payload = NULL WHERE id = ?1 AND state = 1";
        let mut update = self.0.prepare_cached(sql).unwrap();
        assert_eq!(update.execute([job.cast_signed()]).unwrap(), 1);
    }

    fn commit(&mut self) {
        self.0.execute_batch("COMMIT").unwrap();
    }
}

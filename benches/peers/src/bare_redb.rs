//! The least that redb must do for a queue: jobs, an index of what is ready, keys.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use redb::{Durability, WriteTransaction};

use crate::group::{Engine, Grouped};
use crate::workload::{Contender, PAYLOAD};

/// id -> deliveries, payload.
const JOBS: TableDefinition<u64, (u32, &[u8])> = TableDefinition::new("jobs");
const READY: TableDefinition<u64, ()> = TableDefinition::new("ready");
const KEYS: TableDefinition<&str, u64> = TableDefinition::new("keys");

struct Bare {
    // Before the database, so that it ends first.
    transaction: Option<WriteTransaction>,
    database: Database,
    next: u64,
}

pub fn open(directory: &Path) -> Box<dyn Contender> {
    let database = Database::builder()
        .set_cache_size(64 * 1024 * 1024)
        .create(directory.join("jobs.redb"))
        .unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(JOBS).unwrap();
    transaction.open_table(READY).unwrap();
    transaction.open_table(KEYS).unwrap();
    transaction.commit().unwrap();
    let jobs = database.begin_read().unwrap().open_table(JOBS).unwrap();
    assert_eq!(jobs.len().unwrap(), 0);
    let bare = Bare { transaction: None, database, next: 0 };
    Grouped::start(bare, "durability Immediate, set on every transaction".into())
}

impl Bare {
    fn open(&self) -> &WriteTransaction {
        self.transaction.as_ref().unwrap()
    }
}

impl Engine for Bare {
    fn begin(&mut self) {
        let mut transaction = self.database.begin_write().unwrap();
        transaction.set_durability(Durability::Immediate).unwrap();
        self.transaction = Some(transaction);
    }

    fn enqueue(&mut self, key: &str) {
        self.next += 1;
        let id = self.next;
        let transaction = self.open();
        let mut keys = transaction.open_table(KEYS).unwrap();
        assert!(keys.insert(key, id).unwrap().is_none());
        let mut jobs = transaction.open_table(JOBS).unwrap();
        jobs.insert(id, (0, &PAYLOAD[..])).unwrap();
        let mut ready = transaction.open_table(READY).unwrap();
        ready.insert(id, ()).unwrap();
    }

    fn claim(&mut self) -> Option<u64> {
        let transaction = self.open();
        let mut ready = transaction.open_table(READY).unwrap();
        let id = ready.pop_first().unwrap()?.0.value();
        let mut jobs = transaction.open_table(JOBS).unwrap();
        let found = jobs.get(id).unwrap().unwrap();
        let (deliveries, payload) = found.value();
        let (deliveries, payload) = (deliveries + 1, payload.to_vec());
        drop(found);
        jobs.insert(id, (deliveries, &payload[..])).unwrap();
        Some(id)
    }

    fn complete(&mut self, job: u64) {
        let mut jobs = self.open().open_table(JOBS).unwrap();
        assert!(jobs.remove(job).unwrap().is_some());
    }

    fn commit(&mut self) {
        self.transaction.take().unwrap().commit().unwrap();
    }
}

//! Every table, one row each. `docs/format.md` has the same list; a test compares them.

use redb::TableDefinition;

/// A table of the store; the number is part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum TableId {
    Meta = 0,
    Jobs = 1,
    Payloads = 2,
    Ready = 3,
    Delayed = 4,
    Leased = 5,
    Dead = 6,
    Keys = 7,
    History = 8,
    Tombstones = 9,
    Counters = 10,
    Windows = 11,
    Policies = 12,
    Queues = 13,
    Kinds = 14,
    Damaged = 15,
    Pauses = 16,
    EffectTables = 17,
    EffectRows = 18,
    Cohorts = 19,
    CohortMembers = 20,
    Order = 21,
    Amendments = 22,
    Removals = 23,
    Effects = 24,
    Imports = 25,
    Outbox = 26,
}

/// One table.
#[derive(Debug)]
pub(crate) struct TableRow {
    pub(crate) id: TableId,
    pub(crate) name: &'static str,
    /// The key's layout, as the format document has it.
    #[cfg_attr(not(test), expect(dead_code, reason = "compared with the format document"))]
    pub(crate) key: &'static str,
}

pub(crate) const TABLES: [TableRow; 27] = [
    row(TableId::Meta, "redrive/meta", "name"),
    row(TableId::Jobs, "redrive/jobs", "job u64"),
    row(TableId::Payloads, "redrive/payloads", "job u64"),
    row(
        TableId::Ready,
        "redrive/ready",
        "queue u32, kind u32, lane u8, 255 - priority u8, sequence u64",
    ),
    row(TableId::Delayed, "redrive/delayed", "due u64, job u64"),
    row(TableId::Leased, "redrive/leased", "deadline u64, job u64"),
    row(TableId::Dead, "redrive/dead", "queue u32, kind u32, died u64, job u64"),
    row(TableId::Keys, "redrive/keys", "queue u32, key bytes"),
    row(TableId::History, "redrive/history", "job u64, entry u32"),
    row(TableId::Tombstones, "redrive/tombstones", "until u64, first job u64"),
    row(TableId::Counters, "redrive/counters", "queue u32, kind u32; empty for the store itself"),
    row(TableId::Windows, "redrive/windows", "queue u32, kind u32, minute u64"),
    row(TableId::Policies, "redrive/policies", "policy u32"),
    row(TableId::Queues, "redrive/queues", "queue u32"),
    row(TableId::Kinds, "redrive/kinds", "kind u32"),
    row(TableId::Damaged, "redrive/damaged", "table u8, key bytes"),
    row(TableId::Pauses, "redrive/pauses", "what u8, queue u32, kind u32; as far as it names them"),
    row(TableId::EffectTables, "redrive/effect_tables", "name"),
    row(TableId::EffectRows, "redrive/effect_rows", "table u32, key bytes"),
    row(TableId::Cohorts, "redrive/cohorts", "cohort u64, part u8"),
    row(TableId::CohortMembers, "redrive/cohort_members", "cohort u64, job u64"),
    row(
        TableId::Order,
        "redrive/order",
        "queue u32, ordering key, 0 u8, 0 holds or 1 waits u8, job u64",
    ),
    row(TableId::Amendments, "redrive/amendments", "job u64"),
    row(TableId::Removals, "redrive/removals", "number u64"),
    row(TableId::Effects, "redrive/effects", "job u64, step name"),
    row(TableId::Imports, "redrive/imports", "16 bytes"),
    row(TableId::Outbox, "redrive/outbox", "queue u32, sequence u64"),
];

const fn row(id: TableId, name: &'static str, key: &'static str) -> TableRow {
    TableRow { id, name, key }
}

impl TableId {
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    pub(crate) const fn place(self) -> usize {
        self as usize
    }

    pub(crate) fn name(self) -> &'static str {
        // The table list is in the order of the numbers, which a test checks.
        TABLES.get(self.place()).map_or("", |row| row.name)
    }

    pub(crate) fn definition(self) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
        TableDefinition::new(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_listed_in_the_order_of_their_numbers() {
        for (place, row) in TABLES.iter().enumerate() {
            assert_eq!(row.id.place(), place);
            assert_eq!(row.id.name(), row.name);
        }
    }

    /// `docs/format.md` lists exactly these tables, with these keys.
    #[test]
    fn the_format_document_lists_the_same_tables() {
        let document = include_str!("../../docs/format.md");
        let table_list = document.split("## Values").next().unwrap();
        let listed: Vec<(u8, &str, &str)> = table_list
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
                let number = cells.next()?.parse().ok()?;
                Some((number, cells.next()?.trim_matches('`'), cells.next()?.trim_matches('`')))
            })
            .collect();
        let defined: Vec<(u8, &str, &str)> =
            TABLES.iter().map(|row| (row.id.number(), row.name, row.key)).collect();
        assert_eq!(listed, defined);
    }
}

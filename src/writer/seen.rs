//! Which kinds somebody in this process has claimed: what a job that is not claimed is asked about.

use std::collections::{BTreeSet, HashMap};

use crate::domain::id::{KindId, QueueId};
use crate::domain::time::Timestamp;
use crate::writer::batch::Batch;
use crate::writer::command::Request;

/// The claims from each queue since the opening. Bounded by the names that the file knows.
#[derive(Default)]
pub(super) struct Seen(HashMap<QueueId, Claims>);

struct Claims {
    at: Timestamp,
    /// Of any kind.
    any: bool,
    kinds: BTreeSet<KindId>,
    /// The kinds of the last one, and how many names there were: most claims ask for the same again.
    last: (Option<Vec<String>>, usize),
}

/// What is known of claims from a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimFacts {
    /// When the last one came, since the opening.
    pub(crate) last: Option<Timestamp>,
    /// Whether the kind in question was asked for.
    pub(crate) handled: bool,
    /// How many claims wait for such a job.
    pub(crate) waiting: u64,
}

impl Batch<'_, '_> {
    /// Notes which kinds a claim asks for.
    pub(super) fn note_claim(&mut self, request: &Request) {
        let core = &mut *self.core;
        let Some(queue) = core.registry.queue_id(&request.queue) else { return };
        let now = self.time.now;
        let names = core.registry.kind_count();
        let claims = core.seen.0.entry(queue).or_insert_with(|| Claims {
            at: now,
            any: false,
            kinds: BTreeSet::new(),
            last: (None, usize::MAX),
        });
        claims.at = now;
        if claims.last.1 == names && claims.last.0 == request.kinds {
            return;
        }
        match &request.kinds {
            None => claims.any = true,
            Some(kinds) => {
                let known = kinds.iter().filter_map(|kind| core.registry.kind_id(kind));
                claims.kinds.extend(known);
            }
        }
        claims.last = (request.kinds.clone(), names);
    }

    /// What is known of claims that a job of this queue and kind would satisfy.
    pub(super) fn claim_facts(&self, queue: &str, kind: &str) -> ClaimFacts {
        let registry = &self.core.registry;
        let takes = |request: &&Request| {
            request.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|one| one == kind))
        };
        let waiting = self.core.waiting.iter().map(|claim| &claim.request);
        let mut waiting = waiting.filter(|request| request.queue == queue).peekable();
        // One that waits may have come before its queue.
        let waits = waiting.peek().map(|_| self.time.now);
        let waiting = waiting.filter(takes).count();
        let claims = registry.queue_id(queue).and_then(|queue| self.core.seen.0.get(&queue));
        let asked = claims.is_some_and(|claims| {
            claims.any || registry.kind_id(kind).is_some_and(|kind| claims.kinds.contains(&kind))
        });
        ClaimFacts {
            last: claims.map(|claims| claims.at).max(waits),
            handled: asked || waiting > 0,
            waiting: u64::try_from(waiting).unwrap_or(u64::MAX),
        }
    }
}

//! Which kinds somebody in this process has claimed: what a job that is not claimed is asked about.

use std::collections::{BTreeSet, HashMap};

use crate::domain::id::{KindId, QueueId};
use crate::domain::time::Timestamp;
use crate::writer::batch::Batch;
use crate::writer::command::{Reconciles, Request};
use crate::writer::registry::Registry;

/// The claims from each queue since the opening. Bounded by the names that the file knows.
#[derive(Default)]
pub(super) struct Seen(HashMap<QueueId, Claims>);

struct Claims {
    at: Timestamp,
    handled: Asked,
    reconciled: Asked,
    /// The kinds of the last one, and how many names there were: most claims ask for the same again.
    last: Option<(Option<Vec<String>>, Reconciles, usize)>,
}

/// What claims have asked for.
#[derive(Default)]
struct Asked {
    any: bool,
    kinds: BTreeSet<KindId>,
}

/// What is known of claims from a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimFacts {
    /// When the last one came, since the opening.
    pub(crate) last: Option<Timestamp>,
    /// Whether the kind in question was asked for.
    pub(crate) handled: bool,
    /// Whether somebody has a reconciler for it.
    pub(crate) reconciled: bool,
}

impl Asked {
    fn note(&mut self, kinds: Option<&[String]>, registry: &Registry) {
        match kinds {
            None => self.any = true,
            Some(kinds) => {
                self.kinds.extend(kinds.iter().filter_map(|kind| registry.kind_id(kind)));
            }
        }
    }

    fn covers(&self, kind: Option<KindId>) -> bool {
        self.any || kind.is_some_and(|kind| self.kinds.contains(&kind))
    }
}

impl Request {
    /// The kinds that it has reconcilers for; `None` is any.
    fn reconciled(&self) -> Option<&[String]> {
        match &self.reconciles {
            Reconciles::Any => None,
            Reconciles::Kinds(kinds) => Some(kinds),
        }
    }
}

impl Batch<'_, '_> {
    /// Notes which kinds a claim asks for.
    pub(super) fn note_claim(&mut self, request: &Request) {
        let core = &mut *self.core;
        let registry = &core.registry;
        let Some(queue) = registry.queue_id(&request.queue) else { return };
        let now = self.time.now;
        let names = registry.kind_count();
        let claims = core.seen.0.entry(queue).or_insert_with(|| Claims {
            at: now,
            handled: Asked::default(),
            reconciled: Asked::default(),
            last: None,
        });
        claims.at = now;
        let same = |last: &(Option<Vec<String>>, Reconciles, usize)| {
            last.0 == request.kinds && last.1 == request.reconciles && last.2 == names
        };
        if claims.last.as_ref().is_some_and(same) {
            return;
        }
        claims.handled.note(request.kinds.as_deref(), registry);
        claims.reconciled.note(request.reconciled(), registry);
        claims.last = Some((request.kinds.clone(), request.reconciles.clone(), names));
    }

    /// What is known of claims that a job of this queue and kind would satisfy.
    pub(super) fn claim_facts(&self, queue: &str, kind: &str) -> ClaimFacts {
        let registry = &self.core.registry;
        let claims = registry.queue_id(queue).and_then(|queue| self.core.seen.0.get(&queue));
        let id = registry.kind_id(kind);
        let mut facts = ClaimFacts {
            last: claims.map(|claims| claims.at),
            handled: claims.is_some_and(|claims| claims.handled.covers(id)),
            reconciled: claims.is_some_and(|claims| claims.reconciled.covers(id)),
        };
        // One that waits may have come before its queue or its kind.
        let waiting = self.core.waiting.iter().map(|claim| &claim.request);
        for request in waiting.filter(|request| request.queue == queue) {
            let names = |kinds: Option<&[String]>| {
                kinds.is_none_or(|kinds| kinds.iter().any(|one| one == kind))
            };
            facts.last = Some(self.time.now);
            facts.handled |= names(request.kinds.as_deref());
            facts.reconciled |= names(request.reconciled());
        }
        facts
    }
}

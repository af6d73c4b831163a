//! P9: the quarantine can be read, page by page, with its evidence.

use redrive::{ClaimRequest, Failure, FailureClass, JobId, NewJob, Redrive};

#[test]
fn p9_pages_of_dead_jobs_hold_each_once_with_its_evidence() {
    let dir = tempfile::tempdir().unwrap();
    let jobs = Redrive::open(dir.path().join("jobs.redb")).unwrap();
    for number in 0..7 {
        let queue = if number % 2 == 0 { "even" } else { "odd" };
        jobs.enqueue(NewJob::new(queue, "k").key(format!("key-{number}"))).unwrap();
        for lease in jobs.claim(ClaimRequest::new(queue)).unwrap() {
            lease.fail(Failure::permanent("E_BAD").message("no good")).unwrap();
        }
    }
    jobs.enqueue(NewJob::new("even", "k")).unwrap();

    let ids = |queue: Option<&str>, limit: usize| -> Vec<JobId> {
        let mut ids = Vec::new();
        let mut page = jobs.dead_page(queue, None, limit).unwrap();
        while let Some(found) = page {
            assert!(found.jobs.len() <= limit && found.unreadable.is_empty());
            for job in &found.jobs {
                let dead = job.dead.as_ref().unwrap();
                assert_eq!(dead.class, FailureClass::Permanent);
                assert_eq!((dead.code.as_str(), dead.message.as_str()), ("E_BAD", "no good"));
                assert!(queue.is_none_or(|name| name == job.queue), "{job:?}");
                ids.push(job.id);
            }
            page = jobs.dead_page(queue, Some(&found), limit).unwrap();
        }
        ids
    };
    let all = ids(None, 100);
    assert_eq!(all.len(), 7);
    for limit in 1..=8 {
        assert_eq!(ids(None, limit), all, "pages of {limit}");
    }
    assert_eq!((ids(Some("even"), 2).len(), ids(Some("odd"), 2).len()), (4, 3));
    assert_eq!((ids(Some("none"), 2), ids(None, 0)), (vec![], vec![]));
}

use redrive::*;
use std::time::{Duration, Instant};
#[test]
fn smoke() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.redb");
    let jobs = Redrive::open(&path).unwrap();
    for i in 0..100 {
        let r = jobs
            .enqueue(
                NewJob::new("q", "k")
                    .bytes(format!("p{i}"))
                    .key(format!("k{i}")),
            )
            .unwrap();
        assert!(matches!(r, Enqueued::New(_)));
    }
    let mut n = 0;
    let t = Instant::now();
    let mut leases = jobs.claim(ClaimRequest::new("q")).unwrap();
    while let Some(l) = leases.pop() {
        n += 1;
        let (a, b) = l.complete_then_claim(ClaimRequest::new("q"));
        a.unwrap();
        leases = b.unwrap();
    }
    eprintln!("{n} in {:?}", t.elapsed());
    assert_eq!(n, 100);
    let v = jobs.verify().unwrap();
    assert!(v.is_clean(), "{v:?}");
    let s = jobs.stats().unwrap();
    assert_eq!((s.total.done, s.total.residual), (100, 0));
    let j2 = jobs.clone();
    let h = std::thread::spawn(move || {
        j2.claim(ClaimRequest::new("z").wait(Duration::from_secs(10)))
            .unwrap()
            .len()
    });
    std::thread::sleep(Duration::from_millis(50));
    jobs.enqueue(NewJob::new("z", "k")).unwrap();
    assert_eq!(h.join().unwrap(), 1);
    jobs.close().unwrap();
    assert!(Redrive::open(&path).unwrap().stats().unwrap().queues["z"].kinds["k"].ready == 1);
}

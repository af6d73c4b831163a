use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn rules(rule: Abort) -> Aborts {
    let mut rules = Aborts::default();
    rules.set(rule);
    rules
}

/// O-13: a share is not judged before there are enough results, and then at once.
#[test]
fn o_13_a_share_of_deaths_stops_once_there_are_enough_results() {
    let rules = rules(Abort::dead_share(0.5));
    let mut watch = Watch::default();
    for result in 1..=10 {
        assert_eq!(watch.look(&rules, Weather::default(), at(0)), None, "before result {result}");
        watch.result(result % 2 == 0, false);
    }
    let why = watch.look(&rules, Weather::default(), at(0));
    assert_eq!(why, Some(AbortReason::DeadShare { died: 5, results: 10 }));
    for _ in 0..91 {
        watch.result(false, false);
    }
    // The early deaths have left the window.
    assert_eq!(watch.look(&rules, Weather::default(), at(0)), None);
}

#[test]
fn a_returning_cause_is_counted_among_the_latest_results() {
    let rules = rules(Abort::SameCause { times: 2, results_last: 3 });
    let mut watch = Watch::default();
    for (same, stops) in
        [(true, false), (false, false), (false, false), (true, false), (false, false), (true, true)]
    {
        watch.result(true, same);
        let why = watch.look(&rules, Weather::default(), at(0));
        assert_eq!(why.is_some(), stops, "{watch:?}");
    }
}

#[test]
fn a_ready_job_must_be_too_old_for_the_whole_window() {
    let rules = rules(Abort::ReadyAge { age_ms: 60_000, window_ms: 30_000 });
    let mut watch = Watch::default();
    let mut look = |ready_ms, now| {
        watch.look(&rules, Weather { ready_ms, ..Weather::default() }, at(now)).is_some()
    };
    assert!(!look(60_001, 0));
    assert!(!look(60_000, 10_000), "it came down in between");
    assert!(!look(60_001, 20_000));
    assert!(!look(90_000, 49_999));
    assert!(look(90_001, 50_000));
}

proptest! {
    /// Whatever the pace, at least half a window and at most a whole one is looked back on, when
    /// somebody looks twice in it.
    #[test]
    fn trends_look_back_over_half_a_window_to_a_whole_one(
        moves in prop::collection::vec((1..=25u64, 0..5u64), 1..60),
    ) {
        const WINDOW: u64 = 100;
        let mut trend = Trend::default();
        let mut seen = vec![(0, 0)];
        trend.look(at(0), 0, WINDOW);
        let (mut now, mut count) = (0, 0);
        for (ms, more) in moves {
            now += ms;
            count += more;
            let found = trend.look(at(now), count, WINDOW);
            seen.push((now, count));
            // What has come since the first look that is no longer ago than that.
            let since = |ms: u64| {
                let first = seen.iter().find(|(at, _)| at + ms >= now);
                count - first.map_or(count, |first| first.1)
            };
            prop_assert!(found >= since(WINDOW / 2), "{found} {seen:?}");
            prop_assert!(found <= since(WINDOW), "{found} {seen:?}");
        }
    }
}

#[test]
fn a_trend_says_nothing_about_a_time_in_which_nobody_looked() {
    let rules = rules(Abort::growth(5, Duration::from_secs(60)));
    let mut watch = Watch::default();
    let mut look = |died, now| watch.look(&rules, Weather { died, ..Weather::default() }, at(now));
    assert_eq!(look(100, 0), None, "what died before is no growth");
    assert_eq!(look(105, 20_000), None);
    assert_eq!(look(106, 40_000), Some(AbortReason::Growth { jobs: 6 }));
    assert_eq!(look(200, 200_000), None, "the store was closed");
    assert_eq!(look(206, 210_000), Some(AbortReason::Growth { jobs: 6 }));
}

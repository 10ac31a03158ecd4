//! What owners say.

use super::*;

#[test]
fn a_word_is_its_owner_s_is_kept_and_is_shown_to_nobody_else() {
    let parent = tempfile::tempdir().unwrap();
    let settings = settings::History { dir: parent.path().to_owned(), ..settings::History::default() };
    let mut host = host(Watch::open(&settings, Path::new("/proc")));
    let ask = WatchAsk::Feedback { tenant: "ada".into(), said: Feedback::Slow };
    let refused = host.ask(user(1001, "eve"), ask.clone());
    assert!(matches!(refused, Err(Refusal::NotYours { .. })), "{refused:?}");
    let Ok(Answer::Heard(heard)) = host.ask(user(1000, "ada"), ask) else { panic!("it is hers") };
    let Heard { said, weight, is_kept, .. } = *heard;
    assert!(said == Feedback::Slow && weight > 1.0 && is_kept);
    let mood = |host: &mut Host, caller| host.ask(caller, WatchAsk::Mood { tenant: "ada".into() });
    let Ok(Answer::Mood(told)) = mood(&mut host, user(1000, "ada")) else { panic!("it is hers") };
    assert!((told.weight - weight).abs() < 1e-3 && told.mood < 0.0, "{told:?}");
    let refused = mood(&mut host, user(1001, "eve"));
    assert!(matches!(refused, Err(Refusal::NotYours { .. })), "{refused:?}");
    host.watch.writer.as_ref().unwrap().flush();
    let seen = |caller: Caller| {
        let query = SeriesQuery { metric: Some(Metric::Feedback), ..SeriesQuery::default() };
        let dir = parent.path().join(DIR);
        berth_store::series::read(&dir, &query, &|key| key.is_visible_to(&caller)).unwrap().lines.len()
    };
    assert_eq!((seen(user(1000, "ada")), seen(user(1001, "eve")), seen(user(0, "root"))), (1, 0, 1));
}

#[test]
fn one_who_says_it_without_end_is_told_to_wait_and_fills_no_store() {
    let parent = tempfile::tempdir().unwrap();
    let settings = settings::History { dir: parent.path().to_owned(), ..settings::History::default() };
    let mut host = host(Watch::open(&settings, Path::new("/proc")));
    let say = |host: &mut Host, caller, tenant: &str| {
        host.ask(caller, WatchAsk::Feedback { tenant: tenant.into(), said: Feedback::Slow })
    };
    let said = (0..1_000).map(|_| u64::from(say(&mut host, user(1000, "ada"), "ada").is_ok())).sum::<u64>();
    let refused = say(&mut host, user(1000, "ada"), "ada");
    assert!(said <= 30 && matches!(refused, Err(Refusal::SaidTooOften { .. })), "{said}: {refused:?}");
    say(&mut host, user(1001, "eve"), "eve").unwrap();
    say(&mut host, user(0, "root"), "ada").unwrap();
    host.watch.writer.as_ref().unwrap().flush();
    let query = SeriesQuery { metric: Some(Metric::Feedback), ..SeriesQuery::default() };
    let told = berth_store::series::read(&parent.path().join(DIR), &query, &|_| true).unwrap();
    assert_eq!(told.lines.iter().flat_map(|line| &line.values).map(|value| value.count).sum::<u64>(), said + 2);
}

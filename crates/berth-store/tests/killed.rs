//! A process that writes figures is killed at any instant, over and over: each value that was with the kernel is there once.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use berth_model::TenantKey;
use berth_model::watch::series::{Key, Metric, Of, Owner, SeriesQuery};
use berth_store::series::{Limits, Series, read};

const DIR: &str = "BERTH_TEST_SERIES_DIR";
const FROM: &str = "BERTH_TEST_SERIES_FROM";
const KILLS: u64 = 25;

fn key() -> Key {
    let of = Of::tenant(TenantKey::User { uid: 7 }, "ada", Owner::new(None, vec![Some(7)]));
    Key { of, gpu: None, metric: Metric::CorePct }
}

/// Small segments that get old at once: most kills come while something is rewritten or removed.
fn limits() -> Limits {
    Limits {
        segment_bytes: 400,
        segment_ms: 60_000,
        points_ms: 60_000,
        minutes_ms: 600_000,
        keep_ms: i64::MAX,
        most_bytes: u64::MAX,
        ..Limits::default()
    }
}

/// Values count up, one a second; each number that was written is said.
#[test]
fn writes_until_it_is_killed() {
    let (Some(dir), Ok(from)) = (std::env::var_os(DIR), std::env::var(FROM)) else {
        eprintln!("this is the process that the other test kills");
        return;
    };
    let series = Series::open(&PathBuf::from(dir), limits(), Path::new("/proc")).unwrap();
    let writer = series.writer();
    for number in from.parse::<u32>().unwrap().. {
        writer.write(i64::from(number) * 1_000, vec![(key(), f64::from(number))]);
        writer.flush();
        assert_eq!(writer.health().lost, 0);
        println!("wrote {number}");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn a_writer_that_is_killed_over_and_over_loses_and_doubles_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("series");
    let mut next = 0_u32;
    for round in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writes_until_it_is_killed", "--nocapture"])
            .env(DIR, &dir)
            .env(FROM, next.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // At some instant of some value, another in each round.
        let enough = u32::try_from(40 + round * 7 % 60).unwrap();
        let mut told = None;
        for line in lines {
            let line = line.unwrap();
            let Some(number) = line.split("wrote ").nth(1) else { continue };
            told = Some(number.parse::<u32>().unwrap());
            if told == Some(next + enough) {
                std::thread::sleep(Duration::from_micros(round * 37 % 500));
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let told = told.expect("it has written something");
        let found = read(&dir, &SeriesQuery::default(), &|_| true).unwrap();
        assert_eq!(found.damaged, 0, "round {round}");
        let values = || found.lines.iter().flat_map(|line| &line.values);
        let count: u64 = values().map(|value| value.count).sum();
        let sum: f64 = values().map(|value| value.sum).sum();
        let least = u64::from(told) + 1;
        assert!(count == least || count == least + 1, "round {round}: {count} values, {least} were written");
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let expected = (count * (count - 1) / 2) as f64;
        assert!((sum - expected).abs() < 1e-6, "round {round}: the sum is {sum} and not {expected}");
        next = u32::try_from(count).unwrap();
    }
    let coarse = std::fs::read_dir(&dir).unwrap().filter(|one| {
        let name = one.as_ref().unwrap().file_name().into_string().unwrap();
        name.contains(".minutes.") || name.contains(".hours.")
    });
    assert!(coarse.count() > 5, "values were put together meanwhile");
}

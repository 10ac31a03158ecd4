//! `prioritize`: which of the nodes that are left is best.

use berth_model::time::Mono;
use berth_policy::nodes::Verdict;

use super::ask::{keep, names, verdicts};
use super::lately::Lately;
use super::types::{ExtenderArgs, HostPriority, MOST_PRIORITY};
use crate::placer::Book;

pub fn prioritize(book: &mut Book, lately: &mut Lately, args: &ExtenderArgs, now: Mono) -> Vec<HostPriority> {
    let names = names(args);
    let Ok(Some(wants)) = args.pod.wants() else {
        return names.into_iter().map(|host| HostPriority { host, score: 0 }).collect();
    };
    let request = wants.request();
    let found = args.pod.placement().and_then(|pod| lately.verdicts(book, pod, &request, &names, now));
    let verdicts = found.unwrap_or_else(|| verdicts(book, &args.pod, &request, &names, now));
    if let Some(best) = verdicts.first().and_then(|verdict| verdict.result.as_ref().ok()) {
        keep(book, &args.pod, &request, &best.choice, now);
    }
    priorities(&verdicts)
}

/// The best alone has the most, so that the scheduler, which draws lots among equals, takes the one whose place is kept. Others have by how far
/// they are behind it; those that would not take the pod have nothing.
fn priorities(verdicts: &[Verdict]) -> Vec<HostPriority> {
    let scores = || verdicts.iter().filter_map(|verdict| verdict.result.as_ref().ok()).map(|place| place.score);
    let (best, worst) = (scores().fold(f64::MIN, f64::max), scores().fold(f64::MAX, f64::min));
    let priority = |(at, verdict): (usize, &Verdict)| {
        let score = match &verdict.result {
            Ok(_) if at == 0 => MOST_PRIORITY,
            Ok(place) => scaled(place.score, worst, best),
            Err(_) => 0,
        };
        HostPriority { host: verdict.node.to_string(), score }
    };
    verdicts.iter().enumerate().map(priority).collect()
}

/// From 1 for the worst to one below the most for what is as good as the best.
fn scaled(score: f64, worst: f64, best: f64) -> i64 {
    let (least, most) = (1.0, MOST_PRIORITY as f64 - 1.0);
    let share = if best > worst { ((score - worst) / (best - worst)).clamp(0.0, 1.0) } else { 1.0 };
    #[expect(clippy::cast_possible_truncation, reason = "between 1 and 9; what is no number becomes 0")]
    let priority = (least + share * (most - least)).round() as i64;
    priority
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_model::cluster::{Choice, NotHere};
    use berth_policy::nodes::Place;
    use proptest::prelude::*;

    fn verdicts(scores: &[Option<f64>]) -> Vec<Verdict> {
        let verdict = |(at, score): (usize, &Option<f64>)| {
            let node: berth_model::cluster::NodeId = format!("n{at}").parse().unwrap();
            let choice = Choice { node: node.clone(), gpus: Vec::new() };
            Verdict { node, result: score.map(|score| Place { choice, score }).ok_or(NotHere::NoReport) }
        };
        scores.iter().enumerate().map(verdict).collect()
    }

    fn scores(of: &[Option<f64>]) -> Vec<i64> {
        priorities(&verdicts(of)).into_iter().map(|priority| priority.score).collect()
    }

    #[test]
    fn the_best_alone_has_the_most() {
        assert_eq!(scores(&[Some(5.0), Some(5.0), Some(3.0), Some(1.0), None]), [10, 9, 5, 1, 0]);
        assert_eq!(scores(&[Some(2.0)]), [10]);
        assert_eq!(scores(&[None]), [0]);
        assert_eq!(scores(&[]), [] as [i64; 0]);
    }

    proptest! {
        #[test]
        fn a_better_node_never_has_less(mut of in proptest::collection::vec(-1e300..1e300f64, 1..20)) {
            of.sort_by(|a, b| b.total_cmp(a));
            let scores = scores(&of.iter().copied().map(Some).collect::<Vec<_>>());
            prop_assert!(scores.is_sorted_by(|a, b| a >= b));
            prop_assert!(scores.iter().all(|score| (1..=MOST_PRIORITY).contains(score)));
        }
    }
}

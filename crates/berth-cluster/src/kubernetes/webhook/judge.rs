//! What is wrong with a pod, and what is odd about it.

use crate::kubernetes::RESOURCE;
use crate::kubernetes::annotations::{Asks, DEADLINE, GPUS_CHOSEN, TAKES, UNIT};
use crate::kubernetes::pod::Pod;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Judgement {
    /// It is refused for each of these.
    pub problems: Vec<String>,
    /// For whoever makes it to know.
    pub warnings: Vec<String>,
}

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<'a> {
    pub pod: &'a Pod,
    /// What it was before, where it is changed.
    pub old: Option<&'a Pod>,
    /// It is one, not a template of one.
    pub is_pod: bool,
    /// The placer writes it; `None` if nobody has said who that is.
    pub is_by_placer: Option<bool>,
}

pub(super) fn judge(case: Case<'_>) -> Judgement {
    let Case { pod, old, .. } = case;
    let mut judgement = Judgement::default();
    let unknown = pod.annotations.unknown().map(|name| format!("{name} means nothing to this version of berth"));
    judgement.warnings.extend(unknown);
    judgement.problems.extend(choice(case));
    match pod.wants() {
        // What was let through before does not keep it from being changed otherwise, such as when it ends.
        Err(_) if old.is_some_and(|old| old.annotations == pod.annotations) => {}
        Err(unread) => judgement.problems.extend(unread.0),
        Ok(wants) => {
            let asks = pod.annotations.asks().unwrap_or_default();
            if wants.is_none() && asks != Asks::default() {
                judgement.warnings.push(format!("no container requests {RESOURCE}: berth gives it no GPU"));
            }
            judgement.warnings.extend(odd(&asks));
        }
    }
    judgement
}

/// Which GPUs a pod gets is the placer's to say. Who has been left to say so stays as it is: an object with a choice of somebody else's can
/// still be changed otherwise, and deleted.
fn choice(Case { pod, old, is_pod, is_by_placer }: Case<'_>) -> Option<String> {
    let chosen = pod.annotations.get(GPUS_CHOSEN);
    let before = old.and_then(|old| old.annotations.get(GPUS_CHOSEN));
    let is_left_alone = chosen == before;
    let is_right = match (is_by_placer, old) {
        (Some(true), Some(_)) => true,
        // Nobody can tell the placer from others: once it is bound, what was chosen stays.
        (None, Some(old)) if is_pod => is_left_alone || old.node.is_none() || before.is_none(),
        _ => is_left_alone,
    };
    (!is_right).then(|| format!("{GPUS_CHOSEN}: the placer writes it; leave it alone"))
}

fn odd(asks: &Asks) -> Option<String> {
    match (asks.deadline, asks.takes) {
        (Some(deadline), Some(takes)) if takes > deadline => {
            Some(format!("{TAKES} of {takes} is more than {DEADLINE} of {deadline}: no node can meet it"))
        }
        (None, _) if asks.unit.is_some() => Some(format!("{UNIT} has no effect without {DEADLINE}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(annotations: Value, node: Option<&str>) -> Pod {
        let containers = json!([{"resources": {"requests": {"berth.dev/gpu": "1"}}}]);
        let object =
            json!({"metadata": {"annotations": annotations}, "spec": {"nodeName": node, "containers": containers}});
        serde_json::from_value(object).unwrap()
    }

    fn made(pod: &Pod) -> Judgement {
        judge(Case { pod, old: None, is_pod: true, is_by_placer: Some(false) })
    }

    fn changed(pod: &Pod, old: &Pod) -> Judgement {
        judge(Case { pod, old: Some(old), is_pod: true, is_by_placer: Some(false) })
    }

    #[test]
    fn nobody_but_the_placer_says_which_gpus() {
        let chosen = |gpus: &str, node| pod(json!({"berth.dev/gpus-chosen": gpus}), node);
        let without = |node| pod(json!({}), node);
        let is_refused = |pod: &Pod, old: Option<&Pod>, is_by_placer| {
            !judge(Case { pod, old, is_pod: true, is_by_placer }).problems.is_empty()
        };
        for by in [Some(true), Some(false), None] {
            assert!(is_refused(&chosen("GPU-a", None), None, by), "made with a choice");
            let same = chosen("GPU-a", Some("n"));
            assert!(!is_refused(&same, Some(&same), by), "left as it is");
            let (before, after) = (chosen("GPU-a", Some("n")), chosen("GPU-b", Some("n")));
            assert_eq!(is_refused(&after, Some(&before), by), by != Some(true), "changed on its node");
            assert_eq!(is_refused(&without(Some("n")), Some(&before), by), by != Some(true), "taken away there");
            let late = is_refused(&after, Some(&without(Some("n"))), by);
            assert_eq!(late, by == Some(false), "written late");
            let early = is_refused(&chosen("GPU-a", None), Some(&without(None)), by);
            assert_eq!(early, by == Some(false), "before it is bound");
        }
    }

    #[test]
    fn a_template_that_has_a_choice_can_still_be_changed_otherwise() {
        let of = |gpus: &str| pod(json!({"berth.dev/gpus-chosen": gpus, "berth.dev/deadline": "9s"}), None);
        let is_refused = |pod: &Pod, old: Option<&Pod>| {
            !judge(Case { pod, old, is_pod: false, is_by_placer: None }).problems.is_empty()
        };
        assert!(is_refused(&of("GPU-a"), None));
        assert!(!is_refused(&of("GPU-a"), Some(&of("GPU-a"))));
        assert!(is_refused(&of("GPU-b"), Some(&of("GPU-a"))));
    }

    #[test]
    fn what_was_let_through_before_may_still_end() {
        let bad = pod(json!({"berth.dev/deadline": "abc"}), Some("n"));
        assert_eq!(changed(&bad, &bad), Judgement::default());
        assert!(!changed(&bad, &pod(json!({}), Some("n"))).problems.is_empty());
    }

    #[test]
    fn two_numbers_of_gpus_are_refused() {
        let told = made(&pod(json!({"berth.dev/gpus": "4"}), None)).problems;
        assert_eq!(told, ["berth.dev/gpus: it says 4, and its containers request 1 of berth.dev/gpu"]);
    }

    #[test]
    fn what_is_odd_is_told_and_let_through() {
        for (annotations, told) in [
            (json!({"berth.dev/deadlin": "9s"}), "berth.dev/deadlin means nothing"),
            (json!({"berth.dev/deadline": "1s", "berth.dev/takes": "2s"}), "no node can meet it"),
            (json!({"berth.dev/unit": "burst"}), "no effect"),
        ] {
            let Judgement { problems, warnings } = made(&pod(annotations, None));
            assert!(problems.is_empty() && warnings.iter().any(|warning| warning.contains(told)), "{warnings:?}");
        }
        let bare = json!({"metadata": {"annotations": {"berth.dev/deadline": "9s"}}});
        assert_eq!(
            made(&serde_json::from_value(bare).unwrap()).warnings,
            ["no container requests berth.dev/gpu: berth gives it no GPU"]
        );
    }
}

//! Those who are refused, and those who leave and come again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use berth_model::{Anchor, Monitor, Snapshot, settings};

use super::super::{Input, Kernels, Known, OnGpus, Terms};
use super::ms;
use super::stage::{Stage, tenant};
use crate::watch::Noticed;

/// The loop's side of this stage, and what it tells the other.
fn told_by(stage: &Stage) -> (Kernels, Receiver<Input>) {
    let (input_tx, inputs) = mpsc::channel();
    let shared = Arc::clone(&stage.shared);
    (Kernels { input_tx, shared, told: BTreeMap::new(), told_gpus: OnGpus::default(), thread: None }, inputs)
}

fn snapshot() -> Snapshot {
    let anchor = Anchor { mono: berth_model::Mono(0), wall: jiff::Timestamp::UNIX_EPOCH };
    Monitor::new(settings::Monitor::default()).snapshot(&anchor)
}

/// A turn of the loop, to which everybody takes part of whom it is asked.
fn turn(stage: &mut Stage, kernels: &mut Kernels, inputs: &Receiver<Input>) {
    let known = Known {
        terms: &|_| Terms { takes_part: Some(true), ..Terms::default() },
        is_held: &|_| false,
        noticed: &|_| Noticed { weight: 1.0, urged_by: vec![], is_misjudged: false },
        mps_servers: &[].into(),
    };
    kernels.attend(&snapshot(), &known);
    for input in inputs.try_iter() {
        if let Input::Tenant(tenant, standing) = input {
            stage.world.know(tenant, *standing, stage.now);
        }
    }
}

#[test]
fn who_leaves_and_attaches_again_between_two_turns_of_the_loop_is_told_of_like_a_newcomer() {
    let mut stage = Stage::start();
    let (mut kernels, inputs) = told_by(&stage);
    let first = stage.client_on("server", 0);
    turn(&mut stage, &mut kernels, &inputs);
    assert_eq!(stage.level().totals.attached, 1);
    stage.leave(vec![first]);
    let mut again = stage.client_on("server", 0);
    turn(&mut stage, &mut kernels, &inputs);
    assert_eq!(stage.level().totals.attached, 2);
    stage.pass(ms(6_000), &mut [&mut again]);
    assert!(!again.is_hung_up, "its tenant is known");
    turn(&mut stage, &mut kernels, &inputs);
    assert!(inputs.try_recv().is_err(), "nothing of it has changed since");
}

#[test]
fn who_was_refused_has_no_place_from_then_on() {
    let mut stage = Stage::start();
    stage.knows("unknown", &[], |standing| standing.takes_part = None);
    let attached: Vec<_> = (0..3).map(|_| stage.client_on("unknown", 0)).collect();
    let is_here = |stage: &Stage| stage.shared.lock().unwrap().tenants.contains_key(&tenant("unknown"));
    assert!(is_here(&stage));
    // Nobody has heard yet that they have hung up.
    stage.knows("unknown", &[], |standing| standing.takes_part = Some(false));
    assert!(!is_here(&stage));
    stage.leave(attached);
    assert_eq!(stage.level().totals.refused, 3);
}

//! Who has which part of the SMs, where processes compute side by side.

use std::sync::atomic::Ordering;

use berth_model::settings::KernelPolicyName;
use berth_proto::shim::{Sample, SampleKind};

use super::ms;
use super::stage::{Client, Stage};

/// One that computes through MPS and has work, which fills half of the GPU.
fn beside(stage: &mut Stage, name: &str, slo: &[(&str, &str)], divides: bool) -> Client {
    stage.knows(name, slo, |standing| standing.is_mps = true);
    stage.divides = divides;
    let client = stage.client_on(name, 0);
    client.works(true, stage.now);
    let sample = Sample {
        kind: SampleKind::Kernel,
        lane: 0,
        function: 1,
        blocks: 132,
        threads_per_block: 1_024,
        position: 1,
        took_ns: 100_000,
        estimated_ns: 100_000,
        at_ns: stage.now.0,
        sms: 0,
        blocks_per_sm: 2,
    };
    assert!((0..8).all(|place| client.ledger.samples[place].write(&sample)));
    client.ledger.sampled.store(8, Ordering::Release);
    client
}

/// Looks of so many at which each is confined to a part of the SMs.
fn confined(stage: &mut Stage, clients: &mut [&mut Client]) -> Vec<u32> {
    let mut looks = vec![0; clients.len()];
    stage.pass_while(ms(500), clients, |_, clients| {
        for (looks, client) in looks.iter_mut().zip(clients) {
            *looks += u32::from(client.lane().long_ns.load(Ordering::Relaxed) == 1);
        }
    });
    looks
}

#[test]
fn one_that_cannot_be_divided_keeps_nobody_from_it_in_whose_squads_it_is_not() {
    let mut stage = Stage::start();
    let [mut one, mut other] = ["one", "other"].map(|name| beside(&mut stage, name, &[], true));
    let alone = confined(&mut stage, &mut [&mut one, &mut other]);
    assert!(alone.iter().all(|looks| *looks > 250), "of 1,000: {alone:?}");
    let mut hostile = beside(&mut stage, "hostile", &[], false);
    hostile.works(false, stage.now);
    let idle = confined(&mut stage, &mut [&mut one, &mut other, &mut hostile]);
    assert!(idle[..2].iter().all(|looks| *looks > 250) && idle[2] == 0, "it has no work: {idle:?}");
    hostile.works(true, stage.now);
    let busy = confined(&mut stage, &mut [&mut one, &mut other, &mut hostile]);
    assert!(busy[..2].iter().all(|looks| *looks > 0) && busy[2] == 0, "while it stands in line: {busy:?}");
}

#[test]
fn nobody_is_confined_beside_one_that_cannot_be() {
    let looks = |divides, limits: &[(&str, &str)]| {
        let mut stage = Stage::start();
        let mut one = beside(&mut stage, "one", &[], true);
        let mut other = beside(&mut stage, "other", limits, divides);
        confined(&mut stage, &mut [&mut one, &mut other])
    };
    assert!(looks(true, &[]).iter().all(|looks| *looks > 250), "they would be");
    assert_eq!(looks(false, &[]), [0, 0]);
    assert_eq!(looks(false, &[("most", "50%")]), [0, 0], "nor is it told a limit that it does not keep");
}

#[test]
fn a_limit_on_sms_is_kept_by_one_beside_one_that_cannot_be_divided() {
    for policy in [KernelPolicyName::Hybrid, KernelPolicyName::Off] {
        let mut stage = Stage::start();
        stage.world.set_policy(None, policy, stage.now);
        let mut limited = beside(&mut stage, "limited", &[("most", "50%")], true);
        let mut hostile = beside(&mut stage, "hostile", &[], false);
        let looks = confined(&mut stage, &mut [&mut limited, &mut hostile]);
        assert!(looks[0] > 900 && looks[1] == 0, "of 1,000: {looks:?}");
    }
}

//! `auto`: programs with the library at work, and the daemon chooses the policy by what it measures, and says why.

use berth_model::Change;
use berth_model::kernels::AutoChoice;
use berth_model::settings::KernelPolicyName;
use serde_json::Value;

use super::daemon;
use super::programs::{Program, library};
use crate::support::{Daemon, Host, until};

fn choice(daemon: &Daemon) -> Option<AutoChoice> {
    daemon.snapshot().kernels?.auto.into_iter().next()
}

#[test]
fn auto_chooses_by_what_it_measures_says_why_and_gives_way_to_a_policy_that_is_named() {
    let Some(library) = library("auto_chooses_by_what_it_measures") else { return };
    let host = Host::start();
    let daemon = daemon(&host);
    let events = daemon.events();
    let server = Program::start(&host, &library, "server", &["serve", "--kernels", "10", "--kernel-us", "100"]);
    let trainer = Program::start(&host, &library, "trainer", &["train"]);
    daemon.berth(&["slo", "set", server.path(), "latency=p90:50ms"]).ok();
    assert!(choice(&daemon).is_none(), "a policy is named in the settings");
    let told = daemon.berth(&["policy", "auto"]).ok();
    assert!(told.starts_with("auto chooses who plans at the level of kernels now"), "{told}");
    let shown = until("what it begins with", || choice(&daemon));
    assert_eq!((shown.policy, shown.windows), (KernelPolicyName::Hybrid, 0), "{shown:?}");
    trainer.tell("go");
    server.tell("go 50 10");

    let tried = events.wait_for("another to be tried", |change| match change {
        Change::PolicyChosen(chosen) => Some(chosen.clone()),
        _ => None,
    });
    assert_eq!((tried.before, tried.is_try, tried.gpu.map(|gpu| gpu.0)), (KernelPolicyName::Hybrid, true, Some(0)));
    assert!(!tried.reason.is_empty() && tried.measured.len() == 1, "{tried:?}");
    assert!(tried.measured[0].benefit > 0.0, "two worked for a window: {tried:?}");
    let back = events.wait_for("the next choice", |change| match change {
        Change::PolicyChosen(chosen) if chosen.before == tried.policy => Some(chosen.clone()),
        _ => None,
    });
    assert_eq!(back.measured.len(), 2, "{back:?}");

    let shown = until("two windows", || choice(&daemon).filter(|choice| choice.windows >= 2));
    let latest = shown.latest.unwrap();
    assert!(latest.seconds >= 2.0 && latest.goodput > 0.0 && latest.goals_kept.is_some(), "{latest:?}");
    let told = daemon.berth(&["policy", "show"]).ok();
    assert!(told.contains("at the level of kernels: auto\n  GPU 0: ") && told.contains("goals kept"), "{told}");
    let told: Value = serde_json::from_str(&daemon.berth(&["policy", "show", "--json"]).ok()).unwrap();
    assert_eq!(told["kernels"]["policy"], "auto");
    assert!(told["kernels"]["auto"][0]["measured"].as_array().unwrap().len() >= 2, "{told}");
    let told = daemon.berth(&["explain", server.path()]).ok();
    assert!(told.contains("auto has "), "{told}");
    let measured = shown.windows;

    daemon.berth(&["policy", "set", "slo"]).ok();
    until("auto to be over", || choice(&daemon).is_none().then_some(()));
    assert_eq!(daemon.snapshot().kernels.unwrap().policy, KernelPolicyName::Slo);
    daemon.berth(&["policy", "set", "auto", "--gpu", "0"]).ok();
    let again = until("what it learned", || choice(&daemon));
    assert!(again.windows >= measured, "{again:?}");
    assert_eq!(daemon.snapshot().kernels.unwrap().policy, KernelPolicyName::Slo, "on the others");
    daemon.berth(&["policy", "set", "off", "--kernels"]).ok();
    assert!(server.served().requests > 0 && !trainer.trained().ended_ns.is_empty());
    server.end();
    trainer.end();
}

//! Asking about the level of kernels over a real socket.

use berth_model::control::{Answer, GivenSlo, KernelAsk, Refusal, SloStanding, What};
use berth_model::settings::KernelPolicyName;
use berth_model::{Slo, slo};
use serde_json::{Value, json};

use super::super::samples::{at, container, kernel_row};
use super::{answering, asked, code};
use crate::routes::{KernelPolicyRequest, paths};

pub(crate) fn standing() -> SloStanding {
    SloStanding {
        tenant: container(),
        name: "server".into(),
        counts: [("berth.slo.latency".to_owned(), "p99:10ms".to_owned())].into(),
        wrong: vec!["`berth.slo.weight=101`: write a whole number from 1 to 100".into()],
        given: Some(GivenSlo { by_uid: 7, at: at(1) }),
        is_durable: true,
        rows: vec![kernel_row()],
    }
}

#[tokio::test]
async fn goals_are_set_cleared_or_reset() {
    let tenant = || "server".to_owned();
    let latency = slo::Latency { percentile: "99%".parse().unwrap(), within: "10ms".parse().unwrap() };
    let goals = Slo { latency: Some(latency), ..Slo::default() };
    for (body, ask) in [
        (
            json!({"tenant": "server", "goals": {"latency": "p99:10ms"}}),
            KernelAsk::SetSlo { tenant: tenant(), slo: Box::new(goals) },
        ),
        (json!({"tenant": "server", "clear": true}), KernelAsk::SetSlo { tenant: tenant(), slo: Box::default() }),
        (json!({"tenant": "server", "reset": true}), KernelAsk::ResetSlo { tenant: tenant() }),
    ] {
        let (daemon, client) = answering(Ok(Answer::Slos(vec![standing()])));
        let told: SloStanding = client.post(paths::SLO, &body).await.unwrap();
        assert_eq!((told, asked(&daemon).what), (standing(), What::Kernels(ask)), "{body}");
    }
}

#[tokio::test]
async fn goals_that_are_wrong_are_refused_with_what_would_be_right_and_nobody_is_asked() {
    for (body, told) in [
        (json!({"tenant": "a"}), "one of `goals`"),
        (json!({"tenant": "a", "clear": true, "reset": true}), "one of `goals`"),
        (json!({"tenant": "a", "goals": {"latency": "10ms"}}), "write a percentile and a duration"),
        (json!({"tenant": "a", "goals": {"speed": "9"}}), "`berth.slo.speed` is not known"),
    ] {
        let (daemon, client) = answering(Ok(Answer::Slos(vec![standing()])));
        let error = client.post::<Value>(paths::SLO, &body).await.unwrap_err();
        assert!(code(&error) == "bad_request" && error.to_string().contains(told), "{error}");
        assert!(daemon.asked.asks.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn goals_are_asked_of_one_or_of_everybody() {
    for tenant in [None, Some("/a b&c")] {
        let (daemon, client) = answering(Ok(Answer::Slos(vec![standing()])));
        assert_eq!(client.slos(tenant).await.unwrap(), [standing()]);
        let ask = KernelAsk::ShowSlo { tenant: tenant.map(str::to_owned) };
        assert_eq!(asked(&daemon).what, What::Kernels(ask));
    }
}

#[tokio::test]
async fn a_policy_is_set_and_refused_where_nobody_takes_part() {
    let on = |gpu: Option<&str>| KernelPolicyRequest { policy: KernelPolicyName::Jct, gpu: gpu.map(str::to_owned) };
    for gpu in [None, Some("1")] {
        let (daemon, client) = answering(Ok(Answer::KernelPolicy(KernelPolicyName::Jct)));
        let told: KernelPolicyRequest = client.post(paths::KERNEL_POLICY, &on(gpu)).await.unwrap();
        let ask = KernelAsk::SetPolicy { policy: KernelPolicyName::Jct, gpu: gpu.map(str::to_owned) };
        assert_eq!((told, asked(&daemon).what), (on(gpu), What::Kernels(ask)));
    }
    let request = on(None);
    let (_daemon, client) = answering(Err(Refusal::NoKernels { reason: "off".into() }));
    let error = client.post::<KernelPolicyRequest>(paths::KERNEL_POLICY, &request).await.unwrap_err();
    assert_eq!(code(&error), "no_kernels");
}

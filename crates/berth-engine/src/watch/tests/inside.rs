//! What is noticed at the level of kernels.

use super::*;

/// Nobody has attached yet.
pub(super) fn with_kernels(snapshot: &mut Snapshot) {
    let totals = json!({"attached": 0, "refused": 0, "leads_lost": 0, "plans": 0});
    let level = json!({"policy": "slo", "gpu_policies": [], "rows": [], "totals": totals});
    snapshot.kernels = Some(serde_json::from_value(level).unwrap());
}

#[test]
fn who_asks_for_the_level_of_kernels_and_does_not_attach_is_told_so() {
    let mut host = host(Watch::default());
    assert_eq!(host.seconds(60, |_, _| ()), [], "nobody can attach here");
    let told = host.seconds(60, |snapshot, _| with_kernels(snapshot));
    let [Change::Found { name, kind: Kind::NotAttached, .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(name, "ada", "the other does not ask for it");
    let [finding] = &host.findings(user(1000, "ada"))[..] else { panic!("one finding") };
    assert!(finding.words.contains("berth run --kernel-level"), "{finding:?}");
}

/// `ada` as the level of kernels shows it: so long it had work, and for so long of that it might not run.
pub(super) fn kernels_of(uid: u32, wanted_seconds: f64, stopped_seconds: f64) -> KernelRow {
    let row = row(uid, "of kernels");
    KernelRow {
        tenant: row.tenant,
        name: row.container_name,
        gpu_index: Some(GPU),
        gpu_uuid: row.gpu_uuid.unwrap(),
        clients: 1,
        role: KernelRole::Equal,
        yields_to: vec![],
        is_busy: true,
        is_stopped: false,
        reason: None,
        chosen: None,
        urged_by: vec![],
        slo: berth_model::Slo::default(),
        unread_labels: vec![],
        attainment: None,
        lead_lost_until: None,
        served_seconds: wanted_seconds - stopped_seconds,
        wanted_seconds,
        stopped_seconds,
        kernel_kinds: 1,
        kernel_seconds: None,
        kernel_spread: None,
        longest_kernel_seconds: None,
        prediction_error: None,
        prediction_off: None,
        sm_share: None,
        confined_to_sms: None,
        slowed_by: vec![],
        memory: Default::default(),
        bandwidth_share: Some(0.25),
        requests: RequestFigures::default(),
        counters: KernelCounters::default(),
    }
}

#[test]
fn whose_kernels_are_not_let_run_starves_also_where_nobody_holds_it_and_by_turns_nobody_does() {
    let kinds = |stopped: f64| {
        let mut host = host(Watch::default());
        host.seconds(300, |snapshot, second| {
            let second = f64::from(u32::try_from(second).unwrap());
            with_kernels(snapshot);
            // The row of the task says nothing: the driver tells nobody apart.
            snapshot.tasks.iter_mut().for_each(|task| task.state = TaskState::Computing);
            let level = snapshot.kernels.as_mut().unwrap();
            level.rows = vec![kernels_of(1000, second, 0.5 * second), kernels_of(1001, second, stopped * second)];
        });
        host.findings(user(0, "root"))
    };
    assert_eq!(kinds(0.5), [], "they have turns");
    let told = kinds(0.98);
    let [found] = &told[..] else { panic!("{told:?}") };
    assert!(found.kind == Kind::Starvation && found.words.contains("its kernels"), "{found:?}");
}

#[test]
fn estimates_of_kernels_that_stay_off_are_told_once_something_was_measured_and_it_is_reckoned_with() {
    let play = |samples: u64| {
        let mut host = host(Watch::default());
        host.seconds(400, |snapshot, second| {
            with_kernels(snapshot);
            let off = if second < 200 { 0.01 * f64::from(u32::try_from(second % 5).unwrap()) } else { 0.7 };
            let counters = KernelCounters { samples: samples * second, ..KernelCounters::default() };
            let row = KernelRow { prediction_off: Some(off), counters, ..kernels_of(1000, 0.0, 0.0) };
            snapshot.kernels.as_mut().unwrap().rows = vec![row];
        });
        let ada = TenantKey::User { uid: 1000 };
        (host.findings(user(0, "root")), host.watch.noticed(&ada, host.now.mono).is_misjudged)
    };
    assert_eq!(play(0), (vec![], false), "the same figure over and over says nothing new");
    let (told, is_misjudged) = play(1);
    let [found] = &told[..] else { panic!("{told:?}") };
    assert!(found.kind == Kind::PredictorError && found.words.contains("kernels") && is_misjudged, "{found:?}");
}

//! Words for what happens at the level of kernels.

use berth_model::Bytes;
use berth_model::kernels::{
    AutoChoice, GpuWindow, KernelLevel, KernelNews, KernelRow, PolicyChosen, SlowedBy, WindowFigures,
};

pub fn news(name: &str, news: &KernelNews) -> String {
    match news {
        KernelNews::Joined => format!("{name}: its kernels are ordered now"),
        KernelNews::Left => format!("{name}: its kernels are no longer ordered"),
        KernelNews::Refused { reason } => format!("{name}: its kernels are not ordered any more: {reason}"),
        KernelNews::Parted { gpu, from } => {
            let place = gpu.map(|gpu| format!(" on GPU {gpu}")).unwrap_or_default();
            format!(
                "{name}: stood at a stop of {from} that was not let go of{place}; it yields to {from} no more, and has turns beside it"
            )
        }
        KernelNews::LeadLost { gpu, for_seconds } => {
            let place = gpu.map(|gpu| format!(" on GPU {gpu}")).unwrap_or_default();
            format!(
                "{name}: kept others stopped for more than its share{place}; nobody yields to it for {for_seconds} s"
            )
        }
    }
}

/// Which policy `auto` has put in place, and why.
pub fn chosen(chosen: &PolicyChosen) -> String {
    let gpu = chosen.gpu.map_or_else(|| chosen.gpu_uuid.to_string(), |gpu| format!("GPU {gpu}"));
    let PolicyChosen { policy, before, reason, .. } = chosen;
    format!("{gpu}: auto chose {} after {}: {reason}", policy.as_str(), before.as_str())
}

/// What `auto` has in place on a GPU, why, and what it measured of each policy, a line each.
fn choice(choice: &AutoChoice) -> Vec<String> {
    let gpu = choice.gpu_index.map_or_else(|| choice.gpu_uuid.to_string(), |gpu| format!("GPU {gpu}"));
    let tried = choice.instead_of.map(|instead| format!(" in place of {}", instead.as_str())).unwrap_or_default();
    let mut lines = vec![format!("{gpu}: {}{tried}: {}", choice.policy.as_str(), choice.reason)];
    lines.extend(choice.measured.iter().map(|one| {
        let (name, kept, ago) = (one.policy.as_str(), one.goals_kept * 100.0, one.windows_ago);
        format!("  {name:<6}  brought {:.2}, goals kept {kept:.0} %, in place {ago} windows ago", one.benefit)
    }));
    lines
}

/// What a tenant is among the others on a GPU.
pub fn role(row: &KernelRow) -> String {
    let to = if row.yields_to.is_empty() { String::new() } else { format!(" to {}", row.yields_to.join(", ")) };
    let lost = if row.lead_lost_until.is_some() { ", has lost its lead" } else { "" };
    format!("{}{to}{lost}", row.role.as_str())
}

/// Everybody who takes part, a line each; `None` while nobody does.
pub fn listed(level: &KernelLevel) -> Option<(String, Vec<String>)> {
    let lines: Vec<String> = level.rows.iter().map(line).collect();
    (!lines.is_empty()).then(|| (format!("Kernels ({}, policy {})", lines.len(), named(level)), lines))
}

/// Which policy plans, what `auto` has in place, and what came of it of late, a line each.
pub fn policies(level: &KernelLevel) -> Vec<String> {
    let first = format!("at the level of kernels: {}", named(level));
    let chosen = level.auto.iter().flat_map(choice);
    let lines = chosen.chain(level.windows.iter().map(came_to)).map(|line| format!("  {line}"));
    [first].into_iter().chain(lines).collect()
}

/// What the policy in place came to.
fn came_to(window: &GpuWindow) -> String {
    let gpu = window.gpu_index.map_or_else(|| window.gpu_uuid.to_string(), |gpu| format!("GPU {gpu}"));
    let WindowFigures { policy, seconds, goodput, goals_kept, fairness, slowdown, worst_finish, tenants, changing } =
        window.figures;
    let known = [
        goals_kept.map(|kept| format!("goals kept {:.0} %", kept * 100.0)),
        fairness.map(|fairness| format!("fairness {fairness:.2}")),
        slowdown.map(|slowdown| format!("slowdown {slowdown:.2}")),
        worst_finish.map(|worst| format!("worst finish {worst:.2} of a fair part's")),
        (changing >= 0.005).then(|| format!("{:.0} % wanted by those who came or went", changing * 100.0)),
    ];
    let known: String = known.into_iter().flatten().map(|one| format!(", {one}")).collect();
    format!("{gpu}: {}, {tenants} tenants, {seconds:.1} s: goodput {goodput:.2}{known}", policy.as_str())
}

/// The policy for all, and of GPUs that have their own.
fn named(level: &KernelLevel) -> String {
    let own = level.gpu_policies.iter().map(|one| {
        let gpu = one.gpu_index.map_or_else(|| one.gpu_uuid.to_string(), |gpu| gpu.to_string());
        format!(", {} on GPU {gpu}", one.policy.as_str())
    });
    level.policy.as_str().to_owned() + &own.collect::<String>()
}

/// How it is with one tenant on one GPU: for people who look at that tenant alone.
pub fn facts(row: &KernelRow) -> Vec<(&'static str, String)> {
    let goals = row.slo.to_labels();
    let goals = goals.iter().map(|(key, value)| format!("{}={value}", key.trim_start_matches("berth.slo.")));
    let goals = goals.collect::<Vec<_>>().join(" ");
    let kept = row.attainment.map(|share| {
        let target = 100.0 * row.slo.target().get();
        format!(", kept by {:.1} % of late, {target:.1} % wanted", share * 100.0)
    });
    let goals = format!("{}{}", if goals.is_empty() { "none" } else { &goals }, kept.unwrap_or_default());
    let gpu = row.gpu_index.map_or_else(|| row.gpu_uuid.to_string(), |gpu| format!("GPU {gpu}"));
    let why = row.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let mut facts = vec![("kernels", format!("{} on {gpu}{}{why}", role(row), doing(row))), ("goals", goals)];
    let urged: Vec<&str> = row.urged_by.iter().map(|kind| kind.as_str()).collect();
    let urged =
        (!urged.is_empty()).then(|| format!("counts for a quarter more while {} is found", urged.join(" and ")));
    facts.extend(urged.map(|urged| ("urgency", urged)));
    let slowed = |by: &SlowedBy| format!("{} (ρ {:.2} ± {:.2})", by.name, by.rho, by.error);
    let slowed: Vec<String> = row.slowed_by.iter().map(slowed).collect();
    facts.extend((!slowed.is_empty()).then(|| ("beside", format!("slowed by {}", slowed.join(", ")))));
    facts.extend(row.confined_to_sms.map(|sms| ("SMs", format!("confined to {sms} now"))));
    facts.extend(memory(row).map(|memory| ("memory", memory)));
    facts.extend(row.chosen.as_ref().map(|chosen| ("policy", format!("auto has {chosen}"))));
    facts
}

/// What became of the memory it has reserved; `None` if it has reserved none.
pub fn memory(row: &KernelRow) -> Option<String> {
    let reserved = row.slo.memory_reserve?;
    let gpu = row.gpu_index.map_or_else(|| row.gpu_uuid.to_string(), |gpu| format!("GPU {gpu}"));
    let reserved = reserved.stated().map_or_else(|| reserved.to_string(), |bytes| bytes.to_string());
    let (Some(kept), Some(missing)) = (row.memory.memory_kept_bytes, row.memory.memory_missing_bytes) else {
        return Some(format!(
            "of the {reserved} it has reserved on {gpu} nothing is kept: it is not known what is free"
        ));
    };
    let missing = match missing {
        Bytes(0) => String::new(),
        missing => format!(", and {missing} are missing: others have that memory, or had reserved before"),
    };
    Some(format!("of the {reserved} it has reserved on {gpu} {kept} are free and kept for it{missing}"))
}

fn doing(row: &KernelRow) -> &'static str {
    match (row.is_stopped, row.is_busy) {
        (true, _) => ", waits",
        (false, true) => ", computes",
        (false, false) => "",
    }
}

fn line(row: &KernelRow) -> String {
    let gpu = row.gpu_index.map_or_else(|| row.gpu_uuid.to_string(), |gpu| format!("GPU {gpu}"));
    let kept = row.attainment.map(|share| format!(", goals kept {:.1} %", share * 100.0)).unwrap_or_default();
    let doing = doing(row);
    let why = row.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} on {gpu}: {}{kept}{doing}{why}", row.name, role(row))
}

#[cfg(test)]
mod tests {
    use berth_model::kernels::{GpuPolicy, KernelRole, KernelTotals, PolicyFigures};
    use berth_model::settings::KernelPolicyName;
    use berth_model::watch::Kind;
    use berth_model::{GpuIndex, GpuUuid, Slo, TenantKey};

    use super::*;

    fn row(name: &str, role: KernelRole) -> KernelRow {
        KernelRow {
            tenant: TenantKey::User { uid: 7 },
            name: name.into(),
            gpu_index: Some(GpuIndex(0)),
            gpu_uuid: GpuUuid("GPU-0".into()),
            clients: 1,
            role,
            yields_to: vec![],
            is_busy: true,
            is_stopped: false,
            reason: None,
            chosen: None,
            urged_by: vec![],
            slo: Slo::default(),
            unread_labels: vec![],
            attainment: None,
            lead_lost_until: None,
            served_seconds: 0.0,
            wanted_seconds: 0.0,
            stopped_seconds: 0.0,
            kernel_kinds: 0,
            kernel_seconds: None,
            kernel_spread: None,
            longest_kernel_seconds: None,
            prediction_error: None,
            prediction_off: None,
            sm_share: None,
            bandwidth_share: None,
            confined_to_sms: None,
            slowed_by: vec![],
            memory: Default::default(),
            requests: Default::default(),
            counters: Default::default(),
        }
    }

    #[test]
    fn those_who_take_part_are_told_with_their_role_and_what_they_do() {
        let server = KernelRow { attainment: Some(0.9951), ..row("server", KernelRole::Leads) };
        let trainer = KernelRow {
            yields_to: vec!["server".into()],
            is_stopped: true,
            reason: Some("it yields to `server`, which has a goal".into()),
            ..row("trainer", KernelRole::Yields)
        };
        let level = |rows, gpu_policies| {
            let (policy, totals) = (KernelPolicyName::Slo, KernelTotals::default());
            KernelLevel { policy, gpu_policies, auto: vec![], windows: vec![], rows, totals }
        };
        let (title, lines) = listed(&level(vec![server, trainer], vec![])).unwrap();
        assert_eq!(title, "Kernels (2, policy slo)");
        assert_eq!(lines[0], "server on GPU 0: leads, goals kept 99.5 %, computes");
        let expected = "trainer on GPU 0: yields to server, waits: it yields to `server`, which has a goal";
        assert_eq!(lines[1], expected);
        assert_eq!(listed(&level(vec![], vec![])), None);
        let own = GpuPolicy {
            gpu_index: Some(GpuIndex(1)),
            gpu_uuid: GpuUuid("GPU-1".into()),
            policy: KernelPolicyName::Jct,
        };
        let (title, _) = listed(&level(vec![row("server", KernelRole::Alone)], vec![own])).unwrap();
        assert_eq!(title, "Kernels (1, policy slo, jct on GPU 1)");
    }

    #[test]
    fn what_auto_chose_is_told_with_its_reason_and_the_figures_of_each_policy() {
        let figures =
            |policy, benefit, goals_kept, windows_ago| PolicyFigures { policy, benefit, goals_kept, windows_ago };
        let (slo, hybrid) = (KernelPolicyName::Slo, KernelPolicyName::Hybrid);
        let choice = AutoChoice {
            gpu_index: Some(GpuIndex(0)),
            gpu_uuid: GpuUuid("GPU-0".into()),
            policy: slo,
            instead_of: None,
            reason: "it keeps 100 % of the goals, the one before kept 60 %".into(),
            since: None,
            windows: 9,
            measured: vec![figures(slo, 0.9, 1.0, 0), figures(hybrid, 1.1, 0.6, 3)],
            latest: None,
        };
        let seen = WindowFigures {
            policy: slo,
            seconds: 2.0,
            goodput: 0.9,
            goals_kept: Some(1.0),
            fairness: Some(0.95),
            slowdown: None,
            worst_finish: Some(1.25),
            tenants: 3,
            changing: 0.125,
        };
        let (gpu_index, gpu_uuid) = (Some(GpuIndex(0)), GpuUuid("GPU-0".into()));
        let window = GpuWindow { gpu_index, gpu_uuid, ended_at: jiff::Timestamp::UNIX_EPOCH, figures: seen };
        let (policy, totals) = (KernelPolicyName::Auto, KernelTotals::default());
        let level = KernelLevel {
            policy,
            gpu_policies: vec![],
            auto: vec![choice],
            windows: vec![window],
            rows: vec![],
            totals,
        };
        let told = [
            "at the level of kernels: auto",
            "  GPU 0: slo: it keeps 100 % of the goals, the one before kept 60 %",
            "    slo     brought 0.90, goals kept 100 %, in place 0 windows ago",
            "    hybrid  brought 1.10, goals kept 60 %, in place 3 windows ago",
            "  GPU 0: slo, 3 tenants, 2.0 s: goodput 0.90, goals kept 100 %, fairness 0.95, worst finish 1.25 of a fair part's, \
             12 % wanted by those who came or went",
        ];
        assert_eq!(policies(&level), told);
        let chosen = Some("slo: it keeps 100 % of the goals".to_owned());
        let (_, told) = facts(&KernelRow { chosen, ..row("server", KernelRole::Leads) })[2].clone();
        assert_eq!(told, "auto has slo: it keeps 100 % of the goals");
        let urged_by = vec![Kind::SloRisk, Kind::Starvation];
        let (_, told) = facts(&KernelRow { urged_by, ..row("server", KernelRole::Leads) })[2].clone();
        assert_eq!(told, "counts for a quarter more while slo_risk and starvation is found");
    }

    #[test]
    fn of_one_alone_its_goals_are_told_with_how_well_they_are_kept_and_are_to_be() {
        let latency = [("berth.slo.latency".to_owned(), "p99:10ms".to_owned())].into();
        let server = KernelRow {
            slo: Slo::from_labels(&latency).0,
            attainment: Some(0.9951),
            ..row("server", KernelRole::Leads)
        };
        let told = ["leads on GPU 0, computes", "latency=p99:10ms, kept by 99.5 % of late, 99.0 % wanted"];
        assert_eq!(facts(&server).iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), told);
        assert_eq!(facts(&row("trainer", KernelRole::Equal))[1].1, "none");
    }

    #[test]
    fn of_reserved_memory_it_is_told_what_is_kept_and_what_is_missing() {
        let labels = [("berth.slo.memory-reserve".to_owned(), "8GiB".to_owned())].into();
        let mut server = KernelRow { slo: Slo::from_labels(&labels).0, ..row("server", KernelRole::Alone) };
        let unknown = "of the 8.0 GiB it has reserved on GPU 0 nothing is kept: it is not known what is free";
        assert_eq!(memory(&server).as_deref(), Some(unknown));
        server.memory.memory_kept_bytes = Some(Bytes::from_mib(5 << 10));
        server.memory.memory_missing_bytes = Some(Bytes(0));
        let kept = "of the 8.0 GiB it has reserved on GPU 0 5.0 GiB are free and kept for it";
        assert_eq!(memory(&server).as_deref(), Some(kept));
        server.memory.memory_missing_bytes = Some(Bytes::from_mib(1 << 10));
        let missing = format!("{kept}, and 1.0 GiB are missing: others have that memory, or had reserved before");
        assert_eq!(facts(&server)[2], ("memory", missing));
        assert_eq!(memory(&row("trainer", KernelRole::Equal)), None);
        let slowed_by = vec![SlowedBy { name: "trainer".into(), rho: 0.25, error: 0.02, confidence: 0.9 }];
        let beside = KernelRow { slowed_by, confined_to_sms: Some(64), ..row("server", KernelRole::Equal) };
        assert_eq!(facts(&beside)[2].1, "slowed by trainer (ρ 0.25 ± 0.02)");
        assert_eq!(facts(&beside)[3].1, "confined to 64 now");
    }
}

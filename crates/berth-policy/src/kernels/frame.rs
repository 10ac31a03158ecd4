//! What all policies have in common: who is there, and how a choice becomes a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_model::settings::KernelSettings;
use berth_model::slo::{Constraints, Share};

use super::squad::{self, Choice};
use super::types::Long;
use super::{Client, ClientId, Member, Orders, Place, Plan, Reason, Scene, Squad, Yield};

/// A squad for one that has waited as long as anybody may lasts this part of others.
const BOUND_PART: u32 = 8;

/// So many of those that wait stand in line behind those that run.
pub const IN_LINE: usize = 7;

/// Those who want the GPU.
pub fn busy<'a>(scene: &Scene<'a>) -> impl Iterator<Item = &'a Client> {
    scene.clients.iter().filter(|client| client.busy)
}

/// The plan for a choice, of those who want the GPU in the policy's order, with those who may begin beside them. Who was chosen yields to nobody who wants the GPU now: those beside it are to run with it, and one that has to wait
/// would keep it stopped for nothing. It yields to those who may begin something.
pub fn plan(
    scene: &Scene<'_>,
    settings: &KernelSettings,
    choice: &Choice<'_>,
    welcome: &[&Client],
    ranked: &[&Client],
    yields: Vec<Yield>,
    mut reasons: Vec<(ClientId, Reason)>,
) -> Plan {
    let overdue = squad::overdue(scene, settings).map(|client| client.id);
    let is_chosen = |who: ClientId| choice.runners.iter().any(|runner| runner.client.id == who);
    let is_busy: BTreeSet<ClientId> = busy(scene).map(|client| client.id).collect();
    let holds = |link: &Yield| Some(link.who) != overdue && !(is_chosen(link.who) && is_busy.contains(&link.to));
    let mut yields: Vec<Yield> = yields.into_iter().filter(holds).collect();
    yields.sort_unstable();
    yields.dedup();
    // A turn that is given for the bound alone is a short one: whatever it gets done is done out of order.
    let lasts = if overdue.is_some() { settings.squad.get() / BOUND_PART } else { settings.squad.get() };
    let (mut members, division) = squad::members(scene, settings, choice, lasts);
    let nobody = choice.runners.is_empty();
    let lead: BTreeSet<ClientId> = yields.iter().map(|link| link.to).collect();
    let give_way: BTreeSet<ClientId> = yields.iter().map(|link| link.who).collect();
    // Whoever begins something others yield to does not wait for a plan; nor does anybody while the GPU is idle.
    let is_welcome = |client: &Client| welcome.iter().any(|other| other.id == client.id);
    let begins = |client: &&Client| !client.busy && (nobody || lead.contains(&client.id) || is_welcome(client));
    let waits_for_nobody = scene.clients.iter().filter(begins);
    members.extend(waits_for_nobody.map(|client| Member { who: client.id, part: None }));
    if let Some(who) = overdue {
        let waited = scene.clients.iter().find(|client| client.id == who).map(|client| client.waited(scene.now));
        reasons.retain(|(of, _)| *of != who);
        reasons.push((who, Reason::WaitedLongest { waited: waited.unwrap_or_default() }));
    }
    reasons.sort_by_key(|(who, _)| *who);
    let order = |client: &Client| {
        let (leads, gives_way) = (lead.contains(&client.id), give_way.contains(&client.id));
        (client.id, orders(scene, settings, client, leads, gives_way))
    };
    let mut orders: Vec<(ClientId, Orders)> = scene.clients.iter().map(order).collect();
    orders.sort_by_key(|(who, _)| *who);
    members.sort_by_key(|member| member.who);
    line_up(scene, choice, ranked, &members, &mut yields);
    let squad = Squad { members, division, until: scene.now + lasts };
    Plan { yields, orders, squad, reasons }
}

/// The next few that have to wait yield to those before them, so that each goes on the moment they are done: otherwise the GPU would have nothing to
/// do until the next plan. Whoever may come before that stands behind them: where nobody waits for the daemon's word, those that run need not look for it.
/// No link leads back to one that yields already.
fn line_up(scene: &Scene<'_>, choice: &Choice<'_>, ranked: &[&Client], members: &[Member], yields: &mut Vec<Yield>) {
    let mut before: Vec<ClientId> = choice.runners.iter().map(|runner| runner.client.id).collect();
    if before.is_empty() {
        return;
    }
    let mut coming: Vec<ClientId> =
        scene.clients.iter().filter(|client| !client.busy).map(|client| client.id).collect();
    coming.sort_unstable();
    let runs: BTreeSet<ClientId> = members.iter().map(|member| member.who).collect();
    let waits = |who: &ClientId| !runs.contains(who);
    let waiting: Vec<ClientId> = ranked.iter().map(|client| client.id).chain(coming).filter(waits).collect();
    let mut behind: BTreeMap<ClientId, Vec<ClientId>> = BTreeMap::new();
    yields.iter().for_each(|link| behind.entry(link.to).or_default().push(link.who));
    for who in waiting.into_iter().take(IN_LINE) {
        let follow = all_behind(&behind, who);
        for to in before.iter().filter(|to| !follow.contains(to)) {
            yields.push(Yield { who, to: *to });
            behind.entry(*to).or_default().push(who);
        }
        before.push(who);
    }
    yields.sort_unstable();
    yields.dedup();
}

/// All who yield to it, directly or over others. `behind`: who yields to whom directly.
fn all_behind(behind: &BTreeMap<ClientId, Vec<ClientId>>, who: ClientId) -> BTreeSet<ClientId> {
    let (mut found, mut open) = (BTreeSet::new(), vec![who]);
    while let Some(next) = open.pop() {
        let direct = behind.get(&next).into_iter().flatten();
        open.extend(direct.filter(|one| found.insert(**one)));
    }
    found
}

fn orders(scene: &Scene<'_>, settings: &KernelSettings, client: &Client, leads: bool, gives_way: bool) -> Orders {
    let is_long = client.profile.longest.is_some_and(|longest| longest >= settings.long_kernel.get());
    let divides = scene.gpu.divides && scene.gpu.concurrent && scene.gpu.sms > 0;
    let long = (divides && is_long && gives_way).then(|| {
        let part = f64::from(settings.long_part.get()) / 100.0;
        Long { from: settings.long_kernel.get(), sms: whole_steps(scene.gpu, settings, part) }
    });
    let constraints = client.slo.constraints;
    Orders {
        grain: settings.grain.get(),
        // Who is only the first of a line leaves no gap behind it.
        linger: if leads { settings.linger.get() } else { Duration::ZERO },
        long: limited(scene.gpu, settings, &constraints).or(long),
        longest_stop: settings.longest_stop.get(),
        copy_bytes_per_second: constraints.copy.map(|bytes| bytes.0),
    }
}

/// Where to all of a client's work has to go that may have a part of the SMs only; `None` without a limit, and where the GPU cannot be divided.
pub fn limited(gpu: Place, settings: &KernelSettings, constraints: &Constraints) -> Option<Long> {
    let most =
        constraints.most.map(Share::get).filter(|most| *most < 1.0 && gpu.divides && gpu.concurrent && gpu.sms > 0)?;
    Some(Long { from: Duration::ZERO, sms: whole_steps(gpu, settings, most) })
}

/// At least one step, however many SMs there are said to be.
fn whole_steps(gpu: Place, settings: &KernelSettings, part: f64) -> u32 {
    let step = settings.sm_step.max(1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of no more SMs than there are")]
    let sms = (f64::from(gpu.sms) * part + 1e-6) as u32;
    (sms / step * step).max(step)
}

#[cfg(test)]
mod tests {
    use berth_model::Mono;

    use super::super::testing::{PLACE, job};
    use super::super::{Hybrid, KernelPolicy, Learned};
    use super::*;

    /// What the first of two that fit beside each other is told, whose work may have half of the SMs, and whether anybody has a side of a split.
    fn told(gpu: Place, most: Option<&str>) -> (Option<Long>, bool) {
        let learned = Learned::default();
        let mut clients = [job(1, 50, 0.9, 0.1), job(2, 50, 0.4, 0.1)];
        clients[0].slo.constraints.most = most.and_then(|most| most.parse().ok());
        let plan = Hybrid::default().plan(&Scene { now: Mono(0), gpu, clients: &clients, learned: &learned });
        let long = plan.orders.iter().find(|(who, _)| *who == ClientId(1)).and_then(|(_, orders)| orders.long);
        (long, plan.squad.members.iter().any(|member| member.part.is_some()))
    }

    #[test]
    fn who_may_have_a_part_of_the_sms_only_has_no_more_in_whichever_company() {
        assert_eq!(told(PLACE, None), (None, true), "they share by a split");
        let half = Some(Long { from: Duration::ZERO, sms: 64 });
        assert_eq!(
            told(PLACE, Some("50%")),
            (half, false),
            "all of its work, in steps of eight, and no other part of it"
        );
        assert_eq!(told(PLACE, Some("1%")).0, Some(Long { from: Duration::ZERO, sms: 8 }));
        assert_eq!(told(PLACE, Some("100%")), (None, true));
        assert_eq!(told(Place { concurrent: false, ..PLACE }, Some("50%")).0, None, "nothing is divided there");
    }

    #[test]
    fn a_part_has_whole_steps_however_many_sms_somebody_says_there_are() {
        let settings = KernelSettings::default();
        for sms in [0, 1, 7, 132, u32::MAX] {
            let own = whole_steps(Place { sms, ..PLACE }, &settings, 0.55);
            assert!(own.is_multiple_of(settings.sm_step) && own <= sms.max(settings.sm_step), "{own} of {sms}");
        }
    }
}

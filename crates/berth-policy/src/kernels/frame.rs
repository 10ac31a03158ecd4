//! What all policies have in common: who is there, whose turn it is where all else is equal, and how a choice becomes a plan.

use std::time::Duration;

use berth_model::Mono;
use berth_model::settings::KernelSettings;

use super::squad::{self, Choice};
use super::types::Long;
use super::{Client, ClientId, Member, Orders, Plan, Reason, Scene, Squad, Yield};

/// Below this a newcomer's part says nothing.
const YOUNG: Duration = Duration::from_millis(10);

/// A squad for one that has waited as long as anybody may lasts this part of others.
const BOUND_PART: u32 = 8;

/// So many of those that wait stand in line behind those that run.
pub const IN_LINE: usize = 7;

/// Those who want the GPU.
pub fn busy<'a>(scene: &Scene<'a>) -> impl Iterator<Item = &'a Client> {
    scene.clients.iter().filter(|client| client.busy)
}

/// Orders equals: whose user has had the least of the GPU since it came, then which client, then who came first. The lesser goes first.
pub fn fair_order(scene: &Scene<'_>, one: &Client, other: &Client) -> std::cmp::Ordering {
    let user = |client: &Client| user_part(scene, client);
    user(one)
        .total_cmp(&user(other))
        .then(part(one, scene.now).total_cmp(&part(other, scene.now)))
        .then((one.arrived, one.id).cmp(&(other.arrived, other.id)))
}

/// Part of the GPU that a client has had since it came, over what it counts.
pub fn part(client: &Client, now: Mono) -> f64 {
    let had = Duration::from_nanos(client.served_ns).as_secs_f64();
    had / now.since(client.arrived).max(YOUNG).as_secs_f64() / client.slo.weight.get()
}

/// Of all clients of a user together.
fn user_part(scene: &Scene<'_>, client: &Client) -> f64 {
    let same = |other: &&Client| match (&client.owner, &other.owner) {
        (Some(one), Some(other)) => one == other,
        _ => client.id == other.id,
    };
    scene.clients.iter().filter(same).map(|client| part(client, scene.now)).sum()
}

/// The plan for a choice, of those who want the GPU in the policy's order. Who was chosen yields to nobody who wants the GPU now: those beside it are to run with it, and one that has to wait
/// would keep it stopped for nothing. It yields to those who may begin something.
pub fn plan(
    scene: &Scene<'_>,
    settings: &KernelSettings,
    choice: &Choice<'_>,
    ranked: &[&Client],
    yields: Vec<Yield>,
    mut reasons: Vec<(ClientId, Reason)>,
) -> Plan {
    let overdue = squad::overdue(scene, settings).map(|client| client.id);
    let is_chosen = |who: ClientId| choice.runners.iter().any(|runner| runner.client.id == who);
    let is_busy = |who: ClientId| busy(scene).any(|client| client.id == who);
    let holds = |link: &Yield| Some(link.who) != overdue && !(is_chosen(link.who) && is_busy(link.to));
    let mut yields: Vec<Yield> = yields.into_iter().filter(holds).collect();
    yields.sort_unstable();
    yields.dedup();
    // A turn that is given for the bound alone is a short one: whatever it gets done is done out of order.
    let lasts = if overdue.is_some() { settings.squad.get() / BOUND_PART } else { settings.squad.get() };
    let (mut members, division) = squad::members(scene, settings, choice, lasts);
    let nobody = choice.runners.is_empty();
    let leads = |client: &Client| yields.iter().any(|link| link.to == client.id);
    // Whoever begins something others yield to does not wait for a plan; nor does anybody while the GPU is idle.
    let waits_for_nobody = scene.clients.iter().filter(|client| !client.busy && (nobody || leads(client)));
    members.extend(waits_for_nobody.map(|client| Member { who: client.id, part: None }));
    if let Some(who) = overdue {
        let waited = scene.clients.iter().find(|client| client.id == who).map(|client| client.waited(scene.now));
        reasons.retain(|(of, _)| *of != who);
        reasons.push((who, Reason::WaitedLongest { waited: waited.unwrap_or_default() }));
    }
    reasons.sort_by_key(|(who, _)| *who);
    let mut orders: Vec<(ClientId, Orders)> =
        scene.clients.iter().map(|client| (client.id, orders(scene, settings, client, &yields))).collect();
    orders.sort_by_key(|(who, _)| *who);
    members.sort_by_key(|member| member.who);
    line_up(choice, ranked, &mut yields);
    let squad = Squad { members, division, until: scene.now + lasts };
    Plan { yields, orders, squad, reasons }
}

/// The next few that have to wait yield to those before them, so that each goes on the moment they are done: otherwise the GPU would have nothing to
/// do until the next plan. No link leads back to one that yields already.
fn line_up(choice: &Choice<'_>, ranked: &[&Client], yields: &mut Vec<Yield>) {
    let mut before: Vec<ClientId> = choice.runners.iter().map(|runner| runner.client.id).collect();
    let waiting: Vec<ClientId> = ranked.iter().map(|client| client.id).filter(|who| !before.contains(who)).collect();
    for who in waiting.into_iter().take(IN_LINE) {
        for to in &before {
            if !leads_to(yields, *to, who) {
                yields.push(Yield { who, to: *to });
            }
        }
        before.push(who);
    }
    yields.sort_unstable();
    yields.dedup();
}

/// Whether `from` yields to `to`, directly or over others.
fn leads_to(yields: &[Yield], from: ClientId, to: ClientId) -> bool {
    let mut seen = vec![from];
    let mut next = 0;
    while let Some(who) = seen.get(next).copied() {
        let further = yields.iter().filter(|link| link.who == who).map(|link| link.to);
        let further: Vec<ClientId> = further.filter(|to| !seen.contains(to)).collect();
        seen.extend(further);
        next += 1;
    }
    seen[1..].contains(&to)
}

fn orders(scene: &Scene<'_>, settings: &KernelSettings, client: &Client, yields: &[Yield]) -> Orders {
    let is_long = client.profile.longest.is_some_and(|longest| longest >= settings.long_kernel.get());
    let gives_way = yields.iter().any(|link| link.who == client.id);
    let leads = yields.iter().any(|link| link.to == client.id);
    let long = (scene.gpu.divides && scene.gpu.concurrent && is_long && gives_way).then(|| {
        let part = scene.gpu.sms * u32::from(settings.long_part.get()) / 100;
        let sms = (part / settings.sm_step.max(1) * settings.sm_step).max(settings.sm_step);
        Long { from: settings.long_kernel.get(), sms }
    });
    let constraints = client.slo.constraints;
    Orders {
        grain: settings.grain.get(),
        // Who is only the first of a line leaves no gap behind it.
        linger: if leads { settings.linger.get() } else { Duration::ZERO },
        long,
        longest_stop: settings.longest_stop.get(),
        copy_bytes_per_second: constraints.copy.map(|bytes| bytes.0),
        memory_bytes: constraints.memory.map(|bytes| bytes.0),
    }
}

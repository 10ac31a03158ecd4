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

/// Orders equals: whose user has had the least of the GPU since it came, then which of its tenants, then which of that one's processes, then who came
/// first. The lesser goes first.
pub fn fair_order(scene: &Scene<'_>, one: &Client, other: &Client) -> std::cmp::Ordering {
    let user = |client: &Client| part_of_all(scene, |other| is_same_user(client, other));
    let tenant = |client: &Client| part_of_all(scene, |other| is_same_tenant(client, other));
    user(one)
        .total_cmp(&user(other))
        .then_with(|| tenant(one).total_cmp(&tenant(other)))
        .then_with(|| part(one, scene.now).total_cmp(&part(other, scene.now)))
        .then((one.arrived, one.id).cmp(&(other.arrived, other.id)))
}

/// Parts an equal division makes of the GPU for this client, among those who want it: users share alike, then their tenants, then the processes of each.
pub fn equals(scene: &Scene<'_>, client: &Client) -> f64 {
    let users: Vec<&Client> = firsts(busy(scene), is_same_user);
    let tenants = firsts(busy(scene).filter(|other| is_same_user(client, other)), is_same_tenant);
    let processes = busy(scene).filter(|other| is_same_tenant(client, other)).count();
    [users.len(), tenants.len(), processes].into_iter().map(|count| count.max(1) as f64).product()
}

/// One of each that are the same.
fn firsts<'a>(all: impl Iterator<Item = &'a Client>, is_same: fn(&Client, &Client) -> bool) -> Vec<&'a Client> {
    let mut firsts: Vec<&Client> = Vec::new();
    for client in all {
        if !firsts.iter().any(|first| is_same(first, client)) {
            firsts.push(client);
        }
    }
    firsts
}

/// A tenant that belongs to nobody is a user by itself.
fn is_same_user(one: &Client, other: &Client) -> bool {
    match (&one.owner, &other.owner) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one.tenant == other.tenant,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn is_same_tenant(one: &Client, other: &Client) -> bool {
    one.tenant == other.tenant && is_same_user(one, other)
}

/// Part of the GPU that a client has had since it came, over what it counts.
pub fn part(client: &Client, now: Mono) -> f64 {
    let had = Duration::from_nanos(client.served_ns).as_secs_f64();
    had / now.since(client.arrived).max(YOUNG).as_secs_f64() / client.weight()
}

/// Of all of these together.
fn part_of_all(scene: &Scene<'_>, are: impl Fn(&Client) -> bool) -> f64 {
    scene.clients.iter().filter(|client| are(client)).map(|client| part(client, scene.now)).sum()
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
    let is_welcome = |client: &Client| welcome.iter().any(|other| other.id == client.id);
    let begins = |client: &&Client| !client.busy && (nobody || leads(client) || is_welcome(client));
    let waits_for_nobody = scene.clients.iter().filter(begins);
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
    let waits = |who: &ClientId| !members.iter().any(|member| member.who == *who);
    let waiting: Vec<ClientId> = ranked.iter().map(|client| client.id).chain(coming).filter(waits).collect();
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
    let is_divided = scene.gpu.divides && scene.gpu.concurrent && scene.gpu.sms > 0;
    let long = (is_divided && is_long && gives_way)
        .then(|| Long { from: settings.long_kernel.get(), sms: long_sms(scene.gpu.sms, settings) });
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

/// SMs for long kernels of those that give way: whole steps, one at least. However many there are said to be.
fn long_sms(sms: u32, settings: &KernelSettings) -> u32 {
    let part = u64::from(sms) * u64::from(settings.long_part.get()) / 100;
    let part = u32::try_from(part).unwrap_or(u32::MAX);
    (part / settings.sm_step.max(1) * settings.sm_step).max(settings.sm_step)
}

#[cfg(test)]
mod tests {
    use berth_model::TenantKey;

    use super::super::testing::{PLACE, client};
    use super::super::{Learned, Voice};
    use super::*;

    /// Of one user, the first two processes of one tenant; milliseconds each has had of the GPU.
    fn three(had_ms: [u64; 3]) -> [Client; 3] {
        let mut all = [client(1), client(2), client(3)];
        for (client, had) in all.iter_mut().zip(had_ms) {
            client.owner = Some("ann".to_owned());
            client.arrived = Mono(0);
            client.served_ns = had * 1_000_000;
        }
        all[1].tenant = all[0].tenant.clone();
        all
    }

    fn order(clients: &[Client]) -> Vec<u64> {
        let learned = Learned::default();
        let now = Mono(0) + Duration::from_millis(100);
        let scene = Scene { now, gpu: PLACE, clients, learned: &learned };
        let mut all: Vec<&Client> = clients.iter().collect();
        all.sort_by(|one, other| fair_order(&scene, one, other));
        all.into_iter().map(|client| client.id.0).collect()
    }

    fn parts(clients: &[Client]) -> Vec<f64> {
        let learned = Learned::default();
        let scene = Scene { now: Mono(1), gpu: PLACE, clients, learned: &learned };
        clients.iter().map(|client| equals(&scene, client)).collect()
    }

    #[test]
    fn long_kernels_have_whole_steps_however_many_sms_somebody_says_there_are() {
        let settings = KernelSettings::default();
        for sms in [0, 1, 7, 132, u32::MAX] {
            let own = long_sms(sms, &settings);
            assert!(own.is_multiple_of(settings.sm_step) && own <= sms.max(settings.sm_step), "{own} of {sms}");
        }
    }

    #[test]
    fn several_processes_of_a_tenant_count_as_one() {
        assert_eq!(order(&three([10, 10, 15])), [3, 1, 2], "the two have had 20 together");
        assert_eq!(order(&three([10, 2, 15])), [2, 1, 3], "and share that between them");
        assert_eq!(parts(&three([0, 0, 0])), [4.0, 4.0, 2.0], "half of the GPU is for the two");
    }

    #[test]
    fn users_share_alike_whatever_they_run_and_tenants_of_nobody_are_users_by_themselves() {
        let mut clients = three([0, 0, 0]).to_vec();
        clients.push(client(4));
        assert_eq!(parts(&clients), [8.0, 8.0, 4.0, 2.0]);
        clients.iter_mut().for_each(|client| client.owner = None);
        assert_eq!(parts(&clients), [6.0, 6.0, 3.0, 3.0]);
        clients[3].tenant = TenantKey::Cgroup { path: "/else".to_owned() };
        clients[3].busy = false;
        assert_eq!(parts(&clients)[..3], [4.0, 4.0, 2.0], "who wants nothing takes no part");
    }

    #[test]
    fn whose_owner_calls_it_slow_has_had_less_than_its_equals() {
        let mut clients = [client(1), client(2)];
        clients.iter_mut().for_each(|client| (client.arrived, client.served_ns) = (Mono(0), 10_000_000));
        assert_eq!(order(&clients), [1, 2]);
        clients[1].voice = Voice::new(1.2);
        assert_eq!(order(&clients), [2, 1]);
    }
}

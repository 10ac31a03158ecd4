//! What the policy in place comes to on one GPU, window by window: what `auto` chooses by.
//!
//! A *window* is [`LENGTH`] of time in which somebody had work while several tenants were there, or longer, until enough requests have ended to judge
//! their goals by, at most [`LONGEST`]. It begins anew when a tenant comes or goes and when the policy changes: what another company or another policy did is
//! none of it. Neither are requests that began before it.
//!
//! *Work* is counted as the time it takes alone, by the launches and how fast they come while nobody else has work; where that is not known yet, as the
//! tenant's part of the time in which it might run. It is never more than the time in which the tenant had some, whatever its process tells.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_model::slo::Throughput;
use berth_model::{Mono, Slo, TenantKey};
use berth_policy::kernels::Attained;
use berth_policy::kernels::auto::Window;
use berth_policy::kernels::hybrid::jain;

use super::client::Ended;
use super::goals::Stretch;
use super::guests::Guest;

const LENGTH: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(10);
/// So many requests say whether a goal about them is kept.
const ENOUGH: u64 = 20;
/// One that had more time left than this had nothing more to do.
const NO_TIME_LEFT: f64 = 0.95;

/// The window that is under way on one GPU.
#[derive(Debug, Default)]
pub(super) struct Meter {
    company: BTreeSet<TenantKey>,
    began: Mono,
    /// Time in which somebody had work.
    seconds: f64,
}

/// One tenant in it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    /// Seconds in which it had work, in which it might run, and its part of the latter.
    wanted: f64,
    ran: f64,
    had: f64,
    launches: u64,
    requests: u64,
    /// Requests that were told of one by one, those of them in time, and how much longer each took than the GPU time it usually has, summed up.
    ended: u64,
    in_time: u64,
    slowdowns: f64,
}

impl Meter {
    /// Time has passed with these tenants. `false`: what was tallied is void.
    pub fn pass<'a>(
        &mut self,
        company: impl Iterator<Item = &'a TenantKey> + Clone,
        is_busy: bool,
        passed: Duration,
        now: Mono,
    ) -> bool {
        if !company.clone().eq(self.company.iter()) {
            (self.company, self.began, self.seconds) = (company.cloned().collect(), now, 0.0);
            return false;
        }
        if is_busy && self.company.len() > 1 {
            self.seconds += passed.as_secs_f64();
        }
        true
    }

    pub fn restart(&mut self, now: Mono) {
        (self.began, self.seconds) = (now, 0.0);
    }

    pub fn began(&self) -> Mono {
        self.began
    }

    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// What it came to, if it is over.
    pub fn window(
        &self,
        guests: &BTreeMap<TenantKey, Guest>,
        slo: &dyn Fn(&TenantKey) -> Option<Slo>,
    ) -> Option<Window> {
        if self.seconds < LENGTH.as_secs_f64() {
            return None;
        }
        let members: Vec<Member<'_>> =
            guests.iter().map(|(tenant, guest)| Member { guest, slo: slo(tenant).unwrap_or_default() }).collect();
        let is_judged = members.iter().all(|member| member.slo.latency.is_none() || member.tally().ended >= ENOUGH);
        (is_judged || self.seconds >= LONGEST.as_secs_f64()).then(|| came_to(&members, self.seconds))
    }
}

impl Tally {
    /// `together`: tenants that had work and might run.
    pub fn pass(&mut self, stretch: &Stretch, together: usize) {
        let seconds = stretch.passed.as_secs_f64();
        if stretch.busy {
            self.wanted += seconds;
        }
        if stretch.busy && stretch.may_run {
            self.ran += seconds;
            self.had += seconds / together.max(1) as f64;
        }
        self.launches = self.launches.saturating_add(stretch.launches);
        self.requests = self.requests.saturating_add(stretch.requests);
    }

    /// A request has ended that began in the window. `within`: how long it may take.
    pub fn ended(&mut self, ended: &Ended, within: Option<Duration>) {
        self.ended += 1;
        self.in_time += u64::from(within.is_none_or(|within| ended.took <= within));
        self.slowdowns += (ended.took.as_secs_f64() / ended.usual.as_secs_f64().max(1e-9)).max(1.0);
    }
}

/// A tenant whose window is over.
struct Member<'a> {
    guest: &'a Guest,
    slo: Slo,
}

fn came_to(members: &[Member<'_>], seconds: f64) -> Window {
    let kept: Vec<Option<f64>> = members.iter().map(|member| member.kept(seconds)).collect();
    let counts = members.iter().zip(&kept).map(|(member, kept)| member.work() * kept.unwrap_or(1.0));
    let goodput = counts.sum::<f64>() / seconds;
    let wanting = members.iter().filter(|member| member.tally().wanted > 0.0);
    let fairness = jain(wanting.map(|member| member.work() / member.tally().wanted));
    let slowdown = mean(members.iter().filter_map(Member::slowdown));
    Window { goodput, kept: mean(kept.into_iter().flatten()), fairness, slowdown }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum) = (0.0, 0.0);
    values.for_each(|value| (count, sum) = (count + 1.0, sum + value));
    (count > 0.0).then(|| sum / count)
}

impl Member<'_> {
    fn tally(&self) -> &Tally {
        &self.guest.tally
    }

    /// In seconds alone.
    fn work(&self) -> f64 {
        let tally = self.tally();
        let alone = self.guest.goals.launches_alone().map(|rate| tally.launches as f64 / rate);
        alone.unwrap_or(tally.had).min(tally.wanted)
    }

    /// How well its goals were kept over what it was promised, 0 to 1; `None` if it has none, or nothing was seen.
    fn kept(&self, seconds: f64) -> Option<f64> {
        let Tally { wanted, ran, requests, ended, in_time, .. } = *self.tally();
        let latency = self.slo.latency.filter(|_| ended > 0).map(|_| in_time as f64 / ended as f64);
        let throughput = self.slo.throughput.and_then(|throughput| match throughput {
            // A rate is missed only by one that is kept from it.
            Throughput::MilliPerSecond(_) if wanted < seconds * NO_TIME_LEFT => Some(1.0),
            Throughput::MilliPerSecond(rate) => Some(requests as f64 / seconds / (rate as f64 / 1e3)),
            Throughput::OfAlone(share) => {
                self.guest.goals.launches_alone().filter(|_| wanted > 0.0).map(|_| self.work() / wanted / share.get())
            }
        });
        let availability = self.slo.availability.filter(|_| wanted > 0.0).map(|share| ran / wanted / share.get());
        let attained = Attained { latency, throughput, availability }.combined()?;
        Some((attained / self.slo.target().get()).min(1.0))
    }

    /// How much longer its work took than alone: by its requests, or by its speed where it has none.
    fn slowdown(&self) -> Option<f64> {
        let tally = self.tally();
        if tally.ended > 0 {
            return Some(tally.slowdowns / tally.ended as f64);
        }
        let is_known = self.guest.goals.launches_alone().is_some() && self.work() > 0.0;
        is_known.then(|| (tally.wanted / self.work()).max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(10);

    fn tenant(name: &str) -> TenantKey {
        TenantKey::Cgroup { path: name.into() }
    }

    fn slo(label: &str, value: &str) -> Slo {
        Slo::from_labels(&[(format!("berth.slo.{label}"), value.to_owned())].into()).0
    }

    fn busy(launches: u64) -> Stretch {
        Stretch { passed: LOOK, busy: true, may_run: true, alone: false, launches, requests: 0 }
    }

    /// So many looks at one that did the same in each.
    fn guest(looks: u32, stretch: &Stretch, together: usize) -> Guest {
        let mut guest = Guest::default();
        (0..looks).for_each(|_| guest.tally.pass(stretch, together));
        guest
    }

    /// Alone it launches ten times in a look.
    fn known_alone(mut guest: Guest) -> Guest {
        (0..100).for_each(|_| guest.goals.pass(&Stretch { alone: true, ..busy(10) }));
        guest
    }

    fn window(guests: Vec<(&str, Guest, Slo)>, seconds: f64) -> Option<Window> {
        let slos: BTreeMap<TenantKey, Slo> = guests.iter().map(|(name, _, slo)| (tenant(name), slo.clone())).collect();
        let guests = guests.into_iter().map(|(name, guest, _)| (tenant(name), guest)).collect();
        let meter = Meter { seconds, ..Meter::default() };
        meter.window(&guests, &|tenant| slos.get(tenant).cloned())
    }

    fn ended(took_ms: u64, usual_ms: u64) -> Ended {
        let ms = Duration::from_millis;
        Ended { lane: 0, at: Mono(0), took: ms(took_ms), usual: ms(usual_ms) }
    }

    #[test]
    fn work_is_what_it_takes_alone_and_never_more_than_the_time_it_had_some() {
        let half = known_alone(guest(200, &busy(5), 2));
        let forged = known_alone(guest(200, &busy(10_000), 2));
        let seen = window(vec![("half", half, Slo::default()), ("forged", forged, Slo::default())], 2.0).unwrap();
        assert!((seen.goodput - 1.5).abs() < 1e-6, "{seen:?}");
        assert!((seen.fairness.unwrap() - 0.9).abs() < 1e-6, "a half and a whole: {seen:?}");
        assert!((seen.slowdown.unwrap() - 1.5).abs() < 1e-6, "twice as long, and as long: {seen:?}");
        assert_eq!(seen.kept, None, "nobody has a goal");
    }

    #[test]
    fn without_a_speed_alone_each_has_its_part_of_the_time() {
        let stopped = Stretch { may_run: false, ..busy(0) };
        let guests =
            vec![("one", guest(200, &busy(1), 1), Slo::default()), ("two", guest(200, &stopped, 1), Slo::default())];
        let seen = window(guests, 2.0).unwrap();
        assert!((seen.goodput - 1.0).abs() < 1e-6 && (seen.fairness.unwrap() - 0.5).abs() < 1e-6, "{seen:?}");
        assert_eq!(seen.slowdown, None, "nothing ended, and no speed is known");
    }

    #[test]
    fn late_requests_miss_the_goal_and_their_work_counts_for_less() {
        let mut server = guest(200, &busy(1), 1);
        let within = Some(Duration::from_millis(10));
        (0..100).for_each(|number| server.tally.ended(&ended(if number < 60 { 4 } else { 40 }, 4), within));
        let seen = window(vec![("server", server, slo("latency", "p80:10ms"))], 2.0).unwrap();
        assert!((seen.kept.unwrap() - 0.75).abs() < 1e-6, "60 of 80 %: {seen:?}");
        assert!((seen.goodput - 0.75).abs() < 1e-6, "{seen:?}");
        assert!((seen.slowdown.unwrap() - 4.6).abs() < 1e-6, "{seen:?}");
    }

    #[test]
    fn a_window_waits_for_enough_requests_but_not_for_ever() {
        let server = || ("server", guest(200, &busy(1), 1), slo("latency", "p99:10ms"));
        assert_eq!(window(vec![server()], 1.9), None, "too short");
        assert_eq!(window(vec![server()], 9.9), None, "no request has ended");
        assert_eq!(window(vec![server()], 10.0).unwrap().kept, None, "and none says anything");
    }

    #[test]
    fn a_rate_is_missed_only_by_one_that_has_no_time_left() {
        let rate = slo("throughput", "100/s");
        let one_in_a_look = Stretch { requests: 1, ..busy(1) };
        let kept = |looks| window(vec![("server", guest(looks, &one_in_a_look, 1), rate.clone())], 4.0).unwrap().kept;
        assert_eq!((kept(400), kept(300)), (Some(1.0), Some(1.0)));
        let slow = Stretch { passed: LOOK * 2, ..one_in_a_look };
        let missed = window(vec![("server", guest(200, &slow, 1), rate.clone())], 4.0).unwrap().kept.unwrap();
        assert!((missed - 0.5).abs() < 1e-6, "{missed}");
    }

    #[test]
    fn time_counts_while_several_are_there_and_somebody_has_work_and_company_begins_a_window() {
        let (one, two) = (tenant("one"), tenant("two"));
        let mut meter = Meter::default();
        assert!(!meter.pass([&one].into_iter(), true, LOOK, Mono(1)));
        assert!(meter.pass([&one].into_iter(), true, LOOK, Mono(2)));
        assert!(meter.seconds().abs() < 1e-9, "alone there is nothing to choose");
        assert!(!meter.pass([&one, &two].into_iter(), true, LOOK, Mono(3)), "another has come");
        assert!(meter.pass([&one, &two].into_iter(), true, LOOK, Mono(4)));
        assert!(meter.pass([&one, &two].into_iter(), false, LOOK, Mono(5)));
        assert!((meter.seconds() - 0.01).abs() < 1e-9);
        assert_eq!(meter.began(), Mono(3));
    }
}

//! What the policy in place comes to on one GPU, window by window: what is shown of it, and what `auto` chooses by.
//!
//! A *window* is [`LENGTH`] of time in which somebody had work while several tenants were there, or longer, until enough requests have ended to judge
//! their goals by, at most [`LONGEST`]. It begins anew when the policy changes: what another policy did is none of it. Neither are requests that began
//! before it.
//!
//! *Who comes and goes* voids nothing of others. Whoever was there for most of a window ([`MOSTLY`]) is judged: goals, fairness, slowdown. Of those who passed by
//! only the work counts, for as long as they were there; one that leaves and comes back is the same. If they wanted more than a little of the time, the
//! window lasts to the end ([`LONGEST`]), so that chance evens out. Then it is not compared ([`Seen::counts`]) with windows of a company that stayed, unless
//! the one before was like that, too: where tenants always come and go that is the company there is, and nobody keeps `auto` from choosing by coming again and again.
//!
//! *Work* is counted as the time it takes alone, by the launches and how fast they come while nobody else has work; where that is not known yet, as the
//! tenant's part of the time in which it might run. It is never more than the time in which the tenant had some, whatever its process tells.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::kernels::WindowFigures;
use berth_model::settings::KernelPolicyName;
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

/// Of a window's time, or of the time wanted in it.
const MOSTLY: f64 = 0.75;

/// The window that is under way on one GPU.
#[derive(Debug, Default)]
pub(super) struct Meter {
    began: Mono,
    /// Time in which somebody had work while several were there.
    seconds: f64,
    /// Those who had work in it and are not there now.
    gone: BTreeMap<TenantKey, Gone>,
    /// In the window before, much was of those who came or went.
    was_changing: bool,
}

#[derive(Debug)]
struct Gone {
    tally: Tally,
    launches_alone: Option<f64>,
}

/// A window that is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    pub window: Window,
    pub seconds: f64,
    /// Tenants that were there for most of it.
    pub tenants: usize,
    /// Of the time wanted, the part of those who came or went.
    pub changing: f64,
    /// Finish-time fairness of whoever came off worst.
    pub worst_finish: Option<f64>,
    /// It can be compared with others.
    pub counts: bool,
}

/// One tenant in it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    /// Seconds of the window in which it was there.
    there: f64,
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
    /// Those whose finish-time fairness is known, and the sum of it.
    finished: u64,
    finishes: f64,
}

impl Meter {
    /// Time has passed with so many tenants. What of it counts; `None`: alone there is nothing to measure.
    pub fn pass(&mut self, tenants: usize, is_busy: bool, passed: Duration) -> Option<Duration> {
        let counted = if is_busy { passed } else { Duration::ZERO };
        (tenants > 1).then(|| {
            self.seconds += counted.as_secs_f64();
            counted
        })
    }

    /// A tenant is gone.
    pub fn leaves(&mut self, tenant: &TenantKey, guest: &Guest) {
        if guest.tally.wanted > 0.0 {
            let gone = Gone { tally: guest.tally, launches_alone: guest.goals.launches_alone() };
            self.gone.insert(tenant.clone(), gone);
        }
    }

    /// A tenant is there. What it did in this window, if it was there before.
    pub fn comes(&mut self, tenant: &TenantKey) -> Tally {
        self.gone.remove(tenant).map(|gone| gone.tally).unwrap_or_default()
    }

    pub fn restart(&mut self, now: Mono) {
        *self = Self { began: now, was_changing: self.was_changing, ..Self::default() };
    }

    pub fn began(&self) -> Mono {
        self.began
    }

    pub fn may_be_over(&self) -> bool {
        self.seconds >= LENGTH.as_secs_f64()
    }

    /// What it came to, if it is over. `so_far`: finish-time fairness of one whose work has no end.
    pub fn window(
        &mut self,
        guests: &BTreeMap<TenantKey, Guest>,
        slo: &dyn Fn(&TenantKey) -> Option<Slo>,
        so_far: &dyn Fn(&TenantKey) -> Option<f64>,
    ) -> Option<Seen> {
        if !self.may_be_over() {
            return None;
        }
        let here = guests.iter().map(|(tenant, guest)| (tenant, guest.tally, guest.goals.launches_alone()));
        let gone = self.gone.iter().map(|(tenant, gone)| (tenant, gone.tally, gone.launches_alone));
        let members = here.chain(gone).map(|(tenant, tally, launches_alone)| Member {
            tenant,
            tally,
            launches_alone,
            slo: slo(tenant).unwrap_or_default(),
        });
        let (stayed, passed): (Vec<_>, Vec<_>) = members.partition(|one| one.tally.there >= self.seconds * MOSTLY);
        let wanted = |of: &[Member<'_>]| of.iter().fold(0.0, |sum, one| sum + one.tally.wanted);
        let changing = wanted(&passed) / (wanted(&stayed) + wanted(&passed)).max(f64::MIN_POSITIVE);
        let is_changing = changing > 1.0 - MOSTLY;
        let is_judged = stayed.iter().all(|member| member.slo.latency.is_none() || member.tally.ended >= ENOUGH);
        if (is_changing || !is_judged) && self.seconds < LONGEST.as_secs_f64() {
            return None;
        }
        let counts = !is_changing || self.was_changing;
        self.was_changing = is_changing;
        let worst_finish = stayed.iter().filter_map(|one| one.finish(so_far)).max_by(f64::total_cmp);
        let (window, tenants) = (came_to(&stayed, &passed, self.seconds), stayed.len());
        Some(Seen { window, seconds: self.seconds, tenants, changing, worst_finish, counts })
    }
}

impl Seen {
    /// Of two that stayed.
    #[cfg(test)]
    pub fn of(window: Window) -> Self {
        Self { window, seconds: 2.0, tenants: 2, changing: 0.0, worst_finish: None, counts: true }
    }

    /// As it is shown: what that policy came to.
    pub fn figures(&self, policy: KernelPolicyName) -> WindowFigures {
        let Window { goodput, kept: goals_kept, fairness, slowdown } = self.window;
        WindowFigures {
            policy,
            seconds: self.seconds,
            goodput,
            goals_kept,
            fairness,
            slowdown,
            worst_finish: self.worst_finish,
            tenants: u32::try_from(self.tenants).unwrap_or(u32::MAX),
            changing: self.changing,
        }
    }
}

impl Tally {
    /// `together`: tenants that had work and might run. `counted`: what the window has got longer by.
    pub fn pass(&mut self, stretch: &Stretch, together: usize, counted: Duration) {
        self.there += counted.as_secs_f64();
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

    /// A request has ended that began in the window. `within`: how long it may take; `finish`: how fair its end was.
    pub fn ended(&mut self, ended: &Ended, within: Option<Duration>, finish: Option<f64>) {
        if let Some(finish) = finish {
            (self.finished, self.finishes) = (self.finished + 1, self.finishes + finish);
        }
        self.ended += 1;
        self.in_time += u64::from(within.is_none_or(|within| ended.took <= within));
        self.slowdowns += (ended.took.as_secs_f64() / ended.usual.as_secs_f64().max(1e-9)).max(1.0);
    }
}

/// A tenant whose window is over.
struct Member<'a> {
    tenant: &'a TenantKey,
    tally: Tally,
    launches_alone: Option<f64>,
    slo: Slo,
}

fn came_to(stayed: &[Member<'_>], passed: &[Member<'_>], seconds: f64) -> Window {
    let kept: Vec<Option<f64>> = stayed.iter().map(|member| member.kept(seconds)).collect();
    let counts = stayed.iter().zip(&kept).map(|(member, kept)| member.work() * kept.unwrap_or(1.0));
    let goodput = counts.chain(passed.iter().map(Member::work)).sum::<f64>() / seconds;
    let wanting = stayed.iter().filter(|member| member.tally.wanted > 0.0);
    let fairness = jain(wanting.map(|member| member.work() / member.tally.wanted));
    let slowdown = mean(stayed.iter().filter_map(Member::slowdown));
    Window { goodput, kept: mean(kept.into_iter().flatten()), fairness, slowdown }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum) = (0.0, 0.0);
    values.for_each(|value| (count, sum) = (count + 1.0, sum + value));
    (count > 0.0).then(|| sum / count)
}

impl Member<'_> {
    /// In seconds alone.
    fn work(&self) -> f64 {
        let tally = &self.tally;
        let alone = self.launches_alone.map(|rate| tally.launches as f64 / rate);
        alone.unwrap_or(tally.had).min(tally.wanted)
    }

    /// How well its goals were kept over what it was promised, 0 to 1; `None` if it has none, or nothing was seen.
    fn kept(&self, seconds: f64) -> Option<f64> {
        let Tally { wanted, ran, requests, ended, in_time, .. } = self.tally;
        let latency = self.slo.latency.filter(|_| ended > 0).map(|_| in_time as f64 / ended as f64);
        let throughput = self.slo.throughput.and_then(|throughput| match throughput {
            // A rate is missed only by one that is kept from it.
            Throughput::MilliPerSecond(_) if wanted < seconds * NO_TIME_LEFT => Some(1.0),
            Throughput::MilliPerSecond(rate) => Some(requests as f64 / seconds / (rate as f64 / 1e3)),
            Throughput::OfAlone(share) => {
                self.launches_alone.filter(|_| wanted > 0.0).map(|_| self.work() / wanted / share.get())
            }
        });
        let availability = self.slo.availability.filter(|_| wanted > 0.0).map(|share| ran / wanted / share.get());
        let attained = Attained { latency, throughput, availability }.combined()?;
        Some((attained / self.slo.target().get()).min(1.0))
    }

    /// How much longer its work took than alone: by its requests, or by its speed where it has none.
    fn slowdown(&self) -> Option<f64> {
        let tally = &self.tally;
        if tally.ended > 0 {
            return Some(tally.slowdowns / tally.ended as f64);
        }
        let is_known = self.launches_alone.is_some() && self.work() > 0.0;
        is_known.then(|| (tally.wanted / self.work()).max(1.0))
    }

    /// How long its work took over what it would have taken with an equal part of the GPU; of work that has no end, what it has come to so far.
    fn finish(&self, so_far: &dyn Fn(&TenantKey) -> Option<f64>) -> Option<f64> {
        let Tally { finished, finishes, wanted, .. } = self.tally;
        let ended = (finished > 0).then(|| finishes / finished as f64);
        ended.or_else(|| so_far(self.tenant).filter(|_| wanted > 0.0))
    }
}

#[cfg(test)]
mod tests;

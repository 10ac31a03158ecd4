//! Algorithm 2 of the contention management paper: the first task runs, later ones are paused at first sight, and one at
//! a time is let go while the cores have room.
//!
//! It is here so that the paper's figures can be reproduced; on a modern GPU it loses to doing nothing, because what it
//! pauses at first sight is the making of the context. Taken literally it has holes. Repairs:
//!
//! 1. Order is the time of arrival, not the process id.
//! 2. The loop that releases ends when nobody is held.
//! 3. The number of running tasks falls when one ends. When none is left, the next is released whatever the driver's
//!    average says, since that still speaks of the one that has gone.
//! 4. After the memory rule has paused a task, nobody is released until memory use has fallen to the threshold.
//!    Memory *above* the threshold fires it, as in the pseudo-code; the prose says at or above.
//! 5. One release per turn, a turn being what one query and one pause took in the paper. The paper also releases the next when
//!    a task ends; here only if that leaves nobody running. Core use falls at a task's output already and lets one go in
//!    its stead: a second one at its end would leave two computing from then on, which is what was to be prevented. Where
//!    making a context takes longer than computing, two at once would be faster, and this repair costs time.
//! 6. Core use is the driver's average and up to 200 ms old, and a task that was let go has its input to load first. So core
//!    use is not asked until the last one that was let go has computed for long enough to be in it: since its computing was
//!    seen or, where nobody sees calls, since the driver says that it uses the cores itself. One that does neither is
//!    waited for no longer than [`PaperSettings::settle`]. An answer from before counts for nothing.
//! 7. With several GPUs each has a count and thresholds of its own, and a task must be let go by all of its GPUs.
//! 8. Nobody is paused for longer than a bound. The paper has none; the default is longer than any of its runs.
//!
//! It knows no owners, gangs, bursts or declared needs, and uses no means but the freeze.

use std::collections::{BTreeMap, BTreeSet};

use berth_model::hold::Means;
use berth_model::{GpuIndex, Mono, Percent, TenantKey};

use crate::settings::PaperSettings;
use crate::view::{Activity, Gpu, Stand, Tenant, View};
use crate::{Action, Decision, Policy, Reason, Verdict, Waiting};

#[derive(Debug)]
pub struct Paper {
    settings: PaperSettings,
    /// Tasks that were let run and have not ended, and why they were.
    running: BTreeMap<TenantKey, Reason>,
    released: Option<LastRelease>,
    /// GPUs whose memory rule has fired.
    full: BTreeSet<GpuIndex>,
    /// Somebody waits for the cores to have room.
    has_line: bool,
}

/// The release that the turn is counted from, and that the memory rule judges.
#[derive(Debug)]
struct LastRelease {
    tenant: TenantKey,
    at: Mono,
    /// Since when it is known to compute.
    computes_since: Option<Mono>,
}

impl Paper {
    pub fn new(settings: PaperSettings) -> Self {
        Self { settings, running: BTreeMap::new(), released: None, full: BTreeSet::new(), has_line: false }
    }

    /// The memory rule: the one just released goes back if it filled a GPU that others run on.
    fn judge_last_release(&mut self, view: &View, tasks: &[&Tenant]) {
        let limit = self.settings.memory;
        self.full.retain(|index| view.gpu(*index).is_some_and(|gpu| memory_above(gpu, limit)));
        let Some(last) = &self.released else { return };
        let is_last = |task: &&&Tenant| task.key == last.tenant && self.running.contains_key(&task.key);
        let Some(task) = tasks.iter().find(is_last) else { return };
        let over = task.gpus.iter().find(|index| view.gpu(**index).is_some_and(|gpu| memory_above(gpu, limit)));
        if let Some(over) = over
            && is_pausable(task)
            && self.before(task, tasks).is_some()
        {
            self.full.insert(*over);
            self.running.remove(&task.key);
        }
    }

    fn follow_last_release(&mut self, view: &View, tasks: &[&Tenant]) {
        let Some(last) = &mut self.released else { return };
        let Some(task) = tasks.iter().find(|task| task.key == last.tenant) else { return };
        last.computes_since = match task.activity {
            Activity::Computing { since } => Some(since),
            Activity::Unseen => last.computes_since.or_else(|| shown_since(view, task, last.at)),
            _ => last.computes_since,
        };
    }

    /// Why the first in line may go now; `None` if it may not.
    fn admits(&self, view: &View, now: Mono, first: &Tenant, tasks: &[&Tenant]) -> Option<Reason> {
        if self.before(first, tasks).is_none() {
            return Some(Reason::ItsTurn);
        }
        let is_full = first.gpus.iter().any(|index| self.full.contains(index));
        let asks_at = self.asks_at(tasks);
        if is_full || asks_at > now || !was_asked_since(view, first, asks_at) {
            return None;
        }
        let (gpu, core) = busiest(view, first).and_then(|gpu| Some((gpu.index, gpu.core?)))?;
        (core < self.settings.core).then_some(Reason::CoreFree { gpu, core })
    }

    /// From when on core use tells anything about the last task that was let go.
    fn asks_at(&self, tasks: &[&Tenant]) -> Mono {
        let Some(last) = &self.released else { return Mono::default() };
        let turn = last.at + self.settings.turn.get();
        let task = tasks.iter().find(|task| task.key == last.tenant);
        let shown = match (task.map(|task| task.activity), last.computes_since) {
            (None | Some(Activity::Quiet { .. }), _) => last.at,
            (Some(_), Some(since)) => since + self.settings.stale.get(),
            (Some(_), None) => last.at + self.settings.settle.get(),
        };
        turn.max(shown)
    }

    /// Those who were paused for as long as anyone may be.
    fn release_overdue(&mut self, tasks: &[&Tenant], now: Mono) {
        for task in self.line(tasks) {
            let waited = held_since(task).map(|since| now.since(since));
            if let Some(waited) = waited.filter(|waited| *waited >= self.settings.longest_wait.get()) {
                self.let_go(task, now, Reason::WaitedLongest { waited });
            }
        }
    }

    fn let_go(&mut self, task: &Tenant, now: Mono, reason: Reason) {
        self.running.insert(task.key.clone(), reason);
        self.released = Some(LastRelease { tenant: task.key.clone(), at: now, computes_since: None });
    }

    /// Those that wait or are about to, first come first.
    fn line<'a>(&self, tasks: &[&'a Tenant]) -> Vec<&'a Tenant> {
        let waits =
            |task: &&&Tenant| !self.running.contains_key(&task.key) && !matches!(task.stand, Stand::Moving { .. });
        tasks.iter().filter(waits).copied().collect()
    }

    /// The running task it waits behind.
    fn before<'a>(&self, task: &Tenant, tasks: &[&'a Tenant]) -> Option<&'a Tenant> {
        let runs = |other: &&&Tenant| self.running.contains_key(&other.key) && other.key != task.key;
        tasks.iter().filter(runs).copied().find(|other| !other.gpus.is_disjoint(&task.gpus))
    }

    fn why_paused(&self, view: &View, task: &Tenant, tasks: &[&Tenant]) -> Reason {
        if let Some(full) = task.gpus.iter().find(|index| self.full.contains(index)) {
            let free = view.gpu(*full).and_then(Gpu::memory_free);
            return Reason::MemoryFull { gpu: *full, wanted: None, free };
        }
        if let Some(gpu) = busiest(view, task)
            && let Some(core) = gpu.core.filter(|core| *core >= self.settings.core)
        {
            return Reason::CoreBusy { gpu: gpu.index, core };
        }
        self.before(task, tasks).map_or(Reason::NoContention, |other| {
            let gpu = other.gpus.intersection(&task.gpus).next().copied().unwrap_or(GpuIndex(0));
            Reason::OtherIsFirst { gpu, who: other.name.clone() }
        })
    }

    fn decisions(&self, view: &View, tasks: &[&Tenant]) -> Vec<Decision> {
        let decide = |task: &&Tenant| {
            let (action, reason) = match (self.running.get(&task.key), task.stand) {
                (Some(reason), Stand::Held { .. } | Stand::Gated { .. }) => (Action::Release, reason.clone()),
                (None, Stand::Free) => (Action::Hold(Means::Freeze), self.why_paused(view, task, tasks)),
                _ => return None,
            };
            Some(Decision { tenant: task.key.clone(), action, reason })
        };
        tasks.iter().filter_map(decide).collect()
    }

    fn queue(&self, line: &[&Tenant], tasks: &[&Tenant], now: Mono) -> Vec<Waiting> {
        let waiting = |task: &&Tenant| Waiting {
            tenant: task.key.clone(),
            behind: self.before(task, tasks).map(|other| other.key.clone()),
            since: held_since(task).unwrap_or(now),
            expected_at: None,
        };
        line.iter().map(waiting).collect()
    }

    fn again_at(&self, now: Mono, line: &[&Tenant], tasks: &[&Tenant]) -> Option<Mono> {
        let bounds =
            line.iter().filter_map(|task| held_since(task)).map(|since| since + self.settings.longest_wait.get());
        let asks = line.first().map(|_| self.asks_at(tasks));
        bounds.chain(asks).filter(|at| *at > now).min()
    }
}

impl Policy for Paper {
    fn name(&self) -> &'static str {
        "paper"
    }

    /// In the paper each turn begins with a query.
    fn goes_by_looks(&self) -> bool {
        self.has_line
    }

    fn decide(&mut self, view: &View, now: Mono) -> Verdict {
        let mut tasks: Vec<&Tenant> = view.tenants.iter().filter(|tenant| is_task(tenant)).collect();
        tasks.sort_by_key(|task| (task.arrived, &task.key));
        self.running.retain(|key, _| tasks.iter().any(|task| task.key == *key));
        for task in tasks.iter().filter(|task| !is_pausable(task)) {
            self.running.entry(task.key.clone()).or_insert(Reason::NoContention);
        }
        self.judge_last_release(view, &tasks);
        self.release_overdue(&tasks, now);
        self.follow_last_release(view, &tasks);
        while let Some(first) = self.line(&tasks).first()
            && let Some(reason) = self.admits(view, now, first, &tasks)
        {
            self.let_go(first, now, reason);
            self.follow_last_release(view, &tasks);
        }
        let line = self.line(&tasks);
        self.has_line = !line.is_empty();
        Verdict {
            decisions: self.decisions(view, &tasks),
            queue: self.queue(&line, &tasks, now),
            again_at: self.again_at(now, &line, &tasks),
        }
    }
}

/// A task is on the GPU from its first memory on. One that is held is on it whatever the driver lists.
fn is_task(tenant: &Tenant) -> bool {
    tenant.memory.is_some_and(|memory| memory.0 > 0)
        || matches!(tenant.stand, Stand::Held { .. } | Stand::Moving { .. })
}

fn is_pausable(tenant: &Tenant) -> bool {
    tenant.means.contains(&Means::Freeze) && tenant.stand != Stand::ByPerson
}

fn held_since(tenant: &Tenant) -> Option<Mono> {
    if let Stand::Held { since, .. } = tenant.stand { Some(since) } else { None }
}

/// When the driver was asked and said that a task, let go at `since`, uses the cores.
fn shown_since(view: &View, task: &Tenant, since: Mono) -> Option<Mono> {
    let asked = task.gpus.iter().filter_map(|index| view.gpu(*index)?.core_at).max().filter(|at| *at > since);
    asked.filter(|_| task.core.is_some_and(|core| core.get() > 0))
}

/// What was asked before says nothing of the last task that was let go, however late it is used.
fn was_asked_since(view: &View, task: &Tenant, since: Mono) -> bool {
    task.gpus.iter().all(|index| view.gpu(*index).and_then(|gpu| gpu.core_at).is_some_and(|at| at >= since))
}

/// Of a task's GPUs the one with the least room. An unknown use counts as full: nobody is released on a guess.
fn busiest<'a>(view: &'a View, task: &Tenant) -> Option<&'a Gpu> {
    let gpus = task.gpus.iter().filter_map(|index| view.gpu(*index));
    gpus.max_by_key(|gpu| gpu.core.map_or(101, Percent::get))
}

fn memory_above(gpu: &Gpu, threshold: Percent) -> bool {
    let Some((used, total)) = gpu.memory_used.zip(gpu.memory_total) else { return false };
    u128::from(used.0) * 100 > u128::from(total.0) * u128::from(threshold.get())
}

#[cfg(test)]
mod tests {
    use berth_model::Bytes;

    use super::*;

    fn ms(millis: u64) -> Mono {
        Mono(millis * 1_000_000)
    }

    fn task(name: &str, arrived: u64, activity: Activity, stand: Stand) -> Tenant {
        Tenant {
            key: TenantKey::Cgroup { path: format!("/{name}") },
            name: name.into(),
            owner: None,
            gpus: BTreeSet::from([GpuIndex(0)]),
            gang: None,
            arrived: ms(arrived),
            activity,
            memory: Some(Bytes::from_mib(500)),
            needs: None,
            core: None,
            stand,
            means: BTreeSet::from([Means::Freeze]),
            past: None,
            work: None,
        }
    }

    /// What is decided, at two seconds, about one that waits behind one that computes since `since`: the driver said that the
    /// cores were idle when it was asked at `asked`.
    fn releases(since: u64, asked: u64) -> bool {
        let mut paper = Paper::new(PaperSettings::default());
        let first = |activity| task("first", 0, activity, Stand::Free);
        let second = task("second", 1, Activity::Loading, Stand::Held { means: Means::Freeze, since: ms(10) });
        let mut decide = |first, asked, now| {
            let core = Percent::checked(0);
            let gpu = Gpu { index: GpuIndex(0), memory_total: None, memory_used: None, core, core_at: Some(ms(asked)) };
            paper.decide(&View { gpus: vec![gpu], tenants: vec![first, second.clone()] }, ms(now))
        };
        let before = decide(first(Activity::Loading), 10, 10);
        assert!(before.decisions.is_empty(), "{before:?}");
        let verdict = decide(first(Activity::Computing { since: ms(since) }), asked, 2_000);
        verdict.decisions.iter().any(|decision| decision.action == Action::Release)
    }

    #[test]
    fn core_use_that_was_asked_before_the_last_one_could_be_in_it_lets_nobody_go() {
        assert!(!releases(1_000, 900), "before it computed");
        assert!(!releases(1_000, 1_390), "too soon after");
        assert!(releases(1_000, 1_400));
    }
}

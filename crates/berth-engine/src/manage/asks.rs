//! What people ask of the manager: who may, what it comes to, and when it can be answered.
//!
//! A hold or a release is answered when it has come about, has failed, or takes longer than anyone should have to wait for
//! an answer; it goes on then. Everything else is answered in the same turn.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_host::docker::OWNER_LABEL;
use berth_model::control::{Answer, Ask, Caller, PolicyView, Refusal, Reply, Standing, What, find};
use berth_model::hold::{By, Freezer, HoldChange, Means, Refused, Stage, Want};
use berth_model::settings::PolicyName;
use berth_model::{Anchor, Mono, Snapshot, TenantKey};

use super::{Labels, Manager, Rehearsal, Rules};

/// After this a hold or release that is still under way is answered as such.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Characters of a person's reason that are kept.
const MOST_REASON: usize = 200;

/// Nobody would undo a hold if this daemon were killed now.
pub(super) const NO_GUARD: &str = "its guard is not in place, which would undo holds if it died; the daemon's log says why, \
                                   and starting one is tried on";

/// What was asked and is not answered yet.
#[derive(Default)]
pub(super) struct Asks {
    unheard: Vec<(Ask, Reply)>,
    pending: Vec<Pending>,
}

/// Waits for tenants to come to where they were wanted.
struct Pending {
    tenants: Vec<TenantKey>,
    /// One tenant was asked about, and is answered about alone.
    is_single: bool,
    until: Mono,
    reply: Reply,
}

/// The host as those are judged by who ask.
struct Scene<'a> {
    snapshot: &'a Snapshot,
    labels: &'a dyn Fn(&TenantKey) -> Labels,
    now: &'a Anchor,
}

impl Manager {
    /// Heard at the next turn.
    pub fn ask(&mut self, ask: Ask, reply: Reply) {
        self.asks.unheard.push((ask, reply));
    }

    /// When somebody is to be answered at the latest.
    pub(super) fn answer_by(&self) -> Option<Mono> {
        self.asks.pending.iter().map(|pending| pending.until).min()
    }

    pub(super) fn hear(&mut self, snapshot: &Snapshot, labels: &dyn Fn(&TenantKey) -> Labels, now: &Anchor) {
        let scene = Scene { snapshot, labels, now };
        for (Ask { caller, what }, reply) in std::mem::take(&mut self.asks.unheard) {
            let is_single = what != What::ReleaseAll;
            match self.heed(&caller, what, &scene) {
                Ok(Heeded::Now(answer)) => reply(Ok(answer)),
                Err(refusal) => reply(Err(refusal)),
                Ok(Heeded::Later(tenants)) => {
                    let until = now.mono + ANSWER_WITHIN;
                    self.asks.pending.push(Pending { tenants, is_single, until, reply });
                }
            }
        }
    }

    /// Answers those whose wish has come about, failed, or takes too long.
    pub(super) fn answer(&mut self, changes: &[HoldChange], now: &Anchor) {
        for pending in std::mem::take(&mut self.asks.pending) {
            let failed = changes.iter().find_map(|change| match change {
                HoldChange::HoldFailed { tenant, message, .. } if pending.tenants.contains(tenant) => {
                    Some(Refusal::Failed { name: self.name(tenant), message: message.clone() })
                }
                _ => None,
            });
            let is_settled = pending.tenants.iter().all(|tenant| self.is_settled(tenant, now.mono));
            match failed {
                Some(refusal) if pending.is_single => (pending.reply)(Err(refusal)),
                _ if is_settled || now.mono >= pending.until => {
                    let standings = pending.tenants.iter().map(|tenant| self.standing(tenant, now));
                    (pending.reply)(Ok(answer_of(standings.collect(), pending.is_single)));
                }
                _ => self.asks.pending.push(pending),
            }
        }
    }

    fn heed(&mut self, caller: &Caller, what: What, scene: &Scene<'_>) -> Result<Heeded, Refusal> {
        let at = scene.now.mono;
        let one = |tenant: TenantKey| Ok(Heeded::Later(vec![tenant]));
        match what {
            What::Hold { tenant, means, reason } => {
                let tenant = self.permitted(&tenant, caller, scene)?;
                self.hold(&tenant, means, reason, caller, scene)?;
                one(tenant)
            }
            What::Release { tenant } => {
                let tenant = self.permitted(&tenant, caller, scene)?;
                self.release(&tenant, caller, at)?;
                one(tenant)
            }
            What::HandBack { tenant } => {
                let tenant = self.permitted(&tenant, caller, scene)?;
                let by = self.keeper.view(&tenant, at).map(|view| view.by);
                // What the policy has decided it need not decide again.
                if by.is_some_and(|by| by != By::Policy) {
                    self.keeper.hand_back(&tenant, at);
                }
                one(tenant)
            }
            What::ReleaseAll => self.release_permitted(caller, scene).map(Heeded::Later),
            What::SetPolicy { .. } if !caller.is_admin => Err(Refusal::AdminsOnly),
            What::SetPolicy { policy, dry_run } => {
                let dry_run = dry_run.unwrap_or(self.rules.hold.dry_run);
                if policy != PolicyName::Off && !dry_run {
                    self.refuse_unguarded()?;
                }
                self.set_policy(policy, dry_run, at);
                Ok(Heeded::Now(Answer::Policy(Box::new(self.policy_view()))))
            }
            // Not the manager's: where nobody can be held there are deadlines too.
            What::Deadline(_) => Err(Refusal::NotKept { reason: "nobody here judges by them".to_owned() }),
            What::Watch(_) => Err(Refusal::NoHolds { reason: "the watch is asked about it".to_owned() }),
            What::Kernels(_) => Err(Refusal::NoKernels { reason: "they are not held".to_owned() }),
            What::ShowPolicy => Ok(Heeded::Now(Answer::Policy(Box::new(self.policy_view())))),
            What::Explain { tenant } => {
                let tenant = find(&tenant, &scene.snapshot.tasks)?.clone();
                Ok(Heeded::Now(Answer::Explained(Box::new(self.explain(&tenant, scene.snapshot, scene.now)))))
            }
        }
    }

    /// The tenant meant, if the caller may act on it now.
    fn permitted(&self, selector: &str, caller: &Caller, scene: &Scene<'_>) -> Result<TenantKey, Refusal> {
        let tenant = find(selector, &scene.snapshot.tasks)?;
        self.judge(tenant, caller, scene)?;
        let view = self.keeper.view(tenant, scene.now.mono);
        if view.is_some_and(|view| view.is_frozen_by_others) {
            return Err(Refusal::PausedByOthers { name: self.name(tenant) });
        }
        Ok(tenant.clone())
    }

    fn judge(&self, tenant: &TenantKey, caller: &Caller, scene: &Scene<'_>) -> Result<(), Refusal> {
        let labels = (scene.labels)(tenant);
        let owner = labels.as_ref().and_then(|labels| labels.get(OWNER_LABEL)).filter(|owner| !owner.is_empty());
        if !caller.may_act_on(owner.map(String::as_str), &self.activities.uids_of(tenant)) {
            let row = scene.snapshot.tasks.iter().find(|row| row.tenant == *tenant);
            let owner = row.and_then(|row| row.owner.clone());
            return Err(Refusal::NotYours { name: self.name(tenant), owner });
        }
        match self.keeper.view(tenant, scene.now.mono).map(|view| view.by) {
            Some(By::Person { uid }) if uid != caller.uid && !caller.is_admin => {
                Err(Refusal::DecidedByAnother { name: self.name(tenant), uid })
            }
            _ => Ok(()),
        }
    }

    fn hold(
        &mut self,
        tenant: &TenantKey,
        means: Option<Means>,
        reason: Option<String>,
        caller: &Caller,
        scene: &Scene<'_>,
    ) -> Result<(), Refusal> {
        self.refuse_unguarded()?;
        let offered = self.offered(tenant);
        let chosen = means.or_else(|| default_means(&offered)).filter(|means| offered.contains(means));
        let Some(chosen) = chosen else {
            return Err(Refusal::NotOffered { name: self.name(tenant), means, offered: offered.into_iter().collect() });
        };
        // Whom the engine has described it can pause.
        let want = chosen.want(if self.pausing.can_pause(tenant) { Freezer::Docker } else { Freezer::Cgroup });
        let reason = reason.map_or_else(|| format!("{} asked for it", name_of(caller)), shortened);
        let by = By::Person { uid: caller.uid };
        let wanted = self.keeper.want(tenant, want, by, &reason, scene.now.mono);
        wanted.map_err(|refused| self.refusal(tenant, refused))
    }

    fn release(&mut self, tenant: &TenantKey, caller: &Caller, at: Mono) -> Result<(), Refusal> {
        if !caller.is_admin && !self.rules.hold.owners_exempt {
            return self.undo_own(tenant, caller, at);
        }
        let reason = format!("{} released it", name_of(caller));
        let wanted = self.keeper.want(tenant, Want::Free, By::Person { uid: caller.uid }, &reason, at);
        wanted.map_err(|refused| self.refusal(tenant, refused))
    }

    /// What the caller has decided is undone; what the policy has is not.
    fn undo_own(&mut self, tenant: &TenantKey, caller: &Caller, at: Mono) -> Result<(), Refusal> {
        let by = self.keeper.view(tenant, at).map(|view| view.by);
        if by != Some(By::Person { uid: caller.uid }) {
            return Err(Refusal::PolicyDecides { name: self.name(tenant) });
        }
        self.keeper.hand_back(tenant, at);
        Ok(())
    }

    /// Those who are held or about to be; an error only if all of them are others'.
    fn release_permitted(&mut self, caller: &Caller, scene: &Scene<'_>) -> Result<Vec<TenantKey>, Refusal> {
        let is_held = |tenant: &TenantKey| {
            let view = self.keeper.view(tenant, scene.now.mono);
            view.is_some_and(|view| view.stage != Stage::Free)
        };
        let tenants: BTreeSet<&TenantKey> = scene.snapshot.tasks.iter().map(|row| &row.tenant).collect();
        let held: Vec<TenantKey> = tenants.into_iter().filter(|tenant| is_held(tenant)).cloned().collect();
        let mut refused = None;
        let mut released = Vec::new();
        for tenant in held {
            let allowed = self.judge(&tenant, caller, scene);
            match allowed.and_then(|()| self.release(&tenant, caller, scene.now.mono)) {
                Ok(()) => released.push(tenant),
                Err(refusal) => refused = Some(refusal),
            }
        }
        refused.filter(|_| released.is_empty()).map_or(Ok(released), Err)
    }

    fn refuse_unguarded(&self) -> Result<(), Refusal> {
        if self.guarded.is_so() { Ok(()) } else { Err(Refusal::NoHolds { reason: NO_GUARD.to_owned() }) }
    }

    fn policy_view(&self) -> PolicyView {
        let Rules { fifo, edf, paper, .. } = self.rules.clone();
        PolicyView { policy: self.policy_name, dry_run: self.rehearsal.is_some(), fifo, edf, paper }
    }

    /// What the policy before it held is released: the new one begins with everybody free.
    fn set_policy(&mut self, policy: PolicyName, dry_run: bool, at: Mono) {
        if (policy, dry_run) == (self.policy_name, self.rehearsal.is_some()) {
            return;
        }
        tracing::info!(policy = policy.as_str(), dry_run, was = self.policy_name.as_str(), "another policy decides");
        self.policy = self.rules.policy(policy);
        self.policy_name = policy;
        self.rehearsal = dry_run.then(Rehearsal::default);
        self.queue.clear();
        self.terms.clear();
        let dry = if dry_run { ", in a dry run" } else { "" };
        let reason = format!("the policy is now {}{dry}", policy.as_str());
        for tenant in self.places.keys() {
            // A person's word stays; who is not known is not held.
            let _ = self.keeper.want(tenant, Want::Free, By::Policy, &reason, at);
        }
    }

    fn refusal(&self, tenant: &TenantKey, refused: Refused) -> Refusal {
        let name = self.name(tenant);
        match refused {
            Refused::FrozenByOthers => Refusal::PausedByOthers { name },
            Refused::PersonDecided { uid } => Refusal::DecidedByAnother { name, uid },
            Refused::FailedLately { .. } | Refused::Unknown => Refusal::Failed { name, message: refused.to_string() },
        }
    }

    fn is_settled(&self, tenant: &TenantKey, now: Mono) -> bool {
        self.keeper.view(tenant, now).is_none_or(|view| view.stage != Stage::Moving)
    }

    fn standing(&self, tenant: &TenantKey, now: &Anchor) -> Standing {
        let hold = self.hold_row(tenant, now);
        let is_settled = self.is_settled(tenant, now.mono);
        Standing { tenant: tenant.clone(), name: self.name(tenant), hold, is_settled }
    }
}

/// When an answer is given.
enum Heeded {
    Now(Answer),
    /// When these have come to where they are wanted.
    Later(Vec<TenantKey>),
}

fn answer_of(standings: Vec<Standing>, is_single: bool) -> Answer {
    match <[Standing; 1]>::try_from(standings) {
        Ok([only]) if is_single => Answer::Stands(Box::new(only)),
        Ok(only) => Answer::Released(only.into()),
        Err(standings) => Answer::Released(standings),
    }
}

/// Standing still is what people mean by a hold; the lock is for those who cannot be frozen.
fn default_means(offered: &BTreeSet<Means>) -> Option<Means> {
    [Means::Freeze, Means::Lock].into_iter().find(|means| offered.contains(means))
}

fn name_of(caller: &Caller) -> String {
    caller.user.clone().unwrap_or_else(|| format!("user {}", caller.uid))
}

fn shortened(reason: String) -> String {
    reason.chars().take(MOST_REASON).collect()
}

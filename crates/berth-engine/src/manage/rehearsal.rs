//! A dry run: what a policy's decisions would come to, while nothing is done.
//!
//! Decisions come here instead of to the keeper, and count as carried out: the policy finds in its next view what it has
//! decided, and decides anew only when it changes its mind, so that each change is told once. A tenant that would be gated
//! runs on; from its next launch on it would stand there, and the policy is told that it does, until it would be released.
//! What goes on in truth meanwhile costs what it costs unmanaged: a dry run says who would wait and why, not for how long.

use std::collections::BTreeMap;

use berth_model::hold::Means;
use berth_model::snapshot::HoldCounters;
use berth_model::{Mono, TenantKey};
use berth_policy::{Action, Activity, Decision, Stand, Tenant, View};

#[derive(Debug, Default)]
pub(super) struct Rehearsal {
    tenants: BTreeMap<TenantKey, Would>,
    changes: Vec<Rehearsed>,
    counters: HoldCounters,
}

/// What would be done to a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Would {
    pub means: Means,
    pub reason: String,
    /// When it was decided.
    pub since: Mono,
    /// Since when it would be kept off; `None` while it would run until its next launch.
    pub held_since: Option<Mono>,
}

/// What would have happened, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rehearsed {
    Held { tenant: TenantKey, means: Means, reason: String, at: Mono },
    Released { tenant: TenantKey, reason: String, at: Mono },
}

impl Rehearsal {
    /// Makes of what is what would be.
    pub fn pretend(&mut self, view: &mut View, now: Mono) {
        self.forget(view, now);
        for tenant in &mut view.tenants {
            let Some(would) = self.tenants.get_mut(&tenant.key) else { continue };
            if let Some(at) = launched_since(tenant, would) {
                would.held_since = Some(at);
                self.changes.push(would.held(&tenant.key, at));
                self.counters.add(would.means);
            }
            tenant.stand = match would.held_since {
                Some(since) => Stand::Held { means: would.means, since },
                None => Stand::Gated { since: would.since },
            };
            if let (Means::Gate, Some(since)) = (would.means, would.held_since) {
                tenant.activity = Activity::AtLaunch { since, computing_since: None };
            }
        }
    }

    pub fn take(&mut self, decisions: Vec<Decision>, now: Mono) {
        for Decision { tenant, action, reason } in decisions {
            match action {
                Action::Hold(means) => self.hold(tenant, means, reason.to_string(), now),
                // It makes its context meanwhile: nothing follows from that.
                Action::Bar => {}
                Action::Release => self.release(&tenant, reason.to_string(), now),
            }
        }
    }

    pub fn of(&self, tenant: &TenantKey) -> Option<&Would> {
        self.tenants.get(tenant)
    }

    /// What is to be told, once.
    pub fn changes(&mut self) -> Vec<Rehearsed> {
        std::mem::take(&mut self.changes)
    }

    pub fn counters(&self) -> HoldCounters {
        self.counters
    }

    /// Who has left would no longer be held, and about whom a person has decided is no policy's business.
    fn forget(&mut self, view: &View, now: Mono) {
        let stand = |key: &TenantKey| view.tenants.iter().find(|tenant| tenant.key == *key).map(|tenant| tenant.stand);
        let over: Vec<(TenantKey, &str)> = (self.tenants.keys())
            .filter_map(|key| match stand(key) {
                None => Some((key.clone(), "its task is over")),
                Some(Stand::ByPerson) => Some((key.clone(), "a person has decided about it")),
                Some(_) => None,
            })
            .collect();
        over.into_iter().for_each(|(tenant, reason)| self.release(&tenant, reason.to_owned(), now));
    }

    fn hold(&mut self, tenant: TenantKey, means: Means, reason: String, now: Mono) {
        if let Some(would) = self.tenants.get_mut(&tenant).filter(|would| would.means == means) {
            would.reason = reason;
            return;
        }
        // The gate keeps nobody off before the next launch.
        let held_since = (means != Means::Gate).then_some(now);
        if held_since.is_none() {
            self.release(&tenant, reason.clone(), now);
        }
        let would = Would { means, reason, since: now, held_since };
        if held_since.is_some() {
            self.changes.push(would.held(&tenant, now));
            self.counters.add(means);
        }
        self.tenants.insert(tenant, would);
    }

    fn release(&mut self, tenant: &TenantKey, reason: String, at: Mono) {
        let would = self.tenants.remove(tenant);
        if would.is_some_and(|would| would.held_since.is_some()) {
            self.changes.push(Rehearsed::Released { tenant: tenant.clone(), reason, at });
        }
    }
}

impl Would {
    fn held(&self, tenant: &TenantKey, at: Mono) -> Rehearsed {
        Rehearsed::Held { tenant: tenant.clone(), means: self.means, reason: self.reason.clone(), at }
    }
}

/// When one that would be gated launched, and would have been stopped.
fn launched_since(tenant: &Tenant, would: &Would) -> Option<Mono> {
    match tenant.activity {
        Activity::Computing { since } if would.held_since.is_none() && since >= would.since => Some(since),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use berth_model::GpuIndex;
    use berth_policy::Reason;
    use proptest::prelude::*;

    use super::*;

    fn key() -> TenantKey {
        TenantKey::User { uid: 7 }
    }

    fn view(activity: Activity, stand: Stand) -> View {
        let tenant = Tenant {
            key: key(),
            name: "train-7".into(),
            owner: None,
            gpus: BTreeSet::from([GpuIndex(0)]),
            gang: None,
            arrived: Mono(1),
            activity,
            memory: None,
            needs: None,
            core: None,
            stand,
            means: BTreeSet::from([Means::Gate]),
            past: None,
            work: None,
        };
        View { gpus: vec![], tenants: vec![tenant] }
    }

    fn decided(action: Action) -> Vec<Decision> {
        vec![Decision { tenant: key(), action, reason: Reason::ItsTurn }]
    }

    fn told(rehearsal: &mut Rehearsal) -> Vec<&'static str> {
        let word = |change| if matches!(change, Rehearsed::Held { .. }) { "held" } else { "released" };
        rehearsal.changes().into_iter().map(word).collect()
    }

    #[test]
    fn one_that_would_be_gated_would_stand_from_its_next_launch_on_and_that_is_told_once() {
        let mut rehearsal = Rehearsal::default();
        rehearsal.take(decided(Action::Hold(Means::Gate)), Mono(10));
        let mut loading = view(Activity::Loading, Stand::Free);
        rehearsal.pretend(&mut loading, Mono(11));
        assert_eq!((loading.tenants[0].stand, told(&mut rehearsal)), (Stand::Gated { since: Mono(10) }, vec![]));

        for now in 20..25 {
            let mut launched = view(Activity::Computing { since: Mono(15) }, Stand::Free);
            rehearsal.pretend(&mut launched, Mono(now));
            let tenant = &launched.tenants[0];
            assert_eq!(tenant.stand, Stand::Held { means: Means::Gate, since: Mono(15) });
            assert_eq!(tenant.activity, Activity::AtLaunch { since: Mono(15), computing_since: None });
        }
        assert_eq!((told(&mut rehearsal), rehearsal.counters().gate), (vec!["held"], 1));
        rehearsal.take(decided(Action::Release), Mono(30));
        rehearsal.take(decided(Action::Release), Mono(31));
        assert_eq!((told(&mut rehearsal), rehearsal.of(&key())), (vec!["released"], None));
    }

    #[test]
    fn one_that_computes_already_would_go_on_until_it_launches_anew() {
        let mut rehearsal = Rehearsal::default();
        rehearsal.take(decided(Action::Hold(Means::Gate)), Mono(10));
        let mut computing = view(Activity::Computing { since: Mono(5) }, Stand::Free);
        rehearsal.pretend(&mut computing, Mono(20));
        assert_eq!(computing.tenants[0].activity, Activity::Computing { since: Mono(5) });
        assert_eq!(told(&mut rehearsal), Vec::<&str>::new(), "nothing would keep it off yet");
    }

    #[test]
    fn who_leaves_would_be_released_and_whom_a_person_holds_is_left_to_the_person() {
        let mut rehearsal = Rehearsal::default();
        rehearsal.take(decided(Action::Hold(Means::Freeze)), Mono(10));
        rehearsal.take(decided(Action::Hold(Means::Freeze)), Mono(11));
        assert_eq!(told(&mut rehearsal), ["held"], "by a freeze at once, and once");
        rehearsal.pretend(&mut View::default(), Mono(20));
        assert_eq!(told(&mut rehearsal), ["released"]);

        rehearsal.take(decided(Action::Hold(Means::Freeze)), Mono(30));
        let mut by_person = view(Activity::Loading, Stand::ByPerson);
        rehearsal.pretend(&mut by_person, Mono(31));
        assert_eq!((by_person.tenants[0].stand, rehearsal.of(&key())), (Stand::ByPerson, None));
    }

    /// What a policy may decide and what a tenant may do, in any order.
    #[derive(Debug, Clone, Copy)]
    enum Next {
        Decided(Action),
        Seen(Option<(Activity, Stand)>),
    }

    fn next() -> impl Strategy<Value = Next> {
        let activity = prop_oneof![
            Just(Activity::Loading),
            (0_u64..40).prop_map(|since| Activity::Computing { since: Mono(since) }),
            (0_u64..40).prop_map(|since| Activity::Quiet { since: Mono(since) }),
        ];
        let stand = prop_oneof![5 => Just(Stand::Free), 1 => Just(Stand::ByPerson)];
        prop_oneof![
            prop_oneof![Just(Means::Gate), Just(Means::Freeze)].prop_map(|means| Next::Decided(Action::Hold(means))),
            Just(Next::Decided(Action::Release)),
            prop::option::weighted(0.9, (activity, stand)).prop_map(Next::Seen),
        ]
    }

    proptest! {
        /// Nothing is told twice, and nobody is released who was not held.
        #[test]
        fn what_is_told_is_a_story(story in prop::collection::vec(next(), 0..40)) {
            let (mut rehearsal, mut held) = (Rehearsal::default(), None);
            for (now, next) in (0..).zip(story) {
                match next {
                    Next::Decided(action) => rehearsal.take(decided(action), Mono(now)),
                    Next::Seen(Some((activity, stand))) => rehearsal.pretend(&mut view(activity, stand), Mono(now)),
                    Next::Seen(None) => rehearsal.pretend(&mut View::default(), Mono(now)),
                }
                for change in rehearsal.changes() {
                    let now_held = if let Rehearsed::Held { means, .. } = change { Some(means) } else { None };
                    prop_assert_ne!(now_held, held, "told twice");
                    held = now_held;
                }
                let is_held = rehearsal.of(&key()).and_then(|would| would.held_since.map(|_| would.means));
                prop_assert_eq!(is_held, held, "what is told is what would be");
            }
        }
    }
}

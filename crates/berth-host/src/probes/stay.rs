//! One process's stay on the GPU as its driver calls tell it: which moments to report, when to probe its hot calls.
//!
//! Pure: calls go in, [`Action`]s come out. It believes what it is told; which process a call belongs to, and how
//! probes are attached, is settled elsewhere.
//!
//! Hot calls are armed once per stay, as early as the process shows itself (`cuInit`, or entering the creation of a
//! context), so that the probes are in place before a context is ready. The first hit ends the probe. A stay is over
//! when the last context is gone; the next one arms again.

use berth_model::Moment;

use super::function::{Call, Hot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Report(Moment),
    /// The next such call is a first one: count from zero.
    Expect(Hot),
    /// Probe these calls of the process, and tell when that is done.
    Attach(Hot),
    /// No more needed: take the probes away whenever convenient.
    Detach(Hot),
}

#[derive(Debug, Default)]
pub struct Stay {
    opened: bool,
    /// The hot calls of this stay were armed.
    armed: bool,
    /// Found running: it may have contexts nobody saw being made.
    adopted: bool,
    created: u32,
    retained: u32,
    arms: [Arm; 2],
}

/// Where the probes of one kind of hot call stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Arm {
    #[default]
    Off,
    Attaching,
    /// Hit before attaching was reported done; what is attached will be taken away at once.
    AttachingSeen,
    On,
}

// === impl Stay ===

impl Stay {
    pub fn on_call(&mut self, call: Call) -> Vec<Action> {
        let mut actions = Vec::new();
        match call {
            Call::Init => {
                if !std::mem::replace(&mut self.opened, true) {
                    actions.push(Action::Report(Moment::DeviceOpen));
                }
                self.arm(&mut actions);
            }
            Call::ContextWanted => self.arm(&mut actions),
            Call::ContextCreated => {
                self.created += 1;
                actions.push(Action::Report(Moment::ContextReady));
            }
            Call::ContextRetained => {
                self.retained += 1;
                if self.retained == 1 {
                    actions.push(Action::Report(Moment::ContextReady));
                }
            }
            Call::ContextDestroyed => {
                self.created = self.created.saturating_sub(1);
                self.context_gone(&mut actions);
            }
            Call::ContextReleased => {
                self.retained = self.retained.saturating_sub(1);
                if self.retained == 0 {
                    self.context_gone(&mut actions);
                }
            }
            Call::ContextReset => {
                self.retained = 0;
                self.context_gone(&mut actions);
            }
            Call::Allocation => self.hit(Hot::Allocation, Moment::FirstAllocation, &mut actions),
            Call::Launch => self.hit(Hot::Launch, Moment::FirstLaunch, &mut actions),
        }
        actions
    }

    /// The process was found using a GPU already: its next hot calls are its first ones as far as anyone can tell.
    pub fn on_adopted(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        self.adopted = true;
        self.arm(&mut actions);
        actions
    }

    pub fn on_attached(&mut self, hot: Hot) -> Option<Action> {
        let arm = &mut self.arms[hot.index()];
        match *arm {
            Arm::Attaching => {
                *arm = Arm::On;
                None
            }
            Arm::AttachingSeen => {
                *arm = Arm::Off;
                Some(Action::Detach(hot))
            }
            Arm::Off | Arm::On => None,
        }
    }

    pub fn on_attach_failed(&mut self, hot: Hot) {
        self.arms[hot.index()] = Arm::Off;
    }

    /// Nothing armed or under way: the kernel's counter of these calls means nothing any more.
    pub fn is_off(&self, hot: Hot) -> bool {
        self.arms[hot.index()] == Arm::Off
    }

    /// A context of this stay is ready, so a first call may have passed before its probe was there.
    pub fn may_have_missed(&self) -> bool {
        !self.adopted && self.created + self.retained > 0
    }

    fn arm(&mut self, actions: &mut Vec<Action>) {
        if std::mem::replace(&mut self.armed, true) {
            return;
        }
        for hot in Hot::ALL {
            let arm = &mut self.arms[hot.index()];
            match *arm {
                Arm::Off => {
                    *arm = Arm::Attaching;
                    actions.extend([Action::Expect(hot), Action::Attach(hot)]);
                }
                // What is being attached for the last stay serves this one.
                Arm::AttachingSeen => {
                    *arm = Arm::Attaching;
                    actions.push(Action::Expect(hot));
                }
                Arm::Attaching | Arm::On => {}
            }
        }
    }

    fn hit(&mut self, hot: Hot, moment: Moment, actions: &mut Vec<Action>) {
        let arm = &mut self.arms[hot.index()];
        match *arm {
            Arm::Off | Arm::AttachingSeen => return,
            Arm::Attaching => *arm = Arm::AttachingSeen,
            Arm::On => *arm = Arm::Off,
        }
        actions.push(Action::Report(moment));
        if *arm == Arm::Off {
            actions.push(Action::Detach(hot));
        }
    }

    fn context_gone(&mut self, actions: &mut Vec<Action>) {
        actions.push(Action::Report(Moment::ContextGone));
        if self.created == 0 && self.retained == 0 {
            self.armed = false;
            self.adopted = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moments(stay: &mut Stay, calls: &[Call]) -> Vec<Moment> {
        let actions = calls.iter().flat_map(|call| stay.on_call(*call));
        actions.filter_map(|a| if let Action::Report(moment) = a { Some(moment) } else { None }).collect()
    }

    fn armed() -> Stay {
        let mut stay = Stay::default();
        stay.on_call(Call::Init);
        for hot in Hot::ALL {
            assert_eq!(stay.on_attached(hot), None);
        }
        stay
    }

    fn is_on(stay: &Stay, hot: Hot) -> bool {
        stay.arms[hot.index()] == Arm::On
    }

    const EXPECT_BOTH: [Action; 4] = [
        Action::Expect(Hot::Allocation),
        Action::Attach(Hot::Allocation),
        Action::Expect(Hot::Launch),
        Action::Attach(Hot::Launch),
    ];

    #[test]
    fn opening_the_device_arms_both_kinds_before_a_context_exists() {
        let actions = Stay::default().on_call(Call::Init);
        assert_eq!(actions[0], Action::Report(Moment::DeviceOpen));
        assert_eq!(actions[1..], EXPECT_BOTH);
    }

    #[test]
    fn each_library_of_a_program_may_call_init_but_the_device_is_opened_once() {
        assert_eq!(moments(&mut Stay::default(), &[Call::Init; 3]), [Moment::DeviceOpen]);
    }

    #[test]
    fn a_stay_is_told_in_its_moments() {
        use Call::*;
        let calls =
            [ContextWanted, ContextCreated, Allocation, Allocation, Launch, Launch, Allocation, ContextDestroyed];
        let told = moments(&mut armed(), &calls);
        use Moment::*;
        assert_eq!(told, [ContextReady, FirstAllocation, FirstLaunch, ContextGone]);
    }

    #[test]
    fn the_first_launch_ends_its_own_probe_and_not_the_allocations() {
        let mut stay = armed();
        assert_eq!(stay.on_call(Call::Launch), [Action::Report(Moment::FirstLaunch), Action::Detach(Hot::Launch)]);
        assert!(is_on(&stay, Hot::Allocation) && stay.is_off(Hot::Launch));
    }

    #[test]
    fn a_hit_before_attaching_is_done_is_told_and_the_probe_taken_away_when_it_is() {
        let mut stay = Stay::default();
        stay.on_call(Call::Init);
        assert_eq!(stay.on_call(Call::Launch), [Action::Report(Moment::FirstLaunch)]);
        assert_eq!(stay.on_attached(Hot::Launch), Some(Action::Detach(Hot::Launch)));
    }

    #[test]
    fn re_entry_arms_again_only_after_the_last_context_is_gone() {
        let mut stay = armed();
        moments(&mut stay, &[Call::ContextCreated, Call::ContextCreated, Call::Allocation, Call::Launch]);
        stay.on_call(Call::ContextDestroyed);
        assert_eq!(stay.on_call(Call::ContextWanted), []);
        stay.on_call(Call::ContextDestroyed);
        assert_eq!(stay.on_call(Call::ContextWanted), EXPECT_BOTH);
    }

    #[test]
    fn retaining_a_live_primary_context_is_no_new_context_and_releasing_it_no_end() {
        use Call::*;
        let told = moments(&mut armed(), &[ContextRetained, ContextRetained, ContextReleased, ContextReleased]);
        assert_eq!(told, [Moment::ContextReady, Moment::ContextGone]);
    }

    #[test]
    fn a_reset_ends_the_primary_context_however_often_it_was_retained() {
        use Call::*;
        let mut stay = armed();
        let told = moments(&mut stay, &[ContextRetained, ContextRetained, Launch, ContextReset, ContextRetained]);
        assert_eq!(told, [Moment::ContextReady, Moment::FirstLaunch, Moment::ContextGone, Moment::ContextReady]);
    }

    #[test]
    fn a_process_found_running_ends_its_stay_with_a_context_nobody_saw_made() {
        let mut stay = Stay::default();
        assert_eq!(stay.on_adopted(), EXPECT_BOTH);
        assert_eq!(moments(&mut stay, &[Call::ContextDestroyed]), [Moment::ContextGone]);
        assert!(!stay.may_have_missed());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Call(Call),
        Attached(Hot),
        Failed(Hot),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let hot = prop::sample::select(&Hot::ALL[..]);
        let step = prop_oneof![
            6 => prop::sample::select(&Call::ALL[..]).prop_map(Step::Call),
            3 => hot.clone().prop_map(Step::Attached),
            1 => hot.prop_map(Step::Failed),
        ];
        prop::collection::vec(step, 0..80)
    }

    proptest! {
        /// Whatever a process does: at most one probe of a kind is attached or under way, each that was attached and
        /// is not wanted any more is taken away, and a kind is told at most once for each time it is expected.
        #[test]
        fn probes_are_neither_doubled_nor_leaked_and_firsts_are_first(steps in steps()) {
            let mut stay = Stay::default();
            let (mut under_way, mut attached, mut expected) = ([false; 2], [false; 2], [false; 2]);
            for step in steps {
                let actions = match step {
                    Step::Call(call) => stay.on_call(call),
                    // The kernel answers only what was asked.
                    Step::Attached(hot) if under_way[hot.index()] => {
                        under_way[hot.index()] = false;
                        attached[hot.index()] = true;
                        stay.on_attached(hot).into_iter().collect()
                    }
                    Step::Failed(hot) if under_way[hot.index()] => {
                        under_way[hot.index()] = false;
                        stay.on_attach_failed(hot);
                        vec![]
                    }
                    Step::Attached(_) | Step::Failed(_) => vec![],
                };
                for action in actions {
                    match action {
                        Action::Expect(hot) => expected[hot.index()] = true,
                        Action::Attach(hot) => {
                            prop_assert!(!under_way[hot.index()] && !attached[hot.index()], "doubled {hot:?}");
                            under_way[hot.index()] = true;
                        }
                        Action::Detach(hot) => {
                            prop_assert!(attached[hot.index()], "nothing to detach {hot:?}");
                            attached[hot.index()] = false;
                        }
                        Action::Report(moment) => {
                            let hot = match moment {
                                Moment::FirstAllocation => Hot::Allocation,
                                Moment::FirstLaunch => Hot::Launch,
                                _ => continue,
                            };
                            prop_assert!(std::mem::take(&mut expected[hot.index()]), "told twice {hot:?}");
                        }
                    }
                }
                for hot in Hot::ALL {
                    prop_assert_eq!(is_on(&stay, hot), attached[hot.index()]);
                }
            }
        }
    }
}

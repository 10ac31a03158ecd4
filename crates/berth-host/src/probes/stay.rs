//! One process's stay on the GPU as its driver calls tell it: which moments to report, when to probe its hot calls.
//!
//! Pure: calls go in, [`Action`]s come out. It believes what it is told; which process a call belongs to, and how
//! probes are attached, is settled elsewhere.
//!
//! Hot calls are armed once per stay, as early as the process shows itself (`cuInit`, or entering the creation of a
//! context), so that the probes are in place before a context is ready. The first hit ends the probe, unless an [`Interest`]
//! in such calls keeps it. A stay is over when the last context is gone; the next one arms again.

use berth_model::Moment;

use super::function::{Call, Hot};
use super::rule::Rule;

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

/// Why all hot calls of some kinds are probed, not only the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Its launches are stopped.
    Gate,
    /// It is stopped at the making of its first context, which is probed in any case.
    Bar,
    /// Its allocations beyond a limit are stopped.
    Limit,
    /// It is told when it goes over from computing to waiting and back.
    Watch,
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
    /// The next such call is a first one.
    expected: [bool; 3],
    interests: [bool; 4],
    arms: [Arm; 3],
}

/// Where the probes of one kind of hot call stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Arm {
    #[default]
    Off,
    Attaching,
    On,
}

// === impl Interest ===

impl Interest {
    pub const ALL: [Interest; 4] = [Interest::Gate, Interest::Bar, Interest::Limit, Interest::Watch];

    /// The calls it is in.
    pub fn hots(self) -> &'static [Hot] {
        match self {
            Interest::Gate => &[Hot::Launch],
            Interest::Bar => &[],
            Interest::Limit => &[Hot::Allocation],
            Interest::Watch => &[Hot::Launch, Hot::Drained],
        }
    }

    /// What the programs are told for it.
    pub fn rule(self) -> Rule {
        match self {
            Interest::Gate => Rule::Stop(Call::Launch),
            Interest::Bar => Rule::Stop(Call::ContextWanted),
            Interest::Limit => Rule::Stop(Call::Allocation),
            Interest::Watch => Rule::Watch,
        }
    }
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
            Call::Drained => {}
        }
        actions
    }

    pub fn on_interest(&mut self, interest: Interest, is_there: bool) -> Vec<Action> {
        let mut actions = Vec::new();
        self.interests[interest as usize] = is_there;
        for hot in Hot::ALL {
            self.settle(hot, &mut actions);
        }
        actions
    }

    pub fn has_interest(&self, interest: Interest) -> bool {
        self.interests[interest as usize]
    }

    /// The process was found using a GPU already: its next hot calls are its first ones as far as anyone can tell.
    pub fn on_adopted(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        self.adopted = true;
        self.arm(&mut actions);
        actions
    }

    /// What is not needed any more is taken away at once.
    pub fn on_attached(&mut self, hot: Hot) -> Vec<Action> {
        let mut actions = Vec::new();
        self.arms[hot.index()] = Arm::On;
        self.settle(hot, &mut actions);
        actions
    }

    /// Whatever it was for will not be: neither a first call nor an interest in such calls is left.
    pub fn on_attach_failed(&mut self, hot: Hot) -> Vec<Action> {
        let mut actions = Vec::new();
        self.arms[hot.index()] = Arm::Off;
        self.expected[hot.index()] = false;
        for interest in Interest::ALL.into_iter().filter(|interest| interest.hots().contains(&hot)) {
            actions.extend(self.on_interest(interest, false));
        }
        actions
    }

    /// All calls that `interest` is in are probed.
    pub fn is_probed(&self, interest: Interest) -> bool {
        interest.hots().iter().all(|hot| self.arms[hot.index()] == Arm::On)
    }

    /// Nothing armed or under way: the kernel's counter of these calls means nothing any more.
    pub fn is_off(&self, hot: Hot) -> bool {
        self.arms[hot.index()] == Arm::Off
    }

    /// It has a context, or may have: it was found running.
    pub fn may_have_context(&self) -> bool {
        self.adopted || self.created + self.retained > 0
    }

    /// A context of this stay is ready, so the first such call may have passed before its probe was there.
    pub fn may_have_missed(&self, hot: Hot) -> bool {
        self.expected[hot.index()] && !self.adopted && self.created + self.retained > 0
    }

    fn arm(&mut self, actions: &mut Vec<Action>) {
        if std::mem::replace(&mut self.armed, true) {
            return;
        }
        for hot in Hot::FIRSTS {
            if !std::mem::replace(&mut self.expected[hot.index()], true) {
                actions.push(Action::Expect(hot));
            }
            // What is attached, or being attached, for another reason serves this one.
            self.settle(hot, actions);
        }
    }

    fn hit(&mut self, hot: Hot, moment: Moment, actions: &mut Vec<Action>) {
        if std::mem::take(&mut self.expected[hot.index()]) {
            actions.push(Action::Report(moment));
            self.settle(hot, actions);
        }
    }

    /// Probes the calls if anything needs it, and no longer if nothing does. What is being attached is settled when it is.
    fn settle(&mut self, hot: Hot, actions: &mut Vec<Action>) {
        let of_interest = Interest::ALL.iter().any(|i| self.interests[*i as usize] && i.hots().contains(&hot));
        let arm = &mut self.arms[hot.index()];
        match (*arm, self.expected[hot.index()] || of_interest) {
            (Arm::Off, true) => {
                *arm = Arm::Attaching;
                actions.push(Action::Attach(hot));
            }
            (Arm::On, false) => {
                *arm = Arm::Off;
                actions.push(Action::Detach(hot));
            }
            (Arm::Off, false) | (Arm::On, true) | (Arm::Attaching, _) => {}
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
        for hot in Hot::FIRSTS {
            assert_eq!(stay.on_attached(hot), []);
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
        assert_eq!(stay.on_attached(Hot::Launch), [Action::Detach(Hot::Launch)]);
    }

    #[test]
    fn gating_a_newcomer_finds_its_probes_in_place_and_keeps_them_beyond_the_first_launch() {
        let mut stay = armed();
        assert_eq!(stay.on_interest(Interest::Gate, true), []);
        assert!(stay.is_probed(Interest::Gate));
        assert_eq!(stay.on_call(Call::Launch), [Action::Report(Moment::FirstLaunch)]);
        assert_eq!(stay.on_interest(Interest::Gate, false), [Action::Detach(Hot::Launch)]);
    }

    #[test]
    fn gating_after_the_first_launch_probes_again_and_tells_no_second_first() {
        let mut stay = armed();
        stay.on_call(Call::Launch);
        assert_eq!(stay.on_interest(Interest::Gate, true), [Action::Attach(Hot::Launch)]);
        assert!(!stay.is_probed(Interest::Gate));
        stay.on_attached(Hot::Launch);
        assert!(stay.is_probed(Interest::Gate));
        assert_eq!(stay.on_call(Call::Launch), []);
    }

    #[test]
    fn a_gate_opened_again_while_it_is_being_attached_is_taken_away_when_it_is() {
        let mut stay = armed();
        stay.on_call(Call::Launch);
        stay.on_interest(Interest::Gate, true);
        assert_eq!(stay.on_interest(Interest::Gate, false), []);
        assert_eq!(stay.on_attached(Hot::Launch), [Action::Detach(Hot::Launch)]);
    }

    #[test]
    fn launches_stay_probed_until_neither_gate_nor_watch_needs_them() {
        let mut stay = armed();
        stay.on_interest(Interest::Gate, true);
        assert_eq!(stay.on_interest(Interest::Watch, true), [Action::Attach(Hot::Drained)]);
        stay.on_attached(Hot::Drained);
        stay.on_call(Call::Launch);
        assert_eq!(stay.on_interest(Interest::Gate, false), []);
        let both = [Action::Detach(Hot::Launch), Action::Detach(Hot::Drained)];
        assert_eq!(stay.on_interest(Interest::Watch, false), both);
    }

    #[test]
    fn what_cannot_be_probed_leaves_no_half_of_a_watch_behind() {
        let mut stay = armed();
        stay.on_call(Call::Launch);
        stay.on_interest(Interest::Watch, true);
        stay.on_attached(Hot::Launch);
        assert_eq!(stay.on_attach_failed(Hot::Drained), [Action::Detach(Hot::Launch)]);
        assert!(!stay.has_interest(Interest::Watch));
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
        assert!(!stay.may_have_missed(Hot::Launch));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Call(Call),
        Attached(Hot),
        Failed(Hot),
        Interest(Interest, bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let hot = prop::sample::select(&Hot::ALL[..]);
        let step = prop_oneof![
            6 => prop::sample::select(&Call::ALL[..]).prop_map(Step::Call),
            3 => hot.clone().prop_map(Step::Attached),
            1 => hot.prop_map(Step::Failed),
            2 => (prop::sample::select(&Interest::ALL[..]), any::<bool>()).prop_map(|(i, on)| Step::Interest(i, on)),
        ];
        prop::collection::vec(step, 0..80)
    }

    proptest! {
        /// Whatever a process does: at most one probe of a kind is attached or under way, each that was attached and
        /// is not wanted any more is taken away, each that is of interest is there or on its way, and a kind is told at
        /// most once for each time it is expected.
        #[test]
        fn probes_are_neither_doubled_nor_leaked_and_firsts_are_first(steps in steps()) {
            let mut stay = Stay::default();
            let (mut under_way, mut attached, mut expected) = ([false; 3], [false; 3], [false; 3]);
            for step in steps {
                let actions = match step {
                    Step::Call(call) => stay.on_call(call),
                    // The kernel answers only what was asked.
                    Step::Attached(hot) if under_way[hot.index()] => {
                        under_way[hot.index()] = false;
                        attached[hot.index()] = true;
                        stay.on_attached(hot)
                    }
                    Step::Failed(hot) if under_way[hot.index()] => {
                        under_way[hot.index()] = false;
                        expected[hot.index()] = false;
                        stay.on_attach_failed(hot)
                    }
                    Step::Interest(interest, is_there) => stay.on_interest(interest, is_there),
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
                    let wanted = Interest::ALL.into_iter().any(|i| stay.has_interest(i) && i.hots().contains(&hot));
                    let wanted = wanted || expected[hot.index()];
                    prop_assert!(!wanted || attached[hot.index()] || under_way[hot.index()], "missing {hot:?}");
                    prop_assert!(wanted || !attached[hot.index()], "left over {hot:?}");
                }
            }
        }
    }
}

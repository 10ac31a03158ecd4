//! The keeper against a world in which anything fails, half happens, dies, or is meddled with.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::event::HealthChecks;
use crate::hold::{Body, Check, Freezer, next};

const PIDS: std::ops::Range<u32> = 1..4;

/// After so long a freeze is to be the engine's.
const PAUSE_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug, Clone)]
enum Input {
    Want(usize, Want, bool),
    /// The step in flight of a tenant ends; whether it happened is the world's secret.
    End {
        tenant: usize,
        told: Result<(), bool>,
        happened: bool,
    },
    Launch(usize, Index),
    Come(usize, u32),
    Check(usize, Check),
    Exit(usize, Index),
    Thaw(usize),
    Pause(usize),
    Signal(usize),
    TaskEnds(usize),
    Vanish(usize),
    Wait(u64),
}

/// What is truly the case, and what is on record.
#[derive(Debug, Default)]
struct World {
    real: BTreeMap<TenantKey, Grip>,
    journal: BTreeMap<TenantKey, Note>,
    paused: BTreeSet<TenantKey>,
    alive: BTreeMap<TenantKey, BTreeSet<ProcKey>>,
    flights: BTreeMap<TenantKey, Step>,
    /// Processes so far: one that ended never comes back.
    births: u64,
    keeper: Keeper,
    now: Mono,
}

fn tenant(number: usize) -> TenantKey {
    TenantKey::Cgroup { path: format!("/{number}") }
}

impl World {
    fn feed(&mut self, input: &Input) {
        let now = self.now;
        match input {
            Input::Wait(millis) => self.now = now + Duration::from_millis(*millis),
            Input::Want(number, want, is_person) => self.wish(&tenant(*number), *want, *is_person),
            Input::End { tenant: number, told, happened } => self.end(&tenant(*number), *told, *happened),
            Input::Launch(number, which) => self.launch(&tenant(*number), which),
            Input::Come(number, pid) => {
                self.births += 1;
                let alive = self.alive.entry(tenant(*number)).or_default();
                alive.insert(ProcKey { pid: *pid, start_ticks: self.births });
                self.keeper.meet(&tenant(*number), alive, number.is_multiple_of(2), now);
                self.keeper.pause_after(&tenant(*number), Some(PAUSE_AFTER), None);
            }
            Input::Check(number, check) => {
                let of = HealthChecks { every: Duration::from_secs(1), within: Duration::from_secs(1) };
                let checks = Checks { of, check: *check };
                self.keeper.pause_after(&tenant(*number), Some(PAUSE_AFTER), Some(checks));
            }
            Input::Exit(number, which) => self.exit(&tenant(*number), which),
            Input::Thaw(number) => self.thaw(&tenant(*number)),
            Input::Pause(number) => self.pause(&tenant(*number)),
            Input::Signal(number) => self.keeper.signalled(&tenant(*number), Sent::UNKNOWN, 0, now),
            Input::TaskEnds(number) => drop(self.keeper.task_ended(&tenant(*number), now)),
            Input::Vanish(number) => self.vanish(&tenant(*number)),
        }
        self.turn();
    }

    /// A person's word stays until a person, or the end, takes it back.
    fn wish(&mut self, tenant: &TenantKey, want: Want, is_person: bool) {
        let before = self.keeper.view(tenant, self.now);
        let by = if is_person { By::Person { uid: 7 } } else { By::Policy };
        let answer = self.keeper.want(tenant, want, by, "r", self.now);
        if !is_person && before.as_ref().is_some_and(|view| view.by != By::Policy) {
            assert!(matches!(answer, Err(Refused::PersonDecided { .. } | Refused::FrozenByOthers)), "{answer:?}");
            assert_eq!(self.keeper.view(tenant, self.now), before);
        }
    }

    fn end(&mut self, tenant: &TenantKey, told: Result<(), bool>, happened: bool) {
        let Some(step) = self.flights.remove(tenant) else { return };
        if told.is_ok() || happened {
            self.happen(tenant, step, told.is_ok());
        }
        let outcome = told.map_err(|is_passing| StepFailure { message: "no".into(), is_passing });
        self.keeper.step(tenant, step, outcome, self.now);
    }

    /// Nothing happens to the dead, and what others froze is theirs; into it the way out of the shelter leads all the same. A hand-over
    /// may end in the shelter.
    fn happen(&mut self, tenant: &TenantKey, step: Step, is_whole: bool) {
        let is_dead = |process| !self.alive.get(tenant).is_some_and(|alive| alive.contains(&process));
        let is_whole_tenant_s = step.process().is_none() && step != Step::Unshelter;
        if step.process().is_some_and(is_dead) || (is_whole_tenant_s && self.paused.contains(tenant)) {
            return;
        }
        if let Some(real) = self.real.get_mut(tenant) {
            *real = if is_whole { real.done(step) } else { half_done(real, step) };
        } else if self.alive.contains_key(tenant) {
            self.real.insert(tenant.clone(), Grip::default().done(step));
        }
    }

    fn launch(&mut self, tenant: &TenantKey, which: &Index) {
        let Some(real) = self.real.get_mut(tenant) else { return };
        let running: Vec<ProcKey> = real.gated.difference(&real.stopped).copied().collect();
        if running.is_empty() || real.frozen.is_some() || self.paused.contains(tenant) {
            return;
        }
        let process = running[which.index(running.len())];
        real.stopped.insert(process);
        self.keeper.halted(tenant, process, self.now);
    }

    fn exit(&mut self, tenant: &TenantKey, which: &Index) {
        let all: Vec<ProcKey> = self.alive.get(tenant).into_iter().flatten().copied().collect();
        if all.is_empty() {
            return;
        }
        let process = all[which.index(all.len())];
        for alive in self.alive.values_mut() {
            alive.remove(&process);
        }
        for real in self.real.values_mut() {
            real.forget(process);
        }
        self.keeper.exited(process, self.now);
    }

    fn thaw(&mut self, tenant: &TenantKey) {
        if self.is_at_the_engine(tenant) {
            return;
        }
        let is_docker = |frozen: &mut Freezer| *frozen == Freezer::Docker;
        let is_ours = self.real.get_mut(tenant).is_some_and(|real| real.frozen.take_if(is_docker).is_some());
        if self.paused.remove(tenant) || is_ours {
            self.keeper.engine_told(tenant, false, 7, self.now);
        }
    }

    fn pause(&mut self, tenant: &TenantKey) {
        // The engine sees nothing of the shelter.
        let is_seen = |real: &Grip| real.frozen.is_some_and(|freezer| freezer != Freezer::Shelter);
        let is_ours = self.real.get(tenant).is_some_and(is_seen);
        if !is_ours
            && !self.is_at_the_engine(tenant)
            && self.alive.contains_key(tenant)
            && self.paused.insert(tenant.clone())
        {
            if let Some(real) = self.real.get_mut(tenant) {
                real.sheltered |= real.frozen.take().is_some();
            }
            self.keeper.engine_told(tenant, true, 7, self.now);
        }
    }

    /// An engine does one thing to a container at a time.
    fn is_at_the_engine(&self, tenant: &TenantKey) -> bool {
        self.flights.get(tenant).is_some_and(|step| step.is_by_engine())
    }

    fn vanish(&mut self, tenant: &TenantKey) {
        self.real.remove(tenant);
        self.alive.remove(tenant);
        self.paused.remove(tenant);
        self.keeper.gone(tenant, self.now);
        // It may come back under the same name only when nothing of it is left.
        self.flights.remove(tenant).inspect(|step| self.keeper.step(tenant, *step, Ok(()), self.now));
    }

    fn turn(&mut self) {
        let before = self.keeper.clone();
        let turn = self.keeper.turn(self.now);
        for (tenant, note) in turn.notes {
            match note {
                Some(note) => drop(self.journal.insert(tenant, note)),
                None => drop(self.journal.remove(&tenant)),
            }
        }
        for Order { tenant, step } in turn.orders {
            self.check_order(&before, &tenant, step);
            assert_eq!(self.flights.insert(tenant, step), None, "two steps at once");
        }
        self.check_record();
        self.check_views();
    }

    fn check_order(&self, before: &Keeper, tenant: &TenantKey, step: Step) {
        let grip = before.note(tenant).map(|note| note.grip).unwrap_or_default();
        let view = self.keeper.view(tenant, self.now).unwrap();
        if step.sets_free() {
            assert_ne!(grip.done(step), grip, "{step:?} undoes what nobody did: {grip:?}");
        } else {
            let nobody = BTreeSet::new();
            let processes = self.alive.get(tenant).unwrap_or(&nobody);
            let freezer = match step {
                Step::HandOver => Freezer::Docker,
                Step::Freeze(Freezer::Shelter) => Freezer::Shelter,
                _ => Freezer::Cgroup,
            };
            let body = Body { processes, can_freeze: true, freezer };
            // A hand-over that may not have happened is taken once more, also out of a shelter that has been left meanwhile.
            let is_repeated =
                grip.begun(step) == Grip { sheltered: grip.sheltered || step == Step::HandOver, ..grip.clone() };
            // On the way back one process that could not be set free is passed over.
            let hides_a_stop = matches!(step, Step::Freeze(_)) && !grip.stopped.is_empty();
            let is_next = next(&grip, view.want, body) == Some(step);
            assert!(is_repeated || is_next || hides_a_stop, "{step:?} from {grip:?} to {:?}", view.want);
        }
        let is_whole = matches!(step, Step::Freeze(_) | Step::HandOver | Step::Thaw(_));
        assert!(!(is_whole && self.paused.contains(tenant)), "{step:?} of what a person paused");
    }

    /// Whoever comes after a crash finds everything that is real on record, or can infer it.
    fn check_record(&self) {
        for (tenant, real) in self.real.iter().filter(|(_, real)| !real.is_empty()) {
            let note = self.journal.get(tenant).unwrap_or_else(|| panic!("{tenant}: nothing of {real:?} is written"));
            let left = note.grip.after_crash();
            let pairs = [
                (&real.gated, &left.gated),
                (&real.stopped, &left.stopped),
                (&real.locked, &left.locked),
                (&real.parked, &left.parked),
            ];
            assert!(pairs.iter().all(|(real, left)| real.is_subset(left)), "{tenant}: {real:?} but {left:?}");
            assert!(real.frozen.is_none() || left.frozen.is_some(), "{tenant}: {real:?} but {left:?}");
            assert!(
                real.frozen != Some(Freezer::Docker) || left.frozen == real.frozen,
                "{tenant}: {real:?} but {left:?}"
            );
            let may_be_sheltered = left.sheltered || left.frozen == Some(Freezer::Shelter);
            let is_sheltered = real.sheltered || real.frozen == Some(Freezer::Shelter);
            assert!(!is_sheltered || may_be_sheltered, "{tenant}: {real:?} but {left:?}");
        }
    }

    /// What is said to be held is.
    fn check_views(&self) {
        for (tenant, alive) in self.alive.iter().filter(|(tenant, _)| !self.flights.contains_key(tenant)) {
            let Some(view) = self.keeper.view(tenant, self.now) else { continue };
            let real = self.real.get(tenant).cloned().unwrap_or_default();
            let is_true = match (view.stage, view.want) {
                (Stage::Free, _) => real.is_empty(),
                (Stage::Armed, _) => alive.is_subset(&real.gated),
                (Stage::Held, Want::Frozen(_)) => real.frozen.is_some(),
                (Stage::Held, Want::Locked) => alive.is_subset(&real.locked),
                (Stage::Held, Want::Parked) => alive.is_subset(&real.parked),
                (Stage::Held, _) | (Stage::Moving, _) => true,
            };
            assert!(is_true, "{tenant} is said to be {:?} by {:?}: {real:?}", view.stage, view.want);
        }
    }

    /// From here on everything works, and everybody is to be free.
    fn come_to_rest(&mut self) {
        let all: Vec<TenantKey> = self.alive.keys().cloned().collect();
        for tenant in &all {
            if self.paused.contains(tenant) {
                self.thaw(tenant);
            }
        }
        self.keeper.release_all("the end", self.now);
        for _ in 0..100 {
            self.turn();
            for tenant in self.flights.keys().cloned().collect::<Vec<_>>() {
                self.end(&tenant, Ok(()), true);
            }
            self.now = self.now + Duration::from_millis(100);
        }
    }
}

/// What failed and happened all the same.
fn half_done(real: &Grip, step: Step) -> Grip {
    if step == Step::HandOver { real.begun(step) } else { real.done(step) }
}

fn any_want() -> impl Strategy<Value = Want> {
    prop_oneof![
        Just(Want::Free),
        Just(Want::Gated),
        Just(Want::Barred),
        Just(Want::Frozen(Freezer::Cgroup)),
        Just(Want::Frozen(Freezer::Docker)),
        Just(Want::Locked),
        Just(Want::Parked),
    ]
}

fn any_check() -> impl Strategy<Value = Check> {
    let when = || (0_u64..20_000).prop_map(|ms| Mono(ms * 1_000_000));
    prop_oneof![Just(Check::Unknown), when().prop_map(Check::DueAt), when().prop_map(|since| Check::UnderWay { since }),]
}

fn any_input() -> impl Strategy<Value = Input> {
    let who = || 0_usize..2;
    let told = prop_oneof![4 => Just(Ok(())), 1 => any::<bool>().prop_map(Err)];
    prop_oneof![
        4 => (who(), any_want(), any::<bool>()).prop_map(|(who, want, person)| Input::Want(who, want, person)),
        12 => (who(), told, any::<bool>()).prop_map(|(tenant, told, happened)| Input::End { tenant, told, happened }),
        3 => (who(), any::<Index>()).prop_map(|(who, which)| Input::Launch(who, which)),
        3 => (who(), PIDS).prop_map(|(who, pid)| Input::Come(who, pid)),
        2 => (who(), any_check()).prop_map(|(who, check)| Input::Check(who, check)),
        2 => (who(), any::<Index>()).prop_map(|(who, which)| Input::Exit(who, which)),
        1 => who().prop_map(Input::Thaw),
        1 => who().prop_map(Input::Pause),
        1 => who().prop_map(Input::Signal),
        1 => who().prop_map(Input::TaskEnds),
        1 => who().prop_map(Input::Vanish),
        2 => (0_u64..2_000).prop_map(Input::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn nothing_is_ever_done_that_is_not_on_record_and_everybody_is_free_in_the_end(
        inputs in prop::collection::vec(any_input(), 0..80)
    ) {
        let mut world = World::default();
        for number in 0..2 {
            world.feed(&Input::Come(number, 1));
        }
        for input in &inputs {
            world.feed(input);
        }
        world.come_to_rest();
        prop_assert!(world.real.values().all(Grip::is_empty), "{:?}", world.real);
        prop_assert!(world.journal.is_empty(), "{:?}", world.journal);
        prop_assert_eq!(world.keeper.gripped().count(), 0);
    }
}

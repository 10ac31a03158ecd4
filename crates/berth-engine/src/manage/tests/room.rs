//! Memory: who takes from which pool, who waits, who is parked, and what is written down of it.

use berth_model::hold::Held;
use berth_store::NeedsBack;

use super::*;

const GIB: u64 = 1 << 30;

impl Host {
    /// A look that finds these processes with so many GiB each.
    fn sees(&mut self, held: &[(u32, u64)]) {
        let processes = held.iter().map(|(pid, gib)| GpuProcess {
            process: key(*pid),
            kind: ProcessKind::Compute,
            memory: Some(Bytes(gib * GIB)),
            core: None,
        });
        let memory_used = Some(Bytes(held.iter().map(|(_, gib)| gib * GIB).sum()));
        let reading = GpuReading::Ok { memory_used, memory_free: None, core: None, processes: Ok(processes.collect()) };
        let gpus = vec![GpuSample { index: GPU, reading }];
        self.tell(Event::Sample(Sample { at: Mono(self.now), gpus, ..Sample::default() }));
    }

    fn wants(&mut self, pid: u32, gib: u64) {
        let call = HaltedCall::Allocation { bytes: Bytes(gib * GIB) };
        self.tell(Event::Halted { process: key(pid), call, at: Mono(self.now) });
    }

    fn passes(&mut self, ms: u64) {
        self.now += ms * MS;
    }

    fn limited(&self) -> Vec<u32> {
        self.meter.limited.lock().unwrap().keys().map(|process| process.pid).collect()
    }

    fn ceiling_gib(&self) -> u64 {
        self.meter.ceiling.lock().unwrap().unwrap().0 / GIB
    }

    fn reason(&self, pid: u32) -> String {
        self.manager.keeper.view(&tenant(pid), Mono(self.now)).unwrap().reason
    }

    /// Two on a GPU of 24 GiB, of which the driver keeps one: the first has 14 and computes, the second stands before 12 more.
    fn full() -> Self {
        let mut host = Self::new();
        host.arrives(1);
        host.tell(Event::Moment { process: key(1), moment: Moment::FirstLaunch, at: Mono(host.now) });
        host.sees(&[(1, 14)]);
        host.settle();
        host.passes(10);
        host.arrives(2);
        host.sees(&[(1, 14), (2, 1)]);
        host.settle();
        host.steps();
        host.passes(200);
        host.sees(&[(1, 14), (2, 1)]);
        host.wants(2, 12);
        host.settle();
        host
    }
}

#[test]
fn only_those_who_share_a_gpu_take_from_its_pool() {
    let mut host = Host::new();
    host.arrives(1);
    host.sees(&[(1, 3)]);
    host.settle();
    assert_eq!(host.limited(), [0_u32; 0], "alone, it has nobody to wait for");
    host.arrives(2);
    host.settle();
    assert_eq!(host.limited(), [1, 2], "from the first sight of a second one on");
    assert_eq!(host.ceiling_gib(), 20);
    host.tell(Event::ProcessExited { process: key(2), at: Mono(host.now) });
    host.settle();
    assert!(!host.limited().contains(&1), "alone again");
}

#[test]
fn whom_a_policy_may_not_hold_is_not_stopped_at_allocations() {
    let mut host = Host::new();
    host.arrives(1);
    host.arrives(2);
    host.labels.insert(tenant(2), [("berth.hold".to_owned(), "never".to_owned())].into());
    host.settle();
    assert_eq!(host.limited(), [1]);
    let mut host = Host::under(PolicyName::Paper);
    host.arrives(1);
    host.arrives(2);
    host.settle();
    assert_eq!(host.limited(), [0_u32; 0], "that policy queues nobody for memory");
}

#[test]
fn one_that_does_not_fit_waits_and_goes_on_when_there_is_room_which_is_kept_for_it() {
    let mut host = Host::full();
    let steps: Vec<Step> = host.steps().into_iter().map(|(_, step)| step).collect();
    assert_eq!(steps, [Step::Freeze(Freezer::Cgroup), Step::Continue(key(2))], "it stands still, unseen");
    assert_eq!(host.reason(2), "GPU 0 has 8.0 GiB left, `/t1` has 14.0 GiB");
    host.passes(500);
    host.sees(&[(1, 5), (2, 1)]);
    host.settle();
    assert!(host.steps().contains(&(tenant(2), Step::Thaw(Freezer::Cgroup))));
    assert_eq!(host.ceiling_gib(), 17 - 12, "nobody else can have what it was let go for");
    host.passes(100);
    host.sees(&[(1, 5), (2, 13)]);
    host.settle();
    assert_eq!(host.ceiling_gib(), 5, "it has taken it");
}

#[test]
fn what_others_took_since_the_look_is_not_given_twice() {
    let mut host = Host::full();
    host.passes(500);
    *host.meter.taken.lock().unwrap() = Bytes(8 * GIB);
    host.settle();
    host.steps();
    // The look began before the driver had counted it.
    host.sees(&[(1, 5), (2, 1)]);
    host.settle();
    assert_eq!(host.steps(), [], "17 GiB are free by the look, and 8 of them gone");
    assert_eq!(host.reason(2), "GPU 0 has 9.0 GiB left, `/t1` has 5.0 GiB");
}

#[test]
fn an_idle_one_is_parked_and_what_it_needs_back_is_on_record() {
    let mut host = Host::full();
    host.steps();
    host.tell(Event::Drained { process: key(1), at: Mono(host.now) });
    host.passes(11_000);
    host.sees(&[(1, 14), (2, 1)]);
    host.settle();
    let steps = host.steps();
    let of_first: Vec<Step> = steps.iter().filter(|(who, _)| *who == tenant(1)).map(|(_, step)| *step).collect();
    assert_eq!(of_first, [Step::Lock(key(1)), Step::Checkpoint(key(1)), Step::Freeze(Freezer::Cgroup)]);
    let path = host._dir.path().join("holds");
    let kept = berth_store::read(&path, "/proc".as_ref()).unwrap().entries;
    let first = kept.iter().find(|kept| kept.entry.tenant == tenant(1)).unwrap();
    let held = Held { gpu: GPU, bytes: Bytes(14 * GIB) };
    assert_eq!(first.entry.needs_back, [NeedsBack { process: key(1), held }]);

    assert!(
        steps.contains(&(tenant(2), Step::Thaw(Freezer::Cgroup))),
        "there is room, before a look says so: {steps:?}"
    );
    host.passes(100);
    host.sees(&[(2, 13)]);
    host.settle();
    assert_eq!(host.steps(), [], "and none for the first to come back");
    host.tell(Event::ProcessExited { process: key(2), at: Mono(host.now) });
    host.passes(2_000);
    host.sees(&[]);
    host.settle();
    let of_first: Vec<Step> = host.steps().into_iter().map(|(_, step)| step).collect();
    assert_eq!(of_first, [Step::Thaw(Freezer::Cgroup), Step::Restore(key(1)), Step::Unlock(key(1))]);
}

#[test]
fn whom_the_driver_must_not_move_is_not_parked_and_the_waiting_one_is_told_why() {
    let mut host = Host::full();
    host.steps();
    *host.meter.unparkable.lock().unwrap() = Some("it maps /dev/shm/nccl-x".into());
    host.tell(Event::Drained { process: key(1), at: Mono(host.now) });
    host.passes(11_000);
    host.sees(&[(1, 14), (2, 1)]);
    host.settle();
    assert_eq!(host.steps(), []);
    let told = "GPU 0 has 8.0 GiB left, `/t1` has 14.0 GiB, which cannot be parked: it maps /dev/shm/nccl-x";
    assert_eq!(host.reason(2), told);
}

#[test]
fn newcomers_take_nothing_while_someone_has_waited_for_too_long() {
    let mut host = Host::full();
    host.passes(30_000);
    host.arrives(3);
    host.sees(&[(1, 14), (2, 1), (3, 1)]);
    host.settle();
    let pools = |host: &Host| host.meter.limited.lock().unwrap().values().copied().collect::<Vec<_>>();
    assert_eq!(pools(&host), [GPU; 3], "what fits passes");
    host.passes(31_000);
    host.sees(&[(1, 14), (2, 1), (3, 1)]);
    host.settle();
    assert_eq!(pools(&host)[..2], [GPU; 2], "who computes goes on as before");
    assert_ne!(pools(&host)[2], GPU, "who comes after it waits behind it");
    host.sees(&[(1, 5), (2, 1), (3, 1)]);
    host.settle();
    assert_eq!(pools(&host), [GPU; 3], "it has been served");
}

//! The runner on a fake driver: order of calls, lines, each way to end.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;

use super::*;
use crate::driver::DeviceInfo;
use crate::options::Failure;
use crate::record::Line;

/// Records calls and fails the one it is told to. Its results are zeros; simulated, it brings none at all.
#[derive(Default)]
struct FakeDriver {
    calls: RefCell<Vec<&'static str>>,
    fail: Option<(&'static str, u32)>,
    simulated: bool,
    launches: Cell<u32>,
}

impl FakeDriver {
    fn failing(call: &'static str, code: u32) -> Self {
        Self { fail: Some((call, code)), ..Self::default() }
    }

    fn call<T>(&self, call: &'static str, answer: T) -> Result<T, CallError> {
        self.calls.borrow_mut().push(call);
        match self.fail {
            Some((failing, code)) if failing == call => Err(CallError { call, code, name: "CUDA_ERROR_FAKE".into() }),
            _ => Ok(answer),
        }
    }

    fn count(&self, call: &str) -> usize {
        self.calls.borrow().iter().filter(|made| **made == call).count()
    }

    fn position(&self, call: &str) -> Option<usize> {
        self.calls.borrow().iter().position(|made| *made == call)
    }
}

impl Driver for FakeDriver {
    type Context = ();
    type Kernel = ();
    type Stream = ();
    type Memory = u64;

    fn init(&self) -> Result<(), CallError> {
        self.call("init", ())
    }
    fn device_info(&self, _: u32) -> Result<DeviceInfo, CallError> {
        let info = DeviceInfo { name: "fake".into(), total_bytes: 1, driver_version: 1 };
        self.call("device_info", info)
    }
    fn create_context(&self, _: u32) -> Result<(), CallError> {
        self.call("create_context", ())
    }
    fn destroy_context(&self, (): ()) -> Result<(), CallError> {
        self.call("destroy_context", ())
    }
    fn load_kernel(&self, _: &CStr, _: &CStr) -> Result<(), CallError> {
        self.call("load_kernel", ())
    }
    fn unload_kernel(&self, (): ()) -> Result<(), CallError> {
        self.call("unload_kernel", ())
    }
    fn create_stream(&self) -> Result<(), CallError> {
        self.call("create_stream", ())
    }
    fn destroy_stream(&self, (): ()) -> Result<(), CallError> {
        self.call("destroy_stream", ())
    }
    fn alloc(&self, bytes: u64) -> Result<u64, CallError> {
        self.call("alloc", bytes)
    }
    fn free(&self, _: u64) -> Result<(), CallError> {
        self.call("free", ())
    }
    fn copy_in(&self, to: &u64, from: &[f32]) -> Result<(), CallError> {
        assert_eq!(*to, size_of_val(from) as u64, "the copy does not fill the buffer");
        self.call("copy_in", ())
    }
    fn copy_out(&self, to: &mut [f32], from: &u64) -> Result<(), CallError> {
        assert_eq!(*from, size_of_val(to) as u64, "the buffer does not fill the copy");
        if !self.simulated {
            to.fill(0.0);
        }
        self.call("copy_out", ())
    }
    fn launch(&self, (): &(), (): &(), _: Shape, _: [&u64; 3], _: u32) -> Result<(), CallError> {
        self.launches.set(self.launches.get() + 1);
        self.call("launch", ())
    }
    fn synchronize(&self, (): &()) -> Result<(), CallError> {
        self.call("synchronize", ())
    }
}

/// Never waits; asks to stop from the given wait on. Waits of zero (looking up) count too.
struct FakePause {
    waits: RefCell<Vec<Duration>>,
    stop_at: Option<Duration>,
}

impl FakePause {
    fn new() -> Self {
        Self { waits: RefCell::default(), stop_at: None }
    }

    /// Stops in the wait of this length.
    fn stopping_at(wait: Duration) -> Self {
        Self { waits: RefCell::default(), stop_at: Some(wait) }
    }
}

impl Pause for FakePause {
    fn wait(&self, time: Duration) -> Woken {
        self.waits.borrow_mut().push(time);
        let stopped = self.stop_at.is_some_and(|stop_at| self.waits.borrow().contains(&stop_at));
        if stopped { Woken::Stopped } else { Woken::Elapsed }
    }
}

fn small() -> Options {
    Options { size: 4, ..Options::default() }
}

fn run_with(options: &Options, driver: &FakeDriver, pause: &FakePause) -> (Ending, Vec<Event>) {
    options.check().unwrap();
    let mut sink = Vec::new();
    let ending = execute(options, driver, &mut Recorder::new(&mut sink), pause);
    let lines = String::from_utf8(sink).unwrap();
    let events = lines.lines().map(|line| serde_json::from_str::<Line>(line).unwrap().event).collect();
    (ending, events)
}

fn run(options: &Options, driver: &FakeDriver) -> (Ending, Vec<Event>) {
    run_with(options, driver, &FakePause::new())
}

fn moments(events: &[Event]) -> Vec<(Moment, Edge)> {
    let moment = |event: &Event| match event {
        Event::Moment { moment, edge, .. } => Some((*moment, *edge)),
        _ => None,
    };
    events.iter().filter_map(moment).collect()
}

#[test]
fn product_makes_its_calls_in_order() {
    let driver = FakeDriver::default();
    let (ending, _) = run(&Options { repeats: 2, ..small() }, &driver);
    assert_eq!(ending, Ending::Done);
    let expected = [
        "init",
        "device_info",
        "create_context",
        "load_kernel",
        "create_stream",
        "alloc",
        "alloc",
        "alloc",
        "copy_in",
        "copy_in",
        "launch",
        "synchronize",
        "launch",
        "synchronize",
        "copy_out",
        "free",
        "free",
        "free",
        "destroy_stream",
        "unload_kernel",
        "destroy_context",
    ];
    assert_eq!(*driver.calls.borrow(), expected);
}

#[test]
fn moments_come_in_the_order_an_observer_expects() {
    use Edge::{Begin, End};
    let (_, events) = run(&small(), &FakeDriver::default());
    let expected = [
        (Moment::DeviceOpen, Begin),
        (Moment::DeviceOpen, End),
        (Moment::ContextReady, End),
        (Moment::FirstAllocation, Begin),
        (Moment::FirstAllocation, End),
        (Moment::FirstLaunch, Begin),
        (Moment::FirstLaunch, End),
        (Moment::KernelDone, End),
        (Moment::Freed, End),
        (Moment::ContextGone, End),
    ];
    assert_eq!(moments(&events), expected);
}

#[test]
fn times_never_go_backwards() {
    let options = Options { repeats: 3, tasks: 2, idle: Duration::from_nanos(1), ..small() };
    let mut sink = Vec::new();
    execute(&options, &FakeDriver::default(), &mut Recorder::new(&mut sink), &FakePause::new());
    let text = String::from_utf8(sink).unwrap();
    let times: Vec<u64> = text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap().at.mono_ns).collect();
    assert!(times.is_sorted(), "{text}");
}

#[test]
fn second_task_opens_no_device_but_has_its_own_first_allocation() {
    let driver = FakeDriver::default();
    let (_, events) = run(&Options { tasks: 2, ..small() }, &driver);
    assert_eq!((driver.count("init"), driver.count("create_context"), driver.count("destroy_context")), (1, 2, 2));
    let firsts = moments(&events).iter().filter(|(moment, _)| *moment == Moment::FirstAllocation).count();
    assert_eq!(firsts, 4, "two edges for each task");
}

#[test]
fn every_stream_gets_a_kernel_per_round() {
    let driver = FakeDriver::default();
    run(&Options { streams: 3, repeats: 2, ..small() }, &driver);
    assert_eq!((driver.launches.get(), driver.count("synchronize")), (6, 6));
}

#[test]
fn holder_only_holds() {
    let driver = FakeDriver::default();
    let pause = FakePause::new();
    let hold = Duration::from_secs(7);
    run_with(&Options { hold, ..Options::new(Mode::Hold) }, &driver, &pause);
    assert_eq!((driver.count("alloc"), driver.count("copy_in"), driver.count("launch")), (1, 0, 0));
    assert!(pause.waits.borrow().contains(&hold));
}

#[test]
fn light_rounds_wait_at_most_their_period_each() {
    let pause = FakePause::new();
    let period = Duration::from_secs(100);
    run_with(&Options { repeats: 3, period, size: 4, ..Options::new(Mode::Light) }, &FakeDriver::default(), &pause);
    let paced: Vec<u64> =
        pause.waits.borrow().iter().filter(|t| !t.is_zero()).map(|t| t.as_secs().div_ceil(100)).collect();
    assert_eq!(paced, [1, 2], "the fake does not wait, so the third round is two periods away");
}

#[test]
fn each_failing_call_names_its_phase_and_gives_back_what_was_held() {
    let cases = [
        ("init", Phase::Context),
        ("device_info", Phase::Context),
        ("create_context", Phase::Context),
        ("load_kernel", Phase::Context),
        ("create_stream", Phase::Context),
        ("alloc", Phase::Alloc),
        ("copy_in", Phase::Input),
        ("launch", Phase::Kernel),
        ("synchronize", Phase::Kernel),
        ("copy_out", Phase::Output),
        ("free", Phase::Free),
        ("destroy_stream", Phase::Destroy),
        ("unload_kernel", Phase::Destroy),
        ("destroy_context", Phase::Destroy),
    ];
    for (call, expected) in cases {
        let driver = FakeDriver::failing(call, 2);
        let (ending, events) = run(&small(), &driver);
        let Ending::Call { phase, error } = ending else { panic!("{call}: {ending:?}") };
        assert_eq!((phase, error.call, error.code), (expected, call, 2));
        assert!(matches!(events.last(), Some(Event::Error { phase, .. }) if *phase == expected), "{call}");
        let made = call != "create_context" && driver.count("create_context") == 1;
        assert_eq!(driver.count("destroy_context"), usize::from(made), "{call}");
        let (free, destroy) = (driver.position("free"), driver.position("destroy_context"));
        assert!(free.is_none() || free < destroy, "{call}: memory is freed before the context goes");
    }
}

#[test]
fn what_is_dropped_is_freed_before_its_context_goes() {
    let driver = FakeDriver::default();
    let mut held = Held::new(&driver);
    held.context = Some(());
    held.memory = vec![(Buffer::A, 64), (Buffer::B, 64)];
    drop(held);
    assert_eq!(*driver.calls.borrow(), ["free", "free", "destroy_context"]);
}

#[test]
fn context_goes_even_when_giving_back_its_parts_fails() {
    let driver = FakeDriver::failing("destroy_stream", 700);
    let mut held = Held::new(&driver);
    held.context = Some(());
    held.streams = vec![(), ()];
    drop(held);
    assert_eq!(driver.count("destroy_context"), 1);
}

#[test]
fn error_on_purpose_gives_everything_back_in_every_phase() {
    for phase in Phase::ALL {
        let second = Duration::from_secs(1);
        let options = Options { hold: second, idle: second, ..small() };
        let fail = Some(Failure { phase, how: How::Error, task: 0 });
        if !options.has_phase(phase) {
            continue;
        }
        let driver = FakeDriver::default();
        let (ending, _) = run(&Options { fail, ..options }, &driver);
        assert_eq!(ending, Ending::Failed { phase, how: How::Error });
        assert_eq!(driver.count("free"), driver.count("alloc"), "{phase}");
        assert_eq!(driver.count("destroy_context"), driver.count("create_context"), "{phase}");
    }
}

#[test]
fn deaths_on_purpose_give_nothing_back() {
    for how in [How::Abort, How::Kill, How::Exit, How::Hang] {
        for phase in [Phase::Context, Phase::Alloc, Phase::Input, Phase::Kernel, Phase::Output] {
            let fail = Some(Failure { phase, how, task: 0 });
            let driver = FakeDriver::default();
            let (ending, events) = run(&Options { fail, ..small() }, &driver);
            assert_eq!(ending, Ending::Failed { phase, how });
            assert_eq!((driver.count("free"), driver.count("destroy_context")), (0, 0), "{phase} {how}");
            assert!(matches!(events.last(), Some(Event::Error { .. })));
        }
    }
}

#[test]
fn failure_waits_for_its_task() {
    let fail = Some(Failure { phase: Phase::Input, how: How::Error, task: 1 });
    let driver = FakeDriver::default();
    run(&Options { fail, tasks: 3, ..small() }, &driver);
    assert_eq!((driver.count("create_context"), driver.count("copy_out")), (2, 1));
}

#[test]
fn stop_while_holding_goes_straight_to_the_teardown() {
    let hold = Duration::from_secs(7);
    let driver = FakeDriver::default();
    let options = Options { hold, tasks: 5, idle: Duration::from_secs(9), ..small() };
    let (ending, events) = run_with(&options, &driver, &FakePause::stopping_at(hold));
    assert_eq!(ending, Ending::Stopped);
    assert_eq!((driver.count("copy_in"), driver.count("free"), driver.count("destroy_context")), (0, 3, 1));
    assert!(events.contains(&Event::Stopped { phase: Some(Phase::Hold) }));
    assert!(events.contains(&Event::Phase { phase: Phase::Hold, edge: Edge::End, repeat: None }));
    assert!(events.contains(&Event::Phase { phase: Phase::Free, edge: Edge::Begin, repeat: None }));
}

#[test]
fn stop_before_the_device_is_opened_never_touches_it() {
    let host_time = Duration::from_secs(3);
    let driver = FakeDriver::default();
    let (ending, _) = run_with(&Options { host_time, ..small() }, &driver, &FakePause::stopping_at(host_time));
    assert_eq!(ending, Ending::Stopped);
    assert!(driver.calls.borrow().is_empty());
}

#[test]
fn stop_between_rounds_waits_for_the_kernel_that_runs() {
    let gap = Duration::from_secs(2);
    let driver = FakeDriver::default();
    let options = Options { gap, repeats: u32::MAX, ..small() };
    let (ending, events) = run_with(&options, &driver, &FakePause::stopping_at(gap));
    assert_eq!(ending, Ending::Stopped);
    assert_eq!((driver.count("launch"), driver.count("synchronize"), driver.count("copy_out")), (1, 1, 0));
    assert!(events.contains(&Event::Stopped { phase: None }));
}

#[test]
fn stop_while_idling_still_destroys_the_context() {
    let idle = Duration::from_secs(2);
    let driver = FakeDriver::default();
    run_with(&Options { idle, ..small() }, &driver, &FakePause::stopping_at(idle));
    assert_eq!(driver.count("destroy_context"), 1);
}

#[test]
fn simulated_result_is_not_verified() {
    let driver = FakeDriver { simulated: true, ..FakeDriver::default() };
    let (ending, events) = run(&Options { verify: true, ..small() }, &driver);
    assert_eq!(ending, Ending::Done);
    assert!(events.iter().any(|event| matches!(event, Event::Verify(Verdict::NotVerified { .. }))));
}

#[test]
fn wrong_result_of_a_real_device_is_noticed() {
    let driver = FakeDriver::default();
    let (ending, events) = run(&Options { verify: true, ..small() }, &driver);
    assert_eq!(ending, Ending::Wrong);
    assert!(events.iter().any(|event| matches!(event, Event::Verify(Verdict::Wrong { .. }))));
    assert_eq!(driver.count("destroy_context"), 1);
}

//! What holds for every sequence of calls: nothing is made from nothing, nothing is lost, the same again is the same.

use std::collections::{BTreeMap, BTreeSet};

use berth_proto::sim::{CheckpointOp, Direction, KernelCost, Reply, Request, Sms};
use berth_sim::{Completion, Engine, Outcome, Profile, Sharing, Ticket};
use proptest::prelude::*;

use super::{MIB, MS, SECOND};

const RESERVED: u64 = 4 * MIB;
const MANAGER: u32 = 99;

/// One move of the world. Small numbers pick among what exists, so that most moves are legal.
#[derive(Debug, Clone)]
enum Move {
    Create { pid: u32, device: u32 },
    Destroy { pid: u32 },
    Allocate { pid: u32, bytes: u64 },
    Free { pid: u32 },
    Stream { pid: u32, priority: i32, sms: Sms },
    Client { pid: u32, percentage: u32, priority: u32 },
    Launch { pid: u32, gflop: u32, gigabytes: u32, blocks: u64, stream: usize },
    Copy { pid: u32, out: bool, bytes: u64, wait: bool, stream: usize },
    Sync { pid: u32 },
    HostWork { pid: u32, stream: usize },
    HostWorkDone { pid: u32 },
    Checkpoint { pid: u32, op: CheckpointOp },
    Exit { pid: u32 },
    Advance { ns: u64 },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let pid = || 1u32..=4;
    let op = prop_oneof![
        (0u32..50).prop_map(|timeout_ms| CheckpointOp::Lock { timeout_ms }),
        Just(CheckpointOp::Checkpoint),
        Just(CheckpointOp::Restore),
        Just(CheckpointOp::Unlock),
    ];
    let one = prop_oneof![
        3 => (pid(), 0u32..2).prop_map(|(pid, device)| Move::Create { pid, device }),
        1 => pid().prop_map(|pid| Move::Destroy { pid }),
        4 => (pid(), 1u64..60 << 30).prop_map(|(pid, bytes)| Move::Allocate { pid, bytes }),
        2 => pid().prop_map(|pid| Move::Free { pid }),
        2 => (pid(), -5i32..=0, 0u32..60, 0u32..=72).prop_map(|(pid, priority, first, count)| {
            Move::Stream { pid, priority, sms: Sms { first, count } }
        }),
        1 => (pid(), 1u32..=100, 0u32..2)
            .prop_map(|(pid, percentage, priority)| Move::Client { pid, percentage, priority }),
        4 => (pid(), prop_oneof![0u32..5, 0u32..2_000], 0u32..500, 1u64..2_000, 0usize..3)
            .prop_map(|(pid, gflop, gigabytes, blocks, stream)| Move::Launch { pid, gflop, gigabytes, blocks, stream }),
        3 => (pid(), any::<bool>(), 0u64..2_000_000_000, any::<bool>(), 0usize..3)
            .prop_map(|(pid, out, bytes, wait, stream)| Move::Copy { pid, out, bytes, wait, stream }),
        2 => pid().prop_map(|pid| Move::Sync { pid }),
        2 => (pid(), 0usize..3).prop_map(|(pid, stream)| Move::HostWork { pid, stream }),
        2 => pid().prop_map(|pid| Move::HostWorkDone { pid }),
        2 => (pid(), op).prop_map(|(pid, op)| Move::Checkpoint { pid, op }),
        1 => pid().prop_map(|pid| Move::Exit { pid }),
        8 => (0u64..400 * MS).prop_map(|ns| Move::Advance { ns }),
    ];
    prop::collection::vec(one, 1..60)
}

/// Plays moves, remembers handles and open tickets, checks the invariants after every move.
struct World {
    engine: Engine,
    contexts: BTreeMap<u32, u64>,
    streams: BTreeMap<u32, Vec<u64>>,
    pointers: BTreeMap<u32, Vec<u64>>,
    /// Context, stream and token of host work that may not be done.
    host_work: BTreeMap<u32, Vec<(u64, u64, u64)>>,
    last_token: u64,
    /// Who waits, and for what.
    open: BTreeMap<Ticket, (u32, Request)>,
    log: Vec<Completion>,
    /// Advances are cut into pieces of this many nanoseconds.
    piece_ns: u64,
}

impl World {
    fn new(sharing: Sharing, seed: u64, piece_ns: u64) -> World {
        let profile = Profile::builtin("h200").expect("built-in");
        World {
            engine: Engine::with_sharing(profile, 2, seed, sharing),
            contexts: BTreeMap::new(),
            streams: BTreeMap::new(),
            pointers: BTreeMap::new(),
            host_work: BTreeMap::new(),
            last_token: 0,
            open: BTreeMap::new(),
            log: Vec::new(),
            piece_ns,
        }
    }

    fn play(mut self, moves: &[Move]) -> World {
        for step in moves {
            self.make(step);
            self.check();
        }
        self
    }

    fn make(&mut self, step: &Move) {
        match step {
            Move::Advance { ns } => self.advance(*ns),
            Move::Exit { pid } => self.exit(*pid),
            Move::HostWorkDone { pid } => drop(self.do_host_work(*pid)),
            _ => {
                if let Some((pid, request)) = self.request_of(step) {
                    self.request(pid, request);
                }
            }
        }
    }

    fn request_of(&mut self, step: &Move) -> Option<(u32, Request)> {
        let context = |pid: &u32| self.contexts.get(pid).copied();
        let stream = |pid: &u32, index: usize| {
            index.checked_sub(1).and_then(|index| self.streams.get(pid)?.get(index).copied()).unwrap_or(0)
        };
        Some(match step {
            Move::Create { pid, device } => (*pid, Request::ContextCreate { device: *device }),
            Move::Destroy { pid } => (*pid, Request::ContextDestroy { context: context(pid)? }),
            Move::Allocate { pid, bytes } => (*pid, Request::MemAlloc { context: context(pid)?, bytes: *bytes }),
            Move::Free { pid } => {
                let context = context(pid)?;
                let pointer = self.pointers.get_mut(pid)?.pop()?;
                (*pid, Request::MemFree { context, pointer })
            }
            Move::Stream { pid, priority, sms } => {
                (*pid, Request::StreamCreateWith { context: context(pid)?, priority: *priority, sms: *sms })
            }
            Move::Client { pid, percentage, priority } => {
                (*pid, Request::MpsClient { percentage: *percentage, priority: *priority })
            }
            Move::Launch { pid, gflop, gigabytes, blocks, stream: index } => {
                let (flops, bytes) = (f64::from(*gflop) * 1e9, f64::from(*gigabytes) * 1e9);
                let cost = KernelCost { flops, bytes, blocks: *blocks };
                (*pid, Request::Launch { context: context(pid)?, stream: stream(pid, *index), cost })
            }
            Move::Copy { pid, out, bytes, wait, stream: index } => {
                let direction = if *out { Direction::DeviceToHost } else { Direction::HostToDevice };
                let (context, stream) = (context(pid)?, stream(pid, *index));
                (*pid, Request::Copy { context, stream, direction, bytes: *bytes, wait: *wait })
            }
            Move::Sync { pid } => (*pid, Request::ContextSync { context: context(pid)? }),
            Move::HostWork { pid, stream: index } => {
                let (context, stream) = (context(pid)?, stream(pid, *index));
                self.last_token += 1;
                self.host_work.entry(*pid).or_default().push((context, stream, self.last_token));
                (*pid, Request::HostWork { context, stream, token: self.last_token })
            }
            Move::Checkpoint { pid, op } => (MANAGER, Request::Checkpoint { pid: *pid, op: *op }),
            Move::Exit { .. } | Move::Advance { .. } | Move::HostWorkDone { .. } => return None,
        })
    }

    /// Does all host work that a stream stands at; says whether there was any.
    fn do_host_work(&mut self, pid: u32) -> bool {
        let Some(works) = self.host_work.get_mut(&pid) else { return false };
        let before = works.len();
        works.retain(|(context, stream, token)| {
            let (context, stream, token) = (*context, *stream, *token);
            let outcome = self.engine.request(pid, Request::HostWorkDone { context, stream, token });
            outcome != Outcome::Now(Reply::Done)
        });
        works.len() < before
    }

    /// Does all host work there is, and what comes behind it.
    fn settle_host_work(&mut self) {
        self.settle();
        while (1..=4).any(|pid| self.do_host_work(pid)) {
            self.settle();
        }
    }

    fn request(&mut self, pid: u32, request: Request) {
        match self.engine.request(pid, request) {
            Outcome::Now(reply) => self.learn(pid, request, &reply),
            Outcome::Later(ticket) => {
                assert!(self.open.insert(ticket, (pid, request)).is_none(), "a ticket was given out twice");
            }
        }
    }

    fn learn(&mut self, pid: u32, request: Request, reply: &Reply) {
        match (request, reply) {
            (Request::ContextCreate { .. }, Reply::Handle(context)) => {
                self.contexts.insert(pid, *context);
                self.streams.remove(&pid);
                self.pointers.remove(&pid);
            }
            (Request::StreamCreateWith { .. }, Reply::Handle(stream)) => {
                self.streams.entry(pid).or_default().push(*stream)
            }
            (Request::MemAlloc { .. }, Reply::Handle(pointer)) => self.pointers.entry(pid).or_default().push(*pointer),
            _ => {}
        }
    }

    fn advance(&mut self, ns: u64) {
        let to = self.engine.now() + ns;
        while self.engine.now() < to {
            let next = (self.engine.now() + self.piece_ns).min(to);
            let completions = self.engine.advance(next);
            self.take(completions);
        }
        let completions = self.engine.advance(to);
        self.take(completions);
    }

    fn take(&mut self, completions: Vec<Completion>) {
        for completion in completions {
            let (pid, request) = self.open.remove(&completion.ticket).expect("answered once, and only when asked");
            assert_eq!(pid, completion.pid);
            self.learn(pid, request, &completion.reply);
            self.log.push(completion);
        }
    }

    fn exit(&mut self, pid: u32) {
        self.engine.process_exited(pid);
        self.contexts.remove(&pid);
        self.open.retain(|_, (owner, _)| *owner != pid);
    }

    fn check(&self) {
        for (gpu, index) in self.engine.nvml().gpus.iter().zip(0..) {
            let parts: u64 = gpu.processes.iter().filter_map(|process| process.used_bytes).sum();
            assert_eq!(gpu.used_bytes, RESERVED + parts);
            assert!(gpu.used_bytes <= gpu.total_bytes);
            assert!(gpu.utilisation.gpu_pct <= 100 && gpu.utilisation.memory_pct <= 100);
            assert!(self.engine.compute_load(index) <= 1.0 + 1e-9);
        }
    }

    /// Runs until nothing happens any more.
    fn settle(&mut self) {
        let mut events = 0;
        while let Some(next) = self.engine.next_event() {
            let completions = self.engine.advance(next);
            self.take(completions);
            events += 1;
            assert!(events < 100_000, "the engine never comes to rest");
        }
    }

    /// Brings every process back to running, whatever was done to it.
    fn unlock_all(&mut self) {
        self.settle_host_work();
        for pid in 1..=4 {
            for op in [CheckpointOp::Restore, CheckpointOp::Unlock] {
                self.request(MANAGER, Request::Checkpoint { pid, op });
                self.settle_host_work();
            }
        }
    }
}

fn sharing() -> impl Strategy<Value = Sharing> {
    prop_oneof![Just(Sharing::TimeSliced), Just(Sharing::Mps)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn same_seed_and_calls_give_the_same_answers(moves in moves(), sharing in sharing(), seed in 0u64..100) {
        let [first, second] = [0, 1].map(|_| World::new(sharing, seed, u64::MAX / 2).play(&moves));
        prop_assert_eq!(&first.log, &second.log);
        prop_assert_eq!(first.engine.nvml(), second.engine.nvml());
    }

    #[test]
    fn one_long_advance_is_many_short_ones(moves in moves(), sharing in sharing(), piece_ms in 1u64..150) {
        let mut whole = World::new(sharing, 1, u64::MAX / 2).play(&moves);
        let mut pieces = World::new(sharing, 1, piece_ms * MS + 12_345).play(&moves);
        prop_assert_eq!(whole.engine.nvml(), pieces.engine.nvml());
        whole.settle();
        pieces.settle();
        prop_assert_eq!(whole.log, pieces.log);
        prop_assert_eq!(whole.engine.now(), pieces.engine.now());
    }

    #[test]
    fn every_open_call_is_answered_once_the_locks_are_gone(moves in moves(), sharing in sharing()) {
        let mut world = World::new(sharing, 1, u64::MAX / 2).play(&moves);
        // What does not fit back must not keep others waiting: end one checkpointed process after another.
        world.unlock_all();
        let stuck: BTreeSet<u32> = world.open.values().map(|(pid, _)| *pid).collect();
        for pid in stuck {
            let state = world.engine.request(MANAGER, Request::Checkpoint { pid, op: CheckpointOp::GetState });
            prop_assert_eq!(state, Outcome::Now(Reply::ProcessState(2)), "pid {} waits though it runs", pid);
        }
        world.check();
    }

    #[test]
    fn exit_of_all_frees_everything(moves in moves(), sharing in sharing()) {
        let mut world = World::new(sharing, 1, u64::MAX / 2).play(&moves);
        for pid in [1, 2, 3, 4, MANAGER] {
            world.exit(pid);
        }
        world.settle();
        prop_assert!(world.open.is_empty());
        for gpu in world.engine.nvml().gpus {
            prop_assert_eq!(gpu.used_bytes, RESERVED);
            prop_assert!(gpu.processes.is_empty());
        }
        prop_assert!(world.engine.compute_load(0) == 0.0 && world.engine.compute_load(1) == 0.0);
    }

    #[test]
    fn allocation_that_fails_changes_nothing(moves in moves(), bytes in 0u64..200 << 30) {
        let mut world = World::new(Sharing::TimeSliced, 1, u64::MAX / 2).play(&moves);
        let before = (world.engine.nvml(), world.engine.next_event());
        let contexts = world.contexts.clone();
        for (pid, context) in contexts {
            let outcome = world.engine.request(pid, Request::MemAlloc { context, bytes });
            if !matches!(outcome, Outcome::Now(Reply::Error(_))) {
                return Ok(());
            }
            prop_assert_eq!(&(world.engine.nvml(), world.engine.next_event()), &before);
        }
    }

    /// Work is conserved: k kernels of one process, whatever their order and overlap, take at least their work and,
    /// filling the GPU each, exactly their work.
    #[test]
    fn full_kernels_take_exactly_their_work(gflops in prop::collection::vec(1u32..2_000, 1..10)) {
        let mut world = World::new(Sharing::TimeSliced, 1, u64::MAX / 2);
        world.request(1, Request::ContextCreate { device: 0 });
        world.advance(SECOND);
        let begin = world.engine.now();
        for (gflop, index) in gflops.iter().zip(0..) {
            world.make(&Move::Stream { pid: 1, priority: 0, sms: Sms::ALL });
            world.make(&Move::Launch { pid: 1, gflop: *gflop, gigabytes: 0, blocks: 1 << 20, stream: index });
        }
        world.make(&Move::Sync { pid: 1 });
        let mut end = begin;
        while !world.open.is_empty() {
            end = world.engine.next_event().expect("the kernels end");
            let completions = world.engine.advance(end);
            world.take(completions);
        }
        let work_ns: u64 = gflops.iter().map(|gflop| u64::from(*gflop) * 1_000_000 / 5 + 3_000).sum();
        prop_assert!((end - begin).abs_diff(work_ns) <= 20, "{} against {}", end - begin, work_ns);
    }
}

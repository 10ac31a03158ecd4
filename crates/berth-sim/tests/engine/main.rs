//! The engine's behaviour, by its public interface, in virtual time.

mod checkpoint;
mod contexts;
mod faults;
mod graphs;
mod host_work;
mod memory;
mod profiles;
mod properties;
mod sharing;
mod streams;
mod utilisation;

use std::collections::BTreeMap;

use berth_proto::sim::{Direction, KernelCost, Reply, Request};
use berth_sim::{Engine, GpuView, Outcome, Profile, Sharing, Ticket};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MIB: u64 = 1 << 20;

/// An engine with the bookkeeping a test wants: what was answered, and when.
struct Rig {
    engine: Engine,
    answered: BTreeMap<Ticket, (u64, Reply)>,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(1, Sharing::TimeSliced)
    }

    fn with(gpus: u32, sharing: Sharing) -> Rig {
        let profile = Profile::builtin("h200").expect("built-in");
        Rig { engine: Engine::with_sharing(profile, gpus, 1, sharing), answered: BTreeMap::new() }
    }

    /// A call that must not be answered at once.
    fn start(&mut self, pid: u32, request: Request) -> Ticket {
        match self.engine.request(pid, request) {
            Outcome::Later(ticket) => ticket,
            Outcome::Now(reply) => panic!("{request:?} was answered at once with {reply:?}"),
        }
    }

    /// A call and its answer, however long that takes.
    fn call(&mut self, pid: u32, request: Request) -> Reply {
        match self.engine.request(pid, request) {
            Outcome::Now(reply) => reply,
            Outcome::Later(ticket) => self.wait(ticket).1,
        }
    }

    /// When a call was answered, and with what.
    fn wait(&mut self, ticket: Ticket) -> (u64, Reply) {
        while !self.answered.contains_key(&ticket) {
            let next = self.engine.next_event().expect("the call is answered some time");
            self.run_to(next);
        }
        self.answered[&ticket].clone()
    }

    fn run_to(&mut self, to: u64) {
        while let Some(next) = self.engine.next_event().filter(|next| *next <= to) {
            for done in self.engine.advance(next) {
                let before = self.answered.insert(done.ticket, (next, done.reply));
                assert!(before.is_none(), "{:?} was answered twice", done.ticket);
            }
        }
        self.engine.advance(to);
    }

    fn run_for(&mut self, ns: u64) {
        self.run_to(self.engine.now() + ns);
    }

    fn is_answered(&self, ticket: Ticket) -> bool {
        self.answered.contains_key(&ticket)
    }

    fn context(&mut self, pid: u32) -> u64 {
        self.handle(pid, Request::ContextCreate { device: 0 })
    }

    fn handle(&mut self, pid: u32, request: Request) -> u64 {
        match self.call(pid, request) {
            Reply::Handle(handle) => handle,
            other => panic!("{request:?} gave {other:?}, no handle"),
        }
    }

    /// Queues a kernel that takes `ms` alone and fills `pct` of the GPU.
    fn launch(&mut self, pid: u32, context: u64, stream: u64, ms: u64, pct: u32) {
        let cost = self.kernel(ms, pct);
        assert_eq!(self.call(pid, Request::Launch { context, stream, cost }), Reply::Done);
    }

    fn kernel(&self, ms: u64, pct: u32) -> KernelCost {
        let profile = self.engine.profile();
        let room = profile.gpu.sm_count * profile.gpu.blocks_per_sm;
        let blocks = room * pct / 100;
        let busy_ns = (ms * MS) as f64 - profile.compute.launch_us * 1e3;
        let flops = busy_ns * profile.compute.gflops * f64::from(blocks) / f64::from(room);
        KernelCost { flops, bytes: 0.0, blocks: u64::from(blocks) }
    }

    fn gpu(&self) -> GpuView {
        self.engine.nvml().gpus.remove(0)
    }

    fn used_by(&self, pid: u32) -> Option<u64> {
        self.gpu().processes.iter().find(|process| process.pid == pid).and_then(|process| process.used_bytes)
    }
}

fn input(context: u64, bytes: u64) -> Request {
    Request::Copy { context, stream: 0, direction: Direction::HostToDevice, bytes, wait: true }
}

//! A driver that does what a test tells it to: it records calls, refuses, and hangs.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::api::{Api, code};

/// States of processes by pid; whoever is not named has no context.
#[derive(Debug, Default)]
pub struct FakeApi {
    world: Mutex<World>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct World {
    states: HashMap<i32, u32>,
    /// Codes to answer a function with instead of doing it.
    refusals: HashMap<&'static str, u32>,
    /// Functions that do not return.
    hung: Option<&'static str>,
    calls: Vec<&'static str>,
    /// Runs in the middle of a lock.
    during_lock: Option<DuringLock>,
}

struct DuringLock(Box<dyn FnOnce() + Send>);

impl fmt::Debug for DuringLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DuringLock")
    }
}

impl FakeApi {
    pub fn add(&self, pid: u32) {
        self.put(pid, 0);
    }

    pub fn put(&self, pid: u32, state: u32) {
        self.world().states.insert(pid.cast_signed(), state);
    }

    pub fn state_of(&self, pid: u32) -> Option<u32> {
        self.world().states.get(&pid.cast_signed()).copied()
    }

    pub fn refuse(&self, function: &'static str, code: u32) {
        self.world().refusals.insert(function, code);
    }

    /// This function returns only after another one, or none, is named here.
    pub fn hang(&self, function: Option<&'static str>) {
        self.world().hung = function;
        self.changed.notify_all();
    }

    pub fn during_lock(&self, what: impl FnOnce() + Send + 'static) {
        self.world().during_lock = Some(DuringLock(Box::new(what)));
    }

    /// How often a function was called.
    pub fn count(&self, function: &str) -> usize {
        self.world().calls.iter().filter(|called| **called == function).count()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, function: &'static str) -> Result<MutexGuard<'_, World>, u32> {
        let mut world = self.world();
        world.calls.push(function);
        while world.hung == Some(function) {
            world = self.changed.wait(world).unwrap_or_else(PoisonError::into_inner);
        }
        match world.refusals.get(function) {
            Some(code) => Err(*code),
            None => Ok(world),
        }
    }

    fn go(&self, function: &'static str, pid: i32, from: u32, to: u32) -> u32 {
        let mut world = match self.enter(function) {
            Ok(world) => world,
            Err(code) => return code,
        };
        match world.states.get_mut(&pid) {
            None => code::INVALID_VALUE,
            Some(state) if *state == from => {
                *state = to;
                0
            }
            Some(_) => code::ILLEGAL_STATE,
        }
    }
}

impl Api for FakeApi {
    fn init(&self) -> u32 {
        self.enter("init").map_or_else(|code| code, |_| 0)
    }

    fn state(&self, pid: i32) -> Result<u32, u32> {
        self.enter("state")?.states.get(&pid).copied().ok_or(code::INVALID_VALUE)
    }

    fn lock(&self, pid: i32, _timeout_ms: u32) -> u32 {
        let what = self.world().during_lock.take();
        if let Some(DuringLock(what)) = what {
            what();
        }
        self.go("lock", pid, 0, 1)
    }

    fn checkpoint(&self, pid: i32) -> u32 {
        self.go("checkpoint", pid, 1, 2)
    }

    fn restore(&self, pid: i32) -> u32 {
        self.go("restore", pid, 2, 1)
    }

    fn unlock(&self, pid: i32) -> u32 {
        self.go("unlock", pid, 1, 0)
    }

    fn name(&self, code: u32) -> Option<String> {
        Some(format!("CUDA_ERROR_FAKE_{code}"))
    }
}

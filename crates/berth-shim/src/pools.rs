//! What memory pools keep after a free: as much as the program lets them. It counts like what is allocated; where a cap leaves no room otherwise it
//! is given back first, as the driver does by itself when memory runs out.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::book::Room;
use crate::capture::CAPTURES;
use crate::client::Client;
use crate::sys::driver::Driver;

/// A pool is asked for only while the list is locked: it cannot go meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Pools(Mutex<Vec<Pool>>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pool {
    handle: u64,
    lane: usize,
    /// It may keep what is freed for longer than until the next wait.
    keeps: bool,
}

impl Pools {
    fn all(&self) -> MutexGuard<'_, Vec<Pool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that the program has made.
    pub(crate) fn made(&self, handle: u64, lane: usize) {
        self.all().push(Pool { handle, lane, keeps: false });
    }

    /// Before it is destroyed.
    pub(crate) fn take_out(&self, handle: u64) -> Option<Pool> {
        let mut all = self.all();
        let at = all.iter().position(|pool| pool.handle == handle)?;
        Some(all.swap_remove(at))
    }

    /// It was not.
    pub(crate) fn put_back(&self, pool: Pool) {
        self.all().push(pool);
    }

    /// The program has said how much it is to keep. `lane`: of one that the program has not made.
    pub(crate) fn set_keeps(&self, handle: u64, keeps: bool, lane: impl FnOnce() -> Option<usize>) {
        let mut all = self.all();
        if let Some(known) = all.iter_mut().find(|pool| pool.handle == handle) {
            known.keeps = keeps;
        } else if let Some(lane) = lane().filter(|_| keeps) {
            all.push(Pool { handle, lane, keeps });
        }
    }

    pub(crate) fn kept(&self, driver: &Driver, lane: usize) -> u64 {
        let all = self.all();
        all.iter().filter(|pool| pool.keeps && pool.lane == lane).map(|pool| driver.kept_by_pool(pool.handle)).sum()
    }

    fn kept_by(&self, driver: &Driver, handle: u64) -> u64 {
        let all = self.all();
        all.iter().find(|pool| pool.keeps && pool.handle == handle).map_or(0, |_| driver.kept_by_pool(handle))
    }

    fn trim(&self, driver: &Driver, lane: usize) {
        for pool in self.all().iter().filter(|pool| pool.keeps && pool.lane == lane) {
            driver.trim_pool(pool.handle);
        }
    }
}

/// Room for an allocation, from a pool if `from` says so; `None` if it would be more than `limit`, 0 being none.
pub(crate) fn take(client: &Client, room: Room, limit: u64, from: impl Fn() -> Option<u64>) -> Option<Room> {
    let (pools, driver) = (&client.pools, &client.driver);
    let kept = if limit == 0 { 0 } else { pools.kept(driver, room.lane) };
    if kept == 0 {
        return client.book().take(room, limit);
    }
    // What the pool has kept is taken first.
    let spare = from().map_or(0, |pool| pools.kept_by(driver, pool)).min(room.bytes);
    let within = |kept: u64, spare: u64| limit.saturating_sub(kept).saturating_add(spare).max(1);
    let taken = client.book().take(room, within(kept, spare));
    taken.or_else(|| {
        // The driver may wait for all streams.
        if CAPTURES.any() {
            return None;
        }
        pools.trim(driver, room.lane);
        let kept = pools.kept(driver, room.lane);
        client.book().take(room, within(kept, 0))
    })
}

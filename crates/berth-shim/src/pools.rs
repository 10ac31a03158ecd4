//! What memory pools keep after a free: as much as the program lets them. It counts like what is allocated; where a cap leaves no room otherwise it
//! is given back first, as the driver does by itself when memory runs out.

use std::ffi::c_int;
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
    /// Of the host where there is none.
    lane: Option<usize>,
    /// It may keep what is freed for longer than until the next wait.
    keeps: bool,
}

impl Pools {
    fn all(&self) -> MutexGuard<'_, Vec<Pool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that the program has made, on a GPU or not.
    pub(crate) fn made(&self, handle: u64, lane: Option<usize>) {
        self.all().push(Pool { handle, lane, keeps: false });
    }

    /// Of a GPU that is used for the first time: the program may have told its pool before how much to keep.
    pub(crate) fn see_default(&self, driver: &Driver, device: c_int, lane: usize) {
        if let Some(handle) = driver.default_pool(device) {
            self.set_keeps(handle, driver.pool_threshold(handle) > 0, || Some(lane));
        }
    }

    /// Where its memory is: `None` for one that is not known, `Some(None)` for the host's.
    pub(crate) fn place(&self, handle: u64) -> Option<Option<usize>> {
        self.all().iter().find(|pool| pool.handle == handle).map(|pool| pool.lane)
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
            all.push(Pool { handle, lane: Some(lane), keeps });
        }
    }

    pub(crate) fn kept(&self, driver: &Driver, lane: usize) -> u64 {
        let all = self.all();
        all.iter().filter(|pool| pool.keeps_on(lane)).map(|pool| driver.kept_by_pool(pool.handle)).sum()
    }

    fn kept_by(&self, driver: &Driver, lane: usize, handle: u64) -> u64 {
        let all = self.all();
        all.iter().find(|pool| pool.keeps_on(lane) && pool.handle == handle).map_or(0, |_| driver.kept_by_pool(handle))
    }

    fn trim(&self, driver: &Driver, lane: usize) {
        for pool in self.all().iter().filter(|pool| pool.keeps_on(lane)) {
            driver.trim_pool(pool.handle);
        }
    }
}

impl Pool {
    fn keeps_on(&self, lane: usize) -> bool {
        self.keeps && self.lane == Some(lane)
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
    let spare = from().map_or(0, |pool| pools.kept_by(driver, room.lane, pool)).min(room.bytes);
    let taken = client.book().take(room, limit.saturating_add(spare).saturating_sub(kept).max(1));
    taken.or_else(|| {
        // The driver may wait for all streams.
        if CAPTURES.any() {
            return None;
        }
        pools.trim(driver, room.lane);
        let kept = pools.kept(driver, room.lane);
        client.book().take(room, limit.saturating_sub(kept).max(1))
    })
}

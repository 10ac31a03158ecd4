//! For how long the GPU runs this process before it turns to another one that has work.
//!
//! A process may set that for itself, by an `ioctl` of the kernel's driver that needs no right; it goes with the process, and with the
//! links. One that yields has a short slice while it has work that takes long: what has begun is off the GPU soon, and what comes back in a pause of the
//! leader's does not stay. One that leads has a slice that outlasts a request. It is done by the thread that looks, since it may take a while.

use std::sync::atomic::Ordering;

use crate::client::Client;
use crate::sys::groups::{self, GROUPS};

pub(crate) fn keep(client: &Client, now: u64) {
    let mut used = client.lanes.iter().enumerate().filter(|(_, lane)| lane.device().is_some());
    // Of several GPUs nobody knows which group is on which.
    let (Some((index, lane)), None) = (used.next(), used.next()) else { return };
    let orders = client.orders(index);
    let us = match (lane.is_yielding(), lane.is_leading()) {
        (true, _) if client.preemption.is_armed(client, now) => orders.yield_slice_us.load(Ordering::Relaxed),
        (false, true) => orders.lead_slice_us.load(Ordering::Relaxed),
        _ => 0,
    };
    if let Some(ioctl) = groups::real_ioctl() {
        GROUPS.slice_all(us.into(), |group| group.slice(ioctl), |group, us| group.set_slice(ioctl, us));
    }
}

//! Whether somebody would undo holds if this process died. Whoever keeps the guard says so; no hold is made otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Not so until it is said to be.
#[derive(Debug, Clone, Default)]
pub struct Guarded(Arc<AtomicBool>);

impl Guarded {
    pub fn set(&self, is_so: bool) {
        self.0.store(is_so, Ordering::Release);
    }

    pub fn is_so(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

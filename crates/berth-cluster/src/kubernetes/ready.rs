//! Whether everything that goes by the API server's lists has been told them once: before that an answer would be a guess. And whether it is
//! about to stop: then nobody is to ask any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::watch;

/// Of all watches.
#[derive(Debug, Clone, Default)]
pub struct Ready {
    missing: Arc<AtomicUsize>,
    is_stopping: Arc<AtomicBool>,
}

/// Of one.
#[derive(Debug)]
pub(super) struct Watched {
    what: &'static str,
    missing: Arc<AtomicUsize>,
    has_told: watch::Sender<bool>,
}

/// For those who make nothing of a list before they know another.
#[derive(Debug)]
pub(super) struct Told(watch::Receiver<bool>);

impl Ready {
    /// One more to wait for.
    pub(super) fn expects(&self, what: &'static str) -> Watched {
        self.missing.fetch_add(1, Ordering::Relaxed);
        Watched { what, missing: Arc::clone(&self.missing), has_told: watch::Sender::new(false) }
    }

    /// It still answers who asks.
    pub fn stops(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Everything has been told.
    pub fn is_ready(&self) -> bool {
        self.missing.load(Ordering::Relaxed) == 0
    }
}

impl Watched {
    pub fn what(&self) -> &'static str {
        self.what
    }

    pub fn has_told_all(&self) {
        if !self.has_told.send_replace(true) {
            self.missing.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub fn told(&self) -> Told {
        Told(self.has_told.subscribe())
    }
}

impl Told {
    /// Returns when everything has been told once, or nobody is left to tell it.
    pub async fn all(mut self) {
        let _ = self.0.wait_for(|has_told| *has_told).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_when_each_has_told_everything_once() {
        let ready = Ready::default();
        let (nodes, pods) = (ready.expects("nodes"), ready.expects("pods"));
        nodes.has_told_all();
        nodes.has_told_all();
        assert!(!ready.is_ready());
        pods.has_told_all();
        assert!(ready.is_ready());
    }
}

//! The way in for those who ask something of the loop: never blocks either side.
//!
//! What is asked goes into a channel of its own, and an event wakes the loop for it. The answer comes through the
//! asker's own function, when what was asked for has come about or is refused.

use std::fmt;
use std::sync::mpsc::{self, Receiver, Sender};

use berth_model::Event;
use berth_model::control::{Ask, Reply};

/// Asks a loop; as many as are wanted may be made of it.
#[derive(Clone)]
pub struct Control {
    ask_tx: Sender<(Ask, Reply)>,
    event_tx: Sender<Event>,
}

impl Control {
    pub(crate) fn new(event_tx: Sender<Event>) -> (Self, Receiver<(Ask, Reply)>) {
        let (ask_tx, ask_rx) = mpsc::channel();
        (Self { ask_tx, event_tx }, ask_rx)
    }

    /// Returns at once. If the loop has ended, `reply` is dropped without being called.
    pub fn ask(&self, ask: Ask, reply: Reply) {
        if self.ask_tx.send((ask, reply)).is_ok() {
            // Gone only with the loop, and so with what was just sent.
            let _ = self.event_tx.send(Event::Asked);
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

//! Work that stands in a stream and that the process itself does: waiting for a word of its memory, or writing one.
//!
//! The engine has no such words. It tells the process when a stream has reached the work, and the stream goes on when the process says
//! that it is done. So a wait that is over before the stream comes to it is passed at once, and what counts is the word at that time,
//! as on the hardware.

use berth_proto::sim::{Reply, cu};

use super::context::Op;
use super::{Answer, Engine, Ticket};

impl Engine {
    pub(super) fn queue_host_work(&mut self, pid: u32, id: u64, stream: u64, token: u64) -> Answer {
        self.enqueue(pid, id, stream, Op::Host { token })?;
        Ok(Some(Reply::Done))
    }

    /// A process has one ear: a second call that listens takes the place of the first.
    pub(super) fn listen_for_host_work(&mut self, pid: u32, ticket: Ticket) -> Answer {
        let Some(process) = self.processes.get_mut(&pid) else { return Err(cu::INVALID_VALUE) };
        if let Some(token) = process.reached.pop_front() {
            return Ok(Some(Reply::Handle(token)));
        }
        if let Some(former) = process.listening.replace(ticket) {
            self.complete(pid, former, Reply::Error(cu::ILLEGAL_STATE));
        }
        Ok(None)
    }

    /// Also of a context that is to be destroyed: it waits for what its streams stand at.
    pub(super) fn host_work_done(&mut self, pid: u32, id: u64, stream: u64, token: u64) -> Answer {
        let context = self.contexts.get_mut(&id).filter(|context| context.pid == pid).ok_or(cu::INVALID_CONTEXT)?;
        if !context.stands_at(stream, token) {
            return Err(cu::INVALID_HANDLE);
        }
        context.complete_head(stream, self.now);
        self.pump(id);
        Ok(Some(Reply::Done))
    }

    pub(super) fn tell_of_host_work(&mut self, pid: u32, reached: Vec<u64>) {
        let Some(process) = self.processes.get_mut(&pid).filter(|_| !reached.is_empty()) else { return };
        process.reached.extend(reached);
        if let Some(ticket) = process.listening.take()
            && let Some(token) = process.reached.pop_front()
        {
            self.complete(pid, ticket, Reply::Handle(token));
        }
    }
}

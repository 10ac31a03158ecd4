//! Everything a daemon tells, from a known moment on.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use berth_api::{Client, Followed, Notice};
use berth_model::{Change, Evidence, TaskId, TenantKey};
use tokio::sync::Notify;

use super::process::until;

/// A follower of the event stream until dropped.
#[derive(Debug)]
pub struct Events {
    heard: Arc<Mutex<Vec<Notice>>>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

/// A task as the events tell it. Instants are nanoseconds on the monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub task: TaskId,
    pub evidence: Evidence,
    pub started: u64,
    pub ended: Option<u64>,
}

impl Events {
    /// Returns once the stream is open: nothing after that is missed.
    pub(super) fn follow(client: Client) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut follow = client.follow(None);
        let first = runtime.block_on(follow.next());
        assert!(matches!(first, Followed::Connected), "{first:?}");
        let (heard, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let (kept, stopped) = (Arc::clone(&heard), Arc::clone(&stop));
        let listen = async move {
            loop {
                tokio::select! {
                    followed = follow.next() => if let Followed::Change(notice) = followed {
                        kept.lock().unwrap_or_else(PoisonError::into_inner).push(notice);
                    },
                    () = stopped.notified() => return,
                }
            }
        };
        let thread = std::thread::spawn(move || runtime.block_on(listen));
        Self { heard, stop, thread: Some(thread) }
    }

    pub fn all(&self) -> Vec<Change> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.iter().map(|notice| notice.change.clone()).collect()
    }

    pub fn wait_for<T>(&self, what: &str, wanted: impl Fn(&Change) -> Option<T>) -> T {
        until(what, || self.all().iter().find_map(&wanted))
    }

    /// The tasks of a tenant, in the order they began.
    pub fn tasks(&self, of: &TenantKey) -> Vec<Told> {
        let mut tasks: Vec<Told> = Vec::new();
        for change in self.all() {
            match change {
                Change::TaskStarted { task, tenant, at, evidence, .. } if tenant == *of => {
                    tasks.push(Told { task, evidence, started: at.0, ended: None });
                }
                Change::TaskEnded { task, tenant, at, .. } if tenant == *of => {
                    let told = tasks.iter_mut().find(|told| told.task == task).expect("a task ended that never began");
                    assert_eq!(told.ended.replace(at.0), None, "a task ended twice");
                }
                _ => {}
            }
        }
        tasks
    }

    /// Waits until so many tasks of the tenant have begun. A row may be seen a moment before its event is heard.
    pub fn began(&self, of: &TenantKey, count: usize) -> Vec<Told> {
        until(&format!("{count} tasks of {of} to begin"), || Some(self.tasks(of)).filter(|tasks| tasks.len() >= count))
    }

    /// Waits until so many tasks of the tenant have ended, and all that began.
    pub fn ended(&self, of: &TenantKey, count: usize) -> Vec<Told> {
        until(&format!("{count} tasks of {of} to end"), || {
            let tasks = self.tasks(of);
            (tasks.len() >= count && tasks.iter().all(|told| told.ended.is_some())).then_some(tasks)
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

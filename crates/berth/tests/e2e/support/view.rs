//! What a daemon says through its API, whoever started it.

use std::path::{Path, PathBuf};

use berth_api::{Client, paths};
use berth_model::{Snapshot, Source, SourceStatus, TaskRow, TenantKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::events::Events;
use super::process::until;

#[derive(Debug)]
pub struct View {
    socket: PathBuf,
}

impl View {
    pub fn of(socket: &Path) -> Self {
        Self { socket: socket.into() }
    }

    /// Whether it answers, and has asked the driver.
    pub fn has_looked(&self) -> bool {
        let snapshot = self.try_get::<Snapshot>(paths::SNAPSHOT);
        snapshot.is_some_and(|snapshot| snapshot.sources.iter().any(|view| view.source == Source::Nvml))
    }

    /// `None` while it does not answer.
    pub fn try_get<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Client::new(&self.socket).get(path)).ok()
    }

    /// Has something done. A daemon that refuses has failed the test.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Client::new(&self.socket).post(path, body)).unwrap()
    }

    pub fn metrics(&self) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Client::new(&self.socket).get_text(paths::METRICS)).unwrap()
    }

    /// What it knows now. A daemon that does not answer has failed the test.
    pub fn snapshot(&self) -> Snapshot {
        self.try_get(paths::SNAPSHOT).expect("the daemon does not answer")
    }

    pub fn row(&self, tenant: &TenantKey) -> Option<TaskRow> {
        self.snapshot().tasks.into_iter().find(|row| row.tenant.is(tenant))
    }

    /// Waits for a row of this tenant that is as `wanted`.
    pub fn row_where(&self, tenant: &TenantKey, wanted: impl Fn(&TaskRow) -> bool) -> TaskRow {
        until(&format!("the row of {tenant}"), || self.row(tenant).filter(&wanted))
    }

    /// Waits until the tenant is on a GPU with memory.
    pub fn sees(&self, tenant: &TenantKey) -> TaskRow {
        self.row_where(tenant, |row| row.gpu_memory_bytes.is_some() && row.task_id.is_some())
    }

    pub fn sees_nothing_of(&self, tenant: &TenantKey) {
        until(&format!("{tenant} to be gone"), || self.row(tenant).is_none().then_some(()));
    }

    /// Waits until a source is as `wanted`.
    pub fn source(&self, source: Source, wanted: impl Fn(&SourceStatus) -> bool) -> SourceStatus {
        until(&format!("a status of {source:?}"), || {
            let sources = self.snapshot().sources;
            sources.into_iter().find(|view| view.source == source).map(|view| view.status).filter(&wanted)
        })
    }

    /// What it tells from now on.
    pub fn events(&self) -> Events {
        Events::follow(Client::new(&self.socket))
    }
}

//! What the view knows: the latest snapshot, histories, and what the user chose. No drawing, no clock.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_model::{Bytes, GpuIndex, GpuUuid, Percent, Snapshot, TaskRow, TenantKey};

use super::cluster::Cluster;
use super::history::History;
use super::keys::Action;
use super::sorting::{self, Order};
use crate::live::{Origin, Update};
use crate::on_record::OnRecord;
use crate::words;

/// Rows a page key moves by.
const PAGE: isize = 10;

/// Memory and core use of a GPU or of a tenant on one.
#[derive(Debug, Clone, Default)]
pub struct Histories {
    pub memory: History,
    pub core: History,
}

impl Histories {
    fn push_gap(&mut self) {
        self.memory.push(None);
        self.core.push(None);
    }
}

/// A row, recognised in the next snapshot.
pub type RowKey = (TenantKey, Option<GpuIndex>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    Nothing,
    Help,
    Details,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Stay,
    Quit,
}

#[derive(Debug)]
pub struct App {
    pub origin: Origin,
    pub socket: PathBuf,
    pub placer_socket: PathBuf,
    /// What keeps news from coming, while something does.
    pub trouble: Option<String>,
    /// How long a daemon that is connected has said nothing, if that is longer than it should be.
    pub silence: Option<Duration>,
    pub snapshot: Option<Arc<Snapshot>>,
    /// What is on record about holds, where there is no daemon.
    pub on_record: Option<OnRecord>,
    pub last_change: Option<String>,
    /// Another GPU under the same index has a history of its own.
    pub gpu_histories: BTreeMap<(GpuIndex, Option<GpuUuid>), Histories>,
    pub row_histories: BTreeMap<RowKey, Histories>,
    pub order: Order,
    pub filter: String,
    is_typing: bool,
    pub selected: Option<RowKey>,
    pub open: Open,
    /// The nodes of the cluster, while they are shown instead.
    pub cluster: Option<Cluster>,
}

impl App {
    pub fn new(origin: Origin, socket: PathBuf, placer_socket: PathBuf) -> Self {
        Self {
            origin,
            socket,
            placer_socket,
            trouble: None,
            silence: None,
            snapshot: None,
            on_record: None,
            last_change: None,
            gpu_histories: BTreeMap::new(),
            row_histories: BTreeMap::new(),
            order: Order::default(),
            filter: String::new(),
            is_typing: false,
            selected: None,
            open: Open::Nothing,
            cluster: None,
        }
    }

    pub fn is_typing(&self) -> bool {
        self.is_typing
    }

    pub fn update(&mut self, update: Update) {
        match update {
            Update::Snapshot(snapshot) => {
                self.trouble = None;
                self.snapshot = Some(snapshot);
            }
            Update::Change(notice) => self.last_change = Some(words::change(&notice.change)),
            Update::Lost(reason) => self.trouble = Some(reason),
            Update::Connected => self.trouble = None,
            Update::Missed(_) => {}
        }
    }

    /// One step of the histories, at a steady pace so that they have a time axis. Without news it is a gap.
    pub fn step(&mut self) {
        match self.snapshot.clone() {
            Some(snapshot) if self.trouble.is_none() && self.silence.is_none() => self.step_with(&snapshot),
            _ => self.gpu_histories.values_mut().chain(self.row_histories.values_mut()).for_each(Histories::push_gap),
        }
    }

    fn step_with(&mut self, snapshot: &Snapshot) {
        for gpu in &snapshot.gpus {
            let histories = self.gpu_histories.entry((gpu.index, gpu.uuid.clone())).or_default();
            histories.memory.push(share(gpu.memory_used_bytes, gpu.memory_total_bytes));
            histories.core.push(gpu.core_pct.map(Percent::get));
        }
        self.row_histories.retain(|key, _| snapshot.tasks.iter().any(|row| key_of(row) == *key));
        for row in &snapshot.tasks {
            let total = gpu_memory(snapshot, row.gpu_index);
            let histories = self.row_histories.entry(key_of(row)).or_default();
            histories.memory.push(share(row.gpu_memory_bytes, total));
            histories.core.push(row.gpu_core_pct.map(Percent::get));
        }
    }

    /// The rows to show, in order.
    pub fn rows(&self) -> Vec<&TaskRow> {
        let Some(snapshot) = &self.snapshot else { return Vec::new() };
        let mut rows: Vec<&TaskRow> = snapshot.tasks.iter().filter(|row| sorting::matches(row, &self.filter)).collect();
        rows.sort_by(|a, b| self.order.compare(a, b));
        rows
    }

    /// Where the selected row is among [`App::rows`]; the first row if it is gone.
    pub fn selected_index(&self) -> Option<usize> {
        let rows = self.rows();
        let at = rows.iter().position(|row| Some(key_of(row)) == self.selected);
        at.or((!rows.is_empty()).then_some(0))
    }

    pub fn act(&mut self, action: Action) -> Flow {
        match action {
            Action::Quit => return Flow::Quit,
            Action::Help => self.open = if self.open == Open::Help { Open::Nothing } else { Open::Help },
            Action::Back => self.back(),
            Action::Details => self.toggle_details(),
            Action::Cluster => self.toggle_cluster(),
            Action::Sort(key) => self.order = Order { key, is_reversed: false },
            Action::Reverse => self.order.is_reversed = !self.order.is_reversed,
            Action::StartFilter if self.cluster.is_some() => {}
            Action::StartFilter => (self.is_typing, self.open) = (true, Open::Nothing),
            Action::Type(c) => self.filter.push(c),
            Action::Erase => drop(self.filter.pop()),
            Action::AcceptFilter => self.is_typing = false,
            Action::Up => self.select(-1),
            Action::Down => self.select(1),
            Action::PageUp => self.select(-PAGE),
            Action::PageDown => self.select(PAGE),
            Action::First => self.select(isize::MIN),
            Action::Last => self.select(isize::MAX),
        }
        Flow::Stay
    }

    fn back(&mut self) {
        if self.open != Open::Nothing {
            self.open = Open::Nothing;
        } else if self.cluster.is_some() {
            self.cluster = None;
        } else {
            self.is_typing = false;
            self.filter.clear();
        }
    }

    fn toggle_details(&mut self) {
        self.select(0);
        self.open = match self.open {
            Open::Details => Open::Nothing,
            Open::Nothing | Open::Help if self.has_selected() => Open::Details,
            other => other,
        };
    }

    fn toggle_cluster(&mut self) {
        self.open = Open::Nothing;
        self.cluster = if self.cluster.is_some() { None } else { Some(Cluster::default()) };
    }

    /// There is something to tell more of.
    fn has_selected(&self) -> bool {
        match &self.cluster {
            Some(cluster) => cluster.selected_index().is_some(),
            None => self.selected.is_some(),
        }
    }

    fn select(&mut self, by: isize) {
        if let Some(cluster) = &mut self.cluster {
            return cluster.select(by);
        }
        let rows = self.rows();
        let Some(now) = self.selected_index() else { return };
        let index = now.saturating_add_signed(by).min(rows.len() - 1);
        self.selected = Some(key_of(rows[index]));
    }
}

pub fn key_of(row: &TaskRow) -> RowKey {
    (row.tenant.clone(), row.gpu_index)
}

pub fn gpu_memory(snapshot: &Snapshot, gpu: Option<GpuIndex>) -> Option<Bytes> {
    snapshot.gpus.iter().find(|view| Some(view.index) == gpu)?.memory_total_bytes
}

/// Percent of `total` that `used` is; `None` if either is unknown.
pub fn share(used: Option<Bytes>, total: Option<Bytes>) -> Option<u8> {
    let (used, total) = (used?.0, total.filter(|total| total.0 > 0)?.0);
    u8::try_from((u128::from(used) * 100 / u128::from(total)).min(100)).ok()
}

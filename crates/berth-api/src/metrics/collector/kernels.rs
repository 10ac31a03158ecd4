//! The level of kernels: by tenant and GPU, as the tenants' other series.

use std::fmt;

use berth_model::kernels::{AutoChoice, GpuWindow, KernelLevel, KernelRow, WindowFigures};
use prometheus_client::metrics::counter::ConstCounter;

use super::{Labels, Page, count, float, truth};
use crate::metrics::names::{self, label};

impl Page<'_, '_> {
    pub(super) fn kernels(&mut self, level: &KernelLevel) -> fmt::Result {
        self.single(names::KERNEL_LEADS_LOST, ConstCounter::new(level.totals.leads_lost))?;
        self.single(names::KERNEL_REFUSED, ConstCounter::new(level.totals.refused))?;
        self.single(names::KERNEL_PLANS, ConstCounter::new(level.totals.plans))?;
        let rows = &level.rows;
        self.gauges(names::KERNEL_ROLE, rows.iter().map(|row| (with_role(row), 1.0)))?;
        self.gauges(names::KERNEL_STOPPED, rows.iter().map(|row| (labels(row), truth(row.is_stopped))))?;
        self.gauges(names::KERNEL_YIELDS_TO, rows.iter().map(|row| (labels(row), count(row.yields_to.len()))))?;
        self.gauges(names::KERNEL_ATTAINMENT, known(rows, |row| row.attainment))?;
        let with_goal = || rows.iter().filter(|row| row.slo.promises());
        self.counters(names::KERNEL_REQUESTS, with_goal().map(|row| (labels(row), float(row.requests.requests))))?;
        self.gauges(names::KERNEL_REQUEST_TIME, with_goal().flat_map(request_times))?;
        self.gauges(names::KERNEL_CHOSEN, level.auto.iter().map(|choice| (chosen(choice), 1.0)))?;
        let windows = &level.windows;
        self.gauges(names::KERNEL_GOODPUT, came_to(windows, |one| Some(one.goodput)))?;
        self.gauges(names::KERNEL_GOALS_KEPT, came_to(windows, |one| one.goals_kept))?;
        self.gauges(names::KERNEL_FAIRNESS, came_to(windows, |one| one.fairness))?;
        self.gauges(names::KERNEL_SLOWDOWN, came_to(windows, |one| one.slowdown))?;
        self.gauges(names::KERNEL_WORST_FINISH, came_to(windows, |one| one.worst_finish))?;
        self.gauges(names::KERNEL_TIME, known(rows, |row| row.kernel_seconds))?;
        self.gauges(names::KERNEL_ERROR, known(rows, |row| row.prediction_error))?;
        self.gauges(names::KERNEL_SMS, known(rows, |row| row.sm_share))?;
        self.gauges(names::KERNEL_BANDWIDTH, known(rows, |row| row.bandwidth_share))?;
        self.counters(names::KERNEL_LAUNCHES, rows.iter().map(|row| (labels(row), float(row.counters.launches))))?;
        self.counters(names::KERNEL_STOPS, rows.iter().map(|row| (labels(row), float(row.counters.stops))))?;
        let given_up = rows.iter().map(|row| (labels(row), float(row.counters.stops_given_up)));
        self.counters(names::KERNEL_STOPS_GIVEN_UP, given_up)?;
        self.counters(names::KERNEL_SERVED, rows.iter().map(|row| (labels(row), row.served_seconds)))
    }
}

/// What is not known has no series.
fn known(rows: &[KernelRow], figure: fn(&KernelRow) -> Option<f64>) -> impl Iterator<Item = (Labels, f64)> {
    rows.iter().filter_map(move |row| Some((labels(row), figure(row)?)))
}

fn came_to(windows: &[GpuWindow], figure: fn(&WindowFigures) -> Option<f64>) -> impl Iterator<Item = (Labels, f64)> {
    windows.iter().filter_map(move |window| {
        let gpu = window.gpu_index.map_or_else(|| window.gpu_uuid.to_string(), |gpu| gpu.to_string());
        let labels = vec![(label::GPU, gpu), (label::POLICY, window.figures.policy.as_str().to_owned())];
        Some((labels, figure(&window.figures)?))
    })
}

fn labels(row: &KernelRow) -> Labels {
    let gpu = row.gpu_index.map_or_else(|| row.gpu_uuid.to_string(), |gpu| gpu.to_string());
    vec![(label::TENANT, row.tenant.to_string()), (label::CONTAINER, row.name.clone()), (label::GPU, gpu)]
}

fn request_times(row: &KernelRow) -> impl Iterator<Item = (Labels, f64)> {
    let figures = [("0.5", row.requests.request_p50_seconds), ("0.99", row.requests.request_p99_seconds)];
    figures.into_iter().filter_map(|(quantile, seconds)| {
        let mut labels = labels(row);
        labels.push((label::QUANTILE, quantile.to_owned()));
        Some((labels, seconds?))
    })
}

fn chosen(choice: &AutoChoice) -> Labels {
    let gpu = choice.gpu_index.map_or_else(|| choice.gpu_uuid.to_string(), |gpu| gpu.to_string());
    vec![(label::GPU, gpu), (label::POLICY, choice.policy.as_str().to_owned())]
}

fn with_role(row: &KernelRow) -> Labels {
    let mut labels = labels(row);
    labels.push((label::ROLE, row.role.as_str().to_owned()));
    labels
}

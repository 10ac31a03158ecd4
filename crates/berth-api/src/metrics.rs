//! The Prometheus page, made anew from the latest snapshot at every scrape.
//!
//! Nothing is kept between scrapes: a tenant that left has no series any more, so the number of series is bounded by
//! who is on the GPUs now. What is unknown has no series either; it is never shown as 0.

mod collector;
pub mod names;
mod text;

use std::sync::Arc;

use berth_model::Snapshot;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::control::ReportTotals;
pub use crate::usage::Usage;
use collector::HostCollector;

/// The two formats scrapers ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    pub fn for_accept(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Format::OpenMetrics } else { Format::Prometheus }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// `reports`: what came of questions over the network, where they may be asked.
pub fn page(
    snapshot: Arc<Snapshot>,
    usage: Usage,
    reports: Option<ReportTotals>,
    format: Format,
) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(HostCollector { snapshot, usage, reports }));
    let mut page = String::new();
    encode(&mut page, &registry)?;
    Ok(match format {
        Format::OpenMetrics => text::without_falling_sums(&page),
        Format::Prometheus => text::from_openmetrics(&page),
    })
}

#[cfg(test)]
mod tests;

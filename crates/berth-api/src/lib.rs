//! The state of a host over HTTP on a Unix socket: JSON, server-sent events, Prometheus metrics; and the client for it.
//!
//! A [`Feed`] sits between the engine's thread and everybody who listens: publishing never waits for a listener, and a
//! listener that is too slow is told how much it missed. [`Server`] answers from the feed alone: no request makes the
//! daemon look at a GPU, and no client, however slow, can hold up or use up the daemon. Whoever may open the socket may read;
//! holding and releasing is asked of a [`Control`], which is told by the kernel's word who asks, and judges.
//! A [`MetricsPort`] serves metrics, and nothing else, to whoever reaches it.
#![forbid(unsafe_code)]

pub mod client;
mod control;
mod error;
mod events;
mod feed;
pub mod metrics;
mod routes;
mod serve;
mod server;
#[cfg(test)]
mod testing;
mod unread;
mod usage;

pub use client::{Client, ClientError, Follow, Followed, PlacerClient};
pub use control::{Control, ReportTotals};
pub use error::{ErrorBody, ErrorDetail};
pub use feed::{Feed, Notice};
pub use routes::{
    DeadlineRequest, FeedbackRequest, Health, HoldRequest, Holds, KernelPolicyRequest, PolicyRequest, ReleaseRequest,
    SloRequest, Version, paths,
};
pub use server::{Access, BindError, MetricsPort, PortError, ServeError, Server};

//! What the tests stand on: a cluster, nodes in it, the placer, a scheduler, and somebody between the two who takes the time.

mod agent;
mod cluster;
pub mod kubelet;
mod node;
mod placer;
mod process;
mod proxy;
mod scheduler;

pub use agent::{NodeAgent, Sim};
pub use cluster::{Cluster, NAMESPACE, VERSION, account, list};
pub use kubelet::Kubelet;
pub use node::{Facts, Node, Reporter, now_ms, status};
pub use placer::Placer;
pub use process::{BERTH, Running, until, until_within};
pub use proxy::{Call, Proxy};
pub use scheduler::{Binds, Scheduler};

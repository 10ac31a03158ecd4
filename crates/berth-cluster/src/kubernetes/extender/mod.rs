//! The answers to kube-scheduler: which nodes may take a pod (`filter`), which would be best (`prioritize`), and the binding itself
//! (`bind`), at which the place is taken.
//!
//! Everything but the calls to the API server is pure: the book, the request and the time in, the answer out. The scheduler decides on one
//! pod after the other, but binds in the background: what it has decided for the last pod is not seen yet when it asks for the next. So
//! the place it is expected to take is *kept* as soon as it has been told, and taken for good when it binds, or when the pod is seen
//! bound. A scheduler without a `bindVerb` is served as well.

mod ask;
mod bind;
mod filter;
mod lately;
mod prioritize;
pub mod types;

#[cfg(test)]
mod tests;

pub use bind::{Bound, NotBound, Pods, bind};
pub use filter::filter;
pub use lately::Lately;
pub use prioritize::prioritize;

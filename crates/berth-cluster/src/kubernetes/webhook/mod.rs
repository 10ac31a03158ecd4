//! `/validate`: whether what a pod asks of berth can be read, before it is made.
//!
//! A mistake is told to whoever makes the object, with the annotation, its value and what would be right. Templates of pods are judged
//! too: a Deployment with a slip of the pen is refused itself, and not pod by pod where nobody looks. What is only odd is let through with a
//! warning, which `kubectl` prints.
//!
//! Pure: a review in, its answer out.

mod judge;
mod review;

pub use review::{AdmissionReview, Answer, Response, Status, Unreadable, review};

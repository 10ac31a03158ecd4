//! The task table as separate programs see it: one writes, others read, any of them may be stopped or killed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod children;
mod faults;
mod foreign;
mod publish;
mod support;
mod torn;

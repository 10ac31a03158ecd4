//! The task table as separate programs see it: one writes, others read, any of them may be stopped or killed.

mod children;
mod faults;
mod foreign;
mod publish;
mod support;
mod torn;

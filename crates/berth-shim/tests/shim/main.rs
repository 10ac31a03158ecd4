//! The library in real processes, before a driver made for these tests, with a daemon made for them: what the program sees, what the
//! stop words do, and what happens when one of those involved is gone.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // test code

mod again;
mod captures;
mod daemon;
mod failing;
mod finding;
mod freeing;
mod links;
mod memory;
mod requests;
mod sys;
mod tenant;
mod work;

//! The library inside a tenant's process that orders its kernels among those of others.
//!
//! Preloaded, it stands before the driver's functions that begin work, take memory or take streams away. At the first of them it
//! attaches to the daemon, which gives it links to other clients: before its work it raises the words of those that yield to it,
//! and before its own work it has its streams wait for the words of those it yields to. Nothing it does itself can change what the
//! program sees: without a daemon, after a hang-up and after any error of its own it passes every call on. It never waits
//! for the daemon but once, for a moment, and takes no lock on the way of a launch. After a hang-up it looks for the next daemon.
//!
//! `hooks/` is the C edge, `work.rs` the way of a launch; beside it are two threads: `thread.rs` hears the daemon and frees who is
//! stopped, and calls no driver; `look.rs` asks the driver how far the work is. A third, `preempt.rs`, is
//! there where work takes long. `sys/` has the unsafe code.

mod attach;
mod blind;
mod book;
mod capture;
mod client;
mod counted;
mod environment;
mod estimate;
mod freeing;
mod hold;
mod hooks;
mod lane;
mod leaving;
mod linger;
mod links;
mod long;
mod look;
mod marks;
mod pace;
mod pools;
mod preempt;
mod request;
mod samples;
mod slices;
mod state;
mod streams;
mod sys;
mod thread;
mod told;
mod work;

//! Why a client inside a GPU runs or waits, in words a person understands.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ClientId;

/// About one client. Others are named by their ids; whoever shows it knows what people call them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Reason {
    /// Nobody else wants the GPU.
    NobodyElse,
    /// It has the least left to do.
    LeastLeft { left: Duration },
    /// Another has less left to do.
    LessLeft { who: ClientId, left: Duration },
    /// Running beside another lowers the mean completion: both get on at these parts of their speed alone.
    PaysBeside { who: ClientId, speed: f64 },
    /// It has a goal, and those without yield to it.
    Leads,
    /// It yields to one that has a goal.
    YieldsTo { who: ClientId },
    /// What it has to keep is due soonest.
    DueFirst { due_in: Duration },
    /// What another has to keep is due before.
    DueBefore { who: ClientId, due_in: Duration },
    /// It would miss its goal unless it goes now.
    AtRisk { due_in: Duration },
    /// It has not had what is reserved for it.
    Reserved { share: f64 },
    /// It and those beside it get the most done that counts.
    BestTogether { score: f64 },
    /// Others get more done that counts.
    OthersBetter { score: f64 },
    /// It, or its user, has had less than its fair part.
    FairShare { behind: Duration },
    /// It has waited as long as anybody may.
    WaitedLongest { waited: Duration },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::NobodyElse => f.write_str("nobody else wants the GPU"),
            Reason::LeastLeft { left } => write!(f, "it has the least left to do, {left:.1?}"),
            Reason::LessLeft { who, left } => write!(f, "client {who} has less left to do, {left:.1?}"),
            Reason::PaysBeside { who, speed } => {
                write!(f, "beside client {who} it gets on at {:.0} % of its speed, and all end sooner", speed * 100.0)
            }
            Reason::Leads => f.write_str("it has a goal, and those without one yield to it"),
            Reason::YieldsTo { who } => write!(f, "it yields to client {who}, which has a goal"),
            Reason::DueFirst { due_in } => write!(f, "what it has to keep is due first, in {due_in:.1?}"),
            Reason::DueBefore { who, due_in } => write!(f, "client {who} is due before it, in {due_in:.1?}"),
            Reason::AtRisk { due_in } => write!(f, "it is due in {due_in:.1?} and would be late if it waited"),
            Reason::Reserved { share } => write!(f, "{:.0} % of the GPU is reserved for it", share * 100.0),
            Reason::BestTogether { score } => write!(f, "it and those beside it get the most done, {score:.2}"),
            Reason::OthersBetter { score } => write!(f, "others get more done that counts, {score:.2}"),
            Reason::FairShare { behind } => write!(f, "it is {behind:.1?} behind its fair part"),
            Reason::WaitedLongest { waited } => write!(f, "it waited {waited:.1?}, as long as anybody may"),
        }
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

//! What people may ask of a daemon, what it answers, and how they name whom they mean.
//!
//! Plain data and the rules that need nothing else: [`find`] turns what a person typed into a tenant, [`Caller::may_act_on`]
//! says who may. Asking, waiting and carrying out are others' work.

mod deadline;
mod kernels;
mod watch;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cluster::Past;
use crate::history::Before;
use crate::hold::Means;
use crate::id::{GpuIndex, TenantKey};
use crate::settings::{EdfSettings, FifoSettings, KernelPolicyName, PaperSettings, PolicyName};
use crate::snapshot::{HoldRow, TaskRow, TaskState};
pub use deadline::{Admission, Candidate, DeadlineAsk, DeadlineStanding, DueWork, Fits, GpuAdmission};
pub use kernels::{GivenSlo, KernelAsk, SloStanding};
pub use watch::{FindingRow, Heard, MoodRow, WatchAsk};

/// Names listed in an error; more would hide the rest.
const MOST_NAMES: usize = 12;

/// Who asks, as the kernel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    /// `uid`'s name, where this host knows one.
    pub user: Option<String>,
    /// Root, or the user the daemon runs as.
    pub is_admin: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub caller: Caller,
    pub what: What,
}

/// `tenant` is what a person typed; see [`find`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Keep it off the GPUs until a person says otherwise or its task ends. `None`: by what suits it.
    Hold {
        tenant: String,
        means: Option<Means>,
        reason: Option<String>,
    },
    /// Let it run, and let no policy hold it until its task ends.
    Release {
        tenant: String,
    },
    /// Release everybody who is held and whom the caller may release.
    ReleaseAll,
    /// Leave it to the policy again.
    HandBack {
        tenant: String,
    },
    /// From now on this policy decides; what the one before it holds is released. `dry_run` is what the settings say if not given.
    SetPolicy {
        policy: PolicyName,
        dry_run: Option<bool>,
    },
    /// Who decides, and by which numbers.
    ShowPolicy,
    Explain {
        tenant: String,
    },
    Deadline(DeadlineAsk),
    Kernels(KernelAsk),
    Watch(WatchAsk),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Where the tenant stands now.
    Stands(Box<Standing>),
    /// Those that were released.
    Released(Vec<Standing>),
    Policy(Box<PolicyView>),
    Explained(Box<Explanation>),
    /// Of everybody who was asked about; of one after something was said about it.
    Deadlines(Vec<DeadlineStanding>),
    Admission(Box<Admission>),
    /// Goals of everybody who was asked about; of one after something was said about it.
    Slos(Vec<SloStanding>),
    KernelPolicy(KernelPolicyName),
    Heard(Box<Heard>),
    Mood(Box<MoodRow>),
    Findings(Vec<FindingRow>),
    /// The latest first, no more than a few hundred.
    Pasts(Vec<Past>),
}

/// Called once, on the loop's thread: must not block. Dropped uncalled only if the loop has ended.
pub type Reply = Box<dyn FnOnce(Result<Answer, Refusal>) + Send>;

/// A tenant after something was asked about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    pub tenant: TenantKey,
    pub name: String,
    /// As in its row; `None` while it is free and left to the policy.
    pub hold: Option<HoldRow>,
    /// What was asked for has come about. Otherwise it is still under way.
    pub is_settled: bool,
}

/// Who decides, and by which numbers each policy would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyView {
    pub policy: PolicyName,
    /// It only says what it would do.
    pub dry_run: bool,
    pub fifo: FifoSettings,
    pub edf: EdfSettings,
    pub paper: PaperSettings,
}

/// Why a tenant runs or does not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    pub tenant: TenantKey,
    pub name: String,
    pub owner: Option<String>,
    pub policy: PolicyName,
    /// The policy only says what it would do.
    pub dry_run: bool,
    pub gpus: Vec<GpuIndex>,
    pub state: TaskState,
    pub task_seconds: Option<f64>,
    /// Time it was kept off in this task.
    pub held_seconds: f64,
    pub hold: Option<HoldRow>,
    /// Someone else paused it: berth leaves it alone.
    pub is_paused_by_others: bool,
    /// Holding it failed: policies leave it alone until then.
    pub left_alone_until: Option<Timestamp>,
    /// How it could be held here.
    pub means: Vec<Means>,
    /// Others that compute on its GPUs, as people call them.
    pub computing_there: Vec<String>,
    /// Those it is held and released with, as people call them; empty for one that is in no gang.
    pub gang_with: Vec<String>,
    /// Those who wait for it, first in line first, as people call them; in a dry run, who would.
    pub awaited_by: Vec<String>,
    /// What tasks of the same owner, image and command did before; `None` if none is known.
    pub before: Option<Before>,
    /// Its last holds and failures, newest first, no more than a few.
    pub history: Vec<PastHold>,
}

/// One hold of the past, the present one included; or one that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastHold {
    pub at: Timestamp,
    #[serde(flatten)]
    pub what: PastWhat,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum PastWhat {
    Held {
        means: Means,
        by_uid: Option<u32>,
        reason: String,
        /// `None` while it lasts.
        released: Option<PastRelease>,
    },
    Failed {
        message: String,
    },
}

impl PastHold {
    /// A hold that lasts, as far as is known.
    pub fn is_open(&self) -> bool {
        matches!(self.what, PastWhat::Held { released: None, .. })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastRelease {
    pub at: Timestamp,
    pub by_uid: Option<u32>,
    pub reason: String,
}

/// Why something is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no tenant is called `{selector}`{}", listed("; there are", known))]
    NoSuchTenant { selector: String, known: Vec<String> },
    #[error("`{selector}` may be several tenants{}", listed(":", candidates))]
    Ambiguous { selector: String, candidates: Vec<String> },
    #[error("`{name}` belongs to {}: only its owner and root may decide about it", owner.as_deref().unwrap_or("somebody else"))]
    NotYours { name: String, owner: Option<String> },
    #[error("user {uid} has decided about `{name}`: only that user and root may change it")]
    DecidedByAnother { name: String, uid: u32 },
    #[error("the policy is the host's: only root and the user of the daemon may change it")]
    AdminsOnly,
    #[error("the policy decides about `{name}`: only root may take it out of its hands (hold.owners_exempt)")]
    PolicyDecides { name: String },
    #[error("`{name}` cannot be held {}{}", manner(*means), listed("; what can be done to it here:", &words(offered)))]
    NotOffered { name: String, means: Option<Means>, offered: Vec<Means> },
    #[error("someone else has paused `{name}`: berth leaves it as it is until they let it go on")]
    PausedByOthers { name: String },
    #[error("`{name}`: {message}")]
    Failed { name: String, message: String },
    #[error("this daemon holds nobody: {reason}")]
    NoHolds { reason: String },
    #[error("deadlines cannot be set: {reason}")]
    NotKept { reason: String },
    #[error("goals cannot be set: {reason}")]
    SlosNotKept { reason: String },
    #[error("nobody takes part at the level of kernels here: {reason}")]
    NoKernels { reason: String },
    #[error("what was said of `{name}` stays as it was: {reason}")]
    NotWritten { name: String, reason: String },
    #[error("so much was said of late that no more is written down: say it again in {again_seconds} s")]
    SaidTooOften { again_seconds: u64 },
    #[error("there is no GPU {gpu} here{}", listed("; there are", known))]
    NoSuchGpu { gpu: String, known: Vec<String> },
}

impl Refusal {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::NoSuchTenant { .. } => "no_such_tenant",
            Refusal::Ambiguous { .. } => "ambiguous_tenant",
            Refusal::NotYours { .. }
            | Refusal::DecidedByAnother { .. }
            | Refusal::PolicyDecides { .. }
            | Refusal::AdminsOnly => "forbidden",
            Refusal::NotOffered { .. } => "means_not_offered",
            Refusal::PausedByOthers { .. } => "paused_by_others",
            Refusal::Failed { .. } => "hold_failed",
            Refusal::NoHolds { .. } => "no_holds",
            Refusal::NotKept { .. } | Refusal::NotWritten { .. } => "deadlines_not_kept",
            Refusal::SlosNotKept { .. } => "slos_not_kept",
            Refusal::NoKernels { .. } => "no_kernels",
            Refusal::SaidTooOften { .. } => "too_often",
            Refusal::NoSuchGpu { .. } => "no_such_gpu",
        }
    }
}

impl Caller {
    /// `owner` is whom a label of its container names; without one the users its processes run as decide, all of them.
    pub fn may_act_on(&self, owner: Option<&str>, uids: &[Option<u32>]) -> bool {
        let is_own = match owner {
            Some(owner) => self.user.as_deref() == Some(owner),
            None => !uids.is_empty() && uids.iter().all(|uid| *uid == Some(self.uid)),
        };
        self.is_admin || is_own
    }
}

/// The tenant a person means by its name, the beginning of its container's id, its cgroup's path or the end of it, its
/// user's name, or its key in full. Who is called exactly so comes before who could be meant.
pub fn find<'a>(selector: &str, rows: impl IntoIterator<Item = &'a TaskRow>) -> Result<&'a TenantKey, Refusal> {
    find_named(selector, rows.into_iter().map(|row| (&row.tenant, row.container_name.as_str())))
}

/// The same among tenants of whom only the names are known.
pub fn find_named<'a>(
    selector: &str,
    tenants: impl IntoIterator<Item = (&'a TenantKey, &'a str)>,
) -> Result<&'a TenantKey, Refusal> {
    let tenants: BTreeMap<&TenantKey, &str> = tenants.into_iter().collect();
    let called = |tenant: &TenantKey, name: &str| is_called(tenant, name, selector);
    let perhaps = |tenant: &TenantKey, _: &str| may_be_called(tenant, selector);
    for is_meant in [&called as &dyn Fn(&TenantKey, &str) -> bool, &perhaps] {
        let mut meant = tenants.iter().filter(|(tenant, name)| is_meant(tenant, name));
        match (meant.next(), meant.next()) {
            (Some((only, _)), None) => return Ok(*only),
            (Some(first), Some(second)) => {
                let told = |(tenant, name)| format!("{name} ({tenant})");
                let candidates = [first, second].into_iter().chain(meant).map(told).collect();
                return Err(Refusal::Ambiguous { selector: selector.to_owned(), candidates });
            }
            (None, _) => {}
        }
    }
    let known = tenants.values().map(|name| (*name).to_owned()).collect();
    Err(Refusal::NoSuchTenant { selector: selector.to_owned(), known })
}

pub(crate) fn is_called(tenant: &TenantKey, name: &str, selector: &str) -> bool {
    let is_id = tenant.container_id().is_some_and(|id| id.0 == selector);
    !selector.is_empty() && (name == selector || tenant.to_string() == selector || is_id)
}

pub(crate) fn may_be_called(tenant: &TenantKey, selector: &str) -> bool {
    if selector.is_empty() {
        return false;
    }
    match tenant {
        TenantKey::Container { id, .. } => id.0.starts_with(selector),
        TenantKey::Cgroup { path } => {
            let rest = path.strip_suffix(selector.trim_start_matches('/'));
            rest.is_some_and(|rest| rest.ends_with('/'))
        }
        TenantKey::User { uid } => uid.to_string() == selector,
    }
}

fn manner(means: Option<Means>) -> String {
    means.map_or_else(|| "in any way".to_owned(), |means| format!("by {}", means.as_str()))
}

fn words(means: &[Means]) -> Vec<String> {
    means.iter().map(|means| means.as_str().to_owned()).collect()
}

/// Nothing for nobody.
fn listed(before: &str, names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let shown = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => format!("{before} {shown}"),
        more => format!("{before} {shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;

//! What is remembered: one record per task that ended and per hold that came or went, as written down, asked for and shown.
//!
//! Plain data and what needs nothing else. A record says all about itself, so that each can be read without the others. A
//! later version may add fields, which older ones pass over; kinds it adds are passed over whole.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::control::{is_called, may_be_called};
use crate::deadline::{Deadline, Judged, Left, Tally, Unit, Verdict};
use crate::event::Evidence;
use crate::hold::Means;
use crate::id::{GpuIndex, TaskId, TenantKey};
use crate::quantity::Bytes;
use crate::snapshot::{EndedTask, TaskEnd};
use crate::time::Anchor;

/// Records told at once, unless fewer or more are asked for.
pub const USUAL_LIMIT: usize = 50;
/// No answer has more.
pub const MOST_TOLD: usize = 1_000;

/// One thing that happened to a tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When, by the host's clock at that time: a clock that was set back makes a later record look earlier.
    pub at: Timestamp,
    pub tenant: TenantKey,
    /// What people called it then.
    pub name: String,
    #[serde(flatten)]
    pub what: Happening,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Happening {
    /// A task ended, or was lost sight of.
    Task(TaskStory),
    /// A unit of work that had a deadline is over, or was lost sight of.
    Judged(Judgement),
    /// It is kept off the GPUs; `by_uid` is the user who decided, none for a policy.
    Held { means: Means, by_uid: Option<u32>, reason: String },
    /// Nothing keeps it off any more.
    Released { by_uid: Option<u32>, reason: String },
    /// What was wanted of it did not come about.
    HoldFailed { message: String },
}

/// One stay on the GPUs, in hindsight. Durations are of the monotonic clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskStory {
    /// Counted since the daemon of then started.
    pub task_id: TaskId,
    #[serde(flatten)]
    pub workload: Workload,
    pub gpus: Vec<GpuIndex>,
    pub started_at: Timestamp,
    pub start_evidence: Evidence,
    pub seconds: f64,
    #[serde(flatten)]
    pub spent: Spent,
    pub peak_memory_bytes: Option<Bytes>,
    /// `None`: it went on when the daemon stopped.
    pub end: Option<TaskEnd>,
    /// Its unit of work under way, for the next daemon; only of one that goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Box<LeftOpen>>,
}

/// A unit of work under way, as it was last heard of. Its instants are of that boot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftOpen {
    pub boot: String,
    #[serde(flatten)]
    pub left: Left,
}

/// What became of a unit of work, in hindsight. Durations are of the monotonic clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The task it was, or was part of.
    pub task_id: TaskId,
    #[serde(flatten)]
    pub workload: Workload,
    pub unit: Unit,
    pub deadline: Deadline,
    pub started_at: Timestamp,
    pub due_at: Timestamp,
    /// `None`: nobody saw its end.
    pub seconds: Option<f64>,
    /// What was left until it was due, below zero where it was late; `None` where that is not known.
    pub float_seconds: Option<f64>,
    /// `None` where that is not known.
    pub deadline_hit: Option<bool>,
    /// GPU time, as if it had been alone; `None` where it was not seen.
    pub active_seconds: Option<f64>,
    pub held_seconds: f64,
    /// Time lost by computing beside others.
    pub contended_seconds: f64,
    /// Why it was late, as far as berth knows.
    pub why: Option<Why>,
    /// Units since the record before this one that were not written down each: they came too fast.
    #[serde(default)]
    pub unwritten: Tally,
}

/// Why a deadline was missed: the first of these without which it would have been met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Why {
    /// It computed for longer than that, by itself.
    TooShort,
    /// It was held; for whom it waited longest, as people call it, where it waited for somebody.
    Held { behind: Option<String> },
    /// It computed beside others, and may have been held as well.
    Contended,
    /// It spent the time elsewhere than on the GPU.
    OffGpu,
}

/// Where the time of a task went, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// Time it computed.
    pub active_seconds: Option<f64>,
    /// Time it was kept off; `None` where berth only watched.
    pub held_seconds: Option<f64>,
    /// How long it computed at once (`Bursts::usual`); not known of tasks that were written down before this was.
    #[serde(default)]
    pub burst_seconds: Option<f64>,
}

/// What is likely to do the same again: the same program of the same image for the same owner. The owner belongs to it so
/// that nobody's figures are made by others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Workload {
    pub owner: Option<String>,
    /// `None` for tenants that are no containers, and where the engine has not told.
    pub image: Option<String>,
    /// Of the process that began it, with its arguments as they were; long ones are cut.
    pub command: String,
}

/// What tasks of a workload did before, from the last few.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// How many tasks it is from.
    pub tasks: u32,
    /// Time a task computed, without the time it was held; median.
    pub active_seconds: Option<f64>,
    /// Share of its stay, without the time it was held, in which it computed, 0 to 1; median.
    pub duty: Option<f64>,
    /// The most any of them took.
    pub peak_memory_bytes: Option<Bytes>,
    /// How long a task computed at once; median.
    #[serde(default)]
    pub burst_seconds: Option<f64>,
}

/// What to tell of the past.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// A tenant as in `berth ps`, or an image in full. `None`: everybody.
    pub whom: Option<String>,
    pub since: Option<Timestamp>,
    /// The newest so many.
    pub limit: usize,
}

/// The answer to a [`Query`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Told {
    /// Newest first.
    pub records: Vec<Record>,
    /// There are older ones beyond the limit.
    pub is_cut: bool,
    /// Lines of the files that could not be read, among those looked at.
    pub damaged: u64,
}

/// How sure it is that somebody is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meant {
    /// It is called so, or nobody in particular is asked for.
    Surely,
    /// Its id begins so, or its path ends so: if nobody is called so.
    Perhaps,
}

impl Query {
    /// `None`: it is not asked for.
    pub fn meant(&self, record: &Record) -> Option<Meant> {
        let is_recent = self.since.is_none_or(|since| record.at >= since);
        let meant = self.whom.as_ref().map_or(Some(Meant::Surely), |whom| record.meant_by(whom));
        meant.filter(|_| is_recent)
    }

    /// Those that are asked for: if any are surely, no others.
    pub fn choose(&self, records: Vec<Record>) -> Vec<Record> {
        let is_any_sure = records.iter().any(|record| self.meant(record) == Some(Meant::Surely));
        let is_chosen = |record: &Record| match self.meant(record) {
            Some(Meant::Surely) => true,
            Some(Meant::Perhaps) => !is_any_sure,
            None => false,
        };
        records.into_iter().filter(is_chosen).collect()
    }
}

impl Record {
    fn meant_by(&self, whom: &str) -> Option<Meant> {
        let image = match &self.what {
            Happening::Task(story) => story.workload.image.as_deref(),
            Happening::Judged(judgement) => judgement.workload.image.as_deref(),
            Happening::Held { .. } | Happening::Released { .. } | Happening::HoldFailed { .. } => None,
        };
        if image == Some(whom) || is_called(&self.tenant, &self.name, whom) {
            return Some(Meant::Surely);
        }
        may_be_called(&self.tenant, whom).then_some(Meant::Perhaps)
    }

    pub fn of_ended(task: &EndedTask, spent: Spent) -> Self {
        let workload = Workload { owner: task.owner.clone(), image: task.image.clone(), command: task.command.clone() };
        Self {
            at: task.ended_at,
            tenant: task.tenant.clone(),
            name: task.container_name.clone(),
            what: Happening::Task(TaskStory {
                task_id: task.task_id,
                workload,
                gpus: task.gpus.clone(),
                started_at: task.started_at,
                start_evidence: task.start_evidence,
                seconds: task.seconds,
                spent,
                peak_memory_bytes: task.peak_memory_bytes,
                end: Some(task.end),
                left: None,
            }),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::TooShort => f.write_str("it computes for longer than that by itself"),
            Why::Held { behind: Some(behind) } => write!(f, "it waited for its turn, mostly for `{behind}`"),
            Why::Held { behind: None } => f.write_str("it was held"),
            Why::Contended => f.write_str("others computed beside it"),
            Why::OffGpu => f.write_str("it spent the time elsewhere than on the GPU"),
        }
    }
}

impl Judgement {
    pub fn of(judged: &Judged, workload: Workload, now: &Anchor) -> Self {
        Self {
            task_id: judged.task,
            workload,
            unit: judged.unit,
            deadline: judged.deadline,
            started_at: now.wall_at(judged.started),
            due_at: now.wall_at(judged.due),
            seconds: judged.ended.map(|ended| ended.since(judged.started).as_secs_f64()),
            float_seconds: judged.float_seconds,
            deadline_hit: match Verdict::of(judged.float_seconds) {
                Verdict::Hit => Some(true),
                Verdict::Miss => Some(false),
                Verdict::Unknown => None,
            },
            active_seconds: judged.active_seconds,
            held_seconds: judged.held_seconds,
            contended_seconds: judged.contended_seconds,
            why: judged.why.clone(),
            unwritten: Tally::default(),
        }
    }

    pub fn verdict(&self) -> Verdict {
        match self.deadline_hit {
            Some(true) => Verdict::Hit,
            Some(false) => Verdict::Miss,
            None => Verdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ContainerId, Runtime};

    fn record(tenant: TenantKey, name: &str, what: Happening) -> Record {
        Record { at: Timestamp::from_second(100).unwrap(), tenant, name: name.into(), what }
    }

    fn released() -> Happening {
        Happening::Released { by_uid: None, reason: "its turn".into() }
    }

    fn task(image: &str) -> Happening {
        Happening::Task(TaskStory {
            task_id: TaskId(1),
            workload: Workload { owner: None, image: Some(image.into()), command: "python train.py".into() },
            gpus: vec![GpuIndex(0)],
            started_at: Timestamp::from_second(90).unwrap(),
            start_evidence: Evidence::Probe,
            seconds: 10.0,
            spent: Spent::default(),
            peak_memory_bytes: None,
            end: None,
            left: None,
        })
    }

    fn container() -> TenantKey {
        TenantKey::Container { runtime: Runtime::Docker, id: ContainerId("4e3c1c4b8f0a".into()) }
    }

    fn about(whom: &str) -> Query {
        Query { whom: Some(whom.into()), ..Query::default() }
    }

    #[test]
    fn who_is_called_so_goes_before_who_may_be_meant() {
        let (named, other) = (record(container(), "trainer", released()), record(container(), "b", released()));
        let cgroup = record(TenantKey::Cgroup { path: "/x".into() }, "4e3c", released());
        let chosen = |whom: &str| {
            let records = about(whom).choose(vec![named.clone(), cgroup.clone(), other.clone()]);
            records.into_iter().map(|record| record.name).collect::<Vec<_>>()
        };
        assert_eq!((chosen("4e3c"), chosen("4e3")), (vec!["4e3c".into()], vec!["trainer".into(), "b".to_owned()]));
        assert_eq!(about("").choose(vec![named.clone()]), []);
    }

    #[test]
    fn a_tenant_is_found_by_name_id_path_or_image() {
        let held = record(container(), "trainer", task("pytorch:2"));
        for whom in ["trainer", "4e3c1c", "docker:4e3c1c4b8f0a", "pytorch:2"] {
            assert!(about(whom).meant(&held).is_some(), "{whom}");
        }
        let plain = record(TenantKey::Cgroup { path: "/team-a/job".into() }, "/team-a/job", released());
        assert!(about("job").meant(&plain).is_some() && about("/team-a/job").meant(&plain).is_some());
        for whom in ["train", "pytorch", "ob", ""] {
            assert!(about(whom).meant(&held).is_none() && about(whom).meant(&plain).is_none(), "{whom}");
        }
    }

    #[test]
    fn what_is_older_than_asked_for_is_left_out() {
        let held = record(container(), "trainer", released());
        let since = |second| Query { since: Some(Timestamp::from_second(second).unwrap()), ..Query::default() };
        assert!(since(100).meant(&held).is_some() && since(101).meant(&held).is_none());
    }

    #[test]
    fn a_record_survives_being_written_and_a_field_of_a_later_version() {
        for what in [task("pytorch:2"), released(), Happening::HoldFailed { message: "no".into() }] {
            let record = record(container(), "trainer", what);
            let mut json = serde_json::to_value(&record).unwrap();
            json["of_a_later_version"] = true.into();
            assert_eq!(serde_json::from_value::<Record>(json).unwrap(), record);
        }
    }
}

//! Whether one more deadline would be met here: what is known of the host and of the past, put before [`berth_policy::admit`].

use berth_model::cluster::LoadReport;
use berth_model::cluster::report::share;
use berth_model::control::{Admission, Answer, Candidate, Fits, GpuAdmission, Refusal};
use berth_model::deadline::{Given, Spread, Terms, Who, terms};
use berth_model::snapshot::DeadlineRow;
use berth_model::{GpuIndex, TaskRow};
use berth_policy::admit::{Ground, Load, Newcomer, UnderWay, admit};

use super::Deadlines;
use super::asks::Stage;

impl Deadlines {
    pub(super) fn admission(&self, candidate: &Candidate, stage: &Stage<'_>) -> Result<Answer, Refusal> {
        let (deadline, asked) = self.allowed(candidate, stage);
        let (takes, run) = match candidate.takes {
            Some(takes) => (Spread::of([takes.seconds()]), Spread::of([takes.seconds()])),
            None => self.spreads.like(candidate),
        };
        let newcomer = Newcomer { unit: candidate.unit, deadline_seconds: deadline.seconds(), takes, run };
        let gpus: Vec<GpuAdmission> =
            gpus(candidate.gpu, stage)?.into_iter().map(|gpu| admit(&Self::ground(gpu, stage), &newcomer)).collect();
        // Of those where it fits as well, the one with the most room left.
        let room = |gpu: &GpuAdmission| gpu.room_seconds - gpu.most_seconds;
        let best = gpus.iter().max_by(|one, other| one.fits.cmp(&other.fits).then(room(one).total_cmp(&room(other))));
        Ok(Answer::Admission(Box::new(Admission {
            fits: best.map_or(Fits::Unknown, |gpu| gpu.fits),
            policy: stage.snapshot.management.as_ref().map(|management| management.policy),
            gpu: best.map(|gpu| gpu.gpu),
            deadline,
            asked,
            unit: candidate.unit,
            spare_seconds: run.or(takes).map(|takes| deadline.seconds() - takes.p90_seconds),
            takes,
            run,
            gpus,
        })))
    }

    /// The deadline that would count, and the one that was asked for if it would not.
    fn allowed(
        &self,
        candidate: &Candidate,
        stage: &Stage<'_>,
    ) -> (berth_model::Deadline, Option<berth_model::Deadline>) {
        let owners: Vec<String> = candidate.owner.iter().cloned().collect();
        let given = Given { deadline: Some(candidate.deadline), by_uid: 0, at: stage.now.wall };
        let read = terms(Who { labels: None, owners: &owners, given: Some(given) }, &self.rules);
        match read.terms {
            Some(Terms { deadline, asked, .. }) => (deadline, asked.map(|asked| asked.deadline)),
            None => (candidate.deadline, None),
        }
    }

    fn ground(gpu: GpuIndex, stage: &Stage<'_>) -> Ground {
        let rows: Vec<&TaskRow> = stage.snapshot.tasks.iter().filter(|row| row.may_be_on(gpu)).collect();
        Ground {
            gpu,
            share: share(rows.iter().any(|row| row.deadline.is_none()), stage.edf.rest),
            loads: rows.iter().filter_map(|row| Some(load(row, row.deadline.as_ref()?))).collect(),
        }
    }
}

/// As this host would tell others of it.
fn load(row: &TaskRow, deadline: &DeadlineRow) -> Load {
    let LoadReport { unit, deadline_seconds, under_way, takes } = LoadReport::of(deadline);
    let under_way =
        under_way.map(|work| UnderWay { due_in_seconds: work.due_in_seconds, done_seconds: work.done_seconds });
    Load { name: row.container_name.clone(), unit, deadline_seconds, under_way, takes }
}

fn gpus(wanted: Option<GpuIndex>, stage: &Stage<'_>) -> Result<Vec<GpuIndex>, Refusal> {
    let there = stage.snapshot.gpus.iter().filter(|gpu| gpu.lost.is_none()).map(|gpu| gpu.index);
    let there: Vec<GpuIndex> = there.collect();
    match wanted {
        None => Ok(there),
        Some(gpu) if there.contains(&gpu) => Ok(vec![gpu]),
        Some(gpu) => {
            let known = there.iter().map(ToString::to_string).collect();
            Err(Refusal::NoSuchGpu { gpu: gpu.to_string(), known })
        }
    }
}

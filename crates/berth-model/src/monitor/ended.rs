//! Ended tasks as they are shown: made once each, not with every snapshot.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Ended;
use crate::history::Judgement;
use crate::snapshot::EndedTask;
use crate::time::{Anchor, Mono};

/// Views of the ended tasks, newest first.
#[derive(Debug, Default)]
pub(super) struct EndedViews {
    /// Wall time of the monotonic clock's zero by the anchor the views were dated with: another one dates them anew.
    zero: Option<jiff::Timestamp>,
    views: VecDeque<Arc<EndedTask>>,
    is_outdated: bool,
}

impl EndedViews {
    /// One more task has ended.
    pub fn outdated(&mut self) {
        self.is_outdated = true;
    }

    /// What became of one of them.
    pub fn judged(&mut self, judgement: &Judgement) {
        if let Some(view) = self.views.iter_mut().find(|view| view.task_id == judgement.task_id) {
            Arc::make_mut(view).judgement = Some(judgement.clone());
        }
    }

    pub fn of(&mut self, ended: &VecDeque<Ended>, now: &Anchor) -> Vec<Arc<EndedTask>> {
        let zero = now.wall_at(Mono(0));
        if self.zero != Some(zero) {
            self.zero = Some(zero);
            self.views.clear();
            self.is_outdated = true;
        }
        if self.is_outdated {
            let newest = self.views.front().map(|view| view.task_id);
            let new: Vec<_> = ended.iter().take_while(|task| Some(task.task.id) != newest).collect();
            for task in new.into_iter().rev() {
                self.views.push_front(Arc::new(view(task, now)));
            }
            self.views.truncate(ended.len());
            self.is_outdated = false;
        }
        self.views.iter().cloned().collect()
    }
}

fn view(ended: &Ended, now: &Anchor) -> EndedTask {
    EndedTask {
        task_id: ended.task.id,
        tenant: ended.tenant.clone(),
        container_name: ended.name.clone(),
        owner: ended.owner.clone(),
        image: ended.image.clone(),
        command: ended.task.command.clone(),
        gpus: ended.task.gpus.iter().copied().collect(),
        peak_memory_bytes: ended.task.peak_memory,
        started_at: now.wall_at(ended.task.started),
        start_evidence: ended.task.evidence,
        ended_at: now.wall_at(ended.at),
        seconds: ended.at.since(ended.task.started).as_secs_f64(),
        end: ended.end,
        judgement: ended.judgement.clone(),
    }
}

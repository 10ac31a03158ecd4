//! Goals that persons have set: who may, whom they mean, and writing it down before it counts.
//!
//! Whoever asks is answered when it is on disk. Each word is written by a thread of its own, one after the other: the loop waits for no
//! disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use berth_model::control::{Answer, Caller, GivenSlo, KernelAsk, Refusal, Reply, SloStanding, find_named};
use berth_model::kernels::KernelRow;
use berth_model::{Anchor, Event, Slo, Snapshot, TenantKey};
use berth_store::slos::{SetSlo, Slos as Store};

use super::Terms;
use crate::describe::describe;

/// What counts, and where it is kept.
#[derive(Debug)]
pub(crate) struct Slos {
    counting: Arc<Mutex<Vec<SetSlo>>>,
    keep: Keep,
    event_tx: Sender<Event>,
}

#[derive(Debug, Clone)]
enum Keep {
    /// Nowhere: they count until this daemon ends.
    Memory,
    Refused(String),
    Disk(Arc<Mutex<Store>>),
}

/// The host as those are judged by who ask.
pub(crate) struct Stage<'a> {
    pub snapshot: &'a Snapshot,
    /// What counts for a tenant, by its labels or by what a person has said.
    pub terms: &'a dyn Fn(&TenantKey, Option<&SetSlo>) -> Terms,
    /// Whether the caller may decide about a tenant.
    pub may: &'a dyn Fn(&Caller, &TenantKey, &str) -> Result<(), Refusal>,
    pub now: &'a Anchor,
}

impl Slos {
    /// `None`: nothing is kept on disk; an error says why nothing can be.
    pub fn open(dir: Option<Result<&Path, String>>, event_tx: Sender<Event>) -> Self {
        let refused = |reason: String| {
            tracing::error!(reason, "no goals are set, and none that were set count");
            (Vec::new(), Keep::Refused(reason))
        };
        let (counting, keep) = match dir {
            None => (Vec::new(), Keep::Memory),
            Some(Err(reason)) => refused(reason),
            Some(Ok(dir)) => match Store::open(dir) {
                Ok(store) => (store.all().to_vec(), Keep::Disk(Arc::new(Mutex::new(store)))),
                Err(error) => refused(describe(&error)),
            },
        };
        Self { counting: Arc::new(Mutex::new(counting)), keep, event_tx }
    }

    pub fn said(&self, tenant: &TenantKey) -> Option<SetSlo> {
        let counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        counting.iter().find(|said| said.tenant.is(tenant)).cloned()
    }

    /// `SetPolicy` is not for this one.
    pub fn ask(&self, caller: &Caller, ask: KernelAsk, reply: Reply, stage: &Stage<'_>) {
        let answered = match ask {
            KernelAsk::ShowSlo { tenant } => self.show(tenant.as_deref(), stage),
            KernelAsk::SetSlo { tenant, slo } => return self.say(caller, &tenant, Some(*slo), reply, stage),
            KernelAsk::ResetSlo { tenant } => return self.say(caller, &tenant, None, reply, stage),
            KernelAsk::SetPolicy { .. } => Err(Refusal::AdminsOnly),
        };
        reply(answered.map(Answer::Slos));
    }

    fn show(&self, selector: Option<&str>, stage: &Stage<'_>) -> Result<Vec<SloStanding>, Refusal> {
        let known = self.known(stage);
        let Some(selector) = selector else {
            let shown = known.iter().map(|(tenant, name)| self.standing(tenant, name, self.said(tenant), stage));
            return Ok(shown
                .filter(|one| {
                    one.given.is_some() || !one.counts.is_empty() || !one.wrong.is_empty() || !one.rows.is_empty()
                })
                .collect());
        };
        let tenant = find_named(selector, known.iter().map(|(tenant, name)| (tenant, name.as_str())))?;
        Ok(vec![self.standing(tenant, &known[tenant], self.said(tenant), stage)])
    }

    /// Everybody on a GPU, and of whom something was said.
    fn known(&self, stage: &Stage<'_>) -> BTreeMap<TenantKey, String> {
        let counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        let said = counting.iter().map(|said| (said.tenant.clone(), said.name.clone()));
        let rows = stage.snapshot.kernels.iter().flat_map(|level| &level.rows);
        let attached = rows.map(|row| (row.tenant.clone(), row.name.clone()));
        let here = stage.snapshot.tasks.iter().map(|row| (row.tenant.clone(), row.container_name.clone()));
        said.chain(attached).chain(here).collect()
    }

    fn standing(&self, tenant: &TenantKey, name: &str, said: Option<SetSlo>, stage: &Stage<'_>) -> SloStanding {
        let terms = (stage.terms)(tenant, said.as_ref());
        let rows = stage.snapshot.kernels.iter().flat_map(|level| &level.rows);
        let rows: Vec<KernelRow> = rows.filter(|row| row.tenant.is(tenant)).cloned().collect();
        SloStanding {
            tenant: tenant.clone(),
            name: name.to_owned(),
            counts: terms.slo.to_labels(),
            wrong: terms.wrong,
            given: said.map(|said| GivenSlo { by_uid: said.by_uid, at: said.at }),
            is_durable: matches!(self.keep, Keep::Disk(_)),
            rows,
        }
    }

    fn permit(&self, caller: &Caller, tenant: &TenantKey, name: &str, stage: &Stage<'_>) -> Result<(), Refusal> {
        (stage.may)(caller, tenant, name)?;
        match self.said(tenant) {
            Some(said) if said.by_uid != caller.uid && !caller.is_admin => {
                Err(Refusal::DecidedByAnother { name: name.to_owned(), uid: said.by_uid })
            }
            _ => Ok(()),
        }
    }

    fn say(&self, caller: &Caller, selector: &str, slo: Option<Slo>, reply: Reply, stage: &Stage<'_>) {
        let known = self.known(stage);
        let meant = find_named(selector, known.iter().map(|(tenant, name)| (tenant, name.as_str())));
        let allowed = meant.and_then(|tenant| self.permit(caller, tenant, &known[tenant], stage).map(|()| tenant));
        let tenant = match (allowed, &self.keep) {
            (Err(refusal), _) => return reply(Err(refusal)),
            (Ok(_), Keep::Refused(reason)) => return reply(Err(Refusal::SlosNotKept { reason: reason.clone() })),
            (Ok(tenant), Keep::Memory | Keep::Disk(_)) => tenant.clone(),
        };
        let name = known[&tenant].clone();
        let (by_uid, at) = (caller.uid, stage.now.wall);
        let said = slo.map(|slo| SetSlo { tenant: tenant.clone(), name: name.clone(), slo, by_uid, at });
        let standing = self.standing(&tenant, &name, said.clone(), stage);
        let (counting, keep, event_tx) = (Arc::clone(&self.counting), self.keep.clone(), self.event_tx.clone());
        let write = move || {
            let written = write(&keep, &tenant, said, &counting);
            let written = written.map_err(|reason| Refusal::NotWritten { name, reason });
            reply(written.map(|()| Answer::Slos(vec![standing])));
            // Gone only with the loop.
            let _ = event_tx.send(Event::Asked);
        };
        // Without a thread the asker is told nothing, and asks again.
        if let Err(error) = std::thread::Builder::new().name("berth-slos".into()).spawn(write) {
            tracing::error!(%error, "cannot start a thread to write goals down");
        }
    }
}

fn write(keep: &Keep, tenant: &TenantKey, said: Option<SetSlo>, counting: &Mutex<Vec<SetSlo>>) -> Result<(), String> {
    let all = match keep {
        Keep::Disk(store) => {
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            store.say(tenant, said).map_err(|error| describe(&error))?;
            store.all().to_vec()
        }
        Keep::Memory | Keep::Refused(_) => {
            let counting = counting.lock().unwrap_or_else(PoisonError::into_inner);
            counting.iter().filter(|other| !other.tenant.is(tenant)).cloned().chain(said).collect()
        }
    };
    *counting.lock().unwrap_or_else(PoisonError::into_inner) = all;
    Ok(())
}

//! What people ask about deadlines: who may, whom they mean, and when it can be answered.
//!
//! A tenant may be meant that is not here yet. Containers are then asked of their engine by name, and whoever asked waits for that, as
//! they wait for the disk: a deadline is said to count when it does, and will after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_host::docker::OWNER_LABEL;
use berth_model::cluster::report::MOST_PASTS;
use berth_model::control::{Answer, Caller, DeadlineAsk, Refusal, Reply, find, find_named};
use berth_model::deadline::{Deadline, Given};
use berth_model::snapshot::SourceView;
use berth_model::{
    Anchor, Change, ContainerFacts, ContainerId, Event, Mono, Snapshot, Source, SourceStatus, TaskRow, TenantKey,
    settings,
};
use berth_store::deadlines::Override;

use super::Deadlines;
use super::said::Ticket;

/// How long the engine may take to say whether it has a container.
const NAMED_WITHIN: Duration = Duration::from_secs(3);
/// Asks that wait for the engine; more are told that there is no such tenant.
const MOST_NAMING: usize = 64;
/// Asks that wait for the disk; more are told to come again.
const MOST_WRITING: usize = 256;

/// What was asked and is not answered yet.
#[derive(Default)]
pub(super) struct Asks {
    unheard: Vec<(Caller, DeadlineAsk, Reply)>,
    naming: Vec<Naming>,
    writing: BTreeMap<Ticket, Writing>,
    /// What was written, to be answered when it shows.
    written: Vec<(Writing, Result<(), String>)>,
    /// Containers that are not here and of which something was said or asked.
    pub strangers: BTreeMap<ContainerId, ContainerFacts>,
}

/// Waits for the engine to say which container is meant.
struct Naming {
    selector: String,
    caller: Caller,
    ask: DeadlineAsk,
    reply: Reply,
    until: Mono,
    refusal: Refusal,
    is_known: bool,
}

/// Waits for the disk.
struct Writing {
    tenant: TenantKey,
    name: String,
    by_uid: u32,
    /// `None`: what was said is taken back.
    given: Option<Given>,
    reply: Reply,
}

/// The host as those are judged by who ask.
pub(crate) struct Stage<'a> {
    pub snapshot: &'a Snapshot,
    pub labels: &'a dyn Fn(&TenantKey) -> Option<&'a BTreeMap<String, String>>,
    /// The users a tenant's processes run as.
    pub uids: &'a dyn Fn(&TenantKey) -> Vec<Option<u32>>,
    /// Asks the engine about a container by name; `false` if that is not possible now.
    pub describe: &'a dyn Fn(ContainerId) -> bool,
    pub edf: &'a settings::EdfSettings,
    pub now: &'a Anchor,
}

/// Whom a person means.
pub(super) struct Meant<'a> {
    pub tenant: TenantKey,
    pub name: String,
    /// `None` of one who is not here.
    pub row: Option<&'a TaskRow>,
}

impl Deadlines {
    /// Heard at the next turn.
    pub fn ask(&mut self, caller: Caller, ask: DeadlineAsk, reply: Reply) {
        self.asks.unheard.push((caller, ask, reply));
    }

    /// What the engine says of containers somebody asked about, or said something of.
    pub fn overhear(&mut self, event: &Event) {
        match event {
            Event::Container(facts) => {
                let is_said = self.said.containers().any(|id| *id == facts.id);
                let is_meant =
                    |naming: &Naming| naming.selector == facts.name || facts.id.0.starts_with(naming.selector.as_str());
                let mut is_asked = false;
                for naming in self.asks.naming.iter_mut().filter(|naming| is_meant(naming)) {
                    naming.is_known = true;
                    is_asked = true;
                }
                if is_said || is_asked {
                    self.asks.strangers.insert(facts.id.clone(), (**facts).clone());
                }
            }
            Event::ContainerGone { id } => {
                self.asks.strangers.remove(id);
                self.asks
                    .naming
                    .iter_mut()
                    .filter(|naming| naming.selector == id.0)
                    .for_each(|naming| naming.until = Mono(0));
                self.forget(id);
            }
            _ => {}
        }
    }

    /// What was written counts from now on.
    pub fn settle(&mut self) {
        for (ticket, outcome) in self.said.done() {
            // What nobody asked for, nobody waits for: the engine has removed a container.
            if let Some(writing) = self.asks.writing.remove(&ticket) {
                self.asks.written.push((writing, outcome));
            }
        }
    }

    /// When somebody is to be answered at the latest.
    pub(super) fn answer_by(&self) -> Option<Mono> {
        self.asks.naming.iter().map(|naming| naming.until).min()
    }

    /// Answers those who can be, with what everybody sees now. What has changed by that is told.
    pub fn answer(&mut self, stage: &Stage<'_>) -> Vec<Change> {
        for (writing, outcome) in std::mem::take(&mut self.asks.written) {
            self.answer_written(writing, outcome, stage);
        }
        for Naming { selector, caller, ask, reply, until, refusal, is_known } in std::mem::take(&mut self.asks.naming) {
            if is_known {
                self.hear(caller, ask, reply, stage);
            } else if stage.now.mono >= until {
                reply(Err(refusal));
            } else {
                let naming = Naming { selector, caller, ask, reply, until, refusal, is_known };
                self.asks.naming.push(naming);
            }
        }
        for (caller, ask, reply) in std::mem::take(&mut self.asks.unheard) {
            self.hear(caller, ask, reply, stage);
        }
        let said: BTreeSet<ContainerId> = self.said.containers().cloned().collect();
        let is_written = |id: &ContainerId| self.asks.writing.values().any(|it| it.tenant.container_id() == Some(id));
        let kept: BTreeSet<ContainerId> =
            self.asks.strangers.keys().filter(|id| said.contains(*id) || is_written(id)).cloned().collect();
        self.asks.strangers.retain(|id, _| kept.contains(id));
        std::mem::take(&mut self.changes)
    }

    fn hear(&mut self, caller: Caller, ask: DeadlineAsk, reply: Reply, stage: &Stage<'_>) {
        let selector = match &ask {
            DeadlineAsk::Set { tenant, .. }
            | DeadlineAsk::Reset { tenant }
            | DeadlineAsk::Show { tenant: Some(tenant) } => tenant.clone(),
            DeadlineAsk::Show { tenant: None } => return reply(Ok(Answer::Deadlines(self.standings(stage)))),
            DeadlineAsk::Admit(candidate) => return reply(self.admission(candidate, stage)),
            DeadlineAsk::Pasts => return reply(Ok(Answer::Pasts(self.spreads.pasts(MOST_PASTS)))),
        };
        match (self.meant(&selector, stage), ask) {
            (Ok(meant), DeadlineAsk::Set { deadline, .. }) => self.say(&caller, meant, Some(deadline), reply, stage),
            (Ok(meant), DeadlineAsk::Reset { .. }) => self.say(&caller, meant, None, reply, stage),
            (Ok(meant), _) => reply(Ok(Answer::Deadlines(vec![self.standing(&meant, stage)]))),
            (Err(refusal @ Refusal::NoSuchTenant { .. }), ask) => {
                self.ask_engine(
                    Naming {
                        until: stage.now.mono + NAMED_WITHIN,
                        is_known: false,
                        selector,
                        caller,
                        ask,
                        reply,
                        refusal,
                    },
                    stage,
                );
            }
            (Err(refusal), _) => reply(Err(refusal)),
        }
    }

    /// Nobody here is called so: a container may be that has not come yet.
    fn ask_engine(&mut self, naming: Naming, stage: &Stage<'_>) {
        let docker = |view: &&SourceView| view.source == Source::Docker;
        let is_up = stage.snapshot.sources.iter().find(docker).is_some_and(|view| view.status == SourceStatus::Up);
        let may_ask = is_up && is_container_name(&naming.selector) && self.asks.naming.len() < MOST_NAMING;
        if may_ask && (stage.describe)(ContainerId(naming.selector.clone())) {
            self.asks.naming.push(naming);
        } else {
            (naming.reply)(Err(naming.refusal));
        }
    }

    /// Those who are here come first.
    fn meant<'a>(&self, selector: &str, stage: &Stage<'a>) -> Result<Meant<'a>, Refusal> {
        let rows = &stage.snapshot.tasks;
        let refusal = match find(selector, rows) {
            Ok(tenant) => {
                let row = rows.iter().find(|row| row.tenant == *tenant);
                let name = row.map_or_else(|| tenant.to_string(), |row| row.container_name.clone());
                return Ok(Meant { tenant: tenant.clone(), name, row });
            }
            Err(refusal @ Refusal::NoSuchTenant { .. }) => refusal,
            Err(refusal) => return Err(refusal),
        };
        let absent = self.absent(stage);
        match find_named(selector, absent.iter().map(|(tenant, name)| (tenant, name.as_str()))) {
            Ok(tenant) => {
                let name = absent.get(tenant).cloned().unwrap_or_default();
                Ok(Meant { tenant: tenant.clone(), name, row: None })
            }
            Err(Refusal::NoSuchTenant { .. }) => Err(refusal),
            Err(ambiguous) => Err(ambiguous),
        }
    }

    /// `word`: what is to count, none for what the labels say.
    fn say(
        &mut self,
        caller: &Caller,
        meant: Meant<'_>,
        word: Option<Option<Deadline>>,
        reply: Reply,
        stage: &Stage<'_>,
    ) {
        if let Err(refusal) = self.permit(caller, &meant, stage) {
            return reply(Err(refusal));
        }
        let Meant { tenant, name, .. } = meant;
        let given = word.map(|deadline| Given { deadline, by_uid: caller.uid, at: stage.now.wall });
        let said = given.map(|given| Override { tenant: tenant.clone(), name: name.clone(), given });
        let writing = Writing { tenant: tenant.clone(), name, by_uid: caller.uid, given, reply };
        match self.said.say(tenant, said) {
            Some(ticket) => {
                self.asks.writing.insert(ticket, writing);
            }
            None => self.answer_written(writing, Ok(()), stage),
        }
    }

    fn permit(&self, caller: &Caller, meant: &Meant<'_>, stage: &Stage<'_>) -> Result<(), Refusal> {
        let labels = self.labels_of(&meant.tenant, stage);
        let owner = labels.and_then(|labels| labels.get(OWNER_LABEL)).filter(|owner| !owner.is_empty());
        let uids = match &meant.tenant {
            TenantKey::User { uid } => vec![Some(*uid)],
            tenant => (stage.uids)(tenant),
        };
        if !caller.may_act_on(owner.map(String::as_str), &uids) {
            let owner = owner.cloned().or_else(|| meant.row.and_then(|row| row.owner.clone()));
            return Err(Refusal::NotYours { name: meant.name.clone(), owner });
        }
        let mut others = self.said.words(&meant.tenant).filter(|given| given.by_uid != caller.uid);
        if let Some(given) = others.next().filter(|_| !caller.is_admin) {
            return Err(Refusal::DecidedByAnother { name: meant.name.clone(), uid: given.by_uid });
        }
        if self.asks.writing.len() >= MOST_WRITING {
            let reason = format!("{MOST_WRITING} others are being written, ask again");
            return Err(Refusal::NotWritten { name: meant.name.clone(), reason });
        }
        self.said.refusal().map_or(Ok(()), |reason| Err(Refusal::NotKept { reason: reason.to_owned() }))
    }

    /// Each is told of its own word, though another may have been written since.
    fn answer_written(&mut self, writing: Writing, outcome: Result<(), String>, stage: &Stage<'_>) {
        let Writing { tenant, name, by_uid, given, reply } = writing;
        if let Err(reason) = outcome {
            return reply(Err(Refusal::NotWritten { name, reason }));
        }
        let row = stage.snapshot.tasks.iter().find(|row| row.tenant.is(&tenant));
        let standing = self.standing_by(given, &Meant { tenant: tenant.clone(), name: name.clone(), row }, stage);
        let deadline = standing.counts.as_ref().map(|counts| counts.deadline);
        self.changes.push(Change::DeadlineChanged { tenant, name, deadline, by_uid, at: stage.now.mono });
        reply(Ok(Answer::Deadlines(vec![standing])));
    }
}

/// As engines allow it: nothing else is put into a request.
fn is_container_name(text: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.bytes().all(is_fit)
}

impl std::fmt::Debug for Asks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asks").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

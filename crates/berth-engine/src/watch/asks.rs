//! What people say and ask: of a tenant only its owner and administrators, and they alone are told.

use std::time::Duration;

use berth_model::control::{Answer, Caller, FindingRow, Heard, MoodRow, Refusal, WatchAsk, find};
use berth_model::watch::feedback::Feedback;
use berth_model::watch::series::{Key, Metric};
use berth_model::{TaskRow, TenantKey};

use super::{Sight, Watch};

impl Watch {
    pub(super) fn answer(&mut self, sight: &Sight<'_>) {
        for (caller, ask, reply) in std::mem::take(&mut self.asks) {
            reply(match ask {
                WatchAsk::Feedback { tenant, said } => self.hear(&caller, &tenant, said, sight),
                WatchAsk::Mood { tenant } => self.mood(&caller, &tenant, sight),
                WatchAsk::Findings { tenant } => self.tell(&caller, tenant.as_deref(), sight),
            });
        }
    }

    fn hear(&mut self, caller: &Caller, whom: &str, said: Feedback, sight: &Sight<'_>) -> Result<Answer, Refusal> {
        let tenant = permitted(caller, whom, sight)?.clone();
        let now = sight.now;
        if !caller.is_admin {
            let later = |wait: Duration| Refusal::SaidTooOften { again_seconds: wait.as_secs().max(1) };
            self.budget.take(caller.uid, now.mono).map_err(later)?;
        }
        let watched = self.tenants.entry(tenant.clone()).or_default();
        watched.is_called(&name(&tenant, sight), (sight.owner)(&tenant));
        self.past.taken_in(&tenant, watched, now);
        watched.mood.hear(now.mono, said);
        let (mood, of) = (watched.mood.get(now.mono), watched.of(&tenant));
        let heard = Heard {
            name: name(&tenant, sight),
            said,
            mood,
            weight: self.weight(&tenant, now.mono),
            is_kept: self.writer.is_some(),
            tenant: tenant.clone(),
        };
        let key = Key { of, gpu: None, metric: Metric::Feedback };
        self.keep(vec![(key, said.score())], now);
        Ok(Answer::Heard(Box::new(heard)))
    }

    fn mood(&self, caller: &Caller, whom: &str, sight: &Sight<'_>) -> Result<Answer, Refusal> {
        let (tenant, now) = (permitted(caller, whom, sight)?, sight.now.mono);
        let mood = self.tenants.get(tenant).map_or(0.0, |watched| watched.mood.get(now));
        let (name, weight) = (name(tenant, sight), self.weight(tenant, now));
        Ok(Answer::Mood(Box::new(MoodRow { tenant: tenant.clone(), name, mood, weight })))
    }

    fn tell(&self, caller: &Caller, whom: Option<&str>, sight: &Sight<'_>) -> Result<Answer, Refusal> {
        let meant = whom.map(|whom| permitted(caller, whom, sight)).transpose()?;
        let is_told = |tenant: &TenantKey| meant.is_none_or(|meant| meant == tenant);
        let rows = self.findings(sight.now.mono).into_iter().filter(|(tenant, watched, ..)| {
            is_told(tenant) && caller.may_act_on(watched.owner.named.as_deref(), &watched.owner.uids)
        });
        let rows = rows.map(|(tenant, watched, gpu, finding)| FindingRow {
            tenant: tenant.clone(),
            name: watched.name.clone(),
            gpu,
            kind: finding.kind,
            since: sight.now.wall_at(finding.since),
            sure: finding.sure,
            words: finding.words,
        });
        Ok(Answer::Findings(rows.collect()))
    }
}

/// The tenant a person means, if it is theirs.
fn permitted<'a>(caller: &Caller, whom: &str, sight: &Sight<'a>) -> Result<&'a TenantKey, Refusal> {
    let tenant = find(whom, &sight.snapshot.tasks)?;
    let owner = (sight.owner)(tenant);
    if caller.may_act_on(owner.named.as_deref(), &owner.uids) {
        return Ok(tenant);
    }
    let owner = row(tenant, sight).and_then(|row| row.owner.clone());
    Err(Refusal::NotYours { name: name(tenant, sight), owner })
}

fn row<'a>(tenant: &TenantKey, sight: &Sight<'a>) -> Option<&'a TaskRow> {
    sight.snapshot.tasks.iter().find(|row| row.tenant == *tenant)
}

fn name(tenant: &TenantKey, sight: &Sight<'_>) -> String {
    row(tenant, sight).map_or_else(|| tenant.to_string(), |row| row.container_name.clone())
}

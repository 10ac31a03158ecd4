//! One run of a cell: the word is given, and waited until all tenants are done.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use berth_host::clock;

use super::Run;
use super::mps::Mps;
use super::sprinter::{Environment, Ran, Whom, give_word, workload_lines};
use super::timeline::{Timeline, kernel_of};
use super::way::{Managed, Way};
use crate::bench::daemon::Daemon;
use crate::interrupt::Interrupt;
use crate::stage::{Stage, Tenant};

/// No run takes longer than this.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often it is looked whether a tenant is done. Its own clock says when it was.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often whoever waits is told how far a run has come.
const TELL_EVERY: Duration = Duration::from_secs(15);

/// What a run needs.
pub struct Round<'a> {
    pub stage: &'a Stage,
    /// The control program, where there is one.
    pub mps: Option<&'a Path>,
    pub tenants: &'a [Tenant],
    pub interrupt: &'a Interrupt,
    /// Told now and then how far it has come.
    pub say: &'a dyn Fn(&str),
}

#[derive(Debug)]
pub enum RunFailed {
    /// All tenants are done, but not all well: the next run can be made.
    Way(anyhow::Error),
    /// Nothing more can be measured.
    Measurement(anyhow::Error),
}

impl Round<'_> {
    pub fn run(&self, way: Way, round: u32, number: u32) -> Result<Run, RunFailed> {
        let mut environment = Environment::new();
        let (mut daemon, mut mps) = (None, None);
        match (way, self.mps) {
            (Way::Managed(managed), _) => daemon = Some(self.daemon(managed).map_err(RunFailed::Measurement)?),
            (Way::Mps, Some(control)) => {
                let server = Mps::start(control, &self.out().join("mps")).map_err(RunFailed::Way)?;
                environment = server.environment();
                mps = Some(server);
            }
            (Way::Mps, None) => return Err(RunFailed::Way(anyhow!("there is no MPS here"))),
            (Way::Unmanaged | Way::OneByOne, _) => {}
        }
        let began_ns = clock::now().0;
        let ran = match way {
            Way::OneByOne => self.one_by_one(number, &environment),
            _ => self.together(number, &environment),
        };
        let ran = ran.map_err(RunFailed::Measurement)?;
        drop((daemon, mps));
        self.refuse_failed(&ran).map_err(RunFailed::Way)?;
        self.summed_up(round, began_ns, &ran).map_err(RunFailed::Measurement)
    }

    fn together(&self, number: u32, environment: &Environment) -> anyhow::Result<Vec<Ran>> {
        give_word(&self.out(), number, Whom::All, environment)?;
        let progress = Progress::begin(self, number);
        self.tenants.iter().map(|tenant| self.await_end(tenant, number, &progress)).collect()
    }

    fn one_by_one(&self, number: u32, environment: &Environment) -> anyhow::Result<Vec<Ran>> {
        let progress = Progress::begin(self, number);
        let one = |tenant: &Tenant| {
            give_word(&self.out(), number, Whom::One(&tenant.lines), environment)?;
            self.await_end(tenant, number, &progress)
        };
        self.tenants.iter().map(one).collect()
    }

    fn await_end(&self, tenant: &Tenant, number: u32, progress: &Progress) -> anyhow::Result<Ran> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(ran) = ran(&tenant.lines, number)? {
                return Ok(ran);
            }
            self.interrupt.check()?;
            progress.tell()?;
            if Instant::now() > deadline {
                bail!("tenant {} did not end within {} s", tenant.name(), PATIENCE.as_secs());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn refuse_failed(&self, ran: &[Ran]) -> anyhow::Result<()> {
        let failed: Vec<_> = self.tenants.iter().zip(ran).filter(|(_, ran)| ran.code != Some(0)).collect();
        let Some((tenant, ran)) = failed.first() else { return Ok(()) };
        bail!("{} of {} tenants failed, {} with {:?}", failed.len(), self.tenants.len(), tenant.name(), ran.code)
    }

    fn summed_up(&self, round: u32, began_ns: u64, ran: &[Ran]) -> anyhow::Result<Run> {
        let seconds = |ended: u64| Duration::from_nanos(ended.saturating_sub(began_ns)).as_secs_f64();
        let each: Vec<f64> = ran.iter().map(|ran| seconds(ran.ended_ns)).collect();
        let ended_ns = ran.iter().map(|ran| ran.ended_ns).max().unwrap_or(began_ns);
        let kernels = self.tenants.iter().zip(ran).map(|(tenant, ran)| kernel_of(&workload_lines(&tenant.lines), ran));
        let kernels: Vec<_> = kernels.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect();
        Ok(Run {
            round,
            total_s: seconds(ended_ns),
            mean_completion_s: each.iter().sum::<f64>() / each.len().max(1) as f64,
            timeline: Timeline::of(began_ns, ended_ns, kernels),
        })
    }

    fn daemon(&self, managed: Managed) -> anyhow::Result<Daemon> {
        let mut settings = self.stage.settings();
        settings.hold.policy = managed.policy;
        settings.log.level = "debug".into();
        if let Some(means) = managed.alone {
            settings.hold.means = BTreeSet::from([means]);
        }
        Daemon::start(&settings, self.stage.dir())
    }

    fn out(&self) -> std::path::PathBuf {
        self.stage.dir().join("out")
    }
}

/// Tells every now and then how many tenants of a run are done.
struct Progress<'a> {
    round: &'a Round<'a>,
    number: u32,
    began: Instant,
    told: Cell<Instant>,
}

impl<'a> Progress<'a> {
    fn begin(round: &'a Round<'a>, number: u32) -> Self {
        Self { round, number, began: Instant::now(), told: Cell::new(Instant::now()) }
    }

    fn tell(&self) -> anyhow::Result<()> {
        if self.told.get().elapsed() < TELL_EVERY {
            return Ok(());
        }
        self.told.set(Instant::now());
        let mut done = 0;
        for tenant in self.round.tenants {
            done += usize::from(ran(&tenant.lines, self.number)?.is_some());
        }
        let (all, seconds) = (self.round.tenants.len(), self.began.elapsed().as_secs());
        (self.round.say)(&format!("{done} of {all} done after {seconds} s"));
        Ok(())
    }
}

/// The tenant's line about a run, once it is whole.
fn ran(lines: &Path, number: u32) -> anyhow::Result<Option<Ran>> {
    let text = match std::fs::read_to_string(lines) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("reading {}", lines.display())),
    };
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    Ok(whole.lines().filter_map(|line| serde_json::from_str(line).ok()).find(|ran: &Ran| ran.run == number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_half_written_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"run\":0,\"started_ns\":1,\"ended_ns\":2,\"code\":0}\n{\"run\":1,\"st").unwrap();
        assert_eq!(ran(file.path(), 0).unwrap().map(|ran| ran.ended_ns), Some(2));
        assert_eq!(ran(file.path(), 1).unwrap(), None);
    }
}

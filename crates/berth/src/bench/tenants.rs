//! The measured tenants of a stage: started, watched, waited for, and their truth read.

use std::time::{Duration, Instant};

use anyhow::bail;
use berth_api::Client;

use super::seen::{self, Listener};
use super::truth::{self, Stay};
use crate::interrupt::Interrupt;
use crate::stage::{Launch, Stage, Tenant};

/// A round of one tenant can take no longer than this; then the measurement gives up.
pub const PATIENCE: Duration = Duration::from_secs(240);
/// Whatever is still to be told of the last exits is told within a look or two.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// What a tenant does: processes one after another, each of which stays twice on the GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    pub rounds: u32,
    pub size: u32,
    /// Products of each stay.
    pub repeats: u32,
    /// The longest pause before a stay.
    pub gap_ms: u32,
    /// The containers' labels; other tenants have none.
    pub labels: Vec<(String, String)>,
}

/// All that was seen and all that was true of one measurement.
pub struct Outcome {
    pub stays: Vec<(Tenant, Vec<Stay>)>,
    pub reports: Vec<seen::Report>,
}

/// Starts tenants on a stage, each with a name and random pauses of its own.
pub struct Tenants<'a> {
    pub stage: &'a mut Stage,
    pub interrupt: &'a Interrupt,
    launched: u32,
}

impl<'a> Tenants<'a> {
    pub fn on(stage: &'a mut Stage, interrupt: &'a Interrupt) -> Self {
        Self { stage, interrupt, launched: 0 }
    }

    pub fn launch(&mut self, work: &Work) -> anyhow::Result<Tenant> {
        let seed = self.launched + 1;
        let numbers = [
            ("--rounds", work.rounds),
            ("--size", work.size),
            ("--repeats", work.repeats),
            ("--gap-ms", work.gap_ms),
            ("--seed", seed),
        ];
        let options = numbers.iter().flat_map(|(option, number)| [(*option).to_owned(), number.to_string()]);
        let args = ["bench".to_owned(), "tenant".to_owned()].into_iter().chain(options);
        self.start(args.collect(), work.labels.clone())
    }

    /// Starts `berth` with these arguments.
    pub fn start(&mut self, args: Vec<String>, labels: Vec<(String, String)>) -> anyhow::Result<Tenant> {
        self.interrupt.check()?;
        self.launched += 1;
        self.stage.launch(&Launch { name: format!("t{}", self.launched), owner: None, labels, args })
    }

    /// Runs one tenant for each of `work` under a daemon and gathers both sides of the story. `launched` is told of them as soon
    /// as they are there.
    pub fn observe(
        &mut self,
        client: Client,
        work: &[Work],
        launched: impl FnOnce(&[Tenant]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Outcome> {
        let listener = Listener::start(client)?;
        let tenants = work.iter().map(|work| self.launch(work)).collect::<anyhow::Result<Vec<_>>>()?;
        launched(&tenants)?;
        let stays = self.finish(tenants)?;
        self.interrupt.sleep(TOLD_WITHIN)?;
        Ok(Outcome { stays, reports: listener.take() })
    }

    /// Waits for the tenants and reads their truth.
    fn finish(&mut self, tenants: Vec<Tenant>) -> anyhow::Result<Vec<(Tenant, Vec<Stay>)>> {
        let deadline = Instant::now() + PATIENCE;
        let mut stays = Vec::new();
        for tenant in tenants {
            let interrupt = self.interrupt;
            let ended = self.stage.wait(&tenant, || interrupt.noted().is_some() || Instant::now() > deadline)?;
            interrupt.check()?;
            match ended {
                Some(0) => {}
                Some(code) => bail!("tenant {} failed with {code}", tenant.name()),
                None => bail!("tenant {} did not end within {} s", tenant.name(), PATIENCE.as_secs()),
            }
            let truth = truth::read(&tenant.lines)?;
            self.stage.end(&tenant)?;
            stays.push((tenant, truth));
        }
        Ok(stays)
    }
}

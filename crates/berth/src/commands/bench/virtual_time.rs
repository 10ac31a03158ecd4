//! What measurements in virtual time have in common: seeds, short runs, and where the result goes.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use super::save;
use crate::bench::policy::FIRST_SEED;
use crate::interrupt::Interrupt;
use crate::out::Stdout;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// The first seed; the others follow it
    #[arg(long, value_name = "NUMBER", default_value_t = FIRST_SEED)]
    seed: u32,
    /// Few and short runs: to see that it works, not to measure
    #[arg(long)]
    pub quick: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

impl Args {
    pub fn seeds(&self, count: usize) -> Vec<u64> {
        (u64::from(self.seed)..).take(count).collect()
    }

    /// Measures until it is done or interrupted, and shows what there is.
    pub fn show<R: Serialize>(
        &self,
        measure: impl FnOnce(&dyn Fn() -> bool) -> R,
        text: impl Fn(&R) -> String,
    ) -> Result<()> {
        let interrupt = Interrupt::listen()?;
        let report = measure(&|| interrupt.noted().is_some());
        save(self.save.as_deref(), &report)?;
        if self.json {
            Stdout::json(&report)?
        } else {
            Stdout::line(&text(&report))?
        }
        Ok(interrupt.check()?)
    }
}

//! Logs: to standard error, as text or JSON. The daemon logs by its settings; other commands only when asked.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use berth_model::settings::{Log, LogFormat};
use tracing_subscriber::EnvFilter;

use crate::out::colours_wanted;

pub fn start(log: &Log) -> Result<()> {
    let filter = EnvFilter::try_new(&log.level)
        .with_context(|| format!("log.level is `{}`: write `info` or `berth_host=debug,info`", log.level))?;
    let colours = std::io::stderr().is_terminal() && colours_wanted();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    match log.format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}

/// For commands people read the output of: silent unless `--log` says otherwise.
pub fn start_if_asked(asked: bool, log: &Log) -> Result<()> {
    if asked { start(log) } else { Ok(()) }
}

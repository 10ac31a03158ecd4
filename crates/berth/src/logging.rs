//! Logs: to standard error, as text or JSON. The daemon logs by its settings; other commands only when asked.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use berth_model::settings::{Log, LogFormat};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::out::colours_wanted;

pub fn start(log: &Log) -> Result<()> {
    let filter = EnvFilter::try_new(&log.level)
        .with_context(|| format!("log.level is `{}`: write `info` or `berth_host=debug,info`", log.level))?;
    let colours = std::io::stderr().is_terminal() && colours_wanted();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    // Else a line that nobody reads any more, as of a guard whose container has ended, would end whoever wrote it.
    let builder = builder.log_internal_errors(false);
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

/// A word that is no level would be taken for the name of a module, and nothing at all would be logged.
pub fn is_filter(level: &str) -> bool {
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let is_module = |word: &str| word.contains(['=', '[', ':']) || word.starts_with("berth");
    let words = || level.split(',').map(str::trim);
    EnvFilter::try_new(level).is_ok() && words().all(|word| is_level(word) || is_module(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters_are_told_from_typing_errors() {
        for right in ["info", "WARN", "off", "berth_host=debug,info", "berth_engine", "info,hyper=off"] {
            assert!(is_filter(right), "{right}");
        }
        for wrong in ["loud", "", "inf", "berth_host=loud", "info,debgu"] {
            assert!(!is_filter(wrong), "{wrong}");
        }
    }
}

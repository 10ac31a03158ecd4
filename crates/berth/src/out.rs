//! Standard output, where a reader that goes away is no failure; and standard error.

use std::io::{self, IsTerminal, Write};

/// Every command writes through this, so that a closed pipe is told apart from a full disk in one place.
#[derive(Debug)]
pub struct Stdout;

#[derive(Debug, thiserror::Error)]
enum OutputError {
    #[error("standard output was closed")]
    Closed,
    #[error("writing to standard output")]
    Failed(#[source] io::Error),
}

impl Stdout {
    /// Writes all of `text` and a line end, if it has none.
    pub fn line(text: &str) -> anyhow::Result<()> {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        Self::text(&format!("{text}{end}"))
    }

    pub fn text(text: &str) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        Ok(written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => OutputError::Closed,
            _ => OutputError::Failed(error),
        })?)
    }

    pub fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
        Self::line(&serde_json::to_string_pretty(value)?)
    }

    pub fn is_closed(error: &anyhow::Error) -> bool {
        matches!(error.downcast_ref(), Some(OutputError::Closed))
    }

    /// How wide lines may be; `None` where nobody wraps them: a file or a pipe.
    pub fn width() -> Option<usize> {
        if !io::stdout().is_terminal() {
            return None;
        }
        crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0)
    }

    pub fn is_terminal() -> bool {
        io::stdout().is_terminal()
    }
}

/// Tells the person at the terminal what is going on. If it was closed there is nobody to tell, which stops nothing.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "berth: {text}");
}

/// Whether colours are wanted: <https://no-color.org>.
pub fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

//! The terminal as a screen of ours, given back however the view ends.

use anyhow::{Context, Result};
use ratatui::{DefaultTerminal, Frame};

/// Raw mode and the second screen; a panic gives them back before its message is printed, dropping does otherwise.
#[derive(Debug)]
pub struct Screenful {
    /// Until dropped.
    terminal: Option<DefaultTerminal>,
}

impl Screenful {
    pub fn open() -> Result<Self> {
        Ok(Self { terminal: Some(ratatui::try_init().context("taking the terminal over")?) })
    }

    pub fn draw(&mut self, render: impl FnOnce(&mut Frame)) -> Result<()> {
        if let Some(terminal) = &mut self.terminal {
            terminal.draw(render).context("drawing")?;
        }
        Ok(())
    }
}

impl Drop for Screenful {
    fn drop(&mut self) {
        // A terminal that was closed cannot be given back, nor can anybody be told: ratatui would try, and panic of it.
        let _ = ratatui::try_restore();
        let is_closed = |terminal: &mut DefaultTerminal| terminal.show_cursor().is_err();
        if let Some(terminal) = self.terminal.take_if(is_closed) {
            std::mem::forget(terminal);
        }
    }
}

//! The terminal as a screen of ours, given back however the view ends.

use anyhow::{Context, Result};
use ratatui::{DefaultTerminal, Frame};

/// Raw mode and the second screen; a panic gives them back before its message is printed, dropping does otherwise.
#[derive(Debug)]
pub struct Screenful {
    terminal: DefaultTerminal,
}

impl Screenful {
    pub fn open() -> Result<Self> {
        Ok(Self { terminal: ratatui::try_init().context("taking the terminal over")? })
    }

    pub fn draw(&mut self, render: impl FnOnce(&mut Frame)) -> Result<()> {
        self.terminal.draw(render).context("drawing")?;
        Ok(())
    }
}

impl Drop for Screenful {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

//! What stands out, and how; without colours by weight alone.

use berth_model::TaskState;
use berth_model::deadline::Risk;
use ratatui::style::{Color, Modifier, Style};

use crate::tui::screen::Look;

#[derive(Debug, Clone, Copy)]
pub struct Palette {
    pub heading: Style,
    pub faint: Style,
    pub alarm: Style,
    pub selected: Style,
    pub memory: Style,
    pub core: Style,
    busy: Style,
    waiting: Style,
    pub held: Style,
    safe: Style,
    tight: Style,
    likely: Style,
}

impl Palette {
    pub fn new(colours: bool) -> Self {
        let colour = |colour| if colours { Style::new().fg(colour) } else { Style::new() };
        Self {
            heading: Style::new().add_modifier(Modifier::BOLD),
            faint: Style::new().add_modifier(Modifier::DIM),
            alarm: colour(Color::Red).add_modifier(Modifier::BOLD),
            selected: Style::new().add_modifier(Modifier::REVERSED),
            memory: colour(Color::Cyan),
            core: colour(Color::Green),
            busy: colour(Color::Green),
            waiting: colour(Color::Yellow),
            held: colour(Color::Magenta),
            safe: colour(Color::Green),
            tight: colour(Color::Yellow),
            likely: colour(Color::Red),
        }
    }

    pub fn of(&self, look: Look) -> Style {
        let state = match look {
            Look::Held => return self.held,
            Look::Open => return Style::new(),
            Look::Closed => return self.faint,
            Look::State(state) => state,
        };
        match state {
            TaskState::Computing => self.busy,
            TaskState::Opening | TaskState::Loaded => self.waiting,
            TaskState::Idle => self.faint,
            TaskState::Lost => self.alarm,
        }
    }

    pub fn risk(&self, risk: Risk) -> Style {
        match risk {
            Risk::Safe => self.safe,
            Risk::Tight => self.tight,
            Risk::Likely => self.likely,
            Risk::Late => self.alarm,
        }
    }
}

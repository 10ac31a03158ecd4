//! The live view: updates and keys change the [`App`], a [`Screen`] of finished numbers is made of it and drawn.

mod app;
mod draw;
mod history;
mod keys;
mod screen;
mod sorting;
mod terminal;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use berth_model::Settings;
use crossterm::event::{self, Event, KeyEventKind};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::live::Live;
use crate::out::colours_wanted;
use app::{App, Flow};
use draw::Palette;
use screen::Screen;
use terminal::Screenful;

/// Shows `live` until the user quits or nothing more can come.
pub fn run(live: &Live, settings: &Settings, interval: Duration) -> Result<()> {
    let mut app = App::new(live.origin.clone(), settings.api.socket.clone());
    let palette = Palette::new(colours_wanted());
    let zone = TimeZone::system();
    let stop = stop_on_signal()?;
    let mut terminal = Screenful::open()?;
    let mut next_step = Instant::now();
    loop {
        if stop.load(Ordering::Relaxed) || take_updates(live, &mut app) == Flow::Quit {
            return Ok(());
        }
        if Instant::now() >= next_step {
            app.step();
            next_step = Instant::now() + interval;
        }
        let clock = Timestamp::now();
        terminal.draw(|frame| draw::screen(frame, &Screen::of(&app, frame.area(), clock, &zone), &palette))?;
        if event::poll(next_step.saturating_duration_since(Instant::now()))? && take_key(&mut app)? == Flow::Quit {
            return Ok(());
        }
    }
}

/// A signal that would end us must not leave the terminal in our hands.
fn stop_on_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("taking signals")?;
    }
    Ok(stop)
}

fn take_updates(live: &Live, app: &mut App) -> Flow {
    loop {
        match live.update_rx.try_recv() {
            Ok(update) => app.update(update),
            Err(TryRecvError::Empty) => return Flow::Stay,
            Err(TryRecvError::Disconnected) => return Flow::Quit,
        }
    }
}

/// Resizing needs nothing but another drawing, which follows anyway.
fn take_key(app: &mut App) -> Result<Flow> {
    match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => {
            Ok(keys::action(key, app.is_typing()).map_or(Flow::Stay, |action| app.act(action)))
        }
        _ => Ok(Flow::Stay),
    }
}

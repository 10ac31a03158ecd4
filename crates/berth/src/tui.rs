//! The live view: updates and keys change the [`App`], a [`Screen`] of finished numbers is made of it and drawn.

mod app;
mod cluster;
mod draw;
mod history;
mod input;
mod keys;
mod screen;
mod silence;
mod sorting;
mod terminal;
#[cfg(test)]
mod tests;

use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use berth_model::Settings;
use crossterm::event::KeyEvent;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui::Frame;
use signal_hook::consts::SIGINT;

use crate::live::{Live, Update};
use crate::out::colours_wanted;
use app::{App, Flow};
use cluster::Asking;
use draw::Palette;
use input::{Input, Inputs};
use screen::Screen;
use silence::Silence;
use terminal::Screenful;

/// Shows `live` until the user quits, the terminal closes, a signal asks to end, or nothing more can come.
pub fn run(live: &Live, settings: &Settings, interval: Duration) -> Result<()> {
    let mut app = App::new(live.origin.clone(), settings.api.socket.clone(), settings.placer.socket.clone());
    let palette = Palette::new(colours_wanted());
    let zone = TimeZone::system();
    let inputs = Inputs::open()?;
    let mut terminal = Screenful::open()?;
    let mut next_step = Instant::now();
    let mut asking = None;
    let mut silence = Silence::new(&live.origin, settings, interval, next_step);
    loop {
        if take_updates(live, settings, &mut app, &mut silence) == Flow::Quit {
            return Ok(());
        }
        take_nodes(&mut app, &mut asking)?;
        app.silence = silence.at(Instant::now());
        if Instant::now() >= next_step {
            app.step();
            next_step = Instant::now() + interval;
        }
        let clock = Timestamp::now();
        let draw = |frame: &mut Frame| draw::screen(frame, &Screen::of(&app, frame.area(), clock, &zone), &palette);
        match terminal.draw(draw) {
            Err(_) if inputs.has_ended() => return Ok(()),
            drawn => drawn?,
        }
        match inputs.next(next_step.saturating_duration_since(Instant::now()))? {
            Input::Keys(keys) if take_keys(&keys, &mut app) == Flow::Stay => {}
            Input::Keys(keys) => return pass_on(&keys),
            Input::Ended => return Ok(()),
        }
    }
}

/// The placer is asked while its nodes are shown.
fn take_nodes(app: &mut App, asking: &mut Option<Asking>) -> Result<()> {
    let Some(cluster) = &mut app.cluster else {
        *asking = None;
        return Ok(());
    };
    let asking = match asking {
        Some(asking) => asking,
        None => asking.insert(Asking::begin(&app.placer_socket)?),
    };
    asking.told().for_each(|told| cluster.hear(told));
    Ok(())
}

fn take_updates(live: &Live, settings: &Settings, app: &mut App, silence: &mut Silence) -> Flow {
    loop {
        match live.update_rx.try_recv() {
            Ok(Update::Snapshot(snapshot)) => {
                silence.hear(Instant::now());
                let (snapshot, record) = live.origin.with_record(settings, snapshot);
                app.on_record = record;
                app.update(Update::Snapshot(snapshot));
            }
            Ok(update) => {
                silence.hear(Instant::now());
                app.update(update);
            }
            Err(TryRecvError::Empty) => return Flow::Stay,
            Err(TryRecvError::Disconnected) => return Flow::Quit,
        }
    }
}

/// Ctrl-C, which a terminal in this mode does not turn into a signal: others than this view may want to know.
fn pass_on(keys: &[KeyEvent]) -> Result<()> {
    if keys.iter().any(keys::is_interrupt) {
        signal_hook::low_level::raise(SIGINT).context("passing Ctrl-C on")?;
    }
    Ok(())
}

fn take_keys(keys: &[KeyEvent], app: &mut App) -> Flow {
    for key in keys {
        let action = keys::action(*key, app.is_typing());
        if action.is_some_and(|action| app.act(action) == Flow::Quit) {
            return Flow::Quit;
        }
    }
    Flow::Stay
}

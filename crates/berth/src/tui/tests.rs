//! Screens as people see them.

use std::time::Duration;

use berth_model::cluster::Strategy;
use berth_model::cluster::api::Nodes;
use berth_model::{GpuIndex, Snapshot};
use crossterm::event::{KeyCode, KeyEvent};
use jiff::tz::TimeZone;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::app::{App, Flow};
use super::draw::{self, Palette};
use super::keys;
use super::screen::Screen;
use crate::commands::place::samples;
use crate::live::{Origin, Update};
use crate::testing::{at, busy, contended, deadlines, empty, gpu, lost, row, shared};

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (140, 40);

fn app(snapshot: Snapshot) -> App {
    let mut app = App::new(Origin::Daemon, "/run/berth/berth.sock".into(), "/run/berth/placer.sock".into());
    app.update(Update::Snapshot(shared(snapshot)));
    app
}

/// The processes of the first GPU cannot be listed.
fn blind(mut snapshot: Snapshot) -> Snapshot {
    snapshot.gpus[0].blind = Some("an internal driver error occurred".into());
    snapshot
}

fn nodes() -> Nodes {
    Nodes { engine: "swarm".into(), strategy: Strategy::Fit, idle: None, nodes: samples::nodes(), waiting: Vec::new() }
}

/// Shows what the placer told.
fn cluster(told: Result<Nodes, String>) -> App {
    let mut app = app(busy());
    press(&mut app, "N");
    app.cluster.as_mut().unwrap().hear(told);
    app
}

/// Twenty steps in which the core of each GPU goes up.
fn with_history(mut snapshot: Snapshot) -> App {
    let mut app = app(snapshot.clone());
    for step in 0..20 {
        for gpu in &mut snapshot.gpus {
            gpu.core_pct = berth_model::Percent::checked(step * 5);
        }
        app.update(Update::Snapshot(shared(snapshot.clone())));
        app.step();
    }
    app
}

fn press(app: &mut App, keys: &str) {
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '↓' => KeyCode::Down,
            c => KeyCode::Char(c),
        };
        if let Some(action) = keys::action(KeyEvent::from(code), app.is_typing()) {
            app.act(action);
        }
    }
}

fn drawn(app: &App, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let palette = Palette::new(true);
    terminal
        .draw(|frame| draw::screen(frame, &Screen::of(app, frame.area(), at(0), &TimeZone::UTC), &palette))
        .unwrap();
    terminal.backend().to_string()
}

macro_rules! screens {
    ($($name:ident: $app:expr;)*) => {$(
        #[test]
        fn $name() {
            let app = $app;
            insta::assert_snapshot!(concat!(stringify!($name), "_80x24"), drawn(&app, SMALL));
            insta::assert_snapshot!(concat!(stringify!($name), "_140x40"), drawn(&app, LARGE));
        }
    )*};
}

screens! {
    before_the_first_look: App::new(Origin::OurOwn { because: "no daemon".into() }, "/run/berth/berth.sock".into(), "/run/berth/placer.sock".into());
    an_empty_host: app(empty());
    some_wait_for_one: app(contended());
    some_have_deadlines: {
        let mut app = app(deadlines());
        press(&mut app, "f");
        app
    };
    details_of_a_deadline: {
        let mut app = app(deadlines());
        press(&mut app, "f\n");
        app
    };
    a_host_without_gpus: app(Snapshot { gpus: vec![], ..empty() });
    a_busy_host: with_history(busy());
    a_lost_gpu: app(lost());
    a_gpu_lost_before_anybody_looked: {
        let mut snapshot = lost();
        snapshot.tasks.retain(|row| row.gpu_index != Some(GpuIndex(0)));
        let gpu = &mut snapshot.gpus[0];
        (gpu.uuid, gpu.name, gpu.memory_total_bytes, gpu.mig, gpu.tenants) = (None, None, None, None, 0);
        app(snapshot)
    };
    a_gpu_whose_processes_cannot_be_listed: app(blind(busy()));
    many_gpus_whose_processes_cannot_be_listed: {
        let gpus = (0..16).map(|index| gpu(index, u64::from(index) * 8_000, index * 6)).collect();
        app(blind(Snapshot { gpus, ..empty() }))
    };
    a_gpu_in_mig_mode: {
        let mut snapshot = busy();
        snapshot.gpus[1].mig = Some(true);
        app(snapshot)
    };
    many_gpus: app(Snapshot { gpus: (0..16).map(|index| gpu(index, u64::from(index) * 8_000, index * 6)).collect(), ..busy() });
    a_filter_being_typed: {
        let mut app = app(busy());
        press(&mut app, "/gra");
        app
    };
    a_filter_that_leaves_nothing: {
        let mut app = app(busy());
        press(&mut app, "/zzz\n");
        app
    };
    details_of_a_tenant: {
        let mut app = with_history(busy());
        press(&mut app, "m\n");
        app
    };
    the_help: {
        let mut app = app(busy());
        press(&mut app, "?");
        app
    };
    the_nodes_of_a_cluster: cluster(Ok(nodes()));
    a_node_in_detail: {
        let mut app = cluster(Ok(nodes()));
        press(&mut app, "↓\n");
        app
    };
    no_placer: cluster(Err("no placer listens on /run/berth/placer.sock".into()));
    a_placer_that_went_away: {
        let mut app = cluster(Ok(nodes()));
        app.cluster.as_mut().unwrap().hear(Err("no placer listens on /run/berth/placer.sock".into()));
        app
    };
    a_daemon_that_went_away: {
        let mut app = app(busy());
        app.update(Update::Lost("no daemon listens on /run/berth/berth.sock".into()));
        app
    };
    a_daemon_that_says_nothing: {
        let mut app = with_history(busy());
        app.silence = Some(Duration::from_millis(12_400));
        (0..5).for_each(|_| app.step());
        app
    };
}

#[test]
fn without_colours_nothing_is_coloured() {
    let app = with_history(lost());
    let coloured = |colours: bool| {
        let mut terminal = Terminal::new(TestBackend::new(140, 40)).unwrap();
        let screen = Screen::of(&app, ratatui::layout::Rect::new(0, 0, 140, 40), at(0), &TimeZone::UTC);
        terminal.draw(|frame| draw::screen(frame, &screen, &Palette::new(colours))).unwrap();
        let buffer = terminal.backend().buffer().clone();
        buffer.content.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert_eq!(coloured(false), 0);
    assert!(coloured(true) > 100);
}

/// In the colour of those who wait, in the queue and in the table.
#[test]
fn who_is_held_stands_out() {
    let app = app(contended());
    let mut terminal = Terminal::new(TestBackend::new(140, 40)).unwrap();
    let screen = Screen::of(&app, ratatui::layout::Rect::new(0, 0, 140, 40), at(0), &TimeZone::UTC);
    terminal.draw(|frame| draw::screen(frame, &screen, &Palette::new(true))).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = (0..40).map(|y| (0..140).map(|x| &buffer[(x, y)]).collect::<Vec<_>>());
    let held: Vec<String> = rows
        .filter(|cells| cells.iter().any(|cell| cell.fg == Color::Magenta))
        .map(|cells| cells.iter().map(|cell| cell.symbol()).collect())
        .collect();
    assert_eq!(held.len(), 6, "three wait, each with a line in the queue and a row: {held:#?}");
    assert!(held.iter().all(|line| !line.contains("notebook")), "{held:#?}");
}

/// What the screen shows of the row of `name` so many seconds after its snapshot.
fn row_after(app: &App, name: &str, seconds: i64) -> String {
    let screen = Screen::of(app, ratatui::layout::Rect::new(0, 0, 140, 40), at(seconds), &TimeZone::UTC);
    let float = screen.table.columns.float().unwrap();
    let row = screen.table.columns.rows.iter().position(|row| row[1] == name).unwrap();
    let risk = screen.table.columns.risks[row].map(|risk| risk.as_str());
    format!("{} {}", screen.table.columns.rows[row][float], risk.unwrap_or("-"))
}

#[test]
fn what_is_left_counts_down_between_snapshots_and_stops_when_there_is_no_news() {
    let mut app = app(deadlines());
    let at_seconds = |app: &App| [0, 1, 2].map(|seconds| row_after(app, "report", seconds));
    assert_eq!(at_seconds(&app), ["1.1s tight", "0.1s tight", "-0.9s late"]);
    assert_eq!(row_after(&app, "server", 2), "- -", "nothing is due between bursts");
    app.silence = Some(Duration::from_secs(4));
    assert_eq!(at_seconds(&app), ["1.1s tight"; 3]);
    app.silence = None;
    app.update(Update::Lost("gone".into()));
    assert_eq!(at_seconds(&app), ["1.1s tight"; 3]);
}

#[test]
fn what_is_left_has_the_colour_of_its_risk() {
    let app = app(deadlines());
    let mut terminal = Terminal::new(TestBackend::new(140, 40)).unwrap();
    let screen = Screen::of(&app, ratatui::layout::Rect::new(0, 0, 140, 40), at(0), &TimeZone::UTC);
    terminal.draw(|frame| draw::screen(frame, &screen, &Palette::new(true))).unwrap();
    let buffer = terminal.backend().buffer();
    let colour_of = |text: &str| {
        (0..40).find_map(|y| {
            let line: Vec<&str> = (0..140).map(|x| buffer[(x, y)].symbol()).collect();
            let begin = (0..140).find(|&x| line[x..].concat().starts_with(text))?;
            Some(buffer[(u16::try_from(begin).unwrap(), y)].fg)
        })
    };
    let colours = ["5.2s ", "1.1s ", "12.0s ", "-0.8s "].map(colour_of);
    assert_eq!(colours, [Color::Green, Color::Yellow, Color::Red, Color::Red].map(Some));
}

#[test]
fn a_long_queue_leaves_room_for_the_tenants() {
    let mut snapshot = contended();
    let management = snapshot.management.as_mut().unwrap();
    management.queue = std::iter::repeat_n(management.queue[0].clone(), 50).collect();
    let screen = drawn(&app(snapshot), SMALL);
    assert!(screen.contains("and 46 more") && screen.contains("train-10"), "{screen}");
}

#[test]
fn no_size_is_too_small_to_draw() {
    for app in [with_history(contended()), with_history(lost())] {
        for size in [(1, 1), (44, 4), (60, 7), (80, 10)] {
            drawn(&app, size);
        }
    }
    let mut app = with_history(busy());
    press(&mut app, "\n");
    for (width, height) in [(1, 1), (5, 3), (20, 5), (39, 10), (300, 2)] {
        drawn(&app, (width, height));
    }
}

/// At every width each number is there as it is, or none is and the width that is needed is said.
#[test]
fn no_number_is_cut_where_there_is_too_little_room() {
    let gpus = (0..16).map(|index| gpu(index, 134_567, 95)).collect();
    let mut task = row("trainer");
    task.gpu_core_pct = berth_model::Percent::checked(95);
    let many = Snapshot { gpus, tasks: vec![task.clone()], ..busy() };
    let few = Snapshot { gpus: vec![gpu(0, 134_567, 95)], tasks: vec![task], ..busy() };
    for (snapshot, numbers) in [(many, 8), (few, 2), (Snapshot { gpus: vec![gpu(0, 134_567, 95)], ..empty() }, 1)] {
        let app = app(snapshot);
        let mut needed = None;
        for width in (16..140).rev() {
            let screen = drawn(&app, (width, 24));
            match screen.contains("too narrow") {
                true => {
                    assert!(needed.is_some_and(|needed| screen.contains(&format!("{needed} columns"))) || width < 33)
                }
                false => {
                    assert!(screen.matches("95 %").count() >= numbers, "{width}: {screen}");
                    needed = Some(width);
                }
            }
        }
        assert!(needed.is_some_and(|needed| needed > 16), "every width is enough: the test shows nothing");
    }
}

#[test]
fn a_gpu_that_cannot_be_seen_whole_says_so_at_every_width_there_is_a_screen_for() {
    let mut snapshot = blind(empty());
    snapshot.gpus[0].name = Some("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition".into());
    let app = app(snapshot);
    for width in 44..140 {
        let screen = drawn(&app, (width, 24));
        assert!(screen.contains("GPU 0") && screen.contains("processes cannot be listed"), "{width}: {screen}");
    }
}

#[test]
fn the_selected_row_stays_selected_when_the_order_changes_or_others_leave() {
    let mut app = app(busy());
    press(&mut app, "↓↓");
    let selected = |app: &App| app.rows()[app.selected_index().unwrap()].container_name.clone();
    assert_eq!(selected(&app), "linus");
    press(&mut app, "nr");
    assert_eq!(selected(&app), "linus");
    let mut fewer = busy();
    fewer.tasks.remove(0);
    app.update(Update::Snapshot(shared(fewer)));
    assert_eq!(selected(&app), "linus");
}

#[test]
fn when_the_selected_tenant_leaves_the_first_row_is_selected() {
    let mut app = app(busy());
    press(&mut app, "↓↓");
    app.update(Update::Snapshot(shared(Snapshot { tasks: vec![row("other")], ..busy() })));
    assert_eq!(app.selected_index(), Some(0));
    app.update(Update::Snapshot(shared(empty())));
    assert_eq!(app.selected_index(), None);
    press(&mut app, "↓\n");
    assert!(drawn(&app, SMALL).contains("nobody is on the GPUs"));
}

#[test]
fn many_rows_scroll_with_the_selection() {
    let tasks: Vec<_> = (0..60)
        .map(|n| {
            let mut row = row(&format!("tenant-{n:02}"));
            row.tenant = berth_model::TenantKey::User { uid: n };
            row
        })
        .collect();
    let mut app = app(Snapshot { tasks, ..busy() });
    assert!(!drawn(&app, SMALL).contains("tenant-40"));
    (0..40).for_each(|_| press(&mut app, "↓"));
    assert!(drawn(&app, SMALL).contains("tenant-40"));
}

#[test]
fn escape_closes_what_is_open_first_and_clears_the_filter_then() {
    let mut app = app(busy());
    press(&mut app, "/ada\n?\u{1b}");
    assert_eq!(app.filter, "ada");
    press(&mut app, "\u{1b}");
    assert_eq!(app.filter, "");
    assert_eq!(app.act(keys::Action::Quit), Flow::Quit);
}

#[test]
fn histories_of_tenants_that_left_are_forgotten() {
    let mut app = with_history(busy());
    assert_eq!(app.row_histories.len(), 4);
    app.update(Update::Snapshot(shared(empty())));
    app.step();
    assert_eq!(app.row_histories.len(), 0);
}

#[test]
fn without_news_histories_go_on_with_gaps_and_not_with_old_numbers() {
    for silent in [true, false] {
        let mut app = with_history(busy());
        match silent {
            true => app.silence = Some(Duration::from_secs(4)),
            false => app.update(Update::Lost("gone".into())),
        }
        app.step();
        let of_gpus = app.gpu_histories.values().map(|histories| (histories.core.last(2), histories.memory.last(1)));
        assert_eq!(of_gpus.collect::<Vec<_>>(), vec![(vec![Some(95), None], vec![None]); 2]);
        assert!(app.row_histories.values().all(|histories| histories.memory.last(1) == [None]));
    }
}

#[test]
fn names_cannot_turn_the_screen_around_in_any_view() {
    const OVERRIDE: char = '\u{202e}';
    let mut task = row("a\u{202e}b");
    (task.command, task.image) = ("c\u{202e}d".into(), Some("e\u{202e}f".into()));
    let mut app = app(Snapshot { tasks: vec![task], ..busy() });
    app.last_change = Some("g\u{202e}h".into());
    assert!(!drawn(&app, LARGE).contains(OVERRIDE));
    press(&mut app, "\n");
    let details = drawn(&app, LARGE);
    assert!(details.contains("c\u{fffd}d") && !details.contains(OVERRIDE), "{details}");
}

#[test]
fn a_placer_that_places_nothing_says_why() {
    let told = Nodes { idle: Some("n1 places for this swarm".into()), nodes: Vec::new(), ..nodes() };
    let shown = drawn(&cluster(Ok(told)), LARGE);
    assert!(shown.contains("places nothing: n1 places for this swarm"), "{shown}");
    assert!(shown.contains("swarm has told of no nodes"), "{shown}");
}

#[test]
fn the_nodes_are_left_as_they_were_entered_and_what_was_chosen_stays() {
    let mut app = cluster(Ok(nodes()));
    press(&mut app, "↓↓");
    let selected = |app: &App| app.cluster.as_ref().and_then(|cluster| cluster.selected_index());
    assert_eq!(selected(&app), Some(2));
    // It is found again where it is now.
    let mut told = nodes();
    told.nodes.remove(0);
    app.cluster.as_mut().unwrap().hear(Ok(told));
    assert_eq!(selected(&app), Some(1));
    press(&mut app, "/x");
    assert!(app.filter.is_empty() && !app.is_typing(), "there is no filter for nodes");
    press(&mut app, "\n\u{1b}");
    assert!(app.cluster.is_some(), "Esc closes the details first");
    press(&mut app, "\u{1b}");
    assert!(app.cluster.is_none());
    press(&mut app, "NN");
    assert!(app.cluster.is_none());
}

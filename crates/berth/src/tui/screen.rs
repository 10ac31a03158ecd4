//! Everything on the screen as finished text and numbers: drawing it needs no thought.

mod nodes;

use berth_model::fields::elapsed;
use berth_model::snapshot::HoldStage;
use berth_model::{Bytes, GpuView, Snapshot, SourceStatus, TaskRow, TaskState};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui::layout::Rect;

use super::app::{App, Histories, Open, gpu_memory, key_of, share};
use super::cluster::Cluster;
use super::keys::HELP;
use crate::columns::{Columns, Narrow, cut, printable};
use crate::countdown;
use crate::live::Origin;
use crate::on_record::OnRecord;
use crate::table::time;
use crate::words;

#[derive(Debug)]
pub struct Screen {
    /// Shown instead of everything else, where numbers would be cut.
    pub too_narrow: Option<String>,
    pub title: String,
    pub clock: String,
    /// Where the numbers come from, or what is wrong.
    pub status: Status,
    pub gpus: Vec<GpuPanel>,
    /// `None` while nobody waits.
    pub queue: Option<QueuePanel>,
    /// Who leads, yields or has its turn inside a GPU; `None` while nobody takes part.
    pub kernels: Option<QueuePanel>,
    pub table: TablePanel,
    pub footer: Footer,
    pub popup: Option<Popup>,
}

#[derive(Debug)]
pub struct Status {
    pub text: String,
    pub is_alarm: bool,
}

#[derive(Debug)]
pub struct GpuPanel {
    pub heading: String,
    /// What the driver said when it stopped answering.
    pub lost: Option<String>,
    /// What of it cannot be seen, and why.
    pub blind: Option<String>,
    pub memory: Gauge,
    pub core: Gauge,
}

#[derive(Debug)]
pub struct Gauge {
    pub percent: Option<u8>,
    pub label: String,
    pub history: Vec<Option<u8>>,
}

#[derive(Debug)]
pub struct TablePanel {
    pub title: String,
    pub columns: Columns,
    pub looks: Vec<Look>,
    pub selected: Option<usize>,
    /// Shown instead of rows.
    pub nothing: Option<String>,
}

/// How a row stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    State(TaskState),
    /// Kept off the GPU, whatever it was doing.
    Held,
    /// A node that would take a container, and one that would not.
    Open,
    Closed,
}

impl Look {
    fn of(row: &TaskRow) -> Self {
        let is_held = row.hold.as_ref().is_some_and(|hold| hold.stage == HoldStage::Held);
        if is_held { Look::Held } else { Look::State(row.state) }
    }
}

/// Who waits for whom.
#[derive(Debug)]
pub struct QueuePanel {
    pub title: String,
    pub lines: Vec<String>,
}

#[derive(Debug)]
pub enum Footer {
    Keys(String),
    Typing(String),
}

#[derive(Debug)]
pub struct Popup {
    pub title: String,
    pub lines: Vec<(String, String)>,
    /// Memory and core use of the tenant.
    pub gauges: Vec<(&'static str, Gauge)>,
}

/// The numbers of a GPU fit.
const LEAST_WIDTH: usize = 44;
/// The mark of the selected row.
const TABLE_FRAME: usize = 2;
const KEYS: &str = "q quit  ? help  / filter  Enter details  m c t f n g sort  r reverse";
const NODE_KEYS: &str = "q quit  ? help  Enter details  N this host";

impl Screen {
    pub fn of(app: &App, area: Rect, clock: Timestamp, zone: &TimeZone) -> Self {
        let width = usize::from(area.width);
        if let Some(cluster) = &app.cluster {
            return Self::of_cluster(app, cluster, width, clock, zone);
        }
        let rows = rows(app, clock);
        let table = table(app, &rows, width);
        let gpus = app.snapshot.iter().flat_map(|snapshot| &snapshot.gpus);
        Self {
            too_narrow: too_narrow(&table, width),
            title: title(),
            clock: time_of_day(clock, zone),
            status: status(app),
            gpus: gpus
                .map(|gpu| gpu_panel(gpu, app.gpu_histories.get(&(gpu.index, gpu.uuid.clone())), width))
                .collect(),
            queue: app.snapshot.as_ref().and_then(|snapshot| queue(snapshot, app.on_record.as_ref())),
            kernels: app.snapshot.as_ref().and_then(|snapshot| kernels(snapshot)),
            table,
            footer: footer(app),
            popup: popup(app, &rows, width, zone),
        }
    }

    fn of_cluster(app: &App, cluster: &Cluster, width: usize, clock: Timestamp, zone: &TimeZone) -> Self {
        let table = nodes::table(cluster, width);
        Self {
            too_narrow: too_narrow(&table, width),
            title: title(),
            clock: time_of_day(clock, zone),
            status: nodes::status(cluster, &app.placer_socket),
            gpus: Vec::new(),
            queue: None,
            kernels: None,
            table,
            footer: Footer::Keys(NODE_KEYS.to_owned()),
            popup: match app.open {
                Open::Nothing => None,
                Open::Help => Some(help()),
                Open::Details => nodes::details(cluster),
            },
        }
    }
}

fn title() -> String {
    format!("berth {}", env!("CARGO_PKG_VERSION"))
}

fn time_of_day(clock: Timestamp, zone: &TimeZone) -> String {
    clock.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string()
}

fn too_narrow(table: &TablePanel, width: usize) -> Option<String> {
    let of_rows = if table.nothing.is_none() { table.columns.line_width() + TABLE_FRAME } else { 0 };
    let needed = of_rows.max(LEAST_WIDTH);
    (width < needed).then(|| format!("too narrow: {needed} columns are needed"))
}

fn status(app: &App) -> Status {
    if let Some(trouble) = &app.trouble {
        return Status { text: format!("{trouble}; trying again"), is_alarm: true };
    }
    if let Some(silence) = app.silence {
        return Status { text: format!("no word from the daemon for {} s", silence.as_secs()), is_alarm: true };
    }
    let down = app.snapshot.iter().flat_map(|snapshot| &snapshot.sources).find_map(|view| match &view.status {
        SourceStatus::Down { reason } => Some(format!("without {}: {reason}", words::source(view.source))),
        SourceStatus::Up | SourceStatus::Off => None,
    });
    let origin = match (&app.origin, app.snapshot.as_ref().and_then(|snapshot| snapshot.management.as_ref())) {
        (Origin::Daemon, None) => format!("daemon on {}", app.socket.display()),
        (Origin::Daemon, Some(management)) => {
            let dry = if management.dry_run { " in a dry run" } else { "" };
            format!("daemon on {}, policy {}{dry}", app.socket.display(), management.policy.as_str())
        }
        (Origin::OurOwn { .. }, _) => "no daemon: watching by itself".to_owned(),
    };
    match down {
        Some(down) => Status { text: down, is_alarm: true },
        None => Status { text: origin, is_alarm: false },
    }
}

fn gpu_panel(gpu: &GpuView, histories: Option<&Histories>, width: usize) -> GpuPanel {
    let tenants = match gpu.tenants {
        1 => "1 tenant".to_owned(),
        tenants => format!("{tenants} tenants"),
    };
    // Who is there now cannot be told: these are those known from before.
    let known = if gpu.blind.is_some() { " known" } else { "" };
    let mig = if gpu.mig == Some(true) { ", MIG mode" } else { "" };
    GpuPanel {
        heading: match &gpu.name {
            Some(name) => format!("GPU {} {name}, {tenants}{known}{mig}", gpu.index),
            // Lost since before anybody looked: neither what it is nor who is on it is known.
            None => format!("GPU {}", gpu.index),
        },
        lost: gpu.lost.clone(),
        blind: gpu.blind.as_ref().map(|reason| format!("processes cannot be listed: {reason}")),
        memory: memory_gauge(gpu.memory_used_bytes, gpu.memory_total_bytes, histories, width),
        core: Gauge {
            percent: gpu.core_pct.map(|core| core.get()),
            label: text_or_unknown(gpu.core_pct),
            history: histories.map(|histories| histories.core.last(width)).unwrap_or_default(),
        },
    }
}

fn memory_gauge(used: Option<Bytes>, total: Option<Bytes>, histories: Option<&Histories>, width: usize) -> Gauge {
    Gauge {
        percent: share(used, total),
        label: format!("{} / {}", text_or_unknown(used), text_or_unknown(total)),
        history: histories.map(|histories| histories.memory.last(width)).unwrap_or_default(),
    }
}

/// Who waits; without a daemon, who is on record, and what to do about it.
fn queue(snapshot: &Snapshot, record: Option<&OnRecord>) -> Option<QueuePanel> {
    if let Some(management) = &snapshot.management {
        let (title, lines) = words::hold::queue(management, snapshot.taken_at)?;
        return Some(QueuePanel { title, lines });
    }
    let (title, mut lines) = words::hold::on_record(record?, snapshot.taken_at)?;
    lines.extend(record?.advice());
    Some(QueuePanel { title, lines })
}

fn kernels(snapshot: &Snapshot) -> Option<QueuePanel> {
    let (title, lines) = words::kernels::listed(snapshot.kernels.as_ref()?)?;
    Some(QueuePanel { title, lines: lines.iter().map(|line| printable(line)).collect() })
}

/// The rows to show, in order, with what is left of their deadlines by now. Without news nothing is counted down.
fn rows(app: &App, clock: Timestamp) -> Vec<TaskRow> {
    let is_old = app.trouble.is_some() || app.silence.is_some();
    let snapshot = app.snapshot.as_ref().filter(|_| !is_old);
    let passed = snapshot.map_or(0.0, |snapshot| countdown::since(snapshot, clock));
    app.rows().into_iter().map(|row| countdown::after(row, passed)).collect()
}

fn table(app: &App, rows: &[TaskRow], width: usize) -> TablePanel {
    let mut columns = Columns::of_tasks(rows, false, false);
    if let Some(column) = columns.position(app.order.key.field()) {
        columns.headings[column].push(if app.order.is_descending() { '▼' } else { '▲' });
    }
    let total = app.snapshot.as_ref().map_or(0, |snapshot| snapshot.tasks.len());
    let title = match app.filter.as_str() {
        "" => format!("Tenants ({total})"),
        filter => format!("Tenants ({} of {total}, with \"{filter}\")", rows.len()),
    };
    TablePanel {
        title,
        columns: columns.fit(width.saturating_sub(TABLE_FRAME), Narrow::DropColumns),
        looks: rows.iter().map(Look::of).collect(),
        selected: app.selected_index(),
        nothing: nothing(app, rows.is_empty(), total),
    }
}

fn nothing(app: &App, is_empty: bool, total: usize) -> Option<String> {
    let text = match &app.snapshot {
        None => "waiting for the first look",
        Some(_) if !is_empty => return None,
        Some(snapshot) if snapshot.gpus.is_empty() => "no GPU can be seen; berth doctor tells why",
        Some(_) if total > 0 => "the filter leaves nothing; Esc clears it",
        Some(snapshot) if snapshot.gpus.iter().any(|gpu| gpu.blind.is_some()) => {
            "nobody is known to be on the GPUs, but not all can be seen"
        }
        Some(_) => "nobody is on the GPUs",
    };
    Some(text.to_owned())
}

fn footer(app: &App) -> Footer {
    if app.is_typing() {
        return Footer::Typing(app.filter.clone());
    }
    Footer::Keys(match &app.last_change {
        Some(change) => format!("{KEYS}  │ {}", printable(change)),
        None => KEYS.to_owned(),
    })
}

fn popup(app: &App, rows: &[TaskRow], width: usize, zone: &TimeZone) -> Option<Popup> {
    match app.open {
        Open::Nothing => None,
        Open::Help => Some(help()),
        Open::Details => {
            let snapshot = app.snapshot.as_deref()?;
            let row = rows.get(app.selected_index()?)?;
            Some(details(snapshot, row, app.row_histories.get(&key_of(row)), width, zone))
        }
    }
}

fn help() -> Popup {
    let lines = HELP.iter().map(|&(key, does)| (key.to_owned(), does.to_owned()));
    Popup { title: "Keys".to_owned(), lines: lines.collect(), gauges: Vec::new() }
}

fn details(snapshot: &Snapshot, row: &TaskRow, histories: Option<&Histories>, width: usize, zone: &TimeZone) -> Popup {
    let kinds: Vec<&str> = row.process_kinds.iter().map(|kind| words::process_kind(*kind)).collect();
    let pids: Vec<String> = row.pids.iter().map(ToString::to_string).collect();
    let evidence = row.task_start_evidence.map_or("", words::evidence);
    let lines = [
        ("tenant", row.tenant.to_string()),
        ("owner", text_or_unknown(row.owner.as_ref())),
        ("image", text_or_unknown(row.image.as_ref())),
        ("up since", row.container_started_at.map_or_else(unknown, |at| time(at, zone))),
        ("command", row.command.clone()),
        ("processes", format!("{} ({})", pids.join(" "), kinds.join(", "))),
        ("GPU", format!("{} {}", text_or_unknown(row.gpu_index), text_or_unknown(row.gpu_uuid.as_ref()))),
        ("state", row.state.as_str().to_owned()),
        ("task", text_or_unknown(row.task_id.map(|task| task.0))),
        ("started", row.task_started_at.map_or_else(unknown, |at| format!("{}, {evidence}", time(at, zone)))),
        ("on the GPU", row.task_seconds.map_or_else(unknown, elapsed)),
        ("hold", row.hold.as_ref().map_or_else(unknown, |hold| words::hold::held(hold, snapshot.taken_at))),
    ];
    let deadline = row.deadline.iter().flat_map(words::deadline::facts);
    let kernels = snapshot.kernels.iter().flat_map(|level| &level.rows);
    let kernels = kernels.filter(|kernels| kernels.tenant.is(&row.tenant) && kernels.gpu_index == row.gpu_index);
    let deadline = deadline.chain(kernels.flat_map(words::kernels::facts));
    let core = Gauge {
        percent: row.gpu_core_pct.map(|core| core.get()),
        label: text_or_unknown(row.gpu_core_pct),
        history: histories.map(|histories| histories.core.last(width)).unwrap_or_default(),
    };
    let memory = memory_gauge(row.gpu_memory_bytes, gpu_memory(snapshot, row.gpu_index), histories, width);
    Popup {
        title: cut(&printable(&row.container_name), 60),
        lines: lines.into_iter().chain(deadline).map(|(key, value)| (key.to_owned(), printable(&value))).collect(),
        gauges: vec![("mem", memory), ("core", core)],
    }
}

fn text_or_unknown(value: Option<impl ToString>) -> String {
    value.map_or_else(unknown, |value| value.to_string())
}

fn unknown() -> String {
    "-".to_owned()
}

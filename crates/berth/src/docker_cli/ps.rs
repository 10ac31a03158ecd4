//! `docker ps` with a column for deadlines: the client's own table, asked for with one more column.
//!
//! Where the user says how the list is to look, by a flag or in the client's settings, it looks like that.

use berth_model::deadline::LABEL;

use super::flags::{FlagSet, Standing, Takes};

/// The client's default table. `.Label` has no header of its own that could be chosen, so it is told by the header of
/// another column whether the line is that of headers.
const TABLE: &str = r"table {{.ID}}\t{{.Image}}\t{{.Command}}\t{{.RunningFor}}\t{{.Status}}\t{{.Ports}}\t{{.Names}}";
const SIZE: &str = r"\t{{.Size}}";
const HEADER: &str = r#"\t{{if eq .ID "CONTAINER ID"}}DEADLINES"#;

/// Digits of an id that the client shows.
const SHORT_ID: usize = 12;

/// A label without a value whose name is a deadline, as the client makes of `-dl 9`: digits and then at most a unit. It
/// counts if it is the only such one, and is `.` of what comes behind this. What is left of `9ms=` without its digits is `ms=`, and `9ms=` ends with that.
const STOCK_LABEL: &str = concat!(
    r#"{{$found := ""}}{{range split .Labels ","}}{{$label := .}}"#,
    r#"{{$rest := join (split $label "0") ""}}{{$unit := $rest}}"#,
    r#"{{range split "1 2 3 4 5 6 7 8 9 ." " "}}{{$unit = join (split $unit .) ""}}{{end}}"#,
    r#"{{if ne $rest $unit}}{{if or (eq $unit "=") (eq $unit "ms=") (eq $unit "s=") (eq $unit "m=") (eq $unit "h=")}}"#,
    r#"{{$parts := split $label $unit}}{{if eq (len $parts) 2}}{{if eq (index $parts 1) ""}}"#,
    r#"{{$found = printf "%s %s" $found (index (split $label "=") 0)}}"#,
    r#"{{end}}{{end}}{{end}}{{end}}{{end}}"#,
    r#"{{if eq (len (split $found " ")) 2}}{{with index (split $found " ") 1}}"#,
);

/// What a label says, which may be anything: no more than would be a deadline, and what a terminal would obey only in quotes, as an
/// escape.
const SHOWN: &str = concat!(
    r#"{{$cut := printf "%.20s" .}}{{$quoted := printf "%+q" $cut}}"#,
    r#"{{if eq $quoted (printf "\"%s\"" $cut)}}{{$cut}}{{else}}{{$quoted}}{{end}}{{if ne $cut .}}...{{end}}"#,
);

/// A deadline that is another than its container was made with: set, taken away, or put within the bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetDeadline {
    id: String,
    text: String,
}

impl SetDeadline {
    /// `None` for what could be more than text in a template.
    pub fn new(id: String, text: String) -> Option<Self> {
        let is_id = id.len() >= SHORT_ID && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_id && !text.contains(['{', '}', '\\'])).then_some(Self { id, text })
    }

    /// Its case of the template: the client shows an id whole or short.
    fn case(&self) -> String {
        let Self { id, text } = self;
        format!(r#"{{{{else if eq .ID "{id}" "{short}"}}}}{text}"#, short = &id[..SHORT_ID])
    }
}

/// The flags of `docker ps`, in every version of the client. One that has more is passed through.
fn flags() -> FlagSet {
    FlagSet::default()
        .with("all", Some('a'), Takes::Nothing)
        .with("filter", Some('f'), Takes::Value)
        .with("last", Some('n'), Takes::Value)
        .with("latest", Some('l'), Takes::Nothing)
        .with("no-trunc", None, Takes::Nothing)
        .with("size", Some('s'), Takes::Nothing)
}

/// What of the client's table is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    has_size: bool,
}

/// The table to ask the client for; `None` where its output is none of ours: quiet, formatted, help, or wrong.
pub fn table(args: &[String]) -> Option<Table> {
    let (flags, mut at, mut has_size) = (flags(), 0, false);
    loop {
        match flags.standing(args, at) {
            Standing::Unknown => return None,
            Standing::Operand(end) => return (end == args.len()).then_some(Table { has_size }),
            Standing::Flag(flag) => {
                if flag.is("size", Some('s')) {
                    has_size = flag.value.unwrap_or("true").parse().ok()?;
                }
                at += flag.tokens;
            }
        }
    }
}

impl Table {
    /// The client's `--format` for it. What the daemon tells goes before labels.
    pub fn format(&self, set: &[SetDeadline]) -> String {
        let size = if self.has_size { SIZE } else { "" };
        let set: String = set.iter().map(SetDeadline::case).collect();
        let stock = format!("{STOCK_LABEL}{SHOWN}{{{{end}}}}{{{{end}}}}");
        let label = format!(r#"{{{{with .Label "{LABEL}"}}}}{SHOWN}{{{{else}}}}{stock}{{{{end}}}}"#);
        format!("{TABLE}{size}{HEADER}{set}{{{{else}}}}{label}{{{{end}}}}")
    }
}

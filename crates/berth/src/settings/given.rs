//! Single values as they were given in a file or on the command line, each with its place.
//!
//! Every key of the settings is optional, so each value can be judged alone: all that are wrong are found, not the first.

use std::fmt;
use std::path::{Path, PathBuf};

use berth_model::Settings;
use berth_model::settings::MOST_ROWS;
use serde::Deserialize;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Table, Value};

/// How much of a line is shown, in characters.
const SHOWN: usize = 80;

/// Where a value was given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    File { path: PathBuf, line: usize },
    Option(String),
}

/// Something wrong, and where it comes from; `None` if from several places or none.
#[derive(Debug)]
pub struct Problem {
    pub place: Option<Place>,
    pub words: String,
}

#[derive(Debug)]
pub struct Given {
    /// `section.key`; a section alone if there is none of that name, or if it was given as something else.
    pub key: String,
    pub place: Place,
    /// `Err`: the digits of a number that is too large for any setting.
    value: Result<Value, String>,
    /// The same as text: on the command line nobody writes quotes.
    text: Option<String>,
}

/// The values of a file, or all that is wrong with its syntax.
pub fn in_file(path: &Path, text: &str) -> Result<Vec<Given>, Vec<Problem>> {
    // From 1.
    let line = |offset: usize| text[..offset].matches('\n').count() + 1;
    let place = |offset| Place::File { path: path.to_owned(), line: line(offset) };
    let (root, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(values(root.get_ref(), place));
    }
    let problem = |error: toml::de::Error| {
        let offset = error.span().map_or(text.len(), |span| span.start);
        let words =
            format!("{}, in `{}`", error.message(), shown(text.lines().nth(line(offset) - 1).unwrap_or_default()));
        Problem { place: Some(place(offset)), words }
    };
    Err(errors.into_iter().map(problem).collect())
}

/// A line of a file that may be anything.
fn shown(line: &str) -> String {
    line.trim().chars().filter(|letter| !letter.is_control()).take(SHOWN).collect()
}

/// The values of one `KEY=VALUE`. VALUE is TOML; what is not, such as `10ms` or a path, is a string.
pub fn in_argument(argument: &str) -> Result<Vec<Given>, Problem> {
    let place = Place::Option(format!("--set {argument}"));
    let all = |text: &str| DeTable::parse(text).ok().map(|root| values(root.get_ref(), |_| place.clone()));
    let as_text = |(key, value): (&str, &str)| all(&format!("{key} = {}", Value::from(value)));
    let given = all(argument).or_else(|| as_text(argument.split_once('=')?)).filter(|given| !given.is_empty());
    let mut given = given.ok_or_else(|| {
        let words = "write KEY=VALUE, such as `monitor.fast_interval=10ms`".to_owned();
        Problem { place: Some(place.clone()), words }
    })?;
    if let ([given], Some((key, text))) = (&mut given[..], argument.split_once('='))
        && given.key == key.trim()
    {
        given.text = Some(text.to_owned());
    }
    Ok(given)
}

/// `place` is told where in the text the value's key stands.
fn values(root: &DeTable<'_>, place: impl Fn(usize) -> Place) -> Vec<Given> {
    let given = |key: String, offset: usize, value: &Spanned<DeValue<'_>>| {
        let read = Value::deserialize(ValueDeserializer::from(value.clone()));
        let value = read.map_err(|error| match value.get_ref() {
            DeValue::Integer(number) => number.to_string(),
            _ => error.message().to_owned(),
        });
        Given { key, place: place(offset), value, text: None }
    };
    let mut all = Vec::new();
    for (section, value) in root {
        let name = section.get_ref();
        match value.get_ref().as_table() {
            Some(keys) if is_section(name) => {
                all.extend(
                    keys.iter().map(|(key, value)| given(format!("{name}.{}", key.get_ref()), key.span().start, value)),
                );
            }
            _ => all.push(given(name.to_string(), section.span().start, value)),
        }
    }
    all
}

fn is_section(name: &str) -> bool {
    settings_with(name, Value::Table(Table::new())).is_ok()
}

fn settings_with(key: &str, value: Value) -> Result<Settings, toml::de::Error> {
    let mut table = Table::new();
    put(&mut table, key, value);
    Settings::deserialize(table)
}

/// Puts a value where `section.key` says.
pub fn put(table: &mut Table, key: &str, value: Value) {
    let Some((section, leaf)) = key.split_once('.') else {
        table.insert(key.to_owned(), value);
        return;
    };
    let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = section {
        section.insert(leaf.to_owned(), value);
    }
}

// === impl Given ===

impl Given {
    /// The value, if the settings can take it; else in which words it is refused.
    pub fn judge(&self) -> Result<Value, String> {
        if is_section(&self.key) {
            return Err(format!("a section is expected: write `[{}]`, and its keys below it", self.key));
        }
        let refused = match &self.value {
            Ok(value) => match settings_with(&self.key, value.clone()) {
                Ok(_) => return Ok(value.clone()),
                Err(error) => error.message().to_owned(),
            },
            Err(digits) => self.too_large(digits),
        };
        let text = self.text.clone().map(Value::from);
        text.filter(|text| settings_with(&self.key, text.clone()).is_ok()).ok_or(refused)
    }

    fn too_large(&self, digits: &str) -> String {
        if settings_with(&self.key, Value::from(1)).is_ok() {
            let most = if self.key == "table.rows" { i64::from(MOST_ROWS) } else { i64::MAX };
            return format!("{digits} is too large: must be at most {most}");
        }
        // A number is the mistake, not its size.
        let refused = settings_with(&self.key, Value::from(i64::MAX)).map_err(|error| error.message().to_owned());
        refused.err().unwrap_or_default().replace(&i64::MAX.to_string(), digits)
    }
}

// === impl Place ===

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Place::Option(option) => f.write_str(option),
        }
    }
}

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.words),
            None => f.write_str(&self.words),
        }
    }
}

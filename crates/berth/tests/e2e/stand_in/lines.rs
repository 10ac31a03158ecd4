//! The table of command lines in `lines.txt`, which says at its head what is expected of which.

#[derive(Debug)]
pub struct Line {
    pub text: &'static str,
    pub expected: Expected,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Expected {
    /// What the client answers to this line.
    Client(&'static str),
    Refusal(&'static str),
    Column,
    Help,
}

impl Line {
    /// Whether it looks at all containers of the engine.
    pub fn is_alone(&self) -> bool {
        let is_list =
            |text: &str| ["docker ps", "container ls", "container list", "$P"].iter().any(|list| text.contains(list));
        !matches!(self.expected, Expected::Client(text) if !is_list(text)) && self.expected != Expected::Help
    }
}

pub fn lines() -> Vec<Line> {
    let texts = include_str!("lines.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    texts.map(line).collect()
}

fn line(text: &'static str) -> Line {
    let (text, expected) = if let Some((text, other)) = text.split_once("  =>  ") {
        (text, Expected::Client(other))
    } else if let Some((text, told)) = text.split_once("  =!  ") {
        (text, Expected::Refusal(told))
    } else if let Some(text) = text.strip_suffix("  =+") {
        (text, Expected::Column)
    } else if let Some(text) = text.strip_suffix("  =?") {
        (text, Expected::Help)
    } else {
        (text, Expected::Client(text))
    };
    Line { text, expected }
}

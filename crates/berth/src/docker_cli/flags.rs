//! How the client reads flags, as far as it matters for finding one: which tokens are flags, and which are their values.
//!
//! The rules are those of the library it uses (pflag): `--name value`, `--name=value`, `-n value`, `-n=value`, `-nvalue`, and
//! several short ones in one token, of which the last may take a value. Flags end at the first token that is none, or behind `--`.
//! Values are not judged: that is the client's.

use std::collections::BTreeMap;

/// Whether a flag takes a value. One that takes none may still have one behind `=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Value,
}

/// The flags of one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlagSet {
    long: BTreeMap<String, Takes>,
    short: BTreeMap<char, Takes>,
}

/// What stands at some place of a command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Standing<'a> {
    Flag(Flag<'a>),
    /// The first token behind all flags: this one, or the one behind `--`; as its index.
    Operand(usize),
    /// A flag that is not of this command. Only the client knows what to say about it.
    Unknown,
}

/// One flag, or several short ones in one token.
#[derive(Debug, PartialEq, Eq)]
pub struct Flag<'a> {
    pub name: Name<'a>,
    /// Of the last of them.
    pub value: Option<&'a str>,
    /// How many tokens it takes, its value included.
    pub tokens: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name<'a> {
    Long(&'a str),
    /// Letters.
    Short(&'a str),
}

impl FlagSet {
    pub fn add(&mut self, long: &str, short: Option<char>, takes: Takes) {
        self.long.insert(long.to_owned(), takes);
        self.short.extend(short.map(|short| (short, takes)));
    }

    pub fn with(mut self, long: &str, short: Option<char>, takes: Takes) -> Self {
        self.add(long, short, takes);
        self
    }

    /// What stands at `at`, which is not inside of a flag before.
    pub fn standing<'a>(&self, tokens: &'a [String], at: usize) -> Standing<'a> {
        let Some(token) = tokens.get(at) else { return Standing::Operand(at) };
        if token == "--" {
            return Standing::Operand(at + 1);
        }
        if let Some(long) = token.strip_prefix("--") {
            return self.long(long, tokens.get(at + 1));
        }
        match token.strip_prefix('-') {
            Some(letters) if !letters.is_empty() => self.short(letters, tokens.get(at + 1)),
            _ => Standing::Operand(at),
        }
    }

    fn long<'a>(&self, text: &'a str, next: Option<&'a String>) -> Standing<'a> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        match self.long.get(name) {
            None => Standing::Unknown,
            Some(takes) => flag(Name::Long(name), value, *takes, next),
        }
    }

    fn short<'a>(&self, text: &'a str, next: Option<&'a String>) -> Standing<'a> {
        for (at, letter) in text.char_indices() {
            let (letters, rest) = text.split_at(at + letter.len_utf8());
            let value = rest.strip_prefix('=');
            match self.short.get(&letter) {
                None => return Standing::Unknown,
                Some(Takes::Nothing) if value.is_none() => {}
                Some(takes) => {
                    let value = value.or_else(|| (!rest.is_empty()).then_some(rest));
                    return flag(Name::Short(letters), value, *takes, next);
                }
            }
        }
        flag(Name::Short(text), None, Takes::Nothing, None)
    }
}

fn flag<'a>(name: Name<'a>, value: Option<&'a str>, takes: Takes, next: Option<&'a String>) -> Standing<'a> {
    let next = next.filter(|_| takes == Takes::Value && value.is_none());
    let tokens = 1 + usize::from(next.is_some());
    Standing::Flag(Flag { name, value: value.or_else(|| next.map(String::as_str)), tokens })
}

impl Flag<'_> {
    /// Whether it is this flag, alone or among other short ones.
    pub fn is(&self, long: &str, short: Option<char>) -> bool {
        match self.name {
            Name::Long(name) => name == long,
            Name::Short(letters) => short.is_some_and(|short| letters.contains(short)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> FlagSet {
        FlagSet::default()
            .with("detach", Some('d'), Takes::Nothing)
            .with("interactive", Some('i'), Takes::Nothing)
            .with("label", Some('l'), Takes::Value)
            .with("name", None, Takes::Value)
    }

    /// The flags of a line as `name:value/tokens`, and where they end.
    fn read(line: &str) -> (Vec<String>, Option<usize>) {
        let tokens: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (mut found, mut at) = (Vec::new(), 0);
        loop {
            match run().standing(&tokens, at) {
                Standing::Unknown => return (found, None),
                Standing::Operand(end) => return (found, Some(end)),
                Standing::Flag(flag) => {
                    let (Name::Long(name) | Name::Short(name)) = flag.name;
                    found.push(format!("{name}:{}/{}", flag.value.unwrap_or("none"), flag.tokens));
                    at += flag.tokens;
                }
            }
        }
    }

    #[test]
    fn a_value_is_the_next_token_or_stands_in_the_same() {
        let read = |line| read(line).0.join(" ");
        assert_eq!(read("-l a=b --name x image"), "l:a=b/2 name:x/2");
        assert_eq!(read("-l=a=b --name=x image"), "l:a=b/1 name:x/1");
        assert_eq!(read("-la=b --name= image"), "l:a=b/1 name:/1");
        assert_eq!(read("-l --name --name -l image"), "l:--name/2 name:-l/2");
        assert_eq!(read("-l -- image"), "l:--/2");
    }

    #[test]
    fn short_flags_stand_together_and_the_last_may_take_a_value() {
        let read = |line| read(line).0.join(" ");
        assert_eq!(read("-di image"), "di:none/1");
        assert_eq!(read("-dil 9 image"), "dil:9/2");
        assert_eq!(read("-dl9 image"), "dl:9/1");
        assert_eq!(read("-dlid image"), "dl:id/1");
        assert_eq!(read("-d=false -i image"), "d:false/1 i:none/1");
        assert_eq!(read("--detach=false image"), "detach:false/1");
    }

    #[test]
    fn flags_end_at_the_first_other_token_or_behind_two_dashes() {
        assert_eq!(read("-d image -l 9").1, Some(1));
        assert_eq!(read("-d -- -l 9").1, Some(2));
        assert_eq!(read("- -l 9").1, Some(0));
        assert_eq!(read("-d -l").1, Some(2), "its value is missing, which the client says");
        assert_eq!(read("-d --what image").1, None);
        assert_eq!(read("-dx image").1, None);
    }
}

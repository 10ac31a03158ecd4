//! Names with wildcards, as settings give them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `*` stands for any characters, `/` included, and none; `?` for exactly one. Everything else stands for itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// The whole name, not a part of it.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name): (Vec<char>, Vec<char>) = (self.0.chars().collect(), name.chars().collect());
        let (mut at, mut read) = (0, 0);
        // After the last `*`, and how much of the name was read there: it may have stood for more.
        let mut star: Option<(usize, usize)> = None;
        while read < name.len() {
            match pattern.get(at) {
                Some('*') => {
                    star = Some((at + 1, read));
                    at += 1;
                }
                Some(&letter) if letter == '?' || letter == name[read] => {
                    at += 1;
                    read += 1;
                }
                _ => match &mut star {
                    Some((after, from)) => {
                        *from += 1;
                        (at, read) = (*after, *from);
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|letter| *letter == '*')
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stars_stand_for_anything_and_the_rest_for_itself() {
        let matches = |pattern: &str, name: &str| Pattern::from(pattern).matches(name);
        for (pattern, name) in [("db-*", "db-7"), ("*", ""), ("/system.slice/*", "/system.slice/a/b"), ("j?b", "jöb")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("db", "db-7"), ("db", "a-db"), ("", "x"), ("?", ""), ("a.c", "abc"), ("*a", "ab")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        assert!(matches("*a*b", "xaxbxab") && !matches("*a*b", "xaxbxa"), "a star that stood for too little gives way");
    }

    /// By trying everything a star may stand for.
    fn slowly(pattern: &[char], name: &[char]) -> bool {
        match pattern {
            [] => name.is_empty(),
            ['*', rest @ ..] => (0..=name.len()).any(|taken| slowly(rest, &name[taken..])),
            [letter, rest @ ..] => match name {
                [first, others @ ..] => (*letter == '?' || letter == first) && slowly(rest, others),
                [] => false,
            },
        }
    }

    proptest! {
        #[test]
        fn what_matches_is_what_trying_everything_finds(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            let (letters, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
            prop_assert_eq!(Pattern::from(pattern.as_str()).matches(&name), slowly(&letters, &text));
        }
    }
}

//! A part of a whole as people write it: `25%`, `99.9%`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A part of something, 0 to all of it, in millionths: fine enough for `99.99%`, and equal to itself after being written and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Share(u32);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a share: write percent with its sign, such as `25%` or `99.9%`, of 100% at most")]
pub struct InvalidShare {
    text: String,
}

impl Share {
    pub const NONE: Share = Share(0);
    pub const WHOLE: Share = Share(1_000_000);

    /// `None` above the whole.
    pub const fn from_millionths(millionths: u32) -> Option<Self> {
        if millionths <= Self::WHOLE.0 { Some(Self(millionths)) } else { None }
    }

    /// 0 to 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE.0)
    }
}

impl FromStr for Share {
    type Err = InvalidShare;

    fn from_str(text: &str) -> Result<Self, InvalidShare> {
        let invalid = || InvalidShare { text: text.to_owned() };
        let number = text.trim().strip_suffix('%').ok_or_else(invalid)?.trim_end();
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > 4 {
            return Err(invalid());
        }
        let millionths = |text: &str| text.parse::<u32>().ok();
        let whole = millionths(whole).and_then(|whole| whole.checked_mul(10_000)).ok_or_else(invalid)?;
        let part = millionths(&format!("{part:0<4}")).ok_or_else(invalid)?;
        whole.checked_add(part).and_then(Self::from_millionths).ok_or_else(invalid)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 10_000, self.0 % 10_000);
        if part == 0 {
            return write!(f, "{whole}%");
        }
        write!(f, "{whole}.{}%", format!("{part:04}").trim_end_matches('0'))
    }
}

impl From<Share> for String {
    fn from(share: Share) -> String {
        share.to_string()
    }
}

impl TryFrom<String> for Share {
    type Error = InvalidShare;

    fn try_from(text: String) -> Result<Self, InvalidShare> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_read_as_people_write_them() {
        for (text, millionths) in
            [("25%", 250_000), ("99.9%", 999_000), ("99.99 %", 999_900), ("0%", 0), ("100%", 1_000_000)]
        {
            assert_eq!(text.parse(), Ok(Share(millionths)), "{text}");
        }
    }

    #[test]
    fn what_is_no_share_is_refused_by_value() {
        for text in ["25", "", "%", "101%", "100.0001%", "-5%", "1e2%", ".5%", "5.%", "99.99999%", "99999999999%"] {
            let told = text.parse::<Share>().unwrap_err().to_string();
            assert!(told.contains(&format!("`{text}`")) && told.contains("`25%`"), "{told}");
        }
    }

    proptest! {
        #[test]
        fn a_share_survives_being_written_and_read(millionths in 0..=1_000_000u32) {
            let share = Share(millionths);
            prop_assert_eq!(share.to_string().parse(), Ok(share));
        }
    }
}

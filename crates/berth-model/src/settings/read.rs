//! Reading of settings whose own way of refusing a value would speak of Rust's types.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, IntoDeserializer, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::problems::MOST_ROWS;
use crate::quantity::Percent;

pub(super) fn count<'de, T: TryFrom<u64>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(Count(PhantomData))
}

/// One of a few words. An enum alone takes tables too, and refuses other things as being no variant.
pub(super) fn choice<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::deserialize(String::deserialize(deserializer)?.into_deserializer())
}

/// Rows of the task table, which has less room than the type.
pub(super) fn rows<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let rows: u64 = count(deserializer)?;
    u32::try_from(rows).map_err(|_| de::Error::custom(format!("{rows} is too large: must be at most {MOST_ROWS}")))
}

/// A share of a device's time or memory.
pub(super) fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Percent, D::Error> {
    deserializer.deserialize_any(Share)
}

/// Permissions, as text: what the number 660 would mean is anybody's guess.
pub(super) fn octal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    deserializer.deserialize_any(Octal)
}

struct Octal;

impl Visitor<'_> for Octal {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("permissions in octal and in quotes, such as \"0660\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

struct Share;

impl Visitor<'_> for Share {
    type Value = Percent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a share in percent, 0 to 100")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Percent, E> {
        let share = u32::try_from(number).ok().and_then(Percent::checked);
        share.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    /// As JSON has it.
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Percent, E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }
}

struct Count<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for Count<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, 0 or more")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        T::try_from(number).map_err(|_| E::custom(format!("{number} is too large")))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}

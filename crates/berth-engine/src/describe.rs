//! Errors as reasons: one line, for a status, a log or a person.

use std::error::Error;

/// The error and what is behind it.
pub fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("opening it")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn every_cause_is_named_from_the_outermost_inwards() {
        assert_eq!(describe(&Outer(std::io::Error::other("no such thing"))), "opening it: no such thing");
    }
}

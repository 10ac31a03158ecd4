//! JSON that ends too early, cut back to what is certainly complete.
//!
//! A value counts only if something follows it that ends it: half a number is another number.

use serde_json::Value;

/// The longest sound beginning of `text`, closed; `None` if there is none.
pub fn mend(text: &str) -> Option<Value> {
    let mut open = Vec::new();
    let mut sound: Option<(usize, Vec<char>)> = None;
    let (mut in_string, mut is_escaped) = (false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if in_string => is_escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' | '[' => {
                open.push(if character == '{' { '}' } else { ']' });
                sound = Some((at + 1, open.clone()));
            }
            '}' | ']' => {
                (open.pop()? == character).then_some(())?;
                sound = Some((at + 1, open.clone()));
            }
            ',' => sound = Some((at, open.clone())),
            _ => {}
        }
    }
    let (end, open) = sound?;
    let closed: String = text[..end].chars().chain(open.into_iter().rev()).collect();
    serde_json::from_str(&closed).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_whole_stays_as_it_is() {
        let value = json!({"a": [1, {"b": "x,]}\"\\"}], "c": null});
        assert_eq!(mend(&value.to_string()), Some(value));
    }

    #[test]
    fn half_a_number_is_no_number() {
        assert_eq!(mend(r#"{"a":1,"pids":[12,34"#), Some(json!({"a": 1, "pids": [12]})));
        assert_eq!(mend(r#"{"a":1,"b":{"c":2"#), Some(json!({"a": 1, "b": {}})));
    }

    #[test]
    fn what_never_was_json_is_nothing() {
        for text in ["", "}", "]{", "hello", "{]"] {
            assert_eq!(mend(text), None, "{text}");
        }
    }
}

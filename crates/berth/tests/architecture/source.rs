//! Rust source as text, with what is not code taken out.
//!
//! A lexer just good enough for rules about words: comments, strings and character literals become blanks, so that a
//! sentence about `unsafe` is not mistaken for the thing. It does not expand macros or resolve names.

/// The code of a file: same lines, no comments, no literals.
pub fn code(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut kept = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + skipped(bytes, at).unwrap_or(0);
        for byte in &mut kept[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(kept).expect("only whole literals and comments were blanked")
}

/// How many bytes the comment or literal that begins at `at` takes; none if code begins there.
fn skipped(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let inside_a_word = at > 0 && is_word(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => Some(find(rest, b"\n").unwrap_or(rest.len())),
        [b'/', b'*', ..] => Some(find(rest, b"*/").map_or(rest.len(), |end| end + 2)),
        [b'"', ..] => Some(quoted(rest, b'"')),
        [b'r', b'"' | b'#', ..] if !inside_a_word => raw(rest),
        [b'\'', b'\\', ..] => Some(quoted(rest, b'\'')),
        // 'x' is a character, 'x without an end is a lifetime; a character is at most four bytes.
        [b'\'', ..] => {
            rest.iter().skip(2).take(4).position(|byte| *byte == b'\'').map(|end| end + 3).filter(|length| {
                let character = &rest[1..length - 1];
                std::str::from_utf8(character).is_ok_and(|text| text.chars().count() == 1)
            })
        }
        _ => None,
    }
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let body = 2 + hashes;
    Some(find(&rest[body..], &end).map_or(rest.len(), |at| body + at + end.len()))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// `code` without the modules and functions that only tests compile.
pub fn without_tests(code: &str) -> String {
    let mut kept = code.to_owned();
    while let Some(begin) = ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| kept.find(mark)).min() {
        let end = item_end(&kept, begin);
        let blank: String = kept[begin..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        kept.replace_range(begin..end, &blank);
    }
    kept
}

/// Where the item after an attribute ends: at its closing brace, or at a semicolon before any brace.
fn item_end(code: &str, begin: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(begin) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return at + 1,
            b'}' => depth -= 1,
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The lines (from 1) on which `word` stands as a whole word; `::` inside it may be spelled with groups
/// (`std::{fs, io}` mentions `std::fs`).
pub fn lines_with(code: &str, word: &str) -> Vec<usize> {
    let line_of = |at: usize| code[..at].matches('\n').count() + 1;
    let mut lines: Vec<usize> = whole(code, word).map(line_of).collect();
    if let Some((path, last)) = word.rsplit_once("::") {
        let group = format!("{path}::{{");
        for (begin, _) in code.match_indices(&group) {
            let end = item_end(code, begin);
            lines.extend(whole(&code[begin..end], last).map(|at| line_of(begin + at)));
        }
    }
    lines.sort_unstable();
    lines
}

fn whole<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = at.checked_sub(1).is_some_and(|before| is_word(bytes[before]));
        let after = bytes.get(at + word.len()).is_some_and(|byte| is_word(*byte));
        !before && !after
    })
}

#[test]
fn comments_and_literals_are_not_code() {
    let source =
        "let a = \"unsafe \\\" unsafe\"; // unsafe\n/* unsafe */ let b = r#\"unsafe\"#; let c = '\"'; let d = 'é';";
    assert_eq!(lines_with(&code(source), "unsafe"), Vec::<usize>::new());
    assert_eq!(code(source).lines().count(), 2);
}

#[test]
fn lifetimes_are_code() {
    let source = "fn f<'a>(x: &'a str) -> &'a str { unsafe { g(x) } }";
    assert_eq!(code(source), source);
}

#[test]
fn a_word_inside_another_is_another_word() {
    assert!(lines_with("#![forbid(unsafe_code)]", "unsafe").is_empty());
    assert_eq!(lines_with("fn f() {}\nunsafe fn g() {}", "unsafe"), [2]);
}

#[test]
fn a_path_in_a_group_is_found() {
    assert_eq!(lines_with("use std::{io,\n fs::File};", "std::fs"), [2]);
    assert_eq!(lines_with("use std::fs;", "std::fs"), [1]);
    assert!(lines_with("use std::{io, collections::BTreeMap};", "std::fs").is_empty());
}

#[test]
fn test_code_is_left_out() {
    let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { unsafe {} }\n}\nunsafe fn c() {}";
    assert_eq!(lines_with(&without_tests(source), "unsafe"), [6]);
    assert!(lines_with(&without_tests("#[cfg(test)]\nmod tests;\nfn x() {}"), "tests").is_empty());
}

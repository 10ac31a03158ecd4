//! The settings file with all defaults and what each key means.
//!
//! The doc comments of the settings' types are the manual, and this reads them out of their source: there is no second
//! text that could say something else. It knows just enough Rust for those files; a test holds that no section and
//! no key is lost.

use berth_model::Settings;

const SOURCE: &str = concat!(
    include_str!("../../berth-model/src/settings.rs"),
    include_str!("../../berth-model/src/settings/policy.rs"),
    include_str!("../../berth-model/src/settings/cluster.rs"),
    include_str!("../../berth-model/src/settings/kernels.rs"),
    include_str!("../../berth-model/src/settings/kubernetes.rs"),
);
const WIDTH: usize = 100;

/// A TOML file that means the same as no file at all.
pub fn commented_default() -> String {
    let toml = toml::to_string(&Settings::default()).expect("settings are plain data");
    let mut out = String::from("# Settings of berth. Every key is optional; these are the defaults.\n");
    let mut section_type = None;
    for line in toml.lines() {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section_type = field("Settings", section).map(|field| field.kind);
            comment(&mut out, &section_type.map(docs_of_type).unwrap_or_default());
        } else if let Some((key, _)) = line.split_once(" = ") {
            comment(&mut out, &section_type.map(|kind| docs_of_field(kind, key)).unwrap_or_default());
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

fn comment(out: &mut String, docs: &str) {
    let mut line = String::new();
    for word in docs.split_whitespace() {
        if !line.is_empty() && line.len() + word.len() > WIDTH {
            out.push_str(&format!("#{line}\n"));
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    if !line.is_empty() {
        out.push_str(&format!("#{line}\n"));
    }
}

struct Field {
    docs: String,
    kind: &'static str,
}

fn docs_of_type(name: &str) -> String {
    docs_before(SOURCE, &format!("pub struct {name} {{"))
}

/// Its doc comment; for a choice without one, what there is to choose from.
fn docs_of_field(of: &str, key: &str) -> String {
    let Some(field) = field(of, key) else { return String::new() };
    let choices = choices(field.kind);
    match (field.docs.is_empty(), choices.is_empty()) {
        (true, false) => format!("One of {}.", choices.join(", ")),
        _ => field.docs,
    }
}

fn field(of: &str, name: &str) -> Option<Field> {
    let body = body_of(&format!("pub struct {of} {{"))?;
    let head = format!("pub {name}: ");
    let kind = body.lines().find_map(|line| line.trim().strip_prefix(&head)?.strip_suffix(','))?;
    Some(Field { docs: docs_before(body, &head), kind })
}

/// The variants of an enum as they are written in the file; empty for other types.
fn choices(kind: &str) -> Vec<String> {
    let body = body_of(&format!("pub enum {kind} {{")).unwrap_or_default();
    let variants = body.lines().map(str::trim).filter_map(|line| line.strip_suffix(','));
    variants.map(|variant| format!("`{}`", variant.to_lowercase())).collect()
}

fn body_of(head: &str) -> Option<&'static str> {
    let (_, after) = SOURCE.split_once(head)?;
    after.split_once("\n}").map(|(body, _)| body)
}

/// The doc comment right above the line that holds `head`; attributes in between are passed over.
fn docs_before(text: &str, head: &str) -> String {
    let Some(end) = text.find(head) else { return String::new() };
    let above = text[..end].lines().rev().map(str::trim).skip_while(|line| line.is_empty() || line.starts_with("#["));
    let mut docs: Vec<&str> = above.map_while(|line| line.strip_prefix("///")).map(str::trim).collect();
    docs.reverse();
    docs.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_file_is_the_default() {
        assert_eq!(toml::from_str::<Settings>(&commented_default()).unwrap(), Settings::default());
    }

    #[test]
    fn every_section_and_every_key_is_found_in_the_source() {
        let toml: toml::Table = toml::from_str(&commented_default()).unwrap();
        for (section, keys) in &toml {
            let kind = field("Settings", section).unwrap_or_else(|| panic!("[{section}] is lost")).kind;
            for key in keys.as_table().unwrap().keys() {
                assert!(field(kind, key).is_some(), "{section}.{key} is lost");
            }
        }
    }

    /// `BERTH_UPDATE_EXPECTED=1` writes the page anew; review the difference.
    #[test]
    fn the_documentation_lists_every_setting() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, _) = page.split_once("## All settings\n").expect("the section is there");
        let listed = format!(
            "{before}## All settings\n\nWhat `berth config default` prints.\n\n```toml\n{}```\n",
            commented_default()
        );
        if std::env::var_os("BERTH_UPDATE_EXPECTED").is_some() {
            std::fs::write(path, &listed).unwrap();
            return;
        }
        let differs = page.lines().zip(listed.lines()).find(|(written, meant)| written != meant);
        assert!(page == listed, "docs/configuration.md is not up to date, with {differs:?}: write it anew");
    }
}

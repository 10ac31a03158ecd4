//! What an image brings along that matters to a library which is to be preloaded: asked of the engine, through the client.

use std::ffi::OsString;
use std::fs;
use std::process::{Output, Stdio};

use berth_model::taking_part::PRELOAD_VARIABLE;

use super::client::Client;
use super::kernel_level::{Image, Preload};

/// Loaders by which programs of an image are started.
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";
const GLIBC: &str = "/lib64/ld-linux-x86-64.so.2";

/// `None` if the engine does not have it, or does not answer.
pub fn look(client: &Client, globals: &[OsString], name: &str) -> Option<Image> {
    let asked = ask(client, globals, &["image", "inspect", "--format", "{{json .Config.Env}}", name])?;
    let variables: Option<Vec<String>> = serde_json::from_slice(&asked.stdout).ok()?;
    let preload = in_variables(variables.unwrap_or_default().iter().map(String::as_str));
    Some(Image { preload, is_musl: is_musl(client, globals, name) })
}

/// An image's files are seen in a container only: one is made, never started, and removed. Where that fails it is taken for any other image,
/// which is safe: musl passes over the library.
fn is_musl(client: &Client, globals: &[OsString], name: &str) -> bool {
    let made = ask(client, globals, &["create", "--pull=never", "--network=none", "--entrypoint=/", name]);
    let Some(id) = made.and_then(|made| String::from_utf8(made.stdout).ok()) else { return false };
    let has = |file: &str| ask(client, globals, &["cp", &format!("{}:{file}", id.trim()), "-"]).is_some();
    let is_musl = has(MUSL) && !has(GLIBC);
    if ask(client, globals, &["rm", "--volumes", id.trim()]).is_none() {
        super::say(&format!("the container {} that was made to look into {name} could not be removed", id.trim()));
    }
    is_musl
}

fn ask(client: &Client, globals: &[OsString], words: &[&str]) -> Option<Output> {
    let args: Vec<OsString> = globals.iter().cloned().chain(words.iter().map(OsString::from)).collect();
    let output = client.child(&args).stdin(Stdio::null()).output().ok()?;
    output.status.success().then_some(output)
}

/// A file that cannot be read is the client's to complain about.
pub fn preload(said: &Preload) -> Option<String> {
    match said {
        Preload::Said(value) => Some(value.clone()),
        Preload::OfClient => std::env::var(PRELOAD_VARIABLE).ok(),
        Preload::Files(files) => {
            files.iter().rev().find_map(|file| in_variables(fs::read_to_string(file).ok()?.lines()))
        }
    }
}

/// The last one counts.
fn in_variables<'a>(variables: impl DoubleEndedIterator<Item = &'a str>) -> Option<String> {
    let mut found = variables.rev().filter_map(|variable| variable.trim_start().split_once('='));
    found.find(|(name, _)| *name == PRELOAD_VARIABLE).map(|(_, value)| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_variable_of_the_name_counts_and_no_other() {
        let found = |text: &str| in_variables(text.lines());
        assert_eq!(
            found("A=1\nLD_PRELOAD=/a.so\n  LD_PRELOAD=/b.so:/c.so\n#LD_PRELOAD=/d.so").as_deref(),
            Some("/b.so:/c.so")
        );
        assert_eq!(found("LD_PRELOAD\nMY_LD_PRELOAD=/a.so"), None);
    }
}

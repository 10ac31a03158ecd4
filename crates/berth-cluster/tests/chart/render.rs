//! The chart as Helm would render it: as much of its template language as the chart uses, and a panic on anything else.
//!
//! Helm is in no package registry the tests may rely on. What is here: `define`, `include`, `if`, `else`, `end`, `range`, `and`, `required`,
//! `fail`, `toYaml`, `toJson`, `quote`, `indent`, `nindent`, `semverCompare` with `>=` and `<`, `sha256sum`, paths of fields, comments, and the trimming of
//! white space. `toYaml` writes JSON, which YAML is a superset of; `sha256sum` is some digest.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

pub fn chart_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/helm/berth")
}

pub fn values() -> Value {
    yaml(&std::fs::read_to_string(chart_dir().join("values.yaml")).unwrap())
}

/// What one document of YAML says.
pub fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Every object the chart makes for this version of Kubernetes, with these values on top of its own, and the CRD.
pub fn objects(kubernetes: &str, set: &[(&str, Value)]) -> Vec<Value> {
    let crds = std::fs::read_to_string(chart_dir().join("crds/gpunodes.yaml")).unwrap();
    let files = render(kubernetes, set).into_iter().filter(|(name, _)| name.ends_with(".yaml")).map(|(_, text)| text);
    let all: Vec<String> = files.chain([crds]).collect();
    let documents = all.iter().flat_map(|text| text.split("\n---\n")).filter(|text| !is_blank(text));
    documents.map(yaml).collect()
}

/// Every template by its file name, rendered.
pub fn render(kubernetes: &str, set: &[(&str, Value)]) -> BTreeMap<String, String> {
    let mut values = values();
    for (path, value) in set {
        let pointer = format!("/{}", path.replace('.', "/"));
        *values.pointer_mut(&pointer).unwrap_or_else(|| panic!("no value {path}")) = value.clone();
    }
    let root = json!({
        "Values": values,
        "Release": {"Name": "berth", "Namespace": "berth-system", "Service": "Helm"},
        "Chart": {"AppVersion": "0.1.0"},
        "Capabilities": {"KubeVersion": {"Version": kubernetes}},
    });
    let mut defined = BTreeMap::new();
    let mut templates = Vec::new();
    for entry in std::fs::read_dir(chart_dir().join("templates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let nodes = parse(&std::fs::read_to_string(&path).unwrap(), &mut defined);
        templates.push((name, nodes));
    }
    let templates = templates.into_iter().filter(|(name, _)| !name.starts_with('_'));
    templates.map(|(name, nodes)| (name, run(&nodes, &root, &root, &defined))).collect()
}

fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

#[derive(Debug, Clone)]
enum Node {
    Text(String),
    Action(String),
    If { condition: String, then: Vec<Node>, otherwise: Vec<Node> },
    Range { over: String, each: Vec<Node> },
}

type Defined = BTreeMap<String, Vec<Node>>;

/// Text and actions in turn, white space trimmed as `{{-` and `-}}` say.
fn tokens(text: &str) -> Vec<(bool, String)> {
    let (mut tokens, mut rest, mut trims_next) = (Vec::new(), text, false);
    while let Some(start) = rest.find("{{") {
        let end = start + rest[start..].find("}}").expect("an action ends");
        let (before, action) = (&rest[..start], &rest[start + 2..end]);
        let before = if trims_next { before.trim_start() } else { before };
        let trims = action.starts_with("- ");
        tokens.push((false, if trims { before.trim_end() } else { before }.to_owned()));
        trims_next = action.ends_with(" -");
        tokens.push((true, action.trim_start_matches("- ").trim_end_matches(" -").trim().to_owned()));
        rest = &rest[end + 2..];
    }
    tokens.push((false, if trims_next { rest.trim_start() } else { rest }.to_owned()));
    tokens
}

fn parse(text: &str, defined: &mut Defined) -> Vec<Node> {
    let tokens = tokens(text);
    let mut at = 0;
    let (nodes, end) = block(&tokens, &mut at, defined);
    assert_eq!(end, None, "an end without a beginning");
    nodes
}

/// Up to the `end` or `else` that it also answers.
fn block(tokens: &[(bool, String)], at: &mut usize, defined: &mut Defined) -> (Vec<Node>, Option<String>) {
    let mut nodes = Vec::new();
    while let Some((is_action, text)) = tokens.get(*at) {
        *at += 1;
        if !is_action {
            nodes.push(Node::Text(text.clone()));
            continue;
        }
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "/*" => {}
            "end" | "else" => return (nodes, Some(word.to_owned())),
            "define" => {
                let (body, _) = block(tokens, at, defined);
                defined.insert(rest.trim_matches('"').to_owned(), body);
            }
            "if" => {
                let (then, ended) = block(tokens, at, defined);
                let is_split = ended.as_deref() == Some("else");
                let otherwise = if is_split { block(tokens, at, defined).0 } else { Vec::new() };
                nodes.push(Node::If { condition: rest.to_owned(), then, otherwise });
            }
            "range" => {
                let (each, _) = block(tokens, at, defined);
                nodes.push(Node::Range { over: rest.to_owned(), each });
            }
            _ => nodes.push(Node::Action(text.clone())),
        }
    }
    (nodes, None)
}

fn run(nodes: &[Node], dot: &Value, root: &Value, defined: &Defined) -> String {
    let one = |node: &Node| match node {
        Node::Text(text) => text.clone(),
        Node::Action(pipe) => shown(&pipeline(pipe, dot, root, defined)),
        Node::If { condition, then, otherwise } => {
            let chosen = if is_true(&pipeline(condition, dot, root, defined)) { then } else { otherwise };
            run(chosen, dot, root, defined)
        }
        Node::Range { over, each } => {
            let items = pipeline(over, dot, root, defined);
            items.as_array().unwrap().iter().map(|item| run(each, item, root, defined)).collect()
        }
    };
    nodes.iter().map(one).collect()
}

fn pipeline(text: &str, dot: &Value, root: &Value, defined: &Defined) -> Value {
    let mut stages = text.split('|').map(str::trim);
    let first = call(stages.next().unwrap(), None, dot, root, defined);
    stages.fold(first, |value, stage| call(stage, Some(value), dot, root, defined))
}

fn call(stage: &str, piped: Option<Value>, dot: &Value, root: &Value, defined: &Defined) -> Value {
    let words = words(stage);
    let mut arguments: Vec<Value> = words[1..].iter().map(|word| operand(word, dot)).collect();
    arguments.extend(piped);
    let text = |at: usize| shown(&arguments[at]);
    match words[0].as_str() {
        "include" => run(&defined[&text(0)], &arguments[1], root, defined).into(),
        "toJson" | "toYaml" => arguments[0].to_string().into(),
        "quote" => format!("\"{}\"", text(0)).into(),
        "and" => arguments.iter().find(|argument| !is_true(argument)).unwrap_or(&arguments[1]).clone(),
        "fail" => panic!("{}", text(0)),
        "semverCompare" => {
            let (asked, is) = (text(0), version(&text(1)));
            let below = || asked.strip_prefix('<').expect("only `>=` and `<` are known");
            asked.strip_prefix(">=").map_or_else(|| is < version(below()), |least| is >= version(least)).into()
        }
        "sha256sum" => {
            let mut hasher = DefaultHasher::new();
            text(0).hash(&mut hasher);
            format!("{:016x}", hasher.finish()).into()
        }
        "indent" => indented(&text(1), &arguments[0]).into(),
        "nindent" => format!("\n{}", indented(&text(1), &arguments[0])).into(),
        "required" => {
            assert!(is_true(&arguments[1]), "required: {}", text(0));
            arguments.remove(1)
        }
        word => {
            assert!(arguments.is_empty(), "no function `{word}`");
            operand(word, dot)
        }
    }
}

/// Its major and minor number.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.trim_start_matches('v').split('.').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn indented(text: &str, width: &Value) -> String {
    let width = " ".repeat(usize::try_from(width.as_u64().unwrap()).unwrap());
    text.split('\n').map(|line| format!("{width}{line}")).collect::<Vec<_>>().join("\n")
}

/// Split at spaces outside of quotes.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for letter in text.chars() {
        match letter {
            ' ' if !is_quoted => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            _ => {
                is_quoted ^= letter == '"';
                word.push(letter);
            }
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

fn operand(word: &str, dot: &Value) -> Value {
    if word == "." {
        return dot.clone();
    }
    if let Some(path) = word.strip_prefix('.') {
        let found = path.split('.').try_fold(dot, |value, name| value.get(name));
        return found.unwrap_or_else(|| panic!("no value .{path}")).clone();
    }
    serde_json::from_str(word).unwrap_or_else(|_| panic!("`{word}` is neither a value nor a function"))
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is_true) => *is_true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

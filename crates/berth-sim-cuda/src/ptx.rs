//! The little that is read out of a PTX text: its kernels, their parameters, and what they cost.
//!
//! Cost is a comment in the text itself, so that the same file runs on a real GPU:
//!
//! ```text
//! // berth-cost: matmul flops 2 p3 p3 p3 bytes 12 p3 p3
//! ```
//!
//! Each factor is a number or `pN`, the kernel's Nth parameter (from 0) as an integer; the product of the factors is the
//! whole grid's arithmetic, or the bytes it moves. `flops` or `bytes` may be left out. This is no PTX parser: whatever
//! else is in the text is skipped.

/// A kernel found in a text, or one of a binary of which only the name is known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    /// `None`: nothing is said, so a default per thread applies.
    pub(crate) cost: Option<Formula>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) kind: Kind,
    pub(crate) bytes: usize,
    /// Where it lies in a packed buffer of all parameters.
    pub(crate) offset: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unsigned,
    Signed,
    Float,
    /// An array of bytes: has no value as a number.
    Aggregate,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Formula {
    pub(crate) flops: Vec<Factor>,
    pub(crate) bytes: Vec<Factor>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Factor {
    Number(f64),
    Parameter(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PtxError {
    /// A cost line that cannot be understood, or that names a kernel or parameter that is not there.
    Cost { line: String },
    /// A kernel's parameter list that cannot be understood.
    Parameters { kernel: String },
}

const COST_MARK: &str = "// berth-cost:";

/// Finds every kernel of a PTX text.
pub(crate) fn scan(text: &str) -> Result<Vec<Kernel>, PtxError> {
    let mut kernels = Vec::new();
    let code = without_comments(text);
    let mut rest = code.as_str();
    while let Some(at) = rest.find(".entry") {
        rest = &rest[at + ".entry".len()..];
        if !rest.starts_with(char::is_whitespace) {
            continue;
        }
        let end = rest.find(['(', '{', ';']).unwrap_or(rest.len());
        let name = rest[..end].split_whitespace().next().unwrap_or_default().to_owned();
        rest = &rest[end..];
        let list = rest.strip_prefix('(').map_or("", |list| list.split(')').next().unwrap_or(list));
        let parameters = parameters(list).ok_or_else(|| PtxError::Parameters { kernel: name.clone() })?;
        kernels.push(Kernel { name, parameters, cost: None });
    }
    for line in text.lines().filter_map(|line| line.trim().strip_prefix(COST_MARK)) {
        apply_cost(&mut kernels, line).ok_or_else(|| PtxError::Cost { line: line.trim().to_owned() })?;
    }
    Ok(kernels)
}

/// The text with every comment replaced by a blank.
fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        code.push_str(&rest[..at]);
        code.push(' ');
        let closing = if rest[at..].starts_with("//") { "\n" } else { "*/" };
        let body = &rest[at + 2..];
        rest = body.find(closing).map_or("", |end| &body[end + closing.len()..]);
    }
    code.push_str(rest);
    code
}

/// `.param .u64 a, .param .align 8 .b8 b[16]`.
fn parameters(list: &str) -> Option<Vec<Parameter>> {
    let mut offset = 0_usize;
    let declarations = list.split(',').map(str::trim).filter(|declaration| !declaration.is_empty());
    declarations
        .map(|declaration| {
            let (kind, bytes, align) = parameter(declaration)?;
            let start = offset.checked_next_multiple_of(align)?;
            offset = start.checked_add(bytes)?;
            Some(Parameter { kind, bytes, offset: start })
        })
        .collect()
}

/// Kind, size and alignment of one declaration.
fn parameter(declaration: &str) -> Option<(Kind, usize, usize)> {
    let mut words = declaration.split_whitespace().peekable();
    words.next().filter(|word| *word == ".param")?;
    let (mut scalar, mut align, mut count) = (None, None, None);
    while let Some(word) = words.next() {
        match word {
            ".align" => align = Some(words.next()?.parse::<usize>().ok()?),
            ".ptr" | ".const" | ".global" | ".local" | ".shared" => {}
            _ if word.starts_with('.') => scalar = scalar.or(scalar_type(word)),
            _ => count = array_length(word)?,
        }
    }
    let (kind, unit) = scalar?;
    Some(match count {
        Some(count) => (Kind::Aggregate, unit.checked_mul(count)?, align.unwrap_or(unit).max(1)),
        // The alignment of a plain parameter is its size; `.ptr .align` speaks of what it points to.
        None => (kind, unit, unit),
    })
}

/// `name[16]` → 16, `name` → none.
fn array_length(word: &str) -> Option<Option<usize>> {
    match word.split_once('[') {
        Some((_, length)) => length.strip_suffix(']')?.trim().parse().ok().map(Some),
        None => Some(None),
    }
}

fn scalar_type(word: &str) -> Option<(Kind, usize)> {
    let (kind, bits) = word.strip_prefix('.')?.split_at_checked(1)?;
    let kind = match kind {
        "u" | "b" => Kind::Unsigned,
        "s" => Kind::Signed,
        "f" => Kind::Float,
        _ => return None,
    };
    match bits.parse::<usize>().ok()? {
        bits @ (8 | 16 | 32 | 64) => Some((kind, bits / 8)),
        _ => None,
    }
}

/// `NAME flops F… bytes F…`
fn apply_cost(kernels: &mut [Kernel], line: &str) -> Option<()> {
    let mut words = line.split_whitespace();
    let name = words.next()?;
    let kernel = kernels.iter_mut().find(|kernel| kernel.name == name)?;
    let mut formula = Formula::default();
    let mut into: Option<&mut Vec<Factor>> = None;
    for word in words {
        match word {
            "flops" => into = Some(&mut formula.flops),
            "bytes" => into = Some(&mut formula.bytes),
            _ => into.as_mut()?.push(factor(word, &kernel.parameters)?),
        }
    }
    kernel.cost = Some(formula);
    Some(())
}

fn factor(word: &str, parameters: &[Parameter]) -> Option<Factor> {
    if let Some(index) = word.strip_prefix('p') {
        let index = index.parse::<usize>().ok()?;
        let parameter = parameters.get(index)?;
        return (parameter.kind != Kind::Aggregate).then_some(Factor::Parameter(index));
    }
    let number = word.parse::<f64>().ok()?;
    (number.is_finite() && number >= 0.0).then_some(Factor::Number(number))
}

#[cfg(test)]
mod tests;

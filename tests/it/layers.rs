//! The arrows between modules: `lib.rs` declares them in pipeline order, and a module uses
//! only modules declared above it. What the compiler cannot enforce in one crate is here.

use crate::repository;
use crate::repository::Source;
use std::collections::BTreeSet;

/// Where tensors may appear. The other modules are tested without them.
const TENSORS: [&str; 21] = [
    "halving",
    "optimizer/on_device",
    "workers",
    "numerics",
    "model",
    "rollout",
    "batch",
    "dapo/clip",
    "dapo/kl",
    "dapo/aggregation",
    "dapo/objective",
    "checkpoint",
    "policy",
    "frozen",
    "update",
    "eval",
    "pretrain",
    "train",
    "bench",
    "doctor",
    "verl_vectors",
];

/// Modules that read finished runs, and the modules that made them.
const READERS: [&str; 8] =
    ["stats", "study", "export", "attest", "effect_checks", "reference", "claims", "report"];
const MAKERS: [&str; 7] = ["model", "rollout", "dapo", "batch", "optimizer", "pretrain", "train"];

/// Names that say nothing about what is inside.
const VAGUE: [&str; 6] = ["utils", "util", "common", "helpers", "misc", "imp"];

#[test]
fn the_sources_keep_their_layers() {
    let sources = repository::sources();
    assert!(sources.len() > 20, "only {} files under src: the walk is broken", sources.len());
    let violations = violations(&sources);
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

/// Every breach of a rule, as `path:line: what`.
fn violations(sources: &[Source]) -> Vec<String> {
    let lib = sources.iter().find(|source| source.path == "src/lib.rs").expect("src/lib.rs");
    let order = declared_modules(&code(&lib.text));
    assert!(order.len() > 2, "lib.rs declares {order:?}");
    let mut found = Vec::new();
    for source in sources {
        let code = code(&source.text);
        for (index, line) in code.lines().enumerate() {
            let mut complaints = line_violations(&source.path, line);
            complaints.extend(arrow_violations(&source.path, line, &order));
            let at = |what| format!("{}:{}: {what}", source.path, index + 1);
            found.extend(complaints.into_iter().map(at));
        }
        let file = source.path.trim_end_matches(".rs");
        for part in file.split('/').filter(|part| VAGUE.contains(part)) {
            found.push(format!("{}: `{part}` says nothing about what is inside", source.path));
        }
    }
    found
}

/// Modules in the order of `pub mod name;`.
fn declared_modules(code: &str) -> Vec<String> {
    let names = code.lines().filter_map(|line| {
        let line = line.trim().trim_start_matches("pub ");
        line.strip_prefix("mod ")?.strip_suffix(';').map(str::to_string)
    });
    names.collect()
}

/// The module of a file, as a path without `mod`: `src/config/mod.rs` is `config`.
fn module_of(path: &str) -> &str {
    let module = path.trim_start_matches("src/").trim_end_matches(".rs");
    module.trim_end_matches("/mod")
}

/// Rules that need one line of one file only.
fn line_violations(path: &str, line: &str) -> Vec<String> {
    let module = module_of(path);
    let top = module.split('/').next().unwrap_or(module);
    let mut found = Vec::new();
    let mut forbid = |breach: bool, what: &str| {
        if breach {
            found.push(what.to_string());
        }
    };
    let within = |allowed: &&str| {
        module.strip_prefix(*allowed).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let prints = ["println!", "print!"].iter().any(|name| has_word(line, name));
    forbid(prints && top != "commands" && top != "main", "prints to stdout outside commands");
    let tensors = names_crate(line, "tch") || names_crate(line, "torch_sys");
    let tensors_allowed = top == "commands" || TENSORS.iter().any(within);
    forbid(tensors && !tensors_allowed, "uses tch in a module without tensors");
    let tables = names_crate(line, "polars") || names_crate(line, "parquet");
    forbid(tables && top != "tables", "uses polars or parquet outside tables");
    let anyhow = names_crate(line, "anyhow");
    forbid(anyhow && top != "commands" && top != "main", "uses anyhow below commands");
    let statement = line.trim();
    forbid(statement.starts_with("pub use "), "re-exports; name the item by its own path");
    let imports = statement.starts_with("use ");
    forbid(imports && statement.contains('{'), "imports with braces; one `use` for each path");
    let glob = imports && statement.ends_with("::*;");
    let usual = ["use super::*;", "use proptest::prelude::*;"].contains(&statement);
    forbid(glob && !usual, "imports everything; name the items");
    let parent = has_word(line, "super::") && statement != "use super::*;";
    forbid(parent, "names a parent by `super`; write the path from `crate`");
    forbid(line.contains("#[allow(") || line.contains("#![allow("), "allows a lint; use #[expect]");
    found
}

/// `crate::name` where `name` is not declared above the file's own module.
fn arrow_violations(path: &str, line: &str, order: &[String]) -> Vec<String> {
    if path == "src/lib.rs" {
        return Vec::new();
    }
    let top = module_of(path).split('/').next().expect("a path has a first part");
    let place = order.iter().position(|name| name == top);
    let mut found = BTreeSet::new();
    for after in words(line, "crate::") {
        let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        match order.iter().position(|other| *other == name) {
            None if name.is_empty() => {
                found.insert(format!("names several modules after `crate::`: {}", line.trim()));
            }
            // Not a module: an item or a macro of lib.rs itself, which has none.
            None => {
                found.insert(format!("`crate::{name}` is not a module of lib.rs"));
            }
            Some(other) => {
                if place.is_some_and(|own| other > own) {
                    found.insert(format!("{top} uses {name}, which is declared below it"));
                }
                if READERS.contains(&top) && MAKERS.contains(&name.as_str()) {
                    found.insert(format!("{top} reads finished runs and may not use {name}"));
                }
            }
        }
    }
    if place.is_none() && top != "main" {
        found.insert(format!("lib.rs does not declare {top}"));
    }
    found.into_iter().collect()
}

/// Does the line name this crate: `use tch::…`, `tch::Tensor`, `use tch;`?
fn names_crate(line: &str, name: &str) -> bool {
    has_word(line, &format!("{name}::")) || line.trim() == format!("use {name};")
}

/// Does `word` stand in the line without an identifier running into it from the left?
fn has_word(line: &str, word: &str) -> bool {
    !words(line, word).is_empty()
}

/// What follows each occurrence of `word` that no identifier or path runs into.
fn words<'a>(line: &'a str, word: &str) -> Vec<&'a str> {
    let starts = line.match_indices(word).filter(|(at, _)| {
        let before = line[..*at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$')
    });
    starts.map(|(at, _)| &line[at + word.len()..]).collect()
}

/// The text with comments, string literals and character literals replaced by blanks; lines
/// keep their numbers.
pub fn code(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = skip(&bytes, at);
        if end == at {
            out.push(bytes[at]);
            at += 1;
        } else {
            out.extend(bytes[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// The end of the comment or literal that starts here, or `at` when none does.
fn skip(text: &[char], at: usize) -> usize {
    let next = |offset: usize| text.get(at + offset).copied().unwrap_or('\0');
    let find = |from: usize, stop: &dyn Fn(usize) -> bool| {
        (from..text.len()).find(|place| stop(*place)).unwrap_or(text.len())
    };
    let after_identifier = at > 0 && (text[at - 1].is_alphanumeric() || text[at - 1] == '_');
    match text[at] {
        '/' if next(1) == '/' => find(at, &|place| text[place] == '\n'),
        '/' if next(1) == '*' => block_comment_end(text, at),
        '"' => quoted_end(text, at, '"'),
        'r' if !after_identifier && (next(1) == '"' || next(1) == '#') => {
            let hashes = text[at + 1..].iter().take_while(|c| **c == '#').count();
            if next(1 + hashes) != '"' {
                return at; // a raw identifier
            }
            let mut close = vec!['"'];
            close.extend(std::iter::repeat_n('#', hashes));
            let end = find(at + 2 + hashes, &|place| text[place..].starts_with(&close));
            (end + close.len()).min(text.len())
        }
        // 'a' and '\n' are literals, 'a without a closing quote is a lifetime.
        '\'' if next(1) == '\\' || next(2) == '\'' => quoted_end(text, at, '\''),
        _ => at,
    }
}

fn block_comment_end(text: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut place = at;
    while place < text.len() {
        match text[place..] {
            ['/', '*', ..] => (depth, place) = (depth + 1, place + 2),
            ['*', '/', ..] => (depth, place) = (depth - 1, place + 2),
            _ => place += 1,
        }
        if depth == 0 {
            return place;
        }
    }
    text.len()
}

fn quoted_end(text: &[char], at: usize, quote: char) -> usize {
    let mut place = at + 1;
    while place < text.len() {
        match text[place] {
            '\\' => place += 2,
            c if c == quote => return place + 1,
            _ => place += 1,
        }
    }
    text.len()
}

/// A small tree that keeps every rule, with one file replaced or added.
fn tree_with(path: &str, text: &str) -> Vec<Source> {
    let mut sources = vec![
        Source::planted(
            "src/lib.rs",
            "//! see [`train`]\npub mod files;\npub mod config;\npub mod dapo;\npub mod train;\npub mod report;\npub mod commands;\n",
        ),
        Source::planted("src/main.rs", "use dapo::commands;\nfn main() { println!(\"\"); }\n"),
        Source::planted("src/config/mod.rs", "use crate::files;\nuse crate::config::dapo::Clip;\n"),
        Source::planted("src/train.rs", "use crate::config::Experiment;\nuse tch::Tensor;\n"),
        Source::planted("src/commands/train.rs", "use crate::train::run;\nuse anyhow::Context;\n"),
    ];
    sources.retain(|source| source.path != path);
    sources.push(Source::planted(path, text));
    sources
}

/// Functions whose bits the standard library leaves to the machine and LibTorch to the instruction
/// set. Roots are exact everywhere.
const FUNCTIONS: [&str; 33] = [
    "exp",
    "exp2",
    "exp_m1",
    "expm1",
    "ln",
    "ln_1p",
    "log",
    "log1p",
    "log2",
    "log10",
    "sin",
    "cos",
    "sin_cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "sigmoid",
    "silu",
    "softmax",
    "log_softmax",
    "logsumexp",
    "powf",
    "powi",
    "pow_tensor_scalar",
    "hypot",
    "cbrt",
    "rsqrt",
    "mul_add",
];

/// Where they may be called: fast arithmetic, and what only looks at runs. In `numerics` it is
/// the fast branch of `exp`; in `stats` the interval of a difference, which no run records.
const FUNCTIONS_ALLOWED: [(&str, usize); 2] = [("numerics", 1), ("stats", 1)];
const OUTSIDE_OF_RUNS: [&str; 11] = [
    "numerics/fast",
    "doctor",
    "regress",
    "report",
    "effect_checks",
    "plan",
    "bench",
    "housekeeping",
    "reference",
    "verl_vectors",
    "commands",
];

/// Calls of [`FUNCTIONS`] in a file, outside its tests.
fn function_calls(source: &Source) -> Vec<String> {
    let code = code(&source.text);
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    let calls = code.lines().enumerate().flat_map(|(index, line)| {
        let called = FUNCTIONS.iter().filter(move |name| {
            line.contains(&format!(".{name}("))
                || line.contains(&format!("f64::{name}("))
                || line.contains(&format!("f32::{name}("))
        });
        called.map(move |name| format!("{}:{}: {name}", source.path, index + 1))
    });
    calls.collect()
}

#[test]
fn a_run_calls_no_function_that_the_machine_decides() {
    for source in repository::sources() {
        let module = module_of(&source.path);
        let outside =
            OUTSIDE_OF_RUNS.iter().any(|it| module == *it || module.starts_with(&format!("{it}/")));
        if outside || module.ends_with("/tests") {
            continue;
        }
        let calls = function_calls(&source);
        let allowed = FUNCTIONS_ALLOWED.iter().find(|(name, _)| *name == module);
        assert_eq!(calls.len(), allowed.map_or(0, |(_, count)| *count), "{calls:#?}");
    }
    let planted = Source::planted("src/x.rs", "fn f(x: f64) { x.exp(); f64::ln(x); libm::exp(x) }");
    assert_eq!(function_calls(&planted).len(), 2);
}

#[test]
fn a_tree_that_keeps_the_rules_has_no_violation() {
    let clean = tree_with("src/dapo/clip.rs", "use crate::config::dapo::Clip;\nuse tch::Tensor;\n");
    assert_eq!(violations(&clean), Vec::<String>::new());
}

#[test]
fn planted_violations_are_caught() {
    let cases = [
        ("src/files.rs", "use crate::train::run;", "files uses train, which is declared below it"),
        ("src/dapo/clip.rs", "fn f() -> crate::train::X {}", "dapo uses train"),
        ("src/config/mod.rs", "use crate::{files, train};", "names several modules"),
        ("src/config/mod.rs", "use std::{fs, io};", "imports with braces"),
        ("src/config/mod.rs", "use crate::files::*;", "imports everything"),
        ("src/config/mod.rs", "pub use crate::files::read;", "re-exports"),
        ("src/config/mod.rs", "use super::train;", "names a parent by `super`"),
        ("src/config/mod.rs", "use crate::nowhere::X;", "`crate::nowhere` is not a module"),
        ("src/report/mod.rs", "use crate::train::Run;", "may not use train"),
        ("src/report/mod.rs", "let x = tch::Kind::Float;", "uses tch"),
        ("src/dapo/advantage.rs", "use tch::Tensor;", "uses tch"),
        ("src/dapo/clipping.rs", "use tch::Tensor;", "uses tch"),
        ("src/train.rs", "fn f() { println!(\"{x}\"); }", "prints to stdout"),
        ("src/train.rs", "use anyhow::Result;", "uses anyhow"),
        ("src/train.rs", "use polars::prelude::DataFrame;", "uses polars or parquet"),
        ("src/audit.rs", "use parquet::record::Row;", "uses polars or parquet"),
        ("src/train.rs", "#[allow(dead_code)]", "allows a lint"),
        ("src/dapo/utils.rs", "", "`utils` says nothing"),
        ("src/common/mod.rs", "", "`common` says nothing"),
        ("src/stray.rs", "fn f() {}", "lib.rs does not declare stray"),
    ];
    for (path, text, expected) in cases {
        let found = violations(&tree_with(path, text));
        assert!(
            found.iter().any(|line| line.starts_with(path) && line.contains(expected)),
            "{path} with `{text}` should give `{expected}`, gave {found:?}"
        );
    }
}

#[test]
fn comments_and_strings_are_not_code() {
    let text = r##"
// use crate::train::run;
/* use /* nested */ crate::train::run; */
//! println!
fn f<'a>(x: &'a str) { eprintln!("crate::train {}", '"'); let y = r#"tch::"x""#; }
"##;
    assert_eq!(violations(&tree_with("src/files.rs", text)), Vec::<String>::new());
    let text = "fn f<'a>(x: &'a str, y: char) { y == '\\''; crate::train::run() }";
    assert_eq!(violations(&tree_with("src/files.rs", text)).len(), 1);
}

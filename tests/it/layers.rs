//! The house: the roots of the crates declare the rooms in order, and a room uses only rooms above it; the
//! `mod.rs` of a room declares its files in order, and a file uses only files above it. What the
//! compiler cannot enforce in one crate is here.

use crate::repository::{self, Source};
use std::collections::{BTreeMap, BTreeSet};

/// The roots of the crates, from the lowest.
const ROOTS: [&str; 3] = ["src/core.rs", "src/trainer.rs", "src/lib.rs"];

/// Where tensors may appear. The other places are tested without them.
const TENSORS: [&str; 16] = [
    "base/workers",
    "numerics",
    "algorithm/aggregation",
    "algorithm/clip",
    "algorithm/kl",
    "algorithm/methods",
    "algorithm/objective",
    "algorithm/tokens",
    "policy",
    "training/bench",
    "training/evaluation",
    "training/pretraining",
    "training/run",
    "training/trainer",
    "training/update",
    "verification/doctor",
];

/// What reads finished runs may not use what made them.
const READERS: [&str; 2] = ["study", "report"];
const MAKERS: [&str; 2] = ["policy", "training"];
/// They start runs and make their records.
const MAY_MAKE: [&str; 2] = ["study/ablate", "study/cell"];

/// Names that say nothing about what is inside.
const VAGUE: [&str; 6] = ["utils", "util", "common", "helpers", "misc", "imp"];

#[test]
fn the_sources_keep_their_layers() {
    let sources = repository::sources();
    assert!(sources.len() > 20, "only {} files under src: the walk is broken", sources.len());
    let violations = violations(&sources);
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

/// Rooms in order; in each its entries (files and folders) in order, and the entry of each item
/// that the room names as its own.
struct House {
    rooms: Vec<String>,
    entries: BTreeMap<String, Vec<String>>,
    items: BTreeMap<(String, String), String>,
}

impl House {
    fn of(sources: &[Source]) -> Self {
        let roots = ROOTS.iter().filter_map(|root| sources.iter().find(|it| it.path == *root));
        let rooms: Vec<String> = roots.flat_map(|it| declared_modules(&code(&it.text))).collect();
        assert!(rooms.len() > 2, "the roots declare {rooms:?}");
        let mut house = Self { rooms, entries: BTreeMap::new(), items: BTreeMap::new() };
        for room in &house.rooms {
            let path = format!("src/{room}/mod.rs");
            let Some(source) = sources.iter().find(|source| source.path == path) else { continue };
            let code = code(&source.text);
            house.entries.insert(room.clone(), declared_modules(&code));
            for (_, path) in paths(&code) {
                if let [own, entry, .., item] = &path[..]
                    && own == room
                {
                    house.items.insert((room.clone(), item.clone()), entry.clone());
                }
            }
        }
        house
    }

    fn place(&self, room: &str) -> Option<usize> {
        self.rooms.iter().position(|name| name == room)
    }

    /// Place of an entry, or of the entry that an item of the room stands in.
    fn entry(&self, room: &str, name: &str) -> Option<usize> {
        let entries = self.entries.get(room)?;
        let item = self.items.get(&(room.to_string(), name.to_string()));
        let name = item.map_or(name, String::as_str);
        entries.iter().position(|entry| entry == name)
    }
}

/// Types that a file declares, outside its tests.
fn declared_types(source: &Source) -> Vec<String> {
    let code = code(&source.text);
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    let names = code.lines().filter_map(|line| {
        let line = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
        let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
        Some(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
    });
    names.collect()
}

#[test]
fn a_type_name_is_declared_once() {
    let mut declared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in repository::sources().iter().filter(|it| !it.path.ends_with("tests.rs")) {
        for name in declared_types(source) {
            declared.entry(name).or_default().push(source.path.clone());
        }
    }
    assert!(declared.len() > 300, "only {} types: the walk is broken", declared.len());
    let twice: Vec<_> = declared.iter().filter(|(_, paths)| paths.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:#?}");
    let planted = "pub struct A;\nenum B {\n    C,\n}\n#[cfg(test)]\nmod tests { struct D; }\n";
    assert_eq!(declared_types(&Source::planted("src/x.rs", planted)), ["A", "B"]);
}

/// Every breach of a rule, as `path:line: what`.
fn violations(sources: &[Source]) -> Vec<String> {
    let house = House::of(sources);
    let mut found = Vec::new();
    for source in sources {
        let code = code(&source.text);
        let at = |(line, what)| format!("{}:{line}: {what}", source.path);
        for (index, line) in code.lines().enumerate() {
            let complaints = line_violations(&source.path, line);
            found.extend(complaints.into_iter().map(|what| at((index + 1, what))));
        }
        let arrows: BTreeSet<_> =
            arrow_violations(&source.path, &code, &house).into_iter().collect();
        found.extend(arrows.into_iter().map(at));
        let file = source.path.trim_end_matches(".rs");
        for part in file.split('/').filter(|part| VAGUE.contains(part)) {
            found.push(format!("{}: `{part}` says nothing about what is inside", source.path));
        }
        let folder = format!("{file}/");
        if sources.iter().any(|other| other.path.starts_with(&folder)) {
            found.push(format!("{}: has a folder too; write {folder}mod.rs", source.path));
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

/// The module of a file, as a path without `mod`: `src/task/data/mod.rs` is `task/data`.
fn module_of(path: &str) -> &str {
    let module = path.trim_start_matches("src/").trim_end_matches(".rs");
    module.trim_end_matches("/mod")
}

/// Is the module one of these, or in a folder of theirs?
fn within(module: &str, places: &[&str]) -> bool {
    places.iter().any(|place| {
        module.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
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
    let prints = ["println!", "print!"].iter().any(|name| has_word(line, name));
    forbid(prints && top != "commands" && top != "main", "prints to stdout outside commands");
    let tensors = names_crate(line, "tch") || names_crate(line, "torch_sys");
    let tensors_allowed = top == "commands" || within(module, &TENSORS);
    forbid(tensors && !tensors_allowed, "uses tch in a module without tensors");
    let tables = names_crate(line, "polars") || names_crate(line, "parquet");
    forbid(tables && !within(module, &["records/tables"]), "uses polars or parquet outside tables");
    let anyhow = names_crate(line, "anyhow");
    forbid(anyhow && top != "commands" && top != "main", "uses anyhow below commands");
    let statement = line.trim();
    let of_room = path == format!("src/{top}/mod.rs")
        && statement.starts_with(&format!("pub use crate::{top}::"));
    let lower_crate = ROOTS.contains(&path) && statement.starts_with("pub use dapo_");
    let reexports = statement.starts_with("pub use ") && !lower_crate;
    forbid(reexports && !of_room, "re-exports; only a room's mod.rs names the room's own items");
    let imports = statement.starts_with("use ");
    let glob = imports && statement.ends_with("::*;");
    let usual = ["use super::*;", "use proptest::prelude::*;"].contains(&statement);
    forbid(glob && !usual, "imports everything; name the items");
    let parent = has_word(line, "super::") && statement != "use super::*;";
    forbid(parent, "names a parent by `super`; write the path from `crate`");
    forbid(line.contains("#[allow(") || line.contains("#![allow("), "allows a lint; use #[expect]");
    found
}

/// Paths into the crate that stand below their user, as line and complaint.
fn arrow_violations(path: &str, code: &str, house: &House) -> Vec<(usize, String)> {
    if ROOTS.contains(&path) {
        return Vec::new();
    }
    let module = module_of(path);
    let mut parts = module.split('/');
    let room = parts.next().expect("a path has a first part");
    let own_entry = parts.next().and_then(|entry| house.entry(room, entry));
    let place = house.place(room);
    let mut found = Vec::new();
    if place.is_none() && room != "main" {
        found.push((1, format!("no crate declares {room}")));
    }
    let of_tests = code[..code.find("#[cfg(test)]").unwrap_or(code.len())].lines().count();
    let tests = module.ends_with("tests");
    for (line, used) in paths(code) {
        let name = &used[0];
        match house.place(name) {
            // Not a room: an item or a macro of a root itself, which has none.
            None => found.push((line, format!("`crate::{name}` is not a room"))),
            Some(other) if place.is_some_and(|own| other > own) => {
                found.push((line, format!("{room} uses {name}, which is declared below it")));
            }
            Some(other) if place == Some(other) && !tests && line <= of_tests => {
                let entry = used.get(1).and_then(|entry| house.entry(room, entry));
                if entry.zip(own_entry).is_some_and(|(entry, own)| entry > own) {
                    let what = format!("{module} uses {}, which stands below it", used.join("::"));
                    found.push((line, what));
                }
            }
            Some(_) => {}
        }
        let reads = READERS.contains(&room) && !tests && !within(module, &MAY_MAKE);
        if reads && MAKERS.contains(&name.as_str()) {
            found.push((line, format!("{room} reads finished runs and may not use {name}")));
        }
    }
    found
}

/// Every path after `crate::` with its line, the braces of imports written out.
fn paths(code: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    for after in words(code, "crate::") {
        let line = code[..code.len() - after.len()].matches('\n').count() + 1;
        let mut written = Vec::new();
        tree(after, &mut Vec::new(), &mut written);
        found.extend(written.into_iter().filter(|path| !path.is_empty()).map(|path| (line, path)));
    }
    found
}

/// Reads `a::b` or `a::{b, c::d}`; adds each path to `found`, and returns what follows.
fn tree<'a>(text: &'a str, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let depth = prefix.len();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if let Some(mut inside) = rest.strip_prefix('{') {
            loop {
                inside = tree(inside, prefix, found).trim_start();
                match inside.strip_prefix(',') {
                    Some(next) => inside = next,
                    None => break,
                }
            }
            prefix.truncate(depth);
            return inside.strip_prefix('}').unwrap_or(inside);
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if !name.is_empty() && name != "self" {
            prefix.push(name.to_string());
        }
        match after.strip_prefix("::") {
            Some(next) if !name.is_empty() => rest = next,
            _ => {
                found.push(prefix.clone());
                prefix.truncate(depth);
                let alias = after.strip_prefix(" as ").map(|alias| {
                    alias.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
                });
                return alias.unwrap_or(after);
            }
        }
    }
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
            "//! see [`training`]\npub mod base;\npub mod experiment;\npub mod algorithm;\npub mod training;\npub mod report;\npub mod commands;\n",
        ),
        Source::planted("src/main.rs", "use dapo::commands;\nfn main() { println!(\"\"); }\n"),
        Source::planted(
            "src/experiment/mod.rs",
            "pub mod dapo;\npub mod config;\npub use crate::experiment::config::{Experiment, Place};\n",
        ),
        Source::planted(
            "src/experiment/config.rs",
            "use crate::base::{self, files};\nuse crate::experiment::dapo::{Clip, Kl as Penalty, Std};\n",
        ),
        Source::planted(
            "src/training/update.rs",
            "use crate::experiment::{Experiment, dapo};\nuse tch::Tensor;\n",
        ),
        Source::planted(
            "src/commands/train.rs",
            "use crate::training::run;\nuse anyhow::Context;\n",
        ),
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

/// Where they may be called: fast arithmetic, and what only looks at runs. In `operations` it is
/// the fast branch of `exp`.
const FUNCTIONS_ALLOWED: [(&str, usize); 1] = [("numerics/operations", 1)];
const OUTSIDE_OF_RUNS: [&str; 9] = [
    "numerics/fast",
    "records/housekeeping",
    "training/plan",
    "training/bench",
    "study/effect_checks",
    "study/paper",
    "report",
    "verification/doctor",
    "verification/regress",
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
        let outside = within(module, &OUTSIDE_OF_RUNS) || within(module, &["commands"]);
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
    let text = "use crate::experiment::{Experiment, dapo::{Clip, Std}};\nuse tch::Tensor;\n";
    assert_eq!(violations(&tree_with("src/algorithm/clip.rs", text)), Vec::<String>::new());
}

#[test]
fn planted_violations_are_caught() {
    let cases = [
        ("src/base/files.rs", "use crate::training::run;", "base uses training, which is declared"),
        ("src/algorithm/clip.rs", "fn f() -> crate::training::X {}", "algorithm uses training"),
        (
            "src/base/files.rs",
            "use crate::{base::visible, training};",
            "base uses training, which is declared below it",
        ),
        (
            "src/base/files.rs",
            "use crate::{\n    base::{visible as shown, rng::{Id, Stream}},\n    training,\n};",
            "base uses training, which is declared below it",
        ),
        ("src/experiment/dapo.rs", "use crate::experiment::config::X;", "which stands below it"),
        ("src/experiment/dapo.rs", "use crate::experiment::Place;", "which stands below it"),
        ("src/experiment/dapo.rs", "type X = crate::experiment::Place;", "which stands below it"),
        ("src/experiment/config.rs", "use crate::base::*;", "imports everything"),
        ("src/experiment/config.rs", "pub use crate::experiment::dapo::Clip;", "re-exports"),
        ("src/experiment/mod.rs", "pub use crate::base::files;", "re-exports"),
        ("src/experiment/config.rs", "use super::training;", "names a parent by `super`"),
        ("src/experiment/config.rs", "use crate::nowhere::X;", "`crate::nowhere` is not a room"),
        ("src/report/mod.rs", "use crate::training::Run;", "may not use training"),
        ("src/report/mod.rs", "let x = tch::Kind::Float;", "uses tch"),
        ("src/algorithm/advantage.rs", "use tch::Tensor;", "uses tch"),
        ("src/algorithm/clipping.rs", "use tch::Tensor;", "uses tch"),
        ("src/training/update.rs", "fn f() { println!(\"{x}\"); }", "prints to stdout"),
        ("src/training/update.rs", "use anyhow::Result;", "uses anyhow"),
        ("src/training/update.rs", "use polars::prelude::DataFrame;", "uses polars or parquet"),
        ("src/training/update.rs", "#[allow(dead_code)]", "allows a lint"),
        ("src/training.rs", "", "has a folder too"),
        ("src/algorithm/utils.rs", "", "`utils` says nothing"),
        ("src/common/mod.rs", "", "`common` says nothing"),
        ("src/stray.rs", "fn f() {}", "no crate declares stray"),
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
// use crate::training::run;
/* use /* nested */ crate::training::run; */
//! println!
fn f<'a>(x: &'a str) { eprintln!("crate::training {}", '"'); let y = r#"tch::"x""#; }
"##;
    assert_eq!(violations(&tree_with("src/base/files.rs", text)), Vec::<String>::new());
    let text = "fn f<'a>(x: &'a str, y: char) { y == '\\''; crate::training::run() }";
    assert_eq!(violations(&tree_with("src/base/files.rs", text)).len(), 1);
}

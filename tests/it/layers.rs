//! The house: the roots of the crates declare the rooms in order, and a room uses only rooms above it; the
//! `mod.rs` of a room declares its files in order, and a file uses only files above it. What the
//! compiler cannot enforce in one crate is here.

use crate::repository::{self, Source};
use regex::Regex;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// The roots of the crates, from the lowest.
const ROOTS: [&str; 3] = ["src/core/lib.rs", "src/trainer/lib.rs", "src/lib.rs"];

/// What no line may have, the modules that may, and the complaint.
const RULES: [(&str, &str, &str); 8] = [
    (r"\bprintln?!", "commands main", "prints to stdout outside commands"),
    // The other places are tested without tensors.
    (
        r"(?:^|[^\w:])(?:tch|torch_sys)::|^use tch;",
        "commands base/workers numerics algorithm/aggregation algorithm/clip algorithm/kl algorithm/methods \
         algorithm/objective algorithm/tokens policy training/bench training/evaluation training/pretraining \
         training/run training/trainer training/update verification/doctor",
        "uses tch in a module without tensors",
    ),
    (r"(^|[^\w:])(polars|parquet)::", "records/tables", "uses polars or parquet outside tables"),
    (r"(?:^|[^\w:])anyhow::|^use anyhow;", "commands main", "uses anyhow below commands"),
    (r"^\s*use (?:[^sp]|s[^u]|p[^r]).*::\*;", "", "imports everything; name the items"),
    (r"\bsuper::[^*]", "", "names a parent by `super`; write the path from `crate`"),
    (r"\bcatch_unwind\b", "base/contained commands", "catches a panic below commands"),
    (r"#!?\[allow\(", "", "allows a lint; use #[expect]"),
];

/// What reads finished runs may not use what made them.
const READERS: [&str; 2] = ["study", "report"];
const MAKERS: [&str; 2] = ["policy", "training"];
/// They start runs and make their records.
const MAY_MAKE: &str = "study/ablate study/cell";

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
            let Some(source) = sources.iter().find(|it| is_root_of(&it.path, room)) else {
                continue;
            };
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

/// Every breach of a rule, as `path:line: what`.
fn violations(sources: &[Source]) -> Vec<String> {
    static RULES_OF_LINES: LazyLock<Vec<Regex>> =
        LazyLock::new(|| RULES.iter().map(|(rule, ..)| Regex::new(rule).unwrap()).collect());
    let house = House::of(sources);
    let mut all = Vec::new();
    for source in sources {
        let (code, module) = (code(&source.text), module_of(&source.path));
        let mut breaches = arrow_violations(&source.path, &code, &house);
        for (index, line) in code.lines().enumerate() {
            let broken = RULES_OF_LINES.iter().zip(RULES);
            let broken =
                broken.filter(|(rule, (_, may, _))| !within(module, may) && rule.is_match(line));
            breaches.extend(broken.map(|(_, (.., what))| (index + 1, what.to_string())));
            if is_stray_reexport(&source.path, line.trim()) {
                let what = "re-exports; only a room's mod.rs names the room's own items";
                breaches.insert((index + 1, what.to_string()));
            }
        }
        let file = source.path.trim_end_matches(".rs");
        for part in file.split('/').filter(|part| VAGUE.contains(part)) {
            breaches.insert((1, format!("`{part}` says nothing about what is inside")));
        }
        let folder = format!("{file}/");
        if sources.iter().any(|other| other.path.starts_with(&folder)) {
            breaches.insert((1, format!("has a folder too; write {folder}mod.rs")));
        }
        all.extend(breaches.iter().map(|(line, what)| format!("{}:{line}: {what}", source.path)));
    }
    all
}

fn is_stray_reexport(path: &str, statement: &str) -> bool {
    let top = module_of(path).split('/').next().unwrap_or_default();
    let of_room =
        is_root_of(path, top) && statement.starts_with(&format!("pub use crate::{top}::"));
    let lower_crate = ROOTS.contains(&path) && statement.starts_with("pub use dapo_");
    statement.starts_with("pub use ") && !of_room && !lower_crate
}

fn declared_modules(code: &str) -> Vec<String> {
    let names = code.lines().filter_map(|line| {
        let line = line.trim().trim_start_matches("pub ");
        line.strip_prefix("mod ")?.strip_suffix(';').map(str::to_string)
    });
    names.collect()
}

/// The module of a file, as a path without its crate and `mod`: `src/trainer/task/data/mod.rs` is `task/data`.
fn module_of(path: &str) -> &str {
    let module = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    ["core/", "trainer/"].iter().find_map(|lower| module.strip_prefix(lower)).unwrap_or(module)
}

fn is_root_of(path: &str, room: &str) -> bool {
    path.ends_with("/mod.rs") && module_of(path) == room
}

/// Is the module one of these, or in a folder of theirs?
fn within(module: &str, places: &str) -> bool {
    places.split_whitespace().any(|place| {
        module.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Paths into the crate that stand below their user, as line and complaint.
fn arrow_violations(path: &str, code: &str, house: &House) -> BTreeSet<(usize, String)> {
    if ROOTS.contains(&path) {
        return BTreeSet::new();
    }
    let module = module_of(path);
    let mut parts = module.split('/');
    let room = parts.next().expect("a path has a first part");
    let own_entry = parts.next().and_then(|entry| house.entry(room, entry));
    let place = house.place(room);
    let mut breaches = BTreeSet::new();
    if place.is_none() && room != "main" {
        breaches.insert((1, format!("no crate declares {room}")));
    }
    let of_tests = code[..code.find("#[cfg(test)]").unwrap_or(code.len())].lines().count();
    let tests = module.ends_with("tests");
    for (line, used) in paths(code) {
        let name = &used[0];
        match house.place(name) {
            // Not a room: an item or a macro of a root itself, which has none.
            None => drop(breaches.insert((line, format!("`crate::{name}` is not a room")))),
            Some(other) if place.is_some_and(|own| other > own) => {
                breaches.insert((line, format!("{room} uses {name}, which is declared below it")));
            }
            Some(other) if place == Some(other) && !tests && line <= of_tests => {
                let entry = used.get(1).and_then(|entry| house.entry(room, entry));
                if entry.zip(own_entry).is_some_and(|(entry, own)| entry > own) {
                    let what = format!("{module} uses {}, which stands below it", used.join("::"));
                    breaches.insert((line, what));
                }
            }
            Some(_) => {}
        }
        let reads = READERS.contains(&room) && !tests && !within(module, MAY_MAKE);
        if reads && MAKERS.contains(&name.as_str()) {
            breaches.insert((line, format!("{room} reads finished runs and may not use {name}")));
        }
    }
    breaches
}

/// Every path after `crate::` with its line, the braces of imports written out.
fn paths(code: &str) -> Vec<(usize, Vec<String>)> {
    static WRITTEN: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?:^|[^\w:$])(crate::(?:\w+::)*(?:\w+|\{[^;]*))").unwrap());
    static BRACES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(\w+(?:::\w+)*)::\{([^{}]*)\}").unwrap());
    let mut all = Vec::new();
    for written in WRITTEN.captures_iter(code) {
        let line = code[..written.get(1).unwrap().start()].matches('\n').count() + 1;
        let mut text = written[1].to_string();
        while let Some(braces) = BRACES.captures(&text) {
            let items = braces[2].split(',').map(str::trim).filter(|item| !item.is_empty());
            let items: Vec<String> = items.map(|item| format!("{}::{item}", &braces[1])).collect();
            text = text.replacen(&braces[0], &items.join(","), 1);
        }
        for path in text.split(',').filter_map(|path| path.split_whitespace().next()) {
            let parts = path.split("::").filter(|part| !["crate", "self", "*"].contains(part));
            all.push((line, parts.map(str::to_string).collect::<Vec<_>>()));
        }
    }
    all.retain(|(_, path)| !path.is_empty());
    all
}

/// The text with comments, string literals and character literals replaced by blanks; lines
/// keep their numbers.
pub fn code(text: &str) -> String {
    static HIDDEN: LazyLock<Regex> = LazyLock::new(|| {
        let comments = r"//[^\n]*|/\*(?s:.*?)\*/";
        let strings =
            r###"\bb?r"[^"]*"|\bb?r#"(?s:.*?)"#|\bb?r##"(?s:.*?)"##|"(?:[^"\\]|\\(?s:.))*""###;
        // 'a' and '\n' are literals, 'a without a closing quote is a lifetime.
        let characters = r"'(?:\\(?:.[^']*)|[^'\\\n])'";
        Regex::new(&format!("{comments}|{strings}|{characters}")).unwrap()
    });
    let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
    let hide = |hidden: &regex::Captures| hidden[0].chars().map(blank).collect::<String>();
    HIDDEN.replace_all(text, hide).into_owned()
}

/// Functions whose bits the standard library leaves to the machine and LibTorch to the instruction
/// set. Roots are exact everywhere.
const FUNCTIONS: &str = "exp|exp2|exp_m1|expm1|ln|ln_1p|log|log1p|log2|log10|sin|cos|sin_cos|tan|asin|acos|atan|atan2\
                         |sinh|cosh|tanh|sigmoid|silu|softmax|log_softmax|logsumexp|powf|powi|pow_tensor_scalar|hypot\
                         |cbrt|rsqrt|mul_add";

/// Where they may be called: fast arithmetic, and what only looks at runs. In `operations` it is
/// the fast branch of `exp`.
const FUNCTIONS_ALLOWED: (&str, usize) = ("numerics/operations", 1);
const OUTSIDE_OF_RUNS: &str = "commands numerics/fast records/housekeeping training/plan training/bench \
                               study/effect_checks study/paper report verification/doctor verification/regress";

#[test]
fn a_run_calls_no_function_that_the_machine_decides() {
    for source in repository::sources() {
        let module = module_of(&source.path);
        if within(module, OUTSIDE_OF_RUNS) || module.ends_with("/tests") {
            continue;
        }
        let (calls, (place, count)) = (function_calls(&source.text), FUNCTIONS_ALLOWED);
        let allowed = if module == place { count } else { 0 };
        assert_eq!(calls.len(), allowed, "{}: {calls:#?}", source.path);
    }
    assert_eq!(function_calls("fn f(x: f64) { x.exp(); f64::ln(x); libm::exp(x) }").len(), 2);
}

/// Calls of [`FUNCTIONS`] in a file, outside its tests.
fn function_calls(text: &str) -> Vec<String> {
    let called = Regex::new(&format!(r"(?:\.|f64::|f32::)(?:{FUNCTIONS})\(")).unwrap();
    let code = code(text);
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    called.find_iter(code).map(|call| call.as_str().to_string()).collect()
}

/// Sources of `planted_violations.toml`.
#[derive(Deserialize)]
struct Planted {
    /// A small tree that keeps every rule.
    tree: Vec<Source>,
    violations: Vec<Violation>,
}

#[derive(Deserialize)]
struct Violation {
    #[serde(flatten)]
    source: Source,
    says: String,
}

fn planted() -> Planted {
    toml::from_str(include_str!("planted_violations.toml")).unwrap()
}

/// What is found in the small tree with one file replaced or added.
fn violations_with(path: &str, text: &str) -> Vec<String> {
    let mut sources = planted().tree;
    sources.retain(|source| source.path != path);
    sources.push(Source::planted(path, text));
    violations(&sources)
}

#[test]
fn a_tree_that_keeps_the_rules_has_no_violation() {
    let text = "use crate::experiment::{Experiment, dapo::{Clip, Std}};\nuse tch::Tensor;\n";
    assert_eq!(violations_with("src/core/algorithm/clip.rs", text), [""; 0]);
}

#[test]
fn planted_violations_are_caught() {
    for Violation { source: Source { path, text }, says } in planted().violations {
        let breaches = violations_with(&path, &text);
        let is_caught = |line: &String| line.starts_with(&path) && line.contains(&says);
        assert!(breaches.iter().any(is_caught), "{text} should give {says:?}, gave {breaches:?}");
    }
}

#[test]
fn comments_and_strings_are_not_code() {
    let text = r##"
// use crate::training::run;
/* use crate::training::run;
   and more */
//! println!
fn f<'a>(x: &'a str) { eprintln!("crate::training {}", '"'); let y = r#"tch::"x""#; }
"##;
    let breaches = |text: &str| violations_with("src/core/base/files.rs", text);
    assert_eq!(breaches(text), [""; 0]);
    let text = "fn f<'a>(x: &'a str, y: char) { y == '\\''; crate::training::run() }";
    assert_eq!(breaches(text).len(), 1);
}

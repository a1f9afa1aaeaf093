//! `dapo config`: what an experiment resolves to, what each key means, and how two differ.

use crate::commands::exit::bail_usage;
use crate::commands::{OverrideArgs, exit, output};
use crate::experiment::compare::{self, ComparedSide, Difference};
use crate::experiment::sources::{self, Key};
use crate::experiment::{Experiment, KeyUsage, Publication, diagnose, named, usage};
use crate::records::RunFolder;
use crate::report::text::{joined, literal};
use crate::training::plan::warnings;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Show an experiment, explain a key, or name every key in which two experiments differ.
///
/// An experiment is a TOML file, an arm's name (`dapo` is experiments/dapo.toml, `clip-higher` is
/// experiments/arms/clip-higher.toml), a run folder, an experiment.json or a cell's record.
#[derive(Debug, clap::Subcommand)]
pub enum ConfigVerb {
    Diff(ConfigDiffArgs),
    Show(ShowArgs),
    Explain(ExplainArgs),
}

/// Name every key in which two experiments differ, with its source in paper and released code.
///
/// `paper` and `released-code` are the values that the paper and the released 32B script state. Keys
/// that they do not state are listed by name and do not count as differences.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/config-diff.txt"))]
pub struct ConfigDiffArgs {
    /// Experiment file, arm, run folder, cell's record, `paper` or `released-code`.
    a: String,
    /// The second one, of the same kinds.
    b: String,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
    /// End with exit code 4 when the two are not the same arm.
    #[arg(long)]
    exit_code: bool,
}

/// Print an experiment with everything that it extends merged in, and its arm's digest.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/config-show.txt"))]
pub struct ShowArgs {
    /// Experiment file, arm, run folder or cell's record.
    experiment: String,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Print one JSON document instead of TOML.
    #[arg(long)]
    json: bool,
}

/// Say what a key means, its unit, and what the paper and the released code say about it.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/config-explain.txt"))]
pub struct ExplainArgs {
    /// A key, or the table of several keys. Default: every key.
    key: Option<String>,
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
}

/// Errors: an experiment that cannot be found or read, or a key that does not exist.
pub fn run(verb: &ConfigVerb) -> Result<u8> {
    match verb {
        ConfigVerb::Diff(args) => diff(args),
        ConfigVerb::Show(args) => show(args),
        ConfigVerb::Explain(args) => explain(args),
    }
}

struct Operand {
    name: String,
    side: ComparedSide,
    experiment: Option<Experiment>,
}

impl Operand {
    fn named(name: &str, overrides: &OverrideArgs) -> Result<Self> {
        if let Some(publication) = publication(name) {
            let side = ComparedSide::publication(publication);
            return Ok(Self { name: name.to_string(), side, experiment: None });
        }
        let (path, experiment) = experiment(name, overrides)?;
        let side = ComparedSide::experiment(&experiment);
        Ok(Self { name: path.display().to_string(), side, experiment: Some(experiment) })
    }

    fn title(&self) -> String {
        match &self.experiment {
            None => format!("{} (the values that it states)", self.name),
            Some(experiment) => {
                format!("{}, arm {} {}", self.name, experiment.name, &experiment.arm_sha256()[..12])
            }
        }
    }
}

fn publication(name: &str) -> Option<Publication> {
    match name {
        "paper" => Some(Publication::Paper),
        "released-code" => Some(Publication::ReleasedCode),
        _ => None,
    }
}

fn experiment(name: &str, overrides: &OverrideArgs) -> Result<(PathBuf, Experiment)> {
    let path = named::find(Path::new(name))?;
    let experiment = if named::is_run(&path) {
        overrides.apply(RunFolder::at(&path).experiment()?, &path)?
    } else {
        overrides.load(&path)?
    };
    Ok((path, experiment))
}

fn diff(args: &ConfigDiffArgs) -> Result<u8> {
    if publication(&args.b).is_some() && !args.overrides.is_empty() {
        bail_usage!("--set is for B, and {} states values of its own; swap A and B", args.b);
    }
    let a = Operand::named(&args.a, &OverrideArgs::default())?;
    let b = Operand::named(&args.b, &args.overrides)?;
    let differences = compare::differences(&a.side, &b.side);
    let unstated = unstated(&a, &b);
    let document = diff_json(&a, &b, &differences, &unstated);
    output::lines(args.json, &document, || diff_text(&a, &b, &differences, &unstated));
    let same_arm = differences.iter().all(|difference| !difference.in_arm);
    Ok(exit::agreed(same_arm || !args.exit_code))
}

fn facts(key: Option<&Key>) -> [(&'static str, Option<String>); 4] {
    [
        ("meaning", key.map(|key| key.meaning.clone())),
        ("unit", key.map(|key| key.unit.clone())),
        ("paper", key.map(|key| key.paper.sentence())),
        ("released_code", key.map(|key| key.released_code.sentence())),
    ]
}

fn with_facts(mut entry: Value, key: Option<&Key>) -> Value {
    for (name, fact) in facts(key) {
        entry[name] = json!(fact);
    }
    entry
}

/// Keys of one side's arm without a value in the other, a publication.
fn unstated<'a>(a: &'a Operand, b: &'a Operand) -> Vec<&'a str> {
    let missing = |of: &'a ComparedSide, from: &'a ComparedSide| {
        let silent = move |path: &&String| !from.complete && !from.values.contains_key(*path);
        of.values.keys().filter(silent)
    };
    let paths = missing(&a.side, &b.side).chain(missing(&b.side, &a.side));
    let mut paths: Vec<&str> =
        paths.map(String::as_str).filter(|path| compare::in_arm(path)).collect();
    paths.sort_unstable();
    paths
}

fn diff_json(a: &Operand, b: &Operand, differences: &[Difference], unstated: &[&str]) -> Value {
    let operand = |operand: &Operand| {
        json!({
            "name": operand.name,
            "arm": operand.experiment.as_ref().map(|experiment| &experiment.name),
            "arm_sha256": operand.experiment.as_ref().map(Experiment::arm_sha256),
        })
    };
    let difference = |it: &Difference| with_facts(json!(it), sources::of(&it.key));
    json!({
        "schema": "dapo-config-diff/1",
        "a": operand(a),
        "b": operand(b),
        "same_arm": differences.iter().all(|difference| !difference.in_arm),
        "differences": differences.iter().map(difference).collect::<Vec<_>>(),
        "not_stated": unstated,
    })
}

fn diff_text(a: &Operand, b: &Operand, differences: &[Difference], unstated: &[&str]) -> String {
    let (inside, outside): (Vec<&Difference>, Vec<&Difference>) =
        differences.iter().partition(|difference| difference.in_arm);
    let mut text = format!("a: {}\nb: {}\n", a.title(), b.title());
    let publication = a.experiment.is_none() || b.experiment.is_none();
    text += &match (inside.len(), publication) {
        (0, false) => "same arm: no key of its identity differs\n".to_string(),
        (0, true) => "no stated key of the arm's identity differs\n".to_string(),
        (1, _) => "1 key of the arm's identity differs\n".to_string(),
        (count, _) => format!("{count} keys of the arm's identity differ\n"),
    };
    text.extend(inside.into_iter().map(difference_text));
    if !outside.is_empty() {
        text += "\noutside the arm's identity:\n";
    }
    for Difference { key, a, b, .. } in outside {
        text += &format!("  {key}: {} → {}\n", literal(a.as_ref()), literal(b.as_ref()));
    }
    if !unstated.is_empty() {
        text += &format!("\n{} keys of the arm have no value there:\n", unstated.len());
    }
    let publications = [a, b].into_iter().filter(|operand| operand.experiment.is_none());
    let names: Vec<&str> = publications.map(|operand| operand.name.as_str()).collect();
    for path in unstated {
        let remark = |name: &&str| {
            let key = sources::of(path)?;
            let stated = if *name == "paper" { &key.paper } else { &key.released_code };
            let is_remark = stated.value.is_none() && !stated.remark.is_empty();
            is_remark.then(|| format!("; {name}: {}", stated.sentence()))
        };
        text += &format!("  {path}{}\n", names.iter().filter_map(remark).collect::<String>());
    }
    text
}

fn difference_text(difference: &Difference) -> String {
    let key = sources::of(&difference.key);
    let mut text = format!("\n{}\n", difference.key);
    if let Some(key) = key {
        text += &format!("  {}\n", key.meaning);
    }
    let unit = key.map_or("", |key| key.unit.as_str());
    let with_unit = |value: &Option<Value>| match value {
        Some(value) => format!("{value} {unit}").trim_end().to_string(),
        None => literal(None),
    };
    text += &line("a", &with_unit(&difference.a));
    text += &line("b", &with_unit(&difference.b));
    if let Some(key) = key {
        text += &line("paper", &key.paper.sentence());
        text += &line("released code", &key.released_code.sentence());
    }
    text
}

fn line(name: &str, value: &str) -> String {
    format!("  {name:<15}{value}\n")
}

fn show(args: &ShowArgs) -> Result<u8> {
    let (path, experiment) = experiment(&args.experiment, &args.overrides)?;
    let (path, arm) = (path.display().to_string(), experiment.arm_sha256());
    let document = json!({
        "schema": "dapo-config/1",
        "source": path,
        "arm_sha256": arm,
        "experiment": experiment,
        "unread": warnings::unread_keys(&experiment),
    });
    let toml = toml::to_string(&experiment)?;
    output::document(args.json, &document, || {
        let note = "[inputs] and [execution] are not part of the arm; paths are relative to here";
        let unread = warnings::unread_keys(&experiment).into_iter();
        let unread: String = unread.map(|sentence| format!("# warning: {sentence}\n")).collect();
        format!("# {path}\n# arm {arm}\n# {note}\n{unread}{toml}")
    });
    Ok(exit::SUCCESS)
}

fn explain(args: &ExplainArgs) -> Result<u8> {
    let asked = args.key.as_deref().unwrap_or_default();
    let below = format!("{}.", asked.trim_end_matches('.'));
    let chosen: Vec<&Key> = sources::all()
        .filter(|key| asked.is_empty() || key.matches(asked) || key.path.starts_with(&below))
        .collect();
    if chosen.is_empty() {
        let meant = diagnose::meant(asked).join(" or ");
        let meant = if meant.is_empty() { meant } else { format!("did you mean {meant}? ") };
        bail_usage!("there is no key {asked}; {meant}`dapo config explain` lists all keys");
    }
    let entry = |key: &&Key| {
        let entry = json!({ "key": key.path, "in_arm": compare::in_arm(&key.path) });
        let mut entry = with_facts(entry, Some(key));
        entry["usage"] = json!(usage::of(&key.path));
        entry
    };
    let entries: Vec<Value> = chosen.iter().map(entry).collect();
    output::lines(args.json, &entries, || joined(chosen.iter().map(|key| key_text(key)), "\n"));
    Ok(exit::SUCCESS)
}

fn key_text(key: &Key) -> String {
    let outside = if compare::in_arm(&key.path) { "" } else { " (outside the arm's identity)" };
    let mut text = format!("{}{outside}\n", key.path);
    for (name, fact) in facts(Some(key)) {
        if let Some(fact) = fact.filter(|fact| name != "unit" || !fact.is_empty()) {
            text += &line(&name.replace('_', " "), &fact);
        }
    }
    let KeyUsage { allowed, base, arms } = usage::of(&key.path);
    text += &allowed.map_or_else(String::new, |allowed| line("allowed", &allowed));
    text += &base.map_or_else(String::new, |base| line("grpo", &base.to_string()));
    let arms: Vec<String> = arms.iter().map(|(arm, value)| format!("{arm} {value}")).collect();
    if !arms.is_empty() {
        text += &line("arms", &arms.join(", "));
    }
    text
}

//! A comparison of two runs in words. Foreign text is made visible.

use crate::base::visible::{message, shortened, visible};
use crate::experiment::compare::Difference;
use crate::report::page::{Block, Section, Table, TableCell, row};
use crate::report::text;
use crate::verification::diff::{DiffVerdict, finding::DiffFinding, ulps};
use crate::verification::{Basis, FirstDifference, Named, Pair, RunDiff};
use serde_json::Value;

const VALUE_CHARACTERS: usize = 80;

/// From here on two values differ by more than rounding, and their difference says more.
const MOST_ULPS: u64 = 1 << 20;

pub fn sections(diff: &RunDiff) -> Vec<Section> {
    let mut blocks = vec![sides(diff)];
    blocks.extend(diff.first.as_ref().map(components));
    let mut sections = vec![Section::new("verdict", &verdict(diff), blocks)];
    sections.extend(diff.findings.iter().map(finding));
    let config = diff.config.iter().map(config).collect();
    for (title, columns, rows) in [
        ("identity", "name | a | b", diff.identity.iter().map(named).collect()),
        ("config", "key | a | b | identity", config),
        ("environment", "name | a | b", diff.environment.iter().map(named).collect()),
    ] {
        let rows: Vec<Vec<TableCell>> = rows;
        let table = (!rows.is_empty()).then(|| Block::Table(Table::new("", columns, rows)));
        sections.extend(table.map(|table| Section::new(title, title, vec![table])));
    }
    let notes: Vec<String> = diff.notes.iter().map(|note| message(note)).collect();
    let notes = (!notes.is_empty()).then_some(Block::List(notes));
    sections.extend(notes.map(|notes| Section::new("notes", "notes", vec![notes])));
    sections
}

fn sides(diff: &RunDiff) -> Block {
    let rows = [("a", &diff.a), ("b", &diff.b)].map(|(name, side)| {
        let ending = side.ending.as_deref().unwrap_or("unfinished");
        let (folder, arm) = (visible(&side.folder), visible(&side.name));
        row![name, arm, side.seed.to_string(), side.steps.to_string(), ending, folder]
    });
    Block::Table(Table::new("", "run | arm | seed # | rollout steps # | ending | folder", rows))
}

fn verdict(diff: &RunDiff) -> String {
    let by = match diff.basis {
        Basis::Ledgers if diff.lacking => "ledgers; stored records where both runs have them",
        Basis::Ledgers => "ledgers and stored records",
        Basis::Files => "stored records alone",
    };
    let steps = diff.agreeing_steps;
    match (&diff.first, diff.verdict) {
        (Some(first), _) => {
            let tells = match (first.by_ledger, diff.basis) {
                (true, _) => "as the ledgers tell",
                (false, Basis::Ledgers) => "as the stored records tell",
                (false, Basis::Files) => "as the stored records tell; there are no two ledgers",
            };
            format!("different: first {}, {tells}", place(first))
        }
        (None, DiffVerdict::Identical) => {
            let steps = text::counted(steps as usize, "rollout step", "rollout steps");
            format!("identical: {steps} and all that was recorded agree ({by})")
        }
        (None, DiffVerdict::Prefix) => format!(
            "the same as far as both go: they agree up to rollout step {steps} ({by}), and one goes further"
        ),
        (None, DiffVerdict::Inconclusive) => {
            format!("inconclusive: nothing differs in what both have ({by}), and one lacks records")
        }
        (None, DiffVerdict::Different) => format!(
            "different in identity; no recorded number differs up to rollout step {steps} ({by})"
        ),
    }
}

fn place(first: &FirstDifference) -> String {
    let (step, component) = (first.step, visible(&first.component));
    match component.as_str() {
        "evaluations" => format!("in an evaluation {}; no rollout step differs", evaluation(step)),
        "checkpoint" => {
            format!("in files of the checkpoint after rollout step {step}; no rollout step differs")
        }
        "ending" => format!("in how they ended, after rollout step {step}"),
        _ => format!("at rollout step {step}, component {component}"),
    }
}

fn evaluation(step: u64) -> String {
    match step {
        0 => "before training".to_string(),
        step => format!("after rollout step {step}"),
    }
}

fn components(first: &FirstDifference) -> Block {
    let list = |names: &[String]| visible(&text::joined(names, ", "));
    let mut lines = Vec::new();
    if first.step > 0 {
        let listed = [("agree", &first.agreeing), ("differ", &first.differing)];
        let listed = listed.into_iter().filter(|(_, names)| !names.is_empty());
        lines.extend(listed.map(|(word, names)| format!("{word}: {}", list(names))));
    }
    let step = first.evaluation_step;
    lines.extend(step.map(|step| format!("evaluations first differ {}", evaluation(step))));
    Block::List(lines)
}

fn finding(finding: &DiffFinding) -> Section {
    let DiffFinding { component, differing, compared, unit, .. } = finding;
    let file = finding.file.as_ref().map(|file| format!(" ({file})")).unwrap_or_default();
    let remark = finding.remark.as_ref().map(|remark| format!(": {remark}")).unwrap_or_default();
    let largest = finding.largest.as_ref().filter(|_| *differing > 1);
    let pairs = [("first", finding.first.as_ref()), ("largest", largest)];
    let rows: Vec<_> =
        pairs.into_iter().filter_map(|(name, shown)| Some(pair(name, shown?))).collect();
    let mut blocks = Vec::new();
    if !rows.is_empty() {
        blocks.push(Block::text(format!("{differing} of {compared} {unit} differ")));
        let columns = "difference | place | a | b | distance";
        blocks.push(Block::Table(Table::new("", columns, rows)));
    }
    Section::new(component, &visible(&format!("{component}{file}{remark}")), blocks)
}

fn pair(name: &str, pair: &Pair) -> Vec<TableCell> {
    let distance = match pair.ulps {
        Some(0) => "0 ulps: the sign of a zero".to_string(),
        Some(1) => "1 ulp".to_string(),
        Some(ulps) if ulps <= MOST_ULPS => format!("{ulps} ulps"),
        Some(_) => pair.a.gap(&pair.b).map_or_else(String::new, text::number),
        None => String::new(),
    };
    let value = |value: &ulps::Value| short(&value.text());
    row![name, visible(&pair.at.text()), value(&pair.a), value(&pair.b), distance]
}

fn named(named: &Named) -> Vec<TableCell> {
    let value = |value: &Option<String>| value.as_deref().map_or("absent".to_string(), short);
    row![visible(&named.name), value(&named.a), value(&named.b)]
}

fn short(value: &str) -> String {
    let is_digest = value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    let shown = if is_digest { format!("{}…", &value[..12]) } else { visible(value) };
    shortened(&shown, VALUE_CHARACTERS)
}

fn config(difference: &Difference) -> Vec<TableCell> {
    let value = |value: &Option<Value>| {
        value.as_ref().map_or("absent".to_string(), |it| short(&it.to_string()))
    };
    let identity = if difference.in_arm { "the arm's" } else { "outside the arm's" };
    row![visible(&difference.key), value(&difference.a), value(&difference.b), identity]
}

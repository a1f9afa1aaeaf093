//! A comparison of two runs as text.

use crate::base::visible;
use crate::verification::diff::{DiffVerdict, finding::DiffFinding, side::DiffSummary};
use crate::verification::{Basis, FirstDifference, Named, Pair, RunDiff};
use serde_json::Value;

/// Characters before a value is shortened.
const VALUE_CHARACTERS: usize = 80;

/// Without control characters.
pub fn text(diff: &RunDiff) -> String {
    let mut text = format!("a: {}\nb: {}\n", side(&diff.a), side(&diff.b));
    text += &format!("{}\n", verdict(diff));
    if let Some(first) = &diff.first {
        text += &components(first);
    }
    for finding in &diff.findings {
        text += &format!("\n{}", finding_text(finding));
    }
    text += &section("identity", diff.identity.iter().map(named));
    text += &section("config", diff.config.iter().map(config));
    text += &section("environment", diff.environment.iter().map(named));
    text += &section("notes", diff.notes.iter().map(|note| visible::message(note)));
    text
}

fn side(side: &DiffSummary) -> String {
    let ending = side.ending.as_deref().unwrap_or("not finished");
    format!(
        "{}: arm {}, seed {}, {} recorded, {ending}",
        visible::visible(&side.folder),
        visible::visible(&side.name),
        side.seed,
        steps(side.steps)
    )
}

fn steps(count: u64) -> String {
    if count == 1 { "1 rollout step".to_string() } else { format!("{count} rollout steps") }
}

pub fn verdict(diff: &RunDiff) -> String {
    let by = match diff.basis {
        Basis::Ledgers => "ledgers and stored records",
        Basis::Files => "stored records alone",
    };
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
            format!("identical: {} and all that was recorded agree ({by})", steps(diff.a.steps))
        }
        (None, DiffVerdict::Prefix) => format!(
            "the same as far as both go: they agree up to rollout step {} ({by}); {}",
            diff.agreeing_steps,
            longer(diff)
        ),
        (None, DiffVerdict::Inconclusive) => {
            format!("inconclusive: nothing differs in what both have ({by}), and one lacks records")
        }
        (None, DiffVerdict::Different) => format!(
            "different in identity; no recorded number differs up to rollout step {} ({by})",
            diff.agreeing_steps
        ),
    }
}

fn place(first: &FirstDifference) -> String {
    let (step, component) = (first.step, visible::visible(&first.component));
    match component.as_str() {
        "evaluations" => format!("in an evaluation {}; no rollout step differs", evaluation(step)),
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

fn longer(diff: &RunDiff) -> String {
    let goes_on = |name: &str, side: &DiffSummary| match &side.ending {
        Some(ending) => format!("{name} has {}, {ending}", steps(side.steps)),
        None => format!("{name} has {}, not finished", steps(side.steps)),
    };
    format!("{}; {}", goes_on("a", &diff.a), goes_on("b", &diff.b))
}

fn components(first: &FirstDifference) -> String {
    let list = |names: &[String]| {
        if names.is_empty() { "-".to_string() } else { visible::visible(&names.join(", ")) }
    };
    let mut text = match first.step {
        0 => String::new(),
        _ => format!("  agree   {}\n  differ  {}\n", list(&first.agreeing), list(&first.differing)),
    };
    if let Some(step) = first.evaluation_step {
        text += &format!("  evaluations first differ {}\n", evaluation(step));
    }
    text
}

fn finding_text(finding: &DiffFinding) -> String {
    let mut text = visible::visible(&finding.component);
    if let Some(file) = &finding.file {
        text += &format!(" ({})", visible::visible(file));
    }
    if let Some(remark) = &finding.remark {
        text += &format!(": {}", visible::visible(remark));
    }
    text.push('\n');
    if let Some(first) = &finding.first {
        text += &pair("first", first);
        let (differing, compared) = (finding.differing, finding.compared);
        text += &format!("  {differing} of {compared} {} differ\n", finding.unit);
    }
    if let Some(largest) = finding.largest.as_ref().filter(|_| finding.differing > 1) {
        text += &pair("largest", largest);
    }
    text
}

fn pair(name: &str, pair: &Pair) -> String {
    let ulps = match pair.ulps {
        Some(0) => " (0 ulps: the sign of a zero)".to_string(),
        Some(1) => " (1 ulp)".to_string(),
        Some(ulps) => format!(" ({ulps} ulps)"),
        None => String::new(),
    };
    let value = |value: &crate::verification::diff::ulps::Value| {
        visible::shortened(&visible::visible(&value.text()), VALUE_CHARACTERS)
    };
    let at = visible::visible(&pair.at.text());
    format!("  {name}: {at}: {} → {}{ulps}\n", value(&pair.a), value(&pair.b))
}

fn section(title: &str, lines: impl ExactSizeIterator<Item = String>) -> String {
    if lines.len() == 0 {
        return String::new();
    }
    let lines: String = lines.map(|line| format!("  {line}\n")).collect();
    format!("\n{title}:\n{lines}")
}

fn named(named: &Named) -> String {
    let value = |value: &Option<String>| value.as_deref().map_or("absent".to_string(), short);
    format!("{}: {} → {}", visible::visible(&named.name), value(&named.a), value(&named.b))
}

fn short(value: &str) -> String {
    let is_digest = value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    let shown = if is_digest { format!("{}…", &value[..12]) } else { visible::visible(value) };
    visible::shortened(&shown, VALUE_CHARACTERS)
}

fn config(difference: &crate::experiment::compare::Difference) -> String {
    let value = |value: &Option<Value>| {
        value.as_ref().map_or("absent".to_string(), |it| short(&it.to_string()))
    };
    let outside = if difference.in_arm { "" } else { " (outside the arm's identity)" };
    let key = visible::visible(&difference.key);
    format!("{key}: {} → {}{outside}", value(&difference.a), value(&difference.b))
}

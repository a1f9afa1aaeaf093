//! `dapo regress`: does this program still compute what it did when the golden runs were blessed?

use crate::base::files;
use crate::commands::terminal::gate_file::{GateCheck, GateFile, GateOutcome};
use crate::commands::{
    exit,
    exit::{bail_invalid, bail_usage},
    output,
};
use crate::records::RunFolder;
use crate::report::page::{Block, Section, Table, row};
use crate::report::terminal;
use crate::report::text::counted;
use crate::statistics::equivalence::EquivalenceVerdict;
use crate::verification::diff::text;
use crate::verification::regress::{bless, curves, exact, rule};
use crate::verification::{Compared, Fast, Golden, RegressJudged};
use anyhow::Result;
use serde_json::json;
use std::path::PathBuf;
use std::time::SystemTime;

/// Compare this program with the golden runs.
///
/// The part `exact` trains a short run, whose ledger must equal the golden one bit for bit; if not, the
/// first rollout step and component that differ are named. The part `fast` trains a short run with several
/// seeds, whose mean curves must lie within margins (two one-sided tests). rule.toml, beside the golden
/// files, declares both.
///
/// With --bless the present results become the golden ones. This needs a reason, which LOG.md
/// keeps with the old and the new digest, and a commit: of all files of the golden folder, and of every tracked
/// file of its git repository.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/regress.txt"))]
pub struct RegressArgs {
    /// Folder with rule.toml and the golden files.
    #[arg(long, default_value = "golden/runs")]
    golden: PathBuf,
    /// Only this part.
    #[arg(long)]
    part: Option<RegressPart>,
    /// Make the present results the golden ones.
    #[arg(long, requires = "reason", conflicts_with_all = ["json", "junit"])]
    bless: bool,
    /// Why the results changed, for LOG.md.
    #[arg(long, requires = "bless")]
    reason: Option<String>,
    /// One JSON document instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    gate: GateFile,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RegressPart {
    /// The ledger, bit for bit.
    Exact,
    /// The curves, within margins.
    Fast,
}

/// Errors: golden files that are missing or stale, a run that fails, or a blessing that is refused.
pub fn run(args: &RegressArgs) -> Result<u8> {
    if args.reason.is_some() && !args.bless {
        bail_usage!("--reason is for --bless");
    }
    args.gate.begin()?;
    let golden = Golden::at(&args.golden);
    if files::kind(&golden.rule())?.is_none() {
        bail_invalid!(
            "{}: there are no golden runs here; run it in a checkout of the project, or name their folder with --golden",
            golden.rule().display()
        );
    }
    let rule = rule::load(&golden.rule())?;
    let is_wanted = |part| args.part.is_none_or(|only| only == part);
    // These fail before anything is computed.
    if is_wanted(RegressPart::Fast) {
        curves::check(&golden, &rule.fast)?;
    }
    let reason = args.reason.as_deref().filter(|_| args.bless);
    let leave = reason.map(|reason| bless::leave(&golden, reason)).transpose()?;
    let compares_curves = is_wanted(RegressPart::Fast) && leave.is_none();
    let old = compares_curves.then(|| curves::load(&golden, &rule.fast)).transpose()?;
    if is_wanted(RegressPart::Exact) && leave.is_none() {
        exact::load(&golden)?;
    }
    let scratch = files::leftovers::scratch_folder(None)?;
    let mut exact = None;
    if is_wanted(RegressPart::Exact) {
        let folder = RunFolder::at(scratch.path().join("exact"));
        let watch = &mut |steps| {
            let steps = counted(steps as usize, "rollout step", "rollout steps");
            output::tell(format!("exact: {steps}"));
        };
        exact::run(&golden, &rule.exact, &folder, watch)?;
        exact = Some(folder);
    }
    let mut fast = None;
    if is_wanted(RegressPart::Fast) {
        let (count, mut done) = (rule.fast.seeds.len(), 0);
        let watch = &mut |seed| {
            done += 1;
            output::tell(format!("fast: seed {seed} done, {done} of {count}"));
        };
        fast = Some(curves::run(&golden, &rule.fast, &scratch.path().join("fast"), watch)?);
    }
    if let Some(leave) = leave {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        bless::accept(&golden, &rule.fast, (exact.as_ref(), fast.as_ref()), &leave, now)?;
        output::path(&golden.log());
        return Ok(exit::SUCCESS);
    }
    let compared = exact.as_ref().map(|run| exact::compare(&golden, run)).transpose()?;
    let judge = |(old, new)| curves::compare(&golden, &rule.fast, old, new);
    let judged = old.as_ref().zip(fast.as_ref()).map(judge).transpose()?;
    let mut sections = compared.as_ref().map(exact_sections).unwrap_or_default();
    sections.extend(judged.as_deref().map(|judged| fast_section(&rule.fast, judged)));
    output::sections((args.json, false), &json!({"exact": compared, "fast": judged}), &sections);
    args.gate.publish("dapo regress", &checks(compared.as_ref(), judged.as_deref()))?;
    let is_same = compared.is_none_or(|compared| compared.diff.is_none());
    let verdict = judged.as_deref().map(curves::verdict);
    Ok(exit::agreed(is_same && verdict.is_none_or(|it| it == EquivalenceVerdict::Reproduced)))
}

fn checks(compared: Option<&Compared>, judged: Option<&[RegressJudged]>) -> Vec<GateCheck> {
    let exact = compared.iter().map(|compared| GateCheck {
        name: "exact: the ledger".to_string(),
        outcome: if compared.diff.is_none() { GateOutcome::Passed } else { GateOutcome::Failed },
        text: terminal::render(&exact_sections(compared), None),
    });
    let point = |RegressJudged { point, golden, new, equivalence }: &RegressJudged| GateCheck {
        name: format!("fast: {}", point.name()),
        outcome: match equivalence.verdict {
            EquivalenceVerdict::Reproduced => GateOutcome::Passed,
            EquivalenceVerdict::NotReproduced => GateOutcome::Failed,
            EquivalenceVerdict::Inconclusive => GateOutcome::Undecided,
        },
        text: format!(
            "{}: {new:.4}, golden {golden:.4}, margin {:.4}",
            words(equivalence.verdict),
            equivalence.margin
        ),
    };
    exact.chain(judged.unwrap_or_default().iter().map(point)).collect()
}

fn exact_sections(Compared { golden, head, diff }: &Compared) -> Vec<Section> {
    let title = match diff {
        None => format!("exact: same ledger, {head}"),
        Some(_) => format!("exact: another ledger, {head}, golden {golden}"),
    };
    let mut sections = vec![Section::new("exact", &title, Vec::new())];
    sections.extend(diff.iter().flat_map(text::sections));
    sections
}

fn fast_section(rule: &Fast, judged: &[RegressJudged]) -> Section {
    let rows = judged.iter().map(|RegressJudged { point, golden, new, equivalence }| {
        row![
            point.name(),
            format!("{golden:.4}"),
            format!("{new:.4}"),
            format!("{:+.4} ± {:.4}", equivalence.difference, equivalence.half_width),
            format!("{:.4}", equivalence.margin),
            words(equivalence.verdict),
        ]
    });
    let columns = "point | golden # | new # | difference # | margin # | verdict";
    let title = format!(
        "fast: {} ({} seeds; difference with its {:.0} % interval, within ± margin)",
        words(curves::verdict(judged)),
        rule.seeds.len(),
        100.0 * (1.0 - 2.0 * rule.alpha)
    );
    Section::new("fast", &title, vec![Block::Table(Table::new("", columns, rows))])
}

fn words(verdict: EquivalenceVerdict) -> &'static str {
    match verdict {
        EquivalenceVerdict::Reproduced => "reproduced",
        EquivalenceVerdict::NotReproduced => "not reproduced",
        EquivalenceVerdict::Inconclusive => "inconclusive",
    }
}

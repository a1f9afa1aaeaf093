//! `dapo regress`: does this program still compute what it did when the golden runs were blessed?

use crate::base::{files, workers};
use crate::commands::{exit, output};
use crate::records::RunFolder;
use crate::statistics::equivalence::EquivalenceVerdict;
use crate::training::run::inputs;
use crate::verification::diff::text;
use crate::verification::regress::{self, bless, curves, exact, rule};
use crate::verification::{Blessed, Compared, Golden, RegressCurves, RegressJudged, RegressRule};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// Compare this program with the golden runs.
///
/// exact: a short run whose ledger must be the golden one bit for bit; otherwise the first
/// rollout step and component that differ are named. fast: several seeds of a short run, whose
/// mean curves must lie within declared margins (two one-sided tests). Both are declared in
/// rule.toml beside the golden files.
///
/// With --bless the present results become the golden ones. That needs a clean git tree and a
/// reason, which goes into LOG.md with the old and the new digest.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo regress
  dapo regress --part exact
  dapo regress --bless --reason \"exp from the libm crate\"

Exit codes:
  0  the ledger is the golden one, and every point is reproduced
  3  no golden run, one of another arm or rule, or a blessing that is refused
  4  the ledger differs, or a point is not reproduced or inconclusive")]
pub struct RegressArgs {
    /// Folder with rule.toml and the golden files.
    #[arg(long, default_value = "golden/runs")]
    golden: PathBuf,
    /// Only this part.
    #[arg(long)]
    part: Option<RegressPart>,
    /// Make the present results the golden ones.
    #[arg(long, requires = "reason")]
    bless: bool,
    /// Why they changed; for LOG.md.
    #[arg(long, requires = "bless")]
    reason: Option<String>,
}

/// A part of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RegressPart {
    /// The ledger, bit for bit.
    Exact,
    /// The curves, within margins.
    Fast,
}

/// # Errors
/// Golden files that are missing or stale, a run that fails, or a blessing that is refused.
pub fn run(args: &RegressArgs) -> Result<ExitCode> {
    let golden = Golden::at(&args.golden);
    let rule = rule::load(&golden.rule())?;
    // Fails before anything is computed.
    let reason = args.reason.as_deref().filter(|_| args.bless);
    let leave = reason.map(|reason| bless::leave(&golden, reason)).transpose()?;
    let scratch = files::scratch_folder(&std::env::temp_dir())?;
    let runs = scratch.path();
    let asked = |part| args.part.is_none_or(|only| only == part);
    let (wants_exact, wants_fast) = (asked(RegressPart::Exact), asked(RegressPart::Fast));
    let regression = Regression { golden, rule, runs };
    let Regression { golden, rule, .. } = &regression;
    // Fails before anything is computed, too.
    let compares = wants_fast && leave.is_none();
    let old = compares.then(|| curves::load(golden, &rule.fast)).transpose()?;
    let exact = wants_exact.then(|| regression.exact_run()).transpose()?;
    let new = wants_fast.then(|| regression.fast_runs()).transpose()?;
    if let Some(leave) = leave {
        let parts = regression.accept(exact.as_ref(), new.as_ref())?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        bless::record(golden, &leave, &parts, now)?;
        output::path(&golden.log());
        return Ok(ExitCode::SUCCESS);
    }
    let compared = exact.as_ref().map(|run| exact::compare(golden, run)).transpose()?;
    let judge = |(old, new)| curves::compare(golden, &rule.fast, old, new);
    let judged = old.as_ref().zip(new.as_ref()).map(judge).transpose()?;
    print!("{}", result_text(rule, compared.as_ref(), judged.as_deref()));
    let same = compared.as_ref().is_none_or(|compared| compared.diff.is_none());
    let verdict = judged.as_deref().map(curves::verdict);
    let reproduced = verdict.is_none_or(|it| it == EquivalenceVerdict::Reproduced);
    Ok(exit::agreed(same && reproduced))
}

struct Regression<'a> {
    golden: Golden,
    rule: RegressRule,
    runs: &'a Path,
}

impl Regression<'_> {
    /// Trains to the end.
    fn exact_run(&self) -> Result<RunFolder> {
        let declared = &self.rule.exact.experiment;
        let experiment = regress::experiment(&self.golden.rule(), declared)?;
        workers::set_count(experiment.execution.threads);
        let folder = RunFolder::at(self.runs.join("exact"));
        eprintln!("exact: {} rollout steps", experiment.training.rollout_steps);
        regress::complete(&inputs::prepare(experiment)?, &folder)?;
        Ok(folder)
    }

    fn fast_runs(&self) -> Result<RegressCurves> {
        let fast = &self.rule.fast;
        let experiment = regress::experiment(&self.golden.rule(), &fast.experiment)?;
        workers::set_count(experiment.execution.threads);
        let (count, mut done) = (fast.seeds.len(), 0);
        let watch = &mut |seed| {
            done += 1;
            eprintln!("fast: seed {seed} done, {done} of {count}");
        };
        Ok(curves::run(&self.golden, fast, &self.runs.join("fast"), watch)?)
    }

    fn accept(
        &self,
        exact: Option<&RunFolder>,
        fast: Option<&RegressCurves>,
    ) -> Result<Vec<Blessed>> {
        let mut parts = Vec::new();
        if let Some(run) = exact {
            let (before, now) = exact::replace(&self.golden, run)?;
            parts.push(Blessed { part: "exact", before, now });
        }
        if let Some(curves) = fast {
            // Repeated golden values have to pass: otherwise the margins are too narrow for so many seeds.
            let judged = curves::compare(&self.golden, &self.rule.fast, curves, curves)?;
            let passes =
                |it: &&RegressJudged| it.equivalence.verdict == EquivalenceVerdict::Reproduced;
            if let Some(RegressJudged { point, equivalence, .. }) =
                judged.iter().find(|it| !passes(it))
            {
                let reason = format!(
                    "{}: the half width {} of its own noise is not below the margin {}: more seeds \
                     or a wider margin",
                    point.name(),
                    equivalence.half_width,
                    equivalence.margin
                );
                return Err(exit::Invalid(reason).into());
            }
            let path = self.golden.curves();
            let before = path.exists().then(|| files::sha256_file(&path)).transpose()?;
            files::write_json(&path, curves)?;
            parts.push(Blessed { part: "fast", before, now: files::sha256_file(&path)? });
        }
        Ok(parts)
    }
}

fn result_text(
    rule: &RegressRule,
    exact: Option<&Compared>,
    fast: Option<&[RegressJudged]>,
) -> String {
    let mut text = String::new();
    match exact {
        Some(Compared { diff: None, head, .. }) => text += &format!("exact: same ledger, {head}\n"),
        Some(Compared { diff: Some(diff), golden, head }) => {
            text +=
                &format!("exact: another ledger, {head}, golden {golden}\n{}", text::text(diff));
        }
        None => {}
    }
    if let Some(judged) = fast {
        let confidence = 100.0 * (1.0 - 2.0 * rule.fast.alpha);
        text += &format!(
            "fast: {} ({} seeds; difference with its {confidence:.0} % interval, within ± margin)\n",
            words(curves::verdict(judged)),
            rule.fast.seeds.len()
        );
        text += &judged_table(judged);
    }
    text
}

fn judged_table(judged: &[RegressJudged]) -> String {
    let rows = judged.iter().map(|RegressJudged { point, golden, new, equivalence }| {
        [
            point.name(),
            format!("{golden:.4}"),
            format!("{new:.4}"),
            format!("{:+.4} ± {:.4}", equivalence.difference, equivalence.half_width),
            format!("{:.4}", equivalence.margin),
            words(equivalence.verdict).to_string(),
        ]
    });
    output::table("point | golden # | new # | difference # | margin # | verdict", rows)
}

fn words(verdict: EquivalenceVerdict) -> &'static str {
    match verdict {
        EquivalenceVerdict::Reproduced => "reproduced",
        EquivalenceVerdict::NotReproduced => "not reproduced",
        EquivalenceVerdict::Inconclusive => "inconclusive",
    }
}

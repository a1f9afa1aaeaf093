//! `dapo regress`: does this program still compute what it did when the golden runs were blessed?

use crate::base::{files, visible, workers};
use crate::commands::{bounds, exit, output};
use crate::records::RunFolder;
use crate::statistics::equivalence::{self, EquivalenceVerdict};
use crate::training::run::inputs;
use crate::verification::diff::text;
use crate::verification::regress::{self, bless, curves, exact, rule};
use crate::verification::{Blessed, Compared, Golden, RegressCurves, RegressJudged, RegressRule};
use anyhow::{Context, Result};
use serde_json::{Value, json};
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
  dapo regress --part exact --host-line
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
    /// Threads of LibTorch, instead of the experiments'. Under fast arithmetic they are a part
    /// of what the exact part's ledger binds.
    #[arg(long, value_parser = bounds::threads())]
    threads: Option<u64>,
    /// Keep the runs in this folder, which must not exist or be empty; otherwise they are
    /// deleted.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// One JSON document instead of text.
    #[arg(long, conflicts_with = "host_line")]
    json: bool,
    /// Print the line that HOSTS.md needs for this machine, when the exact part agrees.
    #[arg(long, conflicts_with = "bless")]
    host_line: bool,
    /// Make the present results the golden ones.
    #[arg(long, requires = "reason", conflicts_with = "json")]
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

/// Runs the verb.
///
/// # Errors
/// Golden files that are missing or stale, a run that fails, or a blessing that is refused.
pub fn run(args: &RegressArgs) -> Result<ExitCode> {
    let golden = Golden::at(&args.golden);
    let rule = rule::load(&golden.rule())?;
    // Asked before anything is computed.
    let reason = args.reason.as_deref().filter(|_| args.bless);
    let leave = reason.map(|reason| bless::leave(&golden, reason)).transpose()?;
    let scratch = files::scratch_folder(&std::env::temp_dir())?;
    let runs = args.keep.as_deref().unwrap_or(scratch.path());
    if runs.is_dir() && !files::list(runs)?.is_empty() {
        let reason = format!("--keep {}: the folder is not empty", runs.display());
        return Err(exit::Invalid(reason).into());
    }
    let asked = |part| args.part.is_none_or(|only| only == part);
    let (wants_exact, wants_fast) =
        (asked(RegressPart::Exact), asked(RegressPart::Fast) && !args.host_line);
    let regression = Regression { golden, rule, runs, threads: args.threads };
    let Regression { golden, rule, .. } = &regression;
    // What is missing or stale is said before anything is computed, too.
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
    let found = document(compared.as_ref(), judged.as_deref());
    let text = || result_text(rule, compared.as_ref(), judged.as_deref());
    output::document(args.json, &found, text);
    let same = compared.as_ref().is_none_or(|compared| compared.diff.is_none());
    let verdict = judged.as_deref().map(curves::verdict);
    let reproduced = verdict.is_none_or(|it| it == EquivalenceVerdict::Reproduced);
    if let (true, true, Some(run), Some(compared)) = (args.host_line, same, exact, compared) {
        println!("{}", host_line(&run, &compared.head)?);
    }
    Ok(exit::agreed(same && reproduced))
}

/// What is compared, and where its runs lie.
struct Regression<'a> {
    golden: Golden,
    rule: RegressRule,
    runs: &'a Path,
    threads: Option<u64>,
}

impl Regression<'_> {
    /// The exact part's run, to its end.
    fn exact_run(&self) -> Result<RunFolder> {
        let declared = &self.rule.exact.experiment;
        let mut experiment = regress::experiment(&self.golden.rule(), declared)?;
        let execution = &mut experiment.execution;
        execution.threads = self.threads.unwrap_or(execution.threads);
        workers::set_count(execution.threads);
        let folder = RunFolder::at(self.runs.join("exact"));
        eprintln!("exact: {} rollout steps", experiment.training.rollout_steps);
        regress::complete(&inputs::prepare(experiment)?, &folder)?;
        Ok(folder)
    }

    fn fast_runs(&self) -> Result<RegressCurves> {
        let fast = &self.rule.fast;
        let experiment = regress::experiment(&self.golden.rule(), &fast.experiment)?;
        let threads = self.threads.unwrap_or(experiment.execution.threads);
        workers::set_count(threads);
        let (count, mut done) = (fast.seeds.len(), 0);
        let watch = &mut |seed| {
            done += 1;
            eprintln!("fast: seed {seed} done, {done} of {count}");
        };
        Ok(curves::run(&self.golden, fast, threads, &self.runs.join("fast"), watch)?)
    }

    /// Puts the present results in the place of the golden ones.
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
            eprint!("{}", sensitivity(&self.rule, curves)?);
            // A program that repeats its golden values has to pass: otherwise the margins are too
            // narrow for so many seeds.
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

/// What the margins can see, given the spread of the values over seeds.
fn sensitivity(rule: &RegressRule, curves: &RegressCurves) -> Result<String> {
    let mut rows = Vec::new();
    for point in &rule.fast.points {
        let values = curves.values_of(point)?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (values.len() - 1) as f64).sqrt();
        let sees = equivalence::sensitivity(deviation, values.len(), rule.fast.alpha, point.margin);
        let numbers = [mean, deviation, point.margin, sees.visible];
        let [mean, deviation, margin, seen] = numbers.map(|number| format!("{number:.4}"));
        let alarm = format!("{:.1e}", sees.false_alarm);
        rows.push([point.name(), mean, deviation, margin, alarm, seen]);
    }
    let header = ["point", "mean", "sd over seeds", "margin", "false alarm", "seen at 95 %"];
    Ok(format!("{}\n", output::table(header, 1..6, rows)))
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
        text += &format!("{}\n", judged_table(judged));
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
    let header = ["point", "golden", "new", "difference", "margin", "verdict"];
    output::table(header, 1..5, rows).to_string()
}

fn words(verdict: EquivalenceVerdict) -> &'static str {
    match verdict {
        EquivalenceVerdict::Reproduced => "reproduced",
        EquivalenceVerdict::NotReproduced => "not reproduced",
        EquivalenceVerdict::Inconclusive => "inconclusive",
    }
}

fn document(exact: Option<&Compared>, fast: Option<&[RegressJudged]>) -> Value {
    let exact = exact.map(|it| {
        json!({ "same": it.diff.is_none(), "golden": it.golden, "head": it.head, "diff": it.diff })
    });
    let fast = fast.map(|it| json!({ "verdict": curves::verdict(it), "points": it }));
    json!({ "schema": "dapo-regress/1", "exact": exact, "fast": fast })
}

/// A row of the table in HOSTS.md.
fn host_line(run: &RunFolder, head: &str) -> Result<String> {
    let facts = run.environment().context("the run's environment")?.facts;
    let threads = run.experiment()?.execution.threads;
    let fact = |name: &str| {
        let value = facts.get(name).map_or("unknown", String::as_str);
        visible::visible(value).replace('|', "\\|")
    };
    let cells = [
        fact("cpu"),
        fact("cpu_capability"),
        fact("libtorch"),
        fact("libtorch_cpu_sha256"),
        threads.to_string(),
        fact("git_commit"),
        head.to_string(),
    ];
    Ok(format!("| {} |", cells.join(" | ")))
}

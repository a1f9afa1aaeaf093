//! `dapo verify`: whether the folder of a run or of a study from somebody else is what it says.

use crate::base::workers;
use crate::commands::flags::wide::WideArg;
use crate::commands::terminal::gate_file::{GateCheck, GateFile, GateOutcome};
use crate::commands::{exit, exit::bail_usage, output};
use crate::numerics::Numerics;
use crate::records::RunFolder;
use crate::report::text::{joined, percent};
use crate::study::collection;
use crate::training::run::inputs;
use crate::verification::verify::{self, Check, Options, VerifyVerdict, replay::ReplayRequest};
use crate::verification::{Executed, Replay, Verification};
use anyhow::Result;
use std::path::PathBuf;

/// Verify the folder of a run, or of a study, from somebody else, offline and without trusting it.
///
/// Hashes every file again and computes everything derived again: rewards from responses,
/// advantages from rewards, scores from outcomes, the ledger and the report. With --replay, rollout
/// steps and evaluations are executed again and compared bit for bit. The verdict names what was
/// executed. Of a study every record is held against its digest, its own fields and the others, and
/// the report is built again; the cost of training a cell again is said. Nothing in the folder is
/// changed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = include_str!("help/verify.txt"))]
pub struct VerifyArgs {
    /// The folder of a run or of a study.
    #[arg(value_name = "RUN|STUDY")]
    run: PathBuf,
    /// N rollout steps and N evaluations that a challenge picks are executed again, and so is the
    /// step in which a run ended early.
    #[arg(
        long,
        value_name = "N",
        requires = "challenge",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    replay: Option<u64>,
    /// Problems of each picked evaluation that are sampled again; all of them under fast arithmetic.
    #[arg(
        long,
        value_name = "N",
        requires = "replay",
        default_value_t = 16,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    replay_problems: u64,
    /// The reviewer's seed, which picks the steps together with the ledger's last hash.
    #[arg(long, value_name = "SEED", requires = "replay")]
    challenge: Option<u64>,
    #[command(flatten)]
    inputs: Options,
    /// Your own copy of a study's declaration, TOML or JSON: from a registry, a commit or a mail. The
    /// folder's must be equal, and a declared arm or seed that is missing is inconclusive.
    #[arg(long, value_name = "FILE")]
    declaration: Option<PathBuf>,
    /// Print everything as one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: WideArg,
    #[command(flatten)]
    gate: GateFile,
}

/// Errors: a folder that holds no run, or that cannot be listed.
pub fn run(args: &VerifyArgs) -> Result<u8> {
    args.wide.apply();
    args.gate.begin()?;
    let is_study = collection::is_study(&args.run);
    if !is_study {
        collection::has_begun(&args.run)?;
        if args.run.is_dir() {
            collection::is_of_a_kind(&args.run)?;
        }
    }
    let found = if is_study { study(args)? } else { of_run(args)? };
    if args.json {
        output::json_line(&found);
    } else {
        print(&found);
    }
    args.gate.publish("dapo verify", &found.checks.iter().map(gate_check).collect::<Vec<_>>())?;
    Ok(match found.verdict {
        VerifyVerdict::Verified => exit::SUCCESS,
        VerifyVerdict::Mismatch => exit::MISMATCH,
        VerifyVerdict::Inconclusive => exit::INCONCLUSIVE,
    })
}

fn gate_check(check: &Check) -> GateCheck {
    let outcome = match check.verdict {
        VerifyVerdict::Verified => GateOutcome::Passed,
        VerifyVerdict::Mismatch => GateOutcome::Failed,
        VerifyVerdict::Inconclusive => GateOutcome::Undecided,
    };
    let findings = check.findings.iter().map(|it| format!("{}: {}", it.place, it.what));
    let further =
        (check.further_findings > 0).then(|| format!("… and {} more", check.further_findings));
    let text = findings.chain(further).chain([check.compared.clone()]);
    GateCheck { name: check.name.to_string(), outcome, text: joined(text, "\n") }
}

fn of_run(args: &VerifyArgs) -> Result<Verification> {
    if args.declaration.is_some() {
        bail_usage!("--declaration is for a study; a run has none");
    }
    let problems = args.replay_problems;
    let replay = args.replay.zip(args.challenge);
    let replay = replay.map(|(steps, challenge)| ReplayRequest { steps, problems, challenge });
    let folder = RunFolder::at(&args.run);
    let experiment = folder.experiment().ok();
    // Under `fast` arithmetic the run's threads, else this machine's. The experiment is validated before use.
    let here = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let fast = experiment.as_ref().filter(|experiment| experiment.numerics == Numerics::Fast);
    workers::set_count(fast.map_or(here, |experiment| experiment.execution.threads).clamp(1, 1024));
    let by_rule = experiment.as_ref().is_some_and(|it| !inputs::grades_by_program(it));
    if args.inputs.data.is_some() && experiment.is_some_and(|it| it.inputs.data.is_generated()) {
        output::tell("--data is not read: the problems of this run are generated, not files");
    }
    if !args.inputs.rewards.is_empty() && by_rule {
        output::tell("--run-rewards is not read: a rule grades the responses of this run");
    }
    let mut options = Options { replay, ..args.inputs.clone() };
    if by_rule {
        options.rewards.clear();
    }
    Ok(verify::verify(&folder, &options, &mut |what| output::tell(what))?)
}

fn study(args: &VerifyArgs) -> Result<Verification> {
    if args.replay.is_some() {
        bail_usage!(
            "--replay is for a run; a study's cells are trained again one by one, as `Not checked` says"
        );
    }
    let Options { base, data, rewards, .. } = &args.inputs;
    let of_runs = [
        ("--base", base.is_some()),
        ("--data", data.is_some()),
        ("--run-rewards", !rewards.is_empty()),
    ];
    exit::refuse_flags(&of_runs, "is for a run: nothing of a study is executed")?;
    Ok(verify::study::verify(&args.run, args.declaration.as_deref())?)
}

fn print(verification: &Verification) {
    let rows = verification.checks.iter();
    let rows = rows.map(|check| [check.name, check.verdict.name(), check.compared.as_str()]);
    print!("{}", output::table("check | verdict | compared", rows));
    for check in &verification.checks {
        for finding in &check.findings {
            println!();
            output::say(format!("{}: {}: {}", finding.verdict.name(), finding.place, finding.what));
        }
        if check.further_findings > 0 {
            println!("\n… and {} more in {}", check.further_findings, check.name);
        }
    }
    verification.replay.iter().for_each(print_replay);
    println!("\nNot checked:");
    for note in &verification.not_checked {
        output::say(format!("- {note}"));
    }
    if !verification.commands.is_empty() {
        println!("\nTo train the cheapest cell again:");
        // Each is copied as it is.
        verification.commands.iter().for_each(|command| println!("  {command}"));
    }
    println!();
    output::say(&verification.summary);
}

fn print_replay(replay: &Replay) {
    println!();
    output::say(format!(
        "Challenge: {}; it picks {}",
        replay.challenge,
        joined(&replay.picked, ", ")
    ));
    let (count, share) = (replay.covered.len(), percent(replay.covered_share));
    let covered = joined(&replay.covered, ", ");
    output::say(format!(
        "Executed again: {count} of {} rollout steps ({share}): {covered}",
        replay.steps
    ));
    let Executed { all, executed, all_problems, executed_problems, detection } =
        &replay.evaluations;
    let (count, names) = (executed.len(), executed.join(", "));
    output::say(format!(
        "Executed again: {count} of {all} evaluations, {executed_problems} of {all_problems} problems: {names}"
    ));
    println!();
    output::say(
        "Chance to catch one of several altered steps: at least, over all challenges, whichever steps were altered; and \
         by the steps above, if all steps are as likely to be altered",
    );
    let rows = replay.detection.iter();
    let rows =
        rows.map(|it| [it.altered_steps.to_string(), percent(it.at_least), percent(it.uniform)]);
    print!("{}", output::table("altered steps # | at least # | by these steps #", rows));
    println!();
    output::say("Chance to catch an evaluation with altered outcomes, over all challenges");
    let rows = detection.iter().map(|it| [it.altered_problems.to_string(), percent(it.at_least)]);
    print!("{}", output::table("altered problems # | at least #", rows));
}

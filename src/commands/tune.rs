//! `dapo model tune`: a cold start from written solutions.

use crate::base::workers;
use crate::commands::{Interrupt, Progress, bounds, exit, exit::Invalid, output, pretrain};
use crate::report::text::points;
use crate::task::TaskError;
use crate::training::{
    TrainingError, TuneEvaluation, TuneEvent, TuneRecipe, TuneRecord, tuned, tuning,
};
use anyhow::Result;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Tune a checkpoint on written solutions, so that it knows the form of an answer before training.
///
/// The policy learns the solutions of a generated task, or those of a file: JSON lines
/// {"question", "solution"}, each solution ending as the verifier reads an answer (`Answer: 17`). Prompts are
/// rendered as training renders them, and the loss is on the response alone, its end of turn included.
/// Responses at temperature 1 are sampled before and after, of problems that are not learned from.
///
/// DIR is a Hugging Face folder like MODEL, with the record tune.json: recipe, digests of all that was read
/// and written, every update's loss, both evaluations. It appears when it is complete: after an interruption
/// the same command begins again. If DIR has the result already, nothing is computed.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/tune.txt"))]
pub struct TuneArgs {
    /// Checkpoint folder in the Hugging Face layout.
    model: PathBuf,
    /// Recipe: template, stages and evaluation, as TOML.
    #[arg(long, value_name = "FILE")]
    recipe: PathBuf,
    /// Written solutions, instead of the recipe's task or file. The recipe's shares of forms do not apply to
    /// them.
    #[arg(long, value_name = "FILE")]
    solutions: Option<PathBuf>,
    /// Folder for the tuned policy; no mount point, and not the working folder.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Seed instead of the recipe's.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads. Where LibTorch computes, other counts may give other bits.
    #[arg(long, default_value_t = 2, value_parser = bounds::threads())]
    threads: u64,
    /// Print the record, tune.json, instead of text.
    #[arg(long)]
    json: bool,
}

/// Errors: a recipe, model or solutions that cannot be used, a folder that holds something else, or divergence.
pub fn run(args: &TuneArgs) -> Result<u8> {
    workers::set_count(args.threads);
    let (recipe, data) = read(args)?;
    let out = std::path::absolute(&args.out)?;
    let updates = recipe.stages.iter().map(|stage| stage.updates).sum();
    let responses = recipe.evaluation.problems * recipe.evaluation.samples;
    let interrupt = Interrupt::listen()?;
    let mut updated = 0;
    let mut bar: Option<(&str, Progress)> = None;
    let watch = &mut |event: TuneEvent| {
        let (name, total, done, message) = match event {
            TuneEvent::Evaluating(name, done) => (name, responses, done as u64, String::new()),
            TuneEvent::Updated(update) => {
                updated += 1;
                let message = format!("{} loss {:.3}", update.stage, update.loss);
                ("tune", updates, updated, message)
            }
        };
        if bar.as_ref().is_none_or(|(shown, _)| *shown != name)
            && let Some((_, before)) = bar.replace((name, Progress::new(name, total)))
        {
            before.finish();
        }
        bar.iter_mut().for_each(|(_, bar)| {
            bar.set(done, &message);
            if interrupt.news() {
                bar.note("stopping after this update or evaluation; once more stops at once");
            }
        });
        interrupt.asked()
    };
    let made = tuned::make(&recipe, &data, &args.model, &out, args.threads, watch);
    bar.into_iter().for_each(|(_, bar)| bar.finish());
    if let Err(TrainingError::Stopped) = made {
        return Ok(pretrain::stopped(&interrupt, &args.out));
    }
    let (record, was_there) = made?;
    if args.json {
        output::document(true, &record, String::new);
        return Ok(exit::SUCCESS);
    }
    let (digest, shown) = (&record.sha256["model.safetensors"], args.out.display());
    if was_there {
        println!("{digest}  {shown} (there already)");
        return Ok(exit::SUCCESS);
    }
    print!("{}", table(&record));
    for [question, answer, response] in &record.after.examples {
        output::json_line(&json!({"question": question, "answer": answer, "response": response}));
    }
    println!("{digest}  {shown}");
    Ok(exit::SUCCESS)
}

fn read(args: &TuneArgs) -> Result<(TuneRecipe, tuning::TuneData)> {
    let path = &args.recipe;
    let mut recipe: TuneRecipe = pretrain::parsed(path)?;
    recipe.start_from(path.parent().unwrap_or(Path::new("")));
    if let Some(solutions) = &args.solutions {
        (recipe.task, recipe.solutions) = (None, Some(solutions.clone()));
        recipe.stages.iter_mut().for_each(|stage| stage.shares.clear());
    }
    recipe.seed = args.seed.unwrap_or(recipe.seed);
    // The flag's file is named by its own errors.
    let at = |error: TaskError| match &args.solutions {
        Some(_) => Invalid(error.to_string()),
        None => Invalid(format!("{}: {error}", path.display())),
    };
    let data = recipe.data().map_err(at)?;
    exit::refuse_problems(path.display(), &recipe.problems(&data))?;
    Ok((recipe, data))
}

fn table(record: &TuneRecord) -> String {
    let (before, after) = (&record.before, &record.after);
    let row = |name: &str, shown: &dyn Fn(&TuneEvaluation) -> String| {
        [name.to_string(), shown(before), shown(after)]
    };
    let mut rows = vec![
        row("answered %", &|of| points(of.answered_share)),
        row("right %", &|of| points(of.accuracy)),
        row("useful groups %", &|of| points(of.useful_groups_share)),
        row(&format!("pass@{} %", after.samples), &|of| points(of.pass_at_k)),
        row("entropy, nats", &|of| format!("{:.2}", of.entropy)),
        row("truncated %", &|of| points(of.truncated_share)),
        row("tokens", &|of| format!("{:.1}", of.response_tokens_mean)),
    ];
    rows.extend(after.accuracy_by_tag.keys().map(|tag| {
        let share = |of: &TuneEvaluation| of.accuracy_by_tag.get(tag).copied();
        row(&format!("right %, {tag}"), &|of| points(share(of).unwrap_or(f64::NAN)))
    }));
    output::table(" | before # | after #", rows)
}

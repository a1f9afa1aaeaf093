//! `dapo eval`: evaluate a checkpoint on the sets of an experiment, or on files of problems by the
//! paper's protocol.

use crate::algorithm::Problem;
use crate::base::{files, workers};
use crate::commands::exit::{Invalid, bail_invalid, bail_usage};
use crate::commands::flags::experiment::InputsArg;
use crate::commands::flags::grading::GradingArgs;
use crate::commands::flags::wide::WideArg;
use crate::commands::{
    Interrupt, OverrideArgs, PlaceArgs, Progress, PromptArgs, bounds, exit, output,
};
use crate::experiment::{Place, PromptTemplate, Sampling, diagnose, named, sets};
use crate::numerics::Numerics;
use crate::policy::{Qwen2, checkpoint::weights};
use crate::records::{Counters, EvaluationRecord, RunFolder, tables::OutcomeRecord};
use crate::report::text::{self, percent, points};
use crate::statistics::{Accuracy, Counts, accuracy, estimators};
use crate::study::cell::stored::{self, Stored};
use crate::task::data::{self, Columns, problem_file};
use crate::task::{Grader, RowKeys, Tokenizer, prompt, response_text};
use crate::training::evaluation::{self, Set, resumable, resumable::Evaluated};
use crate::training::plan::warnings;
use crate::training::run::{inputs, inputs::Inputs};
use crate::training::{Protocol, TrainingError};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const LEVEL: f64 = 0.95;

/// Evaluate a checkpoint: avg@k, pass@k, cons@k, every outcome kept as parquet.
///
/// It uses the evaluation sets and settings of an experiment, or, with --data, files of problems and the
/// paper's protocol: 32 samples of each problem at temperature 1 and top-p 0.7, at most 20,480 tokens,
/// the released instruction in the model's chat template. Repeated rows of a file are one problem. With
/// --out the same command continues an interrupted evaluation and computes no set twice; no other
/// evaluation is replaced.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/eval.txt"))]
pub struct EvalArgs {
    /// Experiment, as `dapo plan` takes it: data, template, sampling, limits, verifier.
    #[arg(conflicts_with = "data")]
    experiment: Option<PathBuf>,
    #[command(flatten)]
    inputs: InputsArg,
    /// Checkpoint folder. Default: a run's last checkpoint, otherwise the experiment's base policy.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Files of problems instead of an experiment's sets: parquet, JSON lines, a JSON list or CSV.
    #[arg(long, value_name = "FILE", requires = "model")]
    data: Vec<PathBuf>,
    #[command(flatten)]
    keys: RowKeys,
    /// Sets to evaluate (dev, or a test set). Default: all test sets.
    #[arg(long = "evaluation-set", value_name = "NAME", conflicts_with = "data")]
    sets: Vec<String>,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// k, instead of the experiment's or the paper's 32.
    #[arg(long, value_parser = bounds::count())]
    samples: Option<u64>,
    /// Run seed, instead of the file's or 1.
    #[arg(long)]
    seed: Option<u64>,
    /// Folder for the outcomes. Default: they are not kept.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON record a line instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: WideArg,
    #[command(flatten)]
    protocol: ProtocolArgs,
}

/// The protocol; each default is the paper's (§4.1) or the released evaluation's.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Protocol with --data")]
struct ProtocolArgs {
    /// Text around a question [default: dapo-chat]
    #[arg(long, value_enum)]
    template: Option<PromptTemplate>,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Longest prompt in tokens; a longer one is an error. Default: 2048, or what the model's positions
    /// leave beside a response
    #[arg(long, value_name = "TOKENS", value_parser = bounds::count())]
    max_prompt_tokens: Option<u64>,
    /// Longest response in tokens [default: 20480]
    #[arg(long, value_name = "TOKENS", value_parser = bounds::count())]
    max_response_tokens: Option<u64>,
    /// Divides the logits; 0 is greedy [default: 1]
    #[arg(long)]
    temperature: Option<f64>,
    /// Keeps the most probable tokens of this mass [default: 0.7]
    #[arg(long)]
    top_p: Option<f64>,
    /// Keeps this many most probable tokens; 0 keeps all [default: 0]
    #[arg(long)]
    top_k: Option<i64>,
    /// How numbers are computed [default: fast]
    #[arg(long, value_enum)]
    numerics: Option<Numerics>,
    /// Where the policy is held; also when an experiment is evaluated.
    #[command(flatten)]
    place: PlaceArgs,
    /// Threads, each with a part of the responses [default: 1]
    #[arg(long, value_parser = bounds::threads())]
    threads: Option<u64>,
    /// Responses generated at the same time [default: 256]
    #[arg(long, value_name = "RESPONSES", value_parser = bounds::count())]
    batch: Option<u64>,
    #[command(flatten)]
    grading: GradingArgs,
}

impl ProtocolArgs {
    fn flags(&self) -> [(&'static str, bool, &'static str); 9] {
        [
            ("--template", self.template.is_some(), "prompt.template"),
            ("--max-prompt-tokens", self.max_prompt_tokens.is_some(), "rollout.max_prompt_tokens"),
            (
                "--max-response-tokens",
                self.max_response_tokens.is_some(),
                "rollout.max_response_tokens",
            ),
            ("--temperature", self.temperature.is_some(), "evaluation.sampling.temperature"),
            ("--top-p", self.top_p.is_some(), "evaluation.sampling.top_p"),
            ("--top-k", self.top_k.is_some(), "evaluation.sampling.top_k"),
            ("--numerics", self.numerics.is_some(), "numerics"),
            ("--threads", self.threads.is_some(), "execution.threads"),
            ("--batch", self.batch.is_some(), "execution.generation_batch_rollouts"),
        ]
    }

    fn numerics(&self) -> Numerics {
        self.numerics.unwrap_or(Numerics::Fast)
    }

    fn max_response_tokens(&self) -> u64 {
        self.max_response_tokens.unwrap_or(20_480)
    }
}

/// Errors: an experiment, model, data set or set name that cannot be used.
pub fn run(args: &EvalArgs) -> Result<u8> {
    args.wide.apply();
    if let Some(model) = args.model.as_deref().filter(|_| !args.data.is_empty()) {
        if !args.overrides.is_empty() {
            bail_usage!("--set is for the keys of an experiment, and --data has none");
        }
        args.inputs.is_for_experiments("--data")?;
        return of_files(args, model);
    }
    let Some(experiment) = &args.experiment else {
        bail_usage!("an experiment file is needed, or --model and --data");
    };
    if !args.protocol.prompt.is_empty() {
        bail_usage!(
            "--system, --example, --response-prefix, --chat-template-kwargs and --stop are for --data; an experiment has keys, such as --set evaluation.stop='[\"TEXT\"]'"
        );
    }
    if let Some((flag, _, key)) = args.protocol.flags().iter().find(|(_, is_given, _)| *is_given) {
        bail_usage!("{flag} is for --data; an experiment states {key}: --set {key}=VALUE");
    }
    let flags = [("execution.seed", args.seed.is_some()), ("inputs.model", args.model.is_some())];
    args.overrides.check(&[("evaluation.samples", args.samples.is_some())])?;
    args.overrides.check(&args.protocol.place.flags())?;
    let of_grading = args.protocol.grading.flags();
    exit::refuse_flags(&of_grading, "is for --data; an experiment states reward.verifier")?;
    if let Some(flag) = args.keys.given() {
        bail_usage!(
            "{flag} is for --data; `dapo data prepare` writes the files of an experiment with usual keys"
        );
    }
    args.overrides.check(&flags)?;
    if let Some(out) = args.out.as_ref().filter(|out| out.join("manifest.json").exists()) {
        let out = out.display();
        bail_invalid!(
            "{out} holds a run, whose evaluations these would replace; choose another --out"
        );
    }
    let newest =
        || args.model.clone().map_or_else(|| last_checkpoint(args, experiment), |it| Ok(Some(it)));
    let mut policy = newest()?;
    // A run at work removes its older checkpoints.
    let (inputs, model, counters, identity) = loop {
        let prepared = prepared(args, experiment, policy.as_deref());
        match newest() {
            Ok(newer) if prepared.is_err() && newer != policy => policy = newer,
            _ => break prepared?,
        }
    };
    let sets = chosen(args, &inputs)?;
    let (own, tokenizer) = (&inputs.experiment, &inputs.tokenizer);
    say_policy(args, &own.inputs.model, counters, policy.is_none());
    let scratch = files::leftovers::scratch_folder(None)?;
    let folder = RunFolder::at(args.out.as_deref().unwrap_or(scratch.path()));
    files::create_folder(folder.root())?;
    files::optional(folder.evaluations())?;
    let planned = sets.into_iter().map(|set| Planned {
        set,
        protocol: Protocol::of_set(own, set.name),
        grader: inputs.grader_of(set.name),
        stem: folder.outcomes(set.name, counters.rollout_steps).with_extension(""),
    });
    let planned: Vec<Planned> = planned.collect();
    let interrupt = Interrupt::listen()?;
    let evaluated =
        evaluate(args, (&model, tokenizer), (&identity, counters), &planned, &interrupt)?;
    let Some(evaluated) = evaluated else { return Ok(interrupt.exit_code()) };
    let (records, _): (Vec<_>, Vec<_>) = evaluated.into_iter().unzip();
    resumable::record(&folder, &records)?;
    print(&records, &|set: &str| own.grading_of(set).program().is_none(), args.json);
    Ok(exit::SUCCESS)
}

fn prepared(
    args: &EvalArgs,
    experiment: &Path,
    policy: Option<&Path>,
) -> Result<(Inputs, Qwen2, Counters, Value)> {
    let (mut experiment, recorded) =
        args.overrides.load_with_inputs(experiment, &args.inputs, policy)?;
    args.protocol.place.overrule(&mut experiment.execution);
    experiment.execution.seed = args.seed.unwrap_or(experiment.execution.seed);
    workers::set_count(experiment.execution.threads);
    let inputs = inputs::prepare(experiment)?;
    recorded.check(&inputs.manifest.inputs)?;
    let model = inputs.base_policy()?;
    let own = &inputs.experiment;
    let counters = counters(&own.inputs.model)?;
    let Place { device, weights, .. } = own.execution.place();
    let computed = (own.numerics, format!("{weights} on {device}"));
    let identity = identity(&own.inputs.model, &inputs.tokenizer, computed)?;
    Ok((inputs, model, counters, identity))
}

fn last_checkpoint(args: &EvalArgs, experiment: &Path) -> Result<Option<PathBuf>> {
    let found = named::find(experiment)?;
    let folder =
        if found.ends_with("experiment.json") { found.with_file_name("") } else { found.clone() };
    let run = RunFolder::at(&folder);
    if args.overrides.states("inputs.model") {
        return Ok(None);
    }
    if named::is_run(&folder) && run.path("manifest.json").exists() {
        let Some(step) = run.checkpoint_steps()?.into_iter().max() else {
            let run = folder.display();
            bail_invalid!("{run} has no checkpoint; --model DIR names the policy to evaluate");
        };
        return Ok(Some(run.checkpoint(step)));
    }
    if stored::is_stored(&found)
        && !found.ends_with("experiment.json")
        && Stored::read(&found)?.ran()
    {
        bail_invalid!(
            "{} is a record, which has no policy; --model DIR names the one to evaluate",
            found.display()
        );
    }
    Ok(None)
}

fn say_policy(args: &EvalArgs, folder: &Path, counters: Counters, is_base: bool) {
    let which = if is_base { " (the experiment's base policy)" } else { "" };
    let (folder, step) = (text::visible(&folder.to_string_lossy()), counters.rollout_steps);
    if !args.json {
        output::say(format!("policy: {folder}, rollout step {step}{which}"));
    }
}

struct Planned<'a> {
    set: Set<'a>,
    protocol: Protocol,
    grader: &'a Grader,
    stem: PathBuf,
}

fn evaluate(
    args: &EvalArgs,
    (model, tokenizer): (&Qwen2, &Tokenizer),
    (identity, counters): (&Value, Counters),
    planned: &[Planned],
    interrupt: &Interrupt,
) -> Result<Option<Vec<Evaluated>>> {
    let begun = planned.iter().map(|Planned { set, protocol, grader, stem }| {
        let key = resumable::key(identity, (protocol, grader), *set)?;
        let begun = resumable::begin(stem, &key, *set)?;
        Ok((key, begun))
    });
    let begun = begun.collect::<Result<Vec<_>, TrainingError>>()?;
    let mut all = Vec::new();
    for (Planned { set, protocol, grader, stem }, (key, (kept, _held))) in planned.iter().zip(begun)
    {
        let evaluated = if let Some(kept) = kept {
            let path = stem.with_added_extension("json");
            output::tell(format!("{}: there already, nothing is computed", path.display()));
            Some(kept)
        } else {
            let mut bar = Progress::new(set.name, set.problems.len() as u64 * set.samples);
            let evaluated = resumable::evaluate_into(
                stem,
                (&key, counters),
                (model, tokenizer),
                (protocol, grader),
                *set,
                &|| interrupt.asked(),
                |done, _| bar.set(done as u64, "responses"),
            )?;
            bar.finish();
            evaluated
        };
        let Some((record, outcomes)) = evaluated else {
            output::tell(match args.out {
                Some(_) => "stopped; the same command continues",
                None => "stopped; nothing was kept, as there is no --out",
            });
            return Ok(None);
        };
        if let Some(sentence) = evaluation::unanswered(protocol, *set, &outcomes) {
            output::tell(format!("warning: {sentence}"));
        }
        all.push((record, outcomes));
    }
    Ok(Some(all))
}

fn identity(
    model: &Path,
    tokenizer: &Tokenizer,
    (numerics, place): (Numerics, String),
) -> Result<Value> {
    let names = weights::names(model)?.into_iter();
    let weights = names.map(|name| files::sha256_file_once(&model.join(name)));
    let weights = files::sha256(weights.collect::<Result<String, _>>()?.as_bytes());
    let tokenizer = tokenizer.sha256();
    Ok(json!({"numerics": numerics, "place": place, "weights": weights, "tokenizer": tokenizer}))
}

/// What a run's checkpoint states; 0 of any other model.
fn counters(model: &Path) -> Result<Counters> {
    let path = model.join("trainer.json");
    let record: Option<Value> = files::optional(files::read_json(&path))?;
    let Some(counters) = record.and_then(|record| record.get("counters").cloned()) else {
        return Ok(Counters::default());
    };
    let refused = |error| Invalid(format!("{}: counters: {error}", path.display()));
    Ok(serde_json::from_value(counters).map_err(refused)?)
}

fn chosen<'a>(args: &'a EvalArgs, inputs: &'a Inputs) -> Result<Vec<Set<'a>>> {
    let known: Vec<(&str, &[Problem])> = inputs.data.evaluated().collect();
    let mut wanted: Vec<&str> = args.sets.iter().map(String::as_str).collect();
    if wanted.is_empty() {
        wanted.extend(known[1..].iter().map(|(name, _)| *name));
    }
    let mut sets = Vec::new();
    for name in wanted {
        let Some((name, problems)) = known.iter().find(|(known, _)| *known == name) else {
            let names = Vec::from_iter(known.iter().map(|(name, _)| name.to_string()));
            let names = diagnose::known(name, "there are", &names);
            bail_invalid!("there is no evaluation set {name:?}; {names}");
        };
        let samples = args.samples.map_or_else(|| inputs.samples(name), Ok)?;
        let longest = inputs.experiment.rollout.max_response_tokens;
        bounds::held("--samples", samples, problems.len() as u64, longest)?;
        warn_of_greedy(name, samples, inputs.experiment.sampling_of(name));
        sets.push(Set { name, problems, samples });
    }
    Ok(sets)
}

fn warn_of_greedy(set: &str, samples: u64, sampling: Sampling) {
    if let Some(sentence) = warnings::greedy(set, samples, sampling) {
        output::tell(format!("warning: {sentence}; --samples 1 says the same"));
    }
}

/// `--out` keeps outcomes, and an interrupted evaluation continues.
fn of_files(args: &EvalArgs, folder: &Path) -> Result<u8> {
    let how = &args.protocol;
    let mut protocol = protocol(&args.protocol, args.seed.unwrap_or(1))?;
    let samples = args.samples.unwrap_or(32);
    workers::set_count(how.threads.unwrap_or(1));
    let (sets, columns) = problem_sets(args, &protocol)?;
    let grader = Grader::start(&protocol.verifier, &protocol.prompt, columns)?;
    let (model, tokenizer) = how.place.load_both(folder, how.numerics())?;
    protocol.max_prompt_tokens = prompt_limit(how, &model)?;
    response_text::check_stop("--stop", &tokenizer, &protocol.stop)?;
    for ((name, problems), path) in sets.iter().zip(&args.data) {
        bounds::held("--samples", samples, problems.len() as u64, protocol.max_response_tokens)?;
        evaluation::check_prompts(&tokenizer, &protocol, problems)
            .map_err(|source| TrainingError::Problem { path: path.clone(), source })?;
        warn_of_greedy(name, samples, protocol.sampling);
    }
    if let Some(token) = tokenizer.unstopped_end_of_turn()? {
        output::tell(format!("warning: {}", prompt::unstopped(&token)));
    }
    let identity = identity(folder, &tokenizer, (how.numerics(), how.place.text()))?;
    let counters = counters(folder)?;
    say_policy(args, folder, counters, false);
    let scratch = files::leftovers::scratch_folder(None)?;
    let folder = args.out.as_deref().unwrap_or(scratch.path());
    files::create_folder(folder)?;
    let planned = sets.iter().map(|(name, problems)| Planned {
        set: Set { name, problems, samples },
        protocol: protocol.clone(),
        grader: &grader,
        stem: folder.join(name),
    });
    let planned: Vec<Planned> = planned.collect();
    let interrupt = Interrupt::listen()?;
    let evaluated =
        evaluate(args, (&model, &tokenizer), (&identity, counters), &planned, &interrupt)?;
    let Some(evaluated) = evaluated else { return Ok(interrupt.exit_code()) };
    let (records, outcomes): (Vec<_>, Vec<_>) = evaluated.into_iter().unzip();
    print(&records, &|_| grader.program().is_none(), args.json);
    if !args.json {
        for (record, outcomes) in records.iter().zip(&outcomes) {
            output::say(intervals(&record.set, &accuracy(outcomes)?));
        }
        let scores: Vec<f64> = records.iter().map(|record| record.avg_at_k).collect();
        if scores.len() > 1 {
            let (count, mean) = (scores.len(), percent(estimators::mean(&scores)));
            output::say(format!("mean of the {count} sets, whatever their sizes: avg@k {mean}"));
        }
    }
    Ok(exit::SUCCESS)
}

type NamedSets = Vec<(String, Vec<Problem>)>;

fn problem_sets(args: &EvalArgs, protocol: &Protocol) -> Result<(NamedSets, Columns)> {
    let (mut sets, mut columns) = (NamedSets::new(), Columns::new());
    let keys = RowKeys { columns: protocol.verifier.rule().is_none(), ..args.keys.clone() };
    for path in &args.data {
        let name = sets::set_name(path);
        if sets.iter().any(|(known, _)| *known == name) {
            bail_usage!("two files of --data are named {name:?}; rename one");
        }
        let file = problem_file::read_with(path, &keys)?.consistent(path)?;
        data::refuse_blank(&name, &file.problems, &protocol.verifier)?;
        for sentence in file.told.all() {
            output::tell(format!("{}: {sentence}", path.display()));
        }
        let other = problem_file::other_system(path, file.system.as_deref(), &protocol.prompt)?;
        other.iter().for_each(output::tell);
        columns.extend(file.columns);
        sets.push((name, file.problems));
    }
    Ok((sets, columns))
}

fn protocol(args: &ProtocolArgs, seed: u64) -> Result<Protocol> {
    Ok(Protocol {
        prompt: args.prompt.settings(args.template.unwrap_or(PromptTemplate::DapoChat))?,
        max_prompt_tokens: args.max_prompt_tokens.unwrap_or(USUAL_PROMPT_TOKENS),
        max_response_tokens: args.max_response_tokens(),
        sampling: bounds::sampling(
            args.temperature.unwrap_or(1.0),
            args.top_p.unwrap_or(0.7),
            args.top_k.unwrap_or(0),
        )?,
        verifier: args.grading.grading()?,
        seed,
        batch_rows: args.batch.unwrap_or(256),
        stop: args.prompt.stop.clone(),
        keeps_rewards: true,
    })
}

const USUAL_PROMPT_TOKENS: u64 = 2048;

/// The model needs a position for each token; without a flag a prompt has what the response leaves.
fn prompt_limit(args: &ProtocolArgs, model: &Qwen2) -> Result<u64> {
    let positions = model.config().max_position_embeddings as u64;
    let response = args.max_response_tokens();
    let left = positions.saturating_sub(response);
    if left == 0 {
        bail_invalid!(
            "{response} response tokens leave none of the model's {positions} positions for a prompt; lower \
             --max-response-tokens"
        );
    }
    let limit = args.max_prompt_tokens.unwrap_or(USUAL_PROMPT_TOKENS.min(left));
    if limit > left {
        bail_invalid!(
            "{limit} prompt tokens and {response} response tokens are more than the model's {positions} \
             positions; lower --max-prompt-tokens or --max-response-tokens"
        );
    }
    Ok(limit)
}

fn accuracy(outcomes: &[OutcomeRecord]) -> Result<Accuracy> {
    let counts = outcomes.chunk_by(|a, b| a.problem == b.problem).map(|rows| Counts {
        correct: rows.iter().filter(|row| row.is_correct).count() as u64,
        samples: rows.len() as u64,
    });
    Ok(accuracy::accuracy(&[counts.collect()], LEVEL)?)
}

/// How much the number would change if its parts were repeated.
fn intervals(set: &str, accuracy: &Accuracy) -> String {
    let mut lines = vec![format!(
        "{set}: avg@{} {}; {:.0} % intervals in points for",
        accuracy.samples,
        percent(accuracy.avg_at_k),
        100.0 * LEVEL
    )];
    for uncertainty in &accuracy.uncertainties {
        let range = text::uncertainty(uncertainty);
        lines.push(format!("  {}: {range}", uncertainty.question.text()));
    }
    lines.join("\n")
}

/// 95 %, for these problems, in points, where the evaluation has such an interval.
pub fn half_width(record: &EvaluationRecord) -> String {
    let error = record.standard_error_fixed_problems;
    let has_interval = accuracy::has_interval_of_decoding(error, record.problems, record.samples);
    points_if(has_interval, estimators::half_width_fixed_problems(error))
}

fn points_if(is_known: bool, share: f64) -> String {
    if is_known { points(share) } else { "–".to_string() }
}

/// A user's program that names no answers has no most frequent one.
fn print(records: &[EvaluationRecord], names_answers: &dyn Fn(&str) -> bool, json: bool) {
    if json {
        return records.iter().for_each(output::json_line);
    }
    let rows = records.iter().map(|record| {
        let has_others = accuracy::has_interval_of_problems(record.avg_at_k, record.problems);
        let has_majority = record.cons_at_k != 0.0 || names_answers(&record.set);
        let pass = record.pass_at_k.get(&record.samples).copied().unwrap_or(f64::NAN);
        [
            record.set.clone(),
            format!("{} × {}", record.problems, record.samples),
            points(record.avg_at_k),
            half_width(record),
            points_if(has_others, record.standard_error_new_problems),
            points(pass),
            points_if(has_majority, record.cons_at_k),
            points(record.truncated_share),
            format!("{:.0}", record.response_tokens_mean),
        ]
    });
    let columns = "set | n × k | avg@k % # | ± these problems # | ± new problems (SE) #? | pass@k % # \
                   | cons@k % # | truncated % #? | tokens #?";
    print!("{}", output::table(columns, rows));
    for EvaluationRecord { set, reward_mean, .. } in records {
        if let Some(mean) = reward_mean {
            output::say(format!("{set}: mean reward {}", text::number(*mean)));
        }
    }
}

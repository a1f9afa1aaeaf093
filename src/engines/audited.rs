//! A run of another trainer as it wrote it: responses are graded again, groups rebuilt, and what was done to them is
//! held against the configuration. What a file does not have is not guessed: it is absent from the numbers.

use crate::base::{files, python, visible};
use crate::engines::{EngineError, Trap, trl::written::TrlConfig, verl::compose};
use crate::experiment::{Engine, Grading};
use crate::records::tables::problem_rows::{self, WantedKeys};
use crate::records::{TrackedRun, tables, tracked};
use crate::statistics::estimators;
use crate::task::reward::Grade;
use crate::task::reward::program::{Asked, Graders, Ungraded};
use crate::task::{TaskError, reward};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, Clone, clap::Args)]
pub struct RunAuditOptions {
    /// The run's configuration, as `dapo engine check` takes it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// verl's file log, TRL's `trainer_state.json`, or another file of curves: lengths and truncation.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// JSON lines of {"prompt", "answer"}, in place of `gts` of verl's dumps. A function that grades gets the other
    /// columns of a line, such as data_source and extra_info.
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,
    /// Python that has the trainer, which composes some configurations. Default: DAPO_PYTHON, else python3.
    #[arg(long, value_name = "PROGRAM", default_value_t = python::of_environment(), hide_default_value = true)]
    pub python: String,
}

#[derive(Debug, Default, Serialize)]
pub struct RunAudit {
    /// Step → number by name; a number that the files do not show is absent. Groups have no gradient where all
    /// rewards are equal; a reward is lowered where another response of the same correctness has more.
    pub steps: BTreeMap<u64, BTreeMap<&'static str, f64>>,
    /// What the configuration does not explain. The key is that of the configuration.
    pub contradictions: Vec<Trap>,
    /// What was taken for granted, one sentence each.
    pub notes: Vec<String>,
}

struct Response {
    step: u64,
    prompt: String,
    /// The trainer's name of the group; else its place, or the prompt.
    group: String,
    /// Bytes of its text.
    length: usize,
    reward: f64,
    advantage: Option<f64>,
    /// Graded again, and by the trainer's `acc`.
    ours: Option<bool>,
    theirs: Option<bool>,
}

impl Response {
    fn is_correct(&self) -> Option<bool> {
        self.ours.or(self.theirs)
    }
}

/// Of verl: responses of a prompt, the filter and its number, the length penalty and its zone.
const VERL: [&str; 6] = [
    "actor_rollout_ref.rollout.n",
    "algorithm.filter_groups.enable",
    "algorithm.filter_groups.metric",
    "reward.reward_kwargs.overlong_buffer_cfg.enable",
    "data.max_response_length",
    "reward.reward_kwargs.overlong_buffer_cfg.len",
];

/// `folder` has verl's dumps (`rollout_data_dir`) or TRL's completions (`log_completions`), whose responses `verifier`
/// grades again.
///
/// # Errors
/// A file that cannot be read, a row that is none of these, and a response that a program does not grade.
pub fn run(
    engine: Engine,
    folder: &Path,
    options: &RunAuditOptions,
    verifier: Option<&Grading>,
) -> Result<RunAudit, EngineError> {
    let (stated, weights) = stated(engine, options.config.as_deref(), &options.python)?;
    let size = stated[0].as_ref().and_then(|(_, value)| value.as_u64());
    let lines: Vec<Row> =
        options.answers.as_deref().map(files::read_data_lines).transpose()?.unwrap_or_default();
    let pair = |mut row: Row| Some((text(&row.remove("prompt")?)?, row));
    let answers: BTreeMap<String, Row> = lines.into_iter().filter_map(pair).collect();
    let log = options.log.as_deref().map(|path| tracked::read(path, "")).transpose();
    let log = log.map_err(TaskError::from)?.unwrap_or_default();
    let mut steps: BTreeMap<u64, Vec<Response>> = BTreeMap::new();
    let mut audit = RunAudit::default();
    let (mut asked, mut places) = (Vec::new(), Vec::new());
    let mut sources: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    let (all, cut) = rows(engine, folder)?;
    audit.notes.extend(cut);
    let mut is_assumed = false;
    for (path, row, functions) in all {
        let weights = weighted(&functions, weights.as_deref())
            .map_err(|reason| EngineError::Output { path: path.clone(), reason })?;
        if weights.is_assumed && !std::mem::replace(&mut is_assumed, true) {
            audit.notes.push(format!(
                "{} are summed with the weight 1 each: no configuration states reward_weights",
                functions.join(", ")
            ));
        }
        let response = response(&row, &weights).ok_or_else(|| {
            let reason = "a row lacks step, prompt, response or reward, as verl and TRL write them";
            EngineError::Output { path: path.clone(), reason: reason.to_string() }
        })?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        sources.entry(response.step).or_default().insert(visible::visible(&name));
        let of_step = steps.entry(response.step).or_default();
        // TRL keeps the responses of a prompt together, and may draw a prompt twice.
        let place =
            size.filter(|_| engine == Engine::Trl).map(|size| of_step.len() as u64 / size.max(1));
        let group = place.map_or(response.group, |place| place.to_string());
        if let Some(question) = verifier.and_then(|_| question(row, &response.prompt, &answers)) {
            places.push((response.step, of_step.len()));
            asked.push(question);
        }
        of_step.push(Response { group, ..response });
    }
    let graded = verifier.map(|verifier| graded(verifier, &asked, folder)).transpose()?;
    for ((step, place), is_correct) in places.into_iter().zip(graded.unwrap_or_default()) {
        let response = steps.get_mut(&step).and_then(|of_step| of_step.get_mut(place));
        response.expect("it was put there").ours = Some(is_correct);
    }
    for (step, responses) in &steps {
        let (contradictions, numbers) = of_step(*step, responses, &stated, log.first());
        audit.contradictions.extend(contradictions);
        audit.steps.insert(*step, numbers);
    }
    let twice = sources.iter().filter(|(_, files)| files.len() > 1).map(|(step, files)| {
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let what =
            format!("step {step} is in {}: a copy, or two runs in one folder", files.join(", "));
        Trap { name: "step-twice", key: "reward".to_string(), value: "as dumped".into(), what }
    });
    audit.contradictions.extend(twice);
    audit.notes.extend(missing(&sources.into_keys().collect::<Vec<_>>()));
    let is_unexplained = |(_, numbers): &(&u64, &BTreeMap<&str, f64>)| {
        numbers.get("lowered").is_some_and(|lowered| *lowered > 0.0)
    };
    let differing = audit.steps.iter().filter(is_unexplained).count();
    let is_found = audit.contradictions.iter().any(|it| it.name == "length-penalty");
    if differing > 0 && !is_found && stated[3].as_ref().is_some_and(|(_, value)| *value == false) {
        audit.notes.push(format!(
            "responses of one correctness have other rewards in {differing} steps: partial credit, or a penalty that \
             does not follow the length of their texts"
        ));
    }
    Ok(audit)
}

/// Of steps at equal distances.
fn missing(steps: &[u64]) -> Option<String> {
    let distances = || steps.windows(2).map(|pair| pair[1] - pair[0]);
    let usual = distances().min()?;
    let gap = |pair: &&[u64]| pair[1] - pair[0] > usual;
    let gaps = steps.windows(2).filter(gap).map(|pair| format!("{} and {}", pair[0], pair[1]));
    let gaps: Vec<String> = gaps.collect();
    let shown = gaps.iter().take(TOLD).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match gaps.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(" and in {more} more places"),
    };
    (!gaps.is_empty()).then(|| format!("steps are missing between {shown}{more}"))
}

/// The file of a trainer that was killed while it wrote ends in the middle of a line, which is left out and told.
fn dumped_lines(path: &Path) -> Result<(Vec<Row>, Option<String>), EngineError> {
    let refused = match files::read_data_lines(path) {
        Ok(rows) => return Ok((rows, None)),
        Err(refused) => refused,
    };
    let bytes = files::foreign::read_up_to(path, files::foreign::HELD_DATA.bytes)?;
    let Ok(text) = String::from_utf8(bytes) else { return Err(refused.into()) };
    let text = tracked::quoted_not_finite(&text);
    let (whole, last) = text.rsplit_once('\n').unwrap_or(("", &text));
    let is_cut = !last.is_empty() && serde_json::from_str::<Row>(last).is_err();
    let kept = if is_cut { whole } else { &text };
    let told = format!("{}: its last line is cut off, and was left out", path.display());
    Ok((files::parse_lines(path, kept.as_bytes())?, is_cut.then(|| visible::visible(&told))))
}

/// Of TRL also the weights of its reward functions. A key that the configuration does not state is `None`.
fn stated(
    engine: Engine,
    config: Option<&Path>,
    python: &str,
) -> Result<(Stated, Option<Vec<f64>>), EngineError> {
    let Some(path) = config else { return Ok(([const { None }; 6], None)) };
    if engine == Engine::Verl {
        let composed = compose::of_file(python, path)?;
        return Ok((VERL.map(|key| Some((key, composed.get(key)?.clone()))), None));
    }
    let mut config = TrlConfig::of_file(python, path, 1)?;
    let key = "multi_objective_aggregation";
    if let Some(kind) = config.values.get(key).filter(|kind| **kind != "sum_then_normalize") {
        let reason =
            format!("{key} = {kind} is not audited: the sum of the rewards is no reward then");
        return Err(EngineError::Output { path: path.to_path_buf(), reason });
    }
    let weights = match config.values.remove("reward_weights") {
        None => None,
        // TRL weighs each function with 1.
        Some(Value::Null) => Some(Vec::new()),
        Some(weights) => {
            Some(serde_json::from_value(weights).map_err(|error| EngineError::Output {
                path: path.to_path_buf(),
                reason: format!("reward_weights: {error}"),
            })?)
        }
    };
    let size = config.values.remove("num_generations");
    let size = size.map(|size| ("num_generations", size));
    Ok(([size, None, None, None, None, None], weights))
}

/// The columns of TRL's reward functions, each with its weight.
struct WeightedFunctions<'a> {
    functions: Vec<(&'a str, f64)>,
    /// There are several, and no configuration.
    is_assumed: bool,
}

fn weighted<'a>(
    functions: &'a [String],
    weights: Option<&[f64]>,
) -> Result<WeightedFunctions<'a>, String> {
    let names = functions.iter().map(String::as_str);
    let is_assumed = weights.is_none() && functions.len() > 1;
    match weights {
        Some(weights) if !weights.is_empty() && weights.len() != functions.len() => Err(format!(
            "it has {} reward functions ({}), and the configuration states {} reward_weights",
            functions.len(),
            functions.join(", "),
            weights.len()
        )),
        Some(weights) if !weights.is_empty() => Ok(WeightedFunctions {
            functions: names.zip(weights.iter().copied()).collect(),
            is_assumed,
        }),
        _ => {
            Ok(WeightedFunctions { functions: names.map(|name| (name, 1.0)).collect(), is_assumed })
        }
    }
}

/// Of [`VERL`], or of TRL: its key and value.
type Stated = [Option<(&'static str, Value)>; 6];

type Row = Map<String, Value>;

/// Columns of TRL that are no reward.
const TRL: [&str; 4] = ["step", "prompt", "completion", "advantage"];

/// File, row, and TRL's columns of reward functions in their order.
type FileRow = (PathBuf, Row, Arc<[String]>);

/// With what was left out.
fn rows(engine: Engine, folder: &Path) -> Result<(Vec<FileRow>, Vec<String>), EngineError> {
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for name in files::list(folder)? {
        let path = files::foreign::inside(folder, &name)?;
        if engine == Engine::Verl && name.ends_with(".jsonl") {
            let (lines, cut) = dumped_lines(&path)?;
            notes.extend(cut);
            rows.extend(lines.into_iter().map(|row| (path.clone(), row, Arc::default())));
        } else if engine == Engine::Trl && name.ends_with(".parquet") {
            let others = tables::column_names(&path).map_err(TaskError::from)?;
            let first = rows.len();
            let [question, answer] = [1, 2].map(|place: usize| vec![TRL[place].to_string()]);
            let wanted = WantedKeys { question, answer, others: others.clone(), all: false };
            problem_rows::each_problem_row(&path, &wanted, &mut |_, row| {
                rows.push((path.clone(), row, Arc::default()));
                Ok::<(), TaskError>(())
            })?;
            // Functions log texts beside their rewards, as TRL's accuracy_reward does.
            let own: &mut [FileRow] = &mut rows[first..];
            let is_number = |value: &Value| value.is_number() || value.is_null();
            let is_function = |name: &&String| {
                let is_known = TRL.contains(&name.as_str());
                !is_known && own.iter().all(|(_, row, _)| row.get(*name).is_none_or(is_number))
            };
            let functions: Arc<[String]> = others.iter().filter(is_function).cloned().collect();
            own.iter_mut().for_each(|row| row.2 = functions.clone());
        }
    }
    if rows.is_empty() {
        let reason = "it has neither verl's N.jsonl (rollout_data_dir) nor TRL's completions_N.parquet (log_completions)";
        return Err(EngineError::Output { path: folder.to_path_buf(), reason: reason.to_string() });
    }
    Ok((rows, notes))
}

/// A text, or the contents of messages.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Array(messages) => messages.iter().map(|it| text(it.get("content")?)).collect(),
        value => value.as_str().map(str::to_string),
    }
}

fn of(row: &Row, names: [&str; 2]) -> Option<String> {
    names.iter().find_map(|name| row.get(*name)).and_then(text)
}

/// With the columns that the answers or, without them, verl's dump has of the problem; `None` without a ground truth.
fn question(mut row: Row, prompt: &str, answers: &BTreeMap<String, Row>) -> Option<Asked> {
    const OWN: [&str; 5] = ["input", "step", "score", "acc", "uid"];
    let response = of(&row, ["output", "completion"])?;
    let (ground_truth, columns) = match answers.get(prompt).cloned() {
        Some(mut columns) => (columns.remove("answer")?, columns),
        None => {
            // verl writes null where there is none.
            let ground_truth = row.remove("gts").filter(|truth| !truth.is_null())?;
            row.retain(|name, _| !OWN.contains(&name.as_str()) && name != "output");
            (ground_truth, row)
        }
    };
    let asked = Asked::new(Value::from(prompt), response, String::new(), columns);
    Some(Asked { ground_truth, ..asked })
}

/// Whether each is correct.
fn graded(verifier: &Grading, asked: &[Asked], folder: &Path) -> Result<Vec<bool>, EngineError> {
    let program = match verifier {
        Grading::Rule(rule) => {
            let is_correct = |it: &Asked| {
                let truth = text(&it.ground_truth).unwrap_or_else(|| it.ground_truth.to_string());
                reward::grade(&it.response, &truth, *rule).is_correct
            };
            return Ok(asked.iter().map(is_correct).collect());
        }
        Grading::Program(program) => program,
    };
    let graders = Graders::start(program.clone())?;
    let mut graded = graders.grade(asked);
    // A function that disagrees with itself is no witness.
    graders.grade_again(asked, &(0..asked.len()).collect::<Vec<_>>(), &mut graded);
    let of_response = |(grade, asked): (Result<Grade, Ungraded>, &Asked)| {
        grade.map(|grade| grade.is_correct).map_err(|error| {
            let response = visible::shortened(&asked.response, 80);
            let reason = format!("{} did not grade {response:?}: {error}", program.name());
            EngineError::Output { path: folder.to_path_buf(), reason }
        })
    };
    graded.into_iter().zip(asked).map(of_response).collect()
}

fn response(row: &Row, weighted: &WeightedFunctions) -> Option<Response> {
    let prompt = of(row, ["input", "prompt"])?;
    let length = of(row, ["output", "completion"])?.len();
    let advantage = row.get("advantage").and_then(Value::as_f64);
    // A function that does not apply to a response gives none.
    let weigh = |(name, weight): &(&str, f64)| Some(weight * tracked::number(row.get(*name)?)?);
    let rewards: Vec<f64> = weighted.functions.iter().filter_map(weigh).collect();
    let score = row.get("score").filter(|_| advantage.is_none()).map(tracked::number);
    let reward = score.unwrap_or((!rewards.is_empty()).then(|| rewards.iter().sum()))?;
    let acc = row.get("acc");
    let uid = row.get("uid").and_then(text);
    let group = uid.and_then(|uid| Some(uid.rsplitn(3, '_').nth(2)?.to_string()));
    Some(Response {
        step: row.get("step")?.as_u64()?,
        group: group.unwrap_or_else(|| prompt.clone()),
        prompt,
        length,
        reward,
        advantage,
        ours: None,
        theirs: acc.and_then(|acc| acc.as_bool().or(acc.as_f64().map(|acc| acc > 0.0))),
    })
}

fn of_step(
    step: u64,
    responses: &[Response],
    [size, filters, metric, punishes, longest, zone]: &Stated,
    log: Option<&TrackedRun>,
) -> (Vec<Trap>, BTreeMap<&'static str, f64>) {
    let mut groups: BTreeMap<&str, Vec<&Response>> = BTreeMap::new();
    for response in responses {
        groups.entry(&response.group).or_default().push(response);
    }
    let known = responses.iter().all(|it| it.is_correct().is_some());
    // A length penalty of less than 2 leaves correct responses of ±1 above −1.
    let floor = if responses.iter().any(|it| it.reward < 0.0) { -1.0 } else { 0.0 };
    let theirs = |it: &Response| it.theirs.unwrap_or(it.reward > floor);
    let most = [false, true].map(|class| {
        let of_class = responses.iter().filter(|it| theirs(it) == class).map(|it| it.reward);
        of_class.fold(f64::NEG_INFINITY, f64::max)
    });
    let count = |holds: &dyn Fn(&Response) -> bool| responses.iter().filter(|it| holds(it)).count();
    let is_lowered = |it: &Response| it.reward < most[usize::from(theirs(it))] - 1e-6;
    let lowered = count(&is_lowered);
    // Partial credit tells wrong responses apart, or right ones whatever their length.
    let right: Vec<&Response> = responses.iter().filter(|it| theirs(it)).collect();
    let whole: Vec<f64> =
        right.iter().filter(|it| !is_lowered(it)).map(|it| it.length as f64).collect();
    let usual = if whole.is_empty() { 0.0 } else { estimators::mean(&whole) };
    let punished: Vec<&&Response> = right.iter().filter(|it| is_lowered(it)).collect();
    let is_punished = punished.iter().all(|it| it.length as f64 > usual);
    let not_finite = count(&|it| !it.reward.is_finite());
    let otherwise = count(&|it| it.ours.is_some_and(|ours| ours != theirs(it)));
    let value = |names: [&str; 2]| {
        let curve = names.iter().find_map(|name| log?.curves.get(*name))?;
        curve.iter().find(|(at, _)| *at == step as f64).map(|(_, value)| *value)
    };
    // verl's response_length/clip_ratio counts what is as long as the longest response of the batch.
    let truncated = value(["completions/clipped_ratio"; 2]);
    let number = |stated: &Option<(&str, Value)>| stated.as_ref()?.1.as_f64();
    let longest_response = value(["response_length/max"; 2]);
    let is_due = longest_response.zip(number(longest)).zip(number(zone));
    let is_due = is_due.is_some_and(|((response, longest), zone)| response > longest - zone);
    let is = |stated: &Option<(&str, Value)>, wanted: bool| {
        stated.as_ref().is_some_and(|(_, value)| *value == wanted)
    };
    let unlowered = known && lowered == 0 && (is_due || truncated > Some(0.0));
    let mut contradictions = vec![
        (
            is(punishes, true) && unlowered,
            "no-length-penalty",
            punishes,
            "a response is longer than max_response_length without the buffer, and no reward is lowered".to_string(),
        ),
        (
            is(punishes, false) && known && !punished.is_empty() && is_punished,
            "length-penalty",
            punishes,
            format!("{} rewards of correct responses are lowered, all of longer texts than the others' mean", punished.len()),
        ),
        (
            not_finite > 0,
            "not-finite",
            &None,
            format!("{not_finite} rewards are not finite"),
        ),
        (
            otherwise > 0,
            "graded-otherwise",
            &None,
            format!("{otherwise} responses are graded otherwise"),
        ),
    ];
    let mut without_gradient = 0;
    let shared = shared_start(responses);
    for group in groups.values() {
        let prompt: String = group[0].prompt[shared..].chars().take(60).collect();
        let is_mixed = group.iter().any(|it| it.prompt != group[0].prompt);
        let wanted = size.as_ref().and_then(|(_, value)| value.as_u64());
        let is_whole = wanted.is_none_or(|wanted| (group.len() as u64).is_multiple_of(wanted));
        let advantages = || group.iter().filter_map(|it| it.advantage);
        let is_centred = advantages().sum::<f64>().abs()
            <= 1e-3 * advantages().map(f64::abs).sum::<f64>() + 1e-6;
        let is_flat = group.iter().all(|it| (it.reward - group[0].reward).abs() < 1e-6);
        let is_even = known && group.iter().all(|it| it.is_correct() == group[0].is_correct());
        let is_unfiltered = is(filters, true) && is_even;
        without_gradient += usize::from(is_flat);
        contradictions.extend(
            [
                (
                    is_mixed,
                    "mixed-group",
                    size,
                    "has responses to another prompt in its group".to_string(),
                ),
                (!is_whole, "group-size", size, format!("has {} responses", group.len())),
                (!is_centred, "advantage", size, "has advantages that do not sum to 0".to_string()),
                (
                    is_unfiltered && is_flat,
                    "no-filter",
                    filters,
                    "trained, all correct or all wrong".to_string(),
                ),
                (
                    is_unfiltered && !is_flat,
                    "filter-metric",
                    metric,
                    "trained, all correct or all wrong, by rewards that differ".to_string(),
                ),
            ]
            .map(|(holds, name, stated, what)| (holds, name, stated, format!("{prompt:?} {what}"))),
        );
    }
    let trap = |(_, name, stated, what): (bool, &'static str, &Option<(&str, Value)>, String)| {
        let (key, value) = stated.clone().unwrap_or(("reward", "as dumped".into()));
        Trap { name, key: key.to_string(), value, what: format!("step {step}: {what}") }
    };
    let numbers = [
        ("responses", Some(responses.len() as f64)),
        ("groups", Some(groups.len() as f64)),
        ("no gradient", Some(without_gradient as f64)),
        ("correct", known.then(|| count(&|it| it.is_correct() == Some(true)) as f64)),
        ("lowered", known.then_some(lowered as f64)),
        ("truncated", truncated),
        ("tokens", value(["response_length/mean", "completions/mean_length"])),
    ];
    let mut told = BTreeMap::new();
    let mut traps = Vec::new();
    for found in contradictions.into_iter().filter(|(holds, ..)| *holds).map(trap) {
        let count: &mut usize = told.entry(found.name).or_default();
        *count += 1;
        if *count <= TOLD {
            traps.push(found);
        }
    }
    for trap in traps.iter_mut().rev() {
        if let Some(more) = told
            .remove(trap.name)
            .and_then(|count| count.checked_sub(TOLD))
            .filter(|more| *more > 0)
        {
            trap.what += &format!(" (and {more} more of step {step})");
        }
    }
    (traps, numbers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

/// Groups of a step that are named for each contradiction.
const TOLD: usize = 3;

/// Bytes with which every prompt begins, such as a template: what tells them apart comes after.
fn shared_start(responses: &[Response]) -> usize {
    let Some((first, rest)) = responses.split_first() else { return 0 };
    let differs = |prompt: &str| {
        let mut pairs = first.prompt.char_indices().zip(prompt.chars());
        let other = pairs.find(|((_, own), other)| own != other).map(|((at, _), _)| at);
        // One prompt may be the beginning of another.
        other.or((*prompt != *first.prompt).then(|| prompt.len().min(first.prompt.len())))
    };
    rest.iter().filter_map(|it| differs(&it.prompt)).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use crate::engines::audited::{Response, shared_start};

    fn shared(prompts: &[&str]) -> usize {
        let response = |prompt: &&str| Response {
            step: 1,
            group: String::new(),
            prompt: prompt.to_string(),
            length: 0,
            reward: 0.0,
            advantage: None,
            ours: None,
            theirs: None,
        };
        shared_start(&prompts.iter().map(response).collect::<Vec<_>>())
    }

    #[test]
    fn what_all_prompts_begin_with_is_no_longer_than_the_shortest() {
        assert_eq!(shared(&["solve: é1", "solve: é2", "solve: é1"]), "solve: é".len());
        assert_eq!(shared(&["abcdef", "ab", "abcdex"]), 2);
        assert_eq!(shared(&["ab", "abc"]), 2);
        assert_eq!([shared(&["same", "same"]), shared(&[])], [0, 0]);
    }
}

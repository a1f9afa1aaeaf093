//! Cells as array jobs of Slurm: task t of an array is cell `first + t`.

use crate::base::{files, program::line};
use crate::engines::launcher::{self, program::printed};
use crate::engines::{
    CellProgram, EngineError, LaunchedJob, Launcher, LauncherState, LauncherStates,
};
use crate::study::ablate::AblateStudy;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Words between `@` are filled in.
const TEMPLATE: &str = include_str!("slurm.sh");

const WORDS: [&str; 3] = ["@ARRAY@", "@COMMAND@", "@LOGS@"];

/// Slurm's limit (`MaxArraySize`) is 1001 by default.
const MOST_TASKS: u64 = 1000;

/// Errors: a file without a word that must be filled in.
pub fn template(file: Option<&Path>) -> Result<String, EngineError> {
    let Some(path) = file else { return Ok(TEMPLATE.to_string()) };
    let text = files::read_text(path)?;
    let refuse = |reason| Err(EngineError::Output { path: path.to_path_buf(), reason });
    if text.contains('\r') {
        let reason = "its lines end in CR LF, which bash does not read; `tr -d '\\r'` converts it";
        return refuse(reason.to_string());
    }
    let [array, command, _] = WORDS;
    let has = |word: &str, is_of: fn(&str) -> bool| {
        text.lines().any(|line| line.contains(word) && is_of(line))
    };
    if !has(array, |line| line.starts_with("#SBATCH")) {
        return refuse(format!("the template has no line `#SBATCH --array={array}`"));
    }
    if !has(command, |line| !line.trim_start().starts_with('#')) {
        return refuse(format!("the template has no {command}, which `dapo ablate` fills in"));
    }
    Ok(text)
}

/// Arrays without ids, and their scripts; `cells` ascend. At most `at_once` tasks of an array run at once. Errors: a
/// folder that a script cannot name.
pub fn arrays(
    study: &AblateStudy,
    cells: &[u64],
    program: &CellProgram,
    at_once: Option<u64>,
    template: &str,
) -> Result<Vec<(LaunchedJob, String)>, EngineError> {
    let logs = launcher::folder(study);
    let logs = std::path::absolute(&logs).unwrap_or(logs);
    // `%` is a pattern for Slurm, and a quotation mark ends the word.
    if logs.display().to_string().contains(['%', '"', '\\', '\n']) {
        let reason = "Slurm cannot write logs into a folder with such a name".to_string();
        return Err(EngineError::Output { path: logs, reason });
    }
    let chunks = cells.chunk_by(|a, b| a / MOST_TASKS == b / MOST_TASKS);
    let array = |cells: &[u64]| {
        let first = cells[0] / MOST_TASKS * MOST_TASKS;
        let tasks: Vec<u64> = cells.iter().map(|cell| cell - first).collect();
        let at_once = at_once.map_or(String::new(), |most| format!("%{most}"));
        let cell = format!("$(({first} + SLURM_ARRAY_TASK_ID))");
        let command =
            line(&program.words(&cell)).replace(&format!("'{cell}'"), &format!("\"{cell}\""));
        let values = [ranges(&tasks) + &at_once, command, logs.display().to_string()];
        let filled = |text: String, (word, value): (&str, &String)| text.replace(word, value);
        let script = WORDS.into_iter().zip(&values).fold(template.to_string(), filled);
        let (id, cells) = (String::new(), cells.to_vec());
        (LaunchedJob { launcher: Launcher::Slurm, id, first, cells, address: None }, script)
    };
    Ok(chunks.map(array).collect())
}

/// Slurm's form: `0-3,7`.
fn ranges(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let text = |run: &[u64]| match run {
        [only] => only.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    };
    runs.map(text).collect::<Vec<_>>().join(",")
}

/// The job with its number and cluster. The array begins after `before`, so that the limit of tasks holds for both.
pub fn submit(
    study: &AblateStudy,
    mut job: LaunchedJob,
    script: &str,
    before: Option<&LaunchedJob>,
) -> Result<LaunchedJob, EngineError> {
    let number = launcher::launched(study)?.len();
    let path = launcher::folder(study).join(format!("slurm-{number}.sh"));
    files::write_atomic(&path, script.as_bytes())?;
    let mut arguments = vec!["--parsable".to_string()];
    arguments.extend(before.map(|job| format!("--dependency=afterany:{}", job.id)));
    let cluster = before.and_then(|job| job.address.as_ref());
    arguments.extend(cluster.map(|name| format!("--clusters={name}")));
    arguments.push(path.display().to_string());
    let answer = printed("sbatch", &arguments)?;
    let forgotten = |reason: String| EngineError::Program {
        program: "sbatch".to_string(),
        reason: format!(
            "{reason}; look with squeue for an array that was submitted, and cancel it with scancel: the same command \
             submits its cells again"
        ),
    };
    let (id, cluster) = submitted(&answer).ok_or_else(|| {
        forgotten(format!("no line of its answer is the number of a job: {answer:?}"))
    })?;
    (job.id, job.address) = (id, cluster);
    let kept = launcher::keep(study, &job);
    kept.map_err(|error| forgotten(format!("job {} cannot be noted: {error}", job.id)))?;
    Ok(job)
}

/// `<number>`, or `<number>;<cluster>`; a site's own sbatch may print lines around it.
fn submitted(answer: &str) -> Option<(String, Option<String>)> {
    answer.lines().rev().map(str::trim).find_map(|line| {
        let (id, cluster) = line.split_once(';').unwrap_or((line, ""));
        let is_number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        let cluster = Some(cluster.to_string()).filter(|name| !name.is_empty());
        is_number.then(|| (id.to_string(), cluster))
    })
}

const ENDED: &str = "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY \
                     PREEMPTED RECONFIG_FAIL REVOKED TIMEOUT";

pub fn states(jobs: &[&LaunchedJob]) -> Result<LauncherStates, EngineError> {
    let clusters: BTreeSet<Option<&str>> = jobs.iter().map(|job| job.address.as_deref()).collect();
    let mut states = LauncherStates::new();
    for cluster in clusters {
        let own = jobs.iter().filter(|job| job.address.as_deref() == cluster);
        let firsts: BTreeMap<&str, u64> = own.map(|job| (job.id.as_str(), job.first)).collect();
        let ids = firsts.keys().copied().collect::<Vec<_>>().join(",");
        let asked = ["--all", "--noheader", "--array", "--states=all", "--format=%F %K %T"];
        let mut arguments = asked.map(String::from).to_vec();
        arguments.push(format!("--jobs={ids}"));
        arguments.extend(cluster.map(|name| format!("--clusters={name}")));
        match printed("squeue", &arguments) {
            Ok(answer) => states.extend(live(&answer, &firsts)),
            Err(EngineError::Program { reason, .. }) if reason.contains("Invalid job id") => {}
            Err(error) => return Err(error),
        }
    }
    Ok(states)
}

fn live(answer: &str, firsts: &BTreeMap<&str, u64>) -> LauncherStates {
    let state = |line: &str| {
        let mut words = line.split_whitespace();
        let first = firsts.get(words.next()?)?;
        let task: u64 = words.next()?.parse().ok()?;
        let state = match words.next()? {
            "RUNNING" | "COMPLETING" | "STAGE_OUT" | "SUSPENDED" | "STOPPED" | "SIGNALING" => {
                LauncherState::Running
            }
            state if ENDED.split(' ').any(|ended| ended == state) => return None,
            _ => LauncherState::Queued,
        };
        Some((first + task, state))
    };
    answer.lines().filter_map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_ended_are_on_their_way_no_more() {
        let answer = "CLUSTER: big\n77 0 RUNNING\n77 1 FAILED\n77 2 OUT_OF_MEMORY\n77 3 REQUEUED\n78 4 PENDING\n\
                      77 N/A PENDING\n";
        let states = live(answer, &[("77", 1000)].into());
        let expected = [(1000, LauncherState::Running), (1003, LauncherState::Queued)];
        assert_eq!(states, LauncherStates::from(expected));
    }

    #[test]
    fn the_last_line_that_is_a_number_is_that_of_the_job() {
        let of = |answer| submitted(answer).map(|(id, cluster)| (id, cluster.unwrap_or_default()));
        let job = |id: &str, cluster: &str| Some((id.to_string(), cluster.to_string()));
        assert_eq!(of("77\n"), job("77", ""));
        assert_eq!(of("2 hours of 9 are left\n9\n77;big\nthank you; bye\n"), job("77", "big"));
        assert_eq!([of(""), of("Submitted batch job 77\n"), of(";big")], [None, None, None]);
    }

    #[test]
    fn tasks_are_written_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 9, 10]), "0-3,7,9-10");
        assert_eq!(ranges(&[5]), "5");
    }
}

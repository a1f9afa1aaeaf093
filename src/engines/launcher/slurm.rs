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
    match WORDS[..2].iter().find(|word| !text.contains(**word)) {
        None => Ok(text),
        Some(word) => {
            let reason = format!("the template has no {word}, which `dapo ablate` fills in");
            Err(EngineError::Output { path: path.to_path_buf(), reason })
        }
    }
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
    // `<number>`, or `<number>;<cluster>`.
    let mut parts = answer.trim().split(';').map(str::to_string);
    (job.id, job.address) = (parts.next().unwrap_or_default(), parts.next());
    if job.id.parse::<u64>().is_err() {
        let reason = format!("{answer:?} is not the number of a job");
        return Err(EngineError::Program { program: "sbatch".to_string(), reason });
    }
    launcher::keep(study, &job)?;
    Ok(job)
}

const ENDED: [&str; 12] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "RECONFIG_FAIL",
    "REVOKED",
    "TIMEOUT",
];

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
            ended if ENDED.contains(&ended) => return None,
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
    fn tasks_are_written_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 9, 10]), "0-3,7,9-10");
        assert_eq!(ranges(&[5]), "5");
    }
}

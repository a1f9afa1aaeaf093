//! Cells as jobs of Ray: `ray job submit`, one job a cell.

use crate::base::files;
use crate::engines::launcher::{self, program::printed};
use crate::engines::{
    CellProgram, EngineError, LaunchedJob, Launcher, LauncherState, LauncherStates,
};
use crate::study::ablate::AblateStudy;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

/// Ray lists at most so many.
const MOST_LISTED: &str = "10000";

#[derive(Deserialize)]
struct RayJob {
    submission_id: Option<String>,
    status: String,
}

/// Jobs, of one processor each, and `ray`'s arguments. The id has the time: Ray knows ids of a folder that was removed.
pub fn jobs(
    cells: &[u64],
    program: &CellProgram,
    address: &str,
) -> Vec<(LaunchedJob, Vec<String>)> {
    let place = files::sha256(program.study.display().to_string().as_bytes());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let job = |&cell: &u64| {
        let id = format!("dapo-{}-{cell}-{now:x}", &place[..8]);
        let head = ["job", "submit", "--address", address, "--no-wait", "--submission-id", &id];
        let mut arguments: Vec<String> = head.map(String::from).to_vec();
        arguments.extend(["--entrypoint-num-cpus", "1", "--"].map(String::from));
        arguments.extend(program.words(&cell));
        let address = Some(address.to_string());
        (
            LaunchedJob { launcher: Launcher::Ray, id, first: cell, cells: vec![cell], address },
            arguments,
        )
    };
    cells.iter().map(job).collect()
}

/// Keeps the job's id first: what Ray took is never forgotten.
pub fn submit(
    study: &AblateStudy,
    job: &LaunchedJob,
    arguments: &[String],
) -> Result<(), EngineError> {
    launcher::keep(study, job)?;
    printed("ray", arguments).map(drop)
}

pub fn states(jobs: &[&LaunchedJob]) -> Result<LauncherStates, EngineError> {
    let cells: BTreeMap<&str, u64> = jobs.iter().map(|job| (job.id.as_str(), job.first)).collect();
    let addresses: BTreeSet<&str> = jobs.iter().filter_map(|job| job.address.as_deref()).collect();
    let mut states = LauncherStates::new();
    for address in addresses {
        let arguments =
            ["list", "jobs", "--address", address, "--format", "json", "--limit", MOST_LISTED];
        let answer = printed("ray", &arguments.map(String::from))?;
        if answer.lines().any(|line| line.trim() == "No resource in the cluster") {
            continue;
        }
        // Notes may precede the JSON.
        let json = answer.lines().find(|line| line.starts_with('[')).unwrap_or_default();
        let listed: Vec<RayJob> = serde_json::from_str(json).map_err(|error| {
            let reason = format!("list jobs: {error}");
            EngineError::Program { program: "ray".to_string(), reason }
        })?;
        for job in listed {
            let cell = job.submission_id.as_deref().and_then(|id| cells.get(id));
            let state = match job.status.as_str() {
                "PENDING" => LauncherState::Queued,
                "RUNNING" => LauncherState::Running,
                _ => continue,
            };
            states.extend(cell.map(|cell| (*cell, state)));
        }
    }
    Ok(states)
}

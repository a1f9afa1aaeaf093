//! Verifies a study's records: digests, fields, each other, and the report. It trains nothing.

use crate::algorithm::Problem;
use crate::base::{files, program, visible};
use crate::experiment::bases;
use crate::experiment::{Data, sets, shipped};
use crate::records::run_folder::is_portable;
use crate::report::{study as report, text};
use crate::study::cell::{ProblemIds, build, packed};
use crate::study::claims::{self, Claims};
use crate::study::collection::{self, Study};
use crate::study::declaration::{self, Placement};
use crate::study::{Cell, Excluded, facts};
use crate::task::data;
use crate::training::run::inputs;
use crate::verification::verify::{self, Check, VerifyVerdict, scores};
use crate::verification::{Verification, VerificationError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// `reviewed`: the reviewer's own copy of the declaration.
pub fn verify(folder: &Path, reviewed: Option<&Path>) -> Result<Verification, VerificationError> {
    if let Some(file) = reviewed {
        declaration::load(file)?;
    }
    let study = match collection::load(folder, reviewed) {
        Ok(study) => study,
        Err(error) if !collection::has_grids(folder) => return Err(error.into()),
        Err(error) => return Ok(refused(&error.to_string())),
    };
    let records = records(&study);
    let report = if records.failed() {
        // A missing record changes every number.
        Check::not_begun("report", "not built again: records do not count")
    } else {
        reported(folder, &study)
    };
    let declared = declared(folder, &study, reviewed)?.into_iter();
    let mut not_checked = of_declaration(&study, reviewed);
    not_checked.extend(of_folder(folder, &study)?);
    not_checked.extend(of_bases(&study.cells));
    not_checked.extend(report::surroundings::programs(&study, text::visible));
    let (of_runs, commands) = of_runs(folder, &study);
    not_checked.extend(of_runs);
    let checks = [records, problems(&study)].into_iter().chain(declared);
    let checks = checks.chain([complete(&study), report]).collect();
    let runs = study.cells.len();
    let summary = format!(
        "verified (records and report), training replayed 0 of {runs} runs; {}",
        bases(&study)
    );
    Ok(Verification { commands, ..verification(checks, summary, not_checked) })
}

fn verification(checks: Vec<Check>, summary: String, not_checked: Vec<String>) -> Verification {
    let verdict = verify::worst(&checks);
    let is_verified = verdict == VerifyVerdict::Verified;
    Verification {
        schema: "dapo-study-verification/1",
        verdict,
        summary: if is_verified { summary } else { verdict.name().to_string() },
        extent: None,
        checks,
        replay: None,
        not_checked,
        commands: Vec::new(),
    }
}

/// Records name these policies; nobody has read them.
fn bases(study: &Study) -> String {
    let weights = |cell: &Cell| {
        let bound = cell.inputs.iter().filter(|(name, _)| name.ends_with(".safetensors"));
        bound.map(|(_, digest)| digest.clone()).collect::<Vec<_>>()
    };
    let named: BTreeSet<Vec<String>> = study.cells.iter().map(weights).collect();
    let embedded = shipped::MODEL.iter().find(|(name, _)| name.ends_with(".safetensors"));
    let embedded = embedded.map(|(_, bytes)| vec![files::sha256(bytes)]).unwrap_or_default();
    match (named.len(), named.contains(&embedded)) {
        (1, true) => "base policy: the embedded benchmark's".to_string(),
        (all, is_one) => {
            let which = if is_one { "one of them" } else { "none of them" };
            format!("base policies: {all}, {which} the embedded benchmark's")
        }
    }
}

fn refused(reason: &str) -> Verification {
    let mut check = Check::new("grids and declaration");
    check.mismatch("study", reason);
    let checks = vec![check.compared("each by itself")];
    verification(checks, String::new(), vec!["everything else".to_string()])
}

/// Against the reviewer's copy; arms against the declaration.
fn declared(
    folder: &Path,
    study: &Study,
    reviewed: Option<&Path>,
) -> Result<Option<Check>, VerificationError> {
    let mut check = Check::new("declaration");
    let path = folder.join("study.json");
    let compared = match (reviewed, files::kind(&path)?.is_some()) {
        (None, false) if !study.is_declared_otherwise() => return Ok(None),
        (None, false) => "nothing",
        (None, true) => "every declared arm is in the study",
        (Some(file), false) => {
            let what = format!("is missing, {} is a declaration", file.display());
            check.mismatch("study.json", what);
            "nothing"
        }
        (Some(_), true) => {
            if let Some(kept) = check.read("study.json", declaration::load(&path)) {
                let [kept, yours] = [&kept, &study.declaration]
                    .map(|it| serde_json::to_value(it).unwrap_or_default());
                scores::different(&mut check, "study.json", &kept, &yours);
            }
            "study.json with your copy, every declared arm is in the study"
        }
    };
    if study.is_declared_otherwise() {
        let placed = study.placement.as_ref().filter(|_| !study.is_declared()).map(|it| {
            let digest = visible::shortened(&visible::message(&it.declaration_sha256), 12);
            format!("names the declaration {digest}, and study.json is gone: put it back")
        });
        let other =
            "is of another declaration: study.json was changed, or your copy is another one";
        check.mismatch(Placement::FILE, placed.unwrap_or_else(|| other.to_string()));
    }
    for id in study.declaration.declared_arms() {
        if study.arm(id).is_none() {
            check.inconclusive(id, "is declared, and the study has no such arm");
        }
    }
    Ok(Some(check.compared(compared)))
}

/// Records that do not count are mismatches, except failed runs and seeds that the study does not ask for.
fn records(study: &Study) -> Check {
    let mut check = Check::new("records");
    for excluded in study.excluded.iter().filter(|it| !it.failed && !it.is_of_other_seed) {
        check.mismatch(&excluded.cell, &excluded.reason);
    }
    let recorded: BTreeSet<&str> =
        study.cells.iter().flat_map(|it| it.metrics.keys()).map(String::as_str).collect();
    for cell in &study.cells {
        for name in build::lacking(cell).into_iter().filter(|name| recorded.contains(name)) {
            let what = format!("it lacks the metric `{name}`, which runs like this one record");
            check.mismatch(cell.file_name(), what);
        }
    }
    let records = study.cells.len();
    check.compared(format!(
        "{records} records against their digests, their own fields and each other"
    ))
}

fn complete(study: &Study) -> Check {
    let mut check = Check::new("runs");
    let (mut there, mut arms) = (BTreeSet::new(), BTreeSet::new());
    for (id, arm) in study.arms() {
        there.extend(study.cells_of(&id).into_iter().map(Cell::file_name));
        arms.insert(&arm.arm_sha256);
        let missing = study.missing_seeds(&id);
        if !missing.is_empty() {
            let seeds = text::joined(missing, ", ");
            check.inconclusive(&id, format!("no record of the seeds {seeds}"));
        }
    }
    let (there, arms) = (there.len(), arms.len());
    check.compared(format!(
        "{there} records that count for {arms} arms, with the seeds of their grids"
    ))
}

type GeneratedSet = (Option<ProblemIds>, String);

/// The experiment determines generated sets.
fn problems(study: &Study) -> Check {
    let mut check = Check::new("problems");
    let mut known: BTreeMap<String, BTreeMap<String, GeneratedSet>> = BTreeMap::new();
    let mut compared = 0;
    for cell in &study.cells {
        let source = &cell.experiment.inputs.data;
        if !source.is_generated() {
            continue;
        }
        let copies: Vec<_> = cell.experiment.evaluation.copies().collect();
        let sets =
            known.entry(files::canonical_json_line(&(source, copies))).or_insert_with(|| {
                let sets = data::load_for(&cell.experiment).unwrap_or_default();
                let of = |(set, problems): (&str, &[Problem])| {
                    let ids: Vec<&str> = problems.iter().map(|it| it.id.as_str()).collect();
                    let ids = ProblemIds::of(&ids, sets.tags.get(set));
                    (set.to_string(), ((set != sets::TRAIN).then_some(ids), data::digest(problems)))
                };
                inputs::named_sets(&sets).into_iter().map(of).collect()
            });
        for (set, (ids, digest)) in sets {
            compared += 1;
            let input = cell.inputs.get(&format!("data/{set}"));
            // Diverged runs may have no evaluation.
            let found = cell.problems.get(set).or(ids.as_ref());
            if found != ids.as_ref() || input != Some(digest) {
                let what = format!("the problems of {set}, or their tags, are not the task's");
                check.mismatch(cell.file_name(), what);
            }
        }
    }
    check.compared(format!("{compared} sets of generated problems, with their tags, made again"))
}

fn sets_of_files(study: &Study) -> BTreeSet<&str> {
    let of_files = study.cells.iter().filter(|cell| !cell.experiment.inputs.data.is_generated());
    let inputs = of_files.flat_map(|cell| cell.inputs.keys());
    inputs.filter_map(|name| name.strip_prefix("data/")).collect()
}

/// Entries that nothing here reads: of other programs, and records that were set aside.
fn strangers(folder: &Path) -> Result<Vec<String>, VerificationError> {
    const OF_INIT: [&str; 3] = ["base.toml", "grid.toml", "model"];
    const FOLDERS: [&str; 6] = ["grids", "cells", "runs", "experiments", "launcher", "export"];
    const OF_ABLATE: [&str; 3] = ["cells.jsonl", "ablate.lock", "study.json"];
    let others = [Placement::FILE, packed::FILE, claims::FILE];
    let known = [&OF_INIT[..], &FOLDERS, &OF_ABLATE, &others, &report::FILES].concat();
    let mut strangers = files::list(folder)?;
    strangers.retain(|name| !known.contains(&name.as_str()));
    for inside in ["grids", "cells"] {
        let names = files::list(&folder.join(inside)).unwrap_or_default().into_iter();
        let others = names.filter(|name| !name.ends_with(".json"));
        strangers.extend(others.map(|name| format!("{inside}/{name}")));
    }
    Ok(strangers)
}

fn reported(folder: &Path, study: &Study) -> Check {
    let mut check = Check::new("report");
    let judged_by = claims::of(folder, study).unwrap_or_else(|error| {
        check.mismatch("claims.toml", error.to_string());
        Claims::default()
    });
    let (name, facts) = (facts::FILE, facts::of(study, &judged_by));
    let again = serde_json::to_value(&facts).expect("facts as JSON");
    let Some(kept) = scores::written_here(&mut check, folder, name, &again) else {
        return check.compared("nothing");
    };
    scores::different(&mut check, name, &kept, &again);
    let of_claims = if folder.join(claims::FILE).exists() { " and claims.toml" } else { "" };
    check.compared(format!("every fact of {name} computed again from the records{of_claims}"))
}

fn of_declaration(study: &Study, reviewed: Option<&Path>) -> Vec<String> {
    let mut lines: Vec<&str> = Vec::new();
    if study.declaration.registered {
        lines.push(match reviewed {
            None => "when the declaration was written, and whether it was changed since: study.json says of itself that \
                     it is registered. Compare it with a copy of your own, from a registry, a commit or a mail: dapo \
                     verify STUDY --declaration FILE",
            Some(_) => "when your copy of the declaration was written: a time stamp of somebody else shows that \
                        (docs/verification.md)",
        });
    }
    if (reviewed.is_some() || study.is_declared()) && study.declaration.arms.is_empty() {
        lines.push(
            "that the arms are the declared ones: the declaration names them and does not bind their identities \
             (`[arms]`, which dapo ablate GRID --declaration FILE --dry-run prints)",
        );
    }
    lines.into_iter().map(str::to_string).collect()
}

fn of_folder(folder: &Path, study: &Study) -> Result<Vec<String>, VerificationError> {
    let mut lines = Vec::new();
    for (name, what) in [
        (
            Placement::FILE,
            "that the declaration came before the records, and its commit: whoever holds the folder can change the \
             file",
        ),
        (claims::FILE, "the claims and their bounds are the sender's"),
        ("runs", "no run folder in it is read: dapo verify STUDY/runs/RUN verifies one"),
    ] {
        if files::kind(&folder.join(name))?.is_some() {
            lines.push(format!("{name}: {what}"));
        }
    }
    let listed = |names: Vec<&str>| {
        visible::shortened(&visible::message(&names.join(", ").replace('\n', "\\n")), 200)
    };
    let sets = sets_of_files(study);
    if !sets.is_empty() {
        lines.push(format!(
            "the problems and tags of {}: they come from files, of which the records have digests alone",
            listed(sets.into_iter().collect())
        ));
    }
    let of_other_seeds = study.excluded.iter().filter(|it| it.is_of_other_seed);
    let of_arm = |it: &Excluded| format!("{} ({})", it.cell, it.arm.as_deref().unwrap_or("no arm"));
    let of_others = of_other_seeds.map(of_arm).collect();
    let (aside, others): (Vec<String>, Vec<String>) =
        strangers(folder)?.into_iter().partition(|name| name.contains(".json.set-aside-"));
    for (what, names) in [
        ("records that dapo ablate set aside, and which do not count", aside),
        ("records of seeds that the study does not ask for, and which do not count", of_others),
        ("not of a study's layout", others),
    ] {
        if !names.is_empty() {
            let names = listed(names.iter().map(String::as_str).collect());
            lines.push(format!("{what}: {names}"));
        }
    }
    Ok(lines)
}

fn of_bases(cells: &[Cell]) -> Option<String> {
    let count = cells.iter().filter(|cell| !is_portable(&cell.exactness)).count();
    let records = text::counted(count, "record", "records");
    (count > 0).then(|| {
        format!(
            "the base policy's outcomes of {records} against those of another machine or build (at level approximate \
             against any): their level promises no equal bits there"
        )
    })
}

/// What only the runs themselves would show, and the commands that train the cheapest cell again.
fn of_runs(folder: &Path, study: &Study) -> (Vec<String>, Vec<String>) {
    let cost = |name: &str, seconds| format!("{name} took {}", text::duration(seconds));
    let all: f64 = study.cells.iter().map(|cell| cell.wall_seconds).sum();
    let labels = study.arms().map(|(id, arm)| format!("{:?} for {id}", arm.label));
    let labels = Some(text::joined(labels, ", ")).filter(|labels| labels.len() <= 200);
    let labels = labels.map(|labels| format!(" ({})", visible::message(&labels)));
    let labels = labels.unwrap_or_default();
    let mut lines = vec![
        format!("the labels by which a report speaks of arms: they are the sender's words{labels}"),
        "the words and pictures of a report in the folder: dapo report STUDY --out FOLDER makes them again from the records"
            .to_string(),
        "the name of each run, how it says that it ended, its seconds and its machine: only whoever ran it vouches for \
         them"
            .to_string(),
        "that the runs took place: only training a cell again shows it".to_string(),
    ];
    let mut commands = Vec::new();
    if let Some(cell) = Cell::cheapest(&study.cells) {
        lines.push(cost("all runs together", all));
        let name = cell.file_name();
        lines.push(cost(&name, cell.wall_seconds));
        let inputs = place_of_data(folder, cell);
        let (elsewhere, base) = base_of_seed(folder, inputs.as_deref(), cell);
        commands.extend(elsewhere);
        let shown = program::path_word(folder);
        commands.push(format!("cd {shown}  # the following lines are for the study's folder"));
        commands.extend(base);
        let inputs = inputs.map_or_else(String::new, |up| format!(" --inputs {up}"));
        commands.push(format!(
            "dapo train cells/{name}{inputs} --out check && dapo runs cells cells/{name} --run check"
        ));
    }
    (lines, commands)
}

/// The folder that the paths of a record with data files start from, as seen from the study's.
fn place_of_data(folder: &Path, cell: &Cell) -> Option<String> {
    let Data::Files { train, .. } = &cell.experiment.inputs.data else { return None };
    let up = above(folder, train)?;
    Some(if up.is_empty() { "." } else { up.trim_end_matches('/') }.to_string())
}

/// The way up from a study's folder to the one that has the file.
fn above(folder: &Path, file: &Path) -> Option<String> {
    (0..4).map(|depth| "../".repeat(depth)).find(|up| folder.join(up).join(file).exists())
}

/// Make a base policy that is in no repository: lines for a checkout of the project, or for the study's folder. The
/// record's paths start from `inputs`, else from there.
fn base_of_seed(folder: &Path, inputs: Option<&str>, cell: &Cell) -> (Vec<String>, Vec<String>) {
    let model = &cell.experiment.inputs.model;
    let Some(base) = bases::of_seed(model, cell.seed) else { return Default::default() };
    let up = above(folder, Path::new(&base.recipe));
    let model = inputs.map_or_else(|| model.clone(), |inputs| Path::new(inputs).join(model));
    let absolute = || std::path::absolute(folder.join(&model)).unwrap_or_else(|_| model.clone());
    let place = if up.is_some() { model.clone() } else { absolute() };
    let mut commands = base.commands(up.as_deref().unwrap_or_default(), &place, cell.seed);
    let minutes = base.minutes;
    let digest = cell.inputs.get("base/model.safetensors").map_or("unknown", String::as_str);
    if let Some(last) = commands.last_mut() {
        *last += &format!("  # first: the base policy, about {minutes} minutes; SHA-256 {digest}");
    }
    if up.is_some() {
        return (Vec::new(), commands);
    }
    let place = format!(
        "# the recipe of the base policy, {}, is in the project's repository: run these lines in a checkout of it",
        base.recipe
    );
    commands.insert(0, place);
    (commands, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_runs_take_no_time() {
        let (lines, commands) = of_runs(Path::new(""), &Study::new(Vec::new(), Vec::new(), None));
        assert!(!lines.iter().any(|line| line.contains("runs together took")), "{lines:?}");
        assert_eq!(commands, [""; 0]);
    }
}

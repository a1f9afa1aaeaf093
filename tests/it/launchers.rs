//! Cells that other machines run make the records that this one makes. Pretended programs take the
//! place of Slurm and Ray: they note how they are called, and run what they get.

use crate::ablate::{GRID, Scene, same_run};
use crate::binary::{Output, ended, failed, says, succeeded};
use dapo::base::files;
use dapo::engines::LaunchedJob;
use dapo::study::Cell;
use dapo::study::ablate::{AblateStudy, listing};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Puts a shell script on the path of a scene's commands.
fn pretend(scene: &Scene, program: &str, script: &str) {
    let path = scene.path("bin").join(program);
    files::write_program(&path, &format!("#!/bin/bash\n{script}\n")).unwrap();
}

fn with_programs(scene: &Scene, arguments: &[&str]) -> Output {
    let path = format!("{}:{}", scene.path("bin").display(), std::env::var("PATH").unwrap());
    let mut command = scene.command(&[&["ablate", "grid.toml"], arguments].concat());
    ended(command.env("PATH", path).env_remove("RAY_ADDRESS"))
}

fn calls(scene: &Scene) -> String {
    files::read_text(&scene.path("calls")).unwrap_or_default()
}

fn handed_over(scene: &Scene) -> Vec<LaunchedJob> {
    files::read_lines(&scene.path("study/launcher/jobs.jsonl")).unwrap()
}

/// Every record of the study is that of the same grid run here.
fn records_are_those_of_this_machine(scene: &Scene) {
    succeeded(scene.dapo(&["ablate", "grid.toml", "--out", "here", "--jobs", "2"]));
    let (names, others) = scene.records();
    assert_eq!((names.len(), others.len()), (4, 0));
    for name in names {
        same_run(&scene.cell(&name), &Cell::read(&scene.path("here/cells").join(name)).unwrap());
    }
}

#[test]
fn cells_that_run_one_by_one_make_the_records_of_the_grid() {
    let scene = Scene::new(GRID);
    let command = ["ablate", "grid.toml", "--out", "study", "--launcher", "command"];
    let (code, planned, talk) = scene.dapo(&[&command[..], &["--dry-run"]].concat());
    assert_eq!((code, planned.lines().count()), (0, 4), "{talk}");
    assert!(!scene.path("study").exists(), "a dry run writes nothing");
    let (code, lines, talk) = scene.dapo(&command);
    assert_eq!((code, &lines), (0, &planned), "{talk}");

    a_cell_stops_with_a_checkpoint_and_goes_on(&scene);
    a_cell_of_another_process_or_other_inputs_is_left_alone(&scene);
    a_cell_that_fails_is_on_record_until_it_is_begun_again(&scene);
    for line in lines.lines().skip(1) {
        succeeded(ended(Command::new("sh").args(["-c", line])));
    }
    let run = |number| scene.dapo(&["cell", "run", number, "--study", "study"]);
    says(run("3"), 0, &["tiny/symmetric seed 2 is on record: finished"]);
    // Nothing is left: the report is written.
    says(scene.dapo(&command), 0, &["2 finished"]);
    assert!(scene.path("study/report.html").exists());
    records_are_those_of_this_machine(&scene);

    // A record that was edited is set aside and the cell is run again.
    let (names, _) = scene.records();
    let text = files::read_text(&scene.record(&names[0])).unwrap();
    let text = text.replacen("\"cons_at_k\":", "\"cons_at_k\":1", 1);
    files::write_atomic(&scene.record(&names[0]), text.as_bytes()).unwrap();
    let (code, line, talk) = scene.dapo(&command);
    assert_eq!((code, line.lines().count()), (0, 1), "{talk}");
    let number = line.split_whitespace().nth(3).unwrap();
    says(run(number), 0, &["set aside: "]);
}

/// Slurm's USR1 before a time limit.
fn a_cell_stops_with_a_checkpoint_and_goes_on(scene: &Scene) {
    let run = ["cell", "run", "0", "--study", "study"];
    let mut child =
        scene.command(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let folder = listing::find(&AblateStudy::at(scene.path("study")), 0).unwrap().folder;
    let begun = Instant::now();
    // The lock is there as soon as the process listens.
    while !scene.path("study").join(&folder).join("run.lock").exists() {
        assert!(begun.elapsed() < Duration::from_secs(120), "the cell did not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (_, table, _) = scene.dapo(&["ablate", "grid.toml", "--out", "study", "--status"]);
    assert!(table.contains("1 running, 0 queued, 3 to run"), "{table}");
    let asked = Command::new("kill").args(["-USR1", &child.id().to_string()]).status().unwrap();
    assert!(asked.success());
    assert_eq!(child.wait().unwrap().code(), Some(138));
    assert!(scene.records().0.is_empty());
    succeeded(scene.dapo(&run));
    assert_eq!(scene.records().0.len(), 1);
}

fn a_cell_of_another_process_or_other_inputs_is_left_alone(scene: &Scene) {
    let run = ["cell", "run", "1", "--study", "study"];
    let study = AblateStudy::at(scene.path("study"));
    let listed = listing::find(&study, 1).unwrap();
    let folder = scene.path("study").join(&listed.folder);
    files::create_folder(&folder).unwrap();
    let held = files::lock(&folder.join("run.lock")).unwrap().unwrap();
    failed(scene.dapo(&run), 3, "another process works on this cell");
    drop(held);

    let listing = scene.path("study/cells.jsonl");
    let text = files::read_text(&listing).unwrap();
    let key = listed.run_key;
    files::write_atomic(&listing, text.replace(&key, &key.replace('a', "b")).as_bytes()).unwrap();
    failed(scene.dapo(&run), 3, "its run key is");
    files::write_atomic(&listing, text.as_bytes()).unwrap();
    assert_eq!(scene.records().0.len(), 1);
}

fn a_cell_that_fails_is_on_record_until_it_is_begun_again(scene: &Scene) {
    let run = ["cell", "run", "2", "--study", "study"];
    let listed = listing::find(&AblateStudy::at(scene.path("study")), 2).unwrap();
    let folder = scene.path("study").join(&listed.folder);
    files::create_folder(&folder).unwrap();
    files::write_atomic(&folder.join("of-somebody"), b"").unwrap();
    failed(scene.dapo(&run), 6, "of-somebody");
    let failed = Cell::read(&scene.path("study").join(&listed.record)).unwrap();
    assert!(failed.reason.starts_with("error: "), "{}", failed.reason);
    says(scene.dapo(&run), 0, &["tiny/all seed 2 is on record: failed"]);
    let status = scene.dapo(&["ablate", "--study", "study", "--status"]);
    assert!(status.1.contains("1 done, 1 failed, 0 running, 0 queued, 2 to run"));
    files::remove_folder(&folder).unwrap();
    succeeded(scene.dapo(&[&run[..], &["--retry-failed"]].concat()));
}

const SBATCH: &str = include_str!("launchers/sbatch.sh");

#[test]
fn slurm_gets_the_cells_that_are_neither_on_record_nor_on_their_way() {
    let scene = Scene::new(GRID);
    let slurm = ["--out", "study", "--launcher", "slurm", "--jobs", "2"];
    pretend(&scene, "sbatch", SBATCH);
    pretend(&scene, "squeue", "cat queue");
    let (script, _) = succeeded(with_programs(&scene, &[&slurm[..], &["--dry-run"]].concat()));
    for line in ["--array=0-3%2\n", "--signal=B:USR1@120\n", "--requeue\n", "--open-mode=append\n"]
    {
        assert!(script.contains(&format!("#SBATCH {line}")), "{script}");
    }
    assert!(!scene.path("study").exists() && calls(&scene).is_empty(), "a dry run does nothing");

    let (code, id, talk) = with_programs(&scene, &slurm);
    assert_eq!((code, id.as_str()), (0, "77\n"), "{talk}");
    assert_eq!(files::read_text(&scene.path("script.sh")).unwrap(), script);
    assert_eq!(handed_over(&scene)[0].cells, [0, 1, 2, 3]);

    // Two tasks are there; a task of another array is not ours.
    scene.write("queue", "77 0 RUNNING\n77 2 PENDING\n78 1 PENDING\n");
    let status = || with_programs(&scene, &["--out", "study", "--status"]);
    says(status(), 0, &["0 done, 0 failed, 1 running, 1 queued, 2 to run"]);
    scene.write("run", "");
    let own = script.replace("0-3%2", "@ARRAY@").replace("--ntasks=1", "--ntasks=1 --mem=1G");
    scene.write("own.sh", &own);
    let template = ["--template", "own.sh"];
    let with_template = || with_programs(&scene, &[&slurm[..], &template].concat());
    failed(with_template(), 3, "own.sh: the template has no @COMMAND@");
    let line = own.lines().find(|line| line.ends_with(" &")).unwrap();
    scene.write("own.sh", &own.replace(line, "@COMMAND@ &"));
    succeeded(with_template());
    assert_eq!(handed_over(&scene)[1].cells, [1, 3]);
    assert!(files::read_text(&scene.path("script.sh")).unwrap().contains("--mem=1G"));

    // Without an answer nothing is handed over a second time.
    pretend(&scene, "squeue", "echo slurmctld is away >&2; exit 1");
    failed(with_programs(&scene, &slurm), 6, "squeue: slurmctld is away");
    says(status(), 0, &["records and run folders alone", "4 cells: "]);
    assert_eq!(calls(&scene).lines().count(), 2);

    pretend(&scene, "squeue", "");
    succeeded(with_programs(&scene, &slurm));
    records_are_those_of_this_machine(&scene);
}

#[test]
fn a_thousand_cells_are_one_array_and_arrays_follow_each_other() {
    let scene = Scene::new(&GRID.replace("seeds = [1, 2]", "seeds = [1]"));
    pretend(
        &scene,
        "sbatch",
        "echo \"sbatch $*\" >> calls; cat \"${@: -1}\" >> scripts; echo $RANDOM",
    );
    pretend(&scene, "squeue", "");
    let slurm = ["--out", "study", "--launcher", "slurm", "--seeds", "1..501"];
    let (code, ids, talk) = with_programs(&scene, &slurm);
    assert_eq!((code, ids.lines().count()), (0, 2), "{talk}");
    let scripts = files::read_text(&scene.path("scripts")).unwrap();
    for text in ["--array=0-999\n", "$((0 + ", "--array=0-1\n", "$((1000 + "] {
        assert!(scripts.contains(text), "{text}");
    }
    let first = ids.lines().next().unwrap();
    let second = calls(&scene).lines().nth(1).unwrap().to_string();
    assert!(second.contains(&format!("--dependency=afterany:{first} ")), "{second}");
    let (_, table, _) = with_programs(&scene, &[&slurm[..2], &["--status"], &slurm[4..]].concat());
    assert!(table.contains("501 to run") && table.contains("1002 cells: "), "{table}");
}

const RAY: &str = include_str!("launchers/ray.sh");

#[test]
fn ray_gets_a_job_for_each_cell_that_is_neither_on_record_nor_on_its_way() {
    let scene = Scene::new(GRID);
    pretend(&scene, "ray", RAY);
    let ray = ["--out", "study", "--launcher", "ray"];
    failed(with_programs(&scene, &ray), 2, "--launcher ray needs --address or RAY_ADDRESS");
    let ray = [&ray[..], &["--address", "http://head:8265"]].concat();
    let (code, ids, talk) = with_programs(&scene, &ray);
    assert_eq!((code, ids.lines().count()), (0, 4), "{talk}");
    let ids: Vec<&str> = ids.lines().collect();
    let submitted = format!(
        "ray job submit --address http://head:8265 --no-wait --submission-id {} --entrypoint-num-cpus 1 -- ",
        ids[0]
    );
    assert!(calls(&scene).starts_with(&submitted), "{}", calls(&scene));

    let listed = |id: &str, status: &str| {
        format!("{{\"submission_id\": \"{id}\", \"status\": \"{status}\"}}")
    };
    let driver = "{\"submission_id\": null, \"status\": \"RUNNING\"}".to_string();
    let jobs =
        [driver, listed(ids[0], "RUNNING"), listed(ids[1], "PENDING"), listed(ids[2], "FAILED")];
    scene.write("listed", &format!("[{}]", jobs.join(", ")));
    let status = with_programs(&scene, &["--out", "study", "--status"]);
    says(status, 0, &["1 running, 1 queued, 2 to run"]);
    scene.write("run", "");
    let (again, _) = succeeded(with_programs(&scene, &ray));
    // An id of Ray is used once.
    let next = |id: &str| format!("{}-1", id.strip_suffix("-0").unwrap());
    assert_eq!(again.lines().collect::<Vec<_>>(), [next(ids[2]), next(ids[3])]);
    scene.write("listed", "[]");
    succeeded(with_programs(&scene, &ray));
    records_are_those_of_this_machine(&scene);
}

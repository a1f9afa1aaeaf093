//! Curves of a run, as trackers get them.

use crate::binary::json_lines;
use crate::diff::tiny;
use crate::verify::made;
use dapo::base::files;
use dapo::records::RunFolder;
use dapo::report::export::curves;
use dapo::report::{CurveSender, RunCurves, Tracker};
use std::path::{Path, PathBuf};

#[test]
fn a_tracker_is_told_each_value_once_however_often_a_run_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::at(folder.path().join("run"));
    made(tiny(|_| ()), &run);
    let whole = curves::of_run(&run, None).unwrap();
    assert!(
        whole.ending == Some("finished") && whole.name == "run" && whole.group == "own-task",
        "{whole:?}"
    );
    let half = RunCurves {
        scalars: whole.scalars[..whole.scalars.len() / 2].to_vec(),
        ending: None,
        ..whole.clone()
    };
    // The ending may come after the last values.
    let open = RunCurves { ending: None, ..whole.clone() };
    // A program in place of Python that keeps what it is told.
    let python = folder.path().join("listener");
    let program = format!("#!/bin/sh\ncat > {}/told\n", folder.path().display());
    files::write_program(&python, &program).unwrap();
    let mut sender = CurveSender::new(Tracker::Wandb, folder.path(), "p", &python).unwrap();
    for curves in [&half, &half, &open, &whole, &whole] {
        sender.send(curves).unwrap();
    }
    assert_eq!(sender.end().unwrap(), Vec::<PathBuf>::new());
    let told = files::read_text(&folder.path().join("told")).unwrap();
    let lines = json_lines(&told);
    assert!(lines[0]["group"] == "own-task" && lines[0]["config"]["name"] == "own-task");
    assert_eq!(lines.last().unwrap()["end"], "finished");
    let mut values = Vec::new();
    for line in &lines[1..lines.len() - 1] {
        for (tag, value) in line["values"].as_object().unwrap() {
            values.push((tag.as_str(), line["step"].as_u64().unwrap(), value.as_f64().unwrap()));
        }
    }
    let expected =
        whole.scalars.iter().map(|scalar| (scalar.tag.as_str(), scalar.step, scalar.value));
    let mut expected: Vec<_> = expected.collect();
    for values in [&mut values, &mut expected] {
        values.sort_by_key(|(tag, step, _)| (*tag, *step));
    }
    assert_eq!(values, expected);

    // Before anything is written: whether there is such a tracker.
    files::write_program(&python, "#!/bin/sh\necho no package wandb >&2; exit 1\n").unwrap();
    let refused = CurveSender::new(Tracker::Wandb, folder.path(), "p", &python).unwrap_err();
    let refused = refused.to_string();
    assert!(refused.ends_with("listener: no package wandb (exit status: 1)"), "{refused}");

    // Event files that were followed hold the same records as one that was written at once.
    let files_of = |sends: &[&RunCurves], out: &str| {
        let out = folder.path().join(out);
        let mut sender = CurveSender::new(Tracker::Tensorboard, &out, "p", &python).unwrap();
        sends.iter().for_each(|curves| sender.send(curves).unwrap());
        files::read(&sender.end().unwrap()[0]).unwrap()
    };
    assert_eq!(files_of(&[&half, &whole], "followed"), files_of(&[&whole], "once"));

    let nowhere = CurveSender::new(Tracker::Mlflow, folder.path(), "p", Path::new("/no/python"));
    assert!(nowhere.unwrap_err().to_string().contains("/no/python"));
    files::write_program(&python, "#!/bin/sh\n[ $# -lt 4 ]\n").unwrap();
    let fails = CurveSender::new(Tracker::Trackio, folder.path(), "p", &python);
    assert!(fails.unwrap().end().unwrap_err().to_string().contains("ended with"));
}

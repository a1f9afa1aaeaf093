use super::*;

fn read_text(name: &str, text: &str) -> Result<Vec<TrackedRun>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    files::write_atomic(&path, text.as_bytes()).unwrap();
    let place = format!("{}/", folder.path().display());
    let runs = read(&path, "", None).map_err(|error| error.to_string().replace(&place, ""))?;
    let own = |run: TrackedRun| TrackedRun { name: run.name.replace(&place, ""), ..run };
    Ok(runs.into_iter().map(own).collect())
}

#[test]
fn rows_are_told_apart_by_their_runs_and_by_the_metrics_that_they_name() {
    let long = "run_id,key,value,timestamp,step\n\
                a,loss,5,1,0\na,loss,4,2,10\na,acc,0.1,3,0\na,acc,0.2,4,10\nb,acc,0.3,5,10\n";
    let own = "cell,arms,seed,step,updates,metric,value\n\
               7f,x/grpo,1,1,4,acc,0.1\n7f,x/grpo,1,1,4,loss,9\n8e,x/grpo,2,1,4,acc,0.2\n";
    let frames =
        ",name,_step,_runtime,acc\n0,a-s1,0,0.5,0.1\n1,a-s1,10,2.5,0.2\n0,a-s2,0,0.5,0.3\n";
    let lines = "{\"run\": \"a\", \"seed\": 1, \"step\": 1, \"acc\": 0.1}\n\
                 {\"run\": \"a\", \"seed\": 2, \"step\": 1, \"data\": {\"acc\": 0.2}}\n";
    for (text, expected) in [
        (
            "seed,step,acc\n1.0,0,0.1\n1.0,10,0.2\n2.0,0,0.3\n",
            vec![("t.csv seed=1", Some(1), vec![0.1, 0.2]), ("t.csv seed=2", Some(2), vec![0.3])],
        ),
        ("seed,step,acc\n7,0,0.1\n7,10,0.2\n", vec![("t.csv", Some(7), vec![0.1, 0.2])]),
        // A draw of each step, and a run that goes on under another id.
        ("seed,step,acc\n81,0,0.1\n99,10,0.2\n", vec![("t.csv", None, vec![0.1, 0.2])]),
        ("run,run_id,step,acc\nx,a,0,0.1\nx,b,10,0.2\n", vec![("x", None, vec![0.1, 0.2])]),
        (
            "run,run_id,step,acc\nx,a,0,0.1\nx,b,0,0.2\n",
            vec![("x a", None, vec![0.1]), ("x b", None, vec![0.2])],
        ),
        (
            "run,step,acc\n1e2,0,0.1\n100,0,0.2\n",
            vec![("100", None, vec![0.2]), ("1e2", None, vec![0.1])],
        ),
        (frames, vec![("a-s1", Some(1), vec![0.1, 0.2]), ("a-s2", Some(2), vec![0.3])]),
        (lines, vec![("a seed=1", Some(1), vec![0.1]), ("a seed=2", Some(2), vec![0.2])]),
        (long, vec![("a", None, vec![0.1, 0.2]), ("b", None, vec![0.3])]),
        (own, vec![("x/grpo seed=1", Some(1), vec![0.1]), ("x/grpo seed=2", Some(2), vec![0.2])]),
    ] {
        let runs = read_text("t.csv", text).unwrap();
        let values = |run: &TrackedRun| run.curves["acc"].iter().map(|(_, value)| *value).collect();
        let read: Vec<(&str, Option<u64>, Vec<f64>)> =
            runs.iter().map(|run| (run.name.as_str(), run.seed, values(run))).collect();
        assert_eq!(read, expected, "{text}");
        let replaced = runs.iter().flat_map(|run| run.replaced.values());
        let replaced: usize = replaced.map(|it| it.points).sum();
        assert!(replaced == 0 && !runs[0].notes.is_sorted, "{text}");
    }
    let [first, _] = &read_text("t.csv", long).unwrap()[..] else { panic!("two runs") };
    assert_eq!(first.curves.keys().collect::<Vec<_>>(), ["acc", "loss"]);
    assert_eq!(read_text("t.csv", frames).unwrap()[0].seconds["acc"], [(0.0, 0.5), (10.0, 2.5)]);
}

#[test]
fn sets_under_one_step_are_no_curve_and_a_resumed_run_is_one() {
    let by_step = "step,data_source,acc\n0,aime,0.1\n0,gsm8k,0.9\n10,aime,0.2\n10,gsm8k,0.9\n";
    let refusal = read_text("t.csv", by_step).unwrap_err();
    let expected = "t.csv:3: step 0 has `acc` of data_source \"aime\" and of data_source \"gsm8k\", which make no \
                    one curve: keep the rows of one data_source";
    assert!(refusal.starts_with(expected), "{refusal}");
    let of_names = read_text("t.csv", "name,step,value\nloss,0,5\nacc,0,0.1\n").unwrap_err();
    assert!(of_names.starts_with("t.csv:2: `name` beside `value` may name runs or"), "{of_names}");
    for (text, column) in [
        ("step,set,acc\n0,a,0.1\n10,a,0.2\n0,b,0.8\n10,b,0.9\n", Some("set")),
        ("step,set,metric,value\n0,a,acc,0.1\n0,b,acc,0.9\n", Some("set")),
        (
            "{\"step\": 1, \"final\": false, \"acc\": 0.1}\n{\"step\": 1, \"final\": true, \"acc\": 0.2}\n",
            Some("final"),
        ),
        (
            "{\"step\": 1, \"set\": \"a\", \"data\": {\"acc\": 1}}\n{\"step\": 1, \"set\": \"b\", \"data\": {\"acc\": 2}}\n",
            Some("set"),
        ),
        ("lr,step,acc\n1e-6,1,0.1\n1e-6,2,0.2\n3e-6,1,0.3\n3e-6,2,0.4\n", Some("lr")),
        ("step,k,pass\n1,1,0.1\n1,8,0.3\n2,1,0.2\n3,1,0.2\n4,1,0.3\n4,8,0.4\n", Some("k")),
        ("epoch,step,acc\n0,1,0.1\n0,2,0.2\n1,1,0.3\n1,2,0.4\n", Some("epoch")),
        (
            "{\"step\": 1, \"k\": 1, \"pass\": 0.1}\n{\"step\": 1, \"k\": 8, \"pass\": 0.2}\n\
             {\"step\": 2, \"k\": 1, \"pass\": 0.3}\n{\"step\": 2, \"k\": 8, \"pass\": 0.4}\n",
            Some("k"),
        ),
        // Another machine, times, other metrics.
        ("lr,step,acc\n2,1,0.1\n2,2,0.2\n2,3,0.3\n1,2,0.3\n1,3,0.4\n1,4,0.5\n", None),
        ("step,loss,acc\n1,5,0\n2,4,1\n3,3,1\n2,4.5,0\n3,3.5,1\n4,2,1\n", None),
        ("step,host,acc\n0,a,0.1\n10,a,0.2\n20,a,0.3\n10,b,0.4\n20,b,0.5\n30,b,0.6\n", None),
        (
            "step,at,acc\n0,2026-11-28 10:00,0.1\n10,2026-11-28 11:00,0.2\n0,2026-11-29 10:00,0.3\n",
            None,
        ),
        ("step,part,acc,loss\n0,train,,2\n0,test,0.1,\n10,train,,1\n10,test,0.2,\n", None),
        ("step,host,acc\n0,a,0.1\n0,a,0.2\n", None),
    ] {
        let refusal = read_text("t.csv", text).err();
        let names = column.map(|column| format!(" and of {column} \""));
        let is_named = match (&refusal, &names) {
            (Some(refusal), Some(names)) => refusal.contains(names),
            (refusal, names) => refusal.is_none() && names.is_none(),
        };
        assert!(is_named, "{text}: {refusal:?}");
    }
}

#[test]
fn what_python_writes_for_numbers_that_are_not_finite_is_read_in_every_json() {
    let state = "{\n  \"epoch\": 1.0,\n  \"log_history\": [\n    {\"step\": 1, \"grad_norm\": NaN, \"reward\": 0.5},\n    \
                 {\"step\": 2, \"grad_norm\": -Infinity, \"reward\": 0.6}\n  ]\n}\n";
    let runs = read_text("trainer_state.json", state).unwrap();
    assert_eq!(runs[0].notes.format, "TRL's trainer_state.json");
    let norms = &runs[0].curves["grad_norm"];
    assert!(norms[0].1.is_nan() && norms[1] == (2.0, f64::NEG_INFINITY), "{norms:?}");
    let point = |step: u64, value: &str| {
        format!(
            "{{\"timestamp\": \"2026-11-28T21:57:57.5+00:00\", \"step\": {step}, \"value\": {value}}}"
        )
    };
    let points = [point(0, "Infinity"), point(1, "NaN"), point(2, "0.5")].join(", ");
    let text = format!("{{\"run\": \"x-s1\", \"metric\": \"loss\", \"values\": [{points}]}}");
    let runs = read_text("metric.json", &text).unwrap();
    let [first, second, third] = runs[0].curves["loss"][..] else { panic!("three points") };
    assert!(first.1 == f64::INFINITY && second.1.is_nan() && third.1 == 0.5);
    assert_eq!((runs[0].notes.format, runs[0].seed), ("trackio", Some(1)));
}

#[test]
fn a_last_line_that_is_cut_off_is_left_out_and_told() {
    let text = "{\"step\": 1, \"acc\": 0.5}\n{\"step\": 2, \"acc\": 0.6}\n";
    let read = |bytes: usize| read_text("t.jsonl", &text[..bytes]);
    for (bytes, points, is_cut) in
        [(text.len(), 2, false), (text.len() - 1, 2, false), (45, 1, true)]
    {
        let run = read(bytes).unwrap().remove(0);
        assert_eq!((run.curves["acc"].len(), run.notes.is_cut), (points, is_cut), "{bytes}");
    }
    assert!(read(20).unwrap_err().contains("the line is cut off: copy the file again"));
    let other = text.replace("\"step\": 2", "\"step\" 2");
    assert!(read_text("t.jsonl", other.trim_end()).is_err());
}

#[test]
fn a_point_gives_way_to_another_value_and_not_to_its_own() {
    let replaced = |text: &str| {
        read_text("t.jsonl", text).unwrap()[0].replaced.values().map(|it| it.points).sum::<usize>()
    };
    let row = |step: u64, rest: &str| format!("{{\"step\": {step}, \"epoch\": 0.5, {rest}}}\n");
    let log =
        [row(10, "\"loss\": 2"), row(10, "\"eval_reward\": 1"), row(10, "\"train_runtime\": 9")];
    assert_eq!(replaced(&log.concat()), 0);
    let steps = [(10, 1), (20, 2), (30, 3), (40, 4), (30, 5)];
    let resumed = steps.map(|(step, acc)| row(step, &format!("\"acc\": {acc}")));
    // Two of `acc`, and `epoch` of step 40.
    assert_eq!(replaced(&resumed.concat()), 3);
}

#[test]
fn a_restart_takes_all_metrics_back_and_forgets_what_gave_way() {
    let mut run = TrackedRun::new(Path::new("events"), "TensorBoard", "");
    for step in 0..=20 {
        run.put("loss", f64::from(step), 0.1, Some(f64::from(step)));
        if step % 10 == 0 {
            run.put("acc", f64::from(step), 0.5, Some(f64::from(step)));
        }
    }
    run.put("late", 20.0, 0.5, None);
    run.restart(12.0);
    (12..=18).for_each(|step| run.put("loss", f64::from(step), 0.2, None));
    assert_eq!(run.curves["acc"], [(0.0, 0.5), (10.0, 0.5)]);
    assert_eq!((run.curves["loss"].len(), run.seconds["acc"].len()), (19, 2));
    assert!(!run.curves.contains_key("late"));
    let replaced = ["acc", "loss"].map(|name| &run.replaced[name]);
    assert_eq!(replaced.map(|it| it.points), [1, 9]);
    assert_eq!(replaced.map(Replaced::several_and_all_steps), [(0, 2), (0, 19)]);
}

#[test]
fn a_chart_of_wandb_has_no_counters_and_no_groups() {
    let columns = |name: &str| format!("{name},{name}__MIN,{name}__MAX");
    let header = ["train/global_step", &columns("a-s1 - _step"), &columns("a-s1 - acc")].join(",");
    let text = format!("{header}\n0,0,0,2,0.1,0.1,0.1\n10,20,20,22,0.2,0.2,0.2\n");
    let runs = read_text("chart.csv", &text).unwrap();
    assert_eq!(runs[0].curves.keys().collect::<Vec<_>>(), ["acc"]);
    assert!(!runs[0].notes.is_averaged);
    let named = |name: &str| text.replace("a-s1 - acc", &format!("{name} - acc"));
    let averaged = |name: &str| named(name).replace("0.2,0.2\n", "0.1,0.3\n");
    for (name, text) in [("Group: a", named("Group: a")), ("exp: a_1", averaged("exp: a_1"))] {
        let refusal = read_text("chart.csv", &text).unwrap_err();
        let is_told = refusal.contains(&format!("`{name}` is a mean over runs"));
        assert!(is_told && refusal.contains("ungroup"), "{refusal}");
    }
    assert!(read_text("chart.csv", &named("exp: a_1")).is_ok());
    assert!(read_text("chart.csv", &averaged("a-s1")).unwrap()[0].notes.is_averaged);
}

#[test]
fn a_column_by_which_a_run_has_several_rows_is_refused_by_its_name() {
    let numbered = |header: &str, rows: &[&str]| {
        let rows = rows.iter().zip(1..).map(|(row, value)| format!("{row},0.{value}\n"));
        format!("{header},value\n{}", rows.collect::<String>())
    };
    for (header, rows, column) in [
        ("arm,problem_id", &["a,p0", "a,p1", "b,p0", "b,p1"][..], Some("problem_id")),
        ("arm,Data Source", &["a,x", "a,y", "b,x", "b,y"], Some("Data Source")),
        ("arm,seed,set", &["a,0,x", "a,0,y", "b,0,x", "b,0,y"], Some("set")),
        ("arm,seed,metric", &["a,0,acc", "a,1,loss", "b,0,acc", "b,1,loss"], Some("metric")),
        ("arm,checkpoint", &["a,100", "a,200", "b,100"], Some("checkpoint")),
        ("arm,seed,checkpoint", &["a,0,100", "a,1,200", "b,0,100", "b,1,100"], None),
        ("arm,seed,host,date,commit", &["a,0,h,d,c", "a,1,i,d,c", "b,0,h,e,c"], None),
        ("arm,run,host", &["a,1,h", "a,2,i", "b,1,h", "b,2,h"], None),
        ("arm,set", &["a,x", "a,x", "b,x", "b,x"], None),
        ("arm,problem", &["a,w", "a,x", "b,y", "b,z"], None),
    ] {
        let read = read_text("t.csv", &numbered(header, rows));
        match (&read, column) {
            (Err(refusal), Some(column)) => {
                assert!(refusal.contains(&format!("differ in `{column}`")), "{refusal}");
            }
            (read, column) => assert!(read.is_ok() && column.is_none(), "{header}: {read:?}"),
        }
    }
}

#[test]
fn exports_of_one_run_are_read_over_updates_whatever_their_format() {
    let point = |step: u64, value: f64| {
        format!(
            "{{\"timestamp\": \"2026-11-28T21:57:57+00:00\", \"step\": {step}, \"value\": {value}}}"
        )
    };
    let trackio = format!(
        "{{\"run\": \"a\", \"metric\": \"acc\", \"values\": [{}, {}]}}",
        point(4, 0.25),
        point(8, 0.5)
    );
    let own =
        "cell,arms,seed,step,updates,metric,value\n7f,x/a,1,1,4,acc,0.25\n7f,x/a,1,2,8,acc,0.5\n";
    let chart = "Step,a - acc,a - acc__MIN,a - acc__MAX\n4,0.25,0.25,0.25\n8,0.5,0.5,0.5\n";
    for (name, text) in [
        ("metrics.csv", own),
        (
            "evaluations.csv",
            "cell,arms,seed,ending,set,step,updates,acc\n7f,x/a,1,finished,dev,1,4,0.25\n\
             7f,x/a,1,finished,dev,2,8,0.5\n",
        ),
        ("chart.csv", chart),
        ("history.csv", "_step,acc\n4,0.25\n8,0.5\n"),
        ("mlflow.csv", "run_id,key,value,timestamp,step\na,acc,0.25,1,4\na,acc,0.5,2,8\n"),
        ("metric.json", trackio.as_str()),
    ] {
        let runs = read_text(name, text).unwrap();
        assert_eq!(runs[0].curves["acc"], [(4.0, 0.25), (8.0, 0.5)], "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let [events, csv] =
        ["events.out.tfevents.0.dapo", "metrics.csv"].map(|it| folder.path().join(it));
    let scalar = |step, value| event_file::Scalar { tag: "acc".to_string(), step, value };
    let bytes = event_file::events(&[scalar(4, 0.25), scalar(8, 0.5)]);
    files::write_atomic(&events, &bytes).unwrap();
    assert_eq!(read(&events, "", None).unwrap()[0].curves["acc"], [(4.0, 0.25), (8.0, 0.5)]);
    files::write_atomic(&csv, own.as_bytes()).unwrap();
    let of_steps = &read(&csv, "step", None).unwrap()[0];
    assert_eq!(of_steps.curves["acc"], [(1.0, 0.25), (2.0, 0.5)]);
    assert_eq!(of_steps.notes.format, "CSV");
    let of_updates = &read(&csv, "updates", None).unwrap()[0];
    assert!(of_updates.notes.format.contains("updates"));
}

#[test]
fn what_is_no_table_of_curves_is_refused_with_the_way_to_one() {
    for (name, text, words) in [
        (
            "metrics.jsonl",
            "{\"counters\":{\"updates\":4},\"metrics\":{},\"step\":1}\n",
            "dapo export RUN",
        ),
        ("run-a.wandb", ":W&B\0\0", "wandb sync"),
        ("st.db", "SQLite format 3\0", "trackio get metric"),
        ("folder/manifest.json", "{}", "dapo export STUDY --csv"),
        ("folder/run-a.wandb", ":W&B\0\0", "export a chart as CSV"),
        ("folder/a.txt", "", "no value of any metric, nor event files"),
        (
            "grouped.csv",
            "Step,exp: a - x,exp: a - x__MIN,exp: a - x__MAX,exp: b - x\n1,0.5,0.4,0.6,0.5\n",
            "`exp: a` is a mean over runs",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
        let asked = folder.path().join(name.split('/').next().unwrap_or_default());
        let refusal = read(&asked, "", None).unwrap_err().to_string();
        assert!(refusal.contains(words), "{name}: {refusal}");
    }
}

#[test]
fn a_seed_is_looked_for_by_its_name_before_its_letter() {
    for (name, expected) in [
        ("grpo-s1-seed6", Some(6)),
        ("grpo (seed: 3)", Some(3)),
        ("grpo seed 3", Some(3)),
        ("seed=4/s2.csv", Some(4)),
        ("grpo_s2", Some(2)),
        ("s1/grpo-s3.csv", Some(3)),
        ("seed1/grpo/seed2/a.csv", Some(2)),
        ("grpo-7b", None),
    ] {
        assert_eq!(seed(name), expected, "{name}");
    }
    assert_eq!(without_seed("grpo-s1-seed6"), without_seed("grpo-s1-seed7"));
    assert_ne!(without_seed("dapo-seed1"), without_seed("dapo-noclip-seed1"));
}

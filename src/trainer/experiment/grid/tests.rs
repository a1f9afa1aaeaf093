use super::*;
use crate::experiment::extends;
use crate::experiment::grid::file::BaseSource;
use std::fmt::Write;
use toml::Table;

const SHIPPED: [&str; 6] =
    ["ladder", "add-one", "leave-one-out", "fidelity", "held-out", "learning-rate"];

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn shipped(name: &str) -> BaseSource {
    file::load(&root().join(file::find(name).unwrap())).unwrap()
}

fn hash(experiment: &str) -> String {
    extends::load(&root().join(experiment)).unwrap().arm_sha256()
}

/// What a grid over `experiments/base.toml` resolves to.
fn grid(text: &str) -> Result<BaseSource, String> {
    let folder = tempfile::tempdir().unwrap();
    let base = root().join("experiments/base.toml");
    let head = if text.contains("base =") {
        String::new()
    } else {
        format!("name = \"g\"\nquestion = \"?\"\nseeds = [1]\nbase = {base:?}\n")
    };
    let path = folder.path().join("g.toml");
    files::write_atomic(&path, (head + text).as_bytes()).unwrap();
    let short = |text: String| text.replace(&format!("{}/", folder.path().display()), "");
    file::load(&path).map_err(|error| short(error.to_string()))
}

#[test]
fn each_shipped_arm_differs_from_the_one_before_in_exactly_the_declared_keys() {
    for name in SHIPPED {
        let source = shipped(name);
        let written = extends::read_table(&root().join(file::find(name).unwrap())).unwrap();
        let written = written["arms"].as_array().unwrap();
        for (arm, written) in source.grid.arms.iter().zip(written) {
            let set = written.get("set").and_then(toml::Value::as_table);
            let declared = file::declared(set.unwrap_or(&Table::new()));
            let differences = differences(source.before(arm), &arm.experiment);
            for difference in &differences {
                let declared = declared.iter().any(|unit| is_within(&difference.key, unit));
                assert!(declared, "{name}/{}: {}", arm.name, difference.key);
            }
            for unit in &declared {
                let acts = differences.iter().any(|difference| is_within(&difference.key, unit));
                assert!(acts, "{name}/{}: {unit} changes nothing", arm.name);
            }
            let keys: Vec<&String> = differences
                .iter()
                .filter(|difference| difference.b.is_some())
                .map(|difference| &difference.key)
                .collect();
            assert_eq!(arm.set.keys().collect::<Vec<_>>(), keys);
        }
    }
}

#[test]
fn grpo_and_dapo_of_every_shipped_grid_are_the_shipped_experiments() {
    let (grpo, dapo) = (hash("experiments/base.toml"), hash("experiments/dapo.toml"));
    for (grid, arm, expected) in [
        ("ladder", "grpo", &grpo),
        ("ladder", "dynamic-sampling", &dapo),
        ("add-one", "grpo", &grpo),
        ("add-one", "dapo", &dapo),
        ("leave-one-out", "dapo", &dapo),
        ("fidelity", "dapo", &dapo),
    ] {
        assert_eq!(&shipped(grid).grid.arm(arm).unwrap().arm_sha256, expected, "{grid}/{arm}");
    }
}

#[test]
fn the_held_out_arms_are_grpo_and_dapo_on_other_problems() {
    let keys = |arm: &str, shipped_as: &str| -> Vec<String> {
        let shipped_as = extends::load(&root().join(shipped_as)).unwrap();
        let arm = shipped("held-out").grid.arm(arm).unwrap().experiment.clone();
        let in_arm = differences(&shipped_as, &arm).into_iter().filter(|change| change.in_arm);
        in_arm.map(|change| change.key).collect()
    };
    assert_eq!(keys("grpo", "experiments/base.toml"), ["inputs.data.variant"]);
    assert_eq!(keys("dapo", "experiments/dapo.toml"), ["inputs.data.variant"]);
}

#[test]
fn the_arms_of_add_one_are_the_files_of_experiments_arms() {
    let grid = shipped("add-one").grid;
    let files = files::list(&root().join("experiments/arms")).unwrap();
    assert_eq!(files.len() + 2, grid.arms.len());
    for file in files {
        let arm = grid.arm(file.trim_end_matches(".toml")).expect(&file);
        assert_eq!(arm.arm_sha256, hash(&format!("experiments/arms/{file}")), "{file}");
    }
}

#[test]
fn the_last_step_of_the_ladder_is_dynamic_sampling_left_out() {
    let (ladder, out) = (shipped("ladder").grid, shipped("leave-one-out").grid);
    let [before, without] =
        [ladder.arm("token-level-loss"), out.arm("dynamic-sampling")].map(Option::unwrap);
    assert_eq!(before.arm_sha256, without.arm_sha256);
}

#[test]
fn the_shipped_grids_have_the_arms_that_studies_name() {
    let mut text = String::new();
    for name in SHIPPED {
        let grid = shipped(name).grid;
        let arms: Vec<&str> = grid.arms.iter().map(|arm| arm.name.as_str()).collect();
        writeln!(text, "{}: {}", grid.name, arms.join(" ")).unwrap();
        assert_eq!(grid.name, name);
    }
    assert_eq!(
        text,
        "ladder: grpo overlong-filtering clip-higher soft-overlong-punishment token-level-loss \
         dynamic-sampling\n\
         add-one: grpo overlong-filtering soft-overlong-punishment clip-higher token-level-loss \
         dynamic-sampling dapo\n\
         leave-one-out: dapo clip-higher soft-overlong-punishment token-level-loss dynamic-sampling\n\
         fidelity: dapo token-mean-by-group length-bands advantage-not-divided filter-kept \
         warm-up-from-zero surplus-carried ten-rounds kl-penalty\n\
         held-out: grpo dapo\n\
         learning-rate: grpo-half dapo-half grpo-twice dapo-twice\n"
    );
}

#[test]
fn a_resolved_grid_survives_the_way_through_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let grid = shipped("ladder").grid;
    let path = grid.write(folder.path()).unwrap();
    assert_eq!(Grid::read(&path).unwrap(), grid);
    let altered = files::read_text(&path).unwrap().replacen("0.28", "0.29", 1);
    files::write_atomic(&path, altered.as_bytes()).unwrap();
    let refused = Grid::read(&path).unwrap_err().to_string();
    assert!(refused.contains("`arm_sha256` is not the hash of `experiment`"), "{refused}");
}

#[test]
fn a_program_in_place_of_a_rule_and_a_rule_in_place_of_a_program_are_read_again() {
    let arms = "[[arms]]\nname = \"rule\"\n[arms.set.dapo.clip]\nhigh = 0.3\n\
                [[arms]]\nname = \"coin\"\nafter = \"rule\"\n[arms.set.reward]\n\
                verifier = { kind = \"python\", file = \"coin.py\", function = \"coin\" }\n\
                [[arms]]\nname = \"number\"\nafter = \"coin\"\n[arms.set.reward]\nverifier = \"last-number\"\n";
    let grid = grid(arms).unwrap().grid;
    let folder = tempfile::tempdir().unwrap();
    let path = grid.write(folder.path()).unwrap();
    assert_eq!(Grid::read(&path).unwrap(), grid);
}

#[test]
fn a_switch_that_does_nothing_is_refused() {
    let same = "[[arms]]\nname = \"a\"\n[arms.set.dapo.clip]\nlow = 0.2\nhigh = 0.3\n";
    let notes = grid(same).unwrap().notes;
    assert_eq!(
        notes
            .iter()
            .map(|note| note.rsplit_once('/').map_or(&note[..], |(_, note)| note))
            .collect::<Vec<_>>(),
        ["g.toml, arm \"a\": dapo.clip.low: changes nothing: it has this value already"]
    );
    let table = "[[arms]]\nname = \"a\"\n[arms.set.dapo.kl]\nkind = \"none\"\n";
    assert_eq!(
        grid(table).unwrap_err(),
        "g.toml, arm \"a\": dapo.kl: changes nothing: it has this value already"
    );
    let empty = "[[arms]]\nname = \"a\"\n[[arms]]\nname = \"b\"\nafter = \"a\"\n";
    assert_eq!(
        grid(empty).unwrap_err(),
        "g.toml, arm \"b\": set: is missing or empty: the arm changes nothing"
    );
}

#[test]
fn two_arms_of_one_configuration_are_refused() {
    let twice = "[[arms]]\nname = \"a\"\n[arms.set.dapo.clip]\nhigh = 0.3\n\
                 [[arms]]\nname = \"b\"\n[arms.set.dapo.clip]\nhigh = 0.3\n";
    assert_eq!(
        grid(twice).unwrap_err(),
        "g.toml, arm \"b\": is the same configuration as arm \"a\""
    );
}

#[test]
fn what_is_no_part_of_an_arm_cannot_be_an_arms_switch() {
    let refused = grid("[[arms]]\nname = \"a\"\n[arms.set.execution]\nseed = 7\n").unwrap_err();
    assert!(refused.contains("execution.seed: is no part of an arm's identity"), "{refused}");
}

#[test]
fn all_problems_of_a_grid_are_told_at_once_with_file_arm_and_key() {
    let text = "colour = 1\n[[arms]]\nname = \"a b\"\nlable = \"x\"\n[arms.set.dapo.clip]\nhgh = 0.3\n\
                [[arms]]\nname = \"b\"\nafter = \"nobody\"\n[arms.set.dapo.clip]\nhigh = -1.0\n\
                [[arms]]\nname = \"c\"\npaper = { table = 1 }\n[arms.set.dapo.kl]\nkind = \"penalti\"\n";
    let refused = grid(text).unwrap_err();
    for expected in [
        "g.toml: unknown field `colour`",
        "g.toml, arm \"a b\": name: must be 1 to 64 letters",
        "g.toml, arm \"a b\": unknown field `lable`",
        "did you mean `label`?",
        "g.toml, arm \"a b\": dapo.clip.hgh: unknown field `hgh`",
        "g.toml, arm \"b\": after: no arm before it is named \"nobody\"",
        "g.toml, arm \"c\": paper: table: expected a text, got 1",
        "g.toml, arm \"c\": paper: row: is missing",
        "g.toml, arm \"c\": dapo.kl.kind: unknown variant `penalti`",
    ] {
        assert!(refused.contains(expected), "{expected} is not in\n{refused}");
    }
}

#[test]
fn axes_are_combined_and_a_key_of_a_variant_is_set_alone() {
    let dapo = root().join("experiments/dapo.toml");
    let text = format!(
        "name = \"g\"\nquestion = \"?\"\nseeds = [1, 2]\nbase = {dapo:?}\n\
         [[axes]]\nkey = \"dapo.clip.high\"\nvalues = [0.28, 0.4]\n\
         [[axes]]\nkey = \"dapo.dynamic_sampling.surplus\"\nvalues = [\"discard\", \"carry\"]\n"
    );
    let grid = grid(&text).unwrap().grid;
    let names: Vec<&str> = grid.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "high-0.28_surplus-discard",
            "high-0.28_surplus-carry",
            "high-0.4_surplus-discard",
            "high-0.4_surplus-carry"
        ]
    );
    assert_eq!(grid.arms[0].set, BTreeMap::new());
    assert_eq!(grid.arms[0].arm_sha256, hash("experiments/dapo.toml"));
    assert_eq!(grid.arms[3].set.len(), 2);
    assert_eq!(grid.arms[3].label, "high = 0.4, surplus = carry");
    assert_eq!(grid.arms[3].compared_with.as_deref(), Some("high-0.28_surplus-discard"));
}

#[test]
fn names_that_would_be_too_long_are_of_the_values_alone_or_numbers() {
    let arms = |text: &str| grid(text).unwrap().grid.arms;
    let names = |text: &str| arms(text).into_iter().map(|arm| arm.name).collect::<Vec<_>>();
    let techniques = "[[axes]]\nkey = \"dapo.clip.high\"\nvalues = [0.2, 0.28]\n\
        [[axes]]\nkey = \"dapo.aggregation\"\nvalues = [\"response-mean\", \"token-mean\"]\n\
        [[axes]]\nkey = \"dapo.overlong.punishment\"\nvalues = [{ kind = \"none\" }, \
        { kind = \"soft\", cache_tokens = 12, factor = 1.0, beyond = \"clamped\" }]\n\
        [[axes]]\nkey = \"dapo.dynamic_sampling\"\nvalues = [{ kind = \"none\" }, \
        { kind = \"resample\", max_rounds = 4, at_cap = \"train\", surplus = \"carry\" }]\n";
    let four = arms(techniques);
    assert_eq!(four.len(), 16);
    assert_eq!(four[0].name, "0.2_response-mean_none_none");
    assert_eq!(four[15].name, "0.28_token-mean_soft_resample");
    let label =
        "high = 0.28, aggregation = token-mean, punishment = soft, dynamic_sampling = resample";
    assert_eq!(four[15].label, label);
    let programs = |folder: &str| {
        let of =
            |end| format!("{{ kind = \"python\", file = \"{folder}{end}.py\", function = \"f\" }}");
        format!("[[axes]]\nkey = \"reward.verifier\"\nvalues = [{}, {}]\n", of("1"), of("2"))
    };
    let of_values = [1, 2].map(|end| format!("python-file-{}{end}.py", "a".repeat(42)));
    assert_eq!(names(&programs(&"a".repeat(42))), of_values);
    assert_eq!(names(&programs(&"a".repeat(99))), ["arm-01", "arm-02"]);
}

#[test]
fn axes_whose_keys_overlap_are_refused() {
    let high = ("dapo.clip.high", "0.2, 0.28");
    let clip = ("dapo.clip", "{ low = 0.2, high = 0.2 }, { low = 0.1, high = 0.3 }");
    let refused = |axes: [(&str, &str); 2]| {
        let axes =
            axes.map(|(key, values)| format!("[[axes]]\nkey = {key:?}\nvalues = [{values}]\n"));
        grid(&axes.concat()).unwrap_err()
    };
    for (axes, what) in [
        ([high, clip], "dapo.clip overwrites dapo.clip.high"),
        ([clip, high], "dapo.clip.high overwrites a part of dapo.clip"),
        ([high, high], "dapo.clip.high overwrites dapo.clip.high"),
    ] {
        let text = format!("g.toml, axis 2: key: {what} of axis 1; each key can be in one axis");
        assert_eq!(refused(axes), text);
    }
}

#[test]
fn an_arm_that_states_no_reference_is_compared_with_the_base_where_the_grid_has_it() {
    let high =
        |name: &str, high| format!("[[arms]]\nname = {name:?}\nset.dapo.clip.high = {high}\n");
    let references = |text: &str| -> Vec<Option<String>> {
        grid(text).unwrap().grid.arms.into_iter().map(|arm| arm.compared_with).collect()
    };
    let two = high("a", 0.3) + &high("b", 0.4);
    let base = Some("base".to_string());
    assert_eq!(
        references(&format!("[[arms]]\nname = \"base\"\n{two}")),
        [None, base.clone(), base]
    );
    assert_eq!(references(&two), [None, None]);
    let notes = grid(&two).unwrap().notes;
    assert!(notes[0].contains("no arm is compared with another: state `compared_with`"));
}

#[test]
fn values_of_an_axis_that_have_one_kind_are_named_by_what_they_differ_in() {
    let resample = |rounds: u64, at_cap: &str| {
        format!(
            "{{ kind = \"resample\", max_rounds = {rounds}, at_cap = {at_cap:?}, surplus = \"discard\" }}"
        )
    };
    let named = |values: &[String]| -> Vec<String> {
        let values = values.join(", ");
        let axis = format!("[[axes]]\nkey = \"dapo.dynamic_sampling\"\nvalues = [{values}]\n");
        grid(&axis).unwrap().grid.arms.into_iter().map(|arm| arm.name).collect()
    };
    let none = "{ kind = \"none\" }".to_string();
    assert_eq!(
        named(&[none.clone(), resample(4, "train")]),
        ["dynamic_sampling-none", "dynamic_sampling-resample"]
    );
    assert_eq!(
        named(&[none, resample(4, "train"), resample(8, "train")]),
        [
            "dynamic_sampling-none",
            "dynamic_sampling-resample-max_rounds-4",
            "dynamic_sampling-resample-max_rounds-8"
        ]
    );
    let twice = grid("[[axes]]\nkey = \"optimizer.learning_rate\"\nvalues = [1e-4, 0.0001]\n");
    assert_eq!(twice.unwrap_err(), "g.toml, axis 1: values: 0.0001 occurs twice");
}

#[test]
fn an_axis_without_two_values_or_with_too_many_combinations_is_refused() {
    let one = grid("[[axes]]\nkey = \"dapo.clip.high\"\nvalues = [0.3]\n").unwrap_err();
    assert_eq!(one, "g.toml, axis 1: values: expected a list of at least two values");
    let values: Vec<String> = (1..=20).map(|i| format!("0.{i:02}")).collect();
    let values = values.join(", ");
    let many = format!(
        "[[axes]]\nkey = \"dapo.clip.high\"\nvalues = [{values}]\n\
         [[axes]]\nkey = \"dapo.clip.low\"\nvalues = [{values}]\n"
    );
    assert_eq!(grid(&many).unwrap_err(), "g.toml: axes: more than 256 combinations");
    let both = "[[axes]]\nkey = \"dapo.clip.high\"\nvalues = [0.3, 0.4]\n[[arms]]\nname = \"a\"\n";
    assert!(grid(both).unwrap_err().contains("not both"));
}

//! A study to begin with: base experiment, grid and README, made from the experiments in the program.

use crate::base::visible;
use crate::experiment::{Experiment, ExperimentError, diagnose, extends, sets, shipped};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Naive GRPO on the embedded benchmark, with every key.
const BASE: &str = shipped::BASE.1;

const GRPO: &str = "grpo";

/// Comments of `reward.verifier`: of the rule that the base has, and of any other.
const USUAL_VERIFIER: &str = "# math_dapo.py's default mode";
const OTHER_VERIFIER: &str = "# docs/rewards.md: rules by their names, programs as tables";

/// Each arm beside GRPO and its text: the techniques, then the methods.
fn arms() -> impl Iterator<Item = (String, &'static str)> {
    let arms = shipped::ARMS.iter().map(|(path, text)| (shipped::name(path), *text));
    arms.chain(shipped::methods().map(|(path, text)| (shipped::name(&path), text)))
}

/// The paper's DAPO on Qwen2.5-32B, as `experiments/qwen2.5/paper-32b.toml` states it.
pub fn paper() -> Result<Experiment, ExperimentError> {
    let name = "experiments/qwen2.5/paper-32b.toml";
    let texts = [(name, include_str!("../experiments/qwen2.5/paper-32b.toml")), shipped::BASE];
    extends::resolve(texts.map(|(path, text)| (PathBuf::from(path), table(text))).into())
}

fn table(text: &str) -> Table {
    let mut table: Table = text.parse().expect("an experiment of the repository is TOML");
    table.remove("extends");
    table
}

#[derive(Debug, Clone)]
pub struct Starter {
    pub name: String,
    pub question: String,
    /// In order; the first one is what the others are compared with.
    pub arms: Vec<String>,
    pub seeds: Vec<u64>,
    /// Folder of the policy, as the base experiment names it.
    pub model: PathBuf,
    /// `None`: the embedded benchmark.
    pub files: Option<StarterFiles>,
}

/// Problems from files, and what was found out about them.
#[derive(Debug, Clone)]
pub struct StarterFiles {
    pub train: PathBuf,
    pub dev: PathBuf,
    pub test: Vec<PathBuf>,
    /// Values that take the place of the embedded benchmark's: section, key, value.
    pub settings: Vec<(&'static str, &'static str, Value)>,
    /// What a reader of the study should know of the choices, one sentence each.
    pub notes: Vec<String>,
}

pub fn arm_names() -> Vec<String> {
    std::iter::once(GRPO.to_string()).chain(arms().map(|(name, _)| name)).collect()
}

/// Each arm's experiment on the embedded benchmark, GRPO first.
pub fn experiments() -> Vec<(String, Table)> {
    let base = table(BASE);
    let merged = |(name, text): (String, &str)| {
        let mut merged = base.clone();
        extends::merge(&mut merged, &table(text));
        (name, merged)
    };
    std::iter::once((GRPO.to_string(), base.clone())).chain(arms().map(merged)).collect()
}

impl Starter {
    pub fn texts(&self) -> Result<BTreeMap<&'static str, String>, ExperimentError> {
        let base = self.base();
        Ok([("grid.toml", self.grid(&base)?), ("README.md", self.readme()), ("base.toml", base)]
            .into())
    }

    fn base(&self) -> String {
        let mut text = BASE.split_once("name = ").map_or(BASE, |(_, rest)| rest).to_string();
        let notes = self.notes().map(|note| format!("# {}\n", visible::visible(note)));
        let notes: String = notes.collect();
        text = format!(
            "# GRPO: every key with its unit and source. An arm of grid.toml says what differs.\n\
             # Paths are relative to this file.\n{notes}name = {text}"
        );
        let mut put = |section: &str, key: &str, value: &Value| {
            text = with_value(&text, section, key, value);
        };
        put("", "name", &Value::from(self.name.as_str()));
        put("inputs", "model", &path_value(&self.model));
        if let Some(files) = &self.files {
            for (section, key, value) in &files.settings {
                put(section, key, value);
            }
            put("inputs.data", "kind", &Value::from("files"));
            let states_verifier = |(section, key, _): &(&str, &str, Value)| {
                [*section, *key] == ["reward", "verifier"]
            };
            if files.settings.iter().any(states_verifier) {
                text = text.replace(USUAL_VERIFIER, OTHER_VERIFIER);
            }
            text = text.replace(
                "# or \"files\" with train, dev, test",
                "# \"mini-aime\": the embedded benchmark",
            );
            let tests: Vec<Value> = files.test.iter().map(|path| path_value(path)).collect();
            let (train, dev) = (path_value(&files.train), path_value(&files.dev));
            let lines = format!("train = {train}\ndev = {dev}\ntest = {}\n", Value::Array(tests));
            text = text.replace(
                "variant = \"standard\"                     # \"more-products\": six operations of ten multiply\n",
                &lines,
            );
        }
        text
    }

    /// The arms as patches on the base, without what the base says already.
    fn grid(&self, base: &str) -> Result<String, ExperimentError> {
        if let Some(twice) =
            (1..self.arms.len()).find(|at| self.arms[..*at].contains(&self.arms[*at]))
        {
            return Err(format!("the arm {} is named twice; name it once", self.arms[twice]).into());
        }
        let problems = self.unknown_arms();
        if !problems.is_empty() {
            return Err(ExperimentError::Invalid { problems });
        }
        let base: Table = base.parse().map_err(|error| format!("base.toml: {error}"))?;
        let mut text = format!(
            "# Arms are patches on base.toml. `dapo ablate FOLDER --dry-run` prints what each changes.\n\
             name = {}\nquestion = {}\nbase = \"base.toml\"\nseeds = {:?}\n",
            Value::from(self.name.as_str()),
            Value::from(self.question.as_str()),
            self.seeds
        );
        if let Some([first, _, ..]) = self.files.as_ref().map(|files| &files.test[..]) {
            let _ = writeln!(text, "primary_set = {}", Value::from(sets::set_name(first)));
        }
        for (index, name) in self.arms.iter().enumerate() {
            let _ = write!(text, "\n[[arms]]\nname = {}\n", Value::from(name.as_str()));
            if index > 0 {
                if name == GRPO {
                    let first = "grpo must be the first arm: it is base.toml itself, which the others change; name it \
                                 first and read the differences with the other sign";
                    return Err(first.to_string().into());
                }
                let _ = writeln!(text, "compared_with = {}", Value::from(self.arms[0].as_str()));
            }
            let patch = Self::patch(name, &base);
            if !patch.is_empty() {
                let set = Table::from_iter([("set".to_string(), Value::Table(patch))]);
                let set = Table::from_iter([("arms".to_string(), Value::Table(set))]);
                text += &toml::to_string(&set).map_err(|error| error.to_string())?;
            }
        }
        Ok(text)
    }

    fn unknown_arms(&self) -> Vec<String> {
        let known = arm_names();
        let unknown = self.arms.iter().filter(|name| !known.contains(name));
        let problem = |name: &String| {
            let reason = diagnose::known(name, "there are", &known);
            format!("there is no arm {name:?}; {reason}")
        };
        unknown.map(problem).collect()
    }

    fn patch(name: &str, base: &Table) -> Table {
        let Some((_, text)) = arms().find(|(arm, _)| arm == name) else { return Table::new() };
        let mut patch = table(text);
        patch.remove("name");
        let limit = base.get("rollout").and_then(|rollout| rollout.get("max_response_tokens"));
        let overlong = patch.get_mut("dapo").and_then(|dapo| dapo.get_mut("overlong"));
        if let Some(punishment) = overlong.and_then(|overlong| overlong.get_mut("punishment"))
            && let Some(punishment) = punishment.as_table_mut()
            && let Some(limit) = limit.and_then(Value::as_integer)
        {
            // The paper's fifth of L_max.
            punishment.insert("cache_tokens".to_string(), Value::from(limit / 5));
        }
        pruned(patch, base)
    }

    fn notes(&self) -> impl Iterator<Item = &String> {
        self.files.iter().flat_map(|files| &files.notes)
    }

    fn readme(&self) -> String {
        let files = match &self.files {
            None => "the embedded benchmark",
            Some(_) => "your problems",
        };
        let notes: String = self.notes().map(|note| format!("{note}.\n\n")).collect();
        format!(
            "# {}\n\n{}\n\n`base.toml` is GRPO on {files}: edit it first (model, lengths, batch sizes, rollout \
             steps). `grid.toml` has the arms and the seeds.\n\n{notes}\
             ```sh\ndapo ablate . --dry-run     # cells, what they cost, what each arm changes\n\
             dapo ablate .               # runs, resumes after a stop, ends with the report\n\
             dapo report .\n```\n",
            self.name, self.question
        )
    }
}

fn path_value(path: &Path) -> Value {
    Value::from(path.display().to_string())
}

/// `text` with another value of a key that stands on one line of a section, whose comment stays, or that it lacks.
fn with_value(text: &str, section: &str, key: &str, value: &Value) -> String {
    let (mut inside, mut has_key) = (String::new(), false);
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            inside = name.to_string();
        }
        let is_key =
            inside == section && line.strip_prefix(key).is_some_and(|rest| rest.starts_with(" ="));
        has_key |= is_key;
        match line.split_once(" #").filter(|_| is_key) {
            Some((_, comment)) => {
                let _ = writeln!(lines, "{:<40} #{comment}", format!("{key} = {value}"));
            }
            None if is_key => {
                let _ = writeln!(lines, "{key} = {value}");
            }
            None => {
                lines += line;
                lines.push('\n');
            }
        }
    }
    if has_key {
        return lines;
    }
    let header = format!("\n[{section}]\n");
    let with = format!("\n{lines}").replacen(&header, &format!("{header}{key} = {value}\n"), 1);
    with[1..].to_string()
}

/// Without what the base states with the same value. A table with a `kind` is replaced whole.
fn pruned(patch: Table, base: &Table) -> Table {
    let left = patch.into_iter().filter_map(|(key, value)| match (value, base.get(&key)) {
        (Value::Table(inner), Some(Value::Table(below))) if !inner.contains_key("kind") => {
            let inner = pruned(inner, below);
            (!inner.is_empty()).then_some((key, Value::Table(inner)))
        }
        (value, below) => (below != Some(&value)).then_some((key, value)),
    });
    left.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files;
    use crate::experiment::grid::file;

    fn starter(arms: &[&str]) -> Starter {
        Starter {
            name: "mine".to_string(),
            question: "Does it \"help\"?".to_string(),
            arms: arms.iter().map(ToString::to_string).collect(),
            seeds: vec![1, 2],
            model: PathBuf::from("model"),
            files: None,
        }
    }

    fn loaded(starter: &Starter, folder: &Path) -> file::BaseSource {
        for (name, text) in starter.texts().unwrap() {
            files::write_atomic(&folder.join(name), text.as_bytes()).unwrap();
        }
        file::load(&folder.join("grid.toml")).unwrap()
    }

    #[test]
    fn every_arm_is_a_grid_that_loads_and_differs_from_grpo_as_its_file_says() {
        let folder = tempfile::tempdir().unwrap();
        let names = arm_names();
        let starter = starter(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let source = loaded(&starter, folder.path());
        assert_eq!(source.grid.arms.len(), arm_names().len());
        assert_eq!(source.base.inputs.model, folder.path().join("model"));
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let shipped = extends::load(&root.join("experiments/dapo.toml")).unwrap();
        let dapo = source.grid.arm("dapo").unwrap();
        assert_eq!(dapo.experiment.arm_sha256(), shipped.arm_sha256());
        assert_eq!(dapo.compared_with.as_deref(), Some("grpo"));
    }

    #[test]
    fn problems_from_files_have_their_sets_and_their_limits() {
        let folder = tempfile::tempdir().unwrap();
        let sets = toml::from_str::<Table>("dev = 4\nhard = 8\n").unwrap();
        let settings = vec![
            ("rollout", "max_response_tokens", Value::from(500)),
            ("evaluation", "samples", Value::Table(sets)),
            ("evaluation", "during_training", Value::from(vec!["dev"])),
        ];
        let files = StarterFiles {
            train: "train.jsonl".into(),
            dev: "dev.jsonl".into(),
            test: vec!["hard.jsonl".into()],
            settings,
            notes: Vec::new(),
        };
        let starter = Starter { files: Some(files), ..starter(&["grpo", "dapo"]) };
        let source = loaded(&starter, folder.path());
        assert_eq!(source.grid.primary_set.as_deref(), Some("hard"));
        let crate::algorithm::Punishment::Soft { cache_tokens, .. } =
            source.grid.arms[1].experiment.dapo.overlong.punishment
        else {
            panic!("DAPO has no soft punishment");
        };
        assert_eq!(cache_tokens, 100);
    }

    #[test]
    fn a_key_that_the_section_lacks_stands_below_its_header() {
        let text = "# of [prompt]\n[prompt]\ntemplate = \"chat\" # of the question\n\n[rollout]\nsystem = 1\n";
        let value = Value::from("two\nlines");
        let with = with_value(text, "prompt", "system", &value);
        let table: Table = with.parse().unwrap();
        assert_eq!(table["prompt"]["system"], value);
        assert_eq!(table["rollout"]["system"], Value::from(1));
        let once = with_value(text, "prompt", "system", &Value::from("a"));
        let twice = with_value(&once, "prompt", "system", &Value::from("b"));
        assert_eq!(twice, once.replace("\"a\"", "\"b\""));
    }

    #[test]
    fn an_unknown_arm_is_refused_with_the_names_of_all() {
        let refusal = |arm| starter(&["grpo", arm]).texts().unwrap_err().to_string();
        let all = starter(&["grpo", "dapoo", "GSPO"]).texts().unwrap_err().to_string();
        let [dapo, gspo] = [("dapoo", "dapo"), ("GSPO", "gspo")]
            .map(|(wrong, arm)| format!("there is no arm {wrong:?}; did you mean {arm}?"));
        assert_eq!(all, format!("{dapo}\n{gspo}"));
        assert_eq!(refusal("grpo"), "the arm grpo is named twice; name it once");
        assert_eq!(refusal("dpao"), "there is no arm \"dpao\"; did you mean dapo?");
        let unlike = refusal("something-else");
        assert!(unlike.contains("there are grpo, dapo") && unlike.contains("dr-grpo"), "{unlike}");
    }
}

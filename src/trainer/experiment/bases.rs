//! Base policies that are in no repository: `experiments/bases.toml` has the recipe of each.

use crate::base::program;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const TABLE: &str = include_str!("../experiments/bases.toml");

/// How the base policies of one name are made: each from a seed of its own, or one for all seeds.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaseRecipe {
    /// From the root of the repository.
    pub recipe: String,
    pub minutes: u64,
    /// The justfile's recipe that fetches the model to tune; without `tunes` it tunes it too, the same for all seeds.
    pub just: Option<String>,
    /// A Python script, and the folder into which it writes the recipe's texts, from the root of the repository.
    pub texts: Option<(String, String)>,
    /// The model that the recipe tunes; without it the recipe trains a policy from nothing.
    pub tunes: Option<String>,
}

impl BaseRecipe {
    /// The commands that make the base policy `model` of a seed; `up` leads to the root of the repository.
    pub fn commands(&self, up: &str, model: &Path, seed: u64) -> Vec<String> {
        let here = if up.is_empty() { "./" } else { up };
        let fetched = self.just.iter().map(|name| format!("{here}justw {name}"));
        if self.is_for_all_seeds() {
            return fetched.collect();
        }
        let texts = |(script, into): &(String, String)| format!("python3 {up}{script} {up}{into}");
        let model = program::path_word(model);
        let recipe = format!("{up}{} --seed {seed} --out {model}", self.recipe);
        let made = match &self.tunes {
            Some(tuned) => format!("dapo model tune {up}{tuned} --recipe {recipe}"),
            None => format!("dapo model pretrain {recipe}"),
        };
        fetched.chain(self.texts.iter().map(texts)).chain([made]).collect()
    }

    fn is_for_all_seeds(&self) -> bool {
        self.just.is_some() && self.tunes.is_none()
    }
}

/// By the folder's name, without its seed where each has its own.
pub fn all() -> BTreeMap<String, BaseRecipe> {
    toml::from_str(TABLE).expect("a test reads experiments/bases.toml")
}

/// Of a folder whose name ends with the seed, as `runs/bases/signed-sums-101`, or that is for all seeds.
pub fn of_seed(model: &Path, seed: u64) -> Option<BaseRecipe> {
    let name = model.file_name()?.to_str()?;
    let of_all_seeds = all().remove(name).filter(BaseRecipe::is_for_all_seeds);
    of_all_seeds.or_else(|| all().remove(name.strip_suffix(&format!("-{seed}"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_policy_is_known_by_its_name_and_seed() {
        let of = |path: &str, seed| of_seed(Path::new(path), seed).map(|base| base.recipe);
        let sums = Some("experiments/sums/recipe.toml".to_string());
        assert_eq!(of("runs/bases/signed-sums-106", 106), sums);
        assert_eq!(of("runs/bases/signed-sums-106", 6), None);
        assert_eq!(of("golden/mini-aime/base", 1), None);
        let tuned = Path::new("models/SmolLM2-135M-word-problems");
        let command = |up| of_seed(tuned, 3).map(|base| base.commands(up, tuned, 3));
        assert_eq!(command(""), Some(vec!["./justw smollm2".to_string()]));
        assert_eq!(command("../"), Some(vec!["../justw smollm2".to_string()]));
        let of_a_block = Path::new("bases/smollm2-collapse-104");
        let commands = of_seed(of_a_block, 104).unwrap().commands("../", of_a_block, 104);
        let words = "dapo model tune ../models/SmolLM2-135M-Instruct --recipe \
                     ../experiments/smollm2/collapse/recipe.toml --seed 104 --out \
                     bases/smollm2-collapse-104";
        assert_eq!(commands, ["../justw smollm2", words]);
        let with_texts = of_seed(Path::new("words-3"), 3).unwrap();
        let words = [
            "python3 experiments/controls/words/words.py data/words",
            "dapo model pretrain experiments/controls/words/recipe.toml --seed 3 --out words-3",
        ];
        assert_eq!(with_texts.commands("", Path::new("words-3"), 3), words);
        let foreign = with_texts.commands("", Path::new("a; b/words-3"), 3);
        assert!(foreign[1].ends_with(" --out 'a; b/words-3'"), "{foreign:?}");
    }
}

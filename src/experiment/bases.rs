//! Base policies that are in no repository: `experiments/bases.toml` has the recipe of each.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const TABLE: &str = include_str!("../../experiments/bases.toml");

/// How the base policies of one name are made, each from a seed of its own.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaseRecipe {
    /// From the root of the repository.
    pub recipe: String,
    /// What one thread took.
    pub minutes: u64,
}

/// By the folder's name without its seed.
pub fn all() -> BTreeMap<String, BaseRecipe> {
    toml::from_str(TABLE).expect("a test reads experiments/bases.toml")
}

/// Of a folder whose name ends with the seed, as `runs/bases/signed-sums-101`.
pub fn of_seed(model: &Path, seed: u64) -> Option<BaseRecipe> {
    let name = model.file_name()?.to_str()?.strip_suffix(&format!("-{seed}"))?.to_string();
    all().remove(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_policy_is_known_by_its_name_and_seed() {
        let of = |path: &str, seed| of_seed(Path::new(path), seed).map(|it| it.recipe);
        let sums = Some("experiments/sums/recipe.toml".to_string());
        assert_eq!(of("runs/bases/signed-sums-106", 106), sums);
        assert_eq!(of("runs/bases/signed-sums-106", 6), None);
        assert_eq!(of("golden/mini-aime/base", 1), None);
    }
}

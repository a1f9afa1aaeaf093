//! What exact arithmetic leaves to LibTorch: the objective's operations, one by one.

use crate::layers;
use crate::repository::{self, Source};

/// What the objective's tensors may be asked for: under exact arithmetic these run in LibTorch on
/// f64 numbers, so they are the elementwise operations that IEEE 754 fixes, comparisons, choices
/// and shapes. `sum` is called on flags, on numbers that were rounded first, and once for a loss
/// whose value is never read.
const TENSOR_OPERATIONS: &str = "clamp clamp_max clamp_min contiguous detach double_value eq_tensor expand expand_as flatten \
    full_like ge gt gt_tensor int64_value isinf isnan kind le logical_and logical_not logical_or \
    lt masked_select max ne ne_tensor ones_like requires_grad reshape set_requires_grad \
    shallow_clone size size2 sum to_kind unsqueeze view where_self zeros_like";

/// Methods of the standard library and of the room in the same files; `exp` is the fast branch of `numerics::exp`.
const OTHER_METHODS: &str = "about abs all any applied as_ref as_slice ceil chain clip clipped clone cloned collect concat contains copied \
    correct count entry enumerate exp expect filter filter_map flat_map flatten floor fold gate \
    get group_advantages into_iter is_finite is_nan iter len log_ratio map map_or map_or_else max measures min \
    of_responses or_default paper penalty problems push released resize response_means \
    response_sums rewards_differ rules saturating_sub sort_by starts_with surrogate swap take then to_string to_vec total_cmp \
    truncate unread unwrap_or unwrap_or_else values weight weights with_capacity write_str zip";

#[test]
fn the_objective_asks_its_tensors_for_elementwise_operations_only() {
    let sources = repository::sources();
    let uses_tensors = |source: &&Source| {
        let (code, path) = (layers::code(&source.text), &source.path);
        let own =
            path.starts_with("src/core/algorithm/") || path == "src/core/numerics/operations.rs";
        own && !path.ends_with("tests.rs") && code.contains("use tch::")
    };
    let checked: Vec<&Source> = sources.iter().filter(uses_tensors).collect();
    assert!(checked.len() >= 6, "{}", checked.len());
    for source in checked {
        let code = layers::code(&source.text);
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        for method in code.split('.').skip(1).filter_map(called) {
            let mut known =
                TENSOR_OPERATIONS.split_whitespace().chain(OTHER_METHODS.split_whitespace());
            let known = known.any(|name| name == method);
            assert!(known, "{} calls `{method}`: is it the same on every machine?", source.path);
        }
    }
}

/// The method that the text after a dot calls.
fn called(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    text[end..].starts_with(['(', ':']).then_some(&text[..end]).filter(|name| !name.is_empty())
}

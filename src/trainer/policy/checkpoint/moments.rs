//! AdamW's moments in a checkpoint: `first.NAME` and `second.NAME` for every weight, none before the first update.

use crate::numerics::fast;
use crate::policy::optimizer;
use crate::policy::{Moments, PolicyError, Qwen2, checkpoint, model::qwen2};
use std::collections::BTreeMap;
use std::path::Path;
use tch::Tensor;

const FIRST: &str = "first";
pub(super) const SECOND: &str = "second";

/// Both moments of every parameter, all first ones before the second ones.
fn shapes(parameters: &BTreeMap<String, Tensor>) -> Vec<(String, Vec<i64>)> {
    let mut shapes = Vec::new();
    for prefix in [FIRST, SECOND] {
        let of = |(name, tensor): (&String, &Tensor)| (format!("{prefix}.{name}"), tensor.size());
        shapes.extend(parameters.iter().map(of));
    }
    shapes
}

pub(super) fn write(
    path: &Path,
    parameters: &BTreeMap<String, Tensor>,
    moments: &dyn Moments,
) -> Result<(), PolicyError> {
    let shapes = if moments.updates() == 0 { Vec::new() } else { shapes(parameters) };
    checkpoint::write_each(path, shapes.into_iter().collect(), &|key| {
        let (prefix, name) = key.split_once('.').expect("a prefix was put before the name");
        let [first, second] = moments.of(name);
        if prefix == FIRST { first } else { second }
    })
}

/// Reads what [`write()`] wrote, after `updates` updates.
pub(super) fn read(
    path: &Path,
    model: &Qwen2,
    updates: u64,
) -> Result<optimizer::OptimizerState, PolicyError> {
    let tensors = checkpoint::read_tensors(path)?;
    if updates == 0 {
        return Ok(optimizer::OptimizerState::default());
    }
    for (name, tensor) in &tensors {
        checkpoint::all_finite(path, name, tensor)?;
    }
    let stored = tensors.iter().map(|(name, tensor)| (name, tensor.size())).collect();
    qwen2::check_shapes(shapes(model.parameters()), stored)
        .map_err(|error| error.within(path.to_path_buf()))?;
    let of = |prefix: &str| {
        let moment =
            |name: &String| (name.clone(), fast::values(&tensors[&format!("{prefix}.{name}")]));
        model.parameters().keys().map(moment).collect()
    };
    Ok(optimizer::OptimizerState { updates, first_moments: of(FIRST), second_moments: of(SECOND) })
}

//! AdamW's moments in a checkpoint: `first.NAME` and `second.NAME` for every weight, none before the
//! first update.

use crate::policy::checkpoint::{self, Error};
use crate::policy::model::qwen2;
use crate::policy::optimizer::{self, Tensors, on_device};
use crate::policy::{DeviceAdamW, Qwen2};
use std::collections::BTreeMap;
use std::path::Path;
use tch::Tensor;

const FIRST: &str = "first";
pub(super) const SECOND: &str = "second";

/// AdamW's state as a checkpoint writes it: values are asked for one tensor at a time, since all
/// together are twice as large as the policy.
pub trait Moments {
    /// Number of updates.
    fn updates(&self) -> u64;

    /// First and second moment of a tensor. Asked for after the first update.
    fn of(&self, name: &str) -> [Vec<f32>; 2];
}

impl Moments for optimizer::State {
    fn updates(&self) -> u64 {
        self.updates
    }

    fn of(&self, name: &str) -> [Vec<f32>; 2] {
        [self.first_moments[name].clone(), self.second_moments[name].clone()]
    }
}

impl Moments for DeviceAdamW {
    fn updates(&self) -> u64 {
        self.updates()
    }

    fn of(&self, name: &str) -> [Vec<f32>; 2] {
        self.moments(name)
    }
}

/// Writes AdamW's moments, which together are twice as large as the policy, without a copy of all.
pub(super) fn write(
    path: &Path,
    parameters: &BTreeMap<String, Tensor>,
    moments: &dyn Moments,
) -> Result<(), Error> {
    let shapes: BTreeMap<String, Vec<i64>> = match moments.updates() {
        0 => BTreeMap::new(),
        _ => [FIRST, SECOND]
            .into_iter()
            .flat_map(|prefix| {
                let key = move |(name, tensor): (&String, &Tensor)| {
                    (format!("{prefix}.{name}"), tensor.size())
                };
                parameters.iter().map(key)
            })
            .collect(),
    };
    checkpoint::write_each(path, shapes, &|key| {
        let (prefix, name) = key.split_once('.').expect("a prefix was put before the name");
        let [first, second] = moments.of(name);
        if prefix == FIRST { first } else { second }
    })
}

/// Reads what [`write()`] wrote, after `updates` updates.
pub(super) fn read(path: &Path, model: &Qwen2, updates: u64) -> Result<optimizer::State, Error> {
    let tensors = checkpoint::read_tensors(path)?;
    if updates == 0 {
        return Ok(optimizer::State::default());
    }
    for (name, tensor) in &tensors {
        checkpoint::all_finite(path, name, tensor)?;
    }
    of_model(model, tensors, updates)
        .map_err(|source| Error::Tensors { path: path.to_path_buf(), source })
}

/// The moments of exactly the model's tensors.
fn of_model(
    model: &Qwen2,
    mut tensors: BTreeMap<String, Tensor>,
    updates: u64,
) -> Result<optimizer::State, qwen2::Error> {
    let mut take = |prefix: &str| {
        let mut moments = Tensors::new();
        for (name, parameter) in model.parameters() {
            let key = format!("{prefix}.{name}");
            let Some(tensor) = tensors.remove(&key) else { return Err(qwen2::Error::Missing(key)) };
            let (got, want) = (tensor.size(), parameter.size());
            if got != want {
                return Err(qwen2::Error::Shape { name: key, got, want });
            }
            moments.insert(name.clone(), on_device::plain(&tensor));
        }
        Ok(moments)
    };
    let (first_moments, second_moments) = (take(FIRST)?, take(SECOND)?);
    match tensors.into_keys().next() {
        Some(name) => Err(qwen2::Error::Unknown(name)),
        None => Ok(optimizer::State { updates, first_moments, second_moments }),
    }
}

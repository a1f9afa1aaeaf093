//! verl's dynamic-sampling loop, batch balancing, schedule and optimiser step.

use crate::verl_vectors::case::Case;
use crate::verl_vectors::values::{array, count, number, numbers, raised};
use dapo::algorithm::dynamic_sampling::is_useful;
use dapo::algorithm::length_bands::{band_order, length_bands, workload};
use dapo::algorithm::{Buffer, RefillNext, Surplus};
use dapo::experiment::{Optimizer, WarmUp, WarmUpStart};
use dapo::policy::optimizer::{clip_coefficient, learning_rate};
use dapo::policy::{Element, Update};
use serde_json::{Value, json};

/// A group of the loop below: (position in the stream, trajectory, metric) of each row.
type Rows = Vec<(usize, f64, f64)>;

/// The filter and refill loop of the recipe (dapo_ray_trainer.py:235-294) over a stream of
/// generation batches.
pub fn dynamic_sampling(case: &Case) -> Value {
    let group_rows = case.count("rollout_n") as usize;
    let target = case.count("train_batch_size") as usize;
    // Zero or less is no cap.
    let cap = case.number_or("max_num_gen_batches", 0.0).max(0.0) as u32;
    // These two are sums of float32 tensors; the others are Python numbers.
    let rounded: Rounded = match case.text_or("metric", "acc") {
        "seq_reward" | "seq_final_reward" => |value: f64| f64::from(value as f32),
        _ => |value: f64| value,
    };
    let mut steps = Vec::new();
    let mut buffer = Buffer::new(Vec::new());
    let mut position = 0;
    for batch in case.list("gen_batches") {
        let groups = groups(batch, &mut position);
        buffer.add_round(groups, |group| kept_by_verl(group, rounded));
        match buffer.next(target, cap) {
            RefillNext::SampleMore => continue,
            RefillNext::Train => {
                let full = std::mem::replace(&mut buffer, Buffer::new(Vec::new()));
                steps.push(train_step(full, target, group_rows));
            }
            RefillNext::CapReached => {
                let message = format!(
                    "num_gen_batches={} >= max_num_gen_batches={cap}. Generated too many. Please \
                     check if your data are too difficult. You could also try set \
                     max_num_gen_batches=0 to enable endless trials.",
                    buffer.rounds()
                );
                let mut outputs = raised("ValueError", &message);
                (outputs["train_steps"], outputs["end_of_data"]) = (json!(steps), Value::Null);
                return outputs;
            }
        }
    }
    let (rounds, prompts) = (buffer.rounds(), buffer.len());
    let (left, _) = buffer.take(prompts, Surplus::Discard);
    let end_of_data = json!({
        "leftover_prompts_discarded": prompts,
        "leftover_traj_ids": trajectories(left, usize::MAX),
        "num_gen_batches_in_progress": rounds,
    });
    json!({"train_steps": steps, "end_of_data": end_of_data, "error": null})
}

fn train_step(buffer: Buffer<Rows>, target: usize, group_rows: usize) -> Value {
    let (rounds, prompts) = (buffer.rounds(), buffer.len());
    let whole = |group: &Rows| {
        group.len() == group_rows && group.windows(2).all(|rows| rows[1].0 == rows[0].0 + 1)
    };
    // verl cuts rows, not groups; with whole groups in a row that is the same.
    let (batch, surplus) = buffer.take(target, Surplus::Carry);
    let ids = if batch.iter().chain(&surplus).all(whole) {
        trajectories(batch, usize::MAX)
    } else {
        trajectories(batch.into_iter().chain(surplus).collect(), target * group_rows)
    };
    json!({
        "num_gen_batches": rounds,
        "num_prompt_in_batch_before_truncation": prompts,
        "traj_ids": ids,
    })
}

/// Trajectories in stream order, at most `limit`.
fn trajectories(groups: Vec<Rows>, limit: usize) -> Value {
    let mut rows: Vec<(usize, f64, f64)> = groups.into_iter().flatten().collect();
    rows.sort_by_key(|row| row.0);
    numbers(rows.into_iter().take(limit).map(|row| row.1))
}

/// How numpy rounds each result to the kind of its array. Double rounding changes no sum, product or
/// quotient of two float32 numbers.
type Rounded = fn(f64) -> f64;

/// verl keeps a group of one, and any spread of the metric. On correctness that is Eq. 11.
fn kept_by_verl(group: &Rows, rounded: Rounded) -> bool {
    let values: Vec<f64> = group.iter().map(|row| rounded(row.2)).collect();
    if values.len() == 1 {
        return true;
    }
    if values.iter().all(|value| *value == 0.0 || *value == 1.0) {
        let correct = values.iter().filter(|value| **value == 1.0).count();
        return is_useful(correct, values.len());
    }
    numpy_variance(&values, rounded) > 0.0
}

/// The square of `np.std`: it can exceed 0 for a constant metric, by the rounding of the mean.
fn numpy_variance(values: &[f64], rounded: Rounded) -> f64 {
    let count = values.len() as f64;
    let mean = rounded(numpy_sum(values, rounded) / count);
    let square = |value: &f64| {
        let centred = rounded(value - mean);
        rounded(centred * centred)
    };
    let squares: Vec<f64> = values.iter().map(square).collect();
    rounded(numpy_sum(&squares, rounded) / count)
}

/// numpy's pairwise summation: eight running sums up to 128 elements, halves above.
fn numpy_sum(values: &[f64], rounded: Rounded) -> f64 {
    const LANES: usize = 8;
    const BLOCK: usize = 128;
    let add = |sum: f64, value: &f64| rounded(sum + value);
    if values.len() < LANES {
        return values.iter().fold(0.0, add);
    }
    if values.len() > BLOCK {
        let half = values.len() / 2;
        let (left, right) = values.split_at(half - half % LANES);
        return rounded(numpy_sum(left, rounded) + numpy_sum(right, rounded));
    }
    let mut lanes = [0.0; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane = add(*lane, value));
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    let halves = [add(add(a, &b), &add(c, &d)), add(add(e, &f), &add(g, &h))];
    rest.iter().fold(add(halves[0], &halves[1]), add)
}

/// The prompts of one generation batch, in order of first appearance.
fn groups(batch: &Value, position: &mut usize) -> Vec<Rows> {
    let uids = batch["uid"].as_array().unwrap();
    let (ids, metrics) =
        (array(&batch["traj_id"], 1).values, array(&batch["metric_values"], 1).values);
    assert!(ids.len() == uids.len() && metrics.len() == uids.len(), "{batch}");
    let mut groups: Vec<(String, Rows)> = Vec::new();
    for ((uid, id), metric) in uids.iter().zip(ids).zip(metrics) {
        let row = (*position, id, metric);
        *position += 1;
        let uid = uid.to_string();
        match groups.iter_mut().find(|(name, _)| *name == uid) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((uid, vec![row])),
        }
    }
    groups.into_iter().map(|(_, rows)| rows).collect()
}

/// `calculate_workload` and the order of `_balance_batch`, within the partitions that verl made for its ranks.
pub fn balance_batch(case: &Case) -> Value {
    let ranks = case.count("dp_size") as usize;
    let lengths: Vec<u64> = case.list("seqlens").iter().map(count).collect();
    let Some(partitions) = case.outputs.get("balanced_partitions") else {
        return raised("AssertionError", "");
    };
    let rows: Vec<Vec<usize>> = serde_json::from_value(partitions.clone()).unwrap();
    assert_eq!(rows.len(), ranks, "{}", case.name);
    let work: Vec<u64> = lengths.iter().map(|length| workload(*length)).collect();
    let orders: Vec<Vec<usize>> = rows.into_iter().map(|rows| band_order(rows, &work)).collect();
    json!({
        "workload": work,
        "balanced_partitions": partitions,
        "global_idx": if ranks == 1 { length_bands(&lengths) } else { orders.concat() },
        "final_order_per_rank": orders,
    })
}

/// `get_constant_schedule_with_warmup`, which verl steps once for each rollout step. The
/// output's name says the range: `lr_at_rollout_step_0..24`.
pub fn lr_schedule(case: &Case) -> Value {
    const PREFIX: &str = "lr_at_rollout_step_";
    // A negative length is no warm-up.
    let length = case.number("lr_warmup_steps").max(0.0) as u64;
    let config = Optimizer {
        learning_rate: case.number("lr"),
        warm_up: WarmUp { rollout_steps: length, start: WarmUpStart::Zero },
        ..optimizer()
    };
    let mut outputs = json!({});
    for (name, rates) in &case.outputs {
        let (Some(range), Some(rates)) = (name.strip_prefix(PREFIX), rates.as_array()) else {
            continue;
        };
        let first: u64 = range.split("..").next().unwrap().parse().unwrap();
        let steps = first..first + rates.len() as u64;
        outputs[name] = numbers(steps.map(|step| learning_rate(&config, step)));
    }
    outputs
}

/// `clip_grad_norm_` and one step of `torch.optim.AdamW`, repeated.
pub fn adamw(case: &Case) -> Value {
    let values = case.array("p0", 1).values;
    let gradients = case.array("grads", 2);
    assert!(gradients.shape[0] == 0 || gradients.shape[1] == values.len(), "{}", case.name);
    let plain = optimizer();
    let betas = case.optional("betas").map(|betas| array(betas, 1).values);
    let betas = betas.unwrap_or_else(|| vec![plain.beta1, plain.beta2]);
    let [beta1, beta2] = betas[..] else { panic!("{}: betas", case.name) };
    let config = Optimizer {
        learning_rate: case.number("lr"),
        beta1,
        beta2,
        epsilon: case.number_or("eps", plain.epsilon),
        weight_decay: case.number_or("weight_decay", plain.weight_decay),
        max_gradient_norm: case.number_or("grad_clip_max_norm", plain.max_gradient_norm),
        ..plain
    };
    let element = |value| Element { parameter: value, first_moment: 0.0, second_moment: 0.0 };
    let mut elements: Vec<Element> = values.into_iter().map(element).collect();
    let (mut after, mut norms) = (Vec::new(), Vec::new());
    for (i, gradient) in gradients.rows().enumerate() {
        let norm = gradient.iter().map(|it| it * it).sum::<f64>().sqrt();
        let scale = clip_coefficient(norm, config.max_gradient_norm);
        let update = Update::new(&config, config.learning_rate, i as u64 + 1);
        for (element, gradient) in elements.iter_mut().zip(gradient) {
            *element = update.apply(*element, gradient * scale);
        }
        after.push(numbers(elements.iter().map(|element| element.parameter)));
        norms.push(number(norm));
    }
    json!({"params_after_each_step": after, "pre_clip_grad_norms": norms})
}

/// torch's defaults, for what a vector leaves out.
fn optimizer() -> Optimizer {
    Optimizer {
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.01,
        max_gradient_norm: f64::INFINITY,
        non_finite: None,
        warm_up: WarmUp { rollout_steps: 0, start: WarmUpStart::Zero },
    }
}

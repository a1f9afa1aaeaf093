//! Groups with advantages → rows → mini-batches → micro-batches → passes, and the training forward over one pass.

use crate::algorithm::{Row, length_bands::length_bands};
use crate::base::{rng::Stream, workers::InOrder};
use crate::experiment::{Execution, MiniBatchOrder, Training};
use crate::numerics::NumericsError;
use crate::policy::{Gradients, Qwen2, Sequences};
use tch::{Kind, Tensor};

/// Row indices of each mini-batch. Groups stay whole under `shuffled-groups`; the last
/// mini-batch is smaller when the step trains on fewer groups than planned.
pub fn mini_batches(rows: &[Row], training: &Training, mut order: Stream) -> Vec<Vec<usize>> {
    let ordered: Vec<usize> = match training.mini_batch_order {
        MiniBatchOrder::ShuffledGroups => {
            let groups = rows.iter().map(|row| row.group + 1).max().unwrap_or(0);
            let mut members: Vec<Vec<usize>> = vec![Vec::new(); groups];
            for (index, row) in rows.iter().enumerate() {
                members[row.group].push(index);
            }
            order.shuffle(&mut members);
            members.concat()
        }
        MiniBatchOrder::ShuffledRollouts => {
            let mut members: Vec<usize> = (0..rows.len()).collect();
            order.shuffle(&mut members);
            members
        }
        MiniBatchOrder::LengthBands => {
            let lengths: Vec<u64> = rows.iter().map(|row| row.tokens.len() as u64).collect();
            length_bands(&lengths)
        }
    };
    ordered.chunks(training.mini_batch_rollouts as usize).map(<[usize]>::to_vec).collect()
}

/// Cuts rows into micro-batches of at most `size`, longest first, so that rows of one
/// micro-batch are padded little. Only where and how the sum is computed depends on it.
pub fn micro_batches(rows: &[Row], members: &[usize], size: usize) -> Vec<Vec<usize>> {
    let mut sorted = members.to_vec();
    sorted.sort_by_key(|&row| (std::cmp::Reverse(rows[row].tokens.len()), row));
    sorted.chunks(size.max(1)).map(<[usize]>::to_vec).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Decides where sums are rounded; with `token_mean_unit = "micro-batch"` it is also part of the objective.
    pub micro_batch_rollouts: usize,
    /// Tokens of one forward and backward pass, padding included.
    pub pass_tokens: usize,
}

impl Cut {
    pub fn of(execution: &Execution) -> Self {
        Self {
            micro_batch_rollouts: execution.micro_batch_rollouts as usize,
            pass_tokens: execution.tokens_of_a_pass(),
        }
    }
}

/// Cuts a micro-batch, longest row first, into passes of at most so many tokens, padding included: the rows of
/// one forward and backward pass. Whatever the cut, losses and gradients add up to those of the micro-batch.
pub fn passes(rows: &[Row], micro_batch: &[usize], most_tokens: usize) -> Vec<Vec<usize>> {
    let mut passes: Vec<Vec<usize>> = Vec::new();
    for &row in micro_batch {
        let fits = |pass: &Vec<usize>| (pass.len() + 1) * rows[pass[0]].tokens.len() <= most_tokens;
        match passes.last_mut().filter(|pass| fits(pass)) {
            Some(pass) => pass.push(row),
            None => passes.push(vec![row]),
        }
    }
    passes
}

/// Cuts rows into a multiple of `side_by_side` passes of nearly equal tokens, at most about `most_tokens`: threads that
/// take one after another end together. `together` keeps rows of a group, which share a prompt, side by side.
pub fn balanced(
    rows: &[Row],
    members: &[usize],
    most_tokens: usize,
    side_by_side: usize,
    together: bool,
) -> Vec<Vec<usize>> {
    let tokens = |part: &[usize]| part.iter().map(|&row| rows[row].tokens.len()).sum::<usize>();
    let mut sorted = members.to_vec();
    sorted.sort_by_key(|&row| rows[row].group);
    let mut parts: Vec<Vec<usize>> = Vec::new();
    for row in sorted {
        let joins = |part: &&mut Vec<usize>| {
            together
                && rows[part[0]].group == rows[row].group
                && tokens(part) + rows[row].tokens.len() <= most_tokens / 2
        };
        match parts.last_mut().filter(joins) {
            Some(part) => part.push(row),
            None => parts.push(vec![row]),
        }
    }
    parts.sort_by_key(|part| (std::cmp::Reverse(tokens(part)), part[0]));
    let count = tokens(members).div_ceil(most_tokens.max(1)).next_multiple_of(side_by_side);
    let mut passes = vec![Vec::new(); count.min(parts.len())];
    for part in parts {
        let least = passes.iter_mut().min_by_key(|pass| tokens(pass));
        least.expect("a pass for the rows").extend(part);
    }
    passes
}

/// The tokens that a pass computes; with `shares`, neighbours of one group have their prompt once.
pub fn fed_tokens(rows: &[Row], members: &[usize], shares: bool) -> usize {
    let groups = members.chunk_by(|&one, &other| shares && rows[one].group == rows[other].group);
    let of_group = |group: &[usize]| -> usize {
        let responses = group.iter().map(|&row| rows[row].response_tokens());
        rows[group[0]].prompt_tokens + responses.sum::<usize>()
    };
    groups.map(of_group).sum()
}

/// The gradients of passes, in their order, and what `add` says of each: side by side, each with its own sums, or of a
/// large policy one after another. Threads take the pass of the most `work` first, so that they end together.
/// Errors: the first pass that fails.
pub fn sum_of_passes<R: Send>(
    model: &Qwen2,
    passes: &[Vec<usize>],
    work: impl Fn(&[usize]) -> usize,
    add: impl Fn(&Qwen2, &[usize], &mut Gradients) -> Result<R, NumericsError> + Sync,
) -> Result<(Gradients, Vec<R>), NumericsError> {
    let mut sums = Gradients::default();
    if model.is_large() {
        let all = passes.iter().map(|members| add(model, members, &mut sums));
        let all = all.collect::<Result<_, _>>()?;
        return Ok((sums, all));
    }
    let sums = InOrder::new(sums);
    let mut numbers: Vec<usize> = (0..passes.len()).collect();
    numbers.sort_by_key(|&number| std::cmp::Reverse(work(&passes[number])));
    let one = |model: &Qwen2, &number: &usize| {
        let mut own = Gradients::default();
        let result = add(model, &passes[number], &mut own);
        sums.give(number, own, Gradients::add);
        (number, result)
    };
    let mut all = model.map(&numbers, one);
    all.sort_by_key(|(number, _)| *number);
    let all = all.into_iter().map(|(_, result)| result).collect::<Result<_, _>>()?;
    Ok((sums.into_sum(), all))
}

/// One forward, or forward and backward, pass. Response tokens stand one after another, row by row, `tokens` of them.
#[derive(Debug)]
pub struct Pass {
    /// Prompt and response without the last token, and the response tokens as targets.
    pub sequences: Sequences,
    /// True on response tokens that enter the loss: `[tokens]`.
    pub loss_mask: Tensor,
    /// Â_i of each token's row: `[tokens]`.
    pub advantages: Tensor,
    /// Response tokens of each row.
    pub lengths: Vec<usize>,
}

impl Pass {
    /// Packs the chosen rows. With `shares`, for the native engine, neighbours of one group have their prompt once.
    pub fn new(rows: &[Row], members: &[usize], shares: bool) -> Self {
        let mut sequences = Sequences::default();
        let (mut loss_mask, mut advantages, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        let mut group = None;
        for row in members.iter().map(|&member| &rows[member]) {
            // The last token predicts nothing; the first target follows the last prompt token.
            let (inputs, length) = (&row.tokens[..row.tokens.len() - 1], row.response_tokens());
            let (prompt, targets) = row.tokens.split_at(row.prompt_tokens);
            if shares && length > 0 {
                if group.replace(row.group) != Some(row.group) {
                    sequences.push(prompt, 0, &[]);
                }
                sequences.push_after(&inputs[row.prompt_tokens..], targets);
            } else {
                sequences.push(inputs, row.prompt_tokens - 1, targets);
                group = None;
            }
            loss_mask.extend(std::iter::repeat_n(row.in_loss, length));
            advantages.extend(std::iter::repeat_n(row.advantage as f32, length));
            lengths.push(length);
        }
        Self {
            sequences,
            loss_mask: Tensor::from_slice(&loss_mask),
            advantages: Tensor::from_slice(&advantages),
            lengths,
        }
    }

    /// One value for each row as one for each of its response tokens: `[tokens]`.
    pub fn for_each_token(&self, values: &[f64]) -> Tensor {
        let repeated = values.iter().zip(&self.lengths);
        let repeated: Vec<f64> =
            repeated.flat_map(|(&value, &length)| std::iter::repeat_n(value, length)).collect();
        Tensor::from_slice(&repeated)
    }

    /// `[tokens]` as one list for each row.
    pub fn by_row(&self, values: &Tensor) -> Vec<Vec<f64>> {
        let values: Vec<f64> =
            Vec::try_from(values.to_kind(Kind::Double).contiguous()).expect("a dense tensor");
        let mut rest = &values[..];
        let mut take = |&length: &usize| {
            let (row, after) = rest.split_at(length);
            rest = after;
            row.to_vec()
        };
        self.lengths.iter().map(&mut take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Purpose;
    use crate::base::rng::stream;

    fn row(group: usize, prompt: usize, response: usize) -> Row {
        Row {
            group,
            tokens: (0..(prompt + response) as u32).collect(),
            prompt_tokens: prompt,
            advantage: 1.0,
            in_loss: true,
        }
    }

    fn training(mini_batch_rollouts: u64, mini_batch_order: MiniBatchOrder) -> Training {
        Training {
            rollout_steps: 1,
            prompts_per_step: 4,
            mini_batch_rollouts,
            epochs_per_step: 1,
            mini_batch_order,
        }
    }

    #[test]
    fn shuffled_groups_stay_whole_and_every_row_trains_once() {
        let rows: Vec<Row> = (0..12).map(|i| row(i / 3, 2, 1 + i)).collect();
        let order = stream(1, Purpose::MiniBatchOrder, &[]);
        let batches = mini_batches(&rows, &training(6, MiniBatchOrder::ShuffledGroups), order);
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);
        for batch in &batches {
            for trio in batch.chunks(3) {
                assert!(trio.iter().all(|&i| rows[i].group == rows[trio[0]].group));
            }
        }
        let mut all = batches.concat();
        all.sort_unstable();
        assert_eq!(all, (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn length_bands_put_similar_lengths_together() {
        let rows: Vec<Row> = (0..16).map(|i| row(i / 4, 2, 1 + (i * 7) % 16)).collect();
        let order = stream(1, Purpose::MiniBatchOrder, &[]);
        let batches = mini_batches(&rows, &training(4, MiniBatchOrder::LengthBands), order);
        let spread = |batch: &Vec<usize>| {
            let lengths: Vec<usize> = batch.iter().map(|&i| rows[i].tokens.len()).collect();
            lengths.iter().max().unwrap() - lengths.iter().min().unwrap()
        };
        // Sixteen lengths 1…16 in four bands of every second length: at most 7 apart.
        assert!(batches.iter().all(|batch| spread(batch) <= 7), "{batches:?}");
        let mut all = batches.concat();
        all.sort_unstable();
        assert_eq!(all, (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn the_stop_token_is_a_target_and_the_first_target_is_predicted_by_the_last_prompt_token() {
        let rows = [row(0, 3, 2), row(0, 2, 4)];
        let pass = Pass::new(&rows, &[0, 1], false);
        let values = |tensor: &Tensor| Vec::<i64>::try_from(tensor.flatten(0, -1)).unwrap();
        assert_eq!(pass.sequences.targets, [3, 4, 2, 3, 4, 5]);
        // The last token predicts nothing and is not fed.
        let lengths: Vec<usize> = pass.sequences.spans.iter().map(|span| span.own.len()).collect();
        assert_eq!(lengths, [4, 5]);
        assert_eq!(pass.sequences.states, [2, 3, 5, 6, 7, 8]);
        let (padded, states) = pass.sequences.padded();
        assert_eq!(padded.size(), [2, 5]);
        assert_eq!(values(&states), [2, 3, 6, 7, 8, 9]);
        let targets = pass.sequences.target_tensor();
        assert_eq!(pass.by_row(&targets), [vec![3.0, 4.0], vec![2.0, 3.0, 4.0, 5.0]]);
        let repeated = Vec::<f64>::try_from(pass.for_each_token(&[0.5, 2.0])).unwrap();
        assert_eq!(repeated, [0.5, 0.5, 2.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn a_filtered_row_keeps_its_response_but_leaves_the_loss() {
        let rows = [Row { in_loss: false, ..row(0, 3, 2) }];
        let pass = Pass::new(&rows, &[0], false);
        assert_eq!(rows[0].loss_tokens(), 0);
        assert_eq!(pass.loss_mask.sum(Kind::Int64).int64_value(&[]), 0);
        assert_eq!(pass.sequences.targets.len(), 2);
    }

    #[test]
    fn balanced_passes_have_every_row_once_and_nearly_as_many_tokens() {
        let rows: Vec<Row> = (0..64).map(|i| row(i / 8, 10, 10 + i * 7 % 40)).collect();
        let members: Vec<usize> = (0..64).collect();
        for together in [false, true] {
            let passes = balanced(&rows, &members, 1024, 2, together);
            assert_eq!(passes.len(), 4);
            let mut all = passes.concat();
            all.sort_unstable();
            assert_eq!(all, members);
            let tokens = |pass: &Vec<usize>| -> usize {
                pass.iter().map(|&row| rows[row].tokens.len()).sum()
            };
            let most = passes.iter().map(tokens).max().unwrap();
            let least = passes.iter().map(tokens).min().unwrap();
            assert!(most - least <= if together { 100 } else { 10 }, "{least} {most}");
        }
        assert!(balanced(&rows, &[], 1024, 2, true).is_empty());
    }

    #[test]
    fn passes_keep_every_row_in_order_and_stay_within_their_tokens() {
        let rows: Vec<Row> = (0..40).map(|i| row(i / 4, 3, 2000 - 50 * i)).collect();
        let micro_batch = micro_batches(&rows, &(0..40).collect::<Vec<_>>(), 64).concat();
        let passes = passes(&rows, &micro_batch, 1024);
        assert_eq!(passes.concat(), micro_batch);
        assert!(passes.len() > 1 && passes.iter().any(|pass| pass.len() > 1));
        for pass in passes.iter().filter(|pass| pass.len() > 1) {
            let longest = pass.iter().map(|&row| rows[row].tokens.len()).max().unwrap();
            assert!(pass.len() * longest <= 1024);
        }
    }
}

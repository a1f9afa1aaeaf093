//! How the matrices of a forward pass are made of a checkpoint's parameters: products that read
//! the same input are one matrix, and each norm's weight is inside the matrix that follows it.

use crate::numerics::vectorised::vectorised;
use std::collections::BTreeMap;

/// One matrix of the forward pass: rows of one or several parameters, times a norm's weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folded {
    /// Parameters whose rows stand below each other.
    pub parts: Vec<FoldedPart>,
    /// The norm whose weight multiplies every row.
    pub norm: Option<String>,
    pub inputs: usize,
}

/// One parameter of a [`Folded`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldedPart {
    /// The matrix, or a vector that is one row.
    pub weight: String,
    pub bias: Option<String>,
    /// Of queries and keys the number of heads: in each head a row and its partner half a head
    /// away become neighbours, which a rotation turns together. Queries and keys alike, so no
    /// score changes.
    pub interleaved_heads: Option<usize>,
}

impl FoldedPart {
    /// For each row of the matrix its row of the parameter.
    fn order(&self, rows: usize) -> Vec<usize> {
        let Some(heads) = self.interleaved_heads else { return (0..rows).collect() };
        let width = rows / heads;
        let row = |at: usize| {
            let (head, place) = (at / width, at % width);
            head * width + place % 2 * (width / 2) + place / 2
        };
        (0..rows).map(row).collect()
    }
}

type FoldedValues<T> = BTreeMap<String, Vec<T>>;

/// Some rows of a matrix by their numbers.
pub type SomeRows = BTreeMap<u32, Vec<f64>>;

impl Folded {
    /// One parameter as it is.
    pub fn of(weight: &str, inputs: usize) -> Self {
        let part = FoldedPart { weight: weight.to_string(), bias: None, interleaved_heads: None };
        Self { parts: vec![part], norm: None, inputs }
    }

    /// The parameters' rows in the order of the matrix, without the norm's weight.
    pub fn rows<'a>(&self, parameters: &'a FoldedValues<f32>) -> Vec<&'a [f32]> {
        let mut rows = Vec::new();
        for part in &self.parts {
            let values = &parameters[&part.weight];
            let order = part.order(values.len() / self.inputs).into_iter();
            rows.extend(order.map(|row| &values[row * self.inputs..][..self.inputs]));
        }
        rows
    }

    /// The biases in the order of the matrix' rows; `None` when there are none.
    pub fn bias(&self, parameters: &FoldedValues<f32>) -> Option<Vec<f32>> {
        let mut joined = Vec::new();
        for part in &self.parts {
            let bias = &parameters[part.bias.as_ref()?];
            joined.extend(part.order(bias.len()).into_iter().map(|row| bias[row]));
        }
        Some(joined)
    }

    /// Names of all parameters in it.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let of_parts = self.parts.iter().flat_map(|part| [Some(&part.weight), part.bias.as_ref()]);
        of_parts.chain([self.norm.as_ref()]).flatten().map(String::as_str)
    }

    /// As [`Folded::give_rows`] of a matrix that is one parameter as it is, for some of its rows.
    pub fn give_some_rows(&self, rows: &SomeRows, sums: &mut FoldedValues<f64>) {
        let sum = sums.get_mut(&self.parts[0].weight).expect("a sum for every parameter");
        for (&row, by_row) in rows {
            let place = &mut sum[row as usize * self.inputs..][..self.inputs];
            place.iter_mut().zip(by_row).for_each(|(sum, g)| *sum += g);
        }
    }

    /// As [`Folded::give_rows`] of a matrix in f32 that alone gives to the parameters of its parts, but for
    /// `some` rows of a single one: their gradients times `unit`, in f32, where the matrix lay if they can. Only
    /// what goes to the norm is added to `sums`.
    pub fn turn_rows(
        &self,
        mut by_matrix: Vec<f32>,
        some: Option<&SomeRows>,
        unit: f64,
        parameters: &FoldedValues<f32>,
        sums: &mut FoldedValues<f64>,
    ) -> FoldedValues<f32> {
        let norm = self.norm.as_ref().map(|name| (name, &parameters[name]));
        let mut by_norm = vec![0f64; self.inputs];
        let mut rest = by_matrix.chunks_exact_mut(self.inputs);
        for part in &self.parts {
            let values = &parameters[&part.weight];
            for row in part.order(values.len() / self.inputs) {
                let by_row = rest.next().expect("a gradient for every row");
                let values = &values[row * self.inputs..][..self.inputs];
                let some = some.and_then(|some| some.get(&(row as u32)));
                vectorised(
                    #[inline(always)]
                    || match (norm, some) {
                        (Some((_, weights)), _) => {
                            let by_norm = by_norm.iter_mut().zip(values);
                            for ((g, weight), (sum, value)) in
                                by_row.iter_mut().zip(weights).zip(by_norm)
                            {
                                let wide = f64::from(*g);
                                *sum += wide * f64::from(*value);
                                // As a sum that began with 0: never −0.
                                *g = ((0.0 + wide * f64::from(*weight)) * unit) as f32;
                            }
                        }
                        (None, Some(some)) => {
                            for (g, more) in by_row.iter_mut().zip(some) {
                                *g = ((f64::from(*g) + more) * unit) as f32;
                            }
                        }
                        (None, None) => {
                            by_row
                                .iter_mut()
                                .for_each(|g| *g = ((0.0 + f64::from(*g)) * unit) as f32);
                        }
                    },
                );
            }
        }
        if let Some((name, _)) = norm {
            let sum = sums.get_mut(name).expect("a sum for every parameter");
            sum.iter_mut().zip(by_norm).for_each(|(sum, g)| *sum += g);
        }
        if let [FoldedPart { weight, interleaved_heads: None, .. }] = &self.parts[..] {
            return BTreeMap::from([(weight.clone(), by_matrix)]);
        }
        let mut rest = by_matrix.chunks_exact(self.inputs);
        let in_order = |part: &FoldedPart| {
            let mut by_part = parameters[&part.weight].clone();
            for row in part.order(by_part.len() / self.inputs) {
                let by_row = rest.next().expect("a gradient for every row");
                by_part[row * self.inputs..][..self.inputs].copy_from_slice(by_row);
            }
            (part.weight.clone(), by_part)
        };
        self.parts.iter().map(in_order).collect()
    }

    /// The derivative of folding: adds what the gradient of the matrix, `[rows, inputs]`, gives
    /// to its parameters and to its norm, row by row.
    pub fn give_rows(
        &self,
        by_matrix: &[f64],
        parameters: &FoldedValues<f32>,
        sums: &mut FoldedValues<f64>,
    ) {
        let norm = self.norm.as_ref().map(|name| (name, &parameters[name]));
        let mut by_norm = vec![0f64; self.inputs];
        let mut rest = by_matrix.chunks_exact(self.inputs);
        for part in &self.parts {
            let values = &parameters[&part.weight];
            let by_part = sums.get_mut(&part.weight).expect("a sum for every parameter");
            for row in part.order(values.len() / self.inputs) {
                let by_row = rest.next().expect("a gradient for every row");
                let place = row * self.inputs..(row + 1) * self.inputs;
                let (by_part, values) = (&mut by_part[place.clone()], &values[place]);
                match norm {
                    None => {
                        by_part.iter_mut().zip(by_row).for_each(|(sum, g)| *sum += g);
                    }
                    Some((_, weights)) => {
                        for (at, &g) in by_row.iter().enumerate() {
                            by_part[at] += g * f64::from(weights[at]);
                            by_norm[at] += g * f64::from(values[at]);
                        }
                    }
                }
            }
        }
        if let Some((name, _)) = norm {
            let sum = sums.get_mut(name).expect("a sum for every parameter");
            sum.iter_mut().zip(by_norm).for_each(|(sum, g)| *sum += g);
        }
    }

    /// As [`Folded::give_rows`], for the biases.
    pub fn give_bias(&self, by_bias: &[f64], sums: &mut FoldedValues<f64>) {
        let mut rest = by_bias.iter();
        for (part, name) in self.parts.iter().filter_map(|part| Some((part, part.bias.as_ref()?))) {
            let sum = sums.get_mut(name).expect("a sum for every parameter");
            for (row, g) in part.order(sum.len()).into_iter().zip(rest.by_ref()) {
                sum[row] += g;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(weight: &str, heads: Option<usize>) -> FoldedPart {
        let bias = Some(format!("{weight}.bias"));
        FoldedPart { weight: weight.to_string(), bias, interleaved_heads: heads }
    }

    #[test]
    fn rows_of_a_head_and_their_partners_become_neighbours() {
        let folded =
            Folded { parts: vec![part("q", Some(2)), part("v", None)], norm: None, inputs: 1 };
        let values = |first: u8, count: u8| (first..first + count).map(f32::from).collect();
        let parameters: BTreeMap<String, Vec<f32>> = [
            ("q".to_string(), values(0, 8)),
            ("q.bias".to_string(), values(0, 8)),
            ("v".to_string(), values(8, 2)),
            ("v.bias".to_string(), values(8, 2)),
        ]
        .into();
        let expected = [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0, 8.0, 9.0];
        assert_eq!(folded.rows(&parameters).concat(), expected);
        assert_eq!(folded.bias(&parameters).unwrap(), expected);
        // A gradient finds its way back.
        let zeros = |(name, values): (&String, &Vec<f32>)| (name.clone(), vec![0f64; values.len()]);
        let mut sums: BTreeMap<String, Vec<f64>> = parameters.iter().map(zeros).collect();
        let gradient = expected.map(f64::from);
        folded.give_rows(&gradient, &parameters, &mut sums);
        folded.give_bias(&gradient, &mut sums);
        for (name, values) in &parameters {
            assert_eq!(sums[name], values.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_matrix_that_alone_gives_is_turned_where_it_lies_with_the_same_bits() {
        let numbers = |count: usize| -> Vec<f32> {
            (0..count).map(|at| (at * 7919 % 101) as f32 * 0.37 - 18.0).collect()
        };
        let both = vec![part("q", Some(2)), part("v", None)];
        let one = vec![FoldedPart { bias: None, ..part("v", None) }];
        for (parts, norm) in [(&both, Some("n")), (&both, None), (&one, Some("n")), (&one, None)] {
            let folded = Folded { parts: parts.clone(), norm: norm.map(str::to_string), inputs: 3 };
            let parameters: BTreeMap<String, Vec<f32>> = [("q", 24), ("v", 6), ("n", 3)]
                .map(|(name, count)| (name.to_string(), numbers(count)))
                .into();
            let gradient =
                numbers(3 * parts.iter().map(|it| parameters[&it.weight].len() / 3).sum::<usize>());
            let zeros = || -> BTreeMap<String, Vec<f64>> {
                parameters
                    .iter()
                    .map(|(name, values)| (name.clone(), vec![0.0; values.len()]))
                    .collect()
            };
            let some = SomeRows::from([(1, vec![0.25, -4.0, 1e-3])]);
            let some = (norm.is_none() && parts.len() == 1).then_some(&some);
            let (mut whole, mut of_norm) = (zeros(), zeros());
            some.iter().for_each(|some| folded.give_some_rows(some, &mut whole));
            let wide: Vec<f64> = gradient.iter().map(|x| f64::from(*x)).collect();
            folded.give_rows(&wide, &parameters, &mut whole);
            let turned = folded.turn_rows(gradient, some, 0.125, &parameters, &mut of_norm);
            assert_eq!(of_norm["n"], whole["n"]);
            assert_eq!(turned.len(), parts.len());
            for (name, values) in turned {
                let expected: Vec<u32> =
                    whole[&name].iter().map(|x| ((x * 0.125) as f32).to_bits()).collect();
                assert_eq!(values.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn a_norms_weight_gets_the_sum_over_rows() {
        let mut folded = Folded::of("w", 2);
        folded.norm = Some("n".to_string());
        let parameters = BTreeMap::from([
            ("w".to_string(), vec![1.0, 2.0, 3.0, 4.0]),
            ("n".to_string(), vec![10.0, 100.0]),
        ]);
        let mut sums =
            BTreeMap::from([("w".to_string(), vec![0.0; 4]), ("n".to_string(), vec![0.0; 2])]);
        folded.give_rows(&[1.0, 1.0, 1.0, 2.0], &parameters, &mut sums);
        assert_eq!(sums["w"], [10.0, 100.0, 10.0, 200.0]);
        assert_eq!(sums["n"], [4.0, 10.0]);
    }
}

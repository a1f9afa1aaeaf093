//! How the matrices of a forward pass are made of a checkpoint's parameters: products that read
//! the same input are one matrix, and each norm's weight is inside the matrix that follows it.

use crate::numerics::{Arithmetic, vectorised::vectorised};
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
    /// Of queries and keys the number of heads: in each head a row and its partner half a head away become
    /// neighbours, which a rotation turns together. Queries and keys alike, so no score changes.
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

    /// The derivative of folding: gradients of the parameters of the parts, of that of the matrix
    /// `[rows, inputs]`, which is empty where it took no part, times `unit`. `some` rows of a matrix that is one
    /// parameter without a norm have more. What goes to the norm is added to its sum in `norms`, row by row.
    pub fn turn_rows<A: Arithmetic>(
        &self,
        mut by_matrix: Vec<A>,
        some: Option<&SomeRows>,
        unit: f64,
        parameters: &FoldedValues<f32>,
        norms: &mut FoldedValues<f64>,
    ) -> FoldedValues<f32> {
        by_matrix.resize(
            self.parts.iter().map(|part| parameters[&part.weight].len()).sum(),
            A::default(),
        );
        let norm = self.norm.as_ref().map(|name| &parameters[name][..]);
        let mut by_norm = vec![0f64; self.inputs];
        let mut rest = by_matrix.chunks_exact_mut(self.inputs);
        for part in &self.parts {
            let values = &parameters[&part.weight];
            for (row, by_row) in part.order(values.len() / self.inputs).into_iter().zip(&mut rest) {
                let values = &values[row * self.inputs..][..self.inputs];
                let some = some.and_then(|some| some.get(&(row as u32)));
                // As sums that began with 0: never −0.
                let turn = |g: &mut A, factor: f64, more: f64| {
                    *g = A::of_f64(((0.0 + (*g).to_f64() * factor) + more) * unit);
                };
                vectorised(
                    #[inline(always)]
                    || match (norm, some) {
                        (Some(weights), _) => {
                            let by_norm = by_norm.iter_mut().zip(values);
                            for ((g, weight), (sum, value)) in
                                by_row.iter_mut().zip(weights).zip(by_norm)
                            {
                                *sum += (*g).to_f64() * f64::from(*value);
                                turn(g, f64::from(*weight), 0.0);
                            }
                        }
                        (None, Some(some)) => {
                            by_row.iter_mut().zip(some).for_each(|(g, more)| turn(g, 1.0, *more));
                        }
                        (None, None) => by_row.iter_mut().for_each(|g| turn(g, 1.0, 0.0)),
                    },
                );
            }
        }
        if let Some(name) = &self.norm {
            let sums = norms.entry(name.clone()).or_insert_with(|| vec![0.0; self.inputs]);
            sums.iter_mut().zip(by_norm).for_each(|(sum, g)| *sum += g);
        }
        let turned = A::rounded(by_matrix);
        if let [FoldedPart { weight, interleaved_heads: None, .. }] = &self.parts[..] {
            return BTreeMap::from([(weight.clone(), turned)]);
        }
        let mut rest = turned.chunks_exact(self.inputs);
        let in_order = |part: &FoldedPart| {
            let mut by_part = parameters[&part.weight].clone();
            for (row, by_row) in part.order(by_part.len() / self.inputs).into_iter().zip(&mut rest)
            {
                by_part[row * self.inputs..][..self.inputs].copy_from_slice(by_row);
            }
            (part.weight.clone(), by_part)
        };
        self.parts.iter().map(in_order).collect()
    }

    /// As [`Folded::turn_rows`], of the biases.
    pub fn turn_bias(
        &self,
        by_bias: &[f64],
        unit: f64,
        parameters: &FoldedValues<f32>,
    ) -> FoldedValues<f32> {
        let mut rest = by_bias.iter();
        let of_part = |part: &FoldedPart| {
            let name = part.bias.clone()?;
            let mut by_part = vec![0.0; parameters[&name].len()];
            for (row, g) in part.order(by_part.len()).into_iter().zip(&mut rest) {
                by_part[row] = ((0.0 + g) * unit) as f32;
            }
            Some((name, by_part))
        };
        self.parts.iter().filter_map(of_part).collect()
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
        let (gradient, mut norms) = (expected.map(f64::from), BTreeMap::new());
        let mut turned = folded.turn_rows(gradient.to_vec(), None, 1.0, &parameters, &mut norms);
        turned.extend(folded.turn_bias(&gradient, 1.0, &parameters));
        assert_eq!(turned, parameters);
        assert!(norms.is_empty());
        let zeros = parameters.iter().map(|(name, values)| (name.clone(), vec![0.0; values.len()]));
        let mut turned = folded.turn_rows(Vec::<f32>::new(), None, 1.0, &parameters, &mut norms);
        turned.extend(folded.turn_bias(&[], 1.0, &parameters));
        assert_eq!(turned, zeros.collect(), "what took no part");
    }

    /// Sums in f64 are rounded once at the end; those in f32 are turned where they lie.
    #[test]
    fn gradients_in_both_arithmetics_are_turned_to_the_same_bits() {
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
            let gradient = numbers(
                3 * parts.iter().map(|part| parameters[&part.weight].len() / 3).sum::<usize>(),
            );
            let some = SomeRows::from([(1, vec![0.25, -4.0, 1e-3])]);
            let some = (norm.is_none() && parts.len() == 1).then_some(&some);
            let wide: Vec<f64> = gradient.iter().map(|x| f64::from(*x)).collect();
            let (mut norms, mut wide_norms) = (BTreeMap::new(), BTreeMap::new());
            let turned = folded.turn_rows(gradient.clone(), some, 0.125, &parameters, &mut norms);
            let wide = folded.turn_rows(wide, some, 0.125, &parameters, &mut wide_norms);
            assert_eq!((&turned, &norms), (&wide, &wide_norms));
            assert_eq!((turned.len(), norms.len()), (parts.len(), usize::from(norm.is_some())));
            if norm.is_none() && parts.len() == 1 {
                let more = |at: usize| some.unwrap()[&1][at % 3] * f64::from(u8::from(at > 2));
                let expected = |at: usize| ((f64::from(gradient[at]) + more(at)) * 0.125) as f32;
                assert_eq!(turned["v"], (0..6).map(expected).collect::<Vec<f32>>());
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
        let mut norms = BTreeMap::new();
        let turned = folded.turn_rows(vec![1.0, 1.0, 1.0, 2.0], None, 1.0, &parameters, &mut norms);
        assert_eq!(turned["w"], [10.0, 100.0, 10.0, 200.0]);
        assert_eq!(norms["n"], [4.0, 10.0]);
    }
}

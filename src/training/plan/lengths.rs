//! Response lengths and what batching makes of them: decode iterations of a generation batch,
//! computed and padded tokens of micro-batches.

/// A sample of response lengths in tokens, ascending and not empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Lengths(Vec<u64>);

impl Lengths {
    /// A sample; `None` when it is empty.
    pub fn new(mut tokens: Vec<u64>) -> Option<Self> {
        tokens.sort_unstable();
        (!tokens.is_empty()).then_some(Self(tokens))
    }

    /// Every response of the same length.
    pub fn all(tokens: u64) -> Self {
        Self(vec![tokens])
    }

    /// Every length multiplied by `factor`, none beyond `most`.
    pub fn lengthened(&self, factor: f64, most: u64) -> Self {
        let longer =
            |&tokens: &u64| ((tokens as f64 * factor).round() as u64).min(most.max(tokens));
        Self(self.0.iter().map(longer).collect())
    }

    /// How many lengths there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Mean in tokens.
    pub fn mean(&self) -> f64 {
        self.0.iter().map(|&tokens| tokens as f64).sum::<f64>() / self.0.len() as f64
    }

    /// The length below which a share `quantile` of the sample lies.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let at = (quantile.clamp(0.0, 1.0) * self.0.len() as f64) as usize;
        self.0[at.min(self.0.len() - 1)]
    }

    /// Expected longest of `rows` draws from this sample.
    pub fn longest_of(&self, rows: f64) -> f64 {
        let n = self.0.len() as f64;
        let reached = |count: usize| libm::pow(count as f64 / n, rows.max(1.0));
        let weights = (0..self.0.len()).map(|index| reached(index + 1) - reached(index));
        self.0.iter().zip(weights).map(|(&tokens, weight)| tokens as f64 * weight).sum()
    }

    /// Decode iterations of `rows` responses in batches of at most `batch`: each batch runs
    /// until its longest response ends.
    pub fn iterations(&self, rows: f64, batch: f64) -> f64 {
        let full = (rows / batch).floor();
        let rest = rows - full * batch;
        let last = if rest > 0.0 { self.longest_of(rest) } else { 0.0 };
        full * self.longest_of(batch) + last
    }

    /// Tokens of one micro-batched pass over `rows` responses drawn from this sample, each
    /// behind `prompt` prompt tokens, in micro-batches of `micro`, longest first.
    pub fn pass(&self, rows: u64, prompt: f64, micro: u64) -> Pass {
        /// More rows than this are a scaled picture.
        const MOST_ROWS: u64 = 8_192;
        let shown = rows.min(MOST_ROWS);
        let scale = rows as f64 / shown.max(1) as f64;
        let micro = (micro as f64 / scale).max(1.0) as usize;
        let mut sizes: Vec<f64> = (0..shown)
            .map(|row| self.quantile(1.0 - (row as f64 + 0.5) / shown as f64) as f64)
            .collect();
        if let Some(first) = sizes.first_mut() {
            *first = self.longest_of(rows as f64).max(*first);
        }
        pass(&sizes, prompt, micro).times(scale)
    }
}

/// Tokens of forward passes over micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pass {
    /// Micro-batches.
    pub micro_batches: f64,
    /// Prompt and response tokens.
    pub tokens: f64,
    /// The same with every row as long as the longest of its micro-batch.
    pub padded_tokens: f64,
}

impl Pass {
    /// Every count multiplied; micro-batches of a scaled picture keep their number.
    fn times(self, factor: f64) -> Self {
        Self {
            micro_batches: self.micro_batches,
            tokens: self.tokens * factor,
            padded_tokens: self.padded_tokens * factor,
        }
    }

    /// The sum of two passes.
    pub fn plus(self, other: Self) -> Self {
        Self {
            micro_batches: self.micro_batches + other.micro_batches,
            tokens: self.tokens + other.tokens,
            padded_tokens: self.padded_tokens + other.padded_tokens,
        }
    }

    /// The same pass made `count` times.
    pub fn repeated(self, count: f64) -> Self {
        Self {
            micro_batches: self.micro_batches * count,
            tokens: self.tokens * count,
            padded_tokens: self.padded_tokens * count,
        }
    }
}

/// One pass over responses of the given lengths, descending, `micro` rows at a time. The last
/// token of a row is predicted but not fed.
pub fn pass(descending: &[f64], prompt: f64, micro: usize) -> Pass {
    let fed = |response: f64| (prompt + response - 1.0).max(0.0);
    let mut pass = Pass::default();
    for rows in descending.chunks(micro.max(1)) {
        pass.micro_batches += 1.0;
        pass.tokens += rows.iter().map(|&response| fed(response)).sum::<f64>();
        pass.padded_tokens += rows.len() as f64 * fed(rows[0]);
    }
    pass
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_one_is_the_mean_and_of_many_is_the_maximum() {
        let lengths = Lengths::new(vec![10, 40, 20, 30]).unwrap();
        assert_eq!(lengths.mean(), 25.0);
        assert!((lengths.longest_of(1.0) - 25.0).abs() < 1e-12);
        // Of two draws: maximum 10, 20, 30, 40 with 1, 3, 5, 7 sixteenths.
        assert!((lengths.longest_of(2.0) - (10.0 + 60.0 + 150.0 + 280.0) / 16.0).abs() < 1e-9);
        assert!((lengths.longest_of(1e6) - 40.0).abs() < 1e-9);
        assert_eq!((lengths.quantile(0.0), lengths.quantile(1.0)), (10, 40));
        assert_eq!(Lengths::new(vec![]), None);
    }

    #[test]
    fn lengthened_responses_stay_within_the_limit() {
        let lengths = Lengths::new(vec![8, 100, 150, 160]).unwrap();
        assert_eq!(lengths.lengthened(1.25, 160), Lengths(vec![10, 125, 160, 160]));
    }

    #[test]
    fn batches_run_until_their_longest_response_ends() {
        assert_eq!(Lengths::all(7).iterations(20.0, 8.0), 21.0);
        assert_eq!(Lengths::all(7).iterations(16.0, 8.0), 14.0);
    }

    #[test]
    fn a_pass_counts_fed_and_padded_tokens() {
        let counted = pass(&[9.0, 5.0, 3.0], 4.0, 2);
        let expected = Pass { micro_batches: 2.0, tokens: 12.0 + 8.0 + 6.0, padded_tokens: 30.0 };
        assert_eq!(counted, expected);
        let uniform = Lengths::all(9).pass(6, 4.0, 4);
        assert_eq!(uniform, Pass { micro_batches: 2.0, tokens: 72.0, padded_tokens: 72.0 });
    }

    #[test]
    fn a_pass_of_very_many_rows_is_a_scaled_picture() {
        let huge = Lengths::all(9).pass(1 << 40, 4.0, 1 << 20);
        assert!((huge.tokens / (12.0 * (1u64 << 40) as f64) - 1.0).abs() < 1e-9, "{huge:?}");
        assert!(huge.micro_batches >= 1.0);
    }
}

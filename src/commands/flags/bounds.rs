//! Ranges of shared flags: clap names flag, value and range, and the exit code is that of usage.

use crate::commands::exit::Usage;
use crate::experiment::{Sampling, diagnose, validate};
use crate::policy::{Request, Response};
use clap::builder::RangedU64ValueParser;

/// Prompts, responses, samples or tokens of a flag.
const MOST: u64 = 1 << 24;

pub fn threads() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=validate::MOST_THREADS)
}

/// `--temperature` (0 is greedy), `--top-p` and `--top-k`. Errors: a value out of range, with its flag.
pub fn sampling(temperature: f64, top_p: f64, top_k: i64) -> Result<Sampling, Usage> {
    if !(temperature >= 0.0 && temperature.is_finite()) {
        return Err(Usage(format!("--temperature must be at least 0, got {temperature}")));
    }
    if temperature > 0.0 {
        divides(temperature)?;
    }
    if !(top_p > 0.0 && top_p <= 1.0) {
        return Err(Usage(format!("--top-p must be in (0, 1], got {top_p}")));
    }
    let refused = |_| Usage(format!("--top-k {}", diagnose::negative_top_k(top_k)));
    let top_k = u64::try_from(top_k).map_err(refused)?;
    Ok(Sampling { temperature, top_p, top_k, log_probs: None })
}

pub fn divides(temperature: f64) -> Result<(), Usage> {
    const LEAST: f64 = 1e-30;
    if temperature >= LEAST {
        return Ok(());
    }
    Err(Usage(format!(
        "--temperature {temperature:?} is too small to divide logits by; take at least {LEAST:?} (where responses are \
         sampled, 0 is greedy)"
    )))
}

/// At least 1: samples of a prompt, rows of a batch, tokens.
pub fn count() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=MOST)
}

/// Responses in memory until they are printed.
const MOST_BYTES: u128 = 16 << 30;

/// Checks memory before anything is allocated. `tokens`: the longest response; each token has an id
/// and a log-prob, and a response its own overhead.
/// Errors: more than 16 GiB, with the flag, its value and the largest possible one.
pub fn held(flag: &str, samples: u64, prompts: u64, tokens: u64) -> Result<(), Usage> {
    const TOKEN: u128 = (size_of::<u32>() + size_of::<f64>()) as u128;
    const EACH: u128 =
        (size_of::<(u64, u64)>() + size_of::<Request>() + size_of::<Response>()) as u128;
    let a_sample = u128::from(prompts) * (EACH + TOKEN * u128::from(tokens));
    let bytes = u128::from(samples).saturating_mul(a_sample);
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let responses = u128::from(samples).saturating_mul(prompts.into());
    let [gib, most_gib] = [bytes, MOST_BYTES].map(|bytes| bytes >> 30);
    let most = MOST_BYTES / a_sample;
    Err(Usage(format!(
        "{flag} {samples} asks for {responses} responses of up to {tokens} tokens, which may take {gib} GiB; at \
         most {most_gib} GiB are held, which is {flag} {most}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_settings_of_the_sampler_are_refused_by_value() {
        let refused = |temperature, top_p, top_k| {
            sampling(temperature, top_p, top_k).map_err(|error| error.to_string()).err()
        };
        assert_eq!(refused(0.0, 1.0, 0), None);
        let tiny = refused(1e-320, 1.0, 0).unwrap();
        assert!(tiny.contains("too small to divide logits by; take at least 1e-30"), "{tiny}");
        assert_eq!(refused(1e-30, 1.0, 0), None);
        let temperature = refused(-1.0, 1.0, 0).unwrap();
        assert_eq!(temperature, "--temperature must be at least 0, got -1");
        let told = "--top-k must be at least 0, got -1; 0 keeps all tokens (vLLM's and verl's -1)";
        assert_eq!(refused(1.0, 1.0, -1).unwrap(), told);
    }

    #[test]
    fn what_can_be_held_is_a_product_of_prompts_samples_and_tokens() {
        let refused = |samples, prompts, tokens| {
            held("-n", samples, prompts, tokens).map_err(|error| error.to_string()).err()
        };
        assert_eq!(refused(32, 30, 20_480), None);
        let told = refused(1 << 24, 2, 160).unwrap();
        let most: u64 = told.rsplit(' ').next().unwrap().parse().unwrap();
        let first = "-n 16777216 asks for 33554432 responses of up to 160 tokens";
        assert!(told.starts_with(first), "{told}");
        assert_eq!((refused(most, 2, 160), refused(most + 1, 2, 160).is_some()), (None, true));
        assert!(refused(u64::MAX, u64::MAX, u64::MAX >> 8).is_some());
    }
}

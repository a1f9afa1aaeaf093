//! A list of seeds, as one flag.

use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seeds(pub Vec<u64>);

/// `1,2,3`, `1..5`, `1,4..6`. Errors: a part that is no seed and no range, or a seed that is repeated.
pub fn seeds(text: &str) -> Result<Seeds, String> {
    const MOST: u64 = 1024;
    let number = |text: &str| {
        let text = text.trim();
        text.parse::<u64>().map_err(|_| format!("{text:?} is not a seed; write 1,2,3 or 1..5"))
    };
    let mut seeds: Vec<u64> = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
        if first > last {
            return Err(format!("{} runs backwards; write {last}..{first}", part.trim()));
        }
        if last - first >= MOST {
            return Err(format!("{} has more than {MOST} seeds", part.trim()));
        }
        seeds.extend(first..=last);
    }
    let distinct: BTreeSet<&u64> = seeds.iter().collect();
    if distinct.len() < seeds.len() {
        return Err("a seed is given twice".to_string());
    }
    Ok(Seeds(seeds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_lists_and_ranges_with_their_end() {
        assert_eq!(seeds("1,2,3"), Ok(Seeds(vec![1, 2, 3])));
        assert_eq!(seeds("1..3"), Ok(Seeds(vec![1, 2, 3])));
        assert_eq!(seeds("7, 1..=2"), Ok(Seeds(vec![7, 1, 2])));
        for text in ["", "x", "1,1", "3..1", "1..3,2", "0..18446744073709551615", "-1"] {
            assert!(seeds(text).is_err(), "{text}");
        }
        assert_eq!(seeds("7,3..1").unwrap_err(), "3..1 runs backwards; write 1..3");
        assert_eq!(seeds("1..2000").unwrap_err(), "1..2000 has more than 1024 seeds");
    }
}

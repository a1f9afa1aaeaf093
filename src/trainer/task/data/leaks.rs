//! Questions that stand in two sets, however they are written, and those that look alike.

use crate::task::data;
use regex::Regex;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::decompose_compatible;

/// Words of a sequence that two questions may have in common.
pub const SEQUENCE: usize = 8;

/// Questions with fewer words are compared as a whole only.
const FEWEST: usize = 3;

/// A sequence that stands in more questions than this is a phrase of the set and says nothing.
const MOST_SHARED: usize = 64;

/// From this share of the shorter question's sequences on, two questions look alike.
pub const ALIKE: f64 = 0.5;

/// Words, numbers and each sign of a formula, without case, spacing, punctuation and LaTeX's dressing.
pub fn words(question: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut is_command = false;
    let mut end = |word: &mut String, is_command: &mut bool| {
        let plain = match (word.as_str(), *is_command) {
            ("" | "left" | "right" | "text" | "displaystyle", true) | ("", false) => "",
            ("dfrac" | "tfrac", true) => "frac",
            (word, _) => word,
        };
        if !plain.is_empty() {
            words.push(plain.to_string());
        }
        word.clear();
        *is_command = false;
    };
    let question = folded(question);
    let mut rest = question.chars().flat_map(char::to_lowercase).peekable();
    while let Some(c) = rest.next() {
        let is_in_number = word.ends_with(|c: char| c.is_ascii_digit())
            && rest.peek().is_some_and(char::is_ascii_digit);
        let has_thousands_behind =
            || rest.clone().take_while(char::is_ascii_digit).take(4).count() == 3;
        match c {
            c if c.is_alphanumeric() => word.push(c),
            '.' if is_in_number => word.push(c),
            ',' if is_in_number && has_thousands_behind() => {}
            '\\' => {
                end(&mut word, &mut is_command);
                is_command = rest.peek().is_some_and(|c| c.is_alphanumeric());
                if !is_command {
                    rest.next();
                }
            }
            _ => {
                end(&mut word, &mut is_command);
                if !is_dressing(c) {
                    word.push(if "−–‐".contains(c) { '-' } else { c });
                    end(&mut word, &mut is_command);
                }
            }
        }
    }
    end(&mut word, &mut is_command);
    words
}

/// Full-width forms, ligatures and accents in one form (NFKC), but for `²`, `ⁿ` and `½`: 5² is not 52.
fn folded(question: &str) -> Cow<'_, str> {
    if question.is_ascii() {
        return Cow::Borrowed(question);
    }
    question.chars().flat_map(in_parts).nfc().collect::<String>().into()
}

fn in_parts(c: char) -> Vec<char> {
    static OF_FORMULAS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[\p{No}\u2070-\u209f]").expect("a pattern"));
    if OF_FORMULAS.is_match(c.encode_utf8(&mut [0; 4])) {
        return vec![c];
    }
    let mut parts = Vec::new();
    decompose_compatible(c, |part| parts.push(part));
    parts
}

fn is_dressing(c: char) -> bool {
    static PUNCTUATION: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[\p{P}&&[^\x00-\x7f–‐·•′″‖⌈⌉⌊⌋⟨⟩]]").expect("a pattern"));
    if c.is_ascii() {
        c.is_ascii_whitespace() || ".,;:?'\"$_{}~`".contains(c)
    } else {
        c.is_whitespace() || PUNCTUATION.is_match(c.encode_utf8(&mut [0; 4]))
    }
}

/// SHA-256 of [`words`]; two questions with the same one are the same problem.
pub fn identity(question: &str) -> [u8; 32] {
    match words(question).join(" ") {
        words if words.is_empty() => data::identity(question),
        words => data::identity(&words),
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alike {
    pub question: usize,
    /// Place of the second set's question that it has most in common with.
    pub other: usize,
    /// Share of the shorter one's sequences of [`SEQUENCE`] words that the other has too; fewer words are one sequence.
    pub share: f64,
}

/// Each of `questions` that looks like one of `others`. Time grows with the number of words, times at most 64.
pub fn alike<T: AsRef<str>>(questions: &[T], others: &[T]) -> Vec<Alike> {
    let hashed = |question: &T| words(question.as_ref()).iter().map(|word| hash(word)).collect();
    let [questions, others] =
        [questions, others].map(|all| all.iter().map(hashed).collect::<Vec<Vec<u64>>>());
    let is_short = |length: &usize| (FEWEST..SEQUENCE).contains(length);
    let [short_questions, short_others] = [&questions, &others]
        .map(|all| all.iter().map(Vec::len).filter(is_short).collect::<BTreeSet<usize>>());
    let mut index: BTreeMap<(usize, u64), Vec<usize>> = BTreeMap::new();
    let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (place, other) in others.iter().enumerate() {
        for length in lengths(other.len(), &short_questions) {
            for sequence in sequences(other, length) {
                *counts.entry((place, length)).or_default() += 1;
                let places = index.entry((length, sequence)).or_default();
                if places.len() <= MOST_SHARED {
                    places.push(place);
                }
            }
        }
    }
    let mut pairs = Vec::new();
    for (question, words) in questions.iter().enumerate() {
        let mut best: Option<Alike> = None;
        for length in lengths(words.len(), &short_others) {
            let own = sequences(words, length);
            let mut shared: BTreeMap<usize, usize> = BTreeMap::new();
            let known = own.iter().filter_map(|sequence| index.get(&(length, *sequence)));
            for place in known.filter(|places| places.len() <= MOST_SHARED).flatten() {
                *shared.entry(*place).or_default() += 1;
            }
            for (other, count) in shared {
                // Each pair at one length: that of the shorter one where it has few words.
                let shorter = words.len().min(others[other].len());
                if length != shorter.min(SEQUENCE) {
                    continue;
                }
                let all = own.len().min(counts[&(other, length)]);
                let share = count as f64 / all as f64;
                if share >= ALIKE && best.is_none_or(|best| share > best.share) {
                    best = Some(Alike { question, other, share });
                }
            }
        }
        pairs.extend(best);
    }
    pairs
}

/// Lengths of the sequences of a question with so many words, where others are as short as these.
fn lengths(words: usize, short: &BTreeSet<usize>) -> impl Iterator<Item = usize> {
    let usual = words.min(SEQUENCE);
    let usual = (usual >= FEWEST).then_some(usual);
    short.range(..usual.unwrap_or(0)).copied().chain(usual)
}

fn sequences(words: &[u64], length: usize) -> Vec<u64> {
    let joined = |words: &[u64]| {
        words.iter().fold(0_u64, |sum, word| {
            (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        })
    };
    let mut sequences: Vec<u64> = words.windows(length).map(joined).collect();
    sequences.sort_unstable();
    sequences.dedup();
    sequences
}

fn hash(word: &str) -> u64 {
    let digest = Sha256::digest(word);
    u64::from_be_bytes(digest[..8].try_into().expect("eight of 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_spacing_punctuation_and_dressing_do_not_make_another_question_but_signs_and_numbers_do()
    {
        let same = |a: &str, b: &str| identity(a) == identity(b);
        assert!(same("Find $\\frac{1}{2} + 1$.", "  find \\dfrac{1}{2}+1"));
        assert!(same("What is 1,000 − 2?", "WHAT IS 1000 - 2"));
        assert!(same("Let \\left( x \\right) \\, be.", "let (x) be"));
        assert!(same("求「１＋１」？", "求“1+1”。"));
        assert!(same("Où est l’été…", "OU\u{300} EST L'E\u{301}TE\u{301}"));
        for (a, b) in [
            ("1+1?", "1-1?"),
            ("3.5", "35"),
            ("5!", "5"),
            ("2(3+4)", "2*3+4"),
            ("?", "!"),
            ("5²", "52"),
            ("2ⁿ", "2n"),
            ("⌊x⌋", "⌈x⌉"),
            ("a·b", "ab"),
            ("gcd(1,23)", "gcd(12,3)"),
            ("3,5", "35"),
            ("1,2345", "12,345"),
        ] {
            assert!(!same(a, b), "{a} {b}");
        }
    }

    #[test]
    fn a_cut_or_changed_question_is_found_and_another_one_is_not() {
        let known = "A train leaves the station at noon and travels at 60 miles per hour for 3 hours. How far does it go?";
        let others = ["What is 17 + 25?", known, "Find the sum of all primes below 100."];
        let questions = [
            "A train leaves the station at noon and travels at 60 miles per hour",
            "Tom says: a train leaves the station at noon and travels at 60 miles per hour for 3 hours. How far?",
            "what is 17 +",
            "what is 18 + 25",
            "Find the product of all primes below 50, and then add the digits of it.",
            "Ann asked me yesterday: what is 17 + 25?",
        ];
        let pairs: Vec<(usize, usize)> =
            alike(&questions, &others).iter().map(|alike| (alike.question, alike.other)).collect();
        assert_eq!(pairs, [(0, 1), (1, 1), (2, 0), (5, 0)]);
    }

    #[test]
    fn a_phrase_of_the_whole_set_makes_nothing_alike() {
        let phrase = "Solve the following problem and give the answer as an integer without any units please";
        let others: Vec<String> = (0..100).map(|n| format!("{phrase}: {n} apples")).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        assert_eq!(alike(&[&*format!("{phrase}: 777 pears")], &others), []);
    }
}

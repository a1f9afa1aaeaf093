//! Generated tasks: problems, solutions that a base policy is pretrained on, and how a response was written.

pub mod characters;
pub mod checked_chains;
pub mod mini_aime;
pub mod signed_sums;
pub mod word_problems;

use crate::algorithm::Problem;
use crate::base::Purpose;
use crate::base::rng::{self, Id, Stream};
use crate::experiment::{ChainsVariant, Data, MiniAimeVariant, diagnose, sets};
use crate::task::{DataSets, TaskError};
use std::collections::{BTreeMap, BTreeSet};

/// What a stage of pretraining says of the ways of writing, by name.
pub type Shares = BTreeMap<String, f64>;

/// A question with a solution, for pretraining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub question: String,
    /// Without a stop token.
    pub solution: String,
    pub ends: bool,
}

impl Written {
    /// A solution that is longer than `max_characters` is cut there and has no end.
    pub fn cut(question: String, solution: &str, max_characters: usize) -> Self {
        match solution.char_indices().nth(max_characters) {
            None => Self { question, solution: solution.to_string(), ends: true },
            Some((at, _)) => Self { question, solution: solution[..at].to_string(), ends: false },
        }
    }
}

/// What a base policy is pretrained on.
pub trait Solutions: Sync {
    /// Every character of a question or a solution, in the order of the tokens.
    fn characters(&self) -> String;

    /// The names of the shares, each of which a stage states.
    fn shares(&self) -> &'static [&'static str];

    /// What is wrong with the values of the shares, none of which is missing or unknown: each is a probability, where a
    /// task says nothing else. Errors: the rule and what was found.
    fn check(&self, shares: &Shares) -> Result<(), String> {
        match shares.iter().find(|(_, share)| !(0.0..=1.0).contains(*share)) {
            Some((name, share)) => Err(format!("must be from 0 to 1, got {name} = {share}")),
            None => Ok(()),
        }
    }

    /// A function of its arguments, never of an evaluated question. A solution has at most `max_characters`, or ends.
    fn write(&self, shares: &Shares, max_characters: usize, draws: &mut Stream) -> Written;
}

pub trait Embedded: Solutions {
    /// The same on every machine, disjoint by question.
    fn sets(&self) -> DataSets;

    /// How each (question, response) is written: `style_NAME_share` in [0, 1], and more. Absent without a case.
    fn measures(&self, responses: &[(&str, &str)]) -> BTreeMap<String, f64>;
}

/// The task of generated data; `None` for files.
pub fn of(data: &Data) -> Option<Box<dyn Embedded>> {
    Some(match data {
        Data::MiniAime { variant } => Box::new(mini_aime::MiniAime(*variant)),
        Data::CheckedChains { variant } => Box::new(checked_chains::CheckedChains(*variant)),
        Data::SignedSums {} => Box::new(signed_sums::SignedSums),
        Data::WordProblems {} => Box::new(word_problems::WordProblems),
        Data::Files { .. } => return None,
    })
}

/// The generated data of each kind, in its usual form.
pub const KINDS: [(&str, Data); 4] = [
    (sets::MINI_AIME, Data::MiniAime { variant: MiniAimeVariant::Standard }),
    (sets::CHECKED_CHAINS, Data::CheckedChains { variant: ChainsVariant::Mixed }),
    (sets::SIGNED_SUMS, Data::SignedSums {}),
    (sets::WORD_PROBLEMS, Data::WordProblems {}),
];

/// The task of a kind. Errors: [`TaskError::Kind`] when there is none of this name.
pub fn named(name: &str) -> Result<Box<dyn Embedded>, TaskError> {
    let task = KINDS.iter().find(|(kind, _)| *kind == name).and_then(|(_, data)| of(data));
    task.ok_or_else(|| TaskError::Kind { name: name.to_string(), known: known(name) })
}

pub fn known(wrong: &str) -> String {
    diagnose::known(wrong, "there are", &KINDS.map(|(kind, _)| kind.to_string()))
}

fn between(stream: &mut Stream, min: u64, max: u64) -> u64 {
    min + stream.below(max - min + 1)
}

/// The shares by name, in the order of the names. They are checked before anything is written.
fn shares_of<const N: usize>(shares: &Shares, names: [&str; N]) -> [f64; N] {
    names.map(|name| shares.get(name).copied().unwrap_or(f64::NAN))
}

fn check_relative(shares: &[f64]) -> Result<(), String> {
    let sums = shares.iter().all(|share| *share >= 0.0 && share.is_finite())
        && shares.iter().sum::<f64>() > 0.0;
    if sums {
        return Ok(());
    }
    Err(format!("must be at least 0 with a sum above 0, got {shares:?}"))
}

/// The index that a uniform number draws by shares that are relative to their sum.
fn drawn_by_share(shares: &[f64], uniform: f64) -> usize {
    let total: f64 = shares.iter().sum();
    let mut mass = 0.0;
    let chosen = shares.iter().position(|share| {
        mass += share / total;
        uniform < mass
    });
    chosen.unwrap_or(shares.len() - 1)
}

#[derive(Debug, Clone, Copy)]
struct SetShape<'a> {
    name: &'a str,
    problems: usize,
    digits: usize,
}

struct DrawnProblem {
    question: String,
    answer: String,
    tags: Vec<String>,
}

/// Problems with their tags by id. Problem `i` is a function of (seed, set, i), but a question that is `taken` is drawn
/// again; the set's questions are taken then.
fn draw_set(
    set: SetShape,
    seed: u64,
    taken: &mut BTreeSet<String>,
    draw: impl Fn(&mut Stream) -> DrawnProblem,
) -> (Vec<Problem>, BTreeMap<String, Vec<String>>) {
    let SetShape { name, problems, digits } = set;
    let problem = |index: u64| {
        let attempt = |attempt: u64| {
            let ids = [Id::from(name), Id::from(index), Id::from(attempt)];
            draw(&mut rng::stream(seed, Purpose::Problems, &ids))
        };
        let fresh = (0..).map(attempt).find(|drawn| taken.insert(drawn.question.clone()));
        let DrawnProblem { question, answer, tags } =
            fresh.expect("the sequence of attempts is endless");
        let id = format!("{name}/{index:0digits$}");
        (Problem { id: id.clone(), question, answer }, (id, tags))
    };
    (0..problems as u64).map(problem).unzip()
}

/// The usual sets of these sizes, drawn in this order: `test` and `dev`, with tags, and what is trained on.
fn usual_sets(
    test: &str,
    sizes: [usize; 3],
    seed: u64,
    draw: impl Fn(&str, &mut Stream) -> DrawnProblem,
) -> DataSets {
    let mut taken = BTreeSet::new();
    let mut set = |name, problems| {
        let shape = SetShape { name, problems, digits: 4 };
        draw_set(shape, seed, &mut taken, |stream| draw(name, stream))
    };
    let (tested, tags_of_test) = set(test, sizes[0]);
    let (dev, tags_of_dev) = set(sets::DEV, sizes[1]);
    let (train, _) = set(sets::TRAIN, sizes[2]);
    let tags = [(test.to_string(), tags_of_test), (sets::DEV.to_string(), tags_of_dev)].into();
    DataSets { train, dev, tests: vec![(test.to_string(), tested)], tags, ..DataSets::default() }
}

fn evaluated(sets: &DataSets) -> BTreeSet<String> {
    let problems = sets.evaluated().flat_map(|(_, problems)| problems);
    problems.map(|problem| problem.question.clone()).collect()
}

fn draw_outside<P>(
    held_out: &BTreeSet<String>,
    mut draw: impl FnMut() -> P,
    question: impl Fn(&P) -> String,
) -> (P, String) {
    loop {
        let problem = draw();
        let asked = question(&problem);
        if !held_out.contains(&asked) {
            return (problem, asked);
        }
    }
}

fn measured<const N: usize>(values: [(&str, Option<f64>); N]) -> BTreeMap<String, f64> {
    values.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
}

/// The share of cases that hold; `None` without a case.
fn share(cases: impl Iterator<Item = bool>) -> Option<f64> {
    let cases = Vec::from_iter(cases);
    let held = cases.iter().filter(|case| **case).count();
    (!cases.is_empty()).then(|| held as f64 / cases.len() as f64)
}

//! Columns that count steps.

pub const STEPS: [&str; 10] = [
    "step",
    CALLS,
    "Step",
    "steps",
    "global_step",
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "update",
    "iteration",
];

/// W&B's count of calls of its log, which are more than the steps where a step is logged in parts.
pub const CALLS: &str = "_step";

const GLOBAL_STEPS: [&str; 4] =
    ["train/global_step", "training/global_step", "trainer/global_step", "global_step"];

#[derive(Clone, Copy)]
pub struct GlobalSteps {
    pub name: &'static str,
    pub is_whole: bool,
}

impl GlobalSteps {
    pub fn order(self) -> [&'static str; 2] {
        if self.is_whole { [self.name, CALLS] } else { [CALLS, self.name] }
    }
}

pub fn global_steps<R>(
    rows: &[R],
    number: impl Fn(&R, &str) -> Option<f64>,
    metric: Option<&str>,
) -> Option<GlobalSteps> {
    let differs = |row: &R, name: &str| {
        number(row, CALLS).zip(number(row, name)).is_some_and(|(calls, steps)| calls != steps)
    };
    let metric = metric.filter(|it| rows.iter().any(|row| number(row, it).is_some()));
    let is_of_metric = |row: &&R| metric.is_none_or(|metric| number(row, metric).is_some());
    let differing = GLOBAL_STEPS.into_iter().filter(|name| rows.iter().any(|it| differs(it, name)));
    let differing = differing.map(|name| {
        let is_whole = rows.iter().filter(is_of_metric).all(|row| number(row, name).is_some());
        GlobalSteps { name, is_whole }
    });
    differing.reduce(|best, next| if best.is_whole { best } else { next })
}

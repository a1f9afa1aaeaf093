//! Names of arms, sets and metrics that are asked about. What is misspelt has no value in any run, which would read as
//! a gap.

use crate::experiment::{Arm, diagnose};
use crate::records::metrics;
use crate::study::claims::{Claims, Test};
use crate::study::{Metric, Statistic, collection::Study};

pub fn problem(claims: &Claims, study: &Study) -> Option<String> {
    claims.claims.iter().find_map(|claim| {
        claim.parts.iter().find_map(|part| {
            let problem = of_test(&part.test, study)?;
            Some(format!("claim `{}`, part `{}`: {problem}", claim.id, part.id))
        })
    })
}

fn of_test(test: &Test, study: &Study) -> Option<String> {
    let ids = test.arms();
    if let Some(problem) = ids.iter().find_map(|id| unknown_arm(id, study)) {
        return Some(problem);
    }
    let pooled = ids.iter().flat_map(|id| study.declaration.arms_of(id));
    let arms: Vec<(&str, &Arm)> = pooled.filter_map(|id| Some((id, study.arm(id)?))).collect();
    test.metrics().into_iter().find_map(|metric| {
        let set = metric.sets().iter().find_map(|set| unevaluated(metric, set, &arms));
        set.or_else(|| of_metric(metric).iter().find_map(|name| unknown_metric(name, &arms)))
    })
}

fn unknown_arm(id: &str, study: &Study) -> Option<String> {
    if study.arm(id).is_some() || study.declaration.pool(id).is_some() {
        return None;
    }
    let ids: Vec<String> = study.arms().map(|(id, _)| id).collect();
    let known = diagnose::known(id, "its arms are", &ids);
    Some(format!("the study has no arm `{id}`; {known}"))
}

pub fn unevaluated(metric: &Metric, set: &String, arms: &[(&str, &Arm)]) -> Option<String> {
    let is_reward = metric.statistic() == Some(Statistic::RewardMean);
    arms.iter().find_map(|(id, arm)| {
        let sets = arm.experiment.set_names();
        if !sets.contains(set) {
            let known = diagnose::known(set, "it evaluates", &sets);
            return Some(format!("`{id}` evaluates no set {set:?}; {known}"));
        }
        let has_none = is_reward && arm.experiment.grading_of(set).program().is_none();
        has_none.then(|| {
            format!(
                "no program grades {set:?} of `{id}`, so it has no mean reward; compare avg-at-k"
            )
        })
    })
}

pub fn of_metric(metric: &Metric) -> Vec<&str> {
    match metric {
        Metric::Metric { name, .. } | Metric::Contrast { name, .. } => vec![name],
        Metric::Correlation { x, y, .. } => vec![x, y],
        _ => Vec::new(),
    }
}

pub fn unknown_metric(name: &str, arms: &[(&str, &Arm)]) -> Option<String> {
    let is_ours = arms.iter().any(|(_, arm)| arm.experiment.engine.is_native());
    if !is_ours || metrics::of(name).is_some() {
        return None;
    }
    let names: Vec<String> = metrics::all().iter().map(|it| it.name.clone()).collect();
    let nearest = diagnose::nearest(name, &names);
    let hint = nearest.map_or(String::new(), |name| format!("; did you mean {name}?"));
    Some(format!("there is no metric {name:?}{hint}"))
}

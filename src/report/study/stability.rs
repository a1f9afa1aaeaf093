//! What training did on the way, by arm, and the runs that collapsed.

use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::study::context;
use crate::report::{Context, text};
use crate::study::stability::{self, ArmStability, Collapse, Largest};

/// For the report, and for the appendix.
pub fn sections(context: &Context) -> (Section, Section) {
    let arms = &context.analysis.stability;
    let (table, falls) = (Block::Folded(table(context, arms)), falls(context, arms));
    let summary = Block::List(summary(context, arms));
    let title = "Did training stay stable?";
    let name = "stability".to_owned();
    let section = |blocks| Section { name: name.clone(), ..Section::new(&name, title, blocks) };
    if arms.len() > context::MOST_OPEN_ROWS {
        let blocks = [table].into_iter().chain(falls).collect();
        return (section(vec![summary]), section(blocks));
    }
    (section(vec![summary, table]), section(falls.into_iter().collect()))
}

fn summary(context: &Context, arms: &[ArmStability]) -> Vec<String> {
    let sum = |of: fn(&ArmStability) -> u64| arms.iter().map(of).sum::<u64>();
    let runs = sum(|arm| arm.runs);
    let recorded: u64 = arms.iter().filter(|arm| arm.ratio.is_some()).map(|arm| arm.runs).sum();
    let falls = sum(|arm| arm.falls.len() as u64);
    let ratios = if recorded == 0 {
        "No run recorded its largest importance ratio.".to_owned()
    } else {
        format!(
            "The importance ratio of the loss went above {} in {} of {recorded} runs that recorded it.{}",
            stability::HIGH_RATIO,
            sum(|arm| arm.high_ratios),
            ratios_of_responses(context, arms)
        )
    };
    let set = text::visible(&context.analysis.declaration.curve_set);
    let falls = format!(
        "From one evaluation on {set} to the next, accuracy fell by more than {} points {}.",
        fall_points(),
        times_in(falls, runs)
    );
    let collapsed = collapsed(context).unwrap_or_else(|| "No run collapsed.".to_owned());
    let definition = format!(
        "Collapsed means accuracy more than {:.0} points and more than {:.0} % below the highest that the run had reached, \
         whether or not it comes back (chosen after the first five studies were read), or below {:.0} % of the highest by \
         more than {:.0} standard errors of the two evaluations, or a loss or gradient that is not finite.",
        100.0 * stability::COLLAPSE_SHARE,
        100.0 * stability::COLLAPSE_PART,
        100.0 * stability::COLLAPSE_LEFT,
        stability::COLLAPSE_ERRORS
    );
    vec![format!("{ratios} {falls}"), format!("{collapsed} {definition}")]
}

fn times_in(falls: u64, runs: u64) -> String {
    let runs = text::counted(runs as usize, "run", "runs");
    if falls == 0 {
        return format!("in none of {runs}");
    }
    format!("{} in {runs}", text::counted(falls as usize, "time", "times"))
}

fn fall_points() -> String {
    text::points(stability::FALL).trim_end_matches(".0").to_owned()
}

fn ratios_of_responses(context: &Context, arms: &[ArmStability]) -> String {
    let has_one = |arm: &&ArmStability| {
        let mut cells = context.study.cells_of(&arm.arm).into_iter();
        cells.any(|cell| cell.experiment.dapo.rules().has_response_ratio())
    };
    let labels = arms.iter().filter(has_one).map(|arm| context.label_in_study(&arm.arm));
    let labels = text::joined(labels, ", ");
    if labels.is_empty() {
        return labels;
    }
    format!(
        " Under {labels} it is that of a response, a mean over its tokens, and does not compare with that of a token."
    )
}

/// Names collapsed and diverged runs, in a sentence those that have a score; `None` without one.
pub fn collapsed(context: &Context) -> Option<String> {
    let set = &context.analysis.declaration.primary_set;
    let (mut counted, mut scoreless) = (Vec::new(), Vec::new());
    for arm in &context.analysis.stability {
        let label = context.label_in_study(&arm.arm);
        counted.extend(arm.collapsed.iter().map(|run| named(&label, run)));
        let cells = context.study.cells_of(&arm.arm);
        for seed in &arm.not_finite {
            let cell = cells.iter().find(|cell| cell.seed == *seed);
            let score = cell.and_then(|cell| cell.last_evaluation(set));
            let runs = if score.is_some() { &mut counted } else { &mut scoreless };
            runs.push(format!("{label}, seed {seed} (not finite)"));
        }
    }
    unstable(&counted, &scoreless)
}

fn unstable(counted: &[String], scoreless: &[String]) -> Option<String> {
    let said = |runs: &[String], [one, several]: [&str; 2]| {
        let what = if runs.len() == 1 { one } else { several };
        (!runs.is_empty()).then(|| format!("{} {what}: {}.", runs.len(), runs.join("; ")))
    };
    let collapsed =
        ["run collapsed, and counts like the others", "runs collapsed, and count like the others"];
    let diverged = [
        "run diverged before it had a score, does not count, and no score of its arm is compared",
        "runs diverged before they had a score, do not count, and no score of their arms is compared",
    ];
    let sentences = [said(counted, collapsed), said(scoreless, diverged)].into_iter().flatten();
    let sentences = text::joined(sentences, " ");
    (!sentences.is_empty()).then_some(sentences)
}

fn named(label: &str, run: &Collapse) -> String {
    let [highest, lowest, last] = [run.highest, run.lowest, run.last].map(text::points);
    let end = if last == lowest { String::new() } else { format!(", {last} % at the end") };
    format!("{label}, seed {} (from {highest} to {lowest} %{end})", run.seed)
}

fn table(context: &Context, arms: &[ArmStability]) -> Table {
    let caption = "The largest values of an arm, each with the seed of its run: importance ratio of the loss (after \
                   dapo.log_ratio_clamp), mean KL of a rollout step by that ratio, gradient norm before clipping; falls of \
                   accuracy, rollout steps at the cap of rounds, and runs that collapsed.";
    let columns = format!(
        "arm | runs # | ratio # | ratio above {} # | KL # | gradient norm # | falls # | at the cap # | collapsed",
        stability::HIGH_RATIO
    );
    Table::new(caption, &columns, arms.iter().map(|arm| arm_row(context, arm)))
}

fn arm_row(context: &Context, arm: &ArmStability) -> Vec<TableCell> {
    let of_run = |largest: Option<Largest>| {
        let shown = largest.map(|it| format!("{} ({})", text::number(it.value), it.seed));
        TableCell::or(shown, "not recorded")
    };
    let seeds = arm.collapsed.iter().map(|run| run.seed.to_string());
    let not_finite = arm.not_finite.iter().map(|seed| format!("{seed} (not finite)"));
    let collapsed = text::joined(seeds.chain(not_finite), ", ");
    row![
        context.label_in_study(&arm.arm),
        TableCell::count(arm.runs as usize),
        of_run(arm.ratio),
        arm.ratio.map_or_else(TableCell::default, |_| TableCell::count(arm.high_ratios as usize)),
        of_run(arm.kl),
        of_run(arm.gradient_norm),
        TableCell::count(arm.falls.len()),
        TableCell::or(arm.at_cap.map(|(at, all)| format!("{at} of {all}")), "no cap"),
        if collapsed.is_empty() { Look::Quiet.of("none") } else { Look::Bad.of(collapsed) }
    ]
}

fn falls(context: &Context, arms: &[ArmStability]) -> Option<Block> {
    let rows = arms.iter().flat_map(|arm| {
        arm.falls.iter().map(|fall| {
            let [before, after] = [fall.before, fall.after].map(text::points);
            row![
                context.label_in_study(&arm.arm),
                fall.seed.to_string(),
                fall.rollout_step.to_string(),
                before,
                after
            ]
        })
    });
    let caption = format!(
        "Every fall of more than {} points, up to the evaluation after this rollout step.",
        fall_points()
    );
    let columns = "arm | seed # | rollout step # | before, % # | after, % #";
    Table::new(&caption, columns, rows).filled().map(Block::Folded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fall_is_none_and_no_zero() {
        let texts = [(0, 56), (1, 1), (27, 304)].map(|(falls, runs)| times_in(falls, runs));
        assert_eq!(texts, ["in none of 56 runs", "1 time in 1 run", "27 times in 304 runs"]);
    }

    #[test]
    fn runs_that_diverged_before_a_score_are_not_said_to_count() {
        let [one, two] = ["X, seed 1", "Y, seed 2 (not finite)"].map(str::to_owned);
        let (one, two) = (std::slice::from_ref(&one), std::slice::from_ref(&two));
        assert_eq!(unstable(&[], &[]), None);
        let collapsed = "1 run collapsed, and counts like the others: X, seed 1.";
        assert_eq!(unstable(one, &[]).as_deref(), Some(collapsed));
        let both = unstable(one, two).unwrap();
        assert!(both.starts_with(collapsed), "{both}");
        assert!(both.contains(" 1 run diverged before it had a score, does not count"), "{both}");
    }
}

//! Machines, versions, and records that do not count.

use crate::base::visible;
use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::{Context, text};
use crate::study::{Cell, collection::Study};

pub fn section(context: &Context) -> Section {
    let cells = context.counted_cells();
    let seconds: f64 = cells.iter().map(|cell| cell.wall_seconds).filter(|it| it.is_finite()).sum();
    let intro = format!(
        "{} that count took {} of wall clock in all. Facts about machines and times stand outside \
         every comparison.",
        text::counted(cells.len(), "run", "runs"),
        text::duration(seconds)
    );
    let programs = programs(context.study, |id| context.label_in_study(id));
    let programs = programs.map(|told| text::sentence(&text::capital(&told)));
    let texts = [intro].into_iter().chain(programs).map(Block::Text);
    let tables = [facts(&cells), excluded(context)].map(Block::Table);
    Section::new("environment", "Environment", texts.chain(tables).collect())
}

pub fn programs(study: &Study, name: impl Fn(&str) -> String) -> Option<String> {
    let by_sources = study.arms_by_sources();
    let shown = |digest: &&str| {
        if digest.is_empty() {
            "one that states none".to_owned()
        } else {
            text::short_digest(digest)
        }
    };
    let of_sources = by_sources.iter().map(|(sources, ids)| {
        let sources = text::listed(sources.iter().map(shown));
        let arms = text::listed(ids.iter().map(|id| name(id)));
        format!("{sources} made the runs of {}", visible::shortened(&arms, 200))
    });
    (by_sources.len() > 1).then(|| {
        format!(
            "arms have runs of different programs (`sources_sha256`): {}; a difference between such arms may be one \
             between the programs",
            visible::shortened(&text::joined(of_sources, ", "), 600)
        )
    })
}

fn facts(cells: &[&Cell]) -> Table {
    let facts = cells.iter().flat_map(|cell| {
        let recorded = cell.environment.iter().map(|(name, value)| (name.as_str(), value));
        let all = recorded.chain([("harness version", &cell.harness)]);
        all.map(|(name, value)| (text::visible(name), text::visible(value)))
    });
    let rows = text::counts(facts).into_iter().map(|((name, value), count)| {
        row![name, visible::start(&value, 200), TableCell::count(count)]
    });
    let caption = "Recorded facts. A fact that occurs twice was not the same for all runs.";
    Table::new(caption, "fact | value | runs #", rows)
}

fn excluded(context: &Context) -> Table {
    let excluded = &context.analysis.excluded;
    let rows = excluded.iter().map(|it| {
        row![
            Look::Code.of(text::visible(&it.cell)),
            it.arm.as_deref().map_or("none".to_owned(), |id| context.label(id)),
            it.seed.map_or(String::new(), |seed| seed.to_string()),
            if it.failed { "the run failed" } else { "does not belong" },
            text::visible(&it.reason)
        ]
    });
    let caption = match excluded.len() {
        0 => "Records that do not count: none.".to_owned(),
        count => format!("{count} records that do not count, each with its reason."),
    };
    Table::new(caption, "record | arm | seed # | kind | reason", rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::environment::SOURCES;
    use crate::study::collection;
    use std::path::Path;

    #[test]
    fn an_arm_whose_runs_are_of_another_program_than_those_of_the_others_is_named() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/useful");
        let study = collection::load(&folder, None).unwrap();
        let (id, arm) = study.arms().next().unwrap();
        let of_arm = |cell: &Cell| cell.arm_sha256 == arm.arm_sha256;
        let told = |[own, others]: [&str; 2], is_own: &dyn Fn(usize, &Cell) -> bool| {
            let mut study = study.clone();
            for (index, cell) in study.cells.iter_mut().enumerate() {
                let sources = if is_own(index, cell) { own } else { others };
                cell.environment.insert(SOURCES.to_owned(), sources.repeat(64));
            }
            programs(&study, text::visible)
        };
        assert_eq!(programs(&study, text::visible), None);
        assert_eq!(told(["1", "1"], &|_, cell| of_arm(cell)), None);
        let told_of_arm = told(["2", "1"], &|_, cell| of_arm(cell)).unwrap();
        let made = format!("222222222222 made the runs of {id}");
        assert!(told_of_arm.contains(&made), "{told_of_arm}");
        let told_of_none = told(["", "1"], &|_, cell| of_arm(cell)).unwrap();
        assert!(told_of_none.contains("one that states none made the runs of "), "{told_of_none}");
        let told_of_one = told(["2", "1"], &|index, _| index == 0).unwrap();
        let made = "111111111111 and 222222222222 made the runs of ";
        assert!(told_of_one.contains(made), "{told_of_one}");
    }
}

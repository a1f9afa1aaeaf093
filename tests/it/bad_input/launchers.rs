//! Cells that are run or handed over.

use crate::bad_input::Case;
use crate::bad_input::scratch::Scratch;

/// A study with one listed cell.
fn listed(s: &Scratch, experiment: &str) {
    let line = format!(
        "{{\"index\":0,\"title\":\"g/a seed 1\",\"run\":\"a\",\"run_key\":\"k\",\"experiment\":\"{experiment}\",\
         \"folder\":\"runs/a\",\"record\":\"cells/a.json\"}}\n"
    );
    s.write("study/cells.jsonl", line);
}

fn grid(s: &Scratch) {
    s.arm("name = \"arm\"");
    let arm = "[[arms]]\nname = \"a\"\nlabel = \"a\"\n";
    let head = "name = \"g\"\nquestion = \"?\"\nbase = \"arm.toml\"\nseeds = [1]\n";
    s.write("grid.toml", format!("{head}primary_set = \"mini-aime\"\n{arm}"));
}

fn case(
    name: &'static str,
    make: fn(&Scratch),
    command: &'static str,
    code: i32,
    says: &'static [&'static str],
) -> Case {
    Case { name, make, command, code, says }
}

pub fn cases() -> Vec<Case> {
    let mut cases = cells();
    cases.extend(launchers());
    cases
}

fn cells() -> Vec<Case> {
    vec![
        case(
            "cell: no study",
            |_| (),
            "cell run 0 --study gone",
            3,
            &["gone/cells.jsonl: No such file"],
        ),
        case(
            "cell: a number that is not listed",
            |s| listed(s, "experiments/a.json"),
            "cell run 7 --study study",
            3,
            &["study/cells.jsonl: there is no cell 7; it has 1 cells, from 0"],
        ),
        case(
            "cell: no number",
            |s| listed(s, "experiments/a.json"),
            "cell run first --study study",
            2,
            &["invalid value 'first'"],
        ),
        case(
            "cell: an experiment outside of the study",
            |s| listed(s, "../arm.json"),
            "cell run 0 --study study",
            3,
            &["study: \"../arm.json\" names nothing inside this folder"],
        ),
        case(
            "cell: an experiment that is gone",
            |s| listed(s, "experiments/a.json"),
            "cell run 0 --study study",
            3,
            &["study/experiments/a.json"],
        ),
        case(
            "cell: a list that is damaged",
            |s| s.write("study/cells.jsonl", "{\"index\":0}\n"),
            "cell run 0 --study study",
            3,
            &["study/cells.jsonl:1: ", "missing field `title`"],
        ),
    ]
}

fn launchers() -> Vec<Case> {
    vec![
        case(
            "ablate: a template for another launcher",
            grid,
            "ablate grid.toml --launcher command --template t.sh",
            2,
            &["--template is for --launcher slurm"],
        ),
        case(
            "ablate: an address for another launcher",
            grid,
            "ablate grid.toml --launcher slurm --address http://head:8265",
            2,
            &["--address is for --launcher ray"],
        ),
        case(
            "ablate: a number of jobs for a launcher that has its own",
            grid,
            "ablate grid.toml --launcher command --jobs 4",
            2,
            &["--jobs is for --launcher local and slurm"],
        ),
        case(
            "ablate: a program for this machine",
            grid,
            "ablate grid.toml --program dapo",
            2,
            &["--program is for another --launcher than local"],
        ),
        case(
            "ablate: an unknown launcher",
            grid,
            "ablate grid.toml --launcher kubernetes",
            2,
            &["invalid value 'kubernetes'", "command"],
        ),
        case(
            "ablate: status and a dry run",
            grid,
            "ablate grid.toml --status --dry-run",
            2,
            &["--status", "--dry-run"],
        ),
        case(
            "ablate: a template that is gone",
            grid,
            "ablate grid.toml --launcher slurm --template gone.sh --dry-run",
            3,
            &["cannot read gone.sh: No such file"],
        ),
        case(
            "ablate: a template without the command",
            |s| {
                grid(s);
                s.write("t.sh", "#SBATCH --array=@ARRAY@\n");
            },
            "ablate grid.toml --launcher slurm --template t.sh --dry-run",
            3,
            &["t.sh: the template has no @COMMAND@"],
        ),
        case(
            "ablate: a list of handed over jobs that is damaged",
            |s| {
                grid(s);
                s.write("study/launcher/jobs.jsonl", "{\"launcher\":\"pbs\"}\n");
            },
            "ablate grid.toml --out study --status",
            3,
            &["study/launcher/jobs.jsonl:1: launcher: unknown variant `pbs`"],
        ),
    ]
}

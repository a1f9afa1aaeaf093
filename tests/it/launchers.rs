//! Cells that other machines run make the records that this one makes. Pretended programs take the
//! place of Slurm and Ray: they note how they are called, and run what they get.

use crate::ablate::{GRID, Scene, same_run};
use crate::binary::succeeded;
use crate::transcript::play;
use dapo::base::files;
use dapo::study::Cell;

/// A grid's folder with a shell script in the place of each program.
fn pretended(grid: &str, programs: &[(&str, &str)]) -> Scene {
    let scene = Scene::new(grid);
    for (program, script) in programs {
        let text = format!("#!/bin/bash\n{script}\n");
        files::write_program(&scene.path("bin").join(program), &text).unwrap();
    }
    scene
}

/// Every record of the study is that of the same grid run here.
fn records_are_those_of_this_machine(scene: &Scene) {
    succeeded(scene.dapo(&["ablate", "grid.toml", "--out", "here", "--jobs", "2"]));
    let (names, others) = scene.records();
    assert_eq!((names.len(), others.len()), (4, 0));
    for name in names {
        same_run(&scene.cell(&name), &Cell::read(&scene.path("here/cells").join(name)).unwrap());
    }
}

#[test]
fn cells_that_run_one_by_one_make_the_records_of_the_grid() {
    let scene = Scene::new(GRID);
    play(&scene.path(""), include_str!("launchers/one_by_one.txt"));
    records_are_those_of_this_machine(&scene);
    play(&scene.path(""), include_str!("launchers/edited.txt"));
}

#[test]
fn slurm_gets_the_cells_that_are_neither_on_record_nor_on_their_way() {
    let sbatch = include_str!("launchers/sbatch.sh");
    let scene = pretended(GRID, &[("sbatch", sbatch), ("squeue", "cat queue")]);
    play(&scene.path(""), include_str!("launchers/slurm.txt"));
    records_are_those_of_this_machine(&scene);
}

#[test]
fn a_thousand_cells_are_one_array_and_arrays_follow_each_other() {
    let sbatch = "echo \"sbatch $*\" >> calls; cat \"${@: -1}\" >> scripts; echo $RANDOM";
    let grid = GRID.replace("seeds = [1, 2]", "seeds = [1]");
    let scene = pretended(&grid, &[("sbatch", sbatch), ("squeue", "")]);
    play(&scene.path(""), include_str!("launchers/arrays.txt"));
}

#[test]
fn ray_gets_a_job_for_each_cell_that_is_neither_on_record_nor_on_its_way() {
    let scene = pretended(GRID, &[("ray", include_str!("launchers/ray.sh"))]);
    play(&scene.path(""), include_str!("launchers/ray.txt"));
    records_are_those_of_this_machine(&scene);
}

//! A study of 10,000 cells, for measuring what reads it. Run by `just bench-cells`.

use crate::study_fixture::{self, Shape};
use dapo::base::Purpose;
use dapo::base::files;
use dapo::base::rng::{Id, stream};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Together with the distinct arms of the shipped grids: at least 10,000 cells.
const SEEDS: u64 = 400;

/// Metrics beside the fixture's, so that a record is as large as one of study-1.
const MORE_METRICS: u64 = 66;

#[test]
#[ignore = "writes 450 MB; just bench-cells runs it"]
fn ten_thousand_records_are_written() {
    let out = PathBuf::from(std::env::var("DAPO_SCALE_OUT").unwrap());
    let seeds: Vec<u64> = (1..=SEEDS).collect();
    let grids = study_fixture::grids(&seeds);
    study_fixture::write(&out, &grids, &[]);
    let mut written = BTreeSet::new();
    for (place, arm) in grids.iter().flat_map(|grid| &grid.arms).enumerate() {
        if !written.insert(arm.arm_sha256.clone()) {
            continue;
        }
        for &seed in &seeds {
            let mut random = stream(seed, Purpose::Evaluation, &[Id::from(place as u64)]);
            let score = 0.3 + 0.02 * place as f64 + 0.1 * (random.uniform() - 0.5);
            let mut shape = Shape::ending_at(score);
            for name in 0..MORE_METRICS {
                let ends = (random.uniform(), random.uniform());
                shape = shape.with(&format!("effect/measure_{name}"), ends.0, ends.1);
            }
            study_fixture::cell(arm, seed, &shape).write(&out.join("cells")).unwrap();
        }
    }
    let cells = files::list(&out.join("cells")).unwrap();
    assert!(cells.len() >= 10_000, "{} cells", cells.len());
}

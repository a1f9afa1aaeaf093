//! A study whose records are in one file: what is read of it, and what is refused.

use crate::binary::{dapo, says, succeeded};
use crate::{repository, study_fixture};
use dapo::base::files::{self, foreign};
use dapo::study::cell::{self, packed};

const STUDY: &str = "reports/repairs-sums";

/// A copy with grids, declaration and packed records alone.
fn study() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = repository::root().join(STUDY);
    crate::verify::copy(&from.join("grids"), &folder.path().join("grids"));
    for name in ["study.json", packed::FILE] {
        let bytes = foreign::read_up_to(&from.join(name), 1 << 24).unwrap();
        files::write_atomic(&folder.path().join(name), &bytes).unwrap();
    }
    folder
}

#[test]
fn packed_records_are_read_like_files_and_nothing_of_them_is_ignored() {
    let study = study();
    let path = |name: &str| study.path().join(name).display().to_string();
    let (listed, _) = succeeded(dapo(&["runs", "cells", &path(""), "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 48);
    // A record is named by the path that its own file would have.
    let (cells, _) = cell::read_folder(&study.path().join("cells")).unwrap();
    let names: Vec<String> =
        cells.iter().map(|cell| path(&format!("cells/{}", cell.file_name()))).collect();
    succeeded(dapo(&["compare", &names[0], &names[1], "--evaluation-set", "signed-sums"]));
    let (status, _) = succeeded(dapo(&["ablate", "--status", "--study", &path("")]));
    assert!(status.contains("48"), "{status}");
    says(
        dapo(&["train", &path("cells/none-seed1.json")]),
        3,
        &["cells/none-seed1.json", "No such file"],
    );
    // The same record as a file of its own: two that could differ.
    study_fixture::write(study.path(), &[], &cells[..1]);
    let twice = "the record is in records.jsonl.xz, too: remove one of them";
    says(dapo(&["runs", "cells", &path("")]), 4, &[twice]);
    files::remove_folder(&study.path().join("cells")).unwrap();

    let packed = study.path().join(packed::FILE);
    let whole = foreign::read_up_to(&packed, 1 << 24).unwrap();
    for (bytes, words) in [
        (whole[..whole.len() / 2].to_vec(), "not a whole xz file"),
        ([&whole[..], &whole].concat(), "line 49: the record "),
        (b"PK".to_vec(), "not a whole xz file"),
    ] {
        files::write_atomic(&packed, &bytes).unwrap();
        for (verb, code) in [(&["runs", "cells"][..], 3), (&["report"], 3), (&["verify"], 4)] {
            let folder = path("");
            let line = [verb, &[&folder]].concat();
            says(dapo(&line), code, &["records.jsonl.xz", words]);
        }
    }
}

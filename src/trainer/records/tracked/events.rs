//! Event files of TensorBoard.

use crate::base::files::{self, foreign};
use crate::records::event_file::{self, Logged};
use crate::records::tables::TableError;
use crate::records::tracked::{TrackedRun, refused};
use std::path::Path;

const NO_SCALAR: &str = "a tensor that is not one float or double";

pub fn read(path: &Path, is_folder: bool) -> Result<TrackedRun, TableError> {
    let mut run = TrackedRun::new(path, "TensorBoard", "");
    run.notes.has_times = true;
    let names = if is_folder { files::list(path)? } else { vec![String::new()] };
    for name in names.iter().filter(|name| name.contains(".tfevents.") || !is_folder) {
        let path = if is_folder { foreign::inside(path, name)? } else { path.to_path_buf() };
        let (logged, is_cut) = event_file::read(&files::read(&path)?)
            .map_err(|at| refused(&path, format!("the record at byte {at} is damaged")))?;
        run.notes.is_cut |= is_cut;
        for logged in logged {
            match logged {
                Logged::Scalar(event_file::Scalar { tag, step, value }, seconds) => {
                    run.put(&tag, step as f64, value, Some(seconds));
                }
                Logged::NoScalar(tag) => run.skip(&tag, 0, Some(NO_SCALAR)),
                Logged::Restart(step) => run.restart(step as f64),
            }
        }
    }
    Ok(run)
}

use crate::base::files::{self, foreign};
use crate::base::visible::shortened;
use crate::records::tables::TableError;
use csv::{DeserializeErrorKind, ErrorKind, Position, ReaderBuilder, StringRecord};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::Path;

const MOST_CSV_BYTES: u64 = 1 << 28;

/// Line (from 1) and fields of a row.
pub type CsvRow = (usize, StringRecord);

/// Names of the columns, without spaces around them, and the rows; tabs in a `.tsv`. A column without a name is a
/// number of rows. Errors: columns that other marks separate, two of one name, a row of another length, text that is
/// not UTF-8, with the line.
pub fn read(
    path: &Path,
) -> Result<(StringRecord, impl Iterator<Item = Result<CsvRow, TableError>>), TableError> {
    let mut bytes = foreign::read_up_to(path, MOST_CSV_BYTES)?;
    foreign::refuse_packed(path, &bytes)?;
    // Spreadsheets write a byte-order mark.
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    let is_tabs = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tsv"));
    let delimiter = if is_tabs { b'\t' } else { b',' };
    let mut reader = ReaderBuilder::new().delimiter(delimiter).from_reader(Cursor::new(bytes));
    let malformed = |error: csv::Error| {
        let reason = match error.kind() {
            ErrorKind::Utf8 { err, .. } => {
                format!("not UTF-8 in column {}; save the file as UTF-8", err.field() + 1)
            }
            _ => error.to_string(),
        };
        at(path, error.position().map_or(1, Position::line) as usize, reason)
    };
    let mut header = reader.headers().map_err(malformed)?.clone();
    header.trim();
    let marks = [(b';', "semicolons"), (b'\t', "tabs"), (b',', "commas")];
    let only = header.get(0).filter(|_| header.len() == 1).unwrap_or_default();
    let is_between = |mark: u8| mark != delimiter && only.as_bytes().contains(&mark);
    if let Some((_, marks)) = marks.into_iter().find(|(mark, _)| is_between(*mark)) {
        let reason =
            format!("{marks} separate its columns; write commas, or tabs in a file called .tsv");
        return Err(at(path, 1, reason));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = header.iter().find(|name| !name.is_empty() && !seen.insert(*name)) {
        let name: String = twice.chars().take(80).collect();
        let advice = if name.contains(" - ") {
            "; rename one, or give each run its own name in W&B and export again"
        } else {
            ""
        };
        return Err(at(path, 1, format!("two columns are called `{name}`{advice}")));
    }
    let rows = reader.into_records().map(move |record| {
        let record = record.map_err(malformed)?;
        Ok((record.position().map_or(0, Position::line) as usize, record))
    });
    Ok((header, rows))
}

/// A row as a record whose fields are columns; other columns do no harm.
pub fn record<T: DeserializeOwned>(
    path: &Path,
    header: &StringRecord,
    (line, row): &CsvRow,
) -> Result<T, TableError> {
    let mut row = row.clone();
    row.trim();
    let record = row.deserialize(Some(header));
    record.map_err(|error| at(path, *line, misread(&error, header, &row)))
}

fn misread(error: &csv::Error, header: &StringRecord, row: &StringRecord) -> String {
    let ErrorKind::Deserialize { err, .. } = error.kind() else { return error.to_string() };
    let column = err.field().and_then(|field| usize::try_from(field).ok());
    let cell = column.and_then(|column| Some((header.get(column)?, row.get(column)?)));
    match (err.kind(), cell) {
        (DeserializeErrorKind::ParseFloat(_), Some((name, cell))) => no_number(name, cell),
        (kind, Some((name, cell))) => format!("`{name}`: {kind}, got `{}`", shortened(cell, 40)),
        (kind, None) => kind.to_string(),
    }
}

pub fn no_number(column: &str, cell: &str) -> String {
    let advice = "write digits with a decimal point, and no percent sign, underscore or separator of thousands";
    let found = match cell.trim() {
        "" => "the cell is empty; fill it, or leave the row out".to_string(),
        cell => format!("got `{}`; {advice}", shortened(cell, 40)),
    };
    format!("`{column}`: expected a number, {found}")
}

pub fn at(path: &Path, line: usize, reason: String) -> TableError {
    TableError::File(files::FileError::Line { path: path.to_path_buf(), line, reason })
}

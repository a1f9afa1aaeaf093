//! Decodes a parquet file of unknown origin. The footer's claims are checked before a page is
//! decoded, the table's size before a row is read. polars works in a second process ([`apart`]).

use crate::base::{apart, apart::NoAnswer, contained};
use polars::prelude::{
    Column, DataFrame, DataType, ParquetCompression, ParquetReader, ParquetWriter, SerReader,
    Series,
};
use std::io::Cursor;

/// The largest file of the released data has 1.8 million.
const MOST_ROWS: usize = 1 << 26;

/// Any file may have these, and more for each byte: a row of (problem, sample, correct) takes most of a byte.
const FEWEST_ROWS: usize = 1 << 18;
const ROWS_OF_A_BYTE: usize = 4;

/// Row groups and columns; known writers make a few.
const MOST_PARTS: usize = 1 << 16;

/// A cell in polars and the field of a record, without text.
const CELL_BYTES: u64 = 32;

pub const NOT_PARQUET: &str = "it does not begin and end with PAR1: another format, or cut off";

/// Processor time, and one more for each MiB; a MiB takes a twentieth of a second.
const SECONDS: u64 = 8;

/// 256 MiB, and 32 times the file up to 4 GiB: tables of this harness expand 10 times, a bomb a million times.
pub fn most_expanded_bytes(file_bytes: u64) -> u64 {
    (256 << 20) + file_bytes.saturating_mul(32).min(4 << 30)
}

/// Covers pages, table, the writer's copy and the answer.
fn limits(file_bytes: u64) -> apart::ApartLimits {
    let expanded = most_expanded_bytes(file_bytes);
    apart::ApartLimits {
        memory_bytes: file_bytes.saturating_mul(2).saturating_add(3 * expanded),
        processor_seconds: (SECONDS + (file_bytes >> 20)).min(600),
        answer_bytes: expanded,
    }
}

/// Named columns that exist, or all.
pub fn frame(bytes: Vec<u8>, names: Option<&[&str]>) -> Result<DataFrame, NoAnswer> {
    if bytes.len() < 12 || !bytes.starts_with(b"PAR1") || !bytes.ends_with(b"PAR1") {
        return Err(NOT_PARQUET.to_string().into());
    }
    if !apart::is_available() {
        return Ok(decoded(bytes, names)?);
    }
    let own = apart::ask(&request(&bytes, names), limits(bytes.len() as u64))?;
    // This program wrote the table, so nothing in it is a foreign claim.
    let frame = contained::contained(|| ParquetReader::new(Cursor::new(own)).finish())
        .and_then(|frame| frame.map_err(|error| error.to_string()));
    Ok(frame?)
}

fn request(bytes: &[u8], names: Option<&[&str]>) -> Vec<u8> {
    let mut request = serde_json::json!(names).to_string().into_bytes();
    request.push(b'\n');
    request.extend(bytes);
    request
}

/// Runs in the second process; writes the table again.
pub fn answer(request: &[u8]) -> Result<Vec<u8>, String> {
    let end = request.iter().position(|byte| *byte == b'\n').ok_or("a request without names")?;
    let names: Option<Vec<&str>> =
        serde_json::from_slice(&request[..end]).map_err(|error| error.to_string())?;
    let mut frame = decoded(request[end + 1..].to_vec(), names.as_deref())?;
    let mut own = Vec::new();
    let written = contained::contained(|| {
        ParquetWriter::new(&mut own)
            .with_compression(ParquetCompression::Uncompressed)
            .finish(&mut frame)
    });
    written.and_then(|written| written.map_err(|error| error.to_string()))?;
    Ok(own)
}

fn decoded(bytes: Vec<u8>, names: Option<&[&str]>) -> Result<DataFrame, String> {
    let file_bytes = bytes.len() as u64;
    let most = most_expanded_bytes(file_bytes);
    let frame = contained::contained(|| -> Result<DataFrame, String> {
        let mut reader = ParquetReader::new(Cursor::new(bytes));
        claims(&mut reader, file_bytes)?;
        let present = reader.schema().map_err(|error| error.to_string())?;
        let wanted = names.map(|names| {
            let names = names.iter().filter(|name| present.contains(name));
            names.map(|name| name.to_string()).collect()
        });
        reader.with_columns(wanted).finish().map_err(|error| error.to_string())
    });
    let frame = frame.and_then(|frame| frame)?;
    let expanded = contained::contained(|| {
        let columns = frame.columns().iter().map(Column::as_materialized_series);
        columns.map(series_bytes).fold(0, u64::saturating_add)
    })?;
    if expanded > most {
        return Err(format!("it expands to {expanded} bytes, more than {most}"));
    }
    Ok(frame)
}

fn claims(reader: &mut ParquetReader<Cursor<Vec<u8>>>, file_bytes: u64) -> Result<(), String> {
    let most = most_expanded_bytes(file_bytes);
    let metadata = reader.get_metadata().map_err(|error| error.to_string())?;
    let rows = metadata.num_rows;
    let most_rows = MOST_ROWS.min(FEWEST_ROWS + ROWS_OF_A_BYTE * file_bytes as usize);
    if rows > most_rows {
        return Err(format!("it claims {rows} rows, more than {most_rows}"));
    }
    let chunks = || metadata.row_groups.iter().flat_map(|group| group.parquet_columns());
    let parts = metadata.row_groups.len().saturating_add(chunks().count());
    if parts > MOST_PARTS {
        return Err(format!("it has {parts} row groups and columns, more than {MOST_PARTS}"));
    }
    let mut cells: u64 = 0;
    let mut pages: u64 = 0;
    for chunk in chunks() {
        let (values, size) = (chunk.num_values(), chunk.uncompressed_size());
        let (Ok(values), Ok(size)) = (u64::try_from(values), u64::try_from(size)) else {
            return Err(format!("a column claims {values} values in {size} bytes"));
        };
        cells = cells.saturating_add(values);
        pages = pages.saturating_add(size);
    }
    let groups = metadata.row_groups.iter().map(|group| group.num_rows());
    let groups = groups.fold(0, usize::saturating_add);
    if groups != rows {
        return Err(format!("it claims {rows} rows, and {groups} in its row groups"));
    }
    let claimed = cells.saturating_mul(CELL_BYTES).max(pages);
    if claimed > most {
        return Err(format!("it claims to expand to {claimed} bytes, more than {most}"));
    }
    Ok(())
}

/// Counts a copy of the text for each cell, because a dictionary can name a long text often.
fn series_bytes(series: &Series) -> u64 {
    let cells = series.len() as u64 * CELL_BYTES;
    let sum = |lengths: &mut dyn Iterator<Item = usize>| {
        lengths.map(|length| length as u64).fold(0, u64::saturating_add)
    };
    let inner = match series.dtype() {
        DataType::String => {
            series.str().map(|texts| sum(&mut texts.iter().flatten().map(str::len)))
        }
        DataType::Binary => {
            series.binary().map(|texts| sum(&mut texts.iter().flatten().map(<[u8]>::len)))
        }
        DataType::List(_) => series.list().map(|lists| series_bytes(&lists.get_inner())),
        DataType::Struct(_) => series.struct_().map(|fields| {
            fields.fields_as_series().iter().map(series_bytes).fold(0, u64::saturating_add)
        }),
        _ => Ok(0),
    };
    cells.saturating_add(inner.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files;
    use crate::records::tables::columns;
    use polars::prelude::{AnyValue, IntoColumn, NamedFrom, Scalar};

    /// A parquet file of one column.
    fn file(rows: usize, column: Column) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        columns::write(&path, rows, vec![column]).unwrap();
        files::read(&path).unwrap()
    }

    #[test]
    fn a_dictionary_that_names_a_long_text_often_is_refused() {
        let text = "x".repeat(1 << 20);
        let rows = 4000;
        let scalar = Scalar::new(DataType::String, AnyValue::StringOwned(text.as_str().into()));
        let bytes = file(rows, Column::new_scalar("problem".into(), scalar, rows));
        assert!(bytes.len() < 1 << 20, "{} bytes are no bomb", bytes.len());
        let refusal = frame(bytes, None).unwrap_err().to_string();
        assert!(refusal.starts_with("it expands to 4194"), "{refusal}");
    }

    #[test]
    fn rows_that_take_no_bytes_are_refused() {
        let equal = |rows: usize| {
            let scalar = Scalar::new(DataType::Boolean, AnyValue::Boolean(true));
            file(rows, Column::new_scalar("correct".into(), scalar, rows))
        };
        assert_eq!(frame(equal(200_000), None).unwrap().height(), 200_000);
        let refusal = frame(equal(3_000_000), None).unwrap_err().to_string();
        assert!(refusal.starts_with("it claims 3000000 rows, more than "), "{refusal}");
    }

    #[test]
    fn an_answer_is_the_table_of_the_request_and_a_refusal_is_a_message() {
        let texts = Column::new("problem".into(), ["a", "b"]);
        let numbers = [Series::new("".into(), [1u32, 2]), Series::new("".into(), [3u32])];
        let lists = Series::new("tokens".into(), numbers).into_column();
        for column in [texts, lists] {
            let bytes = file(2, column);
            let own = answer(&request(&bytes, None)).unwrap();
            assert!(frame(own, None).unwrap().equals(&frame(bytes, None).unwrap()));
        }
        let bytes = file(1, Column::new("problem".into(), ["a"]));
        let none = answer(&request(&bytes, Some(&["sample"]))).unwrap();
        assert_eq!(frame(none, None).unwrap().width(), 0);
        assert!(answer(b"null\nPAR1 no parquet PAR1").is_err());
        assert!(answer(b"no line").is_err());
    }
}

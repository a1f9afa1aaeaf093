//! Columns from records, and rows from columns: all that the tables need of polars.

use crate::base::files::{self, foreign};
use crate::records::tables::{Error, decode};
use polars::prelude::{
    AnyValue, Column, DataFrame, DataType, Float64Type, IntoSeries, ListBuilderTrait,
    ListPrimitiveChunkedBuilder, ParquetWriter, PolarsNumericType, PolarsResult, UInt32Type,
};
use std::io;
use std::path::Path;

/// Rows of one parquet row group. Stated here because the bytes depend on it.
const ROW_GROUP_ROWS: usize = 1 << 18;

/// Columns of a table to be written, one value a record.
pub struct Columns<'a, R> {
    records: &'a [R],
    columns: Vec<Column>,
}

impl<'a, R> Columns<'a, R> {
    /// No columns yet.
    pub fn of(records: &'a [R]) -> Self {
        Self { records, columns: Vec::new() }
    }

    /// Text.
    pub fn text<'r>(&mut self, name: &str, field: impl Fn(&'a R) -> &'r str)
    where
        'a: 'r,
    {
        let values: Vec<&str> = self.records.iter().map(field).collect();
        self.columns.push(Column::new(name.into(), values));
    }

    /// Text or null.
    pub fn optional_text<'r>(&mut self, name: &str, field: impl Fn(&'a R) -> Option<&'r str>)
    where
        'a: 'r,
    {
        let values: Vec<Option<&str>> = self.records.iter().map(field).collect();
        self.columns.push(Column::new(name.into(), values));
    }

    /// Integers.
    pub fn u32(&mut self, name: &str, field: impl Fn(&R) -> u32) {
        let values: Vec<u32> = self.records.iter().map(field).collect();
        self.columns.push(Column::new(name.into(), values));
    }

    /// Large integers.
    pub fn u64(&mut self, name: &str, field: impl Fn(&'a R) -> u64) {
        let values: Vec<u64> = self.records.iter().map(field).collect();
        self.columns.push(Column::new(name.into(), values));
    }

    /// Truth values.
    pub fn bool(&mut self, name: &str, field: impl Fn(&R) -> bool) {
        let values: Vec<bool> = self.records.iter().map(field).collect();
        self.columns.push(Column::new(name.into(), values));
    }

    /// Real numbers.
    pub fn f64(&mut self, name: &str, field: impl Fn(&R) -> f64) {
        let values: Vec<f64> = self.records.iter().map(field).collect();
        self.columns.push(Column::new(name.into(), values));
    }

    /// Lists of integers.
    pub fn u32_list(&mut self, name: &str, field: impl Fn(&R) -> &[u32]) {
        self.list::<UInt32Type>(name, DataType::UInt32, field);
    }

    /// Lists of real numbers.
    pub fn f64_list(&mut self, name: &str, field: impl Fn(&R) -> &[f64]) {
        self.list::<Float64Type>(name, DataType::Float64, field);
    }

    fn list<T: PolarsNumericType>(
        &mut self,
        name: &str,
        dtype: DataType,
        field: impl Fn(&R) -> &[T::Native],
    ) {
        let rows = self.records.len();
        let values = self.records.iter().map(|record| field(record).len()).sum();
        let mut builder = ListPrimitiveChunkedBuilder::<T>::new(name.into(), rows, values, dtype);
        for record in self.records {
            builder.append_slice(field(record));
        }
        self.columns.push(builder.finish().into_series().into());
    }

    /// A column that polars built.
    pub fn push(&mut self, column: Column) {
        self.columns.push(column);
    }

    /// Writes the table atomically.
    pub fn write(self, path: &Path) -> Result<(), Error> {
        let mut frame = DataFrame::new(self.records.len(), self.columns)
            .expect("columns have distinct names and one value a record");
        files::write_atomic_with(path, |file| {
            ParquetWriter::new(file)
                .with_row_group_size(Some(ROW_GROUP_ROWS))
                .finish(&mut frame)
                .map(|_bytes| ())
                .map_err(io::Error::other)
        })?;
        Ok(())
    }
}

/// A table that was read.
pub struct Table<'a> {
    path: &'a Path,
    frame: DataFrame,
}

impl<'a> Table<'a> {
    /// All columns.
    pub fn read(path: &'a Path) -> Result<Self, Error> {
        Self::read_columns(path, None)
    }

    /// Exactly these columns.
    pub fn read_exactly(path: &'a Path, names: &[&str]) -> Result<Self, Error> {
        let table = Self::read(path)?;
        let foreign = table.names().into_iter().find(|name| !names.contains(&name.as_str()));
        match foreign {
            None => Ok(table),
            Some(column) => Err(Error::ForeignColumn { path: path.to_path_buf(), column }),
        }
    }

    /// Those of the named columns that are there, or all: a column of a type that this build
    /// cannot read does no harm when nobody asks for it.
    pub fn read_columns(path: &'a Path, names: Option<&[&str]>) -> Result<Self, Error> {
        let bytes = foreign::read_up_to(path, foreign::MOST_FILE_BYTES)?;
        let unreadable = |reason: String| Error::Parquet { path: path.to_path_buf(), reason };
        let frame = decode::frame(bytes, names).map_err(unreadable)?;
        Ok(Self { path, frame })
    }

    /// The rows in order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.frame.height()).map(|row| Row { table: self, row })
    }

    /// A column, or a field of a struct column as `column.field`.
    pub fn column(&self, name: &str) -> Result<Column, Error> {
        let (outer, field) = name.split_once('.').map_or((name, None), |(o, f)| (o, Some(f)));
        let find = || -> PolarsResult<Column> {
            let column = self.frame.column(outer)?;
            match field {
                None => Ok(column.clone()),
                Some(field) => Ok(column.struct_()?.field_by_name(field)?.into()),
            }
        };
        find().map_err(|_absent| Error::MissingColumn {
            path: self.path.to_path_buf(),
            column: name.to_string(),
            present: self.present(),
        })
    }

    /// The names of the columns that were read.
    pub fn names(&self) -> Vec<String> {
        self.frame.columns().iter().map(|column| column.name().to_string()).collect()
    }

    fn present(&self) -> String {
        let describe = |column: &Column| match column.dtype() {
            DataType::Struct(fields) => {
                let fields: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
                format!("{}.{{{}}}", column.name(), fields.join(","))
            }
            _ => column.name().to_string(),
        };
        self.frame.columns().iter().map(describe).collect::<Vec<_>>().join(", ")
    }

    /// An error about one cell.
    pub fn cell_error(
        &self,
        column: &str,
        row: usize,
        expected: &'static str,
        value: String,
    ) -> Error {
        let (path, column) = (self.path.to_path_buf(), column.to_string());
        Error::Cell { path, column, row, expected: expected.to_string(), value }
    }
}

/// One row of a table.
pub struct Row<'a> {
    table: &'a Table<'a>,
    row: usize,
}

impl Row<'_> {
    fn cell<T>(
        &self,
        name: &str,
        expected: &'static str,
        read: impl Fn(&AnyValue) -> Option<T>,
    ) -> Result<T, Error> {
        let column = self.table.column(name)?;
        let value = column.get(self.row).expect("rows are counted by the frame's height");
        read(&value).ok_or_else(|| self.table.cell_error(name, self.row, expected, shown(&value)))
    }

    /// Text; null is an error.
    pub fn text(&self, name: &str) -> Result<String, Error> {
        self.cell(name, "text", |value| value.get_str().map(str::to_string))
    }

    /// Text or null.
    pub fn optional_text(&self, name: &str) -> Result<Option<String>, Error> {
        self.cell(name, "text or null", |value| match value {
            AnyValue::Null => Some(None),
            value => value.get_str().map(|text| Some(text.to_string())),
        })
    }

    /// An integer of any width whose value fits.
    pub fn u32(&self, name: &str) -> Result<u32, Error> {
        self.cell(name, "an integer below 2^32", natural)
    }

    /// A truth value.
    pub fn bool(&self, name: &str) -> Result<bool, Error> {
        self.cell(name, "true or false", |value| match value {
            AnyValue::Boolean(value) => Some(*value),
            _ => None,
        })
    }

    /// A real number.
    pub fn f64(&self, name: &str) -> Result<f64, Error> {
        self.cell(name, "a 64-bit real number", real)
    }

    /// A list of integers.
    pub fn u32_list(&self, name: &str) -> Result<Vec<u32>, Error> {
        self.cell(name, "a list of integers below 2^32", |value| list(value, natural))
    }

    /// A list of real numbers.
    pub fn f64_list(&self, name: &str) -> Result<Vec<f64>, Error> {
        self.cell(name, "a list of 64-bit real numbers", |value| list(value, real))
    }
}

/// A cell for an error message, cut when it is long.
pub fn shown(value: &AnyValue) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// An integer of any width that fits.
pub fn integer(value: &AnyValue) -> Option<i64> {
    if value.dtype().is_integer() { value.extract() } else { None }
}

fn natural(value: &AnyValue) -> Option<u32> {
    u32::try_from(integer(value)?).ok()
}

fn real(value: &AnyValue) -> Option<f64> {
    match value {
        AnyValue::Float64(value) => Some(*value),
        _ => None,
    }
}

fn list<T>(value: &AnyValue, read: impl Fn(&AnyValue) -> Option<T>) -> Option<Vec<T>> {
    match value {
        AnyValue::List(series) => series.iter().map(|item| read(&item)).collect(),
        _ => None,
    }
}

use crate::base::files::{self, foreign};
use crate::base::visible;
use crate::records::tables::decode;
use crate::records::tables::{Refusal, TableError};
use polars::prelude::{
    AnyValue, Column, DataFrame, IntoSeries, ListBuilderTrait, ListPrimitiveChunkedBuilder,
    NumericNative, ParquetWriter, PolarsDataType, PolarsNumericType,
};
use std::path::Path;
use std::{io, iter};

/// Fixed, because the bytes of a file depend on it.
const ROW_GROUP_ROWS: usize = 1 << 18;

/// The type of a field; it may take several columns.
pub trait ColumnWritten {
    fn put<'r>(name: &str, values: impl Iterator<Item = &'r Self>, columns: &mut Vec<Column>)
    where
        Self: 'r;
}

pub trait Read: Sized {
    const EXPECTED: &'static str;

    fn read(value: &AnyValue) -> Option<Self>;
}

macro_rules! written {
    ($($type:ty => |$value:ident| $cell:expr;)*) => {$(
        impl ColumnWritten for $type {
            fn put<'r>(name: &str, values: impl Iterator<Item = &'r Self>, columns: &mut Vec<Column>)
            where
                Self: 'r,
            {
                let cells: Vec<_> = values.map(|$value| $cell).collect();
                columns.push(Column::new(name.into(), cells));
            }
        }
    )*};
}

written! {
    u32 => |value| *value;
    u64 => |value| *value;
    bool => |value| *value;
    f64 => |value| *value;
    Option<f64> => |value| *value;
    &str => |value| *value;
    String => |value| value.as_str();
    Option<String> => |value| value.as_deref();
}

impl<T: NumericNative> ColumnWritten for Vec<T>
where
    T::PolarsType: PolarsNumericType<Native = T>,
{
    fn put<'r>(name: &str, values: impl Iterator<Item = &'r Self>, columns: &mut Vec<Column>)
    where
        T: 'r,
    {
        let lists: Vec<&Vec<T>> = values.collect();
        let numbers = lists.iter().map(|list| list.len()).sum();
        let mut builder = ListPrimitiveChunkedBuilder::<T::PolarsType>::new(
            name.into(),
            lists.len(),
            numbers,
            T::PolarsType::get_static_dtype(),
        );
        lists.into_iter().for_each(|list| builder.append_slice(list));
        columns.push(builder.finish().into_series().into());
    }
}

/// Implements [`Read`]. Null is an error unless the type takes it; integers may have any width.
macro_rules! read {
    ($($type:ty: $expected:literal, |$value:ident| $cell:expr;)*) => {$(
        impl Read for $type {
            const EXPECTED: &'static str = $expected;

            fn read($value: &AnyValue) -> Option<Self> {
                $cell
            }
        }
    )*};
}

read! {
    String: "text", |value| value.get_str().map(str::to_string);
    Option<String>: "text or null", |value| match value {
        AnyValue::Null => Some(None),
        value => value.get_str().map(|text| Some(text.to_string())),
    };
    u32: "an integer below 2^32", |value| u32::try_from(integer(value)?).ok();
    bool: "true or false", |value| match value {
        AnyValue::Boolean(value) => Some(*value),
        _ => None,
    };
    f64: "a 64-bit real number", |value| match value {
        AnyValue::Float64(value) => Some(*value),
        _ => None,
    };
    Option<f64>: "a 64-bit real number or null", |value| match value {
        AnyValue::Null => Some(None),
        value => f64::read(value).map(Some),
    };
    Vec<u32>: "a list of integers below 2^32", |value| list(value);
    Vec<f64>: "a list of 64-bit real numbers", |value| list(value);
}

fn list<T: Read>(value: &AnyValue) -> Option<Vec<T>> {
    match value {
        AnyValue::List(series) => series.iter().map(|item| T::read(&item)).collect(),
        _ => None,
    }
}

pub trait ColumnRecord: Sized {
    fn columns(records: &[Self]) -> Vec<Column>;
}

pub trait Stored: Sized {
    const NAMES: &'static [&'static str];

    fn from_row(table: &ColumnTable, row: usize) -> Result<Self, TableError>;
}

/// A record's fields, in the order and with the names of the columns.
macro_rules! columns {
    ($record:ty: $($field:ident),*) => {
        impl $crate::records::tables::columns::ColumnRecord for $record {
            fn columns(records: &[Self]) -> Vec<polars::prelude::Column> {
                use $crate::records::tables::columns::ColumnWritten;
                let mut columns = Vec::new();
                $(
                    let values = records.iter().map(|record| &record.$field);
                    ColumnWritten::put(stringify!($field), values, &mut columns);
                )*
                columns
            }
        }
    };
}

/// As [`columns`], for a record that is also read. The last column may be absent.
macro_rules! table {
    ($record:ty: $($field:ident),* $(; $optional:ident)?) => {
        columns!($record: $($field),* $(, $optional)?);

        impl $crate::records::tables::columns::Stored for $record {
            const NAMES: &'static [&'static str] = &[$(stringify!($field),)* $(stringify!($optional))?];

            fn from_row(
                table: &$crate::records::tables::columns::ColumnTable,
                row: usize,
            ) -> Result<Self, $crate::records::tables::TableError> {
                Ok(Self {
                    $($field: table.get(row, stringify!($field))?,)*
                    $($optional: table.get_or_default(row, stringify!($optional))?)?
                })
            }
        }
    };
}

/// One row each, atomically.
pub fn write_records<R: ColumnRecord>(path: &Path, records: &[R]) -> Result<(), TableError> {
    write(path, records.len(), R::columns(records))
}

pub fn write(path: &Path, rows: usize, columns: Vec<Column>) -> Result<(), TableError> {
    let mut frame =
        DataFrame::new(rows, columns).expect("columns have distinct names and one value a record");
    files::write_atomic_with(path, |file| {
        let writer = ParquetWriter::new(file).with_row_group_size(Some(ROW_GROUP_ROWS));
        writer.finish(&mut frame).map(|_bytes| ()).map_err(io::Error::other)
    })?;
    Ok(())
}

/// The names of the columns, then each row's cells: a truth value as 1 or 0, null as nothing.
pub fn texts<R: ColumnRecord>(records: &[R]) -> impl Iterator<Item = Vec<String>> {
    let columns = R::columns(records);
    let names = columns.iter().map(|column| column.name().to_string()).collect();
    let rows = (0..records.len()).map(move |row| {
        let cells = columns.iter().map(|column| column.get(row).expect("one value a record"));
        cells.map(|cell| text(&cell)).collect()
    });
    iter::once(names).chain(rows)
}

fn text(cell: &AnyValue) -> String {
    match cell {
        AnyValue::Null => String::new(),
        AnyValue::Boolean(value) => u8::from(*value).to_string(),
        AnyValue::Float64(value) => value.to_string(),
        AnyValue::UInt64(value) => value.to_string(),
        other => other.str_value().into_owned(),
    }
}

pub fn read_records<R: Stored>(path: &Path) -> Result<Vec<R>, TableError> {
    let table = ColumnTable::read_columns(path, None)?;
    let foreign = table.names().into_iter().find(|name| !R::NAMES.contains(&name.as_str()));
    if let Some(column) = foreign {
        return Err(Refusal::ForeignColumn { column }.of(path));
    }
    table.records()
}

pub struct ColumnTable<'a> {
    path: &'a Path,
    frame: DataFrame,
}

impl<'a> ColumnTable<'a> {
    /// Named columns that exist, or all: a column of an unreadable type does no harm when nobody asks for it.
    pub fn read_columns(path: &'a Path, names: Option<&[&str]>) -> Result<Self, TableError> {
        let bytes = foreign::read_up_to(path, foreign::MOST_FILE_BYTES)?;
        let frame = decode::frame(bytes, names);
        let refused = |reason| Refusal::Parquet { reason }.of(path);
        let frame = frame.map_err(|error| error.of(path, refused))?;
        Ok(Self { path, frame })
    }

    pub fn records<R: Stored>(&self) -> Result<Vec<R>, TableError> {
        (0..self.frame.height()).map(|row| R::from_row(self, row)).collect()
    }

    fn names(&self) -> Vec<String> {
        self.frame.columns().iter().map(|column| column.name().to_string()).collect()
    }

    pub fn get<T: Read>(&self, row: usize, name: &str) -> Result<T, TableError> {
        let cells = self.frame.column(name).map_err(|_absent| {
            let (column, present) = (name.to_string(), self.names().join(", "));
            Refusal::MissingColumn { column, present }.of(self.path)
        })?;
        let value = cells.get(row).expect("rows are counted by the frame's height");
        let refuse = || {
            let got = visible::start(&value.to_string(), 80);
            let reason = format!("expected {}, got {got}", T::EXPECTED);
            Refusal::Cell { column: name.to_string(), row, reason }.of(self.path)
        };
        T::read(&value).ok_or_else(refuse)
    }

    pub fn get_or_default<T>(&self, row: usize, name: &str) -> Result<T, TableError>
    where
        T: Read + Default,
    {
        if self.frame.column(name).is_err() { Ok(T::default()) } else { self.get(row, name) }
    }
}

/// Takes any width that fits.
pub fn integer(value: &AnyValue) -> Option<i64> {
    if value.dtype().is_integer() { value.extract() } else { None }
}

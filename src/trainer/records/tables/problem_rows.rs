//! Rows of a problem file in the released schema, decoded page by page in a second process ([`apart::stream`]):
//! DAPO-Math-17k has 1.8 million rows with 1.1 GB of text.

use crate::base::apart::stream::{self, ApartStream};
use crate::base::{apart, apart::NoAnswer, contained, files::foreign};
use crate::records::tables::decode::{NOT_PARQUET, most_expanded_bytes};
use crate::records::tables::{Refusal, TableError, format};
use parquet::basic::ConvertedType;
use parquet::file::reader::{ChunkReader, FileReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::record::{Field, Row};
use parquet::schema::types::{ColumnDescPtr, Type};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// The largest file of the released data has 1.8 million.
const MOST_ROWS: u64 = 1 << 24;

/// Row groups times columns; known writers make a few thousand.
const MOST_PARTS: usize = 1 << 16;

const MOST_ROW_BYTES: u64 = 16 << 20;

/// A page and a dictionary of each column are held, of 1 MB with known writers.
const LIMITS: apart::ApartLimits = apart::ApartLimits {
    memory_bytes: 512 << 20,
    processor_seconds: 600,
    answer_bytes: MOST_ROW_BYTES,
};

/// Flag of the hidden verb for a stream of rows.
pub const ARGUMENT: &str = "--problem-rows";

impl Refusal {
    fn parquet(reason: impl ToString) -> Self {
        Self::Parquet { reason: reason.to_string() }
    }
}

/// A column, or `column.field`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WantedKeys {
    pub question: Vec<String>,
    pub answer: Vec<String>,
    pub others: Vec<String>,
    pub all: bool,
}

#[derive(Debug, Serialize, Deserialize)]
enum Sent {
    Head(Head),
    Row(Map<String, Value>),
    Refused(Refusal),
    End {},
}

/// `binary`: columns of bytes that are no text. `decimals`: paths of decimals, with the digits behind their point.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Head {
    pub rows: u64,
    pub columns: Vec<String>,
    pub binary: Vec<String>,
    pub decimals: Vec<(String, usize)>,
}

/// What is done with a row of a file.
pub type EachRow<'a, E> = dyn FnMut(&Head, Map<String, Value>) -> Result<(), E> + 'a;

/// Calls `each` in order. Other columns are ignored.
pub fn each_problem_row<E: From<TableError>>(
    path: &Path,
    wanted: &WantedKeys,
    each: &mut EachRow<E>,
) -> Result<(), E> {
    let mut failure: Option<E> = None;
    let mut head = Head::default();
    each_sent(path, wanted, &mut |sent| {
        match sent {
            Sent::Head(sent) => head = sent,
            Sent::Row(row) => failure = each(&head, row).err(),
            Sent::Refused(_) | Sent::End {} => {}
        }
        failure.is_none()
    })?;
    failure.map_or(Ok(()), Err)
}

/// In order. No column is decoded, so that one of an unreadable type does no harm. Errors: a file that is no parquet.
pub fn column_names(path: &Path) -> Result<Vec<String>, TableError> {
    let mut names = Vec::new();
    each_sent(path, &WantedKeys::default(), &mut |sent| {
        if let Sent::Head(head) = sent {
            names = head.columns;
        }
        false
    })?;
    Ok(names)
}

fn each_sent(
    path: &Path,
    wanted: &WantedKeys,
    each: &mut dyn FnMut(Sent) -> bool,
) -> Result<(), TableError> {
    let (mut file, size) = foreign::open_regular(path)?;
    let unreadable = |reason: &str| Refusal::parquet(reason).of(path);
    if !has_marks(&mut file, size).unwrap_or(false) {
        format::check(path, "parquet", true)?;
        return Err(unreadable(NOT_PARQUET));
    }
    let file = OwnedFd::from(file);
    let mut refusal: Option<Refusal> = None;
    let mut ended = false;
    let mut take = |sent: Sent| -> bool {
        match sent {
            Sent::Refused(reason) => refusal = Some(reason),
            Sent::End {} => ended = true,
            sent => {
                let goes_on = each(sent);
                ended |= !goes_on;
                return goes_on;
            }
        }
        refusal.is_none()
    };
    let read = if apart::is_available() {
        receive(file, size, wanted, &mut take)
    } else {
        let mut sent = |sent: Sent| -> io::Result<()> {
            if take(sent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        };
        // The match below reports what was refused.
        let _left = send(file, wanted, &mut sent);
        Ok(())
    };
    match (refusal, read) {
        (Some(refusal), _) => Err(refusal.of(path)),
        (None, Err(error)) => Err(error.of(path, |reason| unreadable(&reason))),
        (None, Ok(())) if !ended => Err(unreadable("damaged (its reader ended without an answer)")),
        (None, Ok(())) => Ok(()),
    }
}

/// Parquet has marks at the beginning and the end.
fn has_marks(file: &mut (impl Read + Seek), size: u64) -> io::Result<bool> {
    let mut mark = [0; 4];
    let mut is_mark_at = |place: SeekFrom| -> io::Result<bool> {
        file.seek(place)?;
        file.read_exact(&mut mark)?;
        Ok(&mark == b"PAR1")
    };
    Ok(size >= 12 && is_mark_at(SeekFrom::Start(0))? && is_mark_at(SeekFrom::End(-4))?)
}

fn receive(
    file: OwnedFd,
    file_bytes: u64,
    wanted: &WantedKeys,
    take: &mut dyn FnMut(Sent) -> bool,
) -> Result<(), NoAnswer> {
    let limits = [LIMITS.memory_bytes, LIMITS.processor_seconds].map(|limit| limit.to_string());
    let wanted = serde_json::to_string(wanted).map_err(|error| error.to_string())?;
    let arguments = [&[ARGUMENT.to_string()], &limits[..], &[wanted]].concat();
    let mut stream = ApartStream::start(&arguments, file, LIMITS)?;
    let mut line = Vec::new();
    let (mut expanded, most) = (0u64, most_expanded_bytes(file_bytes));
    while stream.next_line(&mut line)? {
        expanded = expanded.saturating_add(line.len() as u64);
        if expanded > most {
            return Err(format!("it expands to more than {most} bytes").into());
        }
        let sent = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
        if !take(sent) {
            break;
        }
    }
    Ok(())
}

/// The second process: decodes its standard input. `arguments`, behind [`ARGUMENT`]: bytes, seconds, [`WantedKeys`].
pub fn answer(arguments: &[String]) -> io::Result<()> {
    let [memory_bytes, processor_seconds, wanted] = arguments else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let limit = |text: &String| text.parse().map_err(io::Error::other);
    stream::limit(limit(memory_bytes)?, limit(processor_seconds)?)?;
    let wanted: WantedKeys = serde_json::from_str(wanted)?;
    let file = io::stdin().as_fd().try_clone_to_owned()?;
    let mut output = io::BufWriter::with_capacity(1 << 18, io::stdout().lock());
    send(file, &wanted, &mut |sent| {
        serde_json::to_writer(&mut output, &sent)?;
        output.write_all(b"\n")
    })?;
    output.flush()
}

/// Why a file is not sent to its end.
#[derive(Debug, thiserror::Error)]
enum Unsent {
    #[error(transparent)]
    Lost(#[from] io::Error),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Fails only as `sent` does.
fn send(
    file: OwnedFd,
    wanted: &WantedKeys,
    sent: &mut dyn FnMut(Sent) -> io::Result<()>,
) -> io::Result<()> {
    let decoded = contained::contained(|| decode(foreign::reopened(file), wanted, sent));
    match decoded.unwrap_or_else(|reason| Err(Refusal::parquet(reason).into())) {
        Ok(()) => sent(Sent::End {}),
        Err(Unsent::Refused(refusal)) => sent(Sent::Refused(refusal)),
        Err(Unsent::Lost(error)) => Err(error),
    }
}

fn decode<F: ChunkReader + 'static>(
    file: F,
    wanted: &WantedKeys,
    sent: &mut dyn FnMut(Sent) -> io::Result<()>,
) -> Result<(), Unsent> {
    let reader = SerializedFileReader::new(file).map_err(Refusal::parquet)?;
    let rows = claimed_rows(&reader)?;
    let schema = reader.metadata().file_metadata().schema();
    distinct(schema)?;
    let columns: Vec<String> =
        fields_of(schema).iter().map(|field| field.name().to_string()).collect();
    let is_marked = any_leaf(schema, is_text);
    let binary = fields_of(schema).iter().filter(|field| is_marked && any_leaf(field, is_bytes));
    let binary: Vec<String> = binary.map(|field| field.name().to_string()).collect();
    let local = fields_of(schema).iter().filter(|field| any_leaf(field, is_local));
    let local: Vec<&str> = local.map(|field| field.name()).collect();
    let read_as_text = || wanted.question.iter().chain(&wanted.answer);
    let form = |name: &str| Form {
        bytes_are_texts: !is_marked
            || read_as_text()
                .any(|key| key.split('.').next().is_some_and(|it| it.eq_ignore_ascii_case(name))),
        times_are_local: local.contains(&name),
    };
    let decimals = reader.metadata().file_metadata().schema_descr().columns().iter();
    let decimals = decimals.filter(|leaf| leaf.converted_type() == ConvertedType::DECIMAL);
    let scale = |leaf: &ColumnDescPtr| usize::try_from(leaf.type_scale()).unwrap_or(0);
    let decimals = decimals.map(|leaf| (leaf.path().string(), scale(leaf))).collect();
    sent(Sent::Head(Head { rows, columns, binary: binary.clone(), decimals }))?;
    if let Some(key) = wanted.answer.iter().find(|key| !wanted.all && is_time_at(schema, key)) {
        let reason = "expected text or a number, got dates, times or durations; write texts".into();
        return Err(Refusal::Cell { column: key.clone(), row: 0, reason }.into());
    }
    let chosen = projection(schema, wanted, &binary)?;
    let mut count = 0;
    for row in reader.get_row_iter(Some(chosen)).map_err(Refusal::parquet)? {
        let row = row.map_err(Refusal::parquet)?;
        if let Some(key) = read_as_text().find(|key| at(&row, key).is_some_and(has_other_bytes)) {
            let reason = "its bytes are no text; write it as text in UTF-8".to_string();
            let (column, row) = (key.clone(), count as usize);
            return Err(Refusal::Cell { column, row, reason }.into());
        }
        let cells = row.get_column_iter();
        let cells = cells.map(|(name, field)| (name.clone(), json(field, form(name))));
        sent(Sent::Row(cells.collect()))?;
        count += 1;
    }
    if count == rows {
        return Ok(());
    }
    Err(Refusal::parquet(format!("it claims {rows} rows and has {count}")).into())
}

fn any_leaf(field: &Type, is_such: fn(&Type) -> bool) -> bool {
    if !field.is_group() {
        return is_such(field);
    }
    fields_of(field).iter().any(|field| any_leaf(field, is_such))
}

fn is_text(leaf: &Type) -> bool {
    use ConvertedType::{ENUM, JSON, UTF8};
    [UTF8, ENUM, JSON].contains(&leaf.get_basic_info().converted_type())
}

fn is_bytes(leaf: &Type) -> bool {
    use parquet::basic::LogicalType;
    use parquet::basic::Type::{BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY};
    let info = leaf.get_basic_info();
    [BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY].contains(&leaf.get_physical_type())
        && [ConvertedType::NONE, ConvertedType::BSON].contains(&info.converted_type())
        && info.logical_type_ref() != Some(&LogicalType::Float16)
}

fn is_local(leaf: &Type) -> bool {
    use parquet::basic::LogicalType::Timestamp;
    let logical = leaf.get_basic_info().logical_type_ref();
    matches!(logical, Some(Timestamp(time)) if !time.is_adjusted_to_u_t_c)
}

fn distinct(group: &Type) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for field in fields_of(group) {
        if !seen.insert(field.name()) {
            let reason = format!("two columns or fields are called `{}`; rename one", field.name());
            return Err(Refusal::Parquet { reason });
        }
        distinct(field)?;
    }
    Ok(())
}

fn at<'a>(row: &'a Row, key: &str) -> Option<&'a Field> {
    let inside = |name: &str| {
        row.get_column_iter().find_map(|(it, field)| it.eq_ignore_ascii_case(name).then_some(field))
    };
    inside(key).or_else(|| {
        let (first, rest) = key.split_once('.')?;
        if let Field::Group(row) = inside(first)? { at(row, rest) } else { None }
    })
}

fn has_other_bytes(field: &Field) -> bool {
    match field {
        Field::Bytes(bytes) => bytes.as_utf8().is_err(),
        Field::Group(row) => row.get_column_iter().any(|(_, field)| has_other_bytes(field)),
        Field::ListInternal(list) => list.elements().iter().any(has_other_bytes),
        _ => false,
    }
}

fn is_time_at(group: &Type, key: &str) -> bool {
    let mut fields = fields_of(group).iter();
    fields.any(|field| match key.get(field.name().len()..) {
        Some("") => field.name().eq_ignore_ascii_case(key) && is_time(field),
        Some(rest) => {
            key.starts_with(field.name())
                && rest.strip_prefix('.').is_some_and(|rest| is_time_at(field, rest))
        }
        None => false,
    })
}

fn is_time(field: &Type) -> bool {
    use ConvertedType::{
        DATE, INTERVAL, TIME_MICROS, TIME_MILLIS, TIMESTAMP_MICROS, TIMESTAMP_MILLIS,
    };
    use parquet::basic::{LogicalType as Logical, Type::INT96};
    let info = field.get_basic_info();
    let times = [DATE, TIME_MILLIS, TIME_MICROS, TIMESTAMP_MILLIS, TIMESTAMP_MICROS, INTERVAL];
    times.contains(&info.converted_type())
        || matches!(
            info.logical_type_ref(),
            Some(Logical::Date | Logical::Time(_) | Logical::Timestamp(_))
        )
        || (!field.is_group() && field.get_physical_type() == INT96)
        || fields_of(field).iter().any(|field| is_time(field))
}

#[derive(Clone, Copy)]
struct Form {
    bytes_are_texts: bool,
    times_are_local: bool,
}

/// Bytes are base64, but for those in UTF-8 of a file that marks no column as text; 0.1 in 32 bits is 0.1, a decimal 2.50 is 2.5.
fn json(field: &Field, form: Form) -> Value {
    match field {
        Field::Bytes(bytes) => match bytes.as_utf8() {
            Ok(text) if form.bytes_are_texts => Value::from(text),
            _ => field.to_json_value(),
        },
        Field::TimestampMillis(_) | Field::TimestampMicros(_) if form.times_are_local => {
            let text = field.to_json_value();
            text.as_str().map(|text| text.trim_end_matches(" +00:00")).into()
        }
        Field::Decimal(_) => {
            Value::from(field.to_string().trim_end_matches('0').trim_end_matches('.'))
        }
        Field::Float(float) => float.to_string().parse::<f64>().map_or(Value::Null, Value::from),
        // A struct has the fields of every row.
        Field::Group(row) => {
            let cells =
                row.get_column_iter().map(|(name, field)| (name.clone(), json(field, form)));
            Value::Object(cells.filter(|(_, value)| !value.is_null()).collect())
        }
        Field::ListInternal(list) => list.elements().iter().map(|it| json(it, form)).collect(),
        Field::MapInternal(map) => {
            let entry = |(key, value): &(Field, Field)| {
                let key = json(key, form);
                (key.as_str().map_or_else(|| key.to_string(), str::to_string), json(value, form))
            };
            Value::Object(map.entries().iter().map(entry).collect())
        }
        other => other.to_json_value(),
    }
}

/// Refuses footers whose claims are too large.
fn claimed_rows(reader: &impl FileReader) -> Result<u64, Refusal> {
    let metadata = reader.metadata();
    let rows = metadata.file_metadata().num_rows();
    let rows = u64::try_from(rows).ok().filter(|rows| *rows <= MOST_ROWS).ok_or_else(|| {
        Refusal::parquet(format!("it claims {rows} rows, at most {MOST_ROWS} are read"))
    })?;
    let columns = metadata.file_metadata().schema_descr().num_columns();
    let parts = metadata.num_row_groups().saturating_mul(columns);
    if parts > MOST_PARTS {
        let reason = format!("it has {parts} row groups and columns, more than {MOST_PARTS}");
        return Err(Refusal::Parquet { reason });
    }
    Ok(rows)
}

/// Unwanted columns of unreadable types do no harm.
fn projection(schema: &Type, wanted: &WantedKeys, binary: &[String]) -> Result<Type, Refusal> {
    let alike = |fields: &[Arc<Type>], name: &str| -> Vec<Arc<Type>> {
        let is_alike = |field: &&Arc<Type>| field.name().eq_ignore_ascii_case(name);
        fields.iter().filter(is_alike).cloned().collect()
    };
    // A column's name, else a struct's field.
    let mut whole: Vec<Arc<Type>> = Vec::new();
    let mut parts: Vec<(Arc<Type>, Vec<Arc<Type>>)> = Vec::new();
    let mut choose = |key: &String| {
        let columns = alike(fields_of(schema), key);
        if !columns.is_empty() {
            whole.extend(columns);
            return true;
        }
        let Some((first, rest)) = key.split_once('.') else { return false };
        let column = fields_of(schema).iter().find(|field| field.name() == first);
        let Some(column) = column.cloned() else { return false };
        let inside = alike(fields_of(&column), rest.split('.').next().unwrap_or(rest));
        if !inside.is_empty() {
            match parts.iter_mut().find(|(known, _)| known.name() == first) {
                Some((_, fields)) => fields.extend(inside),
                None => parts.push((column, inside)),
            }
        } else if column.is_group() {
            return false;
        } else {
            // An object may be stored as text.
            whole.push(column);
        }
        true
    };
    for (keys, what) in [(&wanted.question, "question"), (&wanted.answer, "answer")] {
        let is_optional = wanted.all && what == "answer";
        if keys.iter().filter(|key| choose(key)).count() == 0 && !is_optional {
            let (column, present) = (keys.join("`, `"), present(schema));
            let advice = format!("; name it with --{what}-key KEY (`dapo data prepare`)");
            let present = if present.is_empty() { present } else { present + &advice };
            return Err(Refusal::MissingColumn { column, present });
        }
    }
    let is_binary = |key: &str| binary.iter().any(|name| name.eq_ignore_ascii_case(key));
    for key in wanted.others.iter().filter(|key| !is_binary(key)) {
        choose(key);
    }
    if wanted.all {
        whole.extend(fields_of(schema).iter().cloned());
    }
    let mut chosen: Vec<Arc<Type>> = Vec::new();
    for (column, mut fields) in parts {
        fields.dedup_by_key(|field| field.name().to_string());
        if !whole.iter().any(|known| known.name() == column.name()) {
            let group = Type::group_type_builder(column.name())
                .with_repetition(column.get_basic_info().repetition())
                .with_fields(fields);
            chosen.push(Arc::new(group.build().map_err(Refusal::parquet)?));
        }
    }
    for column in whole {
        if !chosen.iter().any(|known| known.name() == column.name()) {
            chosen.push(column);
        }
    }
    let schema = Type::group_type_builder(schema.name()).with_fields(chosen);
    schema.build().map_err(Refusal::parquet)
}

fn fields_of(group: &Type) -> &[Arc<Type>] {
    if group.is_group() { group.get_fields() } else { &[] }
}

/// Names columns and fields of structs for a message.
fn present(schema: &Type) -> String {
    let describe = |field: &Arc<Type>| {
        let is_list = field.get_basic_info().logical_type_ref().is_some()
            || field.get_basic_info().converted_type() == parquet::basic::ConvertedType::LIST;
        if !field.is_group() || is_list {
            return field.name().to_string();
        }
        let names: Vec<&str> = fields_of(field).iter().map(|inner| inner.name()).collect();
        format!("{}.{{{}}}", field.name(), names.join(","))
    };
    fields_of(schema).iter().map(describe).collect::<Vec<_>>().join(", ")
}

//! Reading what somebody else made: how much of it is read at most, and which of its names may become a path.
//! One place for both, so that a reader of a run folder, a table or a checkpoint need not think of it again.
//!
//! | What | At most | Why so much |
//! |---|---|---|
//! | a JSON document | 16 MiB | digests of 100,000 files |
//! | JSON lines of a run folder | 64 MiB, 2^20 lines of 1 MiB | 20,000 rollout steps |
//! | JSON lines that a user names | 4 GiB, 2^26 lines of 16 MiB | the largest problem sets |
//! | JSON lines that a user names and that are held whole | 512 MiB, 2^22 lines of 16 MiB | responses |
//! | a text: a report, YAML, a log | 64 MiB | |
//! | lines that `xz` compressed | 512 MiB, and 256 KiB more than its text; 80 MiB to decompress | records of a study |
//! | any other file that is read whole | 512 MiB | tables of outcomes and rollouts |
//! | any file that is hashed | 256 GiB, an eighth of them data | AdamW's moments of a policy of 32 B |
//! | `tokenizer.json` | 64 MiB | the largest published ones have 33 MB |
//! | entries of a folder | 2^20 | |
//!
//! Refused before a byte is read: a pipe that nobody has opened, a device that is no terminal, what a
//! kernel makes up, a file that is almost all holes, and one that is larger than its bound.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a part of the module that clippy.toml sends everybody to"
)]

use crate::base::files::{self, FileError, FileKind, invalid, io_error};
use crate::base::visible;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Component, Path, PathBuf};
use std::{fmt, fs};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignLimits {
    pub bytes: u64,
    pub line_bytes: u64,
    pub lines: usize,
}

/// A record file of a run folder. A line of metrics has 3 kB.
pub const RECORDS: ForeignLimits =
    ForeignLimits { bytes: 64 << 20, line_bytes: 1 << 20, lines: 1 << 20 };

/// Problems, prompts and responses that a user names.
pub const DATA: ForeignLimits =
    ForeignLimits { bytes: 4 << 30, line_bytes: 16 << 20, lines: 1 << 26 };

/// As [`DATA`], where all lines are in memory at once.
pub const HELD_DATA: ForeignLimits =
    ForeignLimits { bytes: 512 << 20, line_bytes: 16 << 20, lines: 1 << 22 };

pub const MOST_JSON_BYTES: u64 = 16 << 20;

pub const MOST_FILE_BYTES: u64 = 512 << 20;

pub const MOST_TEXT_BYTES: u64 = 64 << 20;

/// Memory to decompress a file: the dictionary of `xz -9` has 64 MiB.
const MOST_XZ_KIB: u32 = 80 << 10;

const MOST_XZ_SURPLUS: usize = 256 << 10;

/// Any file that is hashed: AdamW's moments of a policy of 32 B, in one file.
pub const MOST_HASHED_BYTES: u64 = 256 << 30;

/// From this size on, an eighth of a file must be data: a file with holes claims a size that nobody had to send.
const HOLES_ARE_LOOKED_FOR_FROM_BYTES: u64 = 1 << 16;

/// `tokenizer.json`.
pub const MOST_TOKENIZER_BYTES: u64 = 64 << 20;

pub const MOST_ENTRIES: usize = 1 << 20;

const MOST_NAME_BYTES: usize = 1024;

/// Opens a file to read it. Refuses a device that is no terminal, and what the kernel makes up. A pipe is read only if
/// it is open already (`/dev/stdin`, `<(…)`): opening one without a writer would wait without end.
pub fn open(path: &Path) -> Result<fs::File, FileError> {
    use std::os::unix::fs::{FileExt, FileTypeExt};
    let refuse = |reason: String| Err(invalid("read", path, reason));
    let facts = fs::metadata(path).map_err(io_error("read", path))?;
    let kind = facts.file_type();
    let is_open_already = path.starts_with("/dev") || path.starts_with("/proc");
    if kind.is_fifo() && !is_open_already {
        return refuse("it is a pipe".to_string());
    }
    // To open a device can already do something: rewind a tape, wait for a line.
    if kind.is_block_device() || (kind.is_char_device() && !is_standard_input(path)) {
        return refuse("it is no regular file".to_string());
    }
    let file = fs::File::open(path).map_err(io_error("read", path))?;
    if kind.is_char_device() && !io::IsTerminal::is_terminal(&file) {
        return refuse("it is no regular file".to_string());
    }
    if facts.is_file() && is_of_the_kernel(&file).map_err(io_error("read", path))? {
        return refuse("it is no file on a disk".to_string());
    }
    let mut head = [0; LFS.len()];
    if facts.is_file() && file.read_at(&mut head, 0).is_ok() && &head == LFS {
        return refuse("it is a pointer of Git LFS; `git lfs pull` fetches the file".to_string());
    }
    Ok(file)
}

const LFS: &[u8; 23] = b"version https://git-lfs";

pub const PACKED: [(&[u8], &str); 5] = [
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive; unpack it first"),
    (b"BZh", "a bzip2 archive; unpack it first"),
    (b"\xfd7zXZ", "an xz archive; unpack it first"),
    (b"PK\x03\x04", "a zip archive, as .xlsx and .npz files are; unpack it first"),
];

pub fn refuse_packed(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    match PACKED.iter().find(|(mark, _)| bytes.starts_with(mark)) {
        Some((_, what)) => Err(invalid("read", path, format!("it is {what}"))),
        None => Ok(()),
    }
}

fn refuse_holes(path: &Path, file: &mut fs::File, size: u64) -> Result<(), FileError> {
    if size >= HOLES_ARE_LOOKED_FOR_FROM_BYTES && !has_data(file, size / 8) {
        let reason = format!("of its {size} bytes almost all are holes");
        return Err(invalid("read", path, reason));
    }
    file.rewind().map_err(io_error("read", path))
}

fn is_standard_input(path: &Path) -> bool {
    ["/dev/stdin", "/dev/tty", "/dev/fd/0", "/proc/self/fd/0"]
        .iter()
        .any(|name| path == Path::new(name))
}

/// What a parser says of a text that may be somebody else's, with the place and without the text.
pub fn without_text(text: &str, message: &str, span: Option<std::ops::Range<usize>>) -> String {
    let before = span.and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
    format!("line {line}, column {column}: {}", without_values(message))
}

/// A parser's message without the strings that it quotes from a file: `invalid type: string "…", expected u64`.
pub fn without_values(message: &str) -> String {
    match message.split_once(" string \"") {
        Some((before, after)) => {
            let rest = after.rfind("\", expected ").map_or("", |end| &after[end + 1..]);
            format!("{before} a string{rest}")
        }
        None => visible::shortened(message, 400),
    }
}

/// As [`open`], of a file whose end is known: no pipe, no device. The size comes with it.
pub fn open_regular(path: &Path) -> Result<(fs::File, u64), FileError> {
    let file = open(path)?;
    let facts = file.metadata().map_err(io_error("read", path))?;
    if facts.is_dir() {
        return Err(io_error("read", path)(io::ErrorKind::IsADirectory.into()));
    }
    if facts.is_file() {
        return Ok((file, facts.len()));
    }
    Err(invalid("read", path, "it is no regular file".to_string()))
}

/// Calls `each` with a file's bytes, piece by piece. Refuses what is no regular file, what has more than
/// [`MOST_HASHED_BYTES`] or almost only holes, and a file that is longer or shorter than it says, as those of a
/// kernel's file system.
pub fn each_piece(path: &Path, mut each: impl FnMut(&[u8])) -> Result<(), FileError> {
    let (mut file, size) = open_regular(path)?;
    let refuse = |reason: String| Err(invalid("read", path, reason));
    if size > MOST_HASHED_BYTES {
        return refuse(format!("larger than {MOST_HASHED_BYTES} bytes"));
    }
    refuse_holes(path, &mut file, size)?;
    let mut left = size;
    let mut piece = vec![0; 1 << 20];
    loop {
        // One byte more than there should be shows a file that goes on.
        let wanted = piece.len().min(usize::try_from(left + 1).unwrap_or(usize::MAX));
        let count = file.read(&mut piece[..wanted]).map_err(io_error("read", path))?;
        if count as u64 > left || (count == 0 && left > 0) {
            return refuse(format!("it has another size than the {size} bytes it says"));
        }
        if count == 0 {
            return Ok(());
        }
        left -= count as u64;
        each(&piece[..count]);
    }
}

/// Whether the kernel makes a file's content up: its size says nothing, and reading it may wait or have no end.
fn is_of_the_kernel(file: &fs::File) -> io::Result<bool> {
    /// `f_type` of procfs, sysfs, debugfs, tracefs, securityfs, and of control groups (1 and 2).
    const MADE_UP: [u64; 7] =
        [0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163, 0x7363_6673, 0x0027_e0eb, 0x6367_7270];
    Ok(MADE_UP.contains(&(rustix::fs::fstatfs(file)?.f_type as u64)))
}

/// Whether at least so many bytes are data and not holes; all count as data where the file system does not tell.
fn has_data(file: &fs::File, least: u64) -> bool {
    let (mut at, mut data) = (0, 0);
    while data < least {
        let from = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
            Ok(from) => from,
            // Only holes follow.
            Err(rustix::io::Errno::NXIO) => return false,
            Err(_) => return true,
        };
        match rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(from)) {
            Ok(to) => (at, data) = (to, data + (to - from)),
            Err(_) => return true,
        }
    }
    true
}

pub fn reopened(descriptor: std::os::fd::OwnedFd) -> fs::File {
    fs::File::from(descriptor)
}

/// The bytes of a file that has at most `limit` of them, and more than holes.
pub fn read_up_to(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    let mut file = open(path)?;
    let facts = file.metadata().map_err(io_error("read", path))?;
    let size = facts.len();
    let too_large = || invalid("read", path, format!("larger than {limit} bytes"));
    if size > limit {
        return Err(too_large());
    }
    if facts.is_file() {
        refuse_holes(path, &mut file, size)?;
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(io_error("read", path))?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}

/// Calls `each` with the number (from 1) and the bytes of each line without its end. One line is in memory at a time.
pub fn each_line<E: From<FileError>>(
    path: &Path,
    mut reader: impl BufRead,
    limits: ForeignLimits,
    mut each: impl FnMut(usize, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (mut line, mut number, mut total) = (Vec::new(), 0, 0);
    loop {
        line.clear();
        let mut next = reader.by_ref().take(limits.line_bytes + 1);
        let count = next.read_until(b'\n', &mut line).map_err(io_error("read", path))?;
        if count == 0 {
            return Ok(());
        }
        number += 1;
        total += count as u64;
        if number == 1 {
            refuse_packed(path, &line)?;
        }
        let refuse = |reason: String| {
            let (path, line) = (path.to_path_buf(), number);
            Err(E::from(FileError::Line { path, line, reason }))
        };
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if count as u64 > limits.line_bytes {
            return refuse(format!("a line of more than {} bytes", limits.line_bytes));
        }
        if total > limits.bytes {
            return refuse(format!("the file has more than {} bytes", limits.bytes));
        }
        if number > limits.lines {
            return refuse(format!("the file has more than {} lines", limits.lines));
        }
        each(number, &line)?;
    }
}

/// As [`each_line`], of a file that `xz` compressed; the limits are those of its content, and lines before a damage are
/// read.
pub fn each_line_of_xz<E: From<FileError>>(
    path: &Path,
    limits: ForeignLimits,
    each: impl FnMut(usize, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let bytes = read_up_to(path, MOST_FILE_BYTES)?;
    let input = XzInput { bytes: &bytes, allowed: MOST_XZ_SURPLUS };
    let decoder = lzma_rust2::XzReader::new_mem_limit(input, true, MOST_XZ_KIB);
    each_line(path, BufReader::new(XzText(decoder)), limits, each)
}

struct XzText<'a>(lzma_rust2::XzReader<XzInput<'a>>);

impl Read for XzText<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("not a whole xz file: {error}"))
        })?;
        self.0.inner_mut().allowed += count;
        Ok(count)
    }
}

/// Streams and blocks without text cost time, and no file says beforehand how many it has.
struct XzInput<'a> {
    bytes: &'a [u8],
    allowed: usize,
}

impl Read for XzInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.allowed == 0 && !self.bytes.is_empty() {
            return Err(io::Error::other("it has far more compressed bytes than text"));
        }
        let most = buffer.len().min(self.allowed);
        let count = self.bytes.read(&mut buffer[..most])?;
        self.allowed -= count;
        Ok(count)
    }
}

/// The path inside a folder of a name that a file or another person gave; such a name becomes a path only here. It has
/// no `..`, is not absolute, and nothing on the way is a link, a pipe or a device. The path need not exist.
pub fn inside(folder: &Path, name: &str) -> Result<PathBuf, FileError> {
    let refuse = |reason: String| {
        let name: String = name.chars().take(200).collect();
        Err(FileError::Outside { folder: folder.to_path_buf(), name, reason })
    };
    if name.is_empty() || name.len() > MOST_NAME_BYTES {
        return refuse(format!("it has {} bytes", name.len()));
    }
    if name.chars().any(char::is_control) {
        return refuse("it has a control character".to_string());
    }
    // `Path` drops `.` and doubled separators, by which two names would be one file.
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    if !name.split('/').all(plain)
        || !Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
    {
        return refuse("it is not a plain relative path".to_string());
    }
    let mut path = folder.to_path_buf();
    let mut parts = name.split('/').peekable();
    while let Some(part) = parts.next() {
        path.push(part);
        match (files::kind(&path), parts.peek()) {
            (Ok(Some(FileKind::Other)), _) => {
                return refuse(format!("{part} is a link, or no regular file"));
            }
            (Ok(Some(FileKind::File)), Some(_)) => return refuse(format!("{part} is a file")),
            _ => {}
        }
    }
    Ok(path)
}

/// Refuses a folder that contains a link, a pipe or a device: work in it would write or delete elsewhere. The folder
/// itself may be a link.
pub fn refuse_links(folder: &Path) -> Result<(), FileError> {
    let mut folders = vec![String::new()];
    let mut seen = 0;
    while let Some(relative) = folders.pop() {
        for name in files::list(&folder.join(&relative))? {
            let name = if relative.is_empty() { name } else { format!("{relative}/{name}") };
            let refuse = |reason: &str| FileError::Outside {
                folder: folder.to_path_buf(),
                name: name.clone(),
                reason: reason.to_string(),
            };
            seen += 1;
            if seen > MOST_ENTRIES {
                return Err(refuse("the folder has too many entries"));
            }
            match files::kind(&folder.join(&name))? {
                Some(FileKind::Other) => return Err(refuse("it is a link, or no regular file")),
                Some(FileKind::Folder) => folders.push(name),
                Some(FileKind::File) | None => {}
            }
        }
    }
    Ok(())
}

/// Refuses JSON in which an object has a key twice: one reader would see the first value and
/// another the last. `serde_json` bounds the depth (128).
pub fn refuse_repeated_keys(text: &str) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Distinct.deserialize(&mut deserializer)
}

/// The first integer outside of texts that 64 bits do not hold: `serde_json` reads it as a rounded number.
pub fn inexact_integer(json: &[u8]) -> Option<&str> {
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let mut rest = json;
    while let Some((&byte, after)) = rest.split_first() {
        let length = match byte {
            b'"' => {
                let mut is_escaped = false;
                let is_end = |byte: &u8| {
                    let ends = *byte == b'"' && !is_escaped;
                    is_escaped = *byte == b'\\' && !is_escaped;
                    ends
                };
                after.iter().position(is_end).map_or(json.len(), |end| end + 2)
            }
            b'-' | b'0'..=b'9' => rest.iter().take_while(|byte| is_of_number(byte)).count(),
            _ => 1,
        };
        let (token, after) = rest.split_at(length.min(rest.len()));
        let digits = token.strip_prefix(b"-").unwrap_or(token);
        if digits.len() > 18 && digits.iter().all(u8::is_ascii_digit) {
            let text = std::str::from_utf8(token).ok()?;
            if text.parse::<i64>().is_err() && text.parse::<u64>().is_err() {
                return Some(text);
            }
        }
        rest = after;
    }
    None
}

macro_rules! accepted {
    ($($visit:ident: $value:ty),*) => {
        $(fn $visit<E>(self, _value: $value) -> Result<(), E> {
            Ok(())
        })*
    };
}

#[derive(Clone, Copy)]
struct Distinct;

impl<'de> DeserializeSeed<'de> for Distinct {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Distinct {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("JSON")
    }

    accepted!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        while values.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut keys: BTreeSet<JsonKey<'de>> = BTreeSet::new();
        while let Some(key) = entries.next_key::<JsonKey<'de>>()? {
            if keys.contains(&key) {
                let key: String = key.0.chars().take(80).collect();
                return Err(serde::de::Error::custom(format!("duplicate field `{key}`")));
            }
            keys.insert(key);
            entries.next_value_seed(self)?;
        }
        Ok(())
    }
}

/// A key, borrowed from the text where nothing in it is escaped.
#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct JsonKey<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

#[cfg(test)]
mod tests;

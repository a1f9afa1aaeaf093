//! The only module that touches the file system: atomic writes, canonical JSON, SHA-256, JSON lines. Every error names
//! its path.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the module that clippy.toml sends everybody to"
)]

pub mod foreign;
pub mod leftovers;
pub mod locks;

use crate::base::visible;
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot {action} {}: {}", path.display(), without_code(&source.to_string()))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{}: {reason}", path.display())]
    Json { path: PathBuf, reason: String },
    #[error("{}: {name:?} names nothing inside this folder: {reason}", folder.display())]
    Outside { folder: PathBuf, name: String, reason: String },
    #[error("{}:{line}: {reason}", path.display())]
    Line { path: PathBuf, line: usize, reason: String },
}

pub fn without_code(message: &str) -> String {
    let Some((words, rest)) = message.split_once(" (os error ") else { return message.to_string() };
    let rest = rest.split_once(')').map_or("", |(_code, rest)| rest);
    format!("{words}{rest}")
}

impl FileError {
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Whether the machine or a permission kept a file from being read: its content may be as it should.
pub fn is_unread(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{InvalidData, InvalidFilename, InvalidInput};
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, UnexpectedEof};
    const LOOP_OF_LINKS: Option<i32> = Some(rustix::io::Errno::LOOP.raw_os_error());
    let mut causes = std::iter::successors(Some(error), |&cause| cause.source());
    let failure = causes.find_map(|cause| cause.downcast_ref::<io::Error>());
    failure.is_some_and(|failure| match failure.kind() {
        InvalidData | InvalidFilename | InvalidInput | IsADirectory | NotADirectory | NotFound
        | UnexpectedEof => false,
        _ => failure.raw_os_error() != LOOP_OF_LINKS,
    })
}

pub fn optional<T>(read: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match read {
        Err(error) if error.is_missing() => Ok(None),
        read => read.map(Some),
    }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_path_buf();
    move |source| FileError::Io { action, path, source }
}

fn invalid(action: &'static str, path: &Path, reason: String) -> FileError {
    io_error(action, path)(io::Error::new(io::ErrorKind::InvalidData, reason))
}

/// The file's bytes, at most [`foreign::MOST_FILE_BYTES`].
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    foreign::read_up_to(path, foreign::MOST_FILE_BYTES)
}

/// The file's text, at most [`foreign::MOST_TEXT_BYTES`]; not UTF-8 is an error.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    read_text_up_to(path, foreign::MOST_TEXT_BYTES)
}

/// The text of a file of this machine's kernel, at most 16 MiB of it. Never of a path that somebody else names: such a
/// file may wait or have no end.
pub fn kernel_text(path: &Path) -> Result<String, FileError> {
    use io::Read;
    let mut text = String::new();
    let file = fs::File::open(path).map_err(io_error("read", path))?;
    file.take(16 << 20).read_to_string(&mut text).map_err(io_error("read", path))?;
    Ok(text)
}

/// As [`read_text`], of a file that cannot sensibly be larger than `limit` bytes.
pub fn read_text_up_to(path: &Path, limit: u64) -> Result<String, FileError> {
    String::from_utf8(foreign::read_up_to(path, limit)?).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        invalid("read", path, format!("not UTF-8 at byte {place}"))
    })
}

pub fn create_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(|error| match in_the_way(path) {
        Some(reason) => invalid("create folder", path, format!("{reason}; choose another name")),
        None => io_error("create folder", path)(error),
    })
}

/// A folder that only this user can look into, made if there is none. Another's, and a link, are refused.
pub fn private_folder(path: &Path) -> Result<(), FileError> {
    if let Err(error) = fs::DirBuilder::new().mode(0o700).create(path)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(no_temporary(parent(path), &error));
    }
    let entry = fs::symlink_metadata(path).map_err(io_error("look at", path))?;
    let is_own = entry.is_dir() && entry.uid() == rustix::process::geteuid().as_raw();
    if !is_own || entry.mode() & 0o077 != 0 {
        let reason =
            "it is not a folder of yours that nobody else can open; remove it, or set TMPDIR";
        return Err(invalid("use", path, reason.to_string()));
    }
    Ok(())
}

fn no_temporary(folder: &Path, error: &io::Error) -> FileError {
    let reason = io::Error::new(error.kind(), format!("{error}; TMPDIR names another"));
    io_error("create a folder in", folder)(reason)
}

/// The part of a folder's path that is there and no folder.
fn in_the_way(path: &Path) -> Option<String> {
    let parts = path.ancestors().filter(|part| !part.as_os_str().is_empty());
    let (part, kind) = parts.map(|part| (part, kind(part))).find_map(|(part, kind)| {
        kind.ok().flatten().filter(|_| !part.is_dir()).map(|kind| (part, kind))
    })?;
    let what = match kind {
        FileKind::Other if !part.exists() => "a link to something that is not there",
        _ => "a file",
    };
    Some(format!("{} is {what}", part.display()))
}

/// Removes a folder and what is in it, if there is one. It first goes into a [`leftovers::scratch_folder`], so a process that is
/// killed leaves no half of a folder under its own name.
pub fn remove_folder(path: &Path) -> Result<(), FileError> {
    let remove = |path: &Path| unless_absent(fs::remove_dir_all(path), "remove folder", path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.is_empty() || leftovers::is_partial(&name) || kind(path)? != Some(FileKind::Folder) {
        return remove(path);
    }
    let scratch = leftovers::scratch_folder(Some(parent(path)))?;
    let moved = scratch.path().join("removed");
    unless_absent(fs::rename(path, &moved), "remove folder", path)?;
    remove(&moved)
}

/// Removes a file, not what a link points to; does nothing when there is none.
pub fn remove_file(path: &Path) -> Result<(), FileError> {
    unless_absent(fs::remove_file(path), "remove", path)
}

fn unless_absent(done: io::Result<()>, action: &'static str, path: &Path) -> Result<(), FileError> {
    match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(action, path)(error)),
        _ => Ok(()),
    }
}

pub fn nearest_folder(path: &Path) -> &Path {
    let whole = path.ancestors().find(|folder| folder.is_dir());
    whole.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Bytes that this user can still write where `path` is or will be.
pub fn free_bytes(path: &Path) -> Result<u64, FileError> {
    let folder = nearest_folder(path);
    let facts = rustix::fs::statvfs(folder)
        .map_err(|error| io_error("ask for the free space of", folder)(error.into()))?;
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}

fn without_library_path(error: io::Error) -> io::Error {
    match error.to_string().rsplit_once(" at path ") {
        Some((reason, _)) => io::Error::new(error.kind(), reason),
        None => error,
    }
}

pub fn list(path: &Path) -> Result<Vec<String>, FileError> {
    let mut names = Vec::new();
    let entries = fs::read_dir(path).map_err(|error| match in_the_way(path) {
        Some(reason) => invalid("list", path, reason),
        None => io_error("list", path)(error),
    })?;
    for entry in entries {
        let entry = entry.map_err(io_error("list", path))?;
        if names.len() == foreign::MOST_ENTRIES {
            return Err(invalid("list", path, format!("more than {} entries", names.len())));
        }
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Folder,
    /// A symbolic link, a device, a socket: nothing that this program made.
    Other,
}

/// What an entry is; `None` when there is none.
pub fn kind(path: &Path) -> Result<Option<FileKind>, FileError> {
    match fs::symlink_metadata(path) {
        Ok(entry) if entry.is_file() => Ok(Some(FileKind::File)),
        Ok(entry) if entry.is_dir() => Ok(Some(FileKind::Folder)),
        Ok(_) => Ok(Some(FileKind::Other)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("look at", path)(error)),
    }
}

pub fn file_bytes(path: &Path) -> Result<u64, FileError> {
    Ok(fs::metadata(path).map_err(io_error("look at", path))?.len())
}

/// Bytes of a file, or of all files below a folder. Links are not followed.
pub fn size_bytes(path: &Path) -> Result<u64, FileError> {
    let entry = fs::symlink_metadata(path).map_err(io_error("look at", path))?;
    if !entry.is_dir() {
        return Ok(entry.len());
    }
    let mut bytes = 0;
    for name in list(path)? {
        bytes += optional(size_bytes(&path.join(name)))?.unwrap_or(0);
    }
    Ok(bytes)
}

/// Replaces a file in one step: a reader sees the old bytes or the new ones, never a part. The data and the folder's
/// entry reach the disk before this returns.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write_atomic_with(path, |file| file.write_all(bytes))
}

/// As [`write_atomic`], for a file that may be executed.
pub fn write_program(path: &Path, text: &str) -> Result<(), FileError> {
    write_atomic(path, text.as_bytes())?;
    let make_executable = || {
        let mode = fs::metadata(path)?.permissions().mode();
        fs::set_permissions(path, fs::Permissions::from_mode(mode | (mode & 0o444) >> 2))
    };
    make_executable().map_err(io_error("write", path))
}

/// As [`write_atomic`], with the bytes produced by a function.
pub fn write_atomic_with(
    path: &Path,
    fill: impl FnOnce(&mut fs::File) -> io::Result<()>,
) -> Result<(), FileError> {
    let folder = parent(path);
    create_folder(folder)?;
    leftovers::remove_leftovers(folder);
    let write = || -> io::Result<()> {
        let mut file = partial_file(folder)?;
        fill(file.as_file_mut())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        fs::File::open(folder)?.sync_all()
    };
    write().map_err(without_library_path).map_err(io_error("write", path))
}

pub fn renew(path: &Path, text: &str) -> Result<(), FileError> {
    let is_there = read(path).is_ok_and(|there| there == text.as_bytes());
    if is_there { Ok(()) } else { write_atomic(path, text.as_bytes()) }
}

fn partial_file(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    loop {
        let mut file = tempfile::Builder::new();
        file.prefix(leftovers::PARTIAL_FILE).permissions(fs::Permissions::from_mode(0o666));
        let file = file.tempfile_in(folder)?;
        let _unsupported = file.as_file().lock();
        if file.path().exists() {
            return Ok(file);
        }
    }
}

fn parent(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

fn sync(path: &Path) -> Result<(), FileError> {
    fs::File::open(path).and_then(|folder| folder.sync_all()).map_err(io_error("sync", path))
}

pub fn move_folder(from: &Path, to: &Path) -> Result<(), FileError> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let rename = |from: &Path, to: &Path| {
        let moved = match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::INVAL) => fs::rename(from, to),
            moved => moved.map_err(io::Error::from),
        };
        moved.map_err(io_error("move into place", to))
    };
    if kind(to)?.is_none() {
        rename(from, to)?;
        return sync(parent(to));
    }
    list(from)?.iter().try_for_each(|name| rename(&from.join(name), &to.join(name)))?;
    sync(to)
}

/// Moves a finished folder into place over one that is there, at once where the file system can exchange them.
/// Both folders' entries are on the disk when it returns.
pub fn replace_folder(from: &Path, to: &Path) -> Result<(), FileError> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    sync(from)?;
    if kind(to)? == Some(FileKind::Folder)
        && renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE).is_ok()
    {
        remove_folder(from)?;
    } else {
        remove_folder(to)?;
        fs::rename(from, to).map_err(io_error("move into place", to))?;
    }
    sync(parent(to))
}

pub fn what_is_fixed(folder: &Path) -> Option<&'static str> {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let facts = statx(CWD, folder, AtFlags::empty(), StatxFlags::TYPE);
    if facts.is_ok_and(|it| it.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)) {
        return Some("a mount point");
    }
    std::env::current_dir().is_ok_and(|it| it == folder).then_some("the working folder")
}

/// Writes a file that the user names: behind a link the file that it leads to is replaced, and a pipe or a device gets
/// the bytes. [`write_atomic`] is for names inside a folder: that may be somebody else's, whose links lead anywhere.
pub fn write_output(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let Some(file) = output_file(path)? else {
        // Appended, so that the file behind /dev/stdout keeps what was printed.
        let open = fs::OpenOptions::new().append(true).open(path);
        return open.and_then(|mut file| file.write_all(bytes)).map_err(io_error("write", path));
    };
    write_atomic(&file, bytes)
}

pub fn remove_output(path: &Path) -> Result<(), FileError> {
    output_file(path)?.map_or(Ok(()), |file| remove_file(&file))
}

/// A document may be written where there is none or over one that begins alike: no file of another kind is replaced.
pub fn may_write(path: &Path, begins: impl AsRef<[u8]>) -> Result<(), FileError> {
    let Some(file) = output_file(path)? else { return Ok(()) };
    match kind(&file)? {
        None => return Ok(()),
        Some(FileKind::File) => {}
        Some(_) => {
            return Err(invalid("write", path, "a folder is there: name a file".to_string()));
        }
    }
    let there = foreign::read_up_to(&file, foreign::MOST_TEXT_BYTES)?;
    if there.is_empty() || there.starts_with(begins.as_ref()) {
        return Ok(());
    }
    Err(invalid("write", path, "another file is there: choose another name".to_string()))
}

/// Where an output goes, behind links; `None` for a pipe, a device and an open file (`/dev/stdout`).
fn output_file(path: &Path) -> Result<Option<PathBuf>, FileError> {
    let mut file = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        if kind(&file)? != Some(FileKind::Other) {
            return Ok(Some(file));
        }
        let folder = fs::canonicalize(parent(&file)).map_err(io_error("write", path))?;
        match fs::read_link(&file) {
            Ok(target) if !folder.starts_with("/proc") => file = folder.join(target),
            _ => return Ok(None),
        }
    }
    Err(invalid("write", path, "its links have no end".to_string()))
}

const MOST_LINKS: usize = 40;

pub fn append(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let is_shared = |it: fs::Metadata| it.is_file() && it.nlink() > 1;
    if fs::symlink_metadata(path).is_ok_and(is_shared) {
        write_atomic(path, &read(path)?)?;
    }
    let append = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(bytes)?;
        file.sync_data()
    };
    append().map_err(io_error("append to", path))
}

/// The end of a file as standard output and standard error of a child process.
pub fn log_writers(path: &Path) -> Result<(fs::File, fs::File), FileError> {
    let open = || -> io::Result<_> {
        let file = fs::OpenOptions::new().create(true).append(true).open(path)?;
        Ok((file.try_clone()?, file))
    };
    open().map_err(io_error("append to", path))
}

/// JSON with sorted object keys, two-space indentation and a final newline: the same value gives the same bytes.
pub fn canonical_json(value: &impl Serialize) -> String {
    let mut text =
        serde_json::to_string_pretty(&sorted(value)).expect("a JSON value can be printed");
    text.push('\n');
    text
}

/// As [`canonical_json`], on one line without a final newline.
pub fn canonical_json_line(value: &impl Serialize) -> String {
    sorted(value).to_string()
}

fn sorted(value: &impl Serialize) -> serde_json::Value {
    let mut value = serde_json::to_value(value).expect("a plain record is representable in JSON");
    value.sort_all_objects();
    value
}

pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), FileError> {
    write_atomic(path, canonical_json(value).as_bytes())
}

/// Reads one JSON value of at most [`foreign::MOST_JSON_BYTES`]; the error names the key path and
/// shows no text of the file. A key that stands twice in an object is an error.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, FileError> {
    let _regular = foreign::open_regular(path)?;
    let text = read_text_up_to(path, foreign::MOST_JSON_BYTES)?;
    strict_json(&text).map_err(|reason| {
        let reason = foreign::without_values(&reason);
        FileError::Json { path: path.to_path_buf(), reason }
    })
}

fn strict_json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer);
    let value = value.map_err(|error| {
        let (text, reason) = (error.to_string(), error.inner().to_string());
        let key = visible::shortened(text.strip_suffix(&reason).unwrap_or_default(), 80);
        key + &in_words(&reason)
    })?;
    deserializer.end().map_err(|error| error.to_string())?;
    foreign::refuse_repeated_keys(text).map_err(|error| error.to_string())?;
    Ok(value)
}

pub fn in_words(reason: &str) -> String {
    let lone = r"a surrogate (\ud800 to \udfff) stands without its pair";
    let reason = reason.replace("unexpected end of hex escape", lone);
    reason.replace("lone leading surrogate in hex escape", lone)
}

/// Appends one record as a line; it is on the disk when this returns. [`complete_lines`] drops a line that was cut off.
pub fn append_line(path: &Path, record: &impl Serialize) -> Result<(), FileError> {
    append_lines(path, std::slice::from_ref(record))
}

pub fn append_lines<T: Serialize>(path: &Path, records: &[T]) -> Result<(), FileError> {
    let lines: String = records.iter().map(|record| canonical_json_line(record) + "\n").collect();
    append(path, lines.as_bytes())
}

pub fn write_lines<T: Serialize>(path: &Path, records: &[T]) -> Result<(), FileError> {
    let lines: String = records.iter().map(|record| canonical_json_line(record) + "\n").collect();
    write_atomic(path, lines.as_bytes())
}

/// The records before the first line that is not whole, which a killed process left; none if there is no file.
pub fn complete_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, FileError> {
    let read = optional(foreign::read_up_to(path, foreign::RECORDS.bytes))?;
    let Some(bytes) = read else { return Ok(Vec::new()) };
    let whole = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let parse = |(index, line)| parse_line(path, index + 1, line).ok().flatten();
    Ok(whole.enumerate().map_while(parse).collect())
}

/// Reads a JSON-lines file of a run folder within [`foreign::RECORDS`]. Blank lines are skipped; errors name the line.
pub fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, FileError> {
    let (file, _size) = foreign::open_regular(path)?;
    lines_of(path, io::BufReader::new(file), foreign::RECORDS)
}

/// As [`read_lines`], of a file that the user names, within [`foreign::HELD_DATA`].
pub fn read_data_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, FileError> {
    lines_of(path, io::BufReader::new(foreign::open(path)?), foreign::HELD_DATA)
}

/// As [`read_data_lines`], of bytes that came from elsewhere; `path` is for messages.
pub fn parse_lines<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<Vec<T>, FileError> {
    lines_of(path, bytes, foreign::HELD_DATA)
}

fn lines_of<T: DeserializeOwned>(
    path: &Path,
    reader: impl io::BufRead,
    limits: foreign::ForeignLimits,
) -> Result<Vec<T>, FileError> {
    let mut records = Vec::new();
    foreign::each_line(path, reader, limits, |number, line| -> Result<(), FileError> {
        records.extend(parse_line(path, number, line)?);
        Ok(())
    })?;
    Ok(records)
}

/// One line's record; `None` when it is blank.
pub fn parse_line<T: DeserializeOwned>(
    path: &Path,
    number: usize,
    line: &[u8],
) -> Result<Option<T>, FileError> {
    let at = |reason: String| FileError::Line { path: path.to_path_buf(), line: number, reason };
    let text = std::str::from_utf8(line)
        .map_err(|error| at(format!("not UTF-8 at byte {}", error.valid_up_to())))?;
    // Programs of Windows begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').filter(|_| number == 1).unwrap_or(text);
    if text.trim().is_empty() {
        return Ok(None);
    }
    // The parser sees one line, which it calls line 1.
    let in_line = |reason: String| {
        at(if text.trim_end().contains('\r') {
            "its lines end in CR alone; end each in LF".to_string()
        } else {
            reason.replace(" at line 1 column ", " at column ")
        })
    };
    strict_json(text).map(Some).map_err(in_line)
}

pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// SHA-256 of a file, within the bounds of [`foreign::each_piece`].
pub fn sha256_file(path: &Path) -> Result<String, FileError> {
    let mut hash = Sha256::new();
    foreign::each_piece(path, |piece| hash.update(piece))?;
    Ok(hexadecimal(&hash.finalize()))
}

/// As [`sha256_file`], once in a process while the file stays as it is: a base policy of gigabytes is an input of each
/// cell. A file that changed in the last two seconds is read again: its time may not show the next change.
pub fn sha256_file_once(path: &Path) -> Result<String, FileError> {
    static KNOWN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let state = state(path)?;
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(digest) = known().get(&state) {
        return Ok(digest.clone());
    }
    let digest = sha256_file(path)?;
    if !changed_within(path, Duration::from_secs(2))? {
        known().insert(state, digest.clone());
    }
    Ok(digest)
}

/// `DEVICE INODE BYTES SECONDS NANOSECONDS`, the last two of the last change: another text where the file is another.
pub fn state(path: &Path) -> Result<String, FileError> {
    let meta = fs::metadata(path).map_err(io_error("read", path))?;
    let (device, inode, bytes) = (meta.dev(), meta.ino(), meta.size());
    Ok(format!("{device} {inode} {bytes} {} {}", meta.ctime(), meta.ctime_nsec()))
}

fn changed_within(path: &Path, span: Duration) -> Result<bool, FileError> {
    let meta = fs::metadata(path).map_err(io_error("read", path))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(now.saturating_sub(Duration::from_secs(meta.ctime().unsigned_abs())) <= span)
}

pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;

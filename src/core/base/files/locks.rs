//! Files that one process holds.

use crate::base::files::{FileError, FileKind, invalid, io_error, kind, remove_file};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// An exclusive hold on a file: at most one process has it, until the value is dropped or the process ends in any way.
#[derive(Debug)]
pub struct Lock {
    file: fs::File,
    path: PathBuf,
}

impl Lock {
    /// Whether the path still names the held file. If it was removed or replaced, another process can lock the new one.
    pub fn is_held(&self) -> Result<bool, FileError> {
        let held = self.file.metadata().map_err(io_error("look at the lock of", &self.path))?;
        match fs::symlink_metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (held.dev(), held.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io_error("look at the lock of", &self.path)(error)),
        }
    }
}

/// Takes the hold on a file, creating it; `None` when another process has it.
pub fn lock(path: &Path) -> Result<Option<Lock>, FileError> {
    // A link is not followed: a foreign folder must not create files elsewhere.
    if !matches!(kind(path)?, None | Some(FileKind::File)) {
        return Err(invalid("lock", path, "it is no regular file".to_string()));
    }
    let no_link = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).expect("a flag of open(2)");
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(false).write(true).custom_flags(no_link);
    let file = options.open(path).map_err(io_error("lock", path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(None),
        Err(fs::TryLockError::Error(error)) => return Err(io_error("lock", path)(error)),
    }
    // Between opening and locking another process may have put a new file in its place.
    let lock = Lock { file, path: path.to_path_buf() };
    Ok(lock.is_held()?.then_some(lock))
}

/// A [`Lock`] whose file goes with it.
#[derive(Debug)]
pub struct BriefLock(Lock);

impl Drop for BriefLock {
    fn drop(&mut self) {
        let _stays = remove_file(&self.0.path);
    }
}

pub fn lock_briefly(path: &Path) -> Result<Option<BriefLock>, FileError> {
    Ok(lock(path)?.map(BriefLock))
}

/// Whether another process holds the lock of a file; false when there is no such file.
pub fn is_locked(path: &Path) -> Result<bool, FileError> {
    let file = match kind(path)? {
        None => return Ok(false),
        Some(FileKind::File) => fs::File::open(path).map_err(io_error("open", path))?,
        Some(_) => return Err(invalid("open", path, "it is no regular file".to_string())),
    };
    // A shared lock is refused while somebody holds the exclusive one, and given back at once.
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(fs::TryLockError::WouldBlock) => Ok(true),
        Err(fs::TryLockError::Error(error)) => Err(io_error("look at the lock of", path)(error)),
    }
}

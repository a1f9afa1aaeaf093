//! Commands in copies of a process that has loaded LibTorch. Loading it takes 0.4 s of processor
//! time, most of the time of a short command, and the test's process has done it.
//!
//! The test's process forks a server before it has threads of its own. The server forks again for
//! each command; that copy has its own folder, standard streams, threads and exit code, and executes
//! what `main` of the program does.

use crate::binary::{Output, PROGRAM};
use dapo::base::{files, program};
use dapo::commands;
use fork::Fork;
use nix::unistd;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{self, Resource, Rlimit};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use std::thread;

/// The stack of a program's first thread under Linux.
const STACK: usize = 8 << 20;

/// A command that takes longer on the processor is killed.
const SECONDS: u64 = 600;

static SERVER: LazyLock<Mutex<Option<UnixStream>>> = LazyLock::new(|| Mutex::new(start()));

/// `words` are the arguments; the standard streams are files in `streams`.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    folder: PathBuf,
    words: Vec<String>,
    streams: PathBuf,
}

/// A test that starts threads before its first command calls this before them.
pub fn prepare() {
    LazyLock::force(&SERVER);
}

/// `None` where the program must be started instead: there is no server, or another thread of the
/// test uses it.
pub fn dapo_given(folder: &Path, arguments: &[&str], input: &[u8]) -> Option<Output> {
    let mut server = SERVER.try_lock().ok()?;
    let server = server.as_mut()?;
    let scratch = tempfile::tempdir().unwrap();
    let streams = scratch.path().to_path_buf();
    files::write_atomic(&streams.join("in"), input).unwrap();
    let words = arguments.iter().map(ToString::to_string).collect();
    let folder = std::path::absolute(folder).unwrap();
    let request = Request { folder, words, streams: streams.clone() };
    server.write_all(files::canonical_json_line(&request).as_bytes()).unwrap();
    server.write_all(b"\n").unwrap();
    let mut code = String::new();
    BufReader::new(&mut *server).read_line(&mut code).unwrap();
    let text = |name| files::read_text(&streams.join(name)).unwrap();
    Some((code.trim().parse().expect("the server ended"), text("out"), text("err")))
}

/// A copy has only the thread that asked for it: the test must have no more than libtest's and its
/// own. `cargo test` captures what its tests print, and the width of a terminal stays in the
/// environment of a copy; there is no server for either.
fn start() -> Option<UnixStream> {
    let threads = files::list(Path::new("/proc/self/task")).map_or(usize::MAX, |names| names.len());
    let set = |name: &str| std::env::var_os(name).is_some();
    if threads > 2 || !set("NEXTEST") || set("COLUMNS") {
        return None;
    }
    let (here, there) = UnixStream::pair().unwrap();
    // The copy must not print what waits here.
    std::io::stdout().flush().unwrap();
    match fork::fork().unwrap() {
        Fork::Child => {
            drop(here);
            serve(there);
            std::process::exit(0)
        }
        Fork::Parent(_server) => Some(here),
    }
}

/// Ends with the test's process, which nobody waits for longer because of this one.
fn serve(mut stream: UnixStream) {
    // A lock that the test holds is not the server's, and the test may let it go.
    let open = files::list(Path::new("/proc/self/fd")).unwrap();
    let open = open.iter().filter_map(|name| name.parse().ok());
    // The listing itself is closed by now.
    for file in open.filter(|file: &i32| *file > 2 && *file != stream.as_raw_fd()) {
        let _ = unistd::close(file);
    }
    let nothing = opened(Path::new("/dev/null"), OFlags::WRONLY);
    unistd::dup2_stdout(&nothing).unwrap();
    unistd::dup2_stderr(&nothing).unwrap();
    let requests = BufReader::new(stream.try_clone().unwrap()).lines();
    for line in requests.map_while(Result::ok) {
        let request: Request = serde_json::from_str(&line).unwrap();
        let status = match fork::fork().unwrap() {
            Fork::Child => execute(request),
            Fork::Parent(process) => fork::waitpid(process).unwrap(),
        };
        // -1 stands for a signal.
        let code = if status & 0x7f == 0 { (status >> 8) & 0xff } else { -1 };
        writeln!(stream, "{code}").unwrap();
    }
}

fn execute(request: Request) -> ! {
    let stream = |name, flags| opened(&request.streams.join(name), flags);
    let written = OFlags::WRONLY | OFlags::CREATE;
    unistd::dup2_stdin(stream("in", OFlags::RDONLY)).unwrap();
    unistd::dup2_stdout(stream("out", written)).unwrap();
    unistd::dup2_stderr(stream("err", written)).unwrap();
    std::env::set_current_dir(&request.folder).unwrap();
    let limit = Rlimit { current: Some(SECONDS), maximum: Some(SECONDS) };
    process::setrlimit(Resource::Cpu, limit).unwrap();
    program::set_path(PROGRAM.into());
    let line: Vec<OsString> =
        [PROGRAM.to_string()].into_iter().chain(request.words).map(OsString::from).collect();
    let main = thread::Builder::new().name("main".to_string()).stack_size(STACK);
    match main.spawn(|| commands::main(line)).unwrap().join() {
        Ok(never) => never,
        Err(_panic) => std::process::abort(),
    }
}

fn opened(path: &Path, flags: OFlags) -> OwnedFd {
    open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR).unwrap()
}

//! For files too large to be held whole: a second process decodes the file and sends it line by line. It gets the open
//! file as standard input and writes lines to standard output; its exit status tells whether all lines came.

use crate::base::apart::{self, ApartLimits, Lost, NoAnswer};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Stdio};

pub struct ApartStream {
    process: Child,
    output: BufReader<ChildStdout>,
    limits: ApartLimits,
}

impl ApartStream {
    /// Starts this program with its hidden verb and `arguments`, with the file as its standard
    /// input. [`ApartLimits::answer_bytes`] bounds one line.
    pub fn start(arguments: &[String], file: OwnedFd, limits: ApartLimits) -> io::Result<Self> {
        let mut command = apart::command()?;
        command.args(arguments).stdin(Stdio::from(file));
        let mut process = command.spawn().map_err(|error| apart::cannot_start(&error))?;
        let output = process.stdout.take().ok_or_else(apart::no_pipe)?;
        Ok(Self { process, output: BufReader::with_capacity(1 << 18, output), limits })
    }

    /// Puts the next line into `line`, without its end. `false` at the end of what was sent.
    pub fn next_line(&mut self, line: &mut Vec<u8>) -> Result<bool, NoAnswer> {
        line.clear();
        let most = self.limits.answer_bytes;
        let read = self.output.by_ref().take(most + 1).read_until(b'\n', line);
        if read.is_err() || line.is_empty() {
            let status = self.process.wait()?;
            return if status.success() && read.is_ok() {
                Ok(false)
            } else {
                Err(apart::explain(&Lost::Ended, Some(status), self.limits))
            };
        }
        if line.pop() != Some(b'\n') {
            let length = line.len() as u64 + 1;
            return if length > most {
                Err(apart::explain(&Lost::Large(length), None, self.limits))
            } else {
                // It ended in the middle of a line.
                Err(apart::explain(&Lost::Ended, self.process.wait().ok(), self.limits))
            };
        }
        Ok(true)
    }
}

impl Drop for ApartStream {
    fn drop(&mut self) {
        // Nobody reads the rest. After a regular end this does nothing.
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

/// Sets the limits of the process that makes a stream. It calls this before it reads the file.
pub fn limit(memory_bytes: u64, processor_seconds: u64) -> io::Result<()> {
    apart::no_core_file()?;
    apart::limit(memory_bytes, processor_seconds)
}

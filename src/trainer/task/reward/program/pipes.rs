//! The standard streams of a process that grades.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

/// An answer is a number, or a dictionary of some.
pub const MOST_ANSWER_BYTES: usize = 1 << 20;

const LAST_BYTES: usize = 2000;

pub fn writer(mut stdin: ChildStdin) -> Sender<Vec<u8>> {
    let (sender, receiver) = mpsc::channel::<Vec<u8>>();
    std::thread::spawn(move || {
        for request in receiver {
            if stdin.write_all(&request).is_err() {
                return;
            }
        }
    });
    sender
}

/// Lines of at most [`MOST_ANSWER_BYTES`]; a longer one ends them. `part` has what has no line end yet.
pub fn lines(stdout: ChildStdout, part: Arc<Mutex<Vec<u8>>>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        while let Ok(read @ [_, ..]) = reader.fill_buf() {
            let count = read.len();
            for piece in read.split_inclusive(|byte| *byte == b'\n') {
                let mut line = part.lock().unwrap_or_else(PoisonError::into_inner);
                line.extend_from_slice(piece);
                let is_too_long = line.len() > MOST_ANSWER_BYTES;
                let is_whole = line.ends_with(b"\n");
                if is_too_long || is_whole && sender.send(std::mem::take(&mut *line)).is_err() {
                    return;
                }
            }
            reader.consume(count);
        }
    });
    receiver
}

pub fn keep_last(mut from: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut part) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&part[..count]);
        let over = kept.len().saturating_sub(LAST_BYTES);
        kept.drain(..over);
    }
}

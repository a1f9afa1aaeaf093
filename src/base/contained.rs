//! Libraries that panic on malformed files: polars on some parquet (a page that is shorter than
//! its header says, an unknown encoding), tokenizers on some `tokenizer.json` (a decoder that is
//! cut off). They trust what they read. A file is user input, and user input never ends this
//! program, so such a read is contained here, and nowhere else. So is LibTorch, when memory does
//! not suffice ([`crate::numerics::halving`]).
//!
//! What cannot be contained is an allocation that fails: it ends the process (SIGABRT). polars
//! 0.55 reserves as many validity bits as a damaged page's run length claims, up to 2^61 bytes.
//! [`crate::base::apart`] reads tables in a process of its own for that reason.

use std::panic::{self, PanicHookInfo};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reads that are going on.
static READING: AtomicUsize = AtomicUsize::new(0);

/// Runs a reader of a file. A panic of its library becomes a message, and is not printed.
pub fn contained<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    caught(read).map_err(|text| format!("damaged ({text})"))
}

/// Runs work of a library that panics where it could say no. A panic becomes its message, and is
/// not printed unless it is our own.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    silence_while_reading();
    READING.fetch_add(1, Ordering::SeqCst);
    // The closure owns what it works on: nothing that it left half-done is seen again.
    let result = panic::catch_unwind(panic::AssertUnwindSafe(work));
    READING.fetch_sub(1, Ordering::SeqCst);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        text.unwrap_or("the reader gave up").to_string()
    })
}

/// Panics of other crates are not printed while a read goes on; our own always are. polars
/// reads on threads of its own, so that this cannot be a matter of the thread.
fn silence_while_reading() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info: &PanicHookInfo| {
            let ours = info.location().is_none_or(|place| Path::new(place.file()).is_relative());
            if ours || READING.load(Ordering::SeqCst) == 0 {
                print(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_message() {
        assert_eq!(contained(|| 3), Ok(3));
        let rows: Vec<u32> = Vec::new();
        let result = contained(|| *rows.first().expect("no row"));
        assert_eq!(result, Err("damaged (no row)".to_string()));
    }
}

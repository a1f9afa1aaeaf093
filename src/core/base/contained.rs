//! Libraries panic on malformed files: polars on some parquet (a page shorter than its header says, an unknown
//! encoding), tokenizers on some `tokenizer.json` (a decoder that is cut off). User input never ends this program: this
//! module alone turns such a panic into a message, also when LibTorch runs out of memory
//! ([`crate::numerics::halving`]).
//!
//! A failed allocation ends the process (SIGABRT) and cannot be contained: polars 0.55 reserves as many validity bits
//! as a damaged page's run length claims, up to 2^61 bytes. So [`crate::base::apart`] reads tables in a second process.

use std::panic::{self, PanicHookInfo};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

static READING: AtomicUsize = AtomicUsize::new(0);

/// Runs a reader of a file. A panic of its library becomes a message, and is not printed.
pub fn contained<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    caught(read).map_err(|text| format!("damaged ({text})"))
}

/// Runs work of a library that panics where it could return an error. A panic becomes its message; it is printed only
/// when our own code panicked.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    silence_while_reading();
    READING.fetch_add(1, Ordering::SeqCst);
    // The closure owns what it works on: nobody sees again what it left half-done.
    let result = panic::catch_unwind(panic::AssertUnwindSafe(work));
    READING.fetch_sub(1, Ordering::SeqCst);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        text.unwrap_or("the reader gave up").to_string()
    })
}

/// While a read goes on, panics of other crates are not printed; our own always are. polars reads on
/// threads of its own, so the thread cannot tell them apart.
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

//! Threads that each run whole pieces of work with single-threaded kernels. LibTorch's own threads share every
//! operation and wait for each other after it. A small model's operations are too short for that, and on a busy machine
//! each wait lasts as long as the slowest thread. Here each thread has its own pieces, and the results are put together
//! in the order of the pieces: the number of threads decides the time and nothing else.

use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError, mpsc};
use std::thread::{self, ScopedJoinHandle};

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Sets how many threads work from now on, in the whole process. Each LibTorch operation then runs on one thread.
pub fn set_count(threads: u64) {
    COUNT.store(threads.max(1) as usize, Ordering::Relaxed);
    tch::set_num_threads(1);
    keep_freed_memory();
}

/// Lets the allocator keep what a pass frees: glibc keeps at a heap's end twice the largest freed mapping, up to 32
/// MiB. Otherwise threads give pages back and wait for each other to get them again: a tenth of an update.
fn keep_freed_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(MAPPED)));
}

/// The largest allocation that glibc takes from a heap once one of this size was freed.
const MAPPED: usize = (32 << 20) - (1 << 16);

/// Lets the allocator keep so many bytes, once in a process: an allocation behind them, which is never read
/// and never freed, keeps the heap from its end. A page that comes back from the system costs several
/// microseconds on a virtual machine, and a pass of a large policy frees hundreds of thousands.
pub fn keep_memory(bytes: usize) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        keep_freed_memory();
        let one = || {
            let mut part = Vec::<u8>::new();
            part.try_reserve_exact(MAPPED - (1 << 16)).is_ok().then_some(part)
        };
        // Fewer where the system does not promise as many.
        let mut parts: Vec<Vec<u8>> =
            std::iter::repeat_with(one).map_while(|part| part).take(bytes / MAPPED + 1).collect();
        std::mem::forget(std::hint::black_box(parts.pop()));
    });
}

/// How many threads work: 1 where nobody has set another number.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed).max(1)
}

/// Work on the calling thread whose operations LibTorch cuts among all threads: for large
/// operations, of which two side by side would hold twice as much.
pub fn together<R>(work: impl FnOnce() -> R) -> R {
    let threads = count() as i32;
    if tch::get_num_threads() != threads {
        tch::set_num_threads(threads);
    }
    let result = work();
    tch::set_num_threads(1);
    result
}

thread_local! {
    /// The threads that share the operations of this thread's work, itself among them.
    static POOL: RefCell<Option<Rc<rayon::ThreadPool>>> = const { RefCell::new(None) };
}

fn pool() -> Rc<rayon::ThreadPool> {
    POOL.with_borrow_mut(|pool| match pool {
        Some(pool) if pool.current_num_threads() == count() => pool.clone(),
        _ => pool.insert(new_pool()).clone(),
    })
}

fn new_pool() -> Rc<rayon::ThreadPool> {
    let threads = || rayon::ThreadPoolBuilder::new().num_threads(count());
    // What the calling thread frees it gets again; other threads give memory back at once. A thread
    // can be in one pool, so after another count it only waits.
    let own = threads().use_current_thread().build();
    Rc::new(own.or_else(|_| threads().build()).expect("threads of this process"))
}

/// Runs work whose operations are shared among [`count`] threads by [`by_rows`] and [`in_parts`]: for large
/// operations, of which two side by side would hold twice as much. No result depends on the number of threads.
pub fn in_pool<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    match count() {
        1 => work(),
        _ if of_pool() == count() => work(),
        _ => pool().install(work),
    }
}

/// How many threads share the caller's operations: 1 outside [`in_pool`].
pub fn of_pool() -> usize {
    rayon::current_thread_index().map_or(1, |_| rayon::current_num_threads())
}

/// Calls `work` with parts of x, `[rows, width]`, and the first row of each.
pub fn by_rows<T: Send>(x: &mut [T], width: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    let (threads, rows) = (of_pool(), x.len() / width.max(1));
    if threads == 1 || rows < 2 {
        return work(0, x);
    }
    // Two parts to a thread, so that one which is held up hands on its second.
    let parts = if rows < 64 * threads { threads } else { 2 * threads };
    let share = rows.div_ceil(parts);
    let all = x.par_chunks_mut(share * width).enumerate();
    all.for_each(|(part, x)| work(part * share, x));
}

/// One result for each item, in order, on the threads that share the caller's operations.
pub fn in_parts<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
    match of_pool() {
        1 => items.iter().map(work).collect(),
        _ => items.par_iter().map(work).collect(),
    }
}

/// One result for each item, in order. Each thread takes the next free item and uses what `context`
/// made for it: tensors cannot be shared between threads, only handed over.
pub fn map<C: Send, T: Sync, R: Send>(
    items: &[T],
    context: impl Fn() -> C,
    work: impl Fn(&C, &T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let contexts = (0..count().min(items.len())).map(|_| context()).collect();
    let take = |context: C, _: &mut dyn FnMut(())| {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, work(&context, item)));
        }
    };
    let mut done: Vec<(usize, R)> = each(contexts, take, |()| ()).into_iter().flatten().collect();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A sum whose terms come from several threads in any order, each added as soon as all before it are.
pub struct InOrder<T> {
    state: Mutex<OrderedSum<T>>,
}

struct OrderedSum<T> {
    /// Taken away while somebody adds to it.
    sum: Option<T>,
    next: usize,
    waiting: BTreeMap<usize, T>,
}

impl<T> InOrder<T> {
    /// `zero` is what the first term, number 0, is added to.
    pub fn new(zero: T) -> Self {
        let state = OrderedSum { sum: Some(zero), next: 0, waiting: BTreeMap::new() };
        Self { state: Mutex::new(state) }
    }

    pub fn give(&self, number: usize, term: T, add: impl Fn(&mut T, T)) {
        let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = lock();
        state.waiting.insert(number, term);
        while let Some(mut sum) = state.sum.take() {
            let next = state.next;
            let Some(term) = state.waiting.remove(&next) else {
                state.sum = Some(sum);
                break;
            };
            state.next += 1;
            drop(state);
            add(&mut sum, term);
            state = lock();
            state.sum = Some(sum);
        }
    }

    pub fn into_sum(self) -> T {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.sum.expect("nobody is adding")
    }
}

/// One result for each item, in order, with a thread on each core whatever [`set_count`] said: for
/// reading and checking files, which computes nothing that LibTorch does.
pub fn on_all_cores<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (parts, work) = (items.chunks(items.len().div_ceil(cores).max(1)), &work);
    thread::scope(|scope| {
        let threads: Vec<_> = parts
            .map(|part| scope.spawn(move || part.iter().map(work).collect::<Vec<R>>()))
            .collect();
        let joined = threads.into_iter().map(ScopedJoinHandle::join);
        joined.flat_map(|part| part.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// One thread for each context. What `work` passes to its second argument reaches `watch` on the
/// calling thread. With one thread in all, the calling thread does the work.
pub fn each<C: Send, M: Send, R: Send>(
    contexts: Vec<C>,
    work: impl Fn(C, &mut dyn FnMut(M)) -> R + Sync,
    mut watch: impl FnMut(M),
) -> Vec<R> {
    if count() == 1 {
        return contexts.into_iter().map(|context| work(context, &mut watch)).collect();
    }
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let work = &work;
        let spawn = |context| {
            let sender = sender.clone();
            scope.spawn(move || {
                tch::set_num_threads(1);
                // The receiver is gone only when the caller is panicking.
                work(context, &mut |message| drop(sender.send(message)))
            })
        };
        let threads: Vec<_> = contexts.into_iter().map(spawn).collect();
        drop(sender);
        receiver.iter().for_each(&mut watch);
        let joined = threads.into_iter().map(ScopedJoinHandle::join);
        joined.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept is address space: pages come when somebody writes to them.
    #[test]
    fn kept_memory_is_not_in_use() {
        let resident = || -> u64 {
            #[expect(clippy::disallowed_methods, reason = "a file of the kernel, in a test")]
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        let before = resident();
        keep_memory(1 << 30);
        assert!(resident() < before + (64 << 20));
        // So large an allocation comes from the heap, which keeps its pages when it is freed.
        let touched = || drop(std::hint::black_box(vec![1u8; MAPPED - (1 << 17)]));
        (0..4).for_each(|_| touched());
        assert!(resident() < before + (128 << 20));
    }

    #[test]
    fn terms_are_added_in_order_whoever_brings_them() {
        for threads in [1, 3] {
            set_count(threads);
            let (sum, numbers) = (InOrder::new(vec![]), [3usize, 0, 2, 1, 5, 4]);
            map(
                &numbers,
                || (),
                |(), &number| sum.give(number, vec![number], |all, one| all.extend(one)),
            );
            assert_eq!(sum.into_sum(), [0, 1, 2, 3, 4, 5]);
        }
        set_count(1);
        let sum = InOrder::new(0);
        sum.give(1, 10, |all, one| *all += one);
        assert_eq!(sum.into_sum(), 0, "number 0 never came");
    }

    #[test]
    fn results_come_in_the_order_of_the_items_for_any_number_of_threads() {
        let items: Vec<u64> = (0..100).collect();
        let squares: Vec<u64> = items.iter().map(|item| item * item).collect();
        for threads in [1, 2, 5] {
            set_count(threads);
            assert_eq!(map(&items, || (), |(), item| item * item), squares);
        }
        assert!(map(&[0u64; 0], || (), |(), item| *item).is_empty());
        let mut heard = Vec::new();
        let work = |context: u64, tell: &mut dyn FnMut(u64)| {
            tell(context);
            tch::get_num_threads()
        };
        assert_eq!(each(vec![1, 2, 3], work, |message| heard.push(message)), [1, 1, 1]);
        heard.sort_unstable();
        assert_eq!(heard, [1, 2, 3], "messages reach the calling thread");
        set_count(1);
    }
}

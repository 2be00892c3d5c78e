//! The thread pool of the host backend: a fixed set of threads that spin briefly for the next launch, then park.
//!
//! A launch is a number of tasks; threads claim tasks one after another, so which thread runs a task is not determined, and
//! no variant may let its result depend on it.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// How long an idle thread looks for the next launch before it parks.
const SPIN: Duration = Duration::from_micros(60);

/// Threads that run the tasks of one launch at a time.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    handles: Vec<JoinHandle<()>>,
    launch: Mutex<()>,
}

struct Shared {
    /// Number of the current launch; a change is the signal to start.
    epoch: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    next: AtomicUsize,
    /// Of each worker, for launch `e`: `2 e + 1` while it works, `2 e` once it has ended or was relieved before it began. The
    /// values only rise.
    turns: Vec<AtomicU64>,
    panicked: AtomicBool,
    stop: AtomicBool,
    parked: Vec<AtomicBool>,
}

#[derive(Clone, Copy)]
struct Job {
    task: *const Task<'static>,
    tasks: usize,
}

#[expect(unsafe_code, reason = "the job slot is handed from the launching thread to the workers by the epoch")]
// SAFETY: `job` is written only by the thread that holds `Pool::launch`, before the release store of `epoch`, and read by
// a worker after the acquire load that sees it, once it has taken its turn in that launch. It is not written again before
// the turn of every worker is over: ended by the worker, or relieved, after which it can no longer be taken.
unsafe impl Sync for Shared {}
#[expect(unsafe_code, reason = "see `Sync` above")]
// SAFETY: the pointer in `job` is only followed under the protocol above, by whichever thread.
unsafe impl Send for Shared {}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of `threads` threads, the caller of [`Pool::run`] among them; at least one.
    ///
    /// # Errors
    /// The system's error when a thread cannot be started.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let workers = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            epoch: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            turns: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            parked: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut handles = Vec::with_capacity(workers);
        for index in 0..workers {
            let shared = Arc::clone(&shared);
            handles.push(
                std::thread::Builder::new()
                    .name(format!("memra-host-{index}"))
                    .spawn(move || worker(&shared, index))?,
            );
        }
        let threads = handles.iter().map(|handle| handle.thread().clone()).collect();
        Ok(Self { shared, threads, handles, launch: Mutex::new(()) })
    }

    /// As many threads as this process may use: the CPU set and quota of its control group count.
    ///
    /// # Errors
    /// The system's error when a thread cannot be started.
    pub fn of_this_process() -> std::io::Result<Self> {
        Self::new(available())
    }

    /// Number of threads, the caller's among them.
    pub fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Runs `task(0)` to `task(tasks - 1)`, each once, and returns when all have.
    ///
    /// # Panics
    /// When a task panicked, after all others have ended.
    pub fn run(&self, tasks: usize, task: &Task<'_>) {
        if self.threads.is_empty() || tasks <= 1 {
            (0..tasks).for_each(task);
            return;
        }
        // A poisoned lock only says that an earlier launch panicked; the protocol was completed by its guard.
        let _launch = self.launch.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.start(tasks, task);
        let own = catch_unwind(AssertUnwindSafe(|| claim(&self.shared.next, tasks, task)));
        self.finish();
        let worker_panicked = self.shared.panicked.swap(false, Ordering::Relaxed);
        if let Err(payload) = own {
            resume_unwind(payload);
        }
        assert!(!worker_panicked, "a task of the host pool panicked");
    }

    /// Parks every idle thread now, so that a process that waits for its turn uses no CPU.
    pub fn park(&self) {
        while !self.shared.parked.iter().all(|parked| parked.load(Ordering::Acquire)) {
            std::thread::yield_now();
        }
    }

    #[expect(clippy::transmute_ptr_to_ptr, reason = "a cast cannot lengthen the lifetime of a trait object")]
    #[expect(unsafe_code, reason = "lends a borrowed closure to the workers for the duration of one launch")]
    fn start(&self, tasks: usize, task: &Task<'_>) {
        let task: *const Task<'_> = task;
        // SAFETY: only the lifetime changes. `run` does not return, and does not unwind, before `finish` has seen the turn of
        // every worker over, so that none holds the pointer or can still take it.
        let task: *const Task<'static> = unsafe { std::mem::transmute(task) };
        // SAFETY: the launch lock is held and the turn of every worker in the last launch is over, so nobody reads the slot.
        unsafe { *self.shared.job.get() = Some(Job { task, tasks }) };
        self.shared.next.store(0, Ordering::Relaxed);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        for (parked, thread) in self.shared.parked.iter().zip(&self.threads) {
            if parked.load(Ordering::SeqCst) {
                thread.unpark();
            }
        }
    }

    /// Waits for the workers that have begun and relieves the others: every task was claimed, or the launch failed, so a worker
    /// that the system has not yet let run has nothing left to do, and is not waited for.
    fn finish(&self) {
        let launch = self.shared.epoch.load(Ordering::Relaxed);
        let (working, over) = (2 * launch + 1, 2 * launch);
        for turn in &self.shared.turns {
            let mut spins = 0_u32;
            loop {
                let now = turn.load(Ordering::Acquire);
                if now == over {
                    break;
                }
                if now != working {
                    let relieved = turn.compare_exchange(now, over, Ordering::AcqRel, Ordering::Acquire);
                    if relieved.is_ok() {
                        break;
                    }
                    continue;
                }
                spins += 1;
                if spins.is_multiple_of(1024) {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        for handle in self.handles.drain(..) {
            handle.thread().unpark();
            // A worker catches the panics of its tasks, so joining cannot fail.
            let _ = handle.join();
        }
    }
}

/// CPUs this process may use.
pub(super) fn available() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn claim(next: &AtomicUsize, tasks: usize, task: &Task<'_>) {
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= tasks {
            return;
        }
        task(index);
    }
}

fn worker(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        seen = wait_for_epoch(shared, index, seen);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let turn = &shared.turns[index];
        let before = turn.load(Ordering::Acquire);
        // Relieved, now or since: the launch is over, and its closure may be gone.
        if before >= 2 * seen
            || turn.compare_exchange(before, 2 * seen + 1, Ordering::AcqRel, Ordering::Acquire).is_err()
        {
            continue;
        }
        run_job(shared);
        turn.store(2 * seen, Ordering::Release);
    }
}

/// Runs what is left of the launch whose turn this worker has taken.
#[expect(unsafe_code, reason = "follows the job pointer under the launch protocol")]
fn run_job(shared: &Shared) {
    // SAFETY: the acquire load of the epoch in `wait_for_epoch` orders this read after the write in `start`, and the slot is
    // not written again before this worker ends the turn it has taken.
    let Some(job) = (unsafe { *shared.job.get() }) else { return };
    // SAFETY: the launching thread keeps the closure alive until this worker ends the turn it has taken.
    let task = unsafe { &*job.task };
    if catch_unwind(AssertUnwindSafe(|| claim(&shared.next, job.tasks, task))).is_err() {
        shared.panicked.store(true, Ordering::Relaxed);
    }
}

fn wait_for_epoch(shared: &Shared, index: usize, seen: u64) -> u64 {
    let start = Instant::now();
    loop {
        for _ in 0..64 {
            let epoch = shared.epoch.load(Ordering::Acquire);
            if epoch != seen {
                return epoch;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() > SPIN {
            break;
        }
    }
    let parked = &shared.parked[index];
    parked.store(true, Ordering::SeqCst);
    loop {
        let epoch = shared.epoch.load(Ordering::SeqCst);
        if epoch != seen {
            parked.store(false, Ordering::SeqCst);
            return epoch;
        }
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_for_any_number_of_threads() {
        for threads in [1, 2, 3, 7] {
            let pool = Pool::new(threads).unwrap();
            assert_eq!(pool.threads(), threads);
            for tasks in [0, 1, 2, 5, 64] {
                for _ in 0..if cfg!(miri) { 2 } else { 50 } {
                    let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                    pool.run(tasks, &|i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn parked_threads_wake_up() {
        let pool = Pool::new(3).unwrap();
        for _ in 0..3 {
            pool.park();
            let sum = AtomicUsize::new(0);
            pool.run(100, &|i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 4950);
        }
    }

    #[test]
    fn launches_after_one_another_keep_to_themselves() {
        // Short launches, so that workers are late and are relieved, and closures that are gone at once.
        let pool = Pool::new(4).unwrap();
        for launch in 0..if cfg!(miri) { 20 } else { 20_000_usize } {
            let marks: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
            let marks = Box::new(marks);
            pool.run(3, &|i| {
                marks[i].fetch_add(launch + 1, Ordering::Relaxed);
            });
            assert!(marks.iter().all(|mark| mark.load(Ordering::Relaxed) == launch + 1), "launch {launch}");
        }
    }

    #[test]
    fn a_panicking_task_fails_its_launch_and_no_other() {
        let pool = Pool::new(3).unwrap();
        for _ in 0..3 {
            let result = catch_unwind(AssertUnwindSafe(|| pool.run(16, &|i| assert!(i != 9, "nine"))));
            assert!(result.is_err());
            let ran = AtomicUsize::new(0);
            pool.run(16, &|_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.into_inner(), 16);
        }
    }
}

//! CPU time of a child, to see whether it was idle.

use std::path::{Path, PathBuf};

/// A tick of `/proc/PID/stat` in nanoseconds: the kernel's interface counts in hundredths of a second.
const TICK_NS: u64 = 10_000_000;

/// Most processes of an arm that are looked at.
const MOST_PROCESSES: u32 = 4096;

/// CPU time a process has used, by two counters of different kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// Sum over its present threads in nanoseconds; nothing where the system keeps no such counter.
    pub threads_ns: Option<u64>,
    /// The whole process in ticks of 10 ms, threads that ended among it.
    pub ticks: Option<u64>,
}

/// CPU time of a process so far. Both parts are `None` where the system does not say.
pub fn cpu_time(process: u32) -> CpuTime {
    let folder = Path::new("/proc").join(process.to_string());
    CpuTime { threads_ns: threads_ns(&folder), ticks: ticks(&folder) }
}

/// CPU time of a process and of all it started, those that ended and were waited for included.
pub fn tree_cpu_time(process: u32) -> CpuTime {
    let folder = Path::new("/proc").join(process.to_string());
    CpuTime { threads_ns: threads_ns(&folder), ticks: tree_ticks(process) }
}

/// Ticks that a process and all it started have used so far: its own, those of children it waited for, and the same of every
/// living child. Nothing where the system does not say; a child that ends in between is counted when it was waited for.
pub fn tree_ticks(process: u32) -> Option<u64> {
    let mut sum = 0_u64;
    let mut waiting = vec![process];
    let mut seen = 0;
    while let Some(next) = waiting.pop() {
        let folder = Path::new("/proc").join(next.to_string());
        let ticks = std::fs::read_to_string(folder.join("stat")).ok().and_then(|text| stat_ticks(&text, 4));
        match ticks {
            Some(ticks) => sum = sum.saturating_add(ticks),
            None if next == process => return None,
            None => {}
        }
        seen += 1;
        if seen < MOST_PROCESSES {
            waiting.extend(children(&folder));
        }
    }
    Some(sum)
}

/// Living children of a process; none where the system does not list them.
fn children(folder: &Path) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(folder.join("task")) else { return Vec::new() };
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
    lists.flat_map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()).collect()
}

/// CPU time used between two readings in nanoseconds: by the finer counter, or by the coarser where that is sure to be more.
/// Nothing where the system does not say.
pub fn used_ns(before: CpuTime, after: CpuTime) -> Option<u64> {
    let fine = before.threads_ns.zip(after.threads_ns).map(|(before, after)| after.saturating_sub(before));
    // Cutting to whole ticks may add up to one.
    let coarse = before
        .ticks
        .zip(after.ticks)
        .map(|(before, after)| after.saturating_sub(before).saturating_sub(1).saturating_mul(TICK_NS));
    fine.max(coarse)
}

fn threads_ns(folder: &Path) -> Option<u64> {
    let mut sum = 0_u64;
    for thread in std::fs::read_dir(folder.join("task")).ok()? {
        let path: PathBuf = thread.ok()?.path().join("schedstat");
        // A thread may end between the listing and the reading.
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        sum = sum.saturating_add(text.split_whitespace().next()?.parse().ok()?);
    }
    Some(sum)
}

fn ticks(folder: &Path) -> Option<u64> {
    stat_ticks(&std::fs::read_to_string(folder.join("stat")).ok()?, 2)
}

/// User and system time of a `stat` line, with 4 fields those of children that were waited for too. The second field is the
/// program's name in parentheses and may hold anything.
fn stat_ticks(text: &str, fields: usize) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    let times: Vec<u64> =
        rest.split_whitespace().skip(11).take(fields).map(str::parse).collect::<Result<_, _>>().ok()?;
    (times.len() == fields).then(|| times.into_iter().fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_are_read_behind_the_name() {
        let line = "42 (a b) c) S 1 42 42 0 -1 4194304 100 0 0 0 7 5 0 0 20 0 1 0 100 1000 10";
        assert_eq!((stat_ticks(line, 2), stat_ticks(line, 4)), (Some(12), Some(12)));
        let waited = line.replace(" 7 5 0 0 ", " 7 5 30 4 ");
        assert_eq!((stat_ticks(&waited, 2), stat_ticks(&waited, 4)), (Some(12), Some(46)));
        assert_eq!(stat_ticks("42 (a) S 1", 2), None);
        assert_eq!(stat_ticks("", 2), None);
    }

    #[test]
    fn the_surer_counter_decides() {
        let at = |threads_ns, ticks| CpuTime { threads_ns, ticks };
        assert_eq!(used_ns(at(Some(5), Some(1)), at(Some(105), Some(2))), Some(100));
        assert_eq!(used_ns(at(Some(5), Some(1)), at(Some(0), Some(4))), Some(2 * TICK_NS));
        assert_eq!(used_ns(at(None, Some(1)), at(None, Some(2))), Some(0));
        assert_eq!(used_ns(at(None, None), at(Some(1), None)), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn work_of_this_process_is_seen() {
        let process = std::process::id();
        let before = cpu_time(process);
        assert!(before.ticks.is_some());
        let mut value = 1_u64;
        let mut rounds = 0;
        while used_ns(before, cpu_time(process)).unwrap_or(0) == 0 {
            for i in 0..1_000_000_u64 {
                value = std::hint::black_box(value.wrapping_mul(i | 1));
            }
            rounds += 1;
            assert!(rounds < 10_000, "no CPU time was counted");
        }
        assert_eq!(cpu_time(0), CpuTime::default());
        assert_eq!(tree_cpu_time(0), CpuTime::default());
        assert!(tree_ticks(process) >= cpu_time(process).ticks);
    }
}

//! Reading the counters from `/proc` and `/sys`.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Instant;

use super::{CardWatch, Observation};
use crate::process::tree_ticks;

/// Most bytes read of one file; `/proc/stat` of a thousand CPUs stays below.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the counters of the CPUs this process may use. Files are opened once, so that a reading is short.
#[derive(Debug)]
pub struct Observer {
    origin: Instant,
    /// CPUs this process may use; nothing where the system does not say, and all are meant.
    allowed: Option<Vec<u32>>,
    stat: Option<File>,
    /// This process and the arms it started. An arm that could not be opened is `None` and makes the sum unknown.
    processes: Vec<Option<File>>,
    /// Arms whose children work for them.
    trees: Vec<u32>,
    clock: Option<File>,
    card: Option<CardWatch>,
    text: String,
}

impl Observer {
    /// An observer whose times count from `origin`.
    pub fn new(origin: Instant) -> Self {
        let allowed = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| allowed_cpus(&text));
        let first = allowed.as_ref().and_then(|cpus| cpus.first()).copied().unwrap_or(0);
        Self {
            origin,
            allowed,
            stat: File::open("/proc/stat").ok(),
            processes: vec![File::open("/proc/self/stat").ok()],
            trees: Vec::new(),
            clock: File::open(format!("/sys/devices/system/cpu/cpu{first}/cpufreq/scaling_cur_freq")).ok(),
            card: None,
            text: String::new(),
        }
    }

    /// Reads a card too.
    #[must_use]
    pub fn with_card(self, card: Option<CardWatch>) -> Self {
        Self { card, ..self }
    }

    /// Counts the CPU time of a child process as this process's own from now on.
    pub fn watch(&mut self, process: u32) {
        self.processes.push(File::open(Path::new("/proc").join(process.to_string()).join("stat")).ok());
    }

    /// Counts the CPU time of a child process and of all it starts as this process's own from now on.
    pub fn watch_tree(&mut self, process: u32) {
        self.trees.push(process);
    }

    /// Reads all counters.
    pub fn observe(&mut self) -> Observation {
        let mut own_ticks = Some(0_u64);
        for process in &mut self.processes {
            let ticks = process.as_mut().and_then(|file| read(file, &mut self.text)).and_then(process_ticks);
            own_ticks = own_ticks.zip(ticks).and_then(|(sum, ticks)| sum.checked_add(ticks));
        }
        for process in &self.trees {
            own_ticks = own_ticks.zip(tree_ticks(*process)).and_then(|(sum, ticks)| sum.checked_add(ticks));
        }
        let clock_khz = self.clock.as_mut().and_then(|file| read(file, &mut self.text)?.trim().parse().ok());
        // The card is read first: its answer takes longest, and the moment is that of the counters.
        let card = self.card.as_ref().map(CardWatch::read);
        let at_ns = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let stat = self.stat.as_mut().and_then(|file| read(file, &mut self.text));
        let times = stat.and_then(|text| cpu_times(text, self.allowed.as_deref()));
        Observation {
            at_ns,
            cpus: times.map_or_else(usable_cpus, |times| times.cpus),
            steal_ticks: times.and_then(|times| times.steal_ticks),
            busy_ticks: times.map(|times| times.busy_ticks),
            own_ticks,
            clock_khz,
            card,
        }
    }
}

fn usable_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX))
}

fn read<'a>(file: &mut File, text: &'a mut String) -> Option<&'a str> {
    text.clear();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(MAX_BYTES).read_to_string(text).ok()?;
    Some(text)
}

/// Sums over some CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuTimes {
    cpus: u32,
    busy_ticks: u64,
    steal_ticks: Option<u64>,
}

/// The sums over the allowed CPUs in the text of `/proc/stat`, over all without a list. Nothing if no line of it is a CPU's.
///
/// A line is `cpu3 user nice system idle iowait irq softirq steal ...` in ticks; steal is missing before Linux 2.6.11.
/// Guest time stands in user time already.
fn cpu_times(text: &str, allowed: Option<&[u32]>) -> Option<CpuTimes> {
    let mut sum = CpuTimes { cpus: 0, busy_ticks: 0, steal_ticks: Some(0) };
    for line in text.lines() {
        let Some((name, fields)) = line.split_once(' ') else { continue };
        let Some(cpu) = name.strip_prefix("cpu").and_then(|number| number.parse::<u32>().ok()) else { continue };
        if allowed.is_some_and(|allowed| !allowed.contains(&cpu)) {
            continue;
        }
        let mut fields = fields.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = || fields.next().and_then(Result::ok);
        let (user, nice, system, _idle, _iowait) = (next()?, next()?, next()?, next()?, next()?);
        let (irq, softirq, steal) = (next()?, next()?, next());
        for part in [user, nice, system, irq, softirq] {
            sum.busy_ticks = sum.busy_ticks.checked_add(part)?;
        }
        sum.steal_ticks = sum.steal_ticks.zip(steal).and_then(|(sum, steal)| sum.checked_add(steal));
        sum.cpus += 1;
    }
    (sum.cpus > 0).then_some(sum)
}

/// User and system time in the text of `/proc/<pid>/stat`: fields 14 and 15, threads that ended included. The name of the
/// process, field 2, stands in parentheses and may hold anything.
fn process_ticks(text: &str) -> Option<u64> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11);
    let (user, system) = (times.next()?.parse::<u64>().ok()?, times.next()?.parse::<u64>().ok()?);
    user.checked_add(system)
}

/// The CPUs in the line `Cpus_allowed_list` of `/proc/self/status`.
fn allowed_cpus(status: &str) -> Option<Vec<u32>> {
    cpu_list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

/// CPUs in a list such as `0-3,8`. A list that no machine has is nothing.
fn cpu_list(text: &str) -> Option<Vec<u32>> {
    const MOST: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        if first > last || last > MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  23636 241137 22450 160474 833 0 182 2412 0 0\n\
        cpu0 11326 119456 11105 82347 206 7 20 1113 5 0\n\
        cpu1 12309 121681 11344 78126 627 0 162 1299 0 0\n\
        intr 1259003 0 0 13\nctxt 1338088\n";

    #[test]
    fn cpu_times_are_summed_over_the_allowed_cpus() {
        let first = CpuTimes { cpus: 1, busy_ticks: 11_326 + 119_456 + 11_105 + 7 + 20, steal_ticks: Some(1_113) };
        assert_eq!(cpu_times(STAT, Some(&[0])), Some(first));
        let both = cpu_times(STAT, None).unwrap();
        assert_eq!((both.cpus, both.steal_ticks), (2, Some(2_412)));
        assert_eq!(both.busy_ticks, first.busy_ticks + 12_309 + 121_681 + 11_344 + 162);
        assert_eq!(cpu_times(STAT, Some(&[0, 1])), Some(both));
    }

    #[test]
    fn what_a_file_does_not_say_is_not_zero() {
        assert_eq!(cpu_times(STAT, Some(&[7])), None);
        assert_eq!(cpu_times("", None), None);
        assert_eq!(cpu_times("cpu0 1 2 three 4 5 6 7 8\n", None), None);
        assert_eq!(cpu_times("cpu0 1 2 3\n", None), None);
        assert_eq!(cpu_times("cpu0 18446744073709551615 1 0 0 0 0 0 0\n", None), None);
        // A kernel without steal time.
        let times = cpu_times("cpu0 1 2 3 4 5 6 7\n", None).unwrap();
        assert_eq!((times.busy_ticks, times.steal_ticks), (19, None));
    }

    #[test]
    fn process_times_are_found_behind_any_name() {
        let text = "3530 (a ) 7 (b) R 3516 3516 2285 0 -1 4194304 97 0 0 0 12 30 5 6 20 0 1 0 225850\n";
        assert_eq!(process_ticks(text), Some(42));
        for bad in ["", "1 (x", "1 (x) R 1 2 3", "1 (x) R 1 2 3 4 5 6 7 8 9 10 a 12"] {
            assert_eq!(process_ticks(bad), None, "{bad}");
        }
    }

    #[test]
    fn cpu_lists_are_read_or_refused() {
        assert_eq!(cpu_list("0-1"), Some(vec![0, 1]));
        assert_eq!(cpu_list(" 3,5-7\n"), Some(vec![3, 5, 6, 7]));
        for bad in ["", "a", "3-", "5-3", "0-4294967295", "1,,2"] {
            assert_eq!(cpu_list(bad), None, "{bad}");
        }
        assert_eq!(allowed_cpus("Name:\tx\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n"), Some(vec![0, 1]));
        assert_eq!(allowed_cpus("Name:\tx\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_can_be_observed() {
        let mut observer = Observer::new(Instant::now());
        let before = observer.observe();
        let after = observer.observe();
        assert!(before.cpus >= 1 && after.at_ns >= before.at_ns);
        assert!(before.busy_ticks.unwrap() > 0 && after.busy_ticks >= before.busy_ticks);
        assert!(before.own_ticks.is_some() && after.own_ticks >= before.own_ticks);
        // No process has this number.
        observer.watch(u32::MAX);
        assert_eq!(observer.observe().own_ticks, None);
        let mut observer = Observer::new(Instant::now());
        observer.watch_tree(std::process::id());
        assert!(observer.observe().own_ticks >= before.own_ticks);
        observer.watch_tree(u32::MAX);
        assert_eq!(observer.observe().own_ticks, None);
    }
}

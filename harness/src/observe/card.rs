//! A card between quads: its clock, why it is what it is, and who else computes on it.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Reasons for its clock that a card may give without a quad becoming void, as the driver numbers them: idle 0x1, clocks
/// that somebody asked for 0x2, the power limit 0x4. The last belongs to free clocks: what a kernel draws is part of its
/// speed.
pub const DECLARED_REASONS: u64 = 0x1 | 0x2 | 0x4;

/// What a card says of itself at one moment. What it does not say is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CardState {
    /// Clock of its multiprocessors, in kHz.
    pub clock_khz: Option<u64>,
    /// Why the clock is what it is.
    pub clock_reasons: Option<u64>,
    /// Temperature, in thousandths of a degree Celsius.
    pub temperature_mc: Option<u64>,
    /// Power, in milliwatts.
    pub power_mw: Option<u64>,
}

/// Reads a card. Called between quads, never inside one.
pub trait CardSensor: Send + Sync {
    /// Clock, reasons, temperature and power.
    fn state(&self) -> CardState;

    /// Numbers of the processes that compute on the card, this one among them; nothing where the card does not say.
    fn processes(&self) -> Option<Vec<u32>>;
}

/// A sensor and the processes that may compute on the card beside nobody else.
#[derive(Clone)]
pub struct CardWatch {
    sensor: Option<Arc<dyn CardSensor>>,
    /// Numbers that this process has where the sensor counts, if it counts elsewhere.
    aliases: BTreeSet<u32>,
}

impl fmt::Debug for CardWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardWatch").field("has_sensor", &self.sensor.is_some()).field("aliases", &self.aliases).finish()
    }
}

/// One reading of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CardReading {
    /// What it says of itself.
    pub state: CardState,
    /// Processes of others that compute on it.
    pub foreign_processes: Option<u32>,
}

impl CardReading {
    /// Whether the clock has a reason that was not declared.
    pub fn is_throttled(&self) -> bool {
        self.state.clock_reasons.is_some_and(|reasons| reasons & !DECLARED_REASONS != 0)
    }

    /// Whether somebody else computes on the card.
    pub fn is_shared(&self) -> bool {
        self.foreign_processes.is_some_and(|processes| processes > 0)
    }
}

impl CardWatch {
    /// Watches a card whose sensor names processes as this process does.
    pub fn new(sensor: Arc<dyn CardSensor>) -> Self {
        Self { sensor: Some(sensor), aliases: BTreeSet::new() }
    }

    /// A card that says nothing.
    pub const fn blind() -> Self {
        Self { sensor: None, aliases: BTreeSet::new() }
    }

    /// Finds out under which number this process computes on the card. `before` are the processes before it opened the
    /// card; it has it open now.
    ///
    /// In a container the sensor may count processes from outside: this process then has a number that is new since
    /// `before`, and that no process here has.
    #[must_use]
    pub fn recognising_itself(mut self, before: Option<&[u32]>) -> Self {
        let after = self.sensor.as_ref().and_then(|sensor| sensor.processes());
        if let (Some(before), Some(after)) = (before, after) {
            let is_here = |process: u32| parent_of(process).is_some();
            self.aliases.extend(alias(before, &after, std::process::id(), &is_here));
        }
        self
    }

    /// Reads the card.
    pub fn read(&self) -> CardReading {
        let Some(sensor) = &self.sensor else { return CardReading::default() };
        let foreign = sensor.processes().map(|processes| {
            let is_foreign = |process: &&u32| {
                !self.aliases.contains(process) && !is_family(std::process::id(), **process, &parent_of)
            };
            u32::try_from(processes.iter().filter(is_foreign).count()).unwrap_or(u32::MAX)
        });
        CardReading { state: sensor.state(), foreign_processes: foreign }
    }
}

/// The number this process has for a sensor that counts elsewhere: the only one that came when it opened the card and that
/// is no process here. Nothing where the sensor knows this process, or where there is not just one.
fn alias(before: &[u32], after: &[u32], own: u32, is_here: &dyn Fn(u32) -> bool) -> Option<u32> {
    if after.contains(&own) {
        return None;
    }
    let mut new = after.iter().copied().filter(|process| !before.contains(process) && !is_here(*process));
    match (new.next(), new.next()) {
        (Some(one), None) => Some(one),
        _ => None,
    }
}

/// Most generations that are followed.
const GENERATIONS: usize = 64;

/// Whether a process is this one, one it descends from, or one that descends from it.
fn is_family(own: u32, process: u32, parent: &dyn Fn(u32) -> Option<u32>) -> bool {
    let descends = |from: u32, to: u32| {
        std::iter::successors(Some(from), |process| parent(*process).filter(|parent| *parent > 1))
            .take(GENERATIONS)
            .any(|ancestor| ancestor == to)
    };
    descends(own, process) || descends(process, own)
}

/// The parent of a process: field 4 of `/proc/<pid>/stat`, behind the name in parentheses.
fn parent_of(process: u32) -> Option<u32> {
    let text = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A card that says what it is told to, one state a reading; the last stays.
    pub(crate) struct FakeCard {
        pub(crate) states: Mutex<Vec<CardState>>,
        pub(crate) processes: Mutex<Option<Vec<u32>>>,
    }

    impl FakeCard {
        pub(crate) fn new(states: Vec<CardState>, processes: Option<Vec<u32>>) -> Arc<Self> {
            Arc::new(Self { states: Mutex::new(states), processes: Mutex::new(processes) })
        }
    }

    impl CardSensor for FakeCard {
        fn state(&self) -> CardState {
            let mut states = self.states.lock().unwrap();
            if states.len() > 1 { states.remove(0) } else { states.first().copied().unwrap_or_default() }
        }

        fn processes(&self) -> Option<Vec<u32>> {
            self.processes.lock().unwrap().clone()
        }
    }

    #[test]
    fn only_undeclared_reasons_throttle() {
        let throttled = |reasons| {
            let state = CardState { clock_reasons: reasons, ..CardState::default() };
            CardReading { state, foreign_processes: None }.is_throttled()
        };
        for declared in [None, Some(0), Some(1), Some(2), Some(4), Some(7)] {
            assert!(!throttled(declared), "{declared:?}");
        }
        for undeclared in [0x8, 0x10, 0x20, 0x40, 0x80, 0x100, 0x44, 1 << 40] {
            assert!(throttled(Some(undeclared)), "{undeclared:x}");
        }
    }

    #[test]
    fn a_family_is_one_line() {
        // 2 has the children 10 and 20; 10 has 11, which has 12.
        let parent = |process| match process {
            12 => Some(11),
            11 => Some(10),
            10 | 20 => Some(2),
            2 => Some(1),
            7 => Some(7),
            _ => None,
        };
        for (process, is_own) in [(11, true), (12, true), (10, true), (2, true), (20, false), (1, false), (99, false)] {
            assert_eq!(is_family(11, process, &parent), is_own, "{process}");
        }
        assert!(!is_family(11, 7, &parent), "a process that is its own parent ends nothing");
    }

    #[test]
    fn a_number_from_outside_is_recognised_where_it_is_the_only_new_one() {
        let here = |process| process == 50;
        assert_eq!(alias(&[1, 2], &[1, 2, 900], 40, &here), Some(900));
        assert_eq!(alias(&[1, 2], &[1, 2, 40, 900], 40, &here), None, "the sensor knows this process");
        assert_eq!(alias(&[1], &[1, 50], 40, &here), None, "that is another process here");
        assert_eq!(alias(&[], &[900, 901], 40, &here), None, "either could be this one");
        assert_eq!(alias(&[1], &[1], 40, &here), None);
    }

    #[test]
    fn others_are_counted_and_this_process_is_not() {
        let own = std::process::id();
        let card = FakeCard::new(vec![], Some(vec![own, u32::MAX]));
        let watch = CardWatch::new(Arc::<FakeCard>::clone(&card));
        assert_eq!(watch.read().foreign_processes, Some(1));
        assert!(watch.read().is_shared());
        *card.processes.lock().unwrap() = Some(vec![own]);
        assert_eq!(watch.read().foreign_processes, Some(0));
        *card.processes.lock().unwrap() = Some(vec![u32::MAX]);
        let recognised = watch.clone().recognising_itself(Some(&[]));
        assert_eq!((recognised.read().foreign_processes, watch.read().foreign_processes), (Some(0), Some(1)));
        *card.processes.lock().unwrap() = None;
        assert_eq!(watch.read().foreign_processes, None);
        assert_eq!(CardWatch::blind().recognising_itself(Some(&[1])).read(), CardReading::default());
    }
}

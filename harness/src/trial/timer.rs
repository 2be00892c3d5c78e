//! The resolution of a clock.

use std::time::Instant;

/// Steps of a clock that are looked at.
const STEPS: usize = 64;

/// Most readings that are waited for one step. At 20 ns a reading this is a third of a second.
const READINGS: u32 = 1 << 24;

/// A clock that stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the clock did not move within {READINGS} readings")]
pub struct StoppedClock;

/// The resolution of a clock that counts nanoseconds: the smallest step seen between successive readings, at least 1.
///
/// It is the clock's own step or the time a reading takes, whichever is larger; neither can be told apart in a slot.
///
/// # Errors
///
/// [`StoppedClock`] if no step is seen.
pub fn resolution_ns(clock: &mut dyn FnMut() -> u64) -> Result<u64, StoppedClock> {
    let mut smallest = u64::MAX;
    let mut last = clock();
    for _ in 0..STEPS {
        let mut readings = 0;
        let now = loop {
            let now = clock();
            if now > last {
                break now;
            }
            readings += 1;
            if readings == READINGS {
                return Err(StoppedClock);
            }
        };
        smallest = smallest.min(now - last);
        last = now;
    }
    Ok(smallest.max(1))
}

/// The resolution of the monotonic clock that slots are timed with.
///
/// # Errors
///
/// [`StoppedClock`] if it does not move.
pub fn monotonic_resolution_ns() -> Result<u64, StoppedClock> {
    let origin = Instant::now();
    resolution_ns(&mut || u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_of_a_coarse_clock_is_found() {
        let mut now = 7_u64;
        let resolution = resolution_ns(&mut || {
            now += 130;
            now / 65_000 * 65_000
        });
        assert_eq!(resolution, Ok(65_000));
        // A fine clock is as good as its readings are quick.
        let mut now = 0;
        let resolution = resolution_ns(&mut || {
            now += 21;
            now
        });
        assert_eq!(resolution, Ok(21));
        assert!(monotonic_resolution_ns().unwrap() >= 1);
    }

    #[test]
    fn a_clock_that_stands_still_is_an_error() {
        assert_eq!(resolution_ns(&mut || 5), Err(StoppedClock));
        let mut now = u64::MAX;
        let backwards = resolution_ns(&mut || {
            now -= 1;
            now
        });
        assert_eq!(backwards, Err(StoppedClock));
    }
}

//! How many copies a cell rotates over, and whether they fit.

use crate::cell::CacheMode;

/// Last-level caches that the rotating copies fill at least.
pub const ROTATED_CACHES: u64 = 3;

/// Copies of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Copies of what rotates, the same for both arms.
    pub copies: usize,
    /// Bytes that rotate in the arm with the smaller copies, all copies together.
    pub rotated_bytes: u64,
}

/// A cell that cannot be laid out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RotationError {
    /// The size of the last-level cache is not known.
    #[error("cache mode rotate needs the size of the last-level cache, and this machine does not say it; use hot")]
    UnknownCache,
    /// Nothing rotates.
    #[error("cache mode rotate: an arm says that its copies have no bytes")]
    Nothing,
    /// Too many copies.
    #[error("cache mode rotate: {copies} copies of {copy_bytes} bytes are more than can be counted; use hot")]
    Count {
        /// Copies needed.
        copies: u64,
        /// Bytes of one.
        copy_bytes: u64,
    },
    /// They do not fit.
    #[error(
        "the {copies} copies of two arms take {} MiB, more than half of the {} MiB that are available; use cache mode hot or \
         a smaller problem",
        .needed_bytes >> 20,
        .available_bytes >> 20
    )]
    Memory {
        /// Copies of each arm.
        copies: usize,
        /// Bytes of both arms.
        needed_bytes: u64,
        /// Bytes available.
        available_bytes: u64,
    },
}

/// Copies for two arms whose copies have these bytes. Memory that is not known is not checked.
///
/// # Errors
/// [`RotationError`] when they cannot be counted or do not fit.
pub fn plan(
    cache: CacheMode,
    copy_bytes: [usize; 2],
    last_level_bytes: Option<u64>,
    available_bytes: Option<u64>,
) -> Result<Rotation, RotationError> {
    let [a, b] = copy_bytes.map(|bytes| bytes as u64);
    let smaller = a.min(b);
    let copies = match cache {
        CacheMode::Hot | CacheMode::Workload => 1,
        CacheMode::Rotate => {
            let last_level = last_level_bytes.filter(|bytes| *bytes > 0).ok_or(RotationError::UnknownCache)?;
            if smaller == 0 {
                return Err(RotationError::Nothing);
            }
            last_level.saturating_mul(ROTATED_CACHES).div_ceil(smaller).max(1)
        }
    };
    // A receipt counts copies in 32 bits.
    if copies > u64::from(u32::MAX) {
        return Err(RotationError::Count { copies, copy_bytes: smaller });
    }
    // The incumbent sits twice in A/A blocks, then beside the challenger.
    let needed_bytes = copies.saturating_mul(a.saturating_add(a.max(b)));
    let copies = copies as usize;
    match available_bytes {
        Some(available_bytes) if needed_bytes > available_bytes / 2 => {
            Err(RotationError::Memory { copies, needed_bytes, available_bytes })
        }
        _ => Ok(Rotation { copies, rotated_bytes: smaller.saturating_mul(copies as u64) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn copies_fill_three_caches_or_are_one() {
        let rotate = |bytes, cache| plan(CacheMode::Rotate, bytes, Some(cache), None);
        assert_eq!(rotate([30 * MIB, 32 * MIB], 32 << 20), Ok(Rotation { copies: 4, rotated_bytes: 120 << 20 }));
        assert_eq!(rotate([96 * MIB, 96 * MIB], 32 << 20).unwrap().copies, 1);
        assert_eq!(rotate([97 * MIB, 95 * MIB], 32 << 20).unwrap().copies, 2);
        assert_eq!(plan(CacheMode::Hot, [5, 7], None, None), Ok(Rotation { copies: 1, rotated_bytes: 5 }));
    }

    #[test]
    fn what_cannot_be_laid_out_is_refused() {
        assert_eq!(plan(CacheMode::Rotate, [5, 5], None, None), Err(RotationError::UnknownCache));
        assert_eq!(plan(CacheMode::Rotate, [5, 5], Some(0), None), Err(RotationError::UnknownCache));
        assert_eq!(plan(CacheMode::Rotate, [0, 5], Some(5), None), Err(RotationError::Nothing));
        assert!(matches!(plan(CacheMode::Rotate, [1, 5], Some(1 << 40), None), Err(RotationError::Count { .. })));
        let error = plan(CacheMode::Rotate, [MIB, 2 * MIB], Some(10 << 20), Some(100 << 20)).unwrap_err();
        let needle = "the 30 copies of two arms take 90 MiB, more than half of the 100 MiB";
        assert!(error.to_string().contains(needle), "{error}");
        assert!(plan(CacheMode::Rotate, [MIB, 2 * MIB], Some(10 << 20), Some(180 << 20)).is_ok());
        assert!(plan(CacheMode::Hot, [60 * MIB, MIB], None, Some(200 << 20)).is_err());
    }

    proptest! {
        #[test]
        fn rotation_is_enough_and_not_more_than_a_copy_too_much(a in 1_usize..1 << 40, b in 1_usize..1 << 40, cache in 1_u64..1 << 40) {
            if let Ok(rotation) = plan(CacheMode::Rotate, [a, b], Some(cache), None) {
                prop_assert!(rotation.rotated_bytes >= 3 * cache);
                prop_assert!(rotation.copies == 1 || rotation.rotated_bytes - (a.min(b) as u64) < 3 * cache);
            }
        }
    }
}

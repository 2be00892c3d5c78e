//! The one place that maps a file into memory.

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps the whole of `file` read-only.
///
/// # Errors
///
/// Whatever the operating system answers, for example for a file on a file system without mappings.
#[expect(unsafe_code, reason = "a file mapping has no safe constructor")]
pub(crate) fn map_read_only(file: &File) -> io::Result<Mmap> {
    // SAFETY: the mapping is read-only and private to the returned value, which keeps it alive for every slice taken
    // from it. What the language cannot promise is that no other process changes the file meanwhile; as with every
    // engine that maps its weights, whoever runs the program keeps model files unchanged while they are open. Nothing
    // here relies on bytes staying equal for memory safety: the header is copied out when it is parsed, tensor ranges
    // are checked against the mapping's length, and tensor bytes are only ever read as plain `u8`.
    unsafe { Mmap::map(file) }
}

/// Lets the system take back the memory that a range of a mapping occupies; the bytes are read from the file again when they
/// are next looked at. Only whole pages inside the range are given up. A system that cannot keeps them.
#[cfg(unix)]
#[expect(unsafe_code, reason = "the advice is only harmless for mappings of files")]
pub(crate) fn release(map: &Mmap, range: std::ops::Range<usize>) {
    const PAGE: usize = 4096;
    let (start, end) = (range.start.next_multiple_of(PAGE), range.end.min(map.len()) / PAGE * PAGE);
    if start < end {
        // SAFETY: the mapping is that of a file and read-only, so dropped pages come back with the same bytes, as far as the
        // file keeps them, which `map_read_only` speaks of. The range lies inside the mapping.
        let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
    }
}

/// There is nothing to give back on this system.
#[cfg(not(unix))]
pub(crate) fn release(_map: &Mmap, _range: std::ops::Range<usize>) {}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{map_read_only, release};

    #[test]
    fn the_mapping_shows_the_bytes_of_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"some bytes").unwrap();
        assert_eq!(&map_read_only(&file).unwrap()[..], b"some bytes");
    }

    #[test]
    fn an_empty_file_maps_to_an_empty_slice() {
        let file = tempfile::tempfile().unwrap();
        assert!(map_read_only(&file).unwrap().is_empty());
    }

    #[test]
    fn released_bytes_are_read_again() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..40_000_u32).map(|i| (i % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let map = map_read_only(&file).unwrap();
        assert_eq!(&map[..], &bytes[..]);
        for range in [0..40_000, 100..200, 4095..8193, 39_000..50_000, 7..7] {
            release(&map, range);
            assert_eq!(&map[..], &bytes[..]);
        }
    }
}

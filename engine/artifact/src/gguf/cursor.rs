//! A bounded reader over the header bytes.

use super::error::Fault;

/// A fault and the byte offset it stands at; the caller adds the field.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) offset: u64,
    pub(crate) fault: Fault,
}

/// Reads little-endian numbers and strings from the start of a file.
pub(crate) struct Cursor<'a> {
    window: &'a [u8],
    position: usize,
    /// Whether the window is the whole file; otherwise running out of it means that the header is too long.
    window_is_file: bool,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `window`, the first bytes of a file of `total` bytes.
    pub(crate) fn new(window: &'a [u8], total: u64) -> Self {
        Self { window, position: 0, window_is_file: window.len() as u64 == total }
    }

    /// Bytes from the start of the file.
    pub(crate) fn offset(&self) -> u64 {
        self.position as u64
    }

    /// Bytes between here and the end of the window.
    pub(crate) fn left(&self) -> u64 {
        (self.window.len() - self.position) as u64
    }

    /// A fault at the current position.
    pub(crate) fn here(&self, fault: Fault) -> Located {
        Located { offset: self.offset(), fault }
    }

    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: u64) -> Result<&'a [u8], Located> {
        let rest = &self.window[self.position..];
        match usize::try_from(length).ok().and_then(|length| rest.get(..length)) {
            Some(bytes) => {
                self.position += bytes.len();
                Ok(bytes)
            }
            None if self.window_is_file => Err(self.here(Fault::Truncated { needed: length, left: self.left() })),
            None => Err(self.here(Fault::HeaderTooLong { needed: length, limit: self.window.len() as u64 })),
        }
    }

    /// The next `N` bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Located> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N as u64)?);
        Ok(bytes)
    }

    /// The next four bytes as a number.
    pub(crate) fn u32(&mut self) -> Result<u32, Located> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// The next eight bytes as a number.
    pub(crate) fn u64(&mut self) -> Result<u64, Located> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// The next byte as a boolean.
    pub(crate) fn bool(&mut self) -> Result<bool, Located> {
        let offset = self.offset();
        match self.bytes()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(Located { offset, fault: Fault::BadBool(other) }),
        }
    }

    /// A count of entries, each of which takes at least `min_bytes` bytes of what follows.
    pub(crate) fn count(&mut self, min_bytes: u64) -> Result<u64, Located> {
        let offset = self.offset();
        let count = self.u64()?;
        let left = self.left();
        if count > left / min_bytes {
            return Err(Located { offset, fault: Fault::CountTooLarge { count, min_bytes, left } });
        }
        Ok(count)
    }

    /// A string: a `u64` length and as many bytes of UTF-8.
    pub(crate) fn string(&mut self) -> Result<&'a str, Located> {
        let length = self.u64()?;
        let offset = self.offset();
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes)
            .map_err(|error| Located { offset: offset + error.valid_up_to() as u64, fault: Fault::NotUtf8 })
    }

    /// `count` numbers of `N` bytes each, back to back.
    pub(crate) fn numbers<const N: usize, T>(
        &mut self,
        count: u64,
        decode: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, Located> {
        let bytes = self.take(count.saturating_mul(N as u64))?;
        let (chunks, _) = bytes.as_chunks::<N>();
        Ok(chunks.iter().map(|chunk| decode(*chunk)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_the_file_says_what_is_left() {
        let mut cursor = Cursor::new(&[1, 2, 3], 3);
        cursor.bytes::<1>().unwrap();
        let error = cursor.u32().unwrap_err();
        assert_eq!(error.offset, 1);
        assert_eq!(error.fault, Fault::Truncated { needed: 4, left: 2 });
    }

    #[test]
    fn running_out_of_the_window_says_that_the_header_is_too_long() {
        let mut cursor = Cursor::new(&[1, 2, 3], 100);
        let error = cursor.u32().unwrap_err();
        assert_eq!(error.fault, Fault::HeaderTooLong { needed: 4, limit: 3 });
    }

    #[test]
    fn invalid_utf8_is_located_to_the_byte() {
        let mut bytes = 3_u64.to_le_bytes().to_vec();
        bytes.extend([b'a', b'b', 0xff]);
        let error = Cursor::new(&bytes, 11).string().unwrap_err();
        assert_eq!((error.offset, error.fault), (10, Fault::NotUtf8));
    }

    #[test]
    fn sizes_that_overflow_are_faults() {
        let mut cursor = Cursor::new(&[0; 16], 16);
        assert!(cursor.numbers(u64::MAX, u64::from_le_bytes).is_err());
        assert!(cursor.take(u64::MAX).is_err());
        assert_eq!(cursor.offset(), 0);
    }
}

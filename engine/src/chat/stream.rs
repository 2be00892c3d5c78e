//! Bytes of tokens to text, as they come.

/// Turns the bytes of tokens into text that is complete UTF-8.
///
/// A token may end inside a character: such bytes are held until the rest comes. Bytes that can be no part of any
/// character become U+FFFD, so that all texts together are what [`String::from_utf8_lossy`] makes of all bytes together,
/// however they are cut.
#[derive(Debug, Clone, Default)]
pub struct Detokeniser {
    /// The start of a character; at most three bytes between calls.
    held: Vec<u8>,
}

impl Detokeniser {
    /// At the start of a text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the bytes of the next token; returns the text that is complete by now and was not returned before.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.held.len());
        let mut from = 0;
        loop {
            let rest = self.held.get(from..).unwrap_or_default();
            match std::str::from_utf8(rest) {
                Ok(complete) => {
                    text.push_str(complete);
                    self.held.clear();
                    return text;
                }
                Err(fault) => {
                    let valid = rest.get(..fault.valid_up_to()).unwrap_or_default();
                    text.push_str(&String::from_utf8_lossy(valid));
                    from += valid.len();
                    let Some(invalid) = fault.error_len() else {
                        self.held.drain(..from);
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    from += invalid;
                }
            }
        }
    }

    /// Ends the text: bytes still held, which are the start of a character, become U+FFFD.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_character_is_held_until_it_is_complete() {
        let mut stream = Detokeniser::new();
        assert_eq!(stream.push(b"a\xF0\x9F"), "a");
        assert_eq!(stream.push(b"\x98"), "");
        assert_eq!(stream.push(b"\x80!"), "😀!");
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn bytes_that_are_no_character_are_replaced_as_soon_as_that_is_known() {
        let mut stream = Detokeniser::new();
        assert_eq!(stream.push(b"\xF0\x9F"), "");
        assert_eq!(stream.push(b"x\xFF"), "\u{FFFD}x\u{FFFD}");
        assert_eq!(stream.push(b"\xE2\x82"), "");
        assert_eq!(stream.finish(), "\u{FFFD}");
        assert_eq!(stream.finish(), "");
    }

    /// Bytes that are text, cut text and noise, so that every kind of fault occurs.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            any::<u8>(),
            Just(b'a'),
            Just(0x80),
            Just(0xE2),
            Just(0x82),
            Just(0xF0),
            Just(0x9F),
            Just(0xED),
            Just(0xA0),
            Just(0xF4)
        ];
        prop_oneof![
            prop::collection::vec(byte, 0..24),
            any::<String>().prop_map(String::into_bytes),
            any::<String>().prop_map(|text| text.into_bytes().into_iter().skip(1).collect()),
        ]
    }

    proptest! {
        #[test]
        fn the_cut_does_not_matter(bytes in bytes(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut stream = Detokeniser::new();
            let (mut text, mut from) = (String::new(), 0);
            for cut in cuts {
                text += &stream.push(&bytes[from..cut]);
                prop_assert!(stream.held.len() <= 3);
                from = cut;
            }
            text += &stream.finish();
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn every_cut_in_two_gives_the_same(bytes in bytes()) {
            for cut in 0..=bytes.len() {
                let mut stream = Detokeniser::new();
                let text = stream.push(&bytes[..cut]) + &stream.push(&bytes[cut..]) + &stream.finish();
                prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
            }
        }
    }
}

//! Stop strings in a stream of text.

/// Stop strings that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// A stop string is empty: it would stop before the first character.
    #[error("stop string {index} is empty")]
    Empty {
        /// Which, counted from 0.
        index: usize,
    },
    /// A stop string is longer than text is held back for.
    #[error("stop string {index} has {bytes} bytes; at most {most} are allowed")]
    TooLong {
        /// Which, counted from 0.
        index: usize,
        /// Its length.
        bytes: usize,
        /// The most that is allowed.
        most: usize,
    },
    /// There are more stop strings than each character is compared with.
    #[error("there are {count} stop strings; at most {most} are allowed")]
    TooMany {
        /// How many.
        count: usize,
        /// The most that is allowed.
        most: usize,
    },
}

/// What a [`StopMatcher`] makes of a piece of text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopDelta {
    /// Text that is no part of a stop string, whatever follows.
    pub text: String,
    /// Which stop string is complete, if one is; what follows is dropped.
    pub stop: Option<usize>,
}

/// Finds stop strings in a text that comes in pieces.
///
/// Text that may be the start of a stop string is held until it is known. The stop string that is complete first ends the
/// text; where several are complete at the same character, the longest. The text before it is released, it is not. How
/// the text is cut into pieces makes no difference.
///
/// Each byte is compared a bounded number of times on average (Knuth, Morris and Pratt), and no more is held than the
/// longest stop string.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    patterns: Vec<Pattern>,
    /// The end of the text that is not released yet; as long as the longest start of a stop string that it ends with.
    held: String,
    stopped: bool,
}

#[derive(Debug, Clone)]
struct Pattern {
    bytes: Vec<u8>,
    /// For each length of a start: the length of the longest shorter start that it ends with.
    fallback: Vec<usize>,
    /// How many bytes of this pattern the text ends with.
    matched: usize,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes().to_vec();
        let mut fallback = vec![0; bytes.len() + 1];
        let mut length = 0;
        for index in 1..bytes.len() {
            while length > 0 && bytes[index] != bytes[length] {
                length = fallback[length];
            }
            if bytes[index] == bytes[length] {
                length += 1;
            }
            fallback[index + 1] = length;
        }
        Self { bytes, fallback, matched: 0 }
    }

    /// Takes the next byte; whether the pattern is complete.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.bytes.get(self.matched) != Some(&byte) {
            self.matched = self.fallback[self.matched];
        }
        if self.bytes.get(self.matched) == Some(&byte) {
            self.matched += 1;
        }
        self.matched == self.bytes.len()
    }
}

impl StopMatcher {
    /// The most stop strings.
    pub const MOST: usize = 32;
    /// The most bytes of one stop string.
    pub const MOST_BYTES: usize = 4096;

    /// For these stop strings; none is fine.
    ///
    /// # Errors
    ///
    /// There are more than [`Self::MOST`], or one is empty or longer than [`Self::MOST_BYTES`].
    pub fn new<T: AsRef<str>>(stops: &[T]) -> Result<Self, StopError> {
        if stops.len() > Self::MOST {
            return Err(StopError::TooMany { count: stops.len(), most: Self::MOST });
        }
        for (index, stop) in stops.iter().enumerate() {
            match stop.as_ref().len() {
                0 => return Err(StopError::Empty { index }),
                bytes if bytes > Self::MOST_BYTES => {
                    return Err(StopError::TooLong { index, bytes, most: Self::MOST_BYTES });
                }
                _ => {}
            }
        }
        let patterns = stops.iter().map(|stop| Pattern::new(stop.as_ref())).collect();
        Ok(Self { patterns, held: String::new(), stopped: false })
    }

    /// Takes the next piece of text; returns what can be released, and the stop string that was found. After that,
    /// nothing more is released.
    pub fn push(&mut self, delta: &str) -> StopDelta {
        if self.stopped {
            return StopDelta::default();
        }
        let before = self.held.len();
        self.held.push_str(delta);
        for (index, byte) in delta.bytes().enumerate() {
            let mut complete: Option<(usize, usize)> = None;
            for (which, pattern) in self.patterns.iter_mut().enumerate() {
                let length = pattern.bytes.len();
                if pattern.step(byte) && complete.is_none_or(|(_, longest)| length > longest) {
                    complete = Some((which, length));
                }
            }
            if let Some((which, length)) = complete {
                self.stopped = true;
                let mut text = std::mem::take(&mut self.held);
                text.truncate(before + index + 1 - length);
                return StopDelta { text, stop: Some(which) };
            }
        }
        let keep = self.patterns.iter().map(|pattern| pattern.matched).max().unwrap_or(0);
        // The kept end starts with the first byte of a stop string, so it starts with a character.
        let kept = self.held.split_off(self.held.len() - keep);
        StopDelta { text: std::mem::replace(&mut self.held, kept), stop: None }
    }

    /// Ends the text: returns what was held, since no stop string followed.
    pub fn finish(&mut self) -> String {
        self.stopped = true;
        std::mem::take(&mut self.held)
    }

    /// Whether a stop string was found or the text was ended.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_start_of_a_stop_string_is_held_and_released_when_it_is_none() {
        let mut matcher = StopMatcher::new(&["\n\nUser:"]).unwrap();
        assert_eq!(matcher.push("Hi\n"), StopDelta { text: "Hi".to_owned(), stop: None });
        assert_eq!(matcher.push("\n\nUs"), StopDelta { text: "\n".to_owned(), stop: None });
        assert_eq!(matcher.push("age"), StopDelta { text: "\n\nUsage".to_owned(), stop: None });
        assert_eq!(matcher.push("\n\nUser: x"), StopDelta { text: String::new(), stop: Some(0) });
        assert_eq!(matcher.push("more"), StopDelta::default());
        assert_eq!(matcher.finish(), "");
    }

    #[test]
    fn held_text_comes_out_at_the_end() {
        let mut matcher = StopMatcher::new(&["€€"]).unwrap();
        assert_eq!(matcher.push("1€").text, "1");
        assert!(!matcher.is_stopped());
        assert_eq!(matcher.finish(), "€");
        assert!(matcher.is_stopped());
    }

    #[test]
    fn useless_stop_strings_are_refused() {
        assert_eq!(StopMatcher::new(&["a", ""]).unwrap_err().to_string(), "stop string 1 is empty");
        assert_eq!(
            StopMatcher::new(&["x".repeat(5000)]).unwrap_err(),
            StopError::TooLong { index: 0, bytes: 5000, most: 4096 }
        );
        assert_eq!(StopMatcher::new(&["x"; 33]).unwrap_err(), StopError::TooMany { count: 33, most: 32 });
        assert_eq!(StopMatcher::new::<&str>(&[]).unwrap().push("all").text, "all");
    }

    /// The definition: the stop string that ends first, then the longest.
    fn expected(text: &str, stops: &[String]) -> (String, Option<usize>) {
        for end in 1..=text.len() {
            let ending = stops.iter().enumerate().filter(|(_, stop)| text.as_bytes()[..end].ends_with(stop.as_bytes()));
            if let Some((which, stop)) = ending.max_by_key(|(which, stop)| (stop.len(), usize::MAX - which)) {
                return (text[..end - stop.len()].to_owned(), Some(which));
            }
        }
        (text.to_owned(), None)
    }

    fn run(pieces: &[&str], stops: &[String]) -> (String, Option<usize>) {
        let mut matcher = StopMatcher::new(stops).unwrap();
        let mut text = String::new();
        let mut found = None;
        for piece in pieces {
            let delta = matcher.push(piece);
            text += &delta.text;
            found = found.or(delta.stop);
            assert!(matcher.held.len() < stops.iter().map(String::len).max().unwrap_or(1));
            assert!(matcher.held.is_empty() || stops.iter().any(|stop| stop.starts_with(&matcher.held)));
        }
        text += &matcher.finish();
        (text, found)
    }

    proptest! {
        #[test]
        fn the_cut_does_not_matter(
            text in "[abé€]{0,24}",
            stops in prop::collection::vec("[abé€]{1,4}", 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let wanted = expected(&text, &stops);
            let bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            for cut in &bounds {
                prop_assert_eq!(&run(&[&text[..*cut], &text[*cut..]], &stops), &wanted);
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| bounds[cut.index(bounds.len())]).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(&run(&pieces, &stops), &wanted);
            let each: Vec<&str> = bounds.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(&run(&each, &stops), &wanted);
        }
    }
}

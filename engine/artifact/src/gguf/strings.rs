//! Many texts in one allocation.

use std::fmt;

/// Texts, laid out as one buffer and the end of each text in it.
///
/// A vocabulary has hundreds of thousands of short texts; this takes four bytes for each besides the text itself.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StringArray {
    text: String,
    ends: Vec<u32>,
}

impl StringArray {
    /// An empty array with room for `count` texts.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { text: String::new(), ends: Vec::with_capacity(count) }
    }

    /// Appends a text; false, and nothing appended, where all texts together would pass 4 GiB.
    #[must_use]
    pub(crate) fn push(&mut self, text: &str) -> bool {
        match u32::try_from(self.text.len() + text.len()) {
            Ok(end) => {
                self.text.push_str(text);
                self.ends.push(end);
                true
            }
            Err(_) => false,
        }
    }

    /// The texts as an array; `None` where all texts together pass 4 GiB.
    pub fn from_texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Option<Self> {
        let mut array = Self::default();
        for text in texts {
            if !array.push(text.as_ref()) {
                return None;
            }
        }
        Some(array)
    }

    /// The number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The text at `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)? as usize;
        let start = match index {
            0 => 0,
            _ => self.ends[index - 1] as usize,
        };
        self.text.get(start..end)
    }

    /// The texts in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let end = *end as usize;
            let text = &self.text[start..end];
            start = end;
            text
        })
    }

    /// Bytes of all texts together.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }
}

impl fmt::Debug for StringArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_in_order_and_by_index() {
        let texts = ["", "a", "борщ", "", "🥣"];
        let array = StringArray::from_texts(texts).unwrap();
        assert_eq!(array.len(), 5);
        assert_eq!(array.iter().collect::<Vec<_>>(), texts);
        for (index, text) in texts.iter().enumerate() {
            assert_eq!(array.get(index), Some(*text));
        }
        assert_eq!(array.get(5), None);
        assert_eq!(array.text_bytes(), 1 + 8 + 4);
    }

    #[test]
    fn equality_tells_where_the_cuts_are() {
        assert_ne!(StringArray::from_texts(["ab", "c"]), StringArray::from_texts(["a", "bc"]));
    }
}

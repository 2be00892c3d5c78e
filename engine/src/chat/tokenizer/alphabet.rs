//! The printable alphabet of byte-level BPE: a character for every byte.

/// The character that stands for `byte` in the texts of a byte-level vocabulary.
///
/// Printable bytes stand for themselves; the other 68, in order, are U+0100 and onwards (the GPT-2 encoder).
pub(super) fn char_of_byte(byte: u8) -> char {
    let shifted = match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => return char::from(byte),
        0..=0x20 => u32::from(byte),
        0x7F..=0xA0 => u32::from(byte) - 0x7F + 33,
        0xAD => 67,
    };
    char::from_u32(0x100 + shifted).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that `character` stands for, if it is of the alphabet.
pub(super) fn byte_of_char(character: char) -> Option<u8> {
    let code = u32::from(character);
    let byte = match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// The bytes that a text of the vocabulary stands for; where a character is outside the alphabet, its own UTF-8.
pub(super) fn bytes_of_text(text: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for character in text.chars() {
        if let Some(byte) = byte_of_char(character) {
            out.push(byte);
        } else {
            out.truncate(start);
            out.extend_from_slice(text.as_bytes());
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    use super::*;

    #[test]
    fn every_byte_has_its_own_character_of_the_library_alphabet() {
        let characters: HashSet<char> = (0..=255).map(char_of_byte).collect();
        assert_eq!(characters, ByteLevel::alphabet().into_iter().collect());
        for byte in 0..=255 {
            assert_eq!(byte_of_char(char_of_byte(byte)), Some(byte));
        }
        assert_eq!(char_of_byte(b' '), 'Ġ');
        assert_eq!(char_of_byte(b'\n'), 'Ċ');
        assert_eq!(byte_of_char('\u{144}'), None);
        assert_eq!(byte_of_char(' '), None);
    }

    #[test]
    fn a_text_outside_the_alphabet_stands_for_itself() {
        let mut bytes = vec![1];
        bytes_of_text("Ġa", &mut bytes);
        bytes_of_text("a b", &mut bytes);
        assert_eq!(bytes, b"\x01 aa b");
    }
}

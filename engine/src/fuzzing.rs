//! Bodies of the fuzz targets, so that plain tests run them too. Each takes any bytes and must come back.

use serde_json::{Map, json};

use crate::chat::{ChatTemplate, Detokeniser, StopMatcher};

/// The first half as a chat template, the second as the content of a message.
pub fn template(bytes: &[u8]) {
    let (source, content) = bytes.split_at(bytes.len() / 2);
    let (source, content) = (String::from_utf8_lossy(source), String::from_utf8_lossy(content));
    let Ok(template) = ChatTemplate::new(&source, "<s>", "</s>") else { return };
    let messages = json!([{ "role": "system", "content": "" }, { "role": "user", "content": content }]);
    let now = chrono::DateTime::UNIX_EPOCH.fixed_offset();
    // What it renders, or why not, is the template's affair.
    let _ = template.render(&messages, None, &Map::new(), true, now);
}

/// Bytes of tokens, cut anywhere, with a stop string out of them: nothing that comes out holds the stop string, and without
/// one the text is that of all bytes together.
///
/// # Panics
/// When a stop string got through, or text was lost.
pub fn text(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let step = usize::from(*cut % 7) + 1;
    let whole = String::from_utf8_lossy(bytes).into_owned();
    let mut detokeniser = Detokeniser::new();
    let mut pieces: Vec<String> = bytes.chunks(step).map(|chunk| detokeniser.push(chunk)).collect();
    pieces.push(detokeniser.finish());
    assert_eq!(pieces.concat(), whole, "text was lost or made up");
    let stop: String = whole.chars().skip(usize::from(*cut) % 16).take(3).collect();
    let Ok(mut matcher) = StopMatcher::new(&[stop.as_str()]) else { return };
    let mut released = String::new();
    for piece in &pieces {
        released.push_str(&matcher.push(piece).text);
    }
    if !matcher.is_stopped() {
        released.push_str(&matcher.finish());
    }
    assert!(!released.contains(&stop), "a stop string got through");
    assert!(whole.starts_with(&released), "released text is not the start of the text");
}

/// The body of a request: its parameters are read, or the fault is named.
pub fn request(bytes: &[u8]) {
    crate::serve::read_parameters(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            text(&bytes);
            request(&bytes);
        }

        #[test]
        fn templates_of_pieces_come_back(pieces in prop::collection::vec(prop::sample::select(vec![
            "{{", "}}", "{%", "%}", " for m in messages ", " endfor ", "m.content", "|tojson", " if ", " endif ",
            "'x'", "raise_exception('no')", "~", "namespace(a=1)", " set x = ", "[::-1]", "\u{1F642}", "\n",
        ]), 0..14)) {
            template(pieces.concat().as_bytes());
        }

        #[test]
        fn requests_of_pieces_come_back(name in "[a-z_]{0,14}", value in "[-0-9.eE]{0,8}|\"[a-z]{0,4}\"|null|\\[\\]|\\{\\}") {
            request(format!("{{\"{name}\":{value}}}").as_bytes());
        }
    }
}

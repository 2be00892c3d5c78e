//! Tokens that end a generation.

/// Keys whose token ends a generation besides the end-of-sequence token.
pub(super) const END_KEYS: [&str; 6] = [
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.fim_rep_token_id",
    "tokenizer.ggml.fim_sep_token_id",
];

/// Texts of tokens that end a generation, whatever the file says of them: llama.cpp's list, so that both stop alike.
const END_TEXTS: [&str; 33] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    // Padding, repository and file separators of fill-in-the-middle training.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// Whether a token of this text ends a generation.
pub(super) fn is_end_text(text: &str) -> bool {
    END_TEXTS.contains(&text)
}

/// Takes out of `ends` (text and id) what another token there shows to be an ordinary one.
///
/// `<|end|>` closes a message and not the turn where a call and a return (or flush) token exist; `</s>` is ordinary text
/// where `<|tool_response>` exists.
pub(super) fn drop_ordinary(ends: &mut Vec<(String, u32)>) {
    let has = |text: &str| ends.iter().any(|(end, _)| end == text);
    let call = has("<|call|>") || has("<|calls|>");
    let end_is_ordinary = call && (has("<|return|>") || has("<|flush|>"));
    let s_is_ordinary = has("<|tool_response>") || has("<|plamo:eos|>");
    ends.retain(|(text, _)| !(end_is_ordinary && text == "<|end|>" || s_is_ordinary && text == "</s>"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_message_is_no_end_of_turn_where_calls_exist() {
        let list = |texts: &[&str]| -> Vec<(String, u32)> {
            texts.iter().enumerate().map(|(id, text)| ((*text).to_owned(), id as u32)).collect()
        };
        let ids = |mut ends: Vec<(String, u32)>| {
            drop_ordinary(&mut ends);
            ends.into_iter().map(|(_, id)| id).collect::<Vec<_>>()
        };
        assert_eq!(ids(list(&["<|end|>", "<|call|>", "<|return|>"])), [1, 2]);
        assert_eq!(ids(list(&["<|end|>", "<|calls|>", "<|flush|>"])), [1, 2]);
        assert_eq!(ids(list(&["<|end|>", "<|endoftext|>"])), [0, 1]);
        assert_eq!(ids(list(&["</s>", "<|tool_response>"])), [1]);
    }
}

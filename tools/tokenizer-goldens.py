#!/usr/bin/env python3
"""Writes what two other tokenizers make of nasty texts, for engine/tests/tokenizer.rs.

Usage: tools/tokenizer-goldens.py MODEL.gguf LLAMA_INCLUDE LLAMA_LIB [OUT]

MODEL.gguf     a model with tokenizer.ggml.model gpt2; tools/fetch-model.sh smollm2 gets one
LLAMA_INCLUDE  folders with llama.h and ggml.h, separated by colons
LLAMA_LIB      the folder with libllama.so
OUT            engine/tests/data/tokenizer.jsonl where it is not given

Needs a C compiler and the Python packages gguf and tokenizers.

The texts are written by hand and made by a seeded generator. Each is encoded with llama.cpp and with Hugging Face's
tokenizers, both built from the vocabulary of the model: with and without parsing of special tokens, and with every
pre-tokeniser that the engine knows (in copies of the model's metadata that differ in tokenizer.ggml.pre).

The first line of OUT says how it was made. Each further line is a text:
  t   the text
  p   ids by both without parsing of special tokens, where they agree; else h (Hugging Face) and l (llama.cpp)
  s   ids with parsing, where they are others than without; else as above: sh and sl
  v   for each further pre-tokeniser, in the order of the header: a digest of the ids by both, without and with parsing;
      where the two differ, that of Hugging Face and that of llama.cpp in a list
A digest is the first 12 hexadecimal digits of the SHA-256 of the ids as 32-bit little-endian numbers, those without
parsing first, then FFFFFFFF, then those with parsing.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import random
import struct
import subprocess
import sys
import tempfile

import gguf
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

SEED = 20240706
PRES = ["smollm", "gpt-2", "llama-bpe", "qwen2", "qwen35"]

C_SOURCE = r"""
#include "llama.h"
#include <stdio.h>
#include <stdlib.h>
static void quiet(enum ggml_log_level level, const char * text, void * data) { (void) level; (void) text; (void) data; }
int main(int argc, char ** argv) {
    if (argc != 2) return 2;
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    struct llama_model * model = llama_model_load_from_file(argv[1], params);
    if (!model) return 3;
    const struct llama_vocab * vocab = llama_model_get_vocab(model);
    for (int id = 0; id < llama_vocab_n_tokens(vocab); id++) if (llama_vocab_is_eog(vocab, id)) printf("%d ", id);
    printf("\n");
    uint32_t length;
    while (fread(&length, 4, 1, stdin) == 1) {
        char * text = malloc(length + 1);
        if (fread(text, 1, length, stdin) != length) return 4;
        for (int special = 0; special < 2; special++) {
            int room = length + 16;
            llama_token * ids = malloc(room * sizeof(llama_token));
            int count = llama_tokenize(vocab, text, length, ids, room, false, special);
            if (count < 0) return 5;
            for (int i = 0; i < count; i++) printf("%d ", ids[i]);
            printf("\n");
            free(ids);
        }
        free(text);
    }
    return 0;
}
"""

# Written by hand: each is there for a reason that a reader of the two tokenizers can see.
BY_HAND = [
    "", " ", "  ", "   ", "\n", "\r", "\r\n", "\r\n\r\n", "\n\r", "\t", "\t\t\t", " \n", "\n ", "  \n  ", " \r\n \r\n ",
    "a ", " a", "  a", "   a", "a  b", "a   b", "a\n\nb", "a \n b", "a\t b", "a \t b", "a\u00a0b", "a \u00a0b",
    "\u00a0\u00a0a", "a\u3000b", "a\u2028b\u2029c", "a\u0085b", "\u180ea", "a\u200bb", "\ufeffa", "a\ufeff", "\ufeff",
    "\x1c\x1d\x1e\x1f", "\x0b\x0c", "a\x00b", "\x00", "\x01\x02\x03\x04\x05\x06\x07\x08", "-\x04-", "a\x04b", "\x7f",
    "\x80\x81", "don't", "DON'T", "Don'T", "I'll we've they're he'd I'm it's", "I'LL WE'VE THEY'RE HE'D I'M IT'S",
    "'s", "'S", "''s", "'", "''", "' s", "'re'", "x'\u017f", "x'\u017fy", "'\u017f", "'S\u017f", "l'lL 'lL 'Ll", "don\u2019t", "'sst 'tt 'vee", "123's",
    "0", "12", "123", "1234", "12345", "1234567890", " 1", " 12 345", "1,234.56", "1e-10", "0x7F", "3.14159", "v1.2.3",
    "\u0661\u0662\u0663", "\u0967\u0968", "\u00bd \u00b2 \u2460 \u216b \u3007", "\uff11\uff12\uff13", "1\u0661", "\u2155x",
    "\U0001d7ce\U0001d7cf", "\u09f4", "\u4e00\u4e8c\u4e09", "\u137c", "a1b2c3", "e\u0301", "\u00e9", "n\u0303o", "a\u0300\u0301\u0302\u0303",
    "\u0301", " \u0301a", "Z\u0351\u036b\u0343\u036a\u0302A\u0334\u0335L", "\u1e9b\u0323", "\ufb01 \ufb02", "\u212b \u2126", "\u1100\u1161\u11a8", "\uac01",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0ba8\u0bbf", "\u0e01\u0e33", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u202eabc\u202c", "\u200fabc\u200e", "\u4f60\u597d\uff0c\u4e16\u754c\uff01",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8", "\u4e2d\u6587English\u65e5\u672c\u8a9e123", "\U00020000\U0002a6d6", "\U00030000",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5", "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f44b\U0001f3fd",
    "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "\u2764\ufe0f\u200d\U0001f525", "1\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "\u2603\ufe0e",
    "\ue000\uf8ff", "\U000f0000", "\U0010ffff", "\uffff", "\ufffd", "\ufffd\ufffd a", "\U00040000", "\U000bffff", "\u0378", "\u0870\u1c89\u1c8a\ua7cb",
    "\U00010d40\U00010d41", "\U0001ccf0", "\U00016d70", "\U0001e5f1", "\U00011f50", "\U0001fae9", "\U000323b0",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n", " <|im_start|>", "<|im_start|> ",
    "<|im_start|><|im_start|>", "<|im_start", "im_start|>", "<|im_start|", "<|IM_START|>", "< |im_start|>", "<|im_ start|>",
    "<|<|im_start|>|>", "a<|im_end|>b", "1<|im_end|>2", "<|im_start|>\n\n", "\n<|im_end|>", "<repo_name>x<file_sep>y", "<reponame>",
    "<filename>", "<gh_stars>100", "<jupyter_start><jupyter_text>", "<empty_output>", "<issue_start><issue_comment><issue_closed>",
    "<|eot_id|>", "<|begin_of_text|>", "</s>", "<s>", "<unk>", "[INST]", "<0x0A>", "<think></think>", "<tool_call>\n{}\n</tool_call>",
    "\\n", "\\x00", "\\u0041", "\\", "\\\\", "\\'", "%20%0A", "&amp;&lt;", "\\ud83d\\ude00", "\\xff\\xfe",
    "def f(x):\n    return x  # ok\n\n\n", "\tif (a&&b){\r\n\t\tx+=1;\r\n\t}\r\n", "for(;;);", "a->b::c<d>", "#include <stdio.h>\n",
    "SELECT * FROM t WHERE a='b';--", "{\"a\": [1, 2.5e3, null]}", "<div class=\"x\">&nbsp;</div>", "https://example.org/a?b=c&d=%20#e",
    "me@example.org", "C:\\Windows\\System32", "/usr/bin/env -S a", "```rust\nfn main() {}\n```", "$\\frac{1}{2}$", "a_b_c __init__ --flag -x",
    "...", "....", "!!!???", "?!", "--", "\u2014", "\u2026", "\u00ab\u00bb\u201c\u201d\u2018\u2019", "@#$%^&*()_+", "a.b,c;d:e", "(a) [b] {c}", "\u00a7\u00b6\u20ac\u00a3\u00a5\u20bf", "+\u2212\u00d7\u00f7=\u2260",
    "hello", "Hello", "HELLO", " hello", "hello world", "The quick brown fox jumps over the lazy dog.", "supercalifragilisticexpialidocious",
    "antidisestablishmentarianism", "aaaaaaaaaaaaaaaaaaaa", "abababababababab", "\u0120\u010a", "\u0120hello", "\u0100\u0101\u0142", "\u00c0\u00c1", "na\u00efve caf\u00e9", "Stra\u00dfe", "\u0130\u0131\u01c5", "\u1f60d\u02b0\u2071",
    "a" * 300, " " * 300, "\n" * 200, "\t" * 100, " \n" * 80, "ab" * 150, "1" * 200, "-" * 200, "=" * 77, "\u4e2d" * 100, "\U0001f600" * 40, "e\u0301" * 60, "'s" * 60,
    "a " * 100, " a" * 100, "x\u00a0" * 50, "\r\n" * 60, "<|im_end|>" * 20, "<|" * 60, " " * 99 + "x", "x" + " " * 99, "word" + " " * 40 + "word", "\u200d" * 20, "'" * 50,
]

FRAGMENTS = [
    " ", "  ", "    ", "\n", "\r\n", "\r", "\t", "\u00a0", "\u3000", "\u2003", "\u2028", "\u0085", "\u200b", "\ufeff", "'s", "'S", "'t", "'T", "'re", "'RE",
    "'ve", "'Ve", "'m", "'M", "'ll", "'LL", "'d", "'D", "'", "\u2019s", "0", "1", "42", "2024", "1234567", "\u0663", "\u096a", "\u00bd", "\u00b2", "\u2167", "\uff15", "\U0001d7d7",
    "\u0301", "\u0308", "\u093f", "\u0e31", "\u200d", "\ufe0f", "\u20e3", "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f466", "\U0001f44d\U0001f3ff", "\U0001f1fa\U0001f1f8", "\u2764\ufe0f",
    "\u05d0\u05d1", "\u0627\u0644", "\u202b", "\u202e", "\u4f60\u597d", "\u65e5\u672c", "\u3072\u3089", "\u30ab\u30bf", "\ud55c\uad6d", "\u041c\u0438\u0440", "\u03b1\u03b2", "\u0928\u092e", "\u0e44\u0e17\u0e22", "\u10d0\u10d1", "\u0531\u0562",
    "\x00", "\x01", "\x04", "\x06", "\x07", "\x13", "\x1b[0m", "\x1d", "\x7f", "\x9f", "the", "The", "ing", "hello", "World", "HTTP", "camelCase", "snake_case", "x", "Q", "na\u00efve", "e\u0301", "\u00df", "\u017f", "\u0130",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<file_sep>", "<|im_start", "|>", "<|", "<", ">", "</s>", "<s>", "system", "user", "assistant",
    "\\n", "\\u00e9", "\\x41", "\\", "%00", "&#10;", "()", "{", "}", "[", "]", ";", ":", ",", ".", "...", "!", "?", "\"", "`", "```", "~", "@", "#", "$", "\u20ac", "%", "^", "&", "*", "-", "--", "\u2014", "_", "+", "=", "!=", "->", "//", "/*", "*/",
    "def ", "return", "    if", "fn main", "\u00c3\u00a9", "\ufffd", "\u0120", "\u010a", "\u0378", "\U00040001", "\U0010ffff", "\ue000",
]


def made_texts(count):
    """Texts of the seeded generator, in three shapes."""
    rng = random.Random(SEED)
    ranges = [(0, 0x7F), (0x80, 0x24F), (0x250, 0x7FF), (0x800, 0x1FFF), (0x2000, 0x2FFF), (0x3000, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x10FFFF)]
    for number in range(count):
        shape = number % 4
        if shape == 0:
            yield "".join(rng.choice(FRAGMENTS) for _ in range(rng.randint(2, 12)))
        elif shape == 1:
            low, high = rng.choice(ranges)
            yield "".join(chr(point) for point in (rng.randint(low, high) for _ in range(rng.randint(1, 10))) if not 0xD800 <= point < 0xE000)
        elif shape == 2:
            weights = [30, 8, 4, 4, 3, 3, 1, 2, 1]
            points = (rng.randint(*rng.choices(ranges, weights)[0]) for _ in range(rng.randint(2, 16)))
            yield "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)
        else:
            few = rng.sample(FRAGMENTS, 3)
            yield "".join(rng.choice(few) * rng.randint(1, 3) for _ in range(rng.randint(2, 8)))


def copy_with_pre(reader, pre, path):
    """The metadata of a model with another pre-tokeniser, and no tensors."""
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind, value = field.types[0], field.contents()
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, pre if key == "tokenizer.ggml.pre" else value, kind, sub_type=inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def llama_ids(program, lib, model, texts):
    """The end-of-generation ids, and for each text the ids without and with parsing of special tokens."""
    data = b"".join(struct.pack("<I", len(raw)) + raw for raw in (text.encode() for text in texts))
    env = dict(os.environ, LD_LIBRARY_PATH=lib)
    done = subprocess.run([program, model], input=data, stdout=subprocess.PIPE, env=env, check=True)
    lines = [[int(word) for word in line.split()] for line in done.stdout.decode().splitlines()]
    assert len(lines) == 1 + 2 * len(texts)
    return lines[0], list(zip(lines[1::2], lines[2::2]))


def hugging_face(reader, pre):
    """The tokenizer that the makers of models with this pre-tokeniser ship, with the vocabulary of the model."""
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ", 1)) for merge in reader.fields["tokenizer.ggml.merges"].contents()]
    model = models.BPE({text: index for index, text in enumerate(tokens)}, merges, ignore_merges=pre == "llama-bpe")
    made = Tokenizer(model)
    contractions = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    rest = r"\s*[\r\n]+|\s+(?!\S)|\s+"
    patterns = {
        "llama-bpe": contractions + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + rest,
        "qwen2": contractions + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + rest,
        "qwen35": contractions + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + rest,
    }
    if pre in ("qwen2", "qwen35"):
        made.normalizer = normalizers.NFC()
    if pre == "gpt-2":
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    elif pre == "smollm":
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    else:
        split = pre_tokenizers.Split(Regex(patterns[pre]), behavior="isolated", invert=False)
        made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text, kind in zip(tokens, types) if kind == 3])
    return made


def hf_ids(made, texts):
    both = []
    for plain in (True, False):
        made.encode_special_tokens = plain
        both.append([made.encode(text, add_special_tokens=False).ids for text in texts])
    return list(zip(*both))


def digest(pair):
    raw = b"".join(struct.pack("<I", number) for number in [*pair[0], 0xFFFFFFFF, *pair[1]])
    return hashlib.sha256(raw).hexdigest()[:12]


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    model, include, lib = sys.argv[1:4]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    out = sys.argv[4] if len(sys.argv) == 5 else os.path.join(root, "engine/tests/data/tokenizer.jsonl")
    texts = list(dict.fromkeys([*BY_HAND, *made_texts(2200)]))
    reader = gguf.GGUFReader(model)
    with tempfile.TemporaryDirectory() as work:
        source, program = os.path.join(work, "tokenize.c"), os.path.join(work, "tokenize")
        with open(source, "w") as file:
            file.write(C_SOURCE)
        flags = ["-I" + folder for folder in include.split(":")]
        subprocess.run(["cc", "-O1", *flags, source, "-o", program, "-L" + lib, "-lllama", "-lggml", "-lggml-base", "-Wl,--allow-shlib-undefined"], check=True)
        by_llama, by_hf = {}, {}
        for pre in PRES:
            copy = os.path.join(work, pre + ".gguf")
            copy_with_pre(reader, pre, copy)
            ends, by_llama[pre] = llama_ids(program, lib, copy, texts)
            by_hf[pre] = hf_ids(hugging_face(reader, pre), texts)
    with open(model, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    differing = {pre: sum(hf != tuple(llama) for hf, llama in zip(by_hf[pre], by_llama[pre])) for pre in PRES}
    header = {
        "made_by": "tools/tokenizer-goldens.py",
        "model_sha256": sha256,
        "versions": {"tokenizers": tokenizers.__version__, "llama.cpp": os.environ.get("LLAMA_VERSION", "not told"), "gguf": importlib.metadata.version("gguf"), "python": platform.python_version()},
        "pre": PRES[0],
        "further_pre": PRES[1:],
        "texts": len(texts),
        "differing": differing,
        "end_of_generation": ends,
    }
    with open(out, "w", encoding="ascii") as file:
        def line(value):
            file.write(json.dumps(value, separators=(",", ":")) + "\n")
        line(header)
        for index, text in enumerate(texts):
            hf, llama = (list(map(list, ids[PRES[0]][index])) for ids in (by_hf, by_llama))
            row = {"t": text}
            if hf[0] == llama[0]:
                row["p"] = hf[0]
            else:
                row["h"], row["l"] = hf[0], llama[0]
            if hf[1] != hf[0] or llama[1] != llama[0]:
                if hf[1] == llama[1]:
                    row["s"] = hf[1]
                else:
                    row["sh"], row["sl"] = hf[1], llama[1]
            further = []
            for pre in PRES[1:]:
                one, other = digest(by_hf[pre][index]), digest(by_llama[pre][index])
                further.append(one if one == other else [one, other])
            row["v"] = further
            line(row)
    print(f"{out}: {len(texts)} texts; texts on which the two differ: {differing}")


if __name__ == "__main__":
    main()

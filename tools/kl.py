#!/usr/bin/env python3
"""Measures how far the logits of llama.cpp and of memra-lab are from those of the dequantised model.

Usage:
    pip install llama-cpp-python==0.3.36 gguf numpy
    python tools/kl.py models/smollm2.gguf --memra target/release/memra-lab

One text (prompts/kl/text.txt) is tokenised by llama.cpp and passed once through each implementation, teacher-forced.
P_dequantised is the softmax of the model with its weights dequantised and nothing else quantised (oracle.py). For every
other implementation x the JSON on stdout holds, over the positions 0..T-2 of T tokens: the mean and the largest of
KL(P_dequantised || P_x) in nats, the fraction of positions with the same most probable token, and the perplexity of the
text's next tokens. `ratio` is memra-lab's mean KL over llama.cpp's; null without `--memra`.

memra-lab is run as `memra-lab logits MODEL --ids FILE --out FILE.npy`: ids in decimal with spaces between them, logits
f32 [tokens, vocab].
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import oracle

ROOT = Path(__file__).resolve().parent.parent
ROWS_AT_A_TIME = 64


def log_softmax(logits: oracle.Float32) -> oracle.Float64:
    """Natural logarithms of the softmax over the last axis, in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


def perplexity(logits: oracle.Float32, ids: list[int]) -> float:
    """exp of the mean negative log-probability of token t + 1 at position t."""
    total = 0.0
    for start in range(0, len(ids) - 1, ROWS_AT_A_TIME):
        targets = np.asarray(ids[start + 1 : start + 1 + ROWS_AT_A_TIME])
        rows = log_softmax(logits[start : start + len(targets)])
        total -= float(rows[np.arange(len(targets)), targets].sum())
    return float(np.exp(total / (len(ids) - 1)))


def divergence(reference: oracle.Float32, other: oracle.Float32) -> oracle.Float64:
    """KL(softmax(reference) || softmax(other)) of each row, in nats."""
    out = np.empty(len(reference), dtype=np.float64)
    for start in range(0, len(reference), ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        p, q = log_softmax(reference[rows]), log_softmax(other[rows])
        out[rows] = (np.exp(p) * (p - q)).sum(axis=-1)
    return out


def compare(reference: oracle.Float32, other: oracle.Float32, ids: list[int]) -> dict[str, float]:
    """The numbers reported of one implementation, over positions 0..T-2."""
    kl = divergence(reference[:-1], other[:-1])
    agree = np.argmax(reference[:-1], axis=-1) == np.argmax(other[:-1], axis=-1)
    return {
        "mean_kl": float(f"{kl.mean():.6g}"),
        "max_kl": float(f"{kl.max():.6g}"),
        "top1_agreement": round(float(agree.mean()), 6),
        "perplexity": round(perplexity(other, ids), 6),
    }


def memra_logits(binary: Path, model: Path, ids: list[int], vocab: int) -> oracle.Float32:
    """f32 logits `[tokens, vocab]` from memra-lab's command."""
    with tempfile.TemporaryDirectory() as folder:
        ids_file, out = Path(folder) / "ids.txt", Path(folder) / "logits.npy"
        ids_file.write_text(" ".join(map(str, ids)) + "\n", encoding="ascii")
        command = [str(binary), "logits", str(model), "--ids", str(ids_file), "--out", str(out)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise oracle.OracleError(f"{binary} logits: exit status {done.returncode}: {done.stderr.strip()[-800:]}")
        logits = np.load(out, allow_pickle=False)
    if logits.dtype != np.float32 or logits.shape != (len(ids), vocab):
        raise oracle.OracleError(f"{binary} logits: {logits.dtype} {logits.shape}; expected float32 {(len(ids), vocab)}")
    if not np.isfinite(logits).all():
        raise oracle.OracleError(f"{binary} logits: a value is not finite")
    return logits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--text", type=Path, default=ROOT / "prompts/kl/text.txt", metavar="FILE")
    parser.add_argument("--memra", type=Path, metavar="BINARY", help="memra-lab; its side is left out where absent")
    parser.add_argument("--float64", action="store_true", help="the dequantised model's products in float64, not float32")
    oracle.add_llama_arguments(parser)
    args = parser.parse_args()

    text = args.text.read_bytes()
    llama_cpp = oracle.import_llama_cpp(args.llama_python, args.llama_lib)
    llama = oracle.LlamaCpp(llama_cpp, args.model, 4096, args.threads)
    ids = llama.tokenize(text.decode("utf-8"))
    if len(ids) < 2:
        raise oracle.OracleError(f"{args.text}: {len(ids)} tokens; at least 2 are needed")
    reference = oracle.dequantised_logits(args.model, ids, np.float64 if args.float64 else np.float32)
    from_llama = llama.logits(ids, all_rows=True)
    theirs = compare(reference, from_llama, ids)
    report: dict[str, object] = {
        "tokens": len(ids),
        "positions": len(ids) - 1,
        "dequantised": {"products": "float64" if args.float64 else "float32", "perplexity": round(perplexity(reference, ids), 6)},
        "llama_cpp": theirs | {"made_with": llama.description()},
        "memra": None,
        "ratio": None,
        "sha256": {
            "model": oracle.file_sha256(args.model),
            "text": hashlib.sha256(text).hexdigest(),
            "ids": oracle.ids_sha256(ids),
        },
    }
    if args.memra is None:
        print("kl: memra-lab's side left out: no --memra", file=sys.stderr)
    elif not args.memra.is_file():
        print(f"kl: memra-lab's side left out: {args.memra} is not there", file=sys.stderr)
    else:
        ours = compare(reference, memra_logits(args.memra, args.model, ids, llama.vocab_size), ids)
        report["memra"] = ours | {"binary_sha256": oracle.file_sha256(args.memra)}
        report["ratio"] = float(f"{ours['mean_kl'] / theirs['mean_kl']:.6g}") if theirs["mean_kl"] else None
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (oracle.OracleError, OSError, UnicodeDecodeError, ValueError) as error:
        sys.exit(f"kl: {error}")

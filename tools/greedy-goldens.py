#!/usr/bin/env python3
"""Writes the greedy goldens of the engine's tests: what llama.cpp generates for the prompts in prompts/greedy.

Usage:
    pip install llama-cpp-python==0.3.36 gguf numpy
    python tools/greedy-goldens.py models/smollm2.gguf

Every prompt is tokenised by llama.cpp (special tokens recognised in the text) and continued greedily in an empty
context, the whole prompt in one batch and then one token at a time, until 48 tokens or an end-of-generation token,
which is kept. For every generated token the file holds the runner-up and the gap between the two logits (natural-log
units): where the gap is within rounding, another right implementation may choose the runner-up.

`--check` makes everything anew, writes nothing and fails where the file holds other ids.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import oracle

ROOT = Path(__file__).resolve().parent.parent
ABOUT = (
    "Greedy continuations by llama.cpp on a CPU; made by tools/greedy-goldens.py. Per prompt: text, prompt_ids (special "
    "tokens parsed), generated (ends at an end-of-generation token, included, or at max_tokens), second (the runner-up "
    "of each generated token), gap (logit of the generated token less that of the runner-up), finish (stop or length)."
)


def check_rendering(llama_cpp: Any, model: Path, prompt: dict[str, Any]) -> None:
    """Fails where a chat prompt's text is not what the model's own template makes of its messages."""
    weights = oracle.Weights(model)
    tokens = weights.metadata("tokenizer.ggml.tokens")
    formatter = llama_cpp.llama_chat_format.Jinja2ChatFormatter(
        template=weights.metadata("tokenizer.chat_template"),
        bos_token=tokens[weights.metadata("tokenizer.ggml.bos_token_id")],
        eos_token=tokens[weights.metadata("tokenizer.ggml.eos_token_id")],
    )
    if formatter(messages=prompt["messages"]).prompt != prompt["text"]:
        raise oracle.OracleError(f"prompt {prompt['name']}: text differs from what {model}'s chat template renders")


def continue_greedily(llama: oracle.LlamaCpp, prompt_ids: list[int], max_tokens: int) -> dict[str, Any]:
    """At most `max_tokens` greedy tokens after `prompt_ids`, with runner-ups and gaps."""
    llama.clear()
    generated: list[int] = []
    second: list[int] = []
    gap: list[float] = []
    feed = prompt_ids
    while len(generated) < max_tokens:
        row = llama.logits(feed, all_rows=False)[0]
        best = int(np.argmax(row))
        best_logit = float(row[best])
        row[best] = -np.inf
        runner_up = int(np.argmax(row))
        generated.append(best)
        second.append(runner_up)
        gap.append(round(best_logit - float(row[runner_up]), 5))
        if llama.is_end_of_generation(best):
            return {"generated": generated, "second": second, "gap": gap, "finish": "stop"}
        feed = [best]
    return {"generated": generated, "second": second, "gap": gap, "finish": "length"}


def render(header: dict[str, Any], entries: list[dict[str, Any]]) -> str:
    """The file's text: header fields and then one line a prompt."""
    lines = [f'"{key}":{json.dumps(value, ensure_ascii=False, separators=(",", ":"))}' for key, value in header.items()]
    prompts = ",\n".join(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries)
    return "{" + ",\n".join(lines) + ',\n"prompts":[\n' + prompts + "\n]}\n"


def differences(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[str]:
    """Names of the prompts of which text or ids differ, or that only one side has."""
    keys = ("text", "prompt_ids", "generated", "finish")
    before = {entry["name"]: [entry[key] for key in keys] for entry in old}
    after = {entry["name"]: [entry[key] for key in keys] for entry in new}
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def agreement(entries: list[dict[str, Any]], logits_of: Callable[[list[int]], Any]) -> dict[str, Any]:
    """How often other logits over the same tokens have the golden's choice on top, and the widest gap they overcame."""
    tokens = agreeing = 0
    widest = 0.0
    for entry in entries:
        ids = entry["prompt_ids"] + entry["generated"]
        best = logits_of(ids[:-1])[len(entry["prompt_ids"]) - 1 :].argmax(axis=1)
        for ours, golden, gap in zip(best, entry["generated"], entry["gap"], strict=True):
            tokens += 1
            if int(ours) == golden:
                agreeing += 1
            else:
                widest = max(widest, gap)
    return {"tokens": tokens, "agreeing": agreeing, "widest_gap_overcome": round(widest, 4)}


def read_afresh(llama: oracle.LlamaCpp, ids: list[int]) -> Any:
    """Logits of every id, read in one batch into an empty context."""
    llama.clear()
    return llama.logits(ids, all_rows=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--prompts", type=Path, default=ROOT / "prompts/greedy/prompts.json", metavar="FILE")
    parser.add_argument("--out", type=Path, default=ROOT / "engine/tests/data/greedy.json", metavar="FILE")
    parser.add_argument("--max-tokens", type=int, default=48, metavar="N")
    parser.add_argument("--n-ctx", type=int, default=4096, metavar="N")
    parser.add_argument(
        "--flash-attn",
        choices=("auto", "on", "off"),
        default="off",
        help="llama.cpp's flash attention on a CPU adds values up in f16; off (the default) adds in f32",
    )
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    oracle.add_llama_arguments(parser)
    args = parser.parse_args()

    prompts = json.loads(args.prompts.read_text(encoding="utf-8"))["prompts"]
    llama_cpp = oracle.import_llama_cpp(args.llama_python, args.llama_lib)
    llama = oracle.LlamaCpp(llama_cpp, args.model, args.n_ctx, args.threads, args.flash_attn)
    entries: list[dict[str, Any]] = []
    for prompt in prompts:
        if "messages" in prompt:
            check_rendering(llama_cpp, args.model, prompt)
        prompt_ids = llama.tokenize(prompt["text"])
        outcome = continue_greedily(llama, prompt_ids, args.max_tokens)
        entries.append({"name": prompt["name"], "kind": prompt["kind"], "text": prompt["text"], "prompt_ids": prompt_ids, **outcome})
        print(
            f"{prompt['name']}: {len(prompt_ids)} prompt tokens, {len(outcome['generated'])} generated, "
            f"{outcome['finish']}, least gap {min(outcome['gap']):.4f}",
            file=sys.stderr,
        )

    if args.check:
        differing = differences(json.loads(args.out.read_text(encoding="utf-8"))["prompts"], entries)
        print(f"{args.out}: " + (f"differs in {', '.join(differing)}" if differing else "as generated now"))
        return 1 if differing else 0
    header = {
        "about": ABOUT,
        "model": {
            "name": oracle.Weights(args.model).metadata("general.name"),
            "sha256": oracle.file_sha256(args.model),
            "bytes": args.model.stat().st_size,
        },
        "llama_cpp": llama.description(),
        "max_tokens": args.max_tokens,
        # What agreement can be expected: llama.cpp itself, the same tokens read in one batch, and the exact dequantised model.
        "llama_cpp_in_one_batch": agreement(entries, lambda ids: read_afresh(llama, ids)),
        "dequantised_model": agreement(entries, lambda ids: oracle.dequantised_logits(args.model, ids)),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(render(header, entries), encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (oracle.OracleError, OSError, json.JSONDecodeError, KeyError) as error:
        sys.exit(f"greedy-goldens: {error!r}" if isinstance(error, KeyError) else f"greedy-goldens: {error}")

#!/usr/bin/env python3
"""Writes random blocks of every weight format with their values, for kernels/contract/tests/weights.rs.

Usage:
    pip install gguf numpy
    python tools/format-goldens.py [OUT]

OUT is kernels/contract/tests/data/formats.txt where it is not given. The first line says how it was made. Each further
line is a row: the format, its bytes and the f32 bits of its values, both in hexadecimal, little-endian. The values of GGUF
formats are those of gguf.quants.dequantize. f8_e4m3 is no GGUF format: its row holds all 256 codes, and the values come
from the definition in the OCP 8-bit floating point specification.

`--check` writes nothing and fails where the file holds something else.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from pathlib import Path

import gguf
import numpy as np

SEED = 20240706
ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "kernels" / "contract" / "tests" / "data" / "formats.txt"
# Format, blocks of a row, byte offsets of its binary16 fields.
FORMATS = [
    ("F16", 64, [0]),
    ("BF16", 64, []),
    ("Q8_0", 3, [0]),
    ("Q4_0", 3, [0]),
    ("Q4_1", 3, [0, 2]),
    ("Q5_0", 3, [0]),
    ("Q5_1", 3, [0, 2]),
    ("Q4_K", 3, [0, 2]),
    ("Q5_K", 3, [0, 2]),
    ("Q6_K", 3, [208]),
    ("IQ4_XS", 3, [0]),
    ("IQ3_S", 5, [0]),
    ("NVFP4", 4, []),
]


def e4m3(code: int) -> float:
    """A code of E4M3 without infinities."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    magnitude = mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -magnitude if code & 0x80 else magnitude


def line(name: str, stored: np.ndarray, values: np.ndarray) -> str:
    """A row as it stands in the file."""
    return f"{name} {stored.tobytes().hex()} {values.astype('<f4').tobytes().hex()}"


def render() -> str:
    """The whole file."""
    version = importlib.metadata.version("gguf")
    lines = [f"# made by tools/format-goldens.py with gguf {version}, seed {SEED}: format, bytes, f32 bits of the values"]
    random = np.random.default_rng(SEED)
    for name, blocks, halves in FORMATS:
        kind = gguf.GGMLQuantizationType[name]
        block_bytes = gguf.GGML_QUANT_SIZES[kind][1]
        stored = random.integers(0, 256, (blocks, block_bytes), dtype=np.uint8)
        if name == "BF16":
            stored = (random.standard_normal(blocks).astype("<f4").view("<u4") >> 16).astype("<u2").view(np.uint8)
            stored = stored.reshape(blocks, block_bytes)
        for at in halves:
            scales = (random.standard_normal(blocks) * 0.01).astype("<f2")
            stored[:, at : at + 2] = scales.reshape(-1, 1).view(np.uint8)
        if name == "F16":
            values = stored.copy().view("<f2").astype(np.float32).ravel()
        else:
            values = gguf.quants.dequantize(stored.reshape(1, -1), kind).ravel()
        lines.append(line(name.lower(), stored, values))
    codes = np.arange(256, dtype=np.uint8)
    lines.append(line("f8_e4m3", codes, np.array([e4m3(int(code)) for code in codes])))
    return "\n".join(lines) + "\n"


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description="Writes random blocks of every weight format with their values.")
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = render()
    if arguments.check:
        if arguments.out.read_text() != text:
            print(f"{arguments.out} holds something else", file=sys.stderr)
            return 1
        return 0
    arguments.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes the cells of one H200: matrix products of real models, and read ceilings of the same bytes.

Usage:
    python tools/h200-cells.py [OUT]

OUT is harness/cells/h200.toml where it is not given. Names say k x n: length of a row of the weight x rows of the weight.
Ceilings of sizes that harness/cells/h200-ceilings.toml has already are left out.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

CELLS = Path(__file__).resolve().parent.parent / "harness" / "cells"

# Format: elements and bytes of a block, activation.
FORMATS = {
    "q8_0": (32, 34, "q8"),
    "q4_0": (32, 18, "q8"),
    "q4_1": (32, 20, "q8"),
    "q5_0": (32, 22, "q8"),
    "q5_1": (32, 24, "q8"),
    "q4_k": (256, 144, "q8"),
    "q5_k": (256, 176, "q8"),
    "q6_k": (256, 210, "q8"),
    "iq4_xs": (256, 136, "q8"),
    "nvfp4": (64, 36, "q8"),
    "bf16": (1, 2, "bf16"),
    "f16": (1, 2, "f16"),
    "f8_e4m3": (1, 1, "f16"),
}
# k, n, what it is.
SHAPES = [
    (4096, 12288, "8B or 9B gate or up"),
    (12288, 4096, "9B down"),
    (4096, 4096, "9B attention output"),
    (4096, 24576, "9B gate and up as one"),
    (5120, 17408, "27B gate or up"),
    (17408, 5120, "27B down"),
    (2048, 512, "35B-A3B expert gate or up"),
    (512, 2048, "35B-A3B expert down"),
    (4096, 248320, "9B head"),
]
HEAD = (4096, 248320)
HEAD_FORMATS = ["q8_0", "q6_k"]
FEW_ROWS_SHAPES = [(4096, 12288), (5120, 17408)]
FEW_ROWS_FORMATS = ["q8_0", "q4_k"]
BATCH_SHAPES = [(4096, 12288), (12288, 4096), (5120, 17408), (17408, 5120), (4096, 24576)]
BATCH_FORMATS = ["q8_0", "q4_k", "q6_k", "bf16", "f8_e4m3"]
FIRST_FORMATS = ["q8_0", "q4_0", "q4_k", "q6_k", "bf16", "f8_e4m3", "nvfp4"]
ROWS_FORMATS = ["q8_0", "q4_k", "q6_k"]

# What the staged activation of eight columns may take of the shared memory of a block.
MOST_SHARED = 227 << 10
CHUNK = 16 << 10
# Below this a part of a stream is one chunk, which has too few loads for eight of them in flight a thread.
SMALL = 16 << 20

HEADER = """\
# Written by tools/h200-cells.py: matrix products of real models on an H200, and the read ceilings of the same bytes. Names of
# products say k x n, length of a row x rows of the weight; those of ceilings the bytes. A ceiling reads the bytes of the
# weight's blocks rounded up to 16 KiB; scales that lie beside a weight are not counted.
"""


def is_float(format):
    return FORMATS[format][2] != "q8"


def weight_bytes(format, k, n):
    elements, size, _ = FORMATS[format]
    return -(-(n * k // elements * size) // CHUNK) * CHUNK


def float_rows_fit(format, k):
    """Whether a block of `cuda_rows_<format>` has room for eight columns: float_entry of kernels/src/ops/matmul/cuda.rs."""
    unit = 128 if format == "f8_e4m3" else 64
    staged = 8 * -(-(-(-k // unit)) // 8) * 8 * unit * 2
    return staged + 2 * 8 * 8 * 16 * 4 <= MOST_SHARED


def arms(format, k, m):
    cluster = f"cuda_cluster_{format}"
    if is_float(format):
        if m > 8:
            return cluster, f"cuda_direct_{format}"
        if m == 1 or (m <= 8 and float_rows_fit(format, k)):
            return f"cuda_rows_{format}", cluster
        return cluster, cluster
    if m == 1:
        return f"cuda_rows_{format}", f"cuda_one_tiles2_{format}"
    return cluster, f"cuda_cluster_tiles2_{format}"


def first_choice(format, k):
    """What is raced against the baseline for one row: the best of a first look."""
    if format == "nvfp4":
        return f"cuda_one_tiles2_{format}"
    if k >= 16384 and not is_float(format):
        return f"cuda_cluster_deep_{format}" if format == "q4_0" else f"cuda_cluster_{format}"
    return f"cuda_rows_{format}"


def priority(format, k, n, m):
    if m == 1 and min(k, n) >= 4096 and format in FIRST_FORMATS:
        return 1
    return 2 if m in (8, 32) else 3


def products():
    """Format, k, n, what, rows, suffix of the name, arms."""
    for m in (1, 2, 4, 8, 16, 32):
        for k, n, what in SHAPES:
            for format in FORMATS:
                if m == 1:
                    wanted = (k, n) != HEAD or format in HEAD_FORMATS
                elif m in (2, 4):
                    wanted = (k, n) in FEW_ROWS_SHAPES and format in FEW_ROWS_FORMATS
                else:
                    formats = BATCH_FORMATS + (["nvfp4"] if m == 8 else [])
                    wanted = (k, n) in BATCH_SHAPES and format in formats
                if not wanted:
                    continue
                yield format, k, n, what, m, "", arms(format, k, m)
                if m == 1:
                    yield format, k, n, what, m, "-base", ("baseline", first_choice(format, k))
                if 2 <= m <= 8 and format in ROWS_FORMATS:
                    yield format, k, n, what, m, "-rows", (f"cuda_cluster_{format}", f"cuda_rows_{format}")


def cell(**fields):
    lines = [f"{name} = {value}" if isinstance(value, int) else f'{name} = "{value}"' for name, value in fields.items()]
    return "\n[[cell]]\n" + "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path, default=CELLS / "h200.toml")
    out = parser.parse_args().out

    text = HEADER
    sizes = {}
    for format, k, n, what, m, suffix, (a, b) in products():
        first = priority(format, k, n, m)
        size = weight_bytes(format, k, n)
        sizes[size] = min(first, sizes.get(size, first))
        text += cell(
            name=f"h200-{format.replace('_', '-')}-{k}x{n}-m{m}{suffix}",
            title=f"{what}, {k} x {n} in {format}, {'one row' if m == 1 else f'{m} rows'}",
            contract="matmul",
            problem=f"m={m},k={k},seg={format}:{n},act={FORMATS[format][2]}",
            a=a,
            b=b,
            family="normal",
            input_seed=1,
            cache="rotate",
            threads=1,
            priority=first,
            backend="cuda",
        )
    present = {int(size) for size in re.findall(r"op=read,bytes=(\d+)", (CELLS / "h200-ceilings.toml").read_text())}
    for size in sorted(set(sizes) - present):
        flights = (2, 4) if size < SMALL else (4, 8)
        text += cell(
            name=f"ceiling-read-{size}",
            title=f"read {size} bytes, {16 * flights[0]} against {16 * flights[1]} bytes a thread in flight",
            contract="stream",
            problem=f"op=read,bytes={size}",
            a=f"cuda_stream_f{flights[0]}",
            b=f"cuda_stream_f{flights[1]}",
            family="random",
            input_seed=1,
            cache="rotate",
            threads=0,
            priority=sizes[size],
            backend="cuda",
        )
    out.write_text(text)


if __name__ == "__main__":
    main()

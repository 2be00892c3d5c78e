"""Oracles for the engine's tests: llama.cpp, and the dequantised model in numpy.

Two independent producers of logits for a GGUF file:

- `LlamaCpp`: llama.cpp through llama-cpp-python, with llama.cpp's own context defaults.
- `dequantised_logits`: weights dequantised by `gguf.quants` and a forward pass in numpy; what the stored weights mean
  when no activation is quantised. Architecture "llama" only (RMSNorm, RoPE on neighbouring pairs, GQA, SwiGLU).

Needs `pip install llama-cpp-python==0.3.36 gguf numpy`. Nothing here is a command; see greedy-goldens.py and kl.py.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


class OracleError(Exception):
    """A file, an argument or a library that an oracle cannot work with; the message names it."""


def file_sha256(path: Path) -> str:
    """SHA-256 digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ids_sha256(ids: list[int]) -> str:
    """SHA-256 digest of token ids written in decimal with one space between them, in hexadecimal."""
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()


# --- llama.cpp -------------------------------------------------------------------------------------------------------


def add_llama_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that say where llama.cpp is and with how many threads it runs."""
    parser.add_argument("--llama-python", type=Path, metavar="DIR", help="folder that holds the package llama_cpp, where it is not installed")
    parser.add_argument("--llama-lib", type=Path, metavar="DIR", help="folder that holds libllama, where it is not the package's own")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="llama.cpp's threads (default: 1)")


def import_llama_cpp(package: Path | None, library: Path | None) -> ModuleType:
    """Imports llama_cpp, from `package` and with the shared libraries in `library` where these are given."""
    for folder in (package, library):
        if folder is not None and not folder.is_dir():
            raise OracleError(f"{folder}: not a folder")
    if package is not None:
        sys.path.insert(0, str(package))
    if library is not None:
        os.environ["LLAMA_CPP_LIB_PATH"] = str(library)
    try:
        return importlib.import_module("llama_cpp")
    except ImportError as error:
        raise OracleError(f"llama_cpp: {error} (pip install llama-cpp-python, or give --llama-python)") from error


class LlamaCpp:
    """A model in llama.cpp: one sequence, context parameters at llama.cpp's defaults but for what is given."""

    def __init__(self, llama_cpp: ModuleType, model: Path, n_ctx: int, threads: int, flash_attn: str = "auto") -> None:
        self._api: Any = llama_cpp
        self._log: list[str] = []
        self._log_callback = llama_cpp.llama_log_callback(lambda _level, text, _data: self._log.append(text.decode(errors="replace")))
        llama_cpp.llama_log_set(self._log_callback, None)
        llama_cpp.llama_backend_init()
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(model).encode(), model_params)
        if not self._model:
            raise OracleError(f"{model}: llama.cpp does not load it: {self._log_end()}")
        context_params = llama_cpp.llama_context_default_params()
        context_params.n_ctx = n_ctx
        context_params.n_threads = threads
        context_params.n_threads_batch = threads
        context_params.flash_attn_type = {"auto": -1, "off": 0, "on": 1}[flash_attn]
        self._flash_attn: int = context_params.flash_attn_type
        self._context = llama_cpp.llama_init_from_model(self._model, context_params)
        if not self._context:
            raise OracleError(f"{model}: llama.cpp makes no context of {n_ctx} tokens: {self._log_end()}")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.vocab_size: int = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self._threads = threads

    def _log_end(self) -> str:
        return "".join(self._log[-5:]).strip()

    def description(self) -> dict[str, str | int]:
        """Version, commit and settings, for the header of what was made with them."""
        api = self._api
        # The commit is a symbol of libggml-base, on which libllama depends.
        commit = getattr(api.llama_cpp._lib, "ggml_commit", None)
        if commit is not None:
            commit.restype = ctypes.c_char_p
        return {
            "version": api.llama_version().decode(),
            "commit": commit().decode() if commit is not None else "unknown",
            "bindings": f"llama-cpp-python {api.__version__}",
            "n_ctx": api.llama_n_ctx(self._context),
            "n_batch": api.llama_n_batch(self._context),
            "n_ubatch": api.llama_n_ubatch(self._context),
            "threads": self._threads,
            "flash_attn": self._flash_attention(),
            "system": " ".join(api.llama_print_system_info().decode().split()),
        }

    def _flash_attention(self) -> str:
        """What was asked for and, where llama.cpp chose, what it says that it chose."""
        asked = self._api.llama_flash_attn_type_name(self._flash_attn).decode()
        marker = "Flash Attention "
        chosen = [line.split(marker)[1].strip() for line in "".join(self._log).splitlines() if marker in line]
        return f"{asked} ({chosen[-1]})" if chosen else asked

    def tokenize(self, text: str) -> list[int]:
        """Token ids of `text`, special tokens recognised in it and added as the model's metadata says."""
        data = text.encode()
        room = len(data) + 8
        ids = (self._api.llama_token * room)()
        count = self._api.llama_tokenize(self._vocab, data, len(data), ids, room, True, True)
        if count < 0:
            raise OracleError(f"llama.cpp needs {-count} tokens for a text of {len(data)} bytes")
        return list(ids[:count])

    def is_end_of_generation(self, token: int) -> bool:
        """Whether generation stops after this token."""
        return bool(self._api.llama_vocab_is_eog(self._vocab, token))

    def clear(self) -> None:
        """Forgets every token seen."""
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)

    def logits(self, ids: list[int], all_rows: bool) -> Float32:
        """Appends `ids` to the sequence; f32 logits `[rows, vocab]` of each of them, or of the last one alone.

        The ids must fit in one llama.cpp batch (`n_batch`, 2048 by default).
        """
        api = self._api
        limit = api.llama_n_batch(self._context)
        if not 0 < len(ids) <= limit:
            raise OracleError(f"{len(ids)} tokens in one batch; llama.cpp takes 1 to {limit}")
        start = api.llama_memory_seq_pos_max(api.llama_get_memory(self._context), 0) + 1
        batch = api.llama_batch_init(len(ids), 0, 1)
        try:
            batch.n_tokens = len(ids)
            for row, token in enumerate(ids):
                batch.token[row] = token
                batch.pos[row] = start + row
                batch.n_seq_id[row] = 1
                batch.seq_id[row][0] = 0
                batch.logits[row] = all_rows or row == len(ids) - 1
            status = api.llama_decode(self._context, batch)
        finally:
            api.llama_batch_free(batch)
        if status != 0:
            raise OracleError(f"llama_decode returned {status} for {len(ids)} tokens at position {start}: {self._log_end()}")
        rows = len(ids) if all_rows else 1
        pointer = api.llama_get_logits(self._context)
        return np.ctypeslib.as_array(pointer, shape=(rows * self.vocab_size,)).reshape(rows, self.vocab_size).copy()


# --- the dequantised model -------------------------------------------------------------------------------------------


class Weights:
    """Metadata and tensors of a GGUF file; tensors are dequantised when asked for, and each use is noted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        reader = gguf.GGUFReader(path)
        self._fields = reader.fields
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._used: set[str] = set()

    def metadata(self, key: str, default: Any = None) -> Any:
        """Value of a metadata key; an error where it is absent and there is no default."""
        field = self._fields.get(key)
        if field is not None:
            return field.contents()
        if default is None:
            raise OracleError(f"{self.path}: no metadata key {key}")
        return default

    def has(self, name: str) -> bool:
        """Whether the file holds a tensor of this name."""
        return name in self._tensors

    def tensor(self, name: str, dtype: type[np.floating[Any]]) -> NDArray[Any]:
        """A tensor's values, dequantised, outermost axis first: `[rows]` or `[out, in]`."""
        if name not in self._tensors:
            raise OracleError(f"{self.path}: no tensor {name}")
        self._used.add(name)
        tensor = self._tensors[name]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(dtype, copy=False)

    def check_all_used(self) -> None:
        """An error where the file holds a tensor that the forward pass knows nothing of."""
        unknown = sorted(set(self._tensors) - self._used)
        if unknown:
            raise OracleError(f"{self.path}: tensors that the forward pass does not use: {', '.join(unknown[:8])}")


def rms_norm(x: NDArray[Any], weight: NDArray[Any], epsilon: float) -> NDArray[Any]:
    """`x / sqrt(mean(x^2) + epsilon) * weight` over the last axis, in float64; returns x's type."""
    wide = x.astype(np.float64)
    scale = 1.0 / np.sqrt(np.mean(wide * wide, axis=-1, keepdims=True) + epsilon)
    return (wide * scale * weight.astype(np.float64)).astype(x.dtype)


def rope(x: NDArray[Any], cosine: Float64, sine: Float64) -> NDArray[Any]:
    """Rotates the pairs (2i, 2i + 1) of `[tokens, heads, head_dim]`; angles `[tokens, 1, pairs]`, rest unchanged."""
    out = x.astype(np.float64)
    rotated = 2 * cosine.shape[-1]
    even, odd = x[..., 0:rotated:2].astype(np.float64), x[..., 1:rotated:2].astype(np.float64)
    out[..., 0:rotated:2] = even * cosine - odd * sine
    out[..., 1:rotated:2] = even * sine + odd * cosine
    return out.astype(x.dtype)


def causal_attention(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    """Causal GQA: q `[tokens, heads, head_dim]`, k and v `[tokens, kv_heads, head_dim]`; `[tokens, heads * head_dim]`."""
    tokens, heads, head_dim = q.shape
    group = heads // k.shape[1]
    future = np.triu(np.ones((tokens, tokens), dtype=bool), k=1)
    out = np.empty_like(q)
    for head in range(heads):
        scores = (q[:, head] @ k[:, head // group].T).astype(np.float64) / np.sqrt(head_dim)
        scores[future] = -np.inf
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        out[:, head] = scores.astype(q.dtype) @ v[:, head // group]
    return out.reshape(tokens, heads * head_dim)


def swiglu(gate: NDArray[Any], up: NDArray[Any]) -> NDArray[Any]:
    """`gate * sigmoid(gate) * up`, in float64; returns gate's type."""
    wide = gate.astype(np.float64)
    with np.errstate(over="ignore"):
        return (wide / (1.0 + np.exp(-wide)) * up).astype(gate.dtype)


def dequantised_logits(path: Path, ids: list[int], dtype: type[np.floating[Any]] = np.float32) -> Float32:
    """f32 logits `[tokens, vocab]` of every position of `ids`, from dequantised weights.

    Products are computed in `dtype`; norms, RoPE, softmax and SwiGLU in float64. Layers are dequantised one at a time.
    """
    weights = Weights(path)
    architecture = weights.metadata("general.architecture")
    if architecture != "llama":
        raise OracleError(f"{path}: architecture {architecture}; the forward pass knows llama")
    if weights.metadata("llama.rope.scaling.type", "none") != "none":
        raise OracleError(f"{path}: llama.rope.scaling.type is not none; the forward pass knows no RoPE scaling")
    hidden = int(weights.metadata("llama.embedding_length"))
    heads = int(weights.metadata("llama.attention.head_count"))
    kv_heads = int(weights.metadata("llama.attention.head_count_kv", heads))
    head_dim = int(weights.metadata("llama.attention.key_length", hidden // heads))
    rotated = int(weights.metadata("llama.rope.dimension_count", head_dim))
    base = float(weights.metadata("llama.rope.freq_base", 10_000.0))
    epsilon = float(weights.metadata("llama.attention.layer_norm_rms_epsilon"))

    tokens = len(ids)
    pair_frequency = base ** (-np.arange(0, rotated, 2, dtype=np.float64) / rotated)
    angle = np.arange(tokens, dtype=np.float64)[:, None, None] * pair_frequency
    cosine, sine = np.cos(angle), np.sin(angle)

    embedding = weights.tensor("token_embd.weight", dtype)
    if not all(0 <= token < len(embedding) for token in ids):
        raise OracleError(f"{path}: a token id is outside the vocabulary of {len(embedding)}")
    x = embedding[np.asarray(ids)]
    for layer in range(int(weights.metadata("llama.block_count"))):

        def weight(name: str, layer: int = layer) -> NDArray[Any]:
            return weights.tensor(f"blk.{layer}.{name}.weight", dtype)

        normed = rms_norm(x, weight("attn_norm"), epsilon)
        q = (normed @ weight("attn_q").T).reshape(tokens, heads, head_dim)
        k = (normed @ weight("attn_k").T).reshape(tokens, kv_heads, head_dim)
        v = (normed @ weight("attn_v").T).reshape(tokens, kv_heads, head_dim)
        attended = causal_attention(rope(q, cosine, sine), rope(k, cosine, sine), v)
        x = x + attended @ weight("attn_output").T
        normed = rms_norm(x, weight("ffn_norm"), epsilon)
        x = x + swiglu(normed @ weight("ffn_gate").T, normed @ weight("ffn_up").T) @ weight("ffn_down").T
    x = rms_norm(x, weights.tensor("output_norm.weight", dtype), epsilon)
    head = weights.tensor("output.weight", dtype) if weights.has("output.weight") else embedding
    weights.check_all_used()
    return (x @ head.T).astype(np.float32, copy=False)

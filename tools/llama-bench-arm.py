#!/usr/bin/env python3
"""llama-bench as an engine arm of memra-lab.

Speaks the line protocol of engine arms on standard input and output and runs llama-bench once for every sample:

    memra-lab ab run smollm2-pp512 --process llama-bench="python3 tools/llama-bench-arm.py PATH/llama-bench --fa 0"

llama-bench loads the model and warms up by itself, and fills the depth before it times; none of that is in the time it
reports. Between samples no child exists. It shows no output, so only token counts are checked. Needs Python 3.11 and
nothing beside its standard library.
"""

import argparse
import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys

# PR_SET_PDEATHSIG of prctl(2).
PARENT_DEATH_SIGNAL = 1


class Refused(Exception):
    """A request that cannot be answered."""


def say(answer):
    """Writes one answer."""
    sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def die_with_parent():
    """Runs in the child: it does not outlive this process, where the system can see to that."""
    try:
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    except (OSError, AttributeError):
        pass


def without_paths(text):
    """A line as it may stand in a receipt: one line, words that are absolute paths replaced."""
    words = ["(path)" if word.startswith("/") else word for word in text.split()]
    return " ".join(words)[:200]


def cpu_name():
    """The CPU's name, where the system says it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    return value.strip()
    except OSError:
        pass
    return "not reported"


class Arm:
    """One llama-bench with its options, and the workload it was given."""

    def __init__(self, program, flash_attention, extra):
        self.program = program
        self.flash_attention = flash_attention
        self.extra = extra
        self.workload = None

    def run(self, arguments):
        """Runs the program to its end and gives its standard output."""
        done = subprocess.run(
            [self.program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            preexec_fn=die_with_parent,
        )
        if done.returncode != 0:
            last = [line for line in done.stderr.strip().splitlines() if line.strip()][-2:]
            raise Refused(f"llama-bench ended with {done.returncode}: {' | '.join(last)}")
        return done.stdout, done.stderr

    def hello(self):
        """Name and build facts."""
        out, err = self.run(["--version"])
        lines = [without_paths(line) for line in (out + "\n" + err).splitlines() if line.strip()]
        text = " ".join(lines)
        found = re.search(r"commit ([0-9a-f]{6,40})", text) or re.search(r"\(([0-9a-f]{6,40})\)", text)
        build = found.group(1) if found else "unknown build"
        about = [line for line in lines if line.startswith(("version", "built"))][:4]
        about += [f"cpu: {without_paths(cpu_name())}", f"flash attention {self.flash_attention}"]
        if self.extra:
            about.append(without_paths("options " + " ".join(self.extra)))
        return {"hello": {"name": f"llama-bench {build[:12]} fa={self.flash_attention}", "about": about}}

    def prepare(self, request):
        """Takes a workload."""
        if not os.path.isfile(request["model"]):
            raise Refused("there is no such model file")
        self.workload = {key: request[key] for key in ("model", "prompt", "generated", "depth", "threads")}
        return {
            "ok": True,
            "prompt_tokens": request["prompt"],
            "generated_tokens": request["generated"],
            "depth_tokens": request["depth"],
        }

    def sample(self):
        """Runs the workload once, in a process of its own."""
        if self.workload is None:
            raise Refused("a sample was asked for before a workload was prepared")
        work = self.workload
        out, _ = self.run(
            [
                "-m", work["model"],
                "-t", str(work["threads"]),
                "-p", str(work["prompt"]),
                "-n", str(work["generated"]),
                "-d", str(work["depth"]),
                "-r", "1",
                "-fa", str(self.flash_attention),
                *self.extra,
                "-o", "json",
            ]
        )
        try:
            tests = json.loads(out)
            [test] = tests
            [elapsed_ns] = test["samples_ns"]
            counts = (test["n_prompt"], test["n_gen"])
            depth, threads = test.get("n_depth", 0), test["n_threads"]
        except (ValueError, TypeError, KeyError) as error:
            raise Refused(f"llama-bench's JSON is not one test with one sample: {error}") from error
        if (depth, threads) != (work["depth"], work["threads"]):
            raise Refused(f"llama-bench ran depth {depth} on {threads} threads")
        return {
            "elapsed_ns": int(elapsed_ns),
            "prompt_tokens": counts[0],
            "generated_tokens": counts[1],
            "output_sha256": None,
        }

    def answer(self, request):
        """The answer to a request."""
        operation = request.get("op")
        if operation == "prepare":
            return self.prepare(request)
        if operation == "sample":
            return self.sample()
        if operation == "peak":
            # The largest child that was waited for, in KiB.
            kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            return {"peak_rss_bytes": kib * 1024 if kib else None}
        if operation in ("wake", "idle"):
            # No child lives between samples.
            return {"ok": True}
        raise Refused(f"there is no request `{operation}`")


def main():
    """Answers requests until the input ends."""
    parser = argparse.ArgumentParser(description="llama-bench as an engine arm of memra-lab")
    parser.add_argument("program", help="path of llama-bench")
    parser.add_argument("--fa", choices=["0", "1"], default="0", help="flash attention (default: 0)")
    parser.add_argument("extra", nargs="*", help="further options of llama-bench, after --")
    options = parser.parse_args()
    arm = Arm(options.program, options.fa, options.extra)
    try:
        say(arm.hello())
    except (Refused, OSError) as error:
        print(f"llama-bench-arm: {error}", file=sys.stderr)
        return 1
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if request.get("op") == "stop":
                return 0
            answer = arm.answer(request)
        except (Refused, OSError, ValueError, KeyError, AttributeError) as error:
            answer = {"error": str(error)}
        say(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())

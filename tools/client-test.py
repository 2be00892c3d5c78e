#!/usr/bin/env python3
"""Talks to `memra-lab serve` with the official client of the OpenAI interface.

Usage:
    pip install openai==3.57.0
    python tools/client-test.py --memra target/ci/memra-lab [--model models/smollm2.gguf] [-- OPTIONS OF SERVE]

The server is started here on a free port, and the address is read from what it says on stderr. Models are listed; a chat
is answered whole and as a stream, which must be the same text; a text is continued up to a stop string and up to a
number of tokens; a prompt that does not fit and a wrong model must raise the client's own errors. Then the server gets
SIGTERM while a stream runs: the stream must end properly, new requests must be refused, and the process must end with 0.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import openai

ROOT = Path(__file__).resolve().parent.parent
CONTEXT = 512
# Seconds for anything that is waited for; a slow machine takes a while to read a model.
PATIENCE = 120.0
ANSWER_TOKENS = 24
MESSAGES: list[Any] = [
    {"role": "system", "content": "You answer in one sentence."},
    {"role": "user", "content": "What is the capital of France?"},
]


class Failure(Exception):
    """Something that is not as it must be; the message says what."""


def require(holds: bool, what: str) -> None:
    """Fails with `what` where it does not hold."""
    if not holds:
        raise Failure(what)


class Server:
    """`memra-lab serve` on a free port."""

    def __init__(self, memra: Path, model: Path, options: list[str]) -> None:
        command = [str(memra), "serve", str(model), "--port", "0", "--ctx-size", str(CONTEXT), "--alias", "client-test"]
        command += ["--drain-timeout", f"{PATIENCE:.0f}"]
        self._said: list[str] = []
        self._news = threading.Condition()
        self.process = subprocess.Popen([*command, *options], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self._listen, args=(self.process.stderr,), daemon=True).start()
        try:
            self.base_url = self.wait_for(r"at (http://\S+/v1)")
        except Failure:
            self.end()
            raise

    def _listen(self, stderr: IO[str]) -> None:
        for line in stderr:
            with self._news:
                self._said.append(line)
                self._news.notify_all()
        with self._news:
            self._said.append("")
            self._news.notify_all()

    def said(self) -> str:
        """Everything on stderr so far."""
        with self._news:
            return "".join(self._said)

    def wait_for(self, pattern: str) -> str:
        """The first group of `pattern`, or the whole match, once the server has said it."""
        until = time.monotonic() + PATIENCE
        with self._news:
            while True:
                found = re.search(pattern, "".join(self._said))
                if found:
                    return found.group(found.lastindex or 0)
                is_over = bool(self._said) and self._said[-1] == ""
                if is_over or not self._news.wait(until - time.monotonic()):
                    why = "the server has ended" if is_over else f"not within {PATIENCE:.0f} s"
                    raise Failure(f"the server did not say `{pattern}`: {why}; it said:\n{''.join(self._said)}")

    def end(self) -> None:
        """Makes sure that nothing is left running."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def models(client: openai.OpenAI) -> str:
    """The one model, by list and by name."""
    names = [model.id for model in client.models.list().data]
    require(names == ["client-test"], f"the models are {names}")
    require(client.models.retrieve(names[0]).id == names[0], "the model is not found by its name")
    return names[0]


def chat(client: openai.OpenAI, model: str) -> None:
    """An answer whole and as a stream."""
    asked: dict[str, Any] = {"model": model, "messages": MESSAGES, "temperature": 0, "max_tokens": ANSWER_TOKENS}
    whole = client.chat.completions.create(**asked)
    choice = whole.choices[0]
    text = choice.message.content
    require(bool(text), "the answer is empty")
    require(choice.message.role == "assistant", f"the role is {choice.message.role}")
    require(choice.finish_reason in ("stop", "length"), f"the answer ends with {choice.finish_reason}")
    usage = whole.usage
    require(usage is not None and usage.prompt_tokens > 0, f"the usage is {usage}")
    require(usage.completion_tokens <= ANSWER_TOKENS, f"{usage.completion_tokens} tokens, and {ANSWER_TOKENS} were allowed")
    require(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, f"the usage does not add up: {usage}")

    pieces: list[str] = []
    reasons: list[str] = []
    usages: list[Any] = []
    for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        for part in chunk.choices:
            pieces.append(part.delta.content or "")
            if part.finish_reason:
                reasons.append(part.finish_reason)
        if chunk.usage:
            usages.append(chunk.usage)
    require("".join(pieces) == text, f"the stream is {''.join(pieces)!r}, and the whole answer {text!r}")
    require(reasons == [choice.finish_reason], f"the stream ends with {reasons}, and the whole answer {choice.finish_reason}")
    require([used.total_tokens for used in usages] == [usage.total_tokens], f"the usage of the stream is {usages}")
    print(f"chat: {text!r}, whole and as a stream of {len(pieces)} pieces")


def completion(client: openai.OpenAI, model: str) -> None:
    """A text continued to a number of tokens, and to a stop string."""
    asked: dict[str, Any] = {"model": model, "prompt": "One, two, three, four,", "temperature": 0}
    plain = client.completions.create(**asked, max_tokens=12)
    text = plain.choices[0].text
    require(plain.choices[0].finish_reason == "length", f"12 tokens end with {plain.choices[0].finish_reason}")
    require(plain.usage is not None and plain.usage.completion_tokens == 12, f"the usage is {plain.usage}")

    middle = len(text) // 2
    stop = text[middle : middle + 3]
    require(len(stop) == 3, f"the text is too short to stop in: {text!r}")
    stopped = client.completions.create(**asked, max_tokens=12, stop=[stop])
    wanted = text[: text.index(stop)]
    require(stopped.choices[0].finish_reason == "stop", f"a stop string ends with {stopped.choices[0].finish_reason}")
    require(stopped.choices[0].text == wanted, f"stopped at {stop!r} it is {stopped.choices[0].text!r}, not {wanted!r}")
    print(f"completion: {text!r}, and up to {stop!r}")


def errors(client: openai.OpenAI, model: str) -> None:
    """Requests that are refused raise the client's own errors."""
    try:
        client.completions.create(model=model, prompt="word " * (2 * CONTEXT), max_tokens=1)
        raise Failure("a prompt longer than the context was taken")
    except openai.BadRequestError as error:
        require(error.code == "context_length_exceeded", f"the code is {error.code}: {error}")
    try:
        client.chat.completions.create(model="no-such-model", messages=MESSAGES)
        raise Failure("a model that is not there answered")
    except openai.NotFoundError as error:
        require(error.code == "model_not_found", f"the code is {error.code}: {error}")
    try:
        client.chat.completions.create(model=model, messages=MESSAGES, temperature=-1)
        raise Failure("a negative temperature was taken")
    except openai.BadRequestError as error:
        require(error.param == "temperature", f"the field is {error.param}: {error}")
    print("errors: context_length_exceeded, model_not_found, a wrong field by its name")


def drain(client: openai.OpenAI, model: str, server: Server) -> None:
    """SIGTERM in the middle of a stream."""
    most = 96
    stream = client.completions.create(
        model=model, prompt="Once upon a time", temperature=0, max_tokens=most, stream=True,
        stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
    )
    reasons: list[str] = []
    used = 0
    is_told = False
    for chunk in stream:
        reasons += [part.finish_reason for part in chunk.choices if part.finish_reason]
        used = chunk.usage.completion_tokens if chunk.usage else used
        if not is_told and chunk.choices and chunk.choices[0].text:
            require(not reasons, "the stream was over before the server was told to end")
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("draining")
            is_told = True
            try:
                client.completions.create(model=model, prompt="a", max_tokens=1)
                raise Failure("a request was taken by a server that drains")
            except (openai.InternalServerError, openai.APIConnectionError):
                pass
    require(is_told, "the stream gave no text")
    require(reasons == ["length"] and used == most, f"the stream ended with {reasons} after {used} tokens, not whole")
    try:
        code = server.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise Failure(f"the server has not ended within {PATIENCE:.0f} s of SIGTERM") from None
    server.wait_for("drained")
    require(code == 0, f"the server ended with {code}")
    print(f"drain: the stream was finished with {used} tokens, new requests were refused, exit code 0")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memra", type=Path, default=ROOT / "target/ci/memra-lab", metavar="FILE", help="the program memra-lab")
    parser.add_argument("--model", type=Path, default=ROOT / "models/smollm2.gguf", metavar="FILE")
    parser.add_argument("options", nargs="*", help="further options of `memra-lab serve`, after --")
    args = parser.parse_args()
    server = Server(args.memra, args.model, args.options)
    try:
        client = openai.OpenAI(base_url=server.base_url, api_key="none", timeout=PATIENCE, max_retries=0)
        model = models(client)
        chat(client, model)
        completion(client, model)
        errors(client, model)
        drain(client, model, server)
    except (Failure, openai.OpenAIError) as error:
        raise Failure(f"{error}\nthe server said:\n{server.said()}") from error
    finally:
        server.end()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failure, OSError) as error:
        sys.exit(f"client-test: {error}")

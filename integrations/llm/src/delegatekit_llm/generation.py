"""Generation of text: a lowered model in our engine, token by token."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

import delegatekit
from delegatekit.errors.misuse import WrongArgumentError
from delegatekit_api import FormatError

from .vocabulary import GrowingText, Vocabulary

_NEEDED: Final = ("forward", "get_max_seq_len", "get_max_context_len")


@dataclass(frozen=True)
class Sampling:
    """The choice of the next token.

    At `temperature` 0 it is the likeliest. Otherwise it is drawn, from the likeliest tokens that together have a
    probability of `top_p`; the same `seed` draws the same. Raises WrongArgumentError for values that do not make sense.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, good in (
            ("temperature", self.temperature, self.temperature >= 0),
            ("top_p", self.top_p, 0 < self.top_p <= 1),
        ):
            if not good:
                raise WrongArgumentError(
                    f"{name} is {value}", where="sampling", hint="temperature from 0 up, top_p above 0 and up to 1"
                )

    def chooser(self) -> Callable[[torch.Tensor], int]:
        """A function from the logits (vocabulary,) of a token to the next one."""
        generator = torch.Generator().manual_seed(self.seed)

        def choose(logits: torch.Tensor) -> int:
            if self.temperature == 0:
                return int(logits.argmax())
            likely, tokens = torch.softmax(logits.float() / self.temperature, -1).sort(descending=True)
            # The first that exceeds the limit is in: what stands before a token is less.
            likely = torch.where(likely.cumsum(-1) - likely < self.top_p, likely, 0.0)
            return int(tokens[torch.multinomial(likely, 1, generator=generator)])

        return choose


@dataclass
class Generation:
    """What was generated, and how long it took."""

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    #: Wall seconds until the first token, and for all others.
    prompt_seconds: float = 0.0
    seconds: float = 0.0
    #: "stop" (a token that ends the text), "limit" (of new tokens) or "context" (the cache is full).
    ended_by: str = "limit"

    def __str__(self) -> str:
        """The speeds, in a line."""
        later = len(self.tokens) - 1
        parts = [f"prompt: {_speed(len(self.prompt), self.prompt_seconds)}"]
        if later > 0:
            parts.append(f"generation: {_speed(later, self.seconds)}")
        return ", ".join(parts) + ("; the context is full" if self.ended_by == "context" else "")


class Generator:
    """A language model's file, ready to generate.

    `tokenizer` is a tokenizer.json; by default the one beside the file. Raises FormatError for a file that is no
    language model, MissingFileError without a tokenizer.
    """

    def __init__(self, file: str | Path, tokenizer: str | Path | None = None, **settings: Any) -> None:
        self.file = Path(file)
        self.program = delegatekit.load(self.file, **settings)
        if missing := [name for name in _NEEDED if name not in self.program]:
            raise FormatError(
                f"is not a language model's file: it has no method {', '.join(missing)}",
                where=str(file),
                hint="`delegatekit lower-llm` writes such files",
            )
        self.vocabulary = Vocabulary(self.file.with_name("tokenizer.json") if tokenizer is None else tokenizer)
        self.chunk = int(self.program["get_max_seq_len"]())
        self.context = int(self.program["get_max_context_len"]())
        told = self.program["get_eos_ids"]() if "get_eos_ids" in self.program else ()
        self.ends: frozenset[int] = frozenset(told if isinstance(told, list | tuple) else [told])

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        tokens: int = 128,
        sampling: Sampling | None = None,
        stop: Collection[str] = (),
        told: Callable[[Generation], None] | None = None,
    ) -> Iterator[str]:
        """The generated text, piece by piece as it is complete.

        It ends after `tokens` new tokens, at a token that ends a text (its own, or one of `stop`), or where the
        context is full. `told` is called at the end with what was generated. Raises WrongArgumentError for a prompt
        that is empty or longer than the context, and for a token of `stop` that the tokenizer does not have.
        """
        ends = self.ends | {self._number(token) for token in stop}
        given = self.vocabulary.encode(prompt) if isinstance(prompt, str) else list(prompt)
        text = GrowingText(self.vocabulary)
        found = Generation(given)
        for token in self._tokens(found, tokens, sampling or Sampling()):
            if token in ends:
                found.ended_by = "stop"
                break
            if piece := text.add(token):
                yield piece
        if piece := text.rest():
            yield piece
        if told is not None:
            told(found)

    def generate(self, prompt: str | Sequence[int], **settings: Any) -> str:
        """The generated text as a whole: as `stream`."""
        return "".join(self.stream(prompt, **settings))

    def _tokens(self, found: Generation, count: int, sampling: Sampling) -> Iterator[int]:
        """New tokens, noted in `found`, in a session of its own."""
        prompt = found.prompt
        if not prompt:
            raise WrongArgumentError("the prompt is empty", where=str(self.file))
        if len(prompt) > self.context:
            raise WrongArgumentError(
                f"the prompt has {len(prompt)} tokens, and the context {self.context}",
                where=str(self.file),
                hint="shorten it, or lower the model with a larger --context",
            )
        session = self.program.new_session()
        try:
            forward, choose = session["forward"], sampling.chooser()
            started = time.perf_counter()
            for start in range(0, len(prompt), self.chunk):
                logits = _called(forward, prompt[start : start + self.chunk], start)
            token = choose(logits)
            found.prompt_seconds = time.perf_counter() - started
            while True:
                found.tokens.append(token)
                yield token
                if len(found.tokens) >= count:
                    return
                position = len(prompt) + len(found.tokens) - 1
                if position >= self.context:
                    found.ended_by = "context"
                    return
                started = time.perf_counter()
                token = choose(_called(forward, [token], position))
                found.seconds += time.perf_counter() - started
        finally:
            session.close()

    def _number(self, token: str) -> int:
        number = self.vocabulary.number_of(token)
        if number is None:
            raise WrongArgumentError(
                f"the tokenizer has no token {token!r}",
                where=str(self.vocabulary.file),
                hint="a token as it is written there",
            )
        return number


def _called(forward: Any, tokens: Sequence[int], start: int) -> torch.Tensor:
    """The logits (vocabulary,) of the last of some tokens."""
    logits: torch.Tensor = forward(torch.tensor([tokens]), torch.tensor([start]))[0, -1]
    return logits


def _speed(tokens: int, seconds: float) -> str:
    return (
        f"{tokens} token{'s' * (tokens > 1)} in {seconds:.2f} s ({tokens / seconds:.1f}/s)"
        if seconds
        else f"{tokens} tokens"
    )

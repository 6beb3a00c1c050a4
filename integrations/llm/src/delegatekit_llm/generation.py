"""Generation of text: a lowered model in our engine, token by token."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

import delegatekit
from delegatekit.engine import Session
from delegatekit.errors.misuse import WrongArgumentError
from delegatekit_api import FormatError

from .fixed import DECODE, PREFILL, joined
from .vocabulary import GrowingText, Vocabulary

#: Logits of tokens, from the position of the first.
Called = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_NEEDED: Final = ("get_max_seq_len", "get_max_context_len")
#: The methods of a model of an encoder and a decoder.
_PAIR: Final = ("encoder", "text_decoder")
#: The methods of a model whose sizes are fixed.
_FIXED: Final = (PREFILL, DECODE)


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

    #: The tokens that were given; none for a spectrogram.
    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    #: Wall seconds until the first token, and for all others.
    prompt_seconds: float = 0.0
    seconds: float = 0.0
    #: "stop" (a token that ends the text), "limit" (of new tokens) or "context" (the cache is full).
    ended_by: str = "limit"
    #: New tokens that the tokenizer does not have; no text stands for them.
    unknown: int = 0

    def __str__(self) -> str:
        """The speeds, in a line."""
        later = len(self.tokens) - 1
        given = f"prompt: {speed_of(len(self.prompt), self.prompt_seconds)}"
        parts = [given if self.prompt else f"spectrogram: {self.prompt_seconds:.2f} s"]
        if later > 0:
            parts.append(f"generation: {speed_of(later, self.seconds)}")
        line = ", ".join(parts) + ("; the context is full" if self.ended_by == "context" else "")
        return line + (f"; {self.unknown} of the tokens are not in the tokenizer" if self.unknown else "")


class Generator:
    """A language model's file, ready to generate.

    `tokenizer` is a tokenizer.json; by default the one beside the file. Of a model of an encoder and a decoder, the
    encoder gets the prompt, and the decoder begins with `start`. Raises FormatError for a file that is no language
    model, MissingFileError without a tokenizer.
    """

    def __init__(self, file: str | Path, tokenizer: str | Path | None = None, **settings: Any) -> None:
        self.file = Path(file)
        self.program = delegatekit.load(self.file, **settings)
        self.has_encoder = _PAIR[0] in self.program
        #: True if a prompt goes in by chunks of a fixed size, and the tokens after it by another method.
        self.is_fixed = any(name in self.program for name in _FIXED)
        methods = _PAIR if self.has_encoder else _FIXED if self.is_fixed else ("forward",)
        if missing := [name for name in (*methods, *_NEEDED) if name not in self.program]:
            raise FormatError(
                f"is not a language model's file: it has no method {', '.join(missing)}",
                where=str(file),
                hint="`delegatekit lower-llm` writes such files",
            )
        self.vocabulary = Vocabulary(self.file.with_name("tokenizer.json") if tokenizer is None else tokenizer)
        self.chunk = int(self.program["get_max_seq_len"]())
        self.context = int(self.program["get_max_context_len"]())
        #: Tokens of a prompt, at most; 0 if the encoder takes spectrograms.
        self.longest = self._told("get_max_source_len") if self.has_encoder else self.context
        told = self.program["get_eos_ids"]() if "get_eos_ids" in self.program else ()
        self.ends: frozenset[int] = frozenset(told if isinstance(told, list | tuple) else [told])
        #: Sessions whose text has ended: a new one loads the delegates again.
        self._idle: list[Session] = []

    def stream(
        self,
        prompt: str | Sequence[int] | torch.Tensor,
        *,
        start: Sequence[str | int] = (),
        tokens: int = 128,
        sampling: Sampling | None = None,
        stop: Collection[str] = (),
        told: Callable[[Generation], None] | None = None,
    ) -> Iterator[str]:
        """The generated text, piece by piece as it is complete.

        `prompt` is a text, tokens, or for a model that hears a spectrogram, (1, bands, frames). `start` has the tokens
        that the decoder behind an encoder begins with, as numbers or as they are written; by default the model's one.
        It ends after `tokens` new tokens, at a token that ends a text (its own, or one of `stop`), or where the
        context is full. `told` is called at the end with what was generated. Raises WrongArgumentError for a prompt
        that is empty, of the other kind or longer than the context, and for a token of `stop` or `start` that the
        tokenizer does not have.
        """
        ends = self.ends | {self._number(token) for token in stop}
        text = GrowingText(self.vocabulary)
        source = self._source(prompt)
        found = Generation([] if source.is_floating_point() else source[0].tolist())
        begun = self._begun(start)
        for token in self._tokens(found, source, begun, tokens, sampling or Sampling()):
            if token in ends:
                found.ended_by = "stop"
                break
            found.unknown += not self.vocabulary.has(token)
            if piece := text.add(token):
                yield piece
        if piece := text.rest():
            yield piece
        if told is not None:
            told(found)

    def generate(self, prompt: str | Sequence[int] | torch.Tensor, **settings: Any) -> str:
        """The generated text as a whole: as `stream`."""
        return "".join(self.stream(prompt, **settings))

    def _tokens(
        self, found: Generation, source: torch.Tensor, begun: list[int], count: int, sampling: Sampling
    ) -> Iterator[int]:
        """New tokens, noted in `found`, in a session that no other text has meanwhile."""
        with self._session() as session:
            choose = sampling.chooser()
            started = time.perf_counter()
            if self.has_encoder:
                states = session["encoder"](source)
                decoder = session["text_decoder"]
                forward: Called = lambda tokens, start: decoder(tokens, states, start)  # noqa: E731
                given = begun
            elif self.is_fixed:
                forward, given = joined(session[PREFILL], session[DECODE], self.chunk), found.prompt
            else:
                forward, given = session["forward"], found.prompt
            for start in range(0, len(given), self.chunk):
                logits = _called(forward, given[start : start + self.chunk], start)
            token = choose(logits)
            found.prompt_seconds = time.perf_counter() - started
            while True:
                found.tokens.append(token)
                yield token
                if len(found.tokens) >= count:
                    return
                position = len(given) + len(found.tokens) - 1
                if position >= self.context:
                    found.ended_by = "context"
                    return
                started = time.perf_counter()
                token = choose(_called(forward, [token], position))
                found.seconds += time.perf_counter() - started

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """A session that nobody has meanwhile; afterwards it is there for the next text, unless the engine failed."""
        try:
            session = self._idle.pop()
        except IndexError:
            session = self.program.new_session()
        failed = True
        try:
            yield session
            failed = False
        except GeneratorExit:  # the reader has enough
            failed = False
            raise
        finally:
            if failed:
                session.close()
            else:
                session.reset()
                self._idle.append(session)

    def _source(self, prompt: str | Sequence[int] | torch.Tensor) -> torch.Tensor:
        """The prompt as the model takes it: tokens (1, n), or a spectrogram."""
        hears = isinstance(prompt, torch.Tensor)
        if hears != (self.longest == 0):
            wanted = "a spectrogram, (1, bands, frames)" if self.longest == 0 else "a text"
            raise WrongArgumentError(f"the prompt is not {wanted}", where=str(self.file), hint="this model takes one")
        if isinstance(prompt, torch.Tensor):
            return prompt
        given = self.vocabulary.encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not given:
            raise WrongArgumentError("the prompt is empty", where=str(self.file))
        if len(given) > self.longest:
            what, option = ("encoder", "source-context") if self.has_encoder else ("context", "context")
            raise WrongArgumentError(
                f"the prompt has {len(given)} tokens, and the {what} {self.longest}",
                where=str(self.file),
                hint=f"shorten it, or lower the model with a larger --{option}",
            )
        return torch.tensor([given])

    def _begun(self, start: Sequence[str | int]) -> list[int]:
        """The tokens that the decoder behind an encoder begins with; none for other models."""
        if start and not self.has_encoder:
            raise WrongArgumentError("the model has no encoder", where="start", hint="its text begins with the prompt")
        begun = [self._number(token) if isinstance(token, str) else token for token in start]
        if not begun and self.has_encoder:
            if "decoder_start_token_id" not in self.program:
                raise WrongArgumentError(
                    "the model does not tell the token that a text begins with",
                    where=str(self.file),
                    hint="start=[...] (--start TOKEN): for models of many languages it is that of the language",
                )
            begun = [self._told("decoder_start_token_id")]
        if len(begun) > self.context:
            raise WrongArgumentError(f"has {len(begun)} tokens, and the context {self.context}", where="start")
        return begun

    def _told(self, name: str) -> int:
        """What a method without inputs tells; 0 if there is none."""
        return int(self.program[name]()) if name in self.program else 0

    def _number(self, token: str) -> int:
        number = self.vocabulary.number_of(token)
        if number is None:
            raise WrongArgumentError(
                f"the tokenizer has no token {token!r}",
                where=str(self.vocabulary.file),
                hint="a token as it is written there",
            )
        return number


def _called(forward: Called, tokens: Sequence[int], start: int) -> torch.Tensor:
    """The logits (vocabulary,) of the last of some tokens."""
    logits: torch.Tensor = forward(torch.tensor([tokens]), torch.tensor([start]))[0, -1]
    return logits


def speed_of(tokens: int, seconds: float) -> str:
    """A number of tokens with the time that they took, in a few words."""
    said = f"{tokens} token{'s' * (tokens != 1)}"
    return f"{said} in {seconds:.2f} s ({tokens / seconds:.1f}/s)" if seconds else said

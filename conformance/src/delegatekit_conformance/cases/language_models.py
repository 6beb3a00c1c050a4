"""Language models: small decoders with a cache, one of each kind of attention, from the prompt to the full context.

A decoder is called as text runners call it: with new tokens and the number of those before them. Calls of a prompt, of
single tokens and of a new text follow one another; the logits of every token are judged, not the likeliest alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import nn

import delegatekit
from delegatekit_api import DelegateKitError
from delegatekit_toolkit.accuracy import compare, estimate

from ..context import Context
from .base import Broken, Case, NotApplicable, Rule
from .specimens import compiles, runs
from .subjects import Built, SubjectCase


def decoder(kind: str, *, single: bool = False) -> Built:
    """A decoder of two layers and 24 tokens of context; with `single`, a call has one token."""
    heads, size, context, vocabulary = 4, 8, 24, 29
    groups = {"heads that share keys": 2, "one key for all heads": 1}.get(kind, heads)
    window = 6 if kind == "window" else None
    places = context if window is None else window - 1 + 8  # a place is used again once no query sees its token

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width = heads * size
            self.query = nn.Linear(width, width, bias=kind == "biases")
            self.key = nn.Linear(width, groups * size, bias=kind == "biases")
            self.value = nn.Linear(width, groups * size, bias=kind == "biases")
            self.out = nn.Linear(width, width, bias=False)
            self.norm = nn.RMSNorm(size, 1e-5)
            self.keys = nn.Buffer(torch.zeros(groups, places, size))
            self.values = nn.Buffer(torch.zeros(groups, places, size))

        def turned(self, x: torch.Tensor, positions: torch.Tensor) -> Any:
            angles = positions[:, None] * 10000 ** (-torch.arange(0, size, 2) / size)
            cos, sin = angles.cos(), angles.sin()
            if kind == "rotation of neighbors":
                even, odd = x[..., ::2], x[..., 1::2]
                return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)
            low, high = x.chunk(2, -1)
            return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)

        def forward(self, x: torch.Tensor, positions: torch.Tensor) -> Any:
            new = x.shape[0]
            query, key, value = (
                part(x).view(new, -1, size).transpose(0, 1) for part in (self.query, self.key, self.value)
            )
            if kind == "norms of queries and keys":
                query, key = self.norm(query), self.norm(key)
            if kind != "biases of distance":
                query, key = self.turned(query, positions), self.turned(key, positions)
            where = positions if window is None else positions % places
            self.keys.index_copy_(1, where, key)
            self.values.index_copy_(1, where, value)
            last = positions[-1:]
            held = torch.arange(places) if window is None else last - (last - torch.arange(places)) % places
            seen = (held <= positions[:, None]) & (held >= 0)
            if window is not None:
                seen = seen & (held > positions[:, None] - window)
            # Clones: whether `reshape` copies depends on the number of tokens.
            query = query.clone(memory_format=torch.contiguous_format).view(groups, heads // groups * new, size)
            scores = torch.bmm(query, self.keys.transpose(1, 2)).view(groups, -1, new, places) * size**-0.5
            if kind == "soft cap":
                scores = torch.tanh(scores / 2) * 2
            if kind == "biases of distance":
                slopes = 2.0 ** -torch.arange(1, heads + 1).view(heads, 1, 1, 1)
                scores = scores + slopes * (held - positions[:, None])
            weights = scores.masked_fill(~seen, -1e9).softmax(-1)
            found = torch.bmm(weights.view(groups, heads // groups * new, places), self.values)
            by_token = found.view(groups, -1, new, size).permute(2, 0, 1, 3)
            return self.out(by_token.clone(memory_format=torch.contiguous_format).view(new, heads * size))

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width = heads * size
            self.attention = Attention()
            self.norms = nn.ModuleList([nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)])
            self.gate, self.up = nn.Linear(width, 48, bias=False), nn.Linear(width, 48, bias=False)
            self.down = nn.Linear(48, width, bias=False)

        def forward(self, x: torch.Tensor, positions: torch.Tensor) -> Any:
            x = x + self.attention(self.norms[0](x), positions)
            y = self.norms[1](x)
            return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, heads * size)
            self.layers = nn.ModuleList([Layer(), Layer()])
            self.norm = nn.RMSNorm(heads * size, 1e-5)
            self.head = nn.Linear(heads * size, vocabulary, bias=False)

        def forward(self, tokens: torch.Tensor, start: torch.Tensor) -> Any:
            positions = start + torch.arange(tokens.shape[1])
            x = self.tokens(tokens[0])
            for layer in self.layers:
                x = layer(x, positions)
            return self.head(self.norm(x))[None]

    counts = [[1] * 12, [1] * 3] if single else [[5, 1, 1, 8, 1, 8], [1, 7, 1], [8, 8, 8]]
    calls = []
    for text in counts:  # each begins anew, over what the one before it left
        start = 0
        for count in text:
            calls.append((torch.randint(0, vocabulary, (1, count)), torch.tensor([start])))
            start += count
    if single:
        return Decoder(), calls
    return Decoder(), calls, ({1: torch.export.Dim("count", min=1, max=8)}, None)


_NOTHING: Final = "the backend takes nothing of a decoder in float32"
#: Kinds of attention.
KINDS: Final = (
    "a key for each head",
    "heads that share keys",
    "one key for all heads",
    "window",
    "soft cap",
    "norms of queries and keys",
    "biases of distance",
    "biases",
    "rotation of neighbors",
)


class _Decoder(SubjectCase):
    """A decoder of one kind: texts of any length, or token by token."""

    def __init__(self, kind: str, *, single: bool) -> None:
        what = "token by token" if single else "texts"
        name = f"language-models/{kind.replace(' ', '-')}/{what.replace(' ', '-')}"
        super().__init__(name, decoder, arguments={"kind": kind, "single": single}, stateful=True)
        self._kind, self._single = kind, single

    def describe(self) -> str:
        """The kind, and the calls."""
        return f"{self._kind}, {'one token in each call' if self._single else 'prompts and single tokens'}"


def _tokens_beyond_the_context(context: Context) -> str:
    """Tokens beyond the context are refused, or change nothing; the text goes on, and a new one is right."""
    forward, calls, _ = _lowered(context)
    wanted = [forward(*call).clone() for call in calls]
    seen = []
    for start in (24, 1 << 40):
        forward.reset()
        for call in calls[:6]:
            forward(*call)
        try:
            forward(calls[0][0], torch.tensor([start]))
            seen.append(f"a token at position {start} changes nothing")
        except DelegateKitError:
            seen.append(f"a token at position {start} is refused")
        for call, logits in [*zip(calls, wanted, strict=True)][6:]:
            if not torch.equal(forward(*call), logits):
                raise Broken(f"after a token at position {start}, beyond the cache, the text goes on otherwise")
    return ", ".join(seen)


def _sessions_apart(context: Context) -> str:
    """Two sessions of one file that generate in turn know nothing of each other, and `reset` forgets."""
    first, calls, program = _lowered(context)
    wanted = [first(*call).clone() for call in calls]
    first.reset()
    second = delegatekit.load(program)["forward"]
    for call, logits in zip(calls, wanted, strict=True):
        other = (28 - call[0], call[1])
        for forward, inputs in ((first, call), (second, other)):
            found = forward(*inputs)
            if inputs is call and not torch.equal(found, logits):
                raise Broken(f"beside another session, the call with start {int(call[1])} gives other logits")
    return f"{len(calls)} tokens each"


def _prefill_and_decode(context: Context) -> str:
    """A method for a prompt and one for a token over the same caches give eager's logits, for two texts in turn."""
    backend = runs(context)
    torch.manual_seed(0)
    native, *_ = decoder("heads that share keys", single=True)
    exact = copy.deepcopy(native.eval()).double()
    sizes = {"prefill": 8, "decode": 1}
    examples = {name: (torch.zeros(1, size, dtype=torch.int64), torch.tensor([0])) for name, size in sizes.items()}
    methods = {name: torch.export.export(native, inputs, strict=False) for name, inputs in examples.items()}
    text = ["prefill", *["decode"] * 3, "prefill", *["decode"] * 5]
    accuracy = {name: estimate(method, calls=len(text)) for name, method in methods.items()}
    program = delegatekit.lower(methods, backends=[context.backend], options=context.by_backend)
    if not all(method.delegates for method in delegatekit.report(program).methods):
        raise NotApplicable(_NOTHING)
    forward = delegatekit.load(program.buffer)
    precision = backend.compute_precision(context.options)
    for number in range(2):  # the second text is written over the first
        start = 0
        for name in text:
            call = torch.randint(0, 29, (1, sizes[name])), torch.tensor([start])
            start += sizes[name]
            with torch.no_grad():
                found = compare([forward[name](*call)], [exact(*call)], [native(*call)], precision, accuracy[name])
            if not found.agrees:
                raise Broken(f"text {number}: {name} with {start - sizes[name]} tokens before it: {found.difference}")
    return f"two texts of {start} tokens"


def _lowered(context: Context) -> tuple[Any, list[Any], bytes]:
    """A decoder's file, opened, with calls of one token each. Raises NotApplicable if the backend takes none of it."""
    compiles(context)
    torch.manual_seed(0)
    module, calls, *_ = decoder("heads that share keys", single=True)
    program = delegatekit.lower(module.eval(), calls[0], backends=[context.backend], options=context.by_backend)
    if not delegatekit.report(program).methods[0].delegates:
        raise NotApplicable(_NOTHING)
    return delegatekit.load(program.buffer)["forward"], list(calls[:12]), program.buffer


RULES: Final = (
    Rule("language-models/beyond-the-context", _tokens_beyond_the_context),
    Rule("language-models/two-sessions", _sessions_apart),
    Rule("language-models/prefill-and-decode", _prefill_and_decode),
)


def cases() -> Iterator[Case]:
    """All of them."""
    for kind in KINDS:
        yield _Decoder(kind, single=True)
        yield _Decoder(kind, single=False)
    yield from RULES

"""A language model as a module that can be exported: tokens and their position in, logits out, caches as buffers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from delegatekit.errors.misuse import WrongArgumentError
from delegatekit_api import UnsupportedError

from .attention import Probe, Step, implementation, within
from .caches import CacheShape, KeyValueCache
from .embeddings import QuantizedEmbedding, embedding_in, has_integers
from .families import check_family
from .rotary import changing_rotaries, exportable

#: Tokens of a context, where none is given.
CONTEXT: Final = 2048


class CachedModel(torch.nn.Module):
    """A model of transformers, with caches for `context` tokens: see `Decoder` and `TextDecoder`."""

    #: True if its layers attend over an encoder's states, too.
    encoded = False

    def __init__(
        self,
        model: torch.nn.Module,
        context: int,
        chunk: int | None = None,
        *,
        all_logits: bool = False,
        embedding_bits: int | None = None,
        cache_bits: int | None = None,
        fused: bool = False,
        hiding: float | None = None,
        known_family: bool = True,
    ) -> None:
        super().__init__()
        self.config: Any = model.config
        if known_family:
            check_family(self.config)
        self.context = context
        self.chunk = checked_chunk(self.config, context, chunk)
        self.all_logits = all_logits
        #: What is added to the scores of tokens that a query must not see; None for the least number of their type.
        self.hiding = hiding
        self.model = model
        # In a tuple, so that they stay the model's alone.
        self._rotaries = tuple(changing_rotaries(model, context))
        #: The lookup of tokens, if it is not the model's own.
        self.embedding: QuantizedEmbedding | None = None
        owner: Any = model
        if embedding_bits is not None or has_integers(owner.get_input_embeddings()):
            self.embedding = QuantizedEmbedding(owner.get_input_embeddings(), embedding_bits)
        if fused and cache_bits is not None:
            raise WrongArgumentError(
                "caches of 8 bits are not fused: the runtime's operator for them is slower than for float numbers",
                where="decoder",
                hint="choose one of fused and cache_bits",
            )
        shapes = self._cache_shapes()
        fusible = [fused and shape.is_fusible(self.context) for shape in shapes]
        if fused and not any(fusible):
            raise UnsupportedError(
                "has no attention that the fused operator computes",
                where=type(model).__name__,
                hint="it computes float32, without windows, soft caps and biases: leave --fused (fused=True) out",
            )
        self.caches = torch.nn.ModuleList(
            KeyValueCache(shape, self.context, self.chunk, fused=can, bits=cache_bits)
            for shape, can in zip(shapes, fusible, strict=True)
        )
        self.eval()

    def reset(self) -> None:
        """Forget all tokens."""
        for cache in self.caches:
            cache.reset()  # type: ignore[operator]

    def _step(self, positions: torch.Tensor) -> Step:
        """A call that writes tokens at these positions."""
        caches: Any = self.caches
        return Step(caches, positions, encoded=self.encoded, hiding=self.hiding)

    @abstractmethod
    def _probed(self, probe: Probe) -> None:
        """Call the model with a token, over the stand-in for the caches."""

    def _cache_shapes(self) -> list[CacheShape]:
        """The keys and values that each layer keeps, found by a call without any computation."""
        probe = Probe(encoded=self.encoded)
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            self._probed(probe)
        if sorted(probe.shapes) != list(range(len(probe.shapes))) or not probe.shapes:
            raise UnsupportedError(
                f"its layers keep keys and values under the numbers {sorted(probe.shapes)}",
                where=type(self.model).__name__,
                hint="a decoder whose layers call past_key_values.update with their own numbers is needed",
            )
        return [probe.shapes[layer] for layer in range(len(probe.shapes))]


class Decoder(CachedModel):
    """A model of transformers with caches for `context` tokens, of which at most `chunk` are new in a call.

    `decoder(tokens, start_pos)`: tokens are int64 (1, n), n up to `chunk`; start_pos, int64 (1,), is the number of
    tokens before them. Returns the logits of the last token, (1, 1, vocabulary), or of all, (1, n, vocabulary). The
    tokens from `start_pos` on are forgotten, and all of them by `reset()`. The model is not copied, but put into eval
    mode; it can be called by itself as before. With `embedding_bits` tokens are looked up in integers of 8 or 4 bits;
    with `cache_bits` of 8 keys and values are kept as integers. With `fused` attention is
    `delegatekit_llama.attention`, except in layers with windows or soft caps.

    Raises UnsupportedError for a family that is not known (unless `known_family` is False), and for attention that
    cannot be done over these caches; WrongArgumentError for sizes that do not go together.
    """

    def forward(self, tokens: torch.Tensor, start_pos: torch.Tensor) -> torch.Tensor:
        """The logits of the last token, or of all: see the class."""
        return self.at(tokens, start_pos + torch.arange(tokens.shape[1]))

    def at(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The logits of tokens, (1, n), at these positions, (n,), which never fall. One may be there repeatedly."""
        return self._called(self._step(positions), tokens, positions)

    def _probed(self, probe: Probe) -> None:
        self._called(probe, torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))

    def _called(self, step: Step | Probe, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        model = self.model
        with within(step), implementation(model), embedding_in(model, self.embedding), exportable(self._rotaries):
            found: tuple[torch.Tensor, ...] = model(
                input_ids=tokens,
                position_ids=positions[None],
                past_key_values=step,
                use_cache=True,
                logits_to_keep=0 if self.all_logits else 1,
                return_dict=False,
            )
        return found[0]


def default_context(config: Any) -> int:
    """The context where none is given: 2048, or the positions that the model has, if those are fewer."""
    return min(CONTEXT, _positions(config) or CONTEXT)


def checked_chunk(config: Any, context: int, chunk: int | None) -> int:
    """The tokens of a call, at most: 512, or the context if that is less, where none are given.

    Raises WrongArgumentError for a context that the model has no positions for, and for a chunk that is larger.
    """
    chosen = min(context, 512) if chunk is None else chunk
    for name, value, most, what in (
        ("context", context, _positions(config), "the positions that the model has"),
        ("chunk", chosen, context, "the context"),
    ):
        check_count(name, value, most, what, "decoder")
    return chosen


def check_count(name: str, value: Any, most: int | None, what: str, where: str) -> None:
    """Raise WrongArgumentError for what is no number of tokens from 1, and for more than `most`, which `what` tells."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise WrongArgumentError(f"{name} is {value!r}", where=where, hint="a number of tokens, from 1")
    if most is not None and value > most:
        raise WrongArgumentError(f"{name} is {value}, more than {what}: {most}", where=where)


def _positions(config: Any) -> int | None:
    """The positions that a model is made for; None if its configuration does not tell."""
    # Whisper's name is another.
    found: int | None = getattr(config, "max_target_positions", getattr(config, "max_position_embeddings", None))
    rope = getattr(config, "rope_parameters", None) or {}
    # These frequencies are made for texts that are longer by a factor; those of other kinds count it already.
    return int(found * rope["factor"]) if found and rope.get("rope_type") == "dynamic" else found

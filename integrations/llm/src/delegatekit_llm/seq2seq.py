"""Models of an encoder and a decoder, as two modules that can be exported.

`Encoder` returns what the decoder's layers attend over: the keys and values that each of them makes of the encoder's
states. They are made once for a text; nothing but the decoder's own cache is kept between calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from delegatekit.errors.misuse import WrongArgumentError
from delegatekit_api import UnsupportedError

from .attention import Probe, Step, Whole, implementation, within
from .decoder import CachedModel, check_count
from .embeddings import embedding_in
from .families import check_family
from .relative import RelativePositions

#: Tokens of an encoder's text, where nothing says how many.
_SOURCE: Final = 512
#: What an encoder takes: spectrograms, or tokens.
_SPECTROGRAM: Final = "input_features"
_TOKENS: Final = "input_ids"


class Encoder(torch.nn.Module):
    """The encoder of a model of transformers, up to the keys and values of the decoder's layers.

    `encoder(source)`: tokens, int64 (1, n) with n up to `source_context`, or a spectrogram, float (1, bands, frames)
    of fixed size. Returns the keys and values of each layer in turn, (2 * layers, heads, states, size).

    Raises UnsupportedError for a family that is not known (unless `known_family` is False), and for an encoder of
    something else; WrongArgumentError for a `source_context` that does not go with the model. Tokens are looked up in
    `embedding`, if it is given.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        source_context: int | None = None,
        *,
        embedding: torch.nn.Module | None = None,
        known_family: bool = True,
    ) -> None:
        super().__init__()
        self.config: Any = model.config
        if known_family:
            check_family(self.config)
        self.model = model
        owner: Any = model
        self.takes_tokens = takes_tokens(owner)
        self.embedding = embedding if self.takes_tokens else None
        self.source_context = checked_source(self.config, source_context, tokens=self.takes_tokens)
        self.relative = RelativePositions(owner.get_encoder(), self.source_context)
        self.eval()

    def forward(self, source: torch.Tensor) -> torch.Tensor:
        """The keys and values of each of the decoder's layers: see the class."""
        owner: Any = self.model
        whole = Whole()
        with (
            within(whole),
            implementation(owner),
            embedding_in(owner, self.embedding),
            self.relative.tabulated(),
        ):
            states = owner.get_encoder()(source)[0]
            taken = _Taken({})
            # The decoder's layers make the keys and values; what becomes of the token is not used.
            _decoded(owner, whole, taken, {}, states, torch.zeros(1, 1, dtype=torch.int64))
        return torch.cat([item for layer in sorted(taken.layers) for item in taken.layers[layer]])

    def example(self, count: int) -> torch.Tensor:
        """An input of zeros: of `count` tokens, or a spectrogram of the encoder's size."""
        if self.takes_tokens:
            return torch.zeros(1, count, dtype=torch.int64)
        shape = (1, int(self.config.num_mel_bins), self._frames())
        return torch.zeros(shape, dtype=next(self.model.parameters()).dtype)

    def _frames(self) -> int:
        """The frames of a spectrogram: as many as the encoder's convolutions make its positions of."""
        owner: Any = self.model
        encoder = owner.get_encoder()
        return int(self.config.max_source_positions * encoder.conv1.stride[0] * encoder.conv2.stride[0])


class TextDecoder(CachedModel):
    """The decoder of a model of transformers, with caches for `context` tokens, of which `chunk` at most are new.

    `text_decoder(tokens, states, start_pos)`: tokens are int64 (1, n), n up to `chunk`; states are what `Encoder`
    returns; start_pos, int64 (1,), is the number of tokens before them. Returns logits as `Decoder` does, and raises
    as it does.
    """

    encoded = True

    def __init__(self, model: torch.nn.Module, context: int, chunk: int | None = None, **settings: Any) -> None:
        super().__init__(model, context, chunk, **settings)
        owner: Any = model
        self.relative = RelativePositions(owner.get_decoder(), context)

    def forward(self, tokens: torch.Tensor, states: torch.Tensor, start_pos: torch.Tensor) -> torch.Tensor:
        """The logits of the last token, or of all: see the class."""
        step = self._step(start_pos + torch.arange(tokens.shape[1]))
        layers = {layer: _Layer(states[2 * layer], states[2 * layer + 1]) for layer in range(len(self.caches))}
        size = int(self.config.hidden_size)
        # The layers take their keys and values from what is given; these only say that there are some.
        unused = torch.zeros(1, 1, size)
        with (
            within(step),
            implementation(self.model),
            embedding_in(self.model, self.embedding),
            self.relative.tabulated(),
        ):
            logits = _decoded(self.model, step, _Given(layers), dict.fromkeys(layers, True), unused, tokens)
        return logits if self.all_logits else logits[:, -1:]

    def _probed(self, probe: Probe) -> None:
        states = torch.zeros(1, 1, int(self.config.hidden_size), dtype=next(self.model.parameters()).dtype)
        taken = _Taken({})
        with within(probe), implementation(self.model):
            _decoded(self.model, probe, taken, {}, states, torch.zeros(1, 1, dtype=torch.int64))
        shapes = {tuple(item.shape) for pair in taken.layers.values() for item in pair}
        if len(shapes) != 1 or sorted(taken.layers) != sorted(probe.shapes):
            raise UnsupportedError(
                f"its layers make keys and values of the encoder's states in the shapes {sorted(shapes)}",
                where=type(self.model).__name__,
                hint="layers with keys and values of one shape, which are all of one tensor, are implemented",
            )


@dataclass(frozen=True)
class _Layer:
    """What a layer attends over, (heads, states, size) each."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True)
class _Given:
    """The stand-in for a cache that has all keys and values of the encoder's states."""

    layers: dict[int, _Layer]


@dataclass(frozen=True)
class _Taken:
    """The stand-in for a cache that has none yet: it takes those that the layers make."""

    layers: dict[int, tuple[torch.Tensor, torch.Tensor]]

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Note keys and values, (1, heads, states, size); returns what is given."""
        self.layers[layer] = (keys, values)
        return keys, values


class _Both(EncoderDecoderCache):
    """What the decoder's layers take for their caches: one of their own tokens, one of the encoder's states."""

    def __init__(self, own: Any, given: Any, known: dict[int, bool]) -> None:
        # Not transformers' own caches, which its constructor asks for.
        self.self_attention_cache = own
        self.cross_attention_cache = given
        self.is_updated = known


def _decoded(
    model: Any, own: Step | Probe | Whole, given: _Given | _Taken, known: dict[int, bool], states: Any, tokens: Any
) -> torch.Tensor:
    """The logits of tokens behind an encoder's states."""
    found = model(
        encoder_outputs=BaseModelOutput(last_hidden_state=states),
        decoder_input_ids=tokens,
        # All are seen; without it some models make one, whose size depends on the position.
        decoder_attention_mask=torch.ones_like(tokens),
        past_key_values=_Both(own, given, known),
        use_cache=True,
    )
    logits: torch.Tensor = found.logits
    return logits


def takes_tokens(model: Any) -> bool:
    """True if the encoder takes tokens, False if spectrograms. Raises UnsupportedError for anything else."""
    found = model.main_input_name
    if found not in (_TOKENS, _SPECTROGRAM):
        raise UnsupportedError(
            f"its encoder takes {found}", where=type(model).__name__, hint=f"{_TOKENS} or {_SPECTROGRAM} are known"
        )
    return bool(found == _TOKENS)


def checked_source(config: Any, source_context: int | None, *, tokens: bool) -> int:
    """The tokens of an encoder's text, at most, or the positions of a spectrogram's states.

    Raises WrongArgumentError for more tokens than the encoder has positions for.
    """
    if not tokens:
        if source_context is not None:
            raise WrongArgumentError(
                f"source_context is {source_context}", where="encoder", hint="it takes spectrograms of one size: none"
            )
        return int(config.max_source_positions)
    most: int | None = getattr(config, "max_position_embeddings", None)
    chosen = min(_SOURCE, most or _SOURCE) if source_context is None else source_context
    check_count("source_context", chosen, most, "the positions that the model has", "encoder")
    return chosen

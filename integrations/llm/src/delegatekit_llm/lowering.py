"""A language model as a program for ExecuTorch's text runner."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

import delegatekit
from delegatekit.errors.misuse import OutputError
from delegatekit.pipeline import LoweredProgram, choose
from delegatekit.quantization import QuantizationReport
from delegatekit.quantization.schemes import choose_scheme
from delegatekit_api import LoweringError
from delegatekit_toolkit.later import Later, telling

from .decoder import Decoder, checked_chunk
from .folders import files_beside, load_config, load_model, mapped_dtype, token_ids

#: Tokens of the example that is exported: torch.export takes sizes of 0 and 1 for constants.
_EXAMPLE: Final = 2
#: The backend of fused attention.
_FUSING: Final = "llama"


@dataclass(frozen=True)
class LanguageModel:
    """A lowered language model, and the files of its tokenizer."""

    program: LoweredProgram
    #: What was lowered: it computes in eager what the file computes.
    module: torch.nn.Module
    #: Name -> content of what is written beside the .pte file: tokenizer.json and others.
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def quantization(self) -> QuantizationReport | None:
        """The layers that were quantized, and those that were not, with the reasons; None without a scheme."""
        found: QuantizationReport | None = getattr(self.module, "quantization", None)
        return found

    def save(self, path: str | Path, progress: Callable[[int, int], None] | None = None) -> tuple[Path, ...]:
        """Write the .pte file, its data files, and the tokenizer's files beside it; all appear, or none.

        Weights of a large model are made again meanwhile, layer by layer; `progress` is told how many MiB of them, of
        how many. Returns the paths, that of the .pte last. Raises OutputError if the folder has another tokenizer, and
        FormatError as `LoweredProgram.save`.
        """
        place = Path(path)
        beside = {place.parent / name: data for name, data in self.files.items()}
        for file, data in beside.items():
            if file.is_file() and file.read_bytes() != data:
                raise OutputError(
                    "is there already, of another model", where=str(file), hint="choose a folder of its own"
                )
        image = self.program.image
        written: list[Any] = [item.data for item in image.named_data]
        written += [item.data for content in image.data_files.values() for item in content.data]
        total = sum(item.nbytes for item in written if isinstance(item, Later))
        done = 0

        def told(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            if progress is not None:
                progress(done >> 20, total >> 20)

        with telling(told):
            return self.program.save(place, beside={file: data for file, data in beside.items() if not file.is_file()})


def lower(
    model: str | Path | torch.nn.Module,
    backends: Sequence[str],
    *,
    context: int = 2048,
    chunk: int | None = None,
    scheme: str | None = None,
    group_size: int | None = None,
    dtype: str = "float32",
    embedding_bits: int | None = None,
    fused: bool = False,
    all_logits: bool = False,
    known_family: bool = True,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> LanguageModel:
    """Lower a language model for text generation with a cache.

    The file's method `forward` takes tokens, int64 (1, n), and start_pos, int64 (1,), the number of tokens before
    them. It returns the logits of the last token, (1, 1, vocabulary), and keeps keys and values in its buffers. What a
    runner asks are methods of their own: get_max_seq_len (the chunk), get_max_context_len, get_vocab_size, get_bos_id,
    get_eos_ids and others.

    Raises UnsupportedError for a family that is not known, MissingFileError and FormatError for a folder that cannot be
    read, WrongArgumentError for sizes that do not go together, and what `delegatekit.quantize` and `delegatekit.lower`
    raise.

    Args:
        model: A folder as `save_pretrained` leaves it, or a model of transformers for causal language modeling.
        backends: Backends in priority order.
        context: Tokens that the cache keeps: of prompt and answer together.
        chunk: Tokens of one call, at most. By default 512, or the context if that is less; runners cut longer prompts.
        scheme: A quantization scheme of the first backend (`delegatekit schemes`). By default weights stay as they are.
        group_size: Size of the weights' groups. Where the scheme has groups.
        dtype: Type of the numbers that are computed with, if the model is a folder: float32, float16 or bfloat16.
        embedding_bits: Bits of the embedding's numbers, 8 or 4. By default they stay as they are.
        fused: Attention by ExecuTorch's fused operator: only the places of the cache that are in use are read. The
            runtime must have it. Layers with windows or soft caps keep their own.
        all_logits: Return the logits of all tokens, (1, n, vocabulary).
        known_family: False tries a model type that is not known, and compares its results with the model's own.
        options: Options of backends, by the backends' names.
        settings: More arguments of `delegatekit.lower`: external, only, skip, compiling and others.
    """
    if fused and _FUSING not in backends:
        backends = [*backends, _FUSING]
    # What can be refused is, before anything large is read.
    choose(backends, options or {})
    if scheme is not None:
        choose_scheme(backends[0], scheme, (options or {}).get(backends[0]), group_size)
    files: dict[str, bytes] = {}
    large = False
    if not isinstance(model, torch.nn.Module):
        folder = Path(model)
        config = load_config(folder, known_family=known_family)
        checked_chunk(config, context, chunk)
        large = mapped_dtype(folder) is not None
        model = load_model(folder, config, dtype)
        files = files_beside(folder)
    if not known_family:
        check_against_model(Decoder(model, context, chunk, known_family=False))
    decoder = Decoder(
        model,
        context,
        chunk,
        all_logits=all_logits,
        embedding_bits=embedding_bits,
        fused=fused,
        known_family=known_family,
    )
    example, shapes = _example(decoder.chunk)
    module: torch.nn.Module = decoder
    if scheme is not None:
        module = delegatekit.quantize(
            decoder,
            [example],
            backend=backends[0],
            scheme=scheme,
            group_size=group_size,
            options=(options or {}).get(backends[0]),
            dynamic_shapes=shapes,
            deferred=large,
            progress=False,
        )
    program = delegatekit.lower(
        module,
        example,
        dynamic_shapes=shapes,
        backends=backends,
        options=options,
        constant_methods=_told(decoder, token_ids(model, files)),
        **settings,
    )
    return LanguageModel(program, module, files)


def _example(chunk: int) -> tuple[tuple[torch.Tensor, torch.Tensor], Any]:
    """Example inputs of a decoder, and which of their sizes may change."""
    count = min(chunk, _EXAMPLE)
    shapes = None if chunk == 1 else ({1: torch.export.Dim("tokens", min=1, max=chunk)}, None)
    return (torch.zeros(1, count, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)), shapes


def _told(decoder: Decoder, ids: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The constants that ExecuTorch's runner reads."""
    told: dict[str, Any] = {
        "get_max_seq_len": decoder.chunk,
        "get_max_context_len": decoder.context,
        "get_vocab_size": int(decoder.config.vocab_size),
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": any(cache.fused for cache in decoder.caches),
        "enable_dynamic_shape": decoder.chunk > 1,
    }
    if ids["bos"]:
        told["get_bos_id"] = ids["bos"][0]
    if ids["eos"]:
        told["get_eos_ids"] = list(ids["eos"])
    return told


def check_against_model(decoder: Decoder) -> None:
    """Compare a decoder with its model on a text that is given in two calls. Raises LoweringError if they differ.

    The model of a family that is not known may compute something else than its layers tell.
    """
    count = min(decoder.context, 2 * decoder.chunk, 48)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, int(decoder.config.vocab_size), (1, count), generator=generator)
    first = max(1, count - decoder.chunk, count // 2)
    parts = [(0, min(first, decoder.chunk)), (min(first, decoder.chunk), count)]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = decoder.model(input_ids=tokens, use_cache=False).logits[:, -1:]
        for start, end in parts:
            found = decoder(tokens[:, start:end], torch.tensor([start]))[:, -1:]
    decoder.reset()
    # The same operations in another order: their rounding errors, and much less than an error of the attention.
    bound = 64 * torch.finfo(wanted.dtype).eps * float(wanted.abs().max()) * len(decoder.caches)
    error = float((found - wanted).abs().max())
    if not error <= bound:
        raise LoweringError(
            f"with a cache of ours it computes something else: its logits differ by {error:.3g}",
            where=type(decoder.model).__name__,
            hint="its attention is not the one that its layers tell: this family needs code of its own",
        )

"""A language model as a program for ExecuTorch's text runner."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch.export import ExportedProgram

import delegatekit
from delegatekit.errors.misuse import WrongArgumentError
from delegatekit.pipeline import LoweredProgram, choose
from delegatekit.plugins import get_backend
from delegatekit.quantization import QuantizationReport, quantize_methods
from delegatekit.quantization.schemes import choose_scheme
from delegatekit_api import LoweringError
from delegatekit_toolkit.later import Later, telling

from . import caches, embeddings
from .calibration import HIDING, calls_of, drawn_tokens
from .checkpoints.choice import choose as choose_for
from .decoder import CachedModel, Decoder, checked_chunk, default_context
from .families import is_encoder_decoder
from .fixed import CHUNK, DECODE, FORWARD, PREFILL, Decode, Prefill, is_fixed
from .folders import checked_beside, files_beside, load_config, load_model, mapped_dtype, token_ids
from .vocabulary import Vocabulary

#: Tokens of the example that is exported: torch.export takes sizes of 0 and 1 for constants.
_EXAMPLE: Final = 2
#: The backend of fused attention.
_FUSING: Final = "llama"
#: Weights that a sentence names, at most.
_NAMED: Final = 3


@dataclass(frozen=True)
class LanguageModel:
    """A lowered language model, and the files of its tokenizer."""

    program: LoweredProgram
    #: What was lowered: it computes in eager what the file computes. A ModuleDict by method if there are two.
    module: torch.nn.Module
    #: Name -> content of what is written beside the .pte file: tokenizer.json and others.
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: Tokens of one call, at most.
    chunk: int = 1

    #: Weights that are not used, and what became of those that came as integers, in sentences; `quantization` has the
    #: rest.
    told: tuple[str, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that compute: forward, prefill and decode, or encoder and text_decoder."""
        return tuple(self.module) if isinstance(self.module, torch.nn.ModuleDict) else (FORWARD,)

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
        beside = checked_beside(place, self.files)
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
    context: int | None = None,
    chunk: int | None = None,
    methods: Sequence[str] | None = None,
    source_context: int | None = None,
    scheme: str | None = None,
    group_size: int | None = None,
    calibration: str | Sequence[int] | None = None,
    dequantize: bool = False,
    dtype: str = "float32",
    embedding_bits: int | None = None,
    cache_bits: int | None = None,
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

    Where sizes must not change, the file has two methods instead, over the same buffers. `prefill` takes tokens, (1,
    chunk), start_pos and count, (1,), the number of tokens that count: the others may be anything. `decode` takes one
    token, (1, 1), and start_pos.

    A model of an encoder and a decoder has two methods, as ExecuTorch's runner for speech takes them. `encoder` takes
    tokens, int64 (1, n), or a spectrogram, and returns states. `text_decoder` takes tokens, states and start_pos.

    Raises UnsupportedError for a family that is not known, MissingFileError and FormatError for a folder that cannot be
    read, WrongArgumentError for sizes that do not go together, and what `delegatekit.quantize` and `delegatekit.lower`
    raise.

    Args:
        model: A folder as `save_pretrained` leaves it, or a model of transformers for causal language modeling, or of
            an encoder and a decoder.
        backends: Backends in priority order.
        context: Tokens that the cache keeps: of prompt and answer together. By default 2048, or what the model has
            positions for, if that is less.
        chunk: Tokens of one call, at most. By default 512, or the context if that is less; runners cut longer prompts.
            Behind an encoder it is 1: there are hardly any prompts. Of a prefill it is 128: all of it is computed.
        methods: ["forward"], or ["prefill", "decode"], whose sizes are fixed. By default what the first backend takes.
        source_context: Tokens of an encoder's text, at most. By default 512, or what the model has positions for.
        scheme: A quantization scheme of the first backend (`delegatekit schemes`). By default weights stay as they are.
        group_size: Size of the weights' groups. Where the scheme has groups; by default that of weights which are
            integers already.
        calibration: A text like those to come, or its tokens: schemes that fix the ranges of activations find them by
            it. By default tokens are drawn.
        dequantize: Make float numbers of weights that are integers already (GPTQ, AWQ, compressed-tensors), which a
            scheme quantizes anew. By default integers stay what they are, by the scheme; without one, by the backend's
            for them, unless that rounds activations: such a scheme must be given.
        dtype: Type of the numbers that are computed with, if the model is a folder: float32, float16 or bfloat16.
        embedding_bits: Bits of the embedding's numbers, 8 or 4. By default they stay as they are.
        cache_bits: Bits of the cache's numbers: 8. By default they are of `dtype`.
        fused: Attention by ExecuTorch's fused operator: only the places of the cache that are in use are read. The
            runtime must have it. Layers with windows or soft caps keep their own.
        all_logits: Return the logits of all tokens, (1, n, vocabulary).
        known_family: False tries a model type that is not known, and compares its results with the model's own.
        options: Options of backends, by the backends' names.
        settings: More arguments of `delegatekit.lower`: external, only, skip, compiling and others.
    """
    if fused and _FUSING not in backends:
        backends = [*backends, _FUSING]
    own_options = (options or {}).get(backends[0])
    # What can be refused is, before anything large is read.
    choose(backends, options or {})
    embeddings.check_bits(embedding_bits)
    caches.check_bits(cache_bits)
    kind = "" if scheme is None else choose_scheme(backends[0], scheme, own_options, group_size)[1].kind
    source = _Source.of(model, known_family=known_family)
    _check_calibration(calibration, kind, paired=source.paired, has_text=source.folder is not None)
    if source.paired:
        _check_no_methods(methods)
    else:
        _check_no_source(source_context)
    fixed = not source.paired and is_fixed(methods, chunk, fused=fused, wanted=_takes_fixed_sizes(backends))
    kept = default_context(source.config) if context is None else context
    if source.folder is not None:
        checked_chunk(source.config, kept, chunk)
    read = source.model(dtype)
    chosen = choose_for(read, backends[0], scheme, group_size, own_options, dequantize=dequantize)
    if chosen.scheme is None and group_size is not None:
        raise WrongArgumentError(
            f"group_size is {group_size}, and no scheme is there",
            where="lower",
            hint="leave it out, or choose a scheme",
        )
    settings_of_model: dict[str, Any] = {
        "all_logits": all_logits,
        "embedding_bits": embedding_bits,
        "cache_bits": cache_bits,
        "fused": fused,
        "hiding": HIDING if kind == "static" else None,
        "known_family": known_family,
    }
    told = (*_unused(read), *chosen.told)
    decoder: CachedModel
    if source.paired:
        decoder, made_of = _encoder_and_decoder(read, kept, chunk or 1, source_context, settings_of_model)
    else:
        decoder, made_of = _decoder(read, kept, chunk, settings_of_model, fixed=fixed)
    samples: Mapping[str, list[Any]] = {name: [method.example] for name, method in made_of.items()}
    if kind == "static" and not source.paired:
        samples = calls_of(source.tokens(calibration, kept), kept, decoder.chunk, list(made_of))
    quantization = {
        "backend": backends[0],
        "scheme": chosen.scheme,
        "group_size": chosen.group_size,
        "keep_float": chosen.keep_float,
        "options": own_options,
        "deferred": source.large,
        "progress": False,
    }
    module, given = _quantized(made_of, samples, quantization)
    constants = _told(decoder, made_of, token_ids(read, source.files))
    program = delegatekit.lower(**given, backends=backends, options=options, constant_methods=constants, **settings)
    return LanguageModel(program, module, source.files, decoder.chunk, told)


@dataclass(frozen=True)
class _Source:
    """Where a model comes from: a folder, which is read when the model is wanted, or a module."""

    config: Any
    module: torch.nn.Module | None = None
    folder: Path | None = None
    #: True if weights stay in their files until they are needed.
    large: bool = False
    #: Name -> content of the tokenizer's files.
    files: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, model: str | Path | torch.nn.Module, *, known_family: bool) -> _Source:
        """The source that `lower` is given. Raises as `load_config`."""
        if isinstance(model, torch.nn.Module):
            return cls(model.config, model)
        folder = Path(model)
        config = load_config(folder, known_family=known_family)
        return cls(config, None, folder, mapped_dtype(folder) is not None, files_beside(folder))

    @property
    def paired(self) -> bool:
        """True for an encoder and a decoder."""
        return is_encoder_decoder(self.config)

    def model(self, dtype: str) -> torch.nn.Module:
        """The model; that of a folder computes in `dtype`."""
        if self.module is not None:
            return self.module
        assert self.folder is not None
        return load_model(self.folder, self.config, dtype)

    def tokens(self, calibration: str | Sequence[int] | None, context: int) -> Sequence[int]:
        """The tokens to calibrate by: given, of a text that is given, or drawn."""
        if calibration is None:
            return drawn_tokens(context, int(self.config.vocab_size))
        if isinstance(calibration, str):
            return Vocabulary(Path(self.folder or "") / "tokenizer.json").encode(calibration)
        return calibration


def _quantized(
    methods: Mapping[str, _Method], samples: Mapping[str, list[Any]], quantization: Mapping[str, Any]
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """What computes in eager what the file computes, and the model as `delegatekit.lower` takes it.

    Without a scheme nothing is quantized.
    """
    wanted = quantization["scheme"] is not None
    if list(methods) == [FORWARD]:
        only = methods[FORWARD]
        module = only.module
        if wanted:
            module = delegatekit.quantize(module, samples[FORWARD], dynamic_shapes=only.shapes, **quantization)
        return module, {"model": module, "inputs": only.example, "dynamic_shapes": only.shapes}
    programs: Mapping[str, ExportedProgram] = {name: method.exported() for name, method in methods.items()}
    modules: Any = torch.nn.ModuleDict({name: method.module for name, method in methods.items()})
    if wanted:
        quantized = quantize_methods(programs, samples, **quantization)
        programs = quantized.programs
        modules = torch.nn.ModuleDict({name: item.module(check_guards=False) for name, item in programs.items()})
        modules.quantization = _joined(quantized.reports)
    return modules, {"model": programs}


@dataclass(frozen=True)
class _Method:
    """A method of the file: its module, an example of its inputs, and which of their sizes may change."""

    module: torch.nn.Module
    example: tuple[torch.Tensor, ...]
    shapes: Any

    def exported(self) -> ExportedProgram:
        """Its program."""
        with torch.no_grad():
            return torch.export.export(self.module, self.example, dynamic_shapes=self.shapes, strict=False)


def _encoder_and_decoder(
    model: torch.nn.Module, context: int, chunk: int, source_context: int | None, settings: Mapping[str, Any]
) -> tuple[CachedModel, dict[str, _Method]]:
    """The methods of a model of an encoder and a decoder."""
    from .seq2seq import Encoder, TextDecoder

    known = bool(settings["known_family"])
    if not known:
        plain = Encoder(model, source_context, known_family=False)
        check_against_model(TextDecoder(model, context, chunk, known_family=False), plain)
    decoder = TextDecoder(model, context, chunk, **settings)
    encoder = Encoder(model, source_context, embedding=decoder.embedding, known_family=known)
    source = encoder.example(_EXAMPLE)
    with torch.no_grad():
        states = encoder(source)
    (tokens, start), shapes = _example(decoder.chunk)
    source_shape = states_shape = None
    if encoder.takes_tokens and encoder.source_context > 1:
        source_shape = {1: torch.export.Dim("source", min=1, max=encoder.source_context)}
        states_shape = {2: torch.export.Dim("states", min=1, max=encoder.source_context)}
    return decoder, {
        "encoder": _Method(encoder, (source,), (source_shape,)),
        "text_decoder": _Method(decoder, (tokens, states, start), (shapes and shapes[0], states_shape, None)),
    }


def _decoder(
    model: torch.nn.Module, context: int, chunk: int | None, settings: Mapping[str, Any], *, fixed: bool
) -> tuple[CachedModel, dict[str, _Method]]:
    """The methods of a decoder alone."""
    if fixed and chunk is None:
        chunk = min(context, CHUNK)
    if not settings["known_family"]:
        check_against_model(Decoder(model, context, chunk, known_family=False))
    decoder = Decoder(model, context, chunk, **settings)
    return decoder, _fixed_methods(decoder) if fixed else {FORWARD: _Method(decoder, *_example(decoder.chunk))}


def _fixed_methods(decoder: Decoder) -> dict[str, _Method]:
    """The methods of a decoder whose sizes are fixed."""
    (tokens, start), _ = _example(1)
    prompt = torch.zeros(1, decoder.chunk, dtype=torch.int64)
    return {
        PREFILL: _Method(Prefill(decoder), (prompt, start, torch.tensor([decoder.chunk])), None),
        DECODE: _Method(Decode(decoder), (tokens, start), None),
    }


def _takes_fixed_sizes(backends: Sequence[str]) -> bool:
    """True if the first backend, here or on the device, takes no sizes that change from call to call."""
    told = [get_backend(name).description for name in backends[:1]]
    return any(not (one.supports_dynamic_shapes and one.device_dynamic_shapes) for one in told)


def _check_calibration(calibration: str | Sequence[int] | None, kind: str, *, paired: bool, has_text: bool) -> None:
    """Raise WrongArgumentError for a text that nothing is calibrated by."""
    if calibration is None:
        return
    why = ""
    if kind != "static":
        why = "nothing is calibrated: the ranges of activations are not fixed, or there is no scheme"
    elif paired:
        why = "a model of an encoder and a decoder is calibrated by an example of its own"
    elif isinstance(calibration, str) and not has_text:
        why = "a model without a folder has no tokenizer"
    if why:
        raise WrongArgumentError(
            why, where="calibration", hint="leave it out" if has_text else "leave it out, or give tokens"
        )


def _check_no_methods(methods: Sequence[str] | None) -> None:
    if methods is not None:
        raise WrongArgumentError(
            f"methods are {', '.join(methods)}, and the model has an encoder",
            where="lower",
            hint="leave them out: its methods are encoder and text_decoder",
        )


def _check_no_source(source_context: int | None) -> None:
    if source_context is not None:
        raise WrongArgumentError(
            f"source_context is {source_context}, and the model has no encoder",
            where="lower",
            hint="leave it out: context is what the cache keeps",
        )


def _unused(model: Any) -> list[str]:
    """A sentence about weights of a folder that its model does not use, if there are any."""
    names: Sequence[str] = getattr(model, "unused_weights", ())
    if not names:
        return []
    first = f"{', '.join(names[:_NAMED])}{' ...' if len(names) > _NAMED else ''}"
    return [f"{len(names)} weights of the folder are not in the model that config.json describes: {first}"]


def _joined(reports: Mapping[str, QuantizationReport]) -> QuantizationReport:
    """One report of all methods."""
    layers = tuple(layer for report in reports.values() for layer in report.layers)
    return replace(next(iter(reports.values())), layers=layers)


def _example(chunk: int) -> tuple[tuple[torch.Tensor, torch.Tensor], Any]:
    """Example inputs of a decoder, and which of their sizes may change."""
    count = min(chunk, _EXAMPLE)
    shapes = None if chunk == 1 else ({1: torch.export.Dim("tokens", min=1, max=chunk)}, None)
    return (torch.zeros(1, count, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)), shapes


def _told(decoder: CachedModel, methods: Mapping[str, _Method], ids: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The constants that ExecuTorch's runners read."""
    told: dict[str, Any] = {
        "get_max_seq_len": decoder.chunk,
        "get_max_context_len": decoder.context,
        "get_vocab_size": int(decoder.config.vocab_size),
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": any(cache.fused for cache in decoder.caches),
        "enable_dynamic_shape": decoder.chunk > 1 and PREFILL not in methods,
    }
    if "encoder" in methods:
        encoder: Any = methods["encoder"].module
        if encoder.takes_tokens:
            told["get_max_source_len"] = encoder.source_context
        if ids["decoder_start"]:
            told["decoder_start_token_id"] = ids["decoder_start"][0]
    if ids["bos"]:
        told["get_bos_id"] = ids["bos"][0]
    if ids["eos"]:
        told["get_eos_ids"] = list(ids["eos"])
    return told


def check_against_model(decoder: CachedModel, encoder: torch.nn.Module | None = None) -> None:
    """Compare a decoder with its model on a text that is given in two calls. Raises LoweringError if they differ.

    The model of a family that is not known may compute something else than its layers tell. With an encoder, the text
    is behind the encoder's states for random tokens or a random spectrogram.
    """
    count = min(decoder.context, 2 * decoder.chunk, 48)
    generator = torch.Generator().manual_seed(0)
    vocabulary = int(decoder.config.vocab_size)
    tokens = torch.randint(0, vocabulary, (1, count), generator=generator)
    first = max(1, count - decoder.chunk, count // 2)
    parts = [(0, min(first, decoder.chunk)), (min(first, decoder.chunk), count)]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if encoder is None:
            given: tuple[torch.Tensor, ...] = ()
            wanted = decoder.model(input_ids=tokens, use_cache=False).logits[:, -1:]
        else:
            pair: Any = encoder
            source = pair.example(min(pair.source_context, 48))
            if pair.takes_tokens:
                source = torch.randint(0, vocabulary, source.shape, generator=generator)
            else:
                source = torch.randn(source.shape, generator=generator).to(source.dtype)
            given = (encoder(source),)
            wanted = decoder.model(source, decoder_input_ids=tokens, use_cache=False).logits[:, -1:]
        for start, end in parts:
            found = decoder(tokens[:, start:end], *given, torch.tensor([start]))[:, -1:]
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

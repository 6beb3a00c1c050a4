"""The bulk of the commands `delegatekit schemes` and `delegatekit quantize`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delegatekit_api import LoweringError, QuantizationError
from delegatekit_api.quantization import MOVING_OPERATORS, QuantizationRule, QuantizationScheme

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from .report import QuantizationReport


def schemes_by_backend(
    backend: str | None, options: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Sequence[QuantizationScheme]]:
    """The schemes of one backend, or of all that can be used; `options` for each backend.

    Raises PluginError for a backend that cannot be used, OptionError for wrong options.
    """
    from ..plugins import LoadedBackend, ask_all, get_backend

    def ask(found: LoadedBackend) -> Sequence[QuantizationScheme]:
        return found.quantization_schemes(found.make_options((options or {}).get(found.name, {})))

    return {backend: ask(get_backend(backend))} if backend is not None else ask_all(ask)


def schemes_as_json(found: Mapping[str, Sequence[QuantizationScheme]]) -> dict[str, list[dict[str, Any]]]:
    """The schemes as plain data, rules included."""
    return {name: [_scheme(scheme) for scheme in schemes] for name, schemes in found.items()}


def _scheme(scheme: QuantizationScheme) -> dict[str, Any]:
    rules = [
        {
            "operators": list(rule.operators),
            "fused": list(rule.fused),
            "input": _text(rule.input),
            "weight": _text(rule.weight),
            "bias": _text(rule.bias),
            "output": _text(rule.output),
            "shares": rule.shares,
            "follows": rule.follows,
            "declines": len(rule.declines),
        }
        for rule in scheme.rules
    ]
    return {"name": scheme.name, "summary": scheme.summary, "kind": scheme.kind, "qat": scheme.qat, "rules": rules}


def _text(given: Any) -> str | None:
    return None if given is None else str(given)


def schemes_text(found: Mapping[str, Sequence[QuantizationScheme]]) -> str:
    """The schemes as people read them: a paragraph for each, in which each operator stands once."""
    lines = []
    for backend, schemes in found.items():
        for scheme in schemes:
            training = ", offers training" if scheme.qat else ""
            lines += ["", f"{backend}: {scheme.name} ({scheme.kind}{training})", f"  {scheme.summary}".rstrip()]
            lines += [f"  * {line}" for line in _lines(scheme)] or ["  * the plugin's own quantizer"]
            if scheme.rules:
                lines.append(
                    "  where the backend takes them so: the report of `quantize` says where it does not, and why"
                )
    return "\n".join(lines[1:])


def _lines(scheme: QuantizationScheme) -> list[str]:
    """Operators with the same rules, and what these say."""
    rules: dict[str, list[QuantizationRule]] = {}
    for rule in scheme.rules:
        for name in rule.operators:
            rules.setdefault(name, []).append(rule)
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, of_name in rules.items():
        fused = dict.fromkeys(_short(other) for rule in of_name for other in rule.fused)
        key = ", ".join(fused), *dict.fromkeys(map(_how, of_name))
        alike.setdefault(key, []).append(name)
    return [
        f"{_operators(names)}{f' (+ {fused})' if fused else ''}: {', or '.join(how)}"
        for (fused, *how), names in alike.items()
    ]


def _operators(operators: Sequence[str]) -> str:
    names = list(dict.fromkeys(map(_short, operators)))
    moving = [name for name in names if name in MOVING_OPERATORS]
    if len(moving) > 3:
        names = [name for name in names if name not in moving] + ["what only moves values"]
    return ", ".join(names)


def _how(rule: QuantizationRule) -> str:
    if rule.shares:
        return "as its quantized input"
    parts = (("input", rule.input), ("weight", rule.weight), ("bias", rule.bias), ("output", rule.output))
    text = "; ".join(f"{name} {given}" for name, given in parts if given is not None)
    return text + ("; only after what is quantized" if rule.follows else "")


def _short(name: str) -> str:
    return name.removeprefix("aten.").removesuffix(".Tensor").removesuffix(".default")


def quantize_model(
    model: Mapping[str, Any],
    *,
    calibration: Path | None,
    random: int | None,
    output: Path,
    trust: bool = False,
    **settings: Any,
) -> QuantizationReport:
    """Quantize what the MODEL argument gave (the first arguments of `lower`) and write a .pt2 file.

    `trust` is for the calibration file, see `read_calibration`.
    """
    import torch

    from ..edge.export import exported_programs
    from ..files import shielded, write_files
    from .flow import quantize

    program, given, dynamic_shapes = model["model"], model.get("inputs"), model.get("dynamic_shapes")
    if isinstance(program, dict):
        raise QuantizationError(f"the model has {len(program)} methods", hint="quantize each method alone")
    if model.get("kwargs"):
        raise QuantizationError("the model takes keyword arguments", hint="wrap it in a module that takes none")
    example = _example(program, given)
    inputs = _random(example, random) if calibration is None else read_calibration(calibration, example, trust=trust)
    with _naming(calibration, inputs, example):
        quantized: Any = quantize(program, inputs, dynamic_shapes=dynamic_shapes, **settings)
    if isinstance(program, torch.export.ExportedProgram):
        dynamic_shapes = _shapes(program)
    exported = exported_programs(quantized, example, None, dynamic_shapes, nullcontext())["forward"]
    write_files({output: shielded(lambda file: torch.export.save(exported, file))})
    report: QuantizationReport = quantized.quantization
    return report


@contextmanager
def _naming(calibration: Path | None, inputs: Sequence[Any], example: Sequence[Any]) -> Iterator[None]:
    """Say so if the model was refused together with a first sample that has other sizes than the example."""
    import torch

    from .calibration import describe

    try:
        yield
    except LoweringError as error:
        for value, wanted in zip(inputs[0], example, strict=True):
            if isinstance(wanted, torch.Tensor) and value.shape != wanted.shape:
                what = f"is {describe(value)}, and the model's example {describe(wanted)}; {error.what}"
                raise QuantizationError(what, where=f"{calibration}, sample 0", hint="check the sizes") from error
        raise


def _example(program: Any, given: Any) -> tuple[Any, ...]:
    from torch.export import ExportedProgram

    if isinstance(program, ExportedProgram):
        inputs = program.example_inputs
        if inputs is None or inputs[1]:
            raise QuantizationError("the exported program has no example inputs, or keyword arguments")
        return tuple(inputs[0])
    if given is None:
        raise QuantizationError("the model has no example inputs", hint="return (module, inputs)")
    return tuple(given)


def _shapes(program: ExportedProgram) -> Any:
    """The sizes of an exported program's inputs that may change, as torch.export takes them; None if none may."""
    from torch import SymInt
    from torch.export import Dim

    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    shapes = []
    for name in names:
        sizes = getattr(values[name], "shape", ())
        shapes.append({index: Dim.AUTO for index, size in enumerate(sizes) if isinstance(size, SymInt)})
    return tuple(shapes) if any(shapes) else None


def _random(example: Sequence[Any], count: int | None) -> list[tuple[Any, ...]]:
    import torch

    generator = torch.Generator().manual_seed(0)

    def like(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return torch.randn(value.shape, generator=generator).to(value.dtype)
        return value

    return [tuple(like(value) for value in example) for _ in range(count or 0)]


def read_calibration(path: Path, example: Sequence[Any], *, trust: bool = False) -> list[tuple[Any, ...]]:
    """Inputs from a .pt file (a list of inputs, or one tensor for each input) or a .npz file (one array for each).

    Tensors and arrays hold the samples along their first dimension, and are cut to the example's size of it. A .pt file
    with other objects than tensors can run code while it is loaded: it is refused unless `trust` says that it may.
    Floating-point samples of another type than the example's become of its type (NumPy's default is float64).
    Raises FormatError for what cannot be read, QuantizationError for what does not fit the example.
    """
    where = str(path)
    samples = _samples(_read_samples(path, trust=trust), example, where)
    if not samples:
        raise QuantizationError("holds no samples", where=where, hint="a hundred are usual")
    return [_fitted(sample, example, f"{where}, sample {index}") for index, sample in enumerate(samples)]


def _fitted(sample: tuple[Any, ...], example: Sequence[Any], where: str) -> tuple[Any, ...]:
    """A sample with the types of the example. Raises QuantizationError if it does not fit."""
    if len(sample) != len(example):
        raise QuantizationError(f"has {len(sample)} values, the model takes {len(example)} inputs", where=where)
    values = enumerate(zip(sample, example, strict=True))
    return tuple(_value(value, wanted, position, where) for position, (value, wanted) in values)


def _value(value: Any, wanted: Any, position: int, where: str) -> Any:
    """One value of a sample. Sizes may change from call to call: whether they fit, the model tells."""
    import torch

    from .calibration import describe

    if not isinstance(wanted, torch.Tensor):
        return value
    if isinstance(value, torch.Tensor) and value.dim() == wanted.dim():
        if value.dtype == wanted.dtype:
            return value
        if value.is_floating_point() and wanted.is_floating_point():
            return value.to(wanted.dtype)
    raise QuantizationError(
        f"value {position} is {describe(value)}, the model takes {describe(wanted)} there", where=where
    )


def _samples(data: Any, example: Sequence[Any], where: str) -> list[tuple[Any, ...]]:
    """The samples of a file's content, each a tuple of values."""
    import torch

    if isinstance(data, list):
        return [tuple(item) if isinstance(item, tuple | list) else (item,) for item in data]
    tensors = tuple(data) if isinstance(data, tuple) else (data,)
    if not all(isinstance(item, torch.Tensor) and item.dim() for item in tensors):
        raise QuantizationError("holds neither a list of inputs nor tensors", where=where)
    if len(tensors) != len(example):
        raise QuantizationError(f"holds {len(tensors)} tensors, the model takes {len(example)} inputs", where=where)
    count = min(
        len(item) // max(1, int(first.shape[0])) if isinstance(first, torch.Tensor) and first.dim() else 0
        for item, first in zip(tensors, example, strict=True)
    )
    if not count:
        raise QuantizationError("holds fewer samples than one input has", where=where)
    sizes = [int(first.shape[0]) for first in example]
    return [
        tuple(item[index * size : (index + 1) * size] for item, size in zip(tensors, sizes, strict=True))
        for index in range(count)
    ]


def _read_samples(path: Path, *, trust: bool) -> Any:
    import numpy
    import torch

    from ..files import open_file
    from ..files.pickles import read_pickled

    if path.suffix == ".pt":
        return read_pickled(path, trust=trust)
    if path.suffix != ".npz":
        raise QuantizationError("is neither .pt nor .npz", where=str(path))
    with open_file(path) as file:
        try:
            with numpy.load(file, allow_pickle=False) as arrays:
                return tuple(torch.from_numpy(arrays[name]) for name in arrays.files)
        except Exception as error:  # what a damaged archive or array raises has no common class
            what = f"cannot be read: {type(error).__name__}: {error}"
            raise QuantizationError(what, where=str(path)) from error


def load_quantized(path: str | Path, *, trust: bool = False) -> ExportedProgram:
    """Read a .pt2 file as torch.export.load does, with the operators of quantized programs registered.

    A .pt2 file can have pickled objects and other things that run any code while PyTorch loads them. Such a file is
    refused, unless `trust` says that it may. Raises FormatError for that, and for what is no .pt2 file.
    """
    from ..files.exported import graphs_of, load_exported

    path = Path(path)
    _register_operators(graphs_of(path))
    return load_exported(path, trust=trust)


def _register_operators(graphs: Sequence[bytes]) -> None:
    """Register the operators that the graphs of a quantized .pt2 file call, so that torch can load it."""
    if any(b"quantized_decomposed." in graph for graph in graphs):
        import torch.ao.quantization.fx._decomposed  # noqa: F401  (registers them)
    if any(b"torchao." in graph for graph in graphs):
        from . import torchao

        torchao.load("quantization.quant_primitives")

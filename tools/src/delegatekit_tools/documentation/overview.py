"""The page of a backend in the sections that ExecuTorch's own backends are described by."""

from __future__ import annotations

from collections.abc import Container, Iterator
from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING

from .tables import target_table

if TYPE_CHECKING:
    from delegatekit.plugins import LoadedBackend


def overview(backend: LoadedBackend, others: Container[str]) -> list[str]:
    """The sections, as lines of Markdown; `others` are the names of the pages that it may refer to."""
    sections = {
        "Features": _features(backend),
        "Target requirements": _target_requirements(backend),
        "Development requirements": _development_requirements(backend),
        f"Using the {backend.name} backend": _using(backend),
        "Partitioner API": ["[partitioner.md](partitioner.md) has each option with its default and its meaning."],
        "Quantization": _quantization(backend),
        "Runtime integration": _integration(backend),
        "Operator support": _operators(others),
        "Troubleshooting": _troubleshooting(backend),
        "Internals": _internals(backend),
    }
    return [line for heading, lines in sections.items() for line in (f"## {heading}", "", *lines, "")]


def _features(backend: LoadedBackend) -> list[str]:
    told = backend.description
    sizes = "may change" if told.supports_dynamic_shapes else "are the same in every call"
    on_device = "" if told.device_dynamic_shapes or not told.supports_dynamic_shapes else ", on the host alone"
    lines = [f"* {told.summary}", f"* Sizes of inputs {sizes}{on_device}."]
    if told.owns_state:
        lines.append("* Delegates keep buffers that a method updates.")
    if told.compute_precision != "float32":
        lines.append(f"* float32 programs are computed in {told.compute_precision}.")
    if told.integrity_check:
        lines.append("* A changed byte in a file's delegate is noticed and refused.")
    if schemes := backend.quantization_schemes():
        lines.append(f"* Quantization by {', '.join(f'`{scheme.name}`' for scheme in schemes)}.")
    return lines


def _target_requirements(backend: LoadedBackend) -> list[str]:
    targets = backend.targets()
    delegate = backend.description.delegate_id
    runtime = f"A device needs ExecuTorch's runtime, linked with a library that registers the delegate `{delegate}`."
    return [runtime, "", *target_table(targets, backend.name)] if targets else [runtime]


def _development_requirements(backend: LoadedBackend) -> list[str]:
    lines = ["```sh", f"pip install 'delegatekit[tools]' {backend.distribution}", "```"]
    try:
        needs = [need for need in requires(backend.distribution) or () if "extra ==" not in need]
    except PackageNotFoundError:
        needs = []
    return [*lines, "", *(f"* `{need}`" for need in sorted(needs))] if needs else lines


def _using(backend: LoadedBackend) -> list[str]:
    return [
        "```python",
        "import delegatekit",
        "",
        f'program = delegatekit.lower(model, inputs, backends=["{backend.name}"])',
        "print(delegatekit.report(program))",
        'program.save("model.pte")',
        "```",
    ]


def _quantization(backend: LoadedBackend) -> list[str]:
    schemes = backend.quantization_schemes()
    if not schemes:
        return ["The backend declares no scheme."]
    return [
        "```python",
        f'quantized = delegatekit.quantize(model, samples, backend="{backend.name}", scheme="{schemes[0].name}")',
        f'program = delegatekit.lower(quantized, inputs, backends=["{backend.name}"])',
        "```",
        "",
        *(f"* `{scheme.name}`: {scheme.summary}" for scheme in schemes),
        "",
        "[quantization.md](quantization.md) has the rules of each.",
    ]


def _integration(backend: LoadedBackend) -> list[str]:
    host = "Nothing runs its files on the host."
    if backend.has("create_runtime"):
        how = '`delegatekit.load("model.pte")["forward"](x)`, or `delegatekit run model.pte`'
        host = f"The wheel has a runtime for the host: {how}."
    delegate = backend.description.delegate_id
    return [
        host,
        f"A device runs them where ExecuTorch's runtime has a library that registers `{delegate}`.",
    ]


def _operators(others: Container[str]) -> list[str]:
    if "operators.md" not in others:
        return [
            "The backend does not list its operators: `delegatekit explain MODEL` tells which of a model's it takes."
        ]
    return ["[operators.md](operators.md); as a table for programs, [op-support.csv](op-support.csv)."]


def _troubleshooting(backend: LoadedBackend) -> list[str]:
    return [
        f"* An operator runs outside of its delegates: `delegatekit explain MODEL -b {backend.name}` has the reason.",
        "* Results that differ from eager's: `delegatekit compare` finds the first operator that does.",
        "* What is missing here: `delegatekit doctor`.",
    ]


def _internals(backend: LoadedBackend) -> list[str]:
    return list(_facts(backend))


def _facts(backend: LoadedBackend) -> Iterator[str]:
    yield f"* Delegate id `{backend.description.delegate_id}`, plugin API {backend.description.api_version}."
    if backend.has("blob_operators"):
        yield "* `delegatekit inspect FILE --operators` lists the operators inside of a delegate."
    if backend.description.isolated_compiler:
        yield "* The compiler runs in a process of its own."
    if backend.description.isolated_runtime:
        yield "* The runtime runs in a process of its own."

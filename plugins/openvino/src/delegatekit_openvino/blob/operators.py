"""The operators of a blob in readable form, of our blobs and stock's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import unescape

from delegatekit_api import CompileSpec, FormatError
from delegatekit_api.blobs import BlobOperator

from .layout import read_layout
from .seal import WHERE, check

_BODY: Final = re.compile(r"<body>.*?</body>", re.DOTALL)
#: Operators that OpenVINO computes as one, which are a model of their own.
_SUBGRAPH: Final = re.compile(
    r'<layer id="(\d+)" name="[^"]*" type="Subgraph"[^>]*>\s*<port_map>(.*?)</port_map>'
    r".*?<body>(.*?)</body>\s*</layer>",
    re.DOTALL,
)
_MAPPED: Final = re.compile(r'<(input|output) external_port_id="(\d+)" internal_layer_id="(\d+)"')
_NUMBER: Final = re.compile(r'<layer id="(\d+)"')
_LAYER: Final = re.compile(r'<layer id="([\d_]+)" name="([^"]*)" type="([^"]*)"[^>]*?(?:/>|>(.*?)</layer>)', re.DOTALL)
_DATA: Final = re.compile(r"<data ([^>]*?)/?>")
_ATTRIBUTE: Final = re.compile(r'([\w-]+)="([^"]*)"')
_OUTPUT: Final = re.compile(r"<output>(.*?)</output>", re.DOTALL)
_PORT: Final = re.compile(r'<port id="(\d+)" precision="(\w+)"[^>]*?(?:/>|>(.*?)</port>)', re.DOTALL)
_DIM: Final = re.compile(r"<dim>(-?\d+)</dim>")
_EDGE: Final = re.compile(r'<edge from-layer="(\d+)" from-port="(\d+)" to-layer="(\d+)" to-port="(\d+)"')
#: Layers that compute nothing.
_STILL: Final = frozenset(("Parameter", "Const", "Result"))


def operators(blob: memoryview, compile_specs: Sequence[CompileSpec]) -> list[BlobOperator]:
    """The operators of the blob's model in its order. Raises FormatError for damage, or a blob of another layout."""
    check(blob, compile_specs)
    text, edges = _flattened(read_layout(blob).model)
    reads: dict[str, list[tuple[int, str]]] = {}
    for (layer, place), source in edges.items():
        reads.setdefault(layer, []).append((int(place), source))
    names: dict[str, str] = {}
    found = []
    for number, name, kind, body in _LAYER.findall(text):
        ports = [
            (f"{number}.{port}", f"{precision.lower()}[{', '.join(_DIM.findall(dims))}]")
            for output in _OUTPUT.findall(body)
            for port, precision, dims in _PORT.findall(output)
        ]
        plain = unescape(name)
        for index, (key, _) in enumerate(ports):
            made = plain if len(ports) == 1 else f"{plain}.{index}"
            if key in names:
                raise FormatError(f"{made!r:.80} is made twice", where=WHERE)
            # A conversion that OpenVINO adds has the name of its operand.
            names[key] = f"{made}, layer {number}" if made in names.values() else made
        if kind in _STILL:
            continue
        facts = {"result": ", ".join(kind for _, kind in ports)}
        for data in _DATA.findall(body):
            facts |= {key: unescape(value) for key, value in _ATTRIBUTE.findall(data)}
        operands = [names[key] for _, key in sorted(reads.get(number, ())) if key in names]
        found.append(BlobOperator(kind, tuple(operands), tuple(names[key] for key, _ in ports), facts))
    return found


def _flattened(text: str) -> tuple[str, dict[tuple[str, str], str]]:
    """A model's layers with those inside of subgraphs in the place of these, and what each input of a layer reads."""
    edges: dict[tuple[str, str], str] = {}
    #: What stands at the border of a subgraph, on its other side.
    inside: dict[str, tuple[str, str]] = {}

    def opened(match: re.Match[str]) -> str:
        number, ports, body = match.groups()
        for source, port, layer, place in _EDGE.findall(body):
            edges[f"{number}_{layer}", place] = f"{number}_{source}.{port}"
        for kind, port, layer in _MAPPED.findall(ports):
            if kind == "input":
                inside[f"{number}_{layer}.0"] = (number, port)
            else:
                inside[f"{number}.{port}"] = (f"{number}_{layer}", "0")
        return _NUMBER.sub(rf'<layer id="{number}_\1"', body.partition("<edges>")[0])

    text = _SUBGRAPH.sub(opened, text)
    text = _BODY.sub("", text)
    for source, port, layer, place in _EDGE.findall(text):
        edges[layer, place] = f"{source}.{port}"

    def found(source: str) -> str:
        passed: set[str] = set()
        while source in inside and source not in passed:
            passed.add(source)
            source = edges.get(inside[source], source)
        return source

    return text, {reader: found(source) for reader, source in edges.items()}

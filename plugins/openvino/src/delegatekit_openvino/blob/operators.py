"""The operators of a blob in readable form, of our blobs and stock's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias
from xml.etree import ElementTree

from delegatekit_api import CompileSpec, FormatError
from delegatekit_api.blobs import BlobOperator

from .layout import read_layout
from .seal import WHERE, check

#: The number of a layer; after that of its subgraph if it is inside of one.
_Layer: TypeAlias = tuple[int, ...]
_Port: TypeAlias = tuple[_Layer, int]

_NUMBER: Final = re.compile("[0-9]{1,9}")
#: Layers that compute nothing.
_STILL: Final = frozenset(("Parameter", "Const", "Result"))


def operators(blob: memoryview, compile_specs: Sequence[CompileSpec]) -> list[BlobOperator]:
    """The operators of the blob's model in its order. Raises FormatError for damage, or a blob of another layout."""
    check(blob, compile_specs)
    layers, edges = _flattened(_parsed(read_layout(blob).model))
    reads: dict[_Layer, list[tuple[int, _Port]]] = {}
    for (reader, place), source in edges.items():
        reads.setdefault(reader, []).append((place, source))
    names: dict[_Port, str] = {}
    taken: set[str] = set()
    found = []
    for number, layer in layers:
        name, kind = layer.get("name", ""), layer.get("type", "")
        ports = {(number, _number(port, "id")): _type(port) for port in layer.iterfind("output/port")}
        for index, key in enumerate(ports):
            made = name if len(ports) == 1 else f"{name}.{index}"
            if key in names:
                raise FormatError(f"{made!r:.80} is made twice", where=WHERE)
            # A conversion that OpenVINO adds has the name of its operand.
            names[key] = f"{made}, layer {'_'.join(map(str, number))}" if made in taken else made
            taken.add(names[key])
        if kind in _STILL:
            continue
        facts = {"result": ", ".join(ports.values())}
        for data in layer.iterfind("data"):
            facts |= data.attrib
        operands = [names[key] for _, key in sorted(reads.get(number, ())) if key in names]
        found.append(BlobOperator(kind, tuple(operands), tuple(names[key] for key in ports), facts))
    return found


def _parsed(text: str) -> ElementTree.Element:
    """The root of a model. Raises FormatError for what is no XML, or declares entities, which OpenVINO does not."""
    if "<!DOCTYPE" in text:
        raise FormatError("declares a type of document", where=WHERE)
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise FormatError(f"has a damaged model: {error}", where=WHERE) from error


def _number(element: ElementTree.Element, name: str) -> int:
    text = element.get(name, "")
    if not _NUMBER.fullmatch(text):
        raise FormatError(f"{element.tag!r:.40} has {name} = {text!r:.40}, which is no number", where=WHERE)
    return int(text)


def _type(port: ElementTree.Element) -> str:
    sizes = ", ".join(size.text or "" for size in port.iterfind("dim"))
    return f"{port.get('precision', '').lower()}[{sizes}]"


def _flattened(model: ElementTree.Element) -> tuple[list[tuple[_Layer, ElementTree.Element]], dict[_Port, _Port]]:
    """A model's layers, with those inside of a subgraph (operators that OpenVINO computes as one) in its place, and
    what each input of a layer reads."""
    layers: list[tuple[_Layer, ElementTree.Element]] = []
    edges: dict[_Port, _Port] = {}
    #: Results at one side of a subgraph's border -> the inputs that read them at the other.
    borders: dict[_Port, _Port] = {}

    def note(part: ElementTree.Element, outer: _Layer) -> None:
        for edge in part.iterfind("edges/edge"):
            source, reader = (
                ((*outer, _number(edge, f"{end}-layer")), _number(edge, f"{end}-port")) for end in ("from", "to")
            )
            edges[reader] = source

    note(model, ())
    for layer in model.iterfind("layers/layer"):
        number = (_number(layer, "id"),)
        body = layer.find("body") if layer.get("type") == "Subgraph" else None
        if body is None:
            layers.append((number, layer))
            continue
        note(body, number)
        layers += [((*number, _number(inner, "id")), inner) for inner in body.iterfind("layers/layer")]
        for port in layer.iterfind("port_map/*"):
            inner, outer = (
                ((*number, _number(port, "internal_layer_id")), 0),
                (number, _number(port, "external_port_id")),
            )
            borders |= {inner: outer} if port.tag == "input" else {outer: inner}
    through = {made: edges[reader] for made, reader in borders.items() if reader in edges}

    def found(source: _Port) -> _Port:
        passed = []
        while source in through:
            passed.append(source)
            source = through.pop(source)
        through.update(dict.fromkeys(passed, source))
        return source

    return layers, {reader: found(source) for reader, source in edges.items()}

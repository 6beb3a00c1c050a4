"""Damage by structure: a field of a file or blob gets a nasty value, and the whole is well-formed again.

A case is made from its format and number alone, so that it can be repeated: `case(...)`.
"""

from __future__ import annotations

import copy
import io
import json
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from delegates import Delegate, random_tensor
from messages import change_message
from mutations import EXTREMES, change_root, change_tables, mutate
from seeds import Seed

from delegatekit.pte import BUNDLE_IDENTIFIER, read, schema
from delegatekit_api import DelegateKitError
from delegatekit_coreml.blob.archive import read_archive, write_archive
from delegatekit_ethosu import blob as vela
from delegatekit_qnn.blob import header as qnn
from delegatekit_qnn.blob import spec as qnn_spec
from delegatekit_reference.blob import SEAL
from delegatekit_toolkit import etdump, flatbuffer
from delegatekit_toolkit.json_text import plain
from delegatekit_toolkit.tosa import schema as tosa
from delegatekit_tools.bundles import Case as BundledCase
from delegatekit_tools.bundles import schema as tables
from delegatekit_tools.bundles.cases import Signature
from delegatekit_tools.bundles.file import Bundle, write_bundle
from delegatekit_tools.placement.measurements import FORMAT, Candidate, Measurements, Tuned, UnitTimes
from delegatekit_vulkan.blob import envelope as vulkan
from delegatekit_vulkan.blob.reader import parse as vulkan_parse
from delegatekit_xnnpack.blob import envelope as xnnpack
from delegatekit_xnnpack.blob.reader import parse as xnnpack_parse

#: Makes another blob of a delegate: None if there is no sensible one.
Damage: TypeAlias = Callable[[Delegate, random.Random], Delegate]


#: Formats of files that are no delegates.
FILES = ("pte", "ptd", "bpte", "etdump", "measurements")


@dataclass(frozen=True)
class Case:
    """A program with its data files, and what it is called with."""

    program: bytes
    data: tuple[bytes, ...]
    inputs: Sequence[Any]


@dataclass(frozen=True)
class Material:
    """Seeds and delegates that cases are made of."""

    seeds: Mapping[str, Seed]
    delegates: Sequence[Delegate]


def case(format_: str, number: int, material: Material) -> Case:
    """The case with this number of a format."""
    source = random.Random(f"{format_} {number}")
    if format_ == "etdump":
        return _dump_case(material.seeds, source)
    if format_ == "measurements":
        return Case(b"", (_measurements(source),), ())
    if format_ == "bpte":
        return _bundle_case(material.seeds, source)
    if format_ in ("pte", "ptd"):
        return _file_case(format_, material.seeds, source)
    delegate = source.choice([item for item in material.delegates if item.name.startswith(f"{format_}-")])
    for _ in range(5):
        try:
            delegate = _DAMAGE[format_](delegate, source)
            program = delegate.program()
            break
        except (DelegateKitError, struct.error, OverflowError):
            continue  # a value that its field cannot hold
    else:
        program = delegate.program()
    if source.random() < 0.25:
        program = change_tables(program, [], source)
    return Case(program, (), _inputs(program, delegate))


def _file_case(format_: str, seeds: Mapping[str, Seed], source: random.Random) -> Case:
    usable = [seeds[name] for name in sorted(seeds) if format_ == "pte" or seeds[name].data]
    seed = source.choice(usable)
    if format_ == "pte":
        return Case(change_tables(seed.program, [], source), seed.data, seed.inputs)
    data = list(seed.data)
    place = source.randrange(len(data))
    data[place] = change_tables(data[place], [], source)
    return Case(seed.program, tuple(data), seed.inputs)


def _bundle_case(seeds: Mapping[str, Seed], source: random.Random) -> Case:
    """A bundle of a whole program, whose tables or bytes are damaged."""
    seed = seeds[source.choice(sorted(name for name in seeds if not seeds[name].data))]
    signature = Signature(read(seed.program), "forward")
    made = signature.table(BundledCase(seed.inputs), [], "seed")
    made.expected_outputs = made.inputs  # right or wrong, they are compared
    file = io.BytesIO()
    write_bundle(Bundle(memoryview(seed.program), {"forward": [made, made]}), file)
    if source.random() < 0.3:
        return Case(mutate(file.getvalue(), [], source), (), seed.inputs)
    root = flatbuffer.parse(tables.BundledProgram, file.getvalue(), (BUNDLE_IDENTIFIER,))
    root.program = bytes(root.program or b"")
    change_root(root, source)
    try:
        return Case(flatbuffer.serialize(root, BUNDLE_IDENTIFIER), (), seed.inputs)
    except DelegateKitError:  # a value that its field cannot hold
        return Case(file.getvalue(), (), seed.inputs)


def _dump_case(seeds: Mapping[str, Seed], source: random.Random) -> Case:
    """A program, and the runtime's ETDump of two calls: damaged tables, or bytes."""
    seed = seeds[source.choice(sorted(name for name in seeds if not seeds[name].data))]
    root = _dump(seed.program)
    if source.random() < 0.8:
        change_root(root, source)
    data = _dump_bytes(_dump(seed.program))
    with suppress(DelegateKitError, OverflowError, struct.error):  # a value that its field cannot hold
        data = _dump_bytes(root)
    return Case(seed.program, (mutate(data, [], source) if source.random() < 0.3 else data,), ())


def _dump(program: bytes) -> etdump.EtDump:
    events, time = [], 100
    for chain in read(program).program.execution_plan[0].chains or ():
        for position, instruction in enumerate(chain.instructions or ()):
            is_delegate = isinstance(instruction.instr_args, schema.DelegateCall)
            name = "DELEGATE_CALL" if is_delegate else "OPERATOR_CALL"
            inner = etdump.ProfileEvent(
                "inner", 0, position, 3 if is_delegate else -1, start_time=time, end_time=time + 3
            )
            whole = etdump.ProfileEvent(name, 0, position, start_time=time, end_time=time + 5)
            events += [etdump.Event(inner), etdump.Event(whole)]
            time += 10
    whole = etdump.ProfileEvent(etdump.EXECUTE, -1, 0, start_time=50, end_time=time)
    run = etdump.RunData("Execute", events=[*events, etdump.Event(whole)])
    return etdump.EtDump(run_data=[run, copy.deepcopy(run)])


def _dump_bytes(root: etdump.EtDump) -> bytes:
    """The file: the size of the rest, then a flatbuffer that is aligned by its place in the file."""
    data = flatbuffer.serialize(root, etdump.IDENTIFIER)
    (start,) = struct.unpack_from("<I", data)
    rest = struct.pack("<I4sI", start + 4, etdump.IDENTIFIER, 0) + data[8:]
    return struct.pack("<I", len(rest)) + rest


def _measurements(source: random.Random) -> bytes:
    """A file of measurements, in which values or bytes are damaged."""
    one = Candidate("acme", ("acme",), 0.5, None, None)
    two = Candidate("mixed", ("acme", "other"), 0.25, {"forward": {"linear": "acme", "relu": "other"}}, ("aten.relu",))
    times = UnitTimes("linear float32 1x4", 2, {"acme": 0.1, "other": 0.2})
    tuned = Tuned({"acme": "1.0"}, {"acme": {"fast": True}}, (one, two), {"0": times}, {"acme": 0.01}, {"third": "no"})
    content = {"delegatekit_measurements": FORMAT, **plain(Measurements("CPU", {"machine": "x"}, {"digest": tuned}))}
    for _ in range(source.choice((1, 1, 2, 3))):
        _change_json(content, source)
    data = json.dumps(content).encode()
    return mutate(data, [], source) if source.random() < 0.2 else data


def _inputs(program: bytes, delegate: Delegate) -> list[torch.Tensor]:
    """Tensors of the sizes that the file asks for, as long as they are small; else those that the blob was made for."""
    try:
        plan = read(program).program.execution_plan[0]
        tables = [(plan.values or [])[index].val for index in plan.inputs or ()]
        sizes = [table.sizes or [] for table in tables]
        if all(min(item, default=1) >= 0 and torch.Size(item).numel() < 1 << 18 for item in sizes):
            return [random_tensor(table) for table in tables]
    except (DelegateKitError, AttributeError, IndexError, RuntimeError, OverflowError, TypeError):
        pass  # the reader reports what is wrong with the file
    return delegate.tensors()


# -- blobs -----------------------------------------------------------------------------------------------------------


def _xnnpack(delegate: Delegate, source: random.Random) -> Delegate:
    graph = xnnpack_parse(delegate.blob)
    return _enveloped(delegate, graph, b"XN01", xnnpack.HEADER, xnnpack.MAGIC, source)


def _vulkan(delegate: Delegate, source: random.Random) -> Delegate:
    graph, _ = vulkan_parse(delegate.blob)
    return _enveloped(delegate, graph, vulkan.IDENTIFIER, vulkan.HEADER, vulkan.MAGIC, source)


def _enveloped(
    delegate: Delegate,
    graph: flatbuffer.Table,
    identifier: bytes,
    envelope: struct.Struct,
    magic: bytes,
    source: random.Random,
) -> Delegate:
    """Tables with damage, in the envelope that ExecuTorch's XNNPACK and Vulkan delegates share."""
    change_root(graph, source)
    body = flatbuffer.serialize(graph, identifier)
    numbers = [30, 32, len(body), 32 + len(body), 0]
    if source.random() < 0.05:
        numbers[source.randrange(5)] = source.choice(EXTREMES)
    header = envelope.pack(magic, *numbers)
    return replace(delegate, blob=header.ljust(32, b"\0") + body, named=_changed_data(delegate.named, source))


def _tosa(delegate: Delegate, source: random.Random) -> Delegate:
    """The TOSA program that travels beside the blob; its name is made to fit."""
    old = next(key for key in delegate.named if key.endswith(".tosa"))
    graph = flatbuffer.parse(tosa.TosaGraph, delegate.named[old], (tosa.IDENTIFIER,))
    change_root(graph, source)
    program = flatbuffer.serialize(graph, tosa.IDENTIFIER)
    key = vela.tosa_key(program)
    return replace(delegate.with_spec(vela.TOSA_SPEC, key.encode()), named={key: program})


def _vela(delegate: Delegate, source: random.Random) -> Delegate:
    blob = vela.unpack(delegate.blob, delegate.named)
    for _ in range(source.choice((1, 1, 2, 3))):
        change = source.randrange(4)
        if change == 0:
            words = list(struct.unpack(f"<{len(blob.command_stream) // 4}I", blob.command_stream))
            _change_words(words, source)
            blob = replace(blob, command_stream=struct.pack(f"<{len(words)}I", *words))
        elif change == 1:
            blob = replace(blob, scratch_size=_near(blob.scratch_size, source) & 0xFFFFFFFF)
        elif change == 2:
            size = source.choice((0, 1, len(blob.read_only) // 2, max(0, len(blob.read_only) - 1)))
            blob = replace(blob, read_only=blob.read_only[:size])
        else:
            blob = _changed_bindings(blob, source)
    return replace(delegate, blob=vela.pack(blob))


def _change_words(words: list[int], source: random.Random) -> None:
    place, other = source.randrange(1, len(words)), source.randrange(1, len(words))
    change = source.randrange(6)
    if change == 0:
        words[place] = _near(words[place], source) & 0xFFFFFFFF
    elif change == 1:  # the payload of a command word, in its upper half
        words[place] = words[place] & 0xFFFF | (_near(words[place] >> 16, source) & 0xFFFF) << 16
    elif change == 2:
        words[place], words[other] = words[other], words[place]
    elif change == 3:
        words[place] = words[other]
    elif change == 4:
        del words[place]
    else:
        words.insert(place, words[other])


def _changed_bindings(blob: vela.Blob, source: random.Random) -> vela.Blob:
    side = source.choice(("inputs", "outputs"))
    bindings = list(getattr(blob, side))
    if not bindings:
        return blob
    place = source.randrange(len(bindings))
    item = bindings[place]
    shape = list(item.shape)
    axis = source.randrange(6)
    shape[axis] = _near(shape[axis], source)
    bindings[place] = source.choice(
        (
            replace(item, shape=tuple(shape)),
            replace(item, shape=tuple(source.sample(item.shape, 6))),
            replace(item, element_size=source.choice((0, 1, 2, 3, 4, 8, -1))),
            replace(item, address=_near(item.address, source)),
            replace(item, region=source.choice((-1, 0, 2, 7, 8))),
            source.choice([*blob.inputs, *blob.outputs]),
        )
    )
    if source.random() < 0.2:
        bindings = source.choice((bindings[:-1], bindings * 2))
    fields: dict[str, Any] = {side: tuple(bindings)}
    return replace(blob, **fields)


def _near(value: int, source: random.Random) -> int:
    near = [value + step for step in (-16, -8, -1, 1, 8, 16)] + [value * 2, value // 2]
    return source.choice([item for item in (*EXTREMES, *near, *range(6)) if -(1 << 31) <= item < 1 << 31])


def _changed_data(named: Mapping[str, bytes], source: random.Random) -> Mapping[str, bytes]:
    """With some probability, the bytes of a constant: cut off, gone, or those of another."""
    if source.random() > 0.1 or not named:
        return named
    changed = dict(named)
    key = source.choice(sorted(changed))
    if source.random() < 0.3:
        del changed[key]
    else:
        changed[key] = source.choice((changed[key][:-1], changed[key][: len(changed[key]) // 2], *changed.values()))
    return changed


def _qnn(delegate: Delegate, source: random.Random) -> Delegate:
    """Options and header. The context is the vendor's: it stays as it is, or is damaged so that the checksum fails."""
    change = source.randrange(4)
    if change == 0:
        blob = bytearray(delegate.blob)
        for _ in range(source.choice((1, 1, 4))):
            blob[source.choice((source.randrange(qnn.HEADER_SIZE), source.randrange(len(blob))))] = source.randrange(
                256
            )
        return replace(delegate, blob=bytes(blob[: source.choice((len(blob), len(blob), source.randrange(len(blob))))]))
    known = qnn.read_blob(delegate.blob)
    if change == 1:
        borders = source.choice(((), known.borders[1:], known.borders * 2, (0,)))
        version = source.choice(("", known.version, "99.0.0", "0", "x.y", "1." * 16))
        return replace(delegate, blob=qnn.write_blob(replace(known, borders=borders, version=version)))
    (value,) = (item.value for item in delegate.table.compile_specs or () if item.key == qnn_spec.KEY)
    options = flatbuffer.parse(qnn_spec.Options, value)
    change_root(options, source)
    return delegate.with_spec(qnn_spec.KEY, flatbuffer.serialize(options))


# -- JSON ------------------------------------------------------------------------------------------------------------

_JSON_VALUES = (0, 1, -1, 2, 3, 7, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 63))
_JSON_OTHERS = (0.5, -1.5, 1e308, True, None, "", "float32", [], {}, [[0]], {"value": 0}, {"float": "nan"})


def _reference(delegate: Delegate, source: random.Random) -> Delegate:
    content = json.loads(bytes(SEAL.unwrap(delegate.blob)))
    for _ in range(source.choice((1, 1, 2, 3))):
        _change_json(content, source)
    body = json.dumps(content, allow_nan=False).encode("ascii")
    return replace(delegate, blob=SEAL.wrap(body), named=_changed_data(delegate.named, source))


def _change_json(content: Any, source: random.Random) -> None:
    places = list(_places(content))
    container, key = source.choice(places)
    value = container[key]
    others = [owner[name] for owner, name in places if type(owner[name]) is type(value)]
    change = source.random()
    if change < 0.4:
        near = [value + step for step in (-1, 1, 2)] if type(value) is int else []
        container[key] = source.choice((*_JSON_VALUES, *near))
    elif change < 0.7:
        container[key] = copy.deepcopy(source.choice(others))
    elif change < 0.8:
        container[key] = copy.deepcopy(source.choice(_JSON_OTHERS))
    elif isinstance(container, list):
        if change < 0.9:
            container.insert(key, copy.deepcopy(value))
        else:
            del container[key]


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in list(pairs):
        yield content, key
        yield from _places(value)


# -- archives --------------------------------------------------------------------------------------------------------

_RECORD = struct.Struct("<IIQQ")


def _coreml(delegate: Delegate, source: random.Random) -> Delegate:
    """A file of the archive, its directory, or any bytes of it."""
    change = source.random()
    if change < 0.15:
        return replace(delegate, blob=_changed_directory(delegate.blob, source))
    if change < 0.25:
        return replace(delegate, blob=mutate(delegate.blob, [], source))
    files = {path: bytes(content) for path, content in read_archive(delegate.blob).items()}
    (model,) = (path for path in files if path.endswith(".mlmodel"))
    weights = next((path for path in files if path.endswith("weight.bin")), model)
    if change < 0.75:
        files[model] = change_message(files[model], source)
    elif change < 0.9:
        files[weights] = _changed_records(files[weights], source)
    else:
        path = source.choice([item for item in files if item.endswith(".json")])
        content = json.loads(files[path])
        _change_json(content, source)
        files[path] = json.dumps(content).encode()
    return replace(delegate, blob=b"".join(map(bytes, write_archive({**files, model: files[model] or b"\0"}))))


def _changed_directory(blob: bytes, source: random.Random) -> bytes:
    """The directory is at the end, its bytes in reverse order."""
    directory, size = json.JSONDecoder().raw_decode(blob[::-1].decode("latin-1"))
    _change_json(directory, source)
    return blob[:-size] + json.dumps(directory).encode()[::-1]


def _changed_records(weights: bytes, source: random.Random) -> bytes:
    """A number of one of the records of a file of weights, or the file cut off."""
    if source.random() < 0.2:
        return weights[: source.randrange(1, len(weights))]
    changed = bytearray(weights)
    marks = [at for at in range(64, len(changed) - 64, 64) if changed[at : at + 4] == b"\xef\xbe\xad\xde"]
    if not marks:
        return bytes(changed)
    at, place = source.choice(marks), source.randrange(4)
    numbers = list(_RECORD.unpack_from(changed, at))
    limit = (1 << 32 if place < 2 else 1 << 64) - 1
    numbers[place] = source.choice((*EXTREMES, numbers[place] + 64, numbers[place] - 64, *range(16))) & limit
    _RECORD.pack_into(changed, at, *numbers)
    return bytes(changed)


_DAMAGE: Mapping[str, Damage] = {
    "coreml": _coreml,
    "xnnpack": _xnnpack,
    "vulkan": _vulkan,
    "tosa": _tosa,
    "vela": _vela,
    "reference": _reference,
    "qnn": _qnn,
}
#: All formats.
FORMATS = (*FILES, *_DAMAGE)

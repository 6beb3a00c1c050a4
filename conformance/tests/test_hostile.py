"""Hostile text: it replaces each text of a payload, with the right checksum, and its effects are recorded."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from delegatekit_api import CompileSpec
from delegatekit_conformance.cases import contract, hostile, specimens
from delegatekit_conformance.cases.hostile import resealed, variants
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Outcome, Verdict

CONTEXT = Context("seeded", PROFILES["quick"])
SOURCE = Path(__file__).with_name("contract_backend.py").read_text()
(RULE,) = (case for case in contract.cases() if case.name == "contract/texts-are-only-text")


@pytest.fixture
def install(install_plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs the backend with lines of its source replaced."""
    programs = {name: specimens.SPECIMENS[name] for name in ("arithmetic", "linear")}
    monkeypatch.setattr(specimens, "SPECIMENS", programs)

    def install(*changes: tuple[str, str]) -> None:
        source = SOURCE
        for old, new in changes:
            assert source.count(old) == 1
            source = source.replace(old, new)
        path = filter(None, [str(install_plugin("seeded", source)), os.environ.get("PYTHONPATH")])
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))

    return install


def texts(context: Context = CONTEXT) -> Outcome:
    (example,) = RULE.examples(context)
    return RULE.run(example, context)


PLAN = "        plan = json.loads(blob[8:])\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("", ""),
        ("        for step in plan['steps']: eval(repr(step[1])); eval(step[0], {step[0]: 0})\n", "evaluates"),
        ("        for name in plan['inputs']: __import__(name) if name.startswith('zq') else 0\n", "import"),
        ("        os.path.exists(plan['inputs'][0]) or os.system(': ' + plan['inputs'][0])\n", "os.system"),
    ],
)
def test_a_text_that_becomes_more_is_found(install: Callable[..., None], harm: str, words: str) -> None:
    install((PLAN, PLAN + harm))
    outcome = texts()
    assert outcome.verdict is (Verdict.VIOLATION if harm else Verdict.PASSED), outcome.detail
    assert words in outcome.detail


def test_texts_stand_in_blobs_with_the_right_checksum(install: Callable[..., None]) -> None:
    install()
    (item,) = specimens.sample("linear", CONTEXT)
    found = list(variants(item))
    read = set()
    for variant in found:
        blob = bytes(variant.payload.blob)
        if blob[:4] == b"SEED":
            assert blob[4:8] == zlib.crc32(blob[8:]).to_bytes(4, "little"), variant.what
            read |= hostile._texts(json.loads(blob[8:]))
    assert set(hostile.TEXTS) <= {text.strip() for text in read}
    assert any(spec.value == b"zq7()" for variant in found for spec in variant.payload.compile_specs)


def test_checksums_are_corrected_wherever_formats_put_them() -> None:
    body, other = b"a body of some bytes", b"another, and longer, body"
    crc = zlib.crc32
    for old, new in (
        (b"HEAD" + crc(body).to_bytes(4, "little") + body, b"HEAD" + crc(other).to_bytes(4, "little") + other),
        (
            b"HEAD" + crc(b"HEAD" + body).to_bytes(4, "little") + body,
            b"HEAD" + crc(b"HEAD" + other).to_bytes(4, "little") + other,
        ),
        (hashlib.sha256(body).digest() + body, hashlib.sha256(other).digest() + other),
    ):
        stale = old[: len(old) - len(body)] + other
        assert resealed(old, stale) == new
    assert resealed(b"no checksum", b"no checksum either") == b"no checksum either"


def test_what_is_only_handed_on_is_not_blamed() -> None:
    assert not hostile._program(("/opt/compiler", ["/opt/compiler", "--name", "zq7"], None, None))
    assert "starts" in hostile._program(("/bin/sh", ["sh", "-c", "compile zq7"], None, None))
    assert "starts" in hostile._program(("../zq7", ["../zq7"], None, None))


def test_only_the_executed_text_counts() -> None:
    listener = hostile.Listener()
    listener._known = b"\0(1, 2)\0"
    assert not listener._judged("compile", (b"(1, 2)", "<unknown>"))
    assert "'(1, 2)'" in listener._judged("exec", (compile("(1, 2)", "<string>", "eval"),))
    listener._compiled.clear()
    assert not listener._judged("exec", (compile("(1, 2)", "<string>", "eval"),)), "a dataclass's own code"
    assert not listener._judged("open", ("/usr/lib/kernels.bin", "r", 0))
    assert "open" in listener._judged("open", ("../zq7", "r", 0))


def test_compile_specs_get_texts_one_at_a_time(install: Callable[..., None]) -> None:
    install()
    (item,) = specimens.sample("linear", CONTEXT)
    two = (CompileSpec("level", b"1"), CompileSpec("name", b"x"))
    item = replace(item, payload=replace(item.payload, compile_specs=two))
    changed = [variant for variant in variants(item) if variant.payload.compile_specs != two]
    assert len(changed) == 2 * (len(hostile.TEXTS) + 1)
    for variant in changed:
        pairs = zip(variant.payload.compile_specs, two, strict=True)
        assert sum(one != other for one, other in pairs) == 1

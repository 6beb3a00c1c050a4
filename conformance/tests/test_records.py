"""Records: written, signed, verified, compared; damaged and hostile ones; those that wheels carry."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import test_installed
from test_report_page import make_run
from typer.testing import CliRunner, Result

from delegatekit.plugins import discovery
from delegatekit_api import FormatError
from delegatekit_conformance import cli, report
from delegatekit_conformance.installed import RECORD, Installation, of_wheel
from delegatekit_conformance.records import carried, checks, minisign
from delegatekit_conformance.records.age import age_of
from delegatekit_conformance.run import Run
from delegatekit_toolkit.json_text import LARGEST

pytest.importorskip("cryptography", reason="cryptography is not installed")


def conform(*arguments: object) -> Result:
    return CliRunner().invoke(cli.conform, [str(argument) for argument in arguments])


def lines(found: Result) -> dict[str, str]:
    """What `conform verify` printed, by subject."""
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return {line[7:].partition(":")[0]: line for line in found.output.splitlines()}


def of(run: Run, **backend: Any) -> Run:
    return replace(run, backend=replace(run.backend, **backend))


@pytest.fixture(scope="module")
def run() -> Run:
    found = make_run(operators=12)
    return replace(found, chosen=len(found.results), suite=5000)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two keys: lab and other."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("lab", "other"):
        assert conform("key", folder / f"{name}.key").exit_code == 0
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return test_installed.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def of_the_wheel(run: Run, wheel: Path) -> Run:
    return of(run, name="acme", distribution="acme-npu", version="1.0", installation=of_wheel(wheel))


@pytest.fixture
def record(of_the_wheel: Run, tmp_path: Path, keys: Path) -> Path:
    """A signed record of a wheel."""
    path = tmp_path / "acme.json"
    report.write_record(path, of_the_wheel)
    assert conform("sign", path, "--key", keys / "lab.key").exit_code == 0
    return path


# -- writing ---------------------------------------------------------------------------------------------------------


def test_the_bytes_of_a_record_depend_on_its_values_alone(run: Run, tmp_path: Path) -> None:
    other = replace(run, versions=dict(reversed(run.versions.items())), machine=dict(reversed(run.machine.items())))
    for name, each in (("a", run), ("b", other)):
        report.write_record(tmp_path / name, each)
    data = (tmp_path / "a").read_bytes()
    assert data == (tmp_path / "b").read_bytes()
    assert data.count(b"\n") == 1
    assert data.isascii()
    assert report.read_json(tmp_path / "a") == run


def test_a_run_writes_a_record_of_what_was_tried(
    install_seeded: Callable[..., None], tmp_path: Path, keys: Path
) -> None:
    install_seeded()
    path = tmp_path / "seeded.json"
    case = "operators/aten.mul.Tensor/float32"
    conform("seeded", "--quick", "--jobs", "1", "--no-stock", "--select", case, "--record", path)
    told = json.loads(path.read_text())
    assert told["backend"]["installation"]["state"] == "unknown", "the test's plugin was not installed from a wheel"
    assert told["chosen"] == len(told["cases"]) == 1 < told["suite"]
    assert told["cases"][0]["cpu"] > 0
    assert {"torch", "delegatekit", "delegatekit-api", "delegatekit-toolkit", "delegatekit-conformance"} <= set(
        told["versions"]
    )
    assert told["machine"]["python"]
    assert conform("sign", path, "--key", keys / "lab.key").exit_code == 0
    assert conform("verify", path, "--key", keys / "lab.pub").exit_code == 0


def test_shards_become_one_record(run: Run, tmp_path: Path) -> None:
    paths = []
    for number in range(2):
        paths.append(tmp_path / f"{number}.json")
        results = run.results[number::2]
        report.write_json(paths[-1], replace(run, shard=(number + 1, 2), results=results, chosen=len(results)))
    assert conform("report", *paths, "--record", tmp_path / "all.json").exit_code == 0
    whole = checks.read(tmp_path / "all.json").run
    assert (whole.shard, whole.chosen, whole.suite) == (None, len(run.results), 5000)


# -- verifying -------------------------------------------------------------------------------------------------------


def test_a_record_that_is_right_is_said_to_be(record: Path, keys: Path, wheel: Path) -> None:
    found = conform("verify", record, "--key", keys / "other.pub", "--key", keys / "lab.pub", "--wheel", wheel)
    assert found.exit_code == 0, found.output
    assert [line[:7] for line in found.output.splitlines()] == ["right  "] * 3
    assert "(lab), timestamp:" in lines(found)["signature"]
    assert of_wheel(wheel).sha256 in lines(found)["wheel"]


def test_without_a_key_nothing_is_said_of_the_signer(record: Path, wheel: Path) -> None:
    found = conform("verify", record, "--wheel", wheel)
    assert found.exit_code == 0
    assert lines(found)["signature"].startswith("open")
    assert "--key FILE" in lines(found)["signature"]
    minisign.signature_of(record).unlink()
    assert lines(conform("verify", record))["signature"] == "open   signature: there is no acme.json.minisig"


def test_a_signature_that_is_asked_for_must_be_there_and_be_by_the_key(record: Path, keys: Path, wheel: Path) -> None:
    found = conform("verify", record, "--key", keys / "other.pub", "--wheel", wheel)
    assert found.exit_code == 1
    assert re.match(r"WRONG  signature: by the key [0-9A-F]{16}; given was [0-9A-F]{16}$", lines(found)["signature"])
    minisign.signature_of(record).unlink()
    found = conform("verify", record, "--key", keys / "lab.pub")
    assert found.exit_code == 1
    assert "WRONG  signature: there is no acme.json.minisig" in found.output


@pytest.mark.parametrize("place", [0.02, 0.5, 0.98])
def test_each_changed_byte_is_found(record: Path, keys: Path, wheel: Path, place: float) -> None:
    data = bytearray(record.read_bytes())
    digits = [index for index, byte in enumerate(data) if byte in b"12345678"]
    data[digits[int(place * len(digits))]] += 1
    record.write_bytes(data)
    found = conform("verify", record, "--key", keys / "lab.pub", "--wheel", wheel)
    assert found.exit_code == 1
    assert "WRONG  signature: it does not fit the file" in found.output


def test_a_record_that_was_cut_off_has_a_line_for_each_thing_wrong(record: Path, keys: Path) -> None:
    record.write_bytes(record.read_bytes()[:-100])
    found = conform("verify", record, "--key", keys / "lab.pub")
    assert found.exit_code == 1
    assert [line[:7] for line in found.output.splitlines()] == ["WRONG  "] * 2
    assert "is not JSON" in lines(found)["record"]
    assert conform("sign", record, "--key", keys / "lab.key").exit_code != 0


def test_what_is_signed_must_add_up(of_the_wheel: Run, tmp_path: Path, keys: Path) -> None:
    values = report.as_json(of_the_wheel)
    values["summary"]["faults"] = 0
    path = tmp_path / "lie.json"
    path.write_bytes(report.canonical(values))
    key = minisign.read_secret_key(keys / "lab.key", str)
    minisign.signature_of(path).write_text(minisign.sign(path.read_bytes(), key, path.name))
    found = conform("verify", path, "--key", keys / "lab.pub")
    assert found.exit_code == 1
    assert "WRONG  record: its summary has other faults than its cases: 0" in found.output
    assert lines(found)["signature"].startswith("right")
    with pytest.raises(FormatError, match=r"lie\.json: its summary has other faults"):
        checks.read(path)


def test_a_report_is_no_record(run: Run, tmp_path: Path, keys: Path) -> None:
    path = tmp_path / "report.json"
    report.write_json(path, run)
    found = conform("verify", path)
    assert (found.exit_code, lines(found)["record"][:5]) == (1, "WRONG")
    assert "`--record FILE` writes that" in found.output
    refused = conform("sign", path, "--key", keys / "lab.key")
    assert isinstance(refused.exception, FormatError)
    assert not minisign.signature_of(path).exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"format":2}',
        b'{"format":2,"backend":{},"cases":[]}',
        b'{"format":2,"format":2}',
        b'{"format":' + b"9" * 5000 + b"}",
        b'{"format":1e999}',
        b"\xff\xfe",
        b"null",
        b"[" + b"0," * 4_000_000 + b"0]",
    ],
    ids=range(12),
)
def test_hostile_files_are_told_in_a_line_and_soon(tmp_path: Path, keys: Path, data: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    start = time.process_time()
    found = conform("verify", path, "--key", keys / "lab.pub")
    assert found.exit_code == 1
    assert lines(found)["record"].startswith("WRONG")
    assert max(map(len, found.output.splitlines())) < 400
    assert time.process_time() - start < 20


def test_of_a_huge_file_little_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(64 << 30)
    assert len(report.read_bytes(path)) == LARGEST + 1
    found = conform("verify", path)
    assert found.exit_code == 1
    assert "are too many" in lines(found)["record"]


def test_the_wheel_must_be_the_same(record: Path, tmp_path: Path) -> None:
    files = {**test_installed.FILES, "acme_npu/plugin.py": b"NAME = 'other'\n"}
    found = conform("verify", record, "--wheel", test_installed.build(tmp_path / "other", files))
    assert found.exit_code == 1
    assert lines(found)["wheel"].startswith("WRONG")
    (tmp_path / "no.whl").write_bytes(b"x")
    assert "is no wheel" in lines(conform("verify", record, "--wheel", tmp_path / "no.whl"))["wheel"]


def test_a_record_of_no_wheel_fits_none(run: Run, tmp_path: Path, wheel: Path) -> None:
    path = tmp_path / "x.json"
    report.write_record(path, of(run, installation=Installation("editable", reason="an editable installation")))
    assert lines(conform("verify", path))["wheel"].startswith("open")
    found = conform("verify", path, "--wheel", wheel)
    assert found.exit_code == 1
    assert "WRONG  wheel: the record is of no wheel: an editable installation" in found.output


# -- what is installed -----------------------------------------------------------------------------------------------


@pytest.fixture
def installed(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The wheel, installed where backends are found."""
    folder = tmp_path / "site"
    test_installed.install(wheel, folder)
    monkeypatch.syspath_prepend(str(folder))
    discovery.refresh()
    yield folder
    monkeypatch.undo()
    discovery.refresh()


def test_without_a_wheel_what_is_installed_is_compared(record: Path, installed: Path) -> None:
    found = conform("verify", record)
    assert found.exit_code == 0, found.output
    assert lines(found)["wheel"].endswith("of acme-npu 1.0, as installed")
    (installed / "acme_npu" / "plugin.py").write_text("changed = True\n")
    found = conform("verify", record)
    assert found.exit_code == 1
    assert "not as it was installed: acme_npu/plugin.py" in lines(found)["wheel"]


def test_another_version_and_none_are_not_compared(
    of_the_wheel: Run, record: Path, installed: Path, tmp_path: Path
) -> None:
    path = tmp_path / "later.json"
    report.write_record(path, of(of_the_wheel, version="2.0"))
    assert "acme-npu 1.0 is installed" in lines(conform("verify", path))["wheel"]
    shutil.rmtree(installed)
    discovery.refresh()
    found = conform("verify", record)
    assert (found.exit_code, lines(found)["wheel"][:4]) == (0, "open")
    assert "not installed" in lines(found)["wheel"]


def carry(folder: Path, run: Run) -> Mapping[str, str]:
    report.write_record(folder / "acme_npu" / RECORD, run)
    return carried.lines(["acme"])


def test_a_wheel_tells_its_record(of_the_wheel: Run, installed: Path) -> None:
    assert carried.lines(["acme"]) == {}
    when = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    run = replace(of_the_wheel, started=when)
    faults = len(run.faults)
    expected = len(checks.views.expected(run.results))
    told = f"default: {faults} faults ({expected} expected) in {len(run.results)} cases, today; of these files"
    assert carry(installed, run) == {"acme": told}
    other = of(run, installation=Installation("wheel", "0" * 64, 8))
    assert carry(installed, other)["acme"].endswith("; OF OTHER FILES")
    assert carry(installed, of(run, installation=Installation()))["acme"].endswith("; of no wheel")
    assert carry(installed, of(run, name="globex")) == {}, "the record of another backend of the package"
    (installed / "acme_npu" / "plugin.py").write_text("changed = True\n")
    assert "not compared: not as it was installed: acme_npu/plugin.py" in carry(installed, run)["acme"]


@pytest.mark.parametrize("data", [b"", b"[" * 10_000, b"{}", b'{"backend": 1}', b'{"backend": {"name": 7}}', b"\xff"])
def test_a_damaged_record_of_a_wheel_is_told_in_its_line(installed: Path, data: bytes) -> None:
    (installed / "acme_npu" / RECORD).write_bytes(data)
    told = carried.lines(["acme"])["acme"]
    assert told.startswith("no record: ")
    assert len(told) < 300


def test_the_list_of_backends_shows_it(of_the_wheel: Run, installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib_metadata import EntryPoint

    from delegatekit.cli import backends as command

    carry(installed, of_the_wheel)
    point = EntryPoint("record", "delegatekit_conformance.records.carried:lines", command.FACTS_GROUP)
    broken = EntryPoint("worse", "delegatekit_conformance.records.carried:missing", command.FACTS_GROUP)
    monkeypatch.setattr(command, "entry_points", lambda group: (broken, point))
    said: list[Any] = []
    warned: list[str] = []
    monkeypatch.setattr(command, "print_json", said.append)
    monkeypatch.setattr(command, "warn", warned.append)
    command.backends(as_json=True)
    assert said[0]["acme"]["record"].endswith("; of these files")
    assert said[0]["reference"]["record"] is None
    assert (said[0]["acme"]["name"], said[0]["acme"]["compiler"]) == ("acme", None)
    assert len(warned) == 1
    assert "worse of delegatekit_conformance.records.carried:missing tells nothing of backends" in warned[0]


def test_ages_are_said_in_days() -> None:
    now = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)
    started = ("2026-11-29T11:00:00Z", "2026-11-28T11:00:00Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "now")
    assert [age_of(text, now) for text in started] == ["today", "1 day old", "332 days old", "from the future", ""]


# -- comparing -------------------------------------------------------------------------------------------------------


def test_records_and_reports_are_compared(of_the_wheel: Run, tmp_path: Path) -> None:
    report.write_json(tmp_path / "old.json", of_the_wheel)
    later = of(of_the_wheel, installation=Installation("wheel", "1" * 64, 8))
    report.write_record(tmp_path / "new.json", replace(later, results=later.results[1:]))
    found = conform("diff", tmp_path / "old.json", tmp_path / "new.json", "--json", tmp_path / "diff.json")
    assert found.exit_code == 0, found.output
    told = json.loads((tmp_path / "diff.json").read_text())
    assert [change["case"] for change in told["changes"]["only_old"]] == [later.results[0].case]
    names = {item["name"]: item["new"] for item in told["circumstances"]}
    assert names["SHA-256 of its wheel"] == "1" * 64

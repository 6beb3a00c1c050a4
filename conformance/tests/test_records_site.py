"""The site of records: its content, its links, hostile texts, its folder, and its looks in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import pytest
from test_report_page import NASTY, make_case, make_run

from delegatekit_api import FormatError
from delegatekit_conformance import report
from delegatekit_conformance.errors import InputError
from delegatekit_conformance.outcome import Verdict
from delegatekit_conformance.records import checks, minisign, site
from delegatekit_conformance.records.site import badge, entries, folder
from delegatekit_conformance.run import Run

pytest.importorskip("cryptography", reason="cryptography is not installed")
EVIL = "<script>alert(1)</script>../../\"'><img src=x onerror=alert(2)>"


class Parsed(HTMLParser):
    """Links, elements and text of a page."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.names: list[str] = []
        self.text = ""
        self.feed(data.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.links += [given[name] or "" for name in ("href", "src", "srcset", "action") if name in given]
        self.names += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def version(run: Run, text: str, started: str, **fields: Any) -> Run:
    return replace(run, backend=replace(run.backend, version=text), started=started, **fields)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("keys")
    for name in ("lab", "stranger"):
        minisign.write_key(found / f"{name}.key")
    return found


Make = Callable[..., checks.Record]


@pytest.fixture
def make(tmp_path: Path, keys: Path) -> Make:
    """make(run, signer): a record; signed, if there is a signer."""
    count = 0

    def record(run: Run, signer: str = "") -> checks.Record:
        nonlocal count
        count += 1
        path = tmp_path / f"{count}.json"
        report.write_record(path, run)
        if signer:
            key = minisign.read_secret_key(keys / f"{signer}.key", str)
            minisign.signature_of(path).write_text(minisign.sign(path.read_bytes(), key, path.name))
        return checks.read(path)

    return record


@pytest.fixture
def records(make: Make) -> Sequence[checks.Record]:
    """Two versions of acme by the lab, one of globex by a stranger, one with options that nobody signed."""
    acme, globex = make_run("acme", operators=12), make_run("globex.npu", operators=5, shift=3)
    models = tuple(
        make_case(f"models/{name}/small", verdict)
        for name, verdict in (("resnet-50", Verdict.DELEGATED), ("whisper-tiny-encoder", Verdict.MISMATCH))
    )
    sound = tuple(result for result in acme.results if not result.verdict.is_fault)
    crashed = make_case("operators/new/float32", Verdict.CRASH, operator="new", dtype="float32")
    return [
        make(version(acme, "1.9", "2026-10-01T12:00:00Z", results=acme.results + models), "lab"),
        make(version(acme, "1.10", "2026-11-01T12:00:00Z", results=(*sound, models[1], crashed)), "lab"),
        make(version(globex, "0.1", "2026-11-02T12:00:00Z"), "stranger"),
        make(version(acme, "1.10", "2026-11-03T12:00:00Z", options={"target": "big"})),
    ]


@pytest.fixture
def lab(keys: Path) -> list[minisign.PublicKey]:
    return [minisign.read_public_key(keys / "lab.pub")]


@pytest.fixture
def files(records: Sequence[checks.Record], lab: list[minisign.PublicKey]) -> dict[str, bytes]:
    return site.pages(records, lab)


def test_each_link_leads_to_a_file_of_the_site_and_nowhere_else(files: dict[str, bytes]) -> None:
    for name, data in files.items():
        if not name.endswith(".html"):
            continue
        parsed = Parsed(data)
        for link in parsed.links:
            if link.startswith(("#", "data:")):
                continue
            target = PurePosixPath(name).parent / link.partition("#")[0]
            parts: list[str] = []
            for part in target.parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            assert "/".join(parts) in files, (name, link)
        if not name.startswith("records/"):
            assert "script" not in parsed.tags
            assert "default-src &#39;none&#39;" in data.decode()
            assert "script-src &#39;none&#39;" in data.decode()


def test_the_newest_version_is_that_of_the_numbers(files: dict[str, bytes]) -> None:
    text = Parsed(files["index.html"]).text
    assert "acme 1.10" in " ".join(text.split())
    page = Parsed(files["backends/acme.html"]).text.partition("History")[2]
    assert page.index("1.10") < page.index("1.9")


def test_history_counts_what_changed(records: Sequence[checks.Record], lab: list[minisign.PublicKey]) -> None:
    found = {backend.label: backend for backend in entries.backends(entries.entries(records, lab))}
    assert list(found) == ["acme", "acme target=big", "globex.npu"]
    first, second = found["acme"].steps
    assert first.count("faults") == "–"
    assert second.count("faults") == "1", "the crash"
    assert second.change is not None
    assert second.count("fixed") == "0"
    assert second.count("lost", "only_old") == f"{len(second.change.of('only_old')):,}" != "0"
    since = {card.case: dict(card.facts)["since"] for card in found["acme"].cards(expected=False)}
    assert since == {"models/whisper-tiny-encoder/small": "1.9", "operators/new/float32": "1.10"}


def test_each_fault_has_its_snippet(files: dict[str, bytes]) -> None:
    parsed = Parsed(files["backends/acme.html"])
    assert parsed.text.count("import torch") == 2
    assert "models/whisper-tiny-encoder/small" in parsed.text


def test_matrices_have_backends_operators_dtypes_and_models(files: dict[str, bytes]) -> None:
    operators = files["operators.html"].decode()
    assert operators.count('scope="colgroup"') == 3
    assert "aten.an_operator_with_a_long_name_11" in Parsed(files["operators.html"]).text
    assert operators.count('<abbr title="bfloat16">bf16</abbr>') == 3
    models = Parsed(files["models.html"]).text
    assert "whisper-" in models
    assert "wrong result" in models


def test_who_signed_is_said_and_what_nobody_verified_is_marked(files: dict[str, bytes]) -> None:
    page = " ".join(Parsed(files["index.html"]).text.split())
    assert "not signed" in page
    assert "not verified: key" in page
    assert page.count("✓ lab") == 3, "a card and two records"
    assert b"not verified" in files["badges/globex.npu.svg"]
    assert b"not verified" in files["badges/acme-target-big.svg"]
    assert b"not verified" not in files["badges/acme.svg"]
    assert len([name for name in files if name.startswith("keys/")]) == 1


def test_a_verified_record_is_not_overruled_by_a_later_one_that_is_not(
    make: Make, lab: list[minisign.PublicKey]
) -> None:
    run = replace(make_run(operators=1), results=(make_case("contract/a", Verdict.VIOLATION),))
    fine = replace(run, results=(make_case("contract/a", Verdict.PASSED),), started="2027-01-01T00:00:00Z")
    (found,) = entries.backends(entries.entries([make(run, "lab"), make(fine)], lab))
    assert found.known["contract/a"].result.verdict is Verdict.VIOLATION
    assert found.is_verified


def test_the_records_can_be_verified_from_the_site(
    files: dict[str, bytes], tmp_path: Path, lab: list[minisign.PublicKey]
) -> None:
    site.write_folder(tmp_path / "site", files)
    for path in (tmp_path / "site" / "records").glob("acme-1.*.json"):
        if minisign.signature_of(path).exists():
            (number,) = (tmp_path / "site" / "keys").iterdir()
            findings = checks.verify(path, [minisign.read_public_key(number)])
            assert [finding.right for finding in findings[:2]] == [True, True]


def test_a_signature_that_does_not_fit_stops_everything(
    records: Sequence[checks.Record], lab: list[minisign.PublicKey]
) -> None:
    path = minisign.signature_of(records[0].path)
    path.write_bytes(minisign.signature_of(records[1].path).read_bytes())
    with pytest.raises(FormatError, match=r"1\.json\.minisig: it does not fit the file"):
        site.pages([checks.read(records[0].path)], lab)


def test_the_same_records_give_the_same_site(
    records: Sequence[checks.Record], lab: list[minisign.PublicKey], files: dict[str, bytes]
) -> None:
    again = site.pages([*records[::-1], records[0]], lab)
    assert again.keys() == files.keys()
    assert [name for name in again if again[name] != files[name]] == []


def test_hostile_texts_stay_texts(make: Make, lab: list[minisign.PublicKey]) -> None:
    run = make_run(operators=3)
    backend = replace(run.backend, name=EVIL, distribution=EVIL, version=EVIL, summary=NASTY, reason=EVIL)
    evil = replace(
        run,
        backend=replace(backend, available=False),
        profile=EVIL,
        started=EVIL,
        selection=EVIL,
        options={EVIL: EVIL},
        machine={EVIL: NASTY},
        device={"name": NASTY},
        versions={EVIL: EVIL},
        results=(*run.results, make_case(f"models/{EVIL}", Verdict.MISMATCH, operator=EVIL, dtype=EVIL)),
    )
    files = site.pages([make(evil, "lab"), make(replace(evil, seed=1))], lab)
    for name, data in files.items():
        assert all(part.replace("-", "").replace(".", "").isalnum() for part in name.split("/")), name
        assert not name.startswith(".")
        if name.endswith(".html") and not name.startswith("records/"):
            parsed = Parsed(data)
            assert not {"script", "img", "iframe"} & set(parsed.tags), name
            assert not [each for each in parsed.names if each.startswith("on") or each == "style"], name
            assert "\x1b" not in parsed.text
        elif name.endswith(".svg"):
            assert {each.tag.rpartition("}")[2] for each in ElementTree.fromstring(data).iter()} <= {
                *("svg", "title", "rect", "path", "g", "text")
            }


def test_names_that_become_one_file_name_get_files_of_their_own(make: Make) -> None:
    runs = [make_run(name, operators=1) for name in ("a b", "a-b", "A.b")]
    files = site.pages([make(run) for run in runs], ())
    assert {name for name in files if name.startswith("backends/")} == {
        f"backends/{name}.html" for name in ("a-b", "a-b-2", "a.b")
    }


def test_a_site_of_one_record_without_operators_and_faults(make: Make) -> None:
    run = replace(make_run(operators=1), results=(make_case("contract/a", Verdict.PASSED),))
    files = site.pages([make(run)], ())
    assert "operators.html" not in files
    assert "models.html" not in files
    assert b"no faults in 1, not verified" in files["badges/acme.svg"]
    assert b"no record here is verified" in files["index.html"]


@pytest.mark.parametrize("kind", badge.COLORS)
def test_badges_are_readable(kind: str, contrast: Callable[[str, str], float]) -> None:
    assert contrast("#ffffff", badge.COLORS[kind]) >= 4.5
    drawn = ElementTree.fromstring(badge.badge("acme 1.0", "no faults", kind))
    assert drawn.get("aria-label") == "acme 1.0: no faults"
    assert int(drawn.get("width", "0")) < 400


# -- the folder ------------------------------------------------------------------------------------------------------


def test_a_site_replaces_one_that_publish_made(tmp_path: Path, files: dict[str, bytes]) -> None:
    place = tmp_path / "site"
    place.mkdir()
    site.write_folder(place, files)
    less = {name: data for name, data in files.items() if not name.startswith("badges/")}
    less[folder.INDEX] = json.dumps({"made_by": folder.MADE_BY, "files": [*less]}).encode()
    site.write_folder(place, less)
    found = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    assert found == less.keys()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["site"], "nothing else remains"


def refuse(place: Path, files: dict[str, bytes], match: str) -> None:
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=match):
        site.write_folder(place, files)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_other_folders_are_refused(tmp_path: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").write_bytes(b"cat")
    refuse(other, files, "did not make it")
    (other / folder.INDEX).write_text('{"made_by": "somebody else", "files": ["cat.jpg", "site.json"]}')
    refuse(other, files, "did not make it")
    place = tmp_path / "site"
    site.write_folder(place, files)
    (place / "CNAME").write_text("example.org")
    refuse(place, files, "did not write: CNAME")
    (place / "CNAME").unlink()
    monkeypatch.chdir(place / "records")
    refuse(place, files, "working folder")
    monkeypatch.chdir(tmp_path)
    refuse(tmp_path, files, "working folder")
    with pytest.raises(InputError, match="is no folder"):
        site.write_folder(tmp_path / "1.json", files)
    with pytest.raises(InputError, match="does not exist"):
        site.write_folder(tmp_path / "no" / "site", files)


def test_a_site_is_whole_or_as_it_was(tmp_path: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "site"
    site.write_folder(place, files)
    write = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if self.suffix == ".svg":
            raise OSError(28, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    for target in (place, tmp_path / "new"):
        with pytest.raises(FormatError, match="cannot be written: No space left"):
            site.write_folder(target, files)
    monkeypatch.undo()
    rename = Path.rename

    def stuck(self: Path, target: Path) -> Path:
        if self.suffix == ".part":
            raise OSError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stuck)
    with pytest.raises(FormatError, match="Permission denied"):
        site.write_folder(place, {folder.INDEX: b"{}"})
    monkeypatch.undo()
    assert {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()} == files.keys()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["site"]


# -- in a browser ----------------------------------------------------------------------------------------------------


def test_nothing_overflows_a_phone_and_nothing_complains(
    browser: Any, watched: Any, files: dict[str, bytes], tmp_path: Path
) -> None:
    site.write_folder(tmp_path / "site", files)
    context = browser.new_context(viewport={"width": 360, "height": 740})
    tab, complaints, requests = watched(context)
    for name in files:
        if name.endswith((".html", ".svg")):
            tab.goto((tmp_path / "site" / name).as_uri())
            if name.endswith(".html"):
                width = tab.locator("html").evaluate("(html) => html.ownerDocument.scrollingElement.scrollWidth")
                assert width <= 360, name
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    tab.goto((tmp_path / "site" / "index.html").as_uri())
    row = tab.locator("#records tbody tr").first
    assert row.bounding_box()["height"] > 150, "a card, whose cells stand below each other"
    tab.set_viewport_size({"width": 1280, "height": 800})
    assert row.bounding_box()["height"] < 100
    context.close()

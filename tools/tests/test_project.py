"""Projects of backends: made complete, brought to a newer template with their changes kept, refused with one error."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from freeze_template import freeze
from typer.testing import CliRunner

from delegatekit.cli import application
from delegatekit_tools.project import create, update
from delegatekit_tools.project.making import ProjectError
from delegatekit_tools.project.templates import ANSWERS, EARLIER, TEMPLATES, Template

pytest.importorskip("copier", reason="needs delegatekit-tools[new]")

DEVICE, LIBRARY = (TEMPLATES[name] for name in ("device", "library"))
PRESENT = DEVICE.present
#: A template of the time before the first release, kept as it was.
FROZEN = Path(__file__).parent / "templates"
#: Where the packages of this repository are, for processes of their own.
PACKAGES = os.pathsep.join(path for path in sys.path if path)


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Vendor", "-c", "user.email=vendor@example.com")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def committed(folder: Path) -> None:
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Begin")


@pytest.fixture(scope="module", params=list(TEMPLATES))
def project(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, write_metadata: Any
) -> Iterator[tuple[Path, dict[str, str]]]:
    """A project of each template, and the environment in which its backend counts as installed."""
    from packages import Package

    if request.param == "library":
        pytest.importorskip("onnxruntime", reason="the template's library is not installed")
    folder = tmp_path_factory.mktemp("vendor") / "delegatekit-novum"
    create("novum", folder, template=request.param)
    metadata = write_metadata(tmp_path_factory.mktemp("metadata"), Package(folder))
    path = os.pathsep.join((str(folder / "src"), str(metadata), PACKAGES))
    yield folder, os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def run(project: tuple[Path, dict[str, str]], *command: str) -> str:
    folder, environment = project
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_a_new_project_has_no_word_of_the_template(project: tuple[Path, dict[str, str]]) -> None:
    folder, _ = project
    texts = {path: path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}
    assert folder / "src" / "delegatekit_novum" / "plugin.py" in texts
    assert [
        path for path, text in texts.items() if "{{" in text or "acme" in text.lower() or path.suffix == ".jinja"
    ] == []


def test_a_new_project_passes_its_own_tests(project: tuple[Path, dict[str, str]]) -> None:
    assert " passed" in run(project, "pytest", "-q", "-p", "no:cacheprovider", "tests")


def test_a_new_project_is_linted_and_typed(project: tuple[Path, dict[str, str]]) -> None:
    run(project, "ruff", "check", "--no-cache", ".")
    run(project, "ruff", "format", "--no-cache", "--check", ".")
    run(project, "mypy", "--cache-dir", os.devnull)


def test_the_pages_of_a_new_project_are_written_and_checked(project: tuple[Path, dict[str, str]]) -> None:
    said = run(project, "delegatekit", "docs", "novum", "--executorch")
    assert "operators.md" in said
    run(project, "delegatekit", "docs", "novum", "--executorch", "--check")
    # What the readme refers to is there.
    for line in (project[0] / "README.md").read_text("utf-8").splitlines():
        for target in line.split("](docs/")[1:]:
            assert (project[0] / "docs" / target.partition(")")[0]).is_file(), target


def test_a_new_project_keeps_the_contract(project: tuple[Path, dict[str, str]]) -> None:
    selected = ("--select", "contract/description*", "--select", "quantized/given-constants", "--select", "quality")
    said = run(project, "delegatekit", "conform", "novum", "--quick", "--jobs", "1", *selected)
    assert "0 faulty" in said or "no faults" in said, said


@pytest.mark.parametrize("project", ["library"], indirect=True)
def test_networks_of_transformers_are_one_delegate_of_a_library(project: tuple[Path, dict[str, str]]) -> None:
    pytest.importorskip("transformers")
    networks = ("--select", "models/mobilenet-v2/small", "--select", "models/bert-base/small")
    whole = ("--option", "novum.whole_graph=true")  # a network of several delegates is refused, which is no fault
    said = run(project, "delegatekit", "conform", "novum", "--quick", "--jobs", "1", *networks, *whole)
    assert "2 correct, delegated" in said, said
    assert "no faults" in said, said


@pytest.mark.slow
def test_a_new_project_passes_conformance(project: tuple[Path, dict[str, str]]) -> None:
    run(project, "delegatekit", "conform", "novum", "--quick")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_kernels_of_a_native_project_have_the_bits_of_the_reference(
    project: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder = tmp_path / "native"
    create("novum", folder, native=True)
    package = folder / "src" / "delegatekit_novum"
    # What CMakeLists.txt does.
    command = ["cc", "-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC"]
    files = [str(folder / "native" / "kernels.c"), "-o", str(package / "_kernels.so"), "-lm"]
    subprocess.run([*command, *files], check=True)
    environment = project[1] | {"PYTHONPATH": os.pathsep.join((str(folder / "src"), project[1]["PYTHONPATH"]))}
    said = run((folder, environment), "pytest", "-q", "-p", "no:cacheprovider", "tests/test_kernels.py")
    assert "8 passed" in said
    run((folder, environment), "ruff", "check", "--no-cache", ".")
    run((folder, environment), "ruff", "format", "--no-cache", "--check", ".")


def earlier(tmp_path: Path, template: Template = DEVICE, **changes: str) -> Path:
    """Archives with the present template as version 0.8, its texts replaced: "old" by "new" of each pair."""
    files = tmp_path / "present"
    template.unpack(template.present, files)
    (tmp_path / template.name).mkdir()
    with zipfile.ZipFile(tmp_path / template.name / "0.8.zip", "w") as packed:
        for path in files.rglob("*"):
            if path.is_file():
                text = path.read_text("utf-8")
                for new, old in changes.items():
                    text = text.replace(new, old)
                packed.writestr(path.relative_to(files).as_posix(), text)
    return tmp_path


def old_project(
    folder: Path, archives: Path, version: str, monkeypatch: pytest.MonkeyPatch, template: Template = DEVICE
) -> None:
    """A project as the release of an earlier template made it."""
    unpacked = folder.with_name("template")
    with zipfile.ZipFile(archives / template.name / f"{version}.zip") as archive:
        archive.extractall(unpacked)
    with monkeypatch.context() as patch:
        old = dataclasses.replace(template, present=version, folders=(unpacked,))
        patch.setitem(TEMPLATES, template.name, old)
        create("novum", folder, template=template.name)
    assert f"_commit: v{version}" in (folder / ANSWERS).read_text()
    committed(folder)


def test_a_project_of_the_frozen_template_becomes_the_present_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, fresh = tmp_path / "novum", tmp_path / "fresh"
    old_project(folder, FROZEN, "0.9", monkeypatch)
    found = update(folder, earlier=FROZEN)
    assert (found.template, found.before, found.version, found.conflicts) == ("device", "0.9", PRESENT, ())
    create("novum", fresh)
    names = {path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()}
    kept = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts}
    assert kept == names
    assert [name for name in sorted(names) if (folder / name).read_text() != (fresh / name).read_text()] == []


def test_a_project_is_updated_by_the_template_that_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archives = earlier(tmp_path, LIBRARY, **{"The options of the backend.": "The options."})
    folder, fresh = tmp_path / "novum", tmp_path / "fresh"
    old_project(folder, archives, "0.8", monkeypatch, LIBRARY)
    own = folder / "src/delegatekit_novum/library.py"
    own.write_text(own.read_text().replace("1.20", "1.22"))
    git(folder, "commit", "--quiet", "--all", "--message", "Change")
    found = update(folder, earlier=archives)
    assert (found.template, found.before, found.version, found.conflicts) == ("library", "0.8", LIBRARY.present, ())
    create("novum", fresh, template="library")
    names = {path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()}
    assert [str(name) for name in names if (folder / name).read_text() != (fresh / name).read_text()] == [
        "src/delegatekit_novum/library.py"
    ]
    assert "1.22" in own.read_text()


def test_an_update_keeps_what_the_vendor_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archives = earlier(tmp_path, **{"The options of the backend.": "The options."})
    folder = tmp_path / "novum"
    old_project(folder, archives, "0.8", monkeypatch)
    targets, own = folder / "src/delegatekit_novum/targets.py", folder / "src/delegatekit_novum/own.py"
    targets.write_text(targets.read_text().replace("macs=256", "macs=512"))
    own.write_text("X = 1\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Change")
    found = update(folder, earlier=archives)
    assert (found.before, found.conflicts) == ("0.8", ())
    assert "macs=512" in targets.read_text()
    assert own.read_text() == "X = 1\n"
    assert "The options of the backend." in (folder / "src/delegatekit_novum/options.py").read_text()
    assert f"v{PRESENT}" in (folder / ANSWERS).read_text()


def test_lines_that_both_changed_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archives = earlier(tmp_path, **{"The options of the backend.": "The options."})
    folder = tmp_path / "novum"
    old_project(folder, archives, "0.8", monkeypatch)
    options = folder / "src/delegatekit_novum/options.py"
    options.write_text(options.read_text().replace("The options.", "What users of our NPU choose."))
    git(folder, "commit", "--quiet", "--all", "--message", "Change")
    found = update(folder, earlier=archives)
    assert [path.name for path in found.conflicts] == ["options.py"]
    text = options.read_text()
    assert "What users of our NPU choose." in text
    assert "The options of the backend." in text


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=list(TEMPLATES))
def test_the_archive_of_a_template_has_the_same_bytes_each_time(tmp_path: Path, template: Template) -> None:
    first, second = (freeze(template, tmp_path / name) for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()
    assert template.versions(tmp_path / "one") == [template.present] * 2
    assert template.versions()[-1] == template.present
    assert not EARLIER.exists() or all(path.suffix == ".zip" for path in EARLIER.glob("*/*"))


@pytest.mark.parametrize("name", ["Acme", "a-b", "1a", "a__b", "a" * 41, "", "import", "../x", "a b"])
def test_a_name_that_no_package_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="cannot be the name of a backend"):
        create(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_template_that_is_not_there_or_has_no_kernels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="there is no template 'format'") as caught:
        create("novum", tmp_path / "new", template="format")
    assert caught.value.hint == "templates are device, library"
    with pytest.raises(ProjectError, match="the template library has no kernels in C"):
        create("novum", tmp_path / "new", template="library", native=True)
    assert not (tmp_path / "new").exists()


def test_a_folder_with_files_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("1")
    with pytest.raises(ProjectError, match="is not empty"):
        create("novum", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_cannot_be_updated_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="did not make it"):
        update(tmp_path)
    folder = tmp_path / "novum"
    create("novum", folder)
    with pytest.raises(ProjectError, match="is not in a git repository"):
        update(folder)
    committed(folder)
    (folder / "README.md").write_text("changed")
    with pytest.raises(ProjectError, match=r"not committed: README\.md"):
        update(folder)
    answers = (folder / ANSWERS).read_text()
    for text, message in (
        (answers.replace(f"v{PRESENT}", "v99.0"), r"made by version 99\.0 of the template device"),
        (answers.replace(f"v{PRESENT}", "--upload-pack=x"), "which is not among those known"),
        ("[1", "is damaged"),
        ("- 1", "has no answers"),
        ("!!python/object/apply:os.system ['true']", "is damaged"),
    ):
        (folder / ANSWERS).write_text(text)
        with pytest.raises(ProjectError, match=message):
            update(folder)


def test_an_answer_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "novum"
    create("novum", folder)
    path = folder / ANSWERS
    path.write_text(path.read_text().replace("https://delegatekit.invalid/backend.git", str(tmp_path / "other.git")))
    committed(folder)
    with pytest.raises(ProjectError, match="another template"):
        update(folder)


def test_without_copier_the_line_that_installs_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "copier", None)
    with pytest.raises(ProjectError, match="copier is not installed") as caught:
        create("novum", tmp_path / "new")
    assert caught.value.hint == "pip install 'delegatekit[new]'"
    assert not (tmp_path / "new").exists()


def test_the_command_tells_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(application(), ["new", "novum"])
    assert done.exit_code == 0, done.output
    assert "cd delegatekit-novum" in done.output
    assert (tmp_path / "delegatekit-novum" / "pyproject.toml").is_file()
    assert CliRunner().invoke(application(), ["new"]).exit_code != 0


def test_the_command_makes_the_template_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(application(), ["new", "novum", "--template", "library"])
    assert done.exit_code == 0, done.output
    assert "by template library" in done.output
    assert (tmp_path / "delegatekit-novum/src/delegatekit_novum/library.py").is_file()
    for wrong in (
        ["novum", "--template", "format"],
        ["novum", "--template", "library", "--native"],
        ["--update", "-t", "x"],
    ):
        assert CliRunner().invoke(application(), ["new", *wrong, "-o", "other"]).exit_code != 0
    assert not (tmp_path / "other").exists()

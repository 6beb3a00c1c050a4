"""The architecture's borders, for every package that is found: allowed imports, and the cost of importing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import importlib_metadata
import pytest
import torch
from imports import circles, imports, module_graph, owner, reachable, room, room_graph
from packages import ROOT, Package, examples, packages, plugins, requirement_name


def normal(distribution: str) -> str:
    """A distribution's name as installers compare it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


PACKAGES = packages()
PLUGINS = [*plugins(), *examples()]
EVERY = [*PACKAGES, *examples()]
OURS = {package.module: package for package in EVERY}

#: Modules that no plugin, and no other package that plugins may need, imports.
UPSTAIRS = frozenset(
    {"delegatekit", "delegatekit-tools", "delegatekit-executorch", "delegatekit-llm", "delegatekit-lab"}
    | {"delegatekit-conformance"}
)
#: Distribution -> those of ours that it may import.
BELOW = {
    "delegatekit-api": frozenset[str](),
    "delegatekit-toolkit": frozenset({"delegatekit-api"}),
    "delegatekit": frozenset({"delegatekit-api", "delegatekit-toolkit"}),
    "delegatekit-tools": frozenset({"delegatekit-api", "delegatekit-toolkit", "delegatekit"}),
    "delegatekit-executorch": frozenset({"delegatekit-api", "delegatekit-toolkit", "delegatekit", "delegatekit-tools"}),
    "delegatekit-llm": frozenset(
        {"delegatekit-api", "delegatekit-toolkit", "delegatekit", "delegatekit-tools", "delegatekit-executorch"}
        | {"delegatekit-llama"}
    ),
    "delegatekit-lab": frozenset({"delegatekit-api", "delegatekit-toolkit", "delegatekit", "delegatekit-tools"}),
    "delegatekit-conformance": frozenset(
        {"delegatekit-api", "delegatekit-toolkit", "delegatekit", "delegatekit-tools", "delegatekit-executorch"}
    ),
}
#: Packages whose names are loaded on first use, where they are installed.
LAZY = {"delegatekit": frozenset({"delegatekit-tools"})}
#: Undeclared imports of packages, with reasons.
UNDECLARED = {
    # Given torch's objects, it imports torch inside functions; callers with such objects have torch.
    "delegatekit-api": frozenset({"torch"}),
    # Pretrained models whose metadata asks for too much: they are installed without it.
    "delegatekit-conformance": frozenset(
        normal(requirement_name(line))
        for line in (ROOT / "requirements-models.txt").read_text("utf-8").splitlines()
        if not line.startswith("#")
    ),
}
#: Packages that must stay usable without a backend and without a vendor's tools.
NEUTRAL = frozenset(BELOW)
#: Backends that they still name: the suite's partner in programs of two backends, which may be missing, and the one
#: that has fused attention.
NAMED = {"delegatekit-conformance": frozenset({"reference"}), "delegatekit-llm": frozenset({"llama"})}
#: Names of backends and vendors that must not occur in those.
VENDORS = re.compile(r"xnnpack|core ?ml|vulkan|ethos.?u|vela|qnn|openvino|hexagon|cadence|vgf|\bmlx", re.IGNORECASE)
#: Files at the top that find packages by themselves.
CENTRAL = ("Makefile", "pyproject.toml", ".ci/run", "conftest.py", "packages.py", "docs/generate.py")

#: The rooms of a plugin, a file or a folder each: docs/architecture.md says what is in them.
ROOMS = frozenset(
    {"plugin", "options", "targets", "schemes", "support", "compile", "operators", "ir", "passes", "blob", "compiler"}
    | {"runtime", "shaders"}
)
#: Rooms that make a blob. `plugin` joins everything and is neither.
COMPILING = frozenset({"schemes", "support", "compile", "operators", "passes", "compiler"})
#: Rooms that read and run one.
RUNNING = frozenset({"blob", "runtime"})
#: The core's stages in the order of the data: none reaches one that comes later.
STAGES = ("edge", "partition", "lowering", "emit")
#: The core's rooms that know files only, not how they were made.
FILE_ROOMS = frozenset({"pte", "engine"})
#: Rooms that compile or quantize: running a file loads none of them.
COMPILERS = frozenset({*STAGES, "passes", "fallback", "compiling", "pipeline", "quantization"})

#: Modules of extras that are not among the development dependencies, and their distributions.
ELSEWHERE = {"model_explorer": frozenset({"ai-edge-model-explorer"})}


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@cache
def installed() -> dict[str, frozenset[str]]:
    """Module -> the installed distributions that bring it, their names in lower case."""
    found = importlib_metadata.packages_distributions()
    return {**ELSEWHERE, **{module: frozenset(map(normal, names)) for module, names in found.items()}}


def allowed(package: Package) -> frozenset[str]:
    """The distributions of ours that a package may import."""
    known = BELOW.get(package.distribution)
    if known is not None:
        return known
    siblings = {plugin.distribution for plugin in PLUGINS}
    return frozenset(other.distribution for other in EVERY) - UPSTAIRS - siblings


def closure(package: Package) -> frozenset[str]:
    """The distributions of ours that come with a package, directly or not."""
    needed = {other.distribution: frozenset(map(normal, other.requirements)) for other in EVERY}
    return (reachable(needed, [package.distribution]) & needed.keys()) - {package.distribution}


@pytest.mark.parametrize("package", EVERY, ids=str)
def test_a_package_imports_only_what_it_declares_and_may(package: Package) -> None:
    declared = frozenset(map(normal, package.requirements))
    assert closure(package) <= allowed(package) | LAZY.get(package.distribution, frozenset()), (
        "what its pyproject.toml brings"
    )
    known = declared | UNDECLARED.get(package.distribution, frozenset())
    files = dict(package.modules())
    assert files
    for module, path in files.items():
        for item in imports(module, path):
            if item.top in sys.stdlib_module_names or item.top == package.module:
                continue
            where = f"{path}:{item.line} imports {item.name}"
            if item.top in OURS and item.for_types and module == package.module:
                assert OURS[item.top].distribution in declared & (allowed(package) | LAZY[package.distribution]), where
            elif item.top in OURS:
                assert OURS[item.top].distribution in declared & allowed(package), where
            elif not item.for_types:
                assert installed().get(item.top, frozenset({normal(item.top)})) & known, where


@pytest.mark.parametrize("package", EVERY, ids=str)
def test_no_imports_form_a_circle(package: Package) -> None:
    assert circles(module_graph(package)) == []
    assert circles(room_graph(package)) == []


def test_a_face_hides_none_of_its_modules() -> None:
    # A function that a face exports under the name of one of its modules is found in place of the module.
    known = dict(core().modules())
    for face, path in known.items():
        if path.name == "__init__.py" and face != core().module:
            for name in getattr(import_module(face), "__all__", ()):
                value = getattr(import_module(face), name)
                assert f"{face}.{name}" not in known or isinstance(value, ModuleType), f"{face} exports {name}"


def test_tools_import_faces_of_the_core_only() -> None:
    # A tool's needs are part of the reading API (docs/reading.md): third-party tools could use it.
    (tools,) = [package for package in PACKAGES if package.distribution == "delegatekit-tools"]
    known = dict(core().modules())
    for module, path in tools.modules():
        for item in imports(module, path):
            face, _, name = item.name.rpartition(".")
            if item.top == "delegatekit" and face != "delegatekit":
                where = f"{path}:{item.line} imports {item.name}"
                assert face.count(".") == 1, where
                exported = getattr(import_module(face), "__all__", None)
                assert name in exported if exported is not None else known[face].name != "__init__.py", where


@pytest.mark.parametrize("package", PLUGINS, ids=str)
def test_a_plugin_has_the_rooms_that_all_have(package: Package) -> None:
    assert set(room_graph(package)) - {""} <= ROOMS


@pytest.mark.parametrize("package", PLUGINS, ids=str)
def test_no_family_of_operators_imports_another(package: Package) -> None:
    # What several need is in a module without rows: common, moves, weights.
    families = {
        module
        for module, path in package.modules()
        if ".operators." in module and re.search(r"^ROWS\b", path.read_text("utf-8"), re.MULTILINE)
    }
    found = {name: imported & families for name, imported in module_graph(package).items() if name in families}
    assert not {name: imported for name, imported in found.items() if imported}


@pytest.mark.parametrize("package", PLUGINS, ids=str)
def test_what_runs_a_blob_knows_nothing_of_compiling(package: Package) -> None:
    assert rooms_reached(package, RUNNING) & COMPILING == set()


@pytest.mark.parametrize("package", PLUGINS, ids=str)
def test_compiling_runs_nothing_except_to_verify(package: Package) -> None:
    for module, targets in module_graph(package).items():
        if room(module) in COMPILING:
            run = {target for target in targets if room(target) == "runtime"}
            assert {target for target in run if not target.endswith(".verification")} == set(), module


@pytest.mark.parametrize("package", plugins(), ids=str)
def test_a_plugin_is_a_folder_with_its_backends_name(package: Package) -> None:
    name = package.folder.name
    if package.backends == (name,):
        assert package.distribution == f"delegatekit-{name}"
    else:
        # Several backends have the folder's name before a dot: "executorch.xnnpack".
        assert {backend.partition(".")[0] for backend in package.backends} == {name}
        assert package.distribution == f"delegatekit-{name}-backends"
    assert package.module == package.distribution.replace("-", "_")


@cache
def whole_graph(package: Package) -> dict[str, frozenset[str]]:
    """Module -> everything that it imports when it runs: modules of ours, and others by their top name."""
    ours = {module for other in EVERY for module, _ in other.modules()}
    found = {}
    for module, path in package.modules():
        names = (item for item in imports(module, path) if not item.for_types)
        found[module] = frozenset(owner(item.name, ours) or item.top for item in names)
    return found


def rooms_reached(package: Package, starts: Iterable[str]) -> frozenset[str]:
    """The rooms of a package that importing these rooms imports, directly or not."""
    graph, wanted = module_graph(package), set(starts)
    return frozenset(map(room, reachable(graph, [module for module in graph if room(module) in wanted])))


def core() -> Package:
    (found,) = [package for package in PACKAGES if package.distribution == "delegatekit"]
    return found


def test_no_stage_reaches_a_later_one() -> None:
    assert set(STAGES) | FILE_ROOMS | COMPILERS <= set(room_graph(core()))
    for index, stage in enumerate(STAGES):
        assert rooms_reached(core(), [stage]) & set(STAGES[index + 1 :]) == set(), stage


def test_the_stages_reach_no_quantization() -> None:
    assert "quantization" not in rooms_reached(
        core(), [*STAGES, *FILE_ROOMS, "passes", "fallback", "compiling", "pipeline"]
    )


def test_what_runs_a_file_reaches_no_compiler() -> None:
    assert rooms_reached(core(), FILE_ROOMS) & COMPILERS == set()


@pytest.mark.parametrize("package", [core(), *PLUGINS], ids=str)
def test_what_runs_a_file_reaches_no_computer_algebra(package: Package) -> None:
    # Half a second of imports, which only what lowers a program needs.
    graph = {module: targets for other in EVERY for module, targets in whole_graph(other).items()}
    starts = [module for module in module_graph(package) if room(module) in FILE_ROOMS | RUNNING]
    assert "sympy" not in reachable(graph, starts)


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Place and text of every line of handwritten files."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in {".py", ".toml", ".md", ".json", ".txt"} and "__pycache__" not in path.parts:
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}", line


@pytest.mark.parametrize("package", [package for package in PACKAGES if package.distribution in NEUTRAL], ids=str)
def test_packages_for_all_backends_name_none(package: Package) -> None:
    known = NAMED.get(package.distribution, frozenset())
    plugins_named = naming(plugin for plugin in plugins() if not known & set(plugin.backends))
    for place, line in texts(package.source):
        assert not VENDORS.search(line), place
        assert not plugins_named.search(line), place


def naming(named: Iterable[Package]) -> re.Pattern[str]:
    """Finds plugins' distributions, modules and folders, and backends' names in quotes: as words they may mean more."""
    found = list(named)
    words = {word for plugin in found for word in (plugin.distribution, plugin.module, str(plugin))}
    # A backend may have the name of its vendor's distribution, which others may need, too.
    backends = {backend for plugin in found for backend in plugin.backends if backend not in plugin.requirements}
    whole, quoted = ("|".join(map(re.escape, sorted(items))) or "(?!)" for items in (words, backends))
    return re.compile(rf"\b({whole})(?![\w-])|([\"'])({quoted})\2")


@pytest.mark.parametrize("package", plugins(), ids=str)
def test_a_plugin_names_no_sibling(package: Package) -> None:
    siblings = naming(plugin for plugin in plugins() if plugin != package)
    for place, line in texts(package.folder):
        assert not siblings.search(line), place


@pytest.mark.parametrize("name", CENTRAL)
def test_files_at_the_top_name_no_backend(name: str) -> None:
    pattern = naming(plugins())
    for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), 1):
        assert not pattern.search(line), f"{name}:{number}: {line.strip()}"


def test_helper_modules_of_tests_have_names_of_their_own() -> None:
    # Each tests folder puts itself on the path: of two modules with one name, one would hide the other.
    folders = [*(package.folder / "tests" for package in EVERY), ROOT / "tests"]
    helpers = [
        path.name
        for folder in folders
        for path in folder.glob("*.py")
        if path.name not in {"conftest.py", "__init__.py"} and not path.name.startswith("test_")
    ]
    assert [name for name, count in Counter(helpers).items() if count > 1] == []


def test_importing_the_plugin_api_imports_no_torch_and_is_quick() -> None:
    code = (
        "import sys, time\n"
        "start = time.process_time()\n"
        "import delegatekit_api\n"
        "print(time.process_time() - start, 'torch' in sys.modules)"
    )
    runs = [python(code).split() for _ in range(3)]
    assert {torch for _, torch in runs} == {"False"}
    assert min(float(seconds) for seconds, _ in runs) < 0.1


def test_importing_delegatekit_imports_neither_torch_nor_a_plugin() -> None:
    code = (
        "import sys, delegatekit; print(sorted(m for m in sys.modules if m == 'torch' or m.startswith('delegatekit_')))"
    )
    assert python(code) in ("[]", "['delegatekit_api']")


def test_listing_backends_from_metadata_imports_no_plugin_and_no_torch() -> None:
    code = (
        "import sys\n"
        "from delegatekit.plugins import discovery\n"
        "found = discovery.backends(check=False)\n"
        "print(found['xnnpack'].status, 'torch' in sys.modules, 'delegatekit_xnnpack' in sys.modules)"
    )
    assert python(code) == "not imported False False"


def test_running_a_file_imports_no_compiler(tmp_path: Path) -> None:
    import delegatekit

    path = tmp_path / "net.pte"
    delegatekit.lower(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),), backends=["xnnpack"]).save(path)
    code = (
        "import sys, torch\n"
        "brought = set(sys.modules)\n"
        "import delegatekit\n"
        f"delegatekit.load({str(path)!r})['forward'](torch.ones(1, 2))\n"
        "print(*sorted(set(sys.modules) - brought))"
    )
    new = python(code).split()
    assert "delegatekit_xnnpack.runtime" in {".".join(name.split(".")[:2]) for name in new}
    assert {name.partition(".")[0] for name in new} & {"sympy", "networkx", "torchao"} == set()
    assert {room(name) for name in new if name.startswith("delegatekit.")} & COMPILERS == set()


def test_lowering_imports_no_executorch() -> None:
    code = (
        "import sys, torch, delegatekit\n"
        "delegatekit.lower(torch.nn.Linear(2, 2), (torch.ones(1, 2),), backends=['xnnpack']).buffer\n"
        "print(any(name.partition('.')[0] == 'executorch' for name in sys.modules))"
    )
    assert python(code) == "False"

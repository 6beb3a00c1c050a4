"""Who may import whom, and what importing costs: the architecture's borders."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = {
    "delegatekit_api": ROOT / "plugin_api" / "src",
    "delegatekit": ROOT / "core" / "src",
    "delegatekit_xnnpack": ROOT / "plugins" / "xnnpack" / "src",
    "delegatekit_reference": ROOT / "plugins" / "reference" / "src",
    "delegatekit_conformance": ROOT / "conformance" / "src",
}
#: Package -> packages of ours, and clients of ours, that it must not import.
FORBIDDEN = {
    "delegatekit_api": {"delegatekit", "delegatekit_xnnpack", "delegatekit_conformance", "executorch"},
    "delegatekit": {"delegatekit_xnnpack", "delegatekit_conformance", "executorch"},
    "delegatekit_xnnpack": {"delegatekit", "delegatekit_conformance"},
    "delegatekit_reference": {"delegatekit", "delegatekit_conformance", "delegatekit_xnnpack", "executorch"},
    "delegatekit_conformance": {"delegatekit_xnnpack"},
}
#: Names of backends and vendors that core and the plugin API have no business to know.
BACKENDS = re.compile(r"xnnpack|core ?ml|vulkan|ethos|vela|qnn|openvino|hexagon|cadence", re.IGNORECASE)


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def imports(path: Path) -> Iterator[str]:
    """The top-level packages that a source file imports anywhere, inside functions, too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_run_one_way(package: str) -> None:
    sources = list(SOURCES[package].rglob("*.py"))
    assert sources
    for path in sources:
        assert not FORBIDDEN[package] & set(imports(path)), path


@pytest.mark.parametrize("package", ["delegatekit_api", "delegatekit"])
def test_core_and_plugin_api_name_no_backend(package: str) -> None:
    for path in SOURCES[package].rglob("*.py"):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            assert not BACKENDS.search(line), f"{path}:{number}: {line.strip()}"


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


def test_lowering_imports_no_executorch() -> None:
    code = (
        "import sys, torch, delegatekit\n"
        "delegatekit.lower(torch.nn.Linear(2, 2), (torch.ones(1, 2),), backends=['xnnpack']).buffer\n"
        "print(any(name.partition('.')[0] == 'executorch' for name in sys.modules))"
    )
    assert python(code) == "False"

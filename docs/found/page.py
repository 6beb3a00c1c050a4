"""The faults as plain data, read from their files without running them, and the page that shows them."""

from __future__ import annotations

import ast
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[1]
PAGE: Final = FOLDER.parent / "found.md"
#: Output of each snippet when the page was written.
OBSERVED: Final = FOLDER / "observed.json"
#: Files of the folder that are no faults.
_OTHERS: Final = {"__main__", "page", "tools"}


@dataclass(frozen=True)
class Fault:
    """One fault: a file whose docstring describes it, and whose `main` shows it."""

    name: str
    path: Path
    title: str
    text: str
    #: The heading on the page.
    product: str
    #: The distribution and version in which it was seen.
    package: str
    version: str
    #: The places that avoid it: "path: name"; none where the product is only measured, by `executorch.NAME`.
    avoided: tuple[str, ...]
    snippet: str
    #: The signal that ends the process where the fault is that it does.
    ends_by: signal.Signals | None

    @classmethod
    def read(cls, path: Path) -> Fault:
        """The fault of a file. Raises ValueError with the name of the file if something is missing."""
        source = path.read_text("utf-8")
        tree = ast.parse(source)
        said: dict[str, Any] = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        title, _, text = (ast.get_docstring(tree) or "").partition("\n")
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"]
        missing = {"PRODUCT", "PACKAGE", "VERSION", "AVOIDED"} - said.keys()
        if missing or not title or not functions:
            raise ValueError(f"{path.name} lacks {', '.join(sorted(missing)) or 'a docstring or main'}")
        ends_by = signal.Signals[said["ENDS_BY"]] if "ENDS_BY" in said else None
        snippet = _snippet(source, functions[0])
        names = (said[name] for name in ("PRODUCT", "PACKAGE", "VERSION", "AVOIDED"))
        return cls(path.stem, path, title, text.strip(), *names, snippet, ends_by)


def _snippet(source: str, function: ast.FunctionDef) -> str:
    """The body of a function without its docstring, as it is written."""
    lines = source.splitlines()
    body = [line.removeprefix("    ") for line in lines[function.body[1].lineno - 1 : function.end_lineno]]
    made: list[str] = []
    outer = ""
    for line in body:
        if line and not line.startswith(" "):
            # At the top two blank lines stand around definitions, as ruff writes the page's code.
            if made and not made[-1] and (_is_definition(line) or _is_definition(outer)):
                made.append("")
            outer = line
        made.append(line)
    return "\n".join(made)


def _is_definition(line: str) -> bool:
    return line.startswith(("def ", "class "))


#: All faults by name.
FAULTS: Final[dict[str, Fault]] = {
    path.stem: Fault.read(path) for path in sorted(FOLDER.glob("*.py")) if path.stem not in _OTHERS
}


def render(observed: Mapping[str, str]) -> str:
    """The page, with the observation of each fault."""
    products = dict.fromkeys(fault.product for fault in FAULTS.values())
    lines = [
        "# Found in the wild",
        "",
        "Written by `make found`. Do not edit.",
        "",
        f"{len(FAULTS)} faults of compilers, runtimes and exporters that the conformance suite found, or that our",
        "lowering works around. Each has a snippet that shows it, and the place in the code that avoids it,",
        "unless it is of a backend of ExecuTorch's that is only [measured](stock-backends.md).",
        "`make found` runs all of them, each in a process of its own, and says which are still there in the",
        "versions that are installed, which are fixed (then their workarounds can go), and which cannot",
        "run here.",
        "",
        "`stock`, `xnnpack` and `Tosa` are in [found/tools.py](found/tools.py): `stock` lowers a function",
        "with ExecuTorch alone and runs it in ExecuTorch's runtime, `xnnpack` with its XNNPACK partitioner,",
        "and `Tosa` compiles a graph with Vela and compares its commands, run by the backend's interpreter,",
        "with Arm's reference model. `differs` says what differs.",
        "",
        "| of | faults |",
        "|---|---|",
    ]
    for product in products:
        count = sum(fault.product == product for fault in FAULTS.values())
        lines.append(f"| [{product}](#{_anchor(product)}) | {count} |")
    for product in products:
        lines += ["", f"## {product}"]
        for fault in (fault for fault in FAULTS.values() if fault.product == product):
            lines += ["", *_section(fault, observed.get(fault.name))]
    return "\n".join(lines) + "\n"


def _section(fault: Fault, seen: str | None) -> list[str]:
    lines = [f"### {fault.title.rstrip('.').replace('|', '/')}", ""]
    if fault.text:
        lines += [fault.text, ""]
    lines += ["```python", fault.snippet, "```", ""]
    said = f"`{seen}`" if seen is not None else "not run here yet"
    places = ", ".join(f"`{name}` of [{path}](../{path})" for path, name in map(place, fault.avoided))
    lines.append(f"* {fault.package} {fault.version}: {said.replace('/tmp/', '')}")
    avoided = f"avoided by {places}" if places else "measured, not avoided"
    lines.append(f"* {avoided}; [found/{fault.name}.py](found/{fault.name}.py)")
    return lines


def place(text: str) -> tuple[str, str]:
    """Path and name of "path: name"."""
    path, _, name = text.partition(": ")
    return path, name


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")

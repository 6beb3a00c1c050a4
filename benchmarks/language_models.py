"""Language models side by side: DelegateKit, ExecuTorch's own recipe, and what else a user would pick on a CPU.

    python benchmarks/language_models.py                               all models and products that are installed
    python benchmarks/language_models.py --models smollm2-135m --products ours stock --threads 1
    python benchmarks/language_models.py --python genai=/tmp/genai/bin/python --write

Models are Llamas of well-known shapes with random weights in bfloat16, see `random_language_models.py`. Every product
makes a file of the same folder, and goes on after the same prompt, taking the likeliest token each time. All are called
from Python; each measurement is a process of its own, and the products take turns (`--rounds`). With one thread CPU
seconds are counted, which depend less on who else uses the machine; with more, seconds by the clock.

* prompt, generation: tokens a second. The time of each token is the least of all rounds.
* first token: seconds from opening the file until the first token is there.
* file: what it reads, without the tokenizer. memory: the process' peak, above what it held before it opened the file;
  pages of a file that is mapped count.
* making: CPU seconds of the command that makes the file of the folder.
* as eager's: new tokens, from the first on, that are those of transformers in float32. Random weights have no clear
  favourites: few are equal once weights are rounded to 4 bits.

Models, files and times are kept in `--folder`: a run that was ended goes on there, `--measure-again` forgets times, and
`--make-again` files as well. A product that is not installed is left out, with the reason. Products may be in another
environment than this project: `--python PRODUCT=PATH` tells its Python.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from random_language_models import SHAPES, prompt_of
from text_products import PRODUCTS, Order, command

PAGE: Final = Path(__file__).parents[1] / "docs" / "benchmarks.md"
_BEGIN: Final = "<!-- python benchmarks/language_models.py --write: from here -->\n"
_END: Final = "<!-- to here -->\n"
_FOLDER: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "delegatekit-benchmarks")
_PRECISIONS: Final = {"float32": "float32", "int4": "int4 weights"}
#: GiB of memory that must stay free on the machine; a process that takes them is ended.
_FREE: Final = 1.5


@dataclass(frozen=True)
class Case:
    """A model, and what it is asked: new tokens after a prompt, with a cache for so many."""

    shape: str
    context: int
    prompt: int
    new: int = 64
    precisions: tuple[str, ...] = tuple(_PRECISIONS)

    @property
    def title(self) -> str:
        """The heading of its table."""
        return f"{SHAPES[self.shape].title}: a prompt of {self.prompt} tokens, context {self.context}"


CASES: Final = {
    "tiny": Case("tiny", 256, 128),
    "smollm2-135m": Case("smollm2-135m", 1024, 128),
    "smollm2-135m-long": Case("smollm2-135m", 2048, 1024, precisions=("int4",)),
    "llama-3.2-1b": Case("llama-3.2-1b", 1024, 128),
}


def main() -> None:
    """Measure, then print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=list(CASES), default=[name for name in CASES if name != "tiny"])
    parser.add_argument("--products", nargs="*", choices=list(PRODUCTS), default=list(PRODUCTS))
    parser.add_argument("--precisions", nargs="*", choices=list(_PRECISIONS), default=list(_PRECISIONS))
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2, help="generations in a process")
    parser.add_argument("--folder", type=Path, default=_FOLDER)
    parser.add_argument("--python", nargs="*", default=[], metavar="PRODUCT=PATH")
    parser.add_argument("--measure-again", action="store_true")
    parser.add_argument("--make-again", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} instead of printing")
    arguments = parser.parse_args()
    pythons = dict(item.partition("=")[::2] for item in arguments.python)
    if unknown := set(pythons) - set(PRODUCTS):
        parser.error(f"--python: there is no product {', '.join(sorted(unknown))}")
    bench = Bench(arguments, pythons)
    parts = [bench.section(CASES[name]) for name in arguments.models]
    parts.append(bench.remarks())
    text = "\n\n".join(part for part in parts if part) + "\n"
    if not arguments.write:
        print(text)
        return
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replaced(page, text), encoding="utf-8")


def replaced(page: str, text: str) -> str:
    """A page with this text between the marks."""
    head, _, rest = page.partition(_BEGIN)
    _, found, tail = rest.partition(_END)
    if not found:
        raise SystemExit(f"{PAGE} has no lines {_BEGIN.strip()} and {_END.strip()}")
    return f"{head}{_BEGIN}\n{text}\n{_END}{tail}"


class Bench:
    """Measurements of products, which are kept in a folder."""

    def __init__(self, arguments: argparse.Namespace, pythons: Mapping[str, str]) -> None:
        self._arguments = arguments
        self._pythons = pythons
        self._versions: dict[str, str] = {}
        #: Products that are left out, and why.
        self._left_out: list[str] = []
        #: Places of files that could not be made.
        self._refused: set[str] = set()
        self._products = [name for name in arguments.products if self._is_there(name)]

    def section(self, case: Case) -> str:
        """A case's table, after what is missing was made and measured."""
        self._make_model(case)
        cells = [
            (name, precision)
            for precision in case.precisions
            if precision in self._arguments.precisions
            for name in self._products
            if precision in PRODUCTS[name].precisions
        ]
        made = {cell: found for cell in cells if (found := self._made(case, *cell)) is not None}
        for number in range(self._arguments.rounds):
            for threads in self._arguments.threads:
                for cell in made:
                    self._measure(case, *cell, threads, number)
        return f"### {case.title}\n\n{self._table(case, made)}"

    def remarks(self) -> str:
        """Versions, sizes of the run, and reasons for products that are left out."""
        runs = f"{self._arguments.rounds} x {self._arguments.repeats}"
        versions = ", ".join(f"{package} {version}" for package, version in self._versions.items())
        lines = [f"The least of {runs} runs. {versions}."]
        return "\n".join([*lines, *(["", *self._left_out] if self._left_out else [])])

    def _failed(self, why: str) -> None:
        self._left_out.append(f"* {why}")
        _say(why)

    # -- files ---------------------------------------------------------------------------------------------------

    def _is_there(self, name: str) -> bool:
        product = PRODUCTS[name]
        wanted = f"import importlib.metadata as m; print(m.version({product.packages[0]!r}))"
        done = subprocess.run([self._python(name), "-c", wanted], check=False, capture_output=True, text=True)
        if done.returncode:
            self._left_out.append(f"* {product.title} is not installed: `{product.install}`")
            _say(f"{product.title} is left out: {product.install}, and --python {name}=PATH")
        return not done.returncode

    def _make_model(self, case: Case) -> None:
        model, place = case.shape, self._folder(case) / "model"
        if not (place / "config.json").is_file():
            _say(f"{model}: weights ...")
            shutil.rmtree(place, ignore_errors=True)
            _checked([sys.executable, str(Path(__file__).with_name("random_language_models.py")), model, str(place)])

    def _made(self, case: Case, name: str, precision: str) -> dict[str, Any] | None:
        """What making the file of a product took; None, with the reason, if it fails."""
        product = PRODUCTS[name]
        order = self._order(case, name, precision)
        note = Path(order.place, "made.json")
        if product.file_of is not None:
            found = json.loads(note.read_text()) if note.is_file() else self._made(case, product.file_of, precision)
            return None if found is None else {"bytes": found["bytes"]}
        if note.is_file() and not self._arguments.make_again:
            return dict(json.loads(note.read_text()))
        if name == "eager":
            return {}
        if order.place in self._refused:
            return None
        _say(f"{case.shape}: {product.title}, {precision}: making its file ...")
        for user in (user for user, product in PRODUCTS.items() if name in (user, product.file_of)):
            for times in self._times(case, user, precision).parent.glob(f"{precision}-*.json"):
                times.unlink()
        shutil.rmtree(order.place, ignore_errors=True)
        Path(order.place).mkdir(parents=True)
        try:
            found = _result(command(self._python(name), "make", order))
        except _FailedError as error:
            shutil.rmtree(order.place)
            self._refused.add(order.place)
            self._failed(f"{product.title}, {precision}, {case.shape}: no file: {error}")
            return None
        note.write_text(json.dumps(found))
        return found

    def _order(self, case: Case, name: str, precision: str, **more: Any) -> Order:
        owner, folder = PRODUCTS[name].file_of or name, self._folder(case)
        place = folder / f"{owner}-{precision}-{case.context}"
        return Order(name, precision, str(folder / "model"), str(place), case.context, **more)

    def _folder(self, case: Case) -> Path:
        found: Path = self._arguments.folder / case.shape
        return found

    def _python(self, name: str) -> str:
        return self._pythons.get(name, sys.executable)

    # -- times ---------------------------------------------------------------------------------------------------

    def _times(self, case: Case, name: str, precision: str, threads: int | str = "", number: int | str = "") -> Path:
        sizes = f"{case.context}-{case.prompt}-{case.new}"
        return self._folder(case) / f"times-{sizes}" / name / f"{precision}-{threads}-{number}.json"

    def _measure(self, case: Case, name: str, precision: str, threads: int, number: int) -> None:
        """One process' times, if they are not there."""
        note = self._times(case, name, precision, threads, number)
        if note.is_file() and not self._arguments.measure_again:
            return
        note.parent.mkdir(parents=True, exist_ok=True)
        prompt, tokens = self._prompt(case)
        order = self._order(
            case,
            name,
            precision,
            prompt=prompt,
            tokens=tokens,
            count=case.new,
            threads=threads,
            repeats=self._arguments.repeats,
        )
        _say(f"{case.shape}: {name}, {precision}, {threads} threads, round {number + 1} ...")
        try:
            note.write_text(json.dumps(_result(command(self._python(name), "run", order))))
        except _FailedError as error:
            self._failed(f"{PRODUCTS[name].title}, {precision}, {case.shape}: does not run: {error}")

    def _prompt(self, case: Case) -> tuple[str, tuple[int, ...]]:
        tokenizer = _tokenizer(self._folder(case))
        prompt = prompt_of(tokenizer, case.prompt)
        return prompt, tuple(tokenizer.encode(prompt).ids)

    def _found(self, case: Case, name: str, precision: str, threads: int) -> list[dict[str, Any]]:
        """What the rounds' processes found."""
        notes = (self._times(case, name, precision, threads, number) for number in range(self._arguments.rounds))
        return [json.loads(note.read_text()) for note in notes if note.is_file()]

    # -- the table -----------------------------------------------------------------------------------------------

    def _table(self, case: Case, made: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
        folder = self._folder(case)
        tokenizer = _tokenizer(folder)
        threads = self._arguments.threads
        columns = [f"{what}: {count} thread{'s' * (count > 1)}" for what in _SPEEDS for count in threads]
        header = ["", *columns, "file MiB", "memory MiB", "making CPU s", "as eager's"]
        eager = [
            _text(tokenizer, found[0]["tokens"])
            for count in threads
            if (found := self._found(case, "eager", "float32", count))
        ]
        rows = []
        for (name, precision), about in made.items():
            found = {count: self._found(case, name, precision, count) for count in threads}
            if not any(found.values()):
                continue
            speeds = {count: figures(items, count, case.prompt) for count, items in found.items() if items}
            cells = [f"{PRODUCTS[name].title}, {_PRECISIONS[precision]}"]
            cells += [
                _cell(speeds.get(count, {}).get(what), form) for what, form in _SPEEDS.items() for count in threads
            ]
            every = [item for items in found.values() for item in items]
            for item in every:
                self._versions |= item["versions"]
            texts = [_text(tokenizer, item["tokens"]) for item in every]
            size = about.get("bytes", _model_bytes(folder) if name == "eager" else None)
            cells.append(_cell(size and size / 2**20, "{:,.0f}"))
            cells.append(_cell(statistics.median(item["peak"] for item in every) / 2**20, "{:,.0f}"))
            cells.append(_cell(about.get("cpu"), "{:.1f}"))
            cells.append(_agreement(texts, eager[0]) if eager else "-")
            rows.append(cells)
        return markdown_table(header, rows)


#: Column -> format of its numbers.
_SPEEDS: Final = {"prompt tok/s": "{:.0f}", "generation tok/s": "{:.1f}", "first token s": "{:.2f}"}


def figures(found: Sequence[Mapping[str, Any]], threads: int, prompt: int) -> dict[str, float]:
    """The speeds of a product, by column: of the least time of each token in all runs."""
    clock = 0 if threads == 1 else 1
    runs = [[token[clock] for token in run] for item in found for run in item["times"]]
    first, *others = (min(times) for times in zip(*runs, strict=True))
    speeds = (prompt / first, len(others) / sum(others), min(item["first"][clock] for item in found))
    return dict(zip(_SPEEDS, speeds, strict=True))


def _text(tokenizer: Any, tokens: Sequence[int | str]) -> list[str]:
    """Tokens as text, one by one."""
    return [
        token if isinstance(token, str) else tokenizer.decode([token], skip_special_tokens=False) for token in tokens
    ]


def _agreement(texts: Sequence[Sequence[str]], wanted: Sequence[str]) -> str:
    """The number of first tokens that are equal in all runs."""
    equal = [
        next((number for number, (one, other) in enumerate(zip(text, wanted, strict=True)) if one != other), len(text))
        for text in texts
    ]
    return f"{min(equal)} of {len(wanted)}"


def _tokenizer(folder: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))


def _model_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "model").glob("*.safetensors"))


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# -- processes -------------------------------------------------------------------------------------------------------


class _FailedError(Exception):
    """A process failed: the end of what it said."""


def _checked(command: Sequence[str]) -> str:
    """The output of a command, which is ended if the machine's memory runs out. Raises _FailedError."""
    # Compiled blobs are not taken from a cache: compiling is measured. Threads that wait by spinning would count.
    settings = {
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
        "DELEGATEKIT_COMPILED": "off",
    }
    with subprocess.Popen(
        command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for said, errors in _until_done(process):
            if process.returncode:
                raise _FailedError(" ".join(errors.strip().splitlines()[-1:]) or f"ended with {process.returncode}")
            return said
    raise _FailedError("ended: the machine's memory would have run out")


def _until_done(process: subprocess.Popen[str]) -> Iterator[tuple[str, str]]:
    """What a process printed, when it is done; nothing if it was ended."""
    while True:
        try:
            yield process.communicate(timeout=1)
            return
        except subprocess.TimeoutExpired:
            if _available() < _FREE * 2**30:
                process.kill()
                return


def _available() -> int:
    """Bytes that new processes could take (Linux, proc(5))."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def _result(command: Sequence[str]) -> dict[str, Any]:
    """The JSON in the last line of a command's output. Raises _FailedError."""
    found: dict[str, Any] = json.loads(_checked(command).strip().splitlines()[-1])
    return found


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

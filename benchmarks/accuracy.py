"""Costs and gains of quantization: every scheme of every backend on three models, as the table of docs/accuracy.md.

    python benchmarks/accuracy.py                       # print the page
    python benchmarks/accuracy.py --write               # write docs/accuracy.md
    python benchmarks/accuracy.py --write --tasks sentences --backends coreml   # only these rows
    python benchmarks/accuracy.py --tasks digits --backends xnnpack --schemes int8

No input both calibrates and judges. Each file runs in DelegateKit's engine and in the stock ExecuTorch runtime on
all the judged inputs, one thread each. Latency is CPU time in the stock runtime against the float file of the same
backend, rounds interleaved in one run.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import re
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import nn

import delegatekit
from delegatekit.plugins import backends, get_backend
from delegatekit.quantization.ratio import sqnr_db
from delegatekit_api import DelegateKitError
from delegatekit_conformance import stock
from delegatekit_conformance.models import build_model, photo_batch, sentence_tokens

PAGE: Final = Path(__file__).parents[1] / "docs" / "accuracy.md"

Inputs = tuple[torch.Tensor, ...]
#: Outputs of a model on the judged inputs, and those of the float model -> measure by name.
Judge = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], dict[str, float]]


@dataclass(frozen=True)
class Task:
    """A float model in eval mode with disjoint inputs for calibration and evaluation."""

    name: str
    title: str
    #: Description of the measure.
    text: str
    module: nn.Module
    calibration: tuple[Inputs, ...]
    judged: tuple[Inputs, ...]
    judge: Judge


@dataclass(frozen=True)
class Row:
    """One way to run a task's model on a backend. `scheme` is "float" where nothing is quantized."""

    backend: str
    scheme: str
    #: Measures of the file in our engine, and of the quantized module in eager PyTorch.
    measures: dict[str, float]
    eager: dict[str, float]
    #: Signal to noise ratios in dB: of the file against the float model, and against the module that was lowered.
    sqnr: float
    fidelity: float
    delegates: int
    outside: int
    #: Whether the stock runtime gives the same bits as our engine on every judged input; None if it lacks the delegate.
    same: bool | None
    size: int
    #: CPU time of a call divided by that of the float file, and in milliseconds.
    ratio: float = math.nan
    milliseconds: float = math.nan


# -- the digits of scikit-learn ----------------------------------------------------------------------------------------


class DigitsNet(nn.Module):
    """Images of digits (B, 1, 8, 8) with values from 0 to 1 -> logits (B, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.wide = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU6())
        self.deep = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.BatchNorm2d(32), nn.ReLU6())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits of the ten digits."""
        features = self.wide(self.stem(image))
        logits: torch.Tensor = self.head(self.pool(features + self.deep(features)).flatten(1))
        return logits


def digits() -> Task:
    """A network trained here, in seconds, on two thirds of the digits, and judged by its accuracy on the last third."""
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    images = torch.from_numpy(data.images).to(torch.float32).div(16).unsqueeze(1)
    labels = torch.from_numpy(data.target).to(torch.int64)
    known = 2 * len(images) // 3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = _trained(DigitsNet(), images[:known], labels[:known])

    def judge(outputs: Sequence[torch.Tensor], _: Sequence[torch.Tensor]) -> dict[str, float]:
        return {"accuracy": float((torch.cat(list(outputs)).argmax(1) == labels[known:]).float().mean())}

    return Task(
        "digits",
        "A network for scikit-learn's digits",
        f"A small network of convolutions with a residual sum, trained on {known} digits when the table is made, "
        f"calibrated on 128 of these and judged by its accuracy on the other {len(images) - known}.",
        model,
        tuple((image.unsqueeze(0),) for image in images[:128]),
        tuple((image.unsqueeze(0),) for image in images[known:]),
        judge,
    )


def _trained(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    epochs, batch = 25, 64
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    steps = epochs * math.ceil(len(images) / batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for _ in range(epochs):
        order = torch.randperm(len(images))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            optimizer.zero_grad()
            loss: Any = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


# -- EfficientNet-Lite0 on photos --------------------------------------------------------------------------------------

#: Photos of things, which are judged; and pictures of other kinds, which calibrate.
PHOTOS: Final = (
    "astronaut.png",
    "camera.png",
    "chelsea.png",
    "china.jpg",
    "clock_motion.png",
    "coffee.png",
    "coins.png",
    "flower.jpg",
    "motorcycle_left.png",
    "motorcycle_right.png",
    "rocket.jpg",
)
PICTURES: Final = (
    "brick.png",
    "cell.png",
    "grass.png",
    "gravel.png",
    "horse.png",
    "hubble_deep_field.jpg",
    "ihc.png",
    "moon.png",
    "page.png",
    "retina.jpg",
    "text.png",
)
#: By how much the first class's probability must lead for the float network to be sure.
SURE: Final = 0.1


def photos() -> Task:
    """EfficientNet-Lite0: does the quantized network see what the float one sees?"""
    judged = tuple((batch,) for name in PHOTOS for batch in _views(_picture(name)))
    calibration = tuple((batch,) for name in PICTURES for batch in _corners(_picture(name)))

    def judge(outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> dict[str, float]:
        first = [int(a.argmax()) == int(b.argmax()) for a, b in zip(outputs, expected, strict=True)]
        five = [
            len(set(a.topk(5).indices[0].tolist()) & set(b.topk(5).indices[0].tolist())) / 5
            for a, b in zip(outputs, expected, strict=True)
        ]
        leads = [-float(value.softmax(-1).topk(2).values.diff()) for value in expected]
        sure = [agrees for agrees, lead in zip(first, leads, strict=True) if lead >= SURE]
        return {
            "top-1": statistics.mean(first),
            f"top-1 of {len(sure)} sure": statistics.mean(sure),
            "top-5": statistics.mean(five),
        }

    return Task(
        "photos",
        "EfficientNet-Lite0 on photos",
        "Pretrained. Agreement with the float model in the first class, and in the share of the first five, on "
        f"{len(judged)} images: {len(PHOTOS)} photos that scikit-image and scikit-learn ship, whole and as their "
        "middle square, each also mirrored; top-1 agreement also on those where the float model's first class leads by "
        f"at least {SURE}. Calibrated on {len(calibration)} crops of {len(PICTURES)} other pictures (textures, sky, "
        "text, tissue).",
        build_model("efficientnet-lite0").module,
        calibration,
        judged,
        judge,
    )


def _picture(name: str) -> Any:
    """(H, W, 3) uint8."""
    import numpy
    import skimage
    from skimage import io
    from sklearn.datasets import load_sample_images

    images: Any = load_sample_images()
    shipped = dict(zip((Path(path).name for path in images.filenames), images.images, strict=True))
    image: Any = shipped[name] if name in shipped else io.imread(Path(skimage.__file__).parent / "data" / name)
    return numpy.stack([image] * 3, -1) if image.ndim == 2 else image[..., :3]


def _views(image: Any) -> Iterator[torch.Tensor]:
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    for view in (image, image[top : top + side, left : left + side]):
        batch = photo_batch(view)
        yield batch
        yield batch.flip(-1).contiguous()


def _corners(image: Any) -> Iterator[torch.Tensor]:
    height, width = image.shape[:2]
    side = int(0.8 * min(height, width))
    for top in (0, height - side):
        for left in (0, width - side):
            yield photo_batch(image[top : top + side, left : left + side])


# -- MiniLM on sentences -----------------------------------------------------------------------------------------------

#: A sentence, one that says the same, one that has something to do with it.
SENTENCES: Final = (
    ("A cat sleeps on the warm roof.", "A kitten naps on top of the house.", "The dog barks at the neighbour's cat."),
    ("The bank raised its interest rates.", "Borrowing got dearer at the bank.", "Inflation fell for the third month."),
    ("She plays the violin in an orchestra.", "She is an orchestral violinist.", "The concert hall was sold out."),
    ("Heavy rain flooded the valley.", "The valley is under water after a storm.", "Tomorrow will be dry and sunny."),
    ("He repaired the old bicycle.", "The old bike was fixed by him.", "Cycling to work keeps her healthy."),
    ("The train to Oslo is delayed.", "Our Oslo train will be late.", "Flights to Norway are cheap in winter."),
    ("Chop the onions and fry them in butter.", "Cook sliced onions in butter.", "This soup needs more salt."),
    ("The patient was given antibiotics.", "Doctors treated him against the infection.", "The clinic closes at six."),
    ("Our team lost the final by one goal.", "We were narrowly beaten in the final.", "The stadium has two gates."),
    ("The compiler rejects this program.", "This code does not compile.", "The new processor has eight cores."),
    ("Astronomers found a planet like Earth.", "A second Earth was discovered.", "The telescope's mirror was cleaned."),
    ("The judge dismissed the case.", "The lawsuit was thrown out of court.", "She studied law in Edinburgh."),
    ("Bees are dying because of pesticides.", "Farm chemicals kill the bees.", "Honey is sweeter than sugar."),
    ("The museum shows paintings by Monet.", "Monet's pictures are on display.", "He bought brushes and a canvas."),
)
OTHER_SENTENCES: Final = (
    "The ferry leaves the harbour at noon.",
    "Nobody answered the telephone.",
    "Wheat prices doubled within a year.",
    "My grandmother taught me how to knit.",
    "The battery lasts for two days, even if it is cold outside and the screen stays on.",
    "An earthquake shook the coast of Chile last night; no one was hurt.",
    "Click the button to save your changes.",
    "The novel tells the story of three sisters.",
    "Add two numbers and print the sum.",
    "They painted the kitchen yellow.",
    "Scientists measured the speed of the glacier.",
    "Is there a pharmacy near the station?",
    "The election will be held in the spring, said the minister to reporters in the capital.",
    "His shoes were wet and full of sand.",
    "Sales of electric cars passed those of diesels.",
    "Please send the invoice by mail.",
)


def sentences() -> Task:
    """MiniLM: do the quantized embeddings put pairs of sentences in the float model's order of likeness?"""
    texts = [text for group in SENTENCES for text in group]
    pairs = [(3 * group, 3 * group + other) for group in range(len(SENTENCES)) for other in (1, 2)]
    pairs += [(index, (index + 4) % len(texts)) for index in range(0, len(texts), 3)]

    def judge(outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> dict[str, float]:
        found, wanted = (torch.stack([(of[a] * of[b]).sum() for a, b in pairs]) for of in (outputs, expected))
        worst = min(float((a * b).sum()) for a, b in zip(outputs, expected, strict=True))
        return {"rank correlation": rank_correlation(found, wanted), "least cosine": worst}

    return Task(
        "sentences",
        "MiniLM on pairs of sentences",
        "Pretrained (all-MiniLM-L6-v2, 128 tokens). Spearman's rank correlation between the quantized and the float "
        f"model's cosine similarities of {len(pairs)} pairs of {len(texts)} sentences, a third of the pairs each with "
        "the same, a related and another meaning; and the least cosine between a sentence's quantized and float "
        "embedding. "
        f"Static schemes are calibrated on {len(OTHER_SENTENCES)} other sentences.",
        build_model("minilm").module,
        tuple(sentence_tokens(text) for text in OTHER_SENTENCES),
        tuple(sentence_tokens(text) for text in texts),
        judge,
    )


def rank_correlation(first: torch.Tensor, second: torch.Tensor) -> float:
    """Spearman's: the correlation of the ranks of the values (N,) of both, all of them different."""
    ranks = torch.stack([values.argsort().argsort().to(torch.float64) for values in (first, second)])
    return float(torch.corrcoef(ranks)[0, 1])


TASKS: Final[dict[str, Callable[[], Task]]] = {"digits": digits, "photos": photos, "sentences": sentences}


# -- measuring ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """A scheme of a backend (None: float), with or without corrected biases; or an option that packs weights."""

    backend: str
    scheme: str | None = None
    correct_bias: bool = False
    #: An option in words, and what the backend gets beside `OPTIONS`.
    packed: str = ""

    @property
    def name(self) -> str:
        """As the table calls it."""
        return (self.scheme or self.packed or "float") + (", correct_bias" if self.correct_bias else "")

    @property
    def options(self) -> dict[str, Any]:
        """The options of the backend."""
        return {**OPTIONS.get(self.backend, {}), **PACKED.get(self.backend, {}).get(self.packed, {})}


#: Backend -> options that all its rows have: those that the schemes need.
OPTIONS: Final[dict[str, dict[str, Any]]] = {"coreml": {"target": "ios18"}}
#: Backend -> what its options do to weights, in words -> options.
PACKED: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "coreml": {
        "8-bit tables": {"palettize": 8},
        "6-bit tables": {"palettize": 6},
        "4-bit tables": {"palettize": 4},
        "4-bit tables, depthwise layers too": {"palettize": 4, "unpacked_layers": ()},
        "4-bit tables, linear layers only": {"palettize": 4, "unpacked_layers": ("convolution", "depthwise")},
        "4-bit tables, 16 channels each": {"palettize": 4, "palette_channels": 16},
        "half of the weights pruned": {"prune": 0.5},
    }
}


def ways(backend: str) -> list[Way]:
    """Float, all schemes of a backend, and what its options do to weights; none if it has no schemes."""
    plugin = get_backend(backend)
    schemes = plugin.quantization_schemes(plugin.make_options(Way(backend).options))
    found = [Way(backend)] if schemes else []
    for scheme in schemes:
        found += [Way(backend, scheme.name, corrected) for corrected in (False, True)[: 1 + (scheme.kind == "static")]]
    return found + [Way(backend, packed=words) for words in PACKED.get(backend, {})]


class Measured:
    """A task's model on its way to a file: quantized, lowered, run and judged."""

    def __init__(self, task: Task, way: Way, expected: Sequence[torch.Tensor]) -> None:
        module = task.module
        if way.scheme is not None:
            module = delegatekit.quantize(
                module,
                task.calibration,
                backend=way.backend,
                scheme=way.scheme,
                options=way.options,
                correct_bias=way.correct_bias,
                progress=False,
            )
        with torch.no_grad():
            eager = [module(*inputs) for inputs in task.judged]
        program = delegatekit.lower(module, task.judged[0], backends=[way.backend], options={way.backend: way.options})
        #: The stock runtime does not keep the bytes alive.
        self.buffer = program.buffer
        ours = delegatekit.load(self.buffer)["forward"]
        in_stock = _stock(self.buffer, way.backend)
        #: What is timed: the stock runtime, or else our engine.
        self.engine: Callable[[Inputs], Any] = in_stock or (lambda inputs: ours(*inputs))
        outputs: list[torch.Tensor] = [ours(*inputs) for inputs in task.judged]
        report = delegatekit.report(program).methods[0]
        self.row = Row(
            way.backend,
            way.name,
            task.judge(outputs, expected),
            task.judge(eager, expected),
            sqnr_db(outputs, expected),
            sqnr_db(outputs, eager),
            len(report.delegates),
            report.fallback_calls,
            None if in_stock is None else _same(in_stock, task.judged, outputs),
            len(self.buffer),
        )


def _same(engine: Callable[[Inputs], Any], inputs: Sequence[Inputs], outputs: Sequence[torch.Tensor]) -> bool:
    """True if another engine gives the same bits."""
    return all(torch.equal(engine(given)[0], output) for given, output in zip(inputs, outputs, strict=True))


def _stock(buffer: bytes, backend: str) -> Callable[[Inputs], Any] | None:
    """The file in the stock runtime; None if that does not have the backend's delegate."""
    if get_backend(backend).description.delegate_id not in (stock.installed() or ()):
        return None
    method: Callable[[Inputs], Any] = stock.load(buffer)
    return method


def float_outputs(task: Task) -> list[torch.Tensor]:
    """The outputs of the float model in eager mode on the judged inputs."""
    with torch.no_grad():
        return [task.module(*inputs) for inputs in task.judged]


def measure(task: Task, chosen: Sequence[Way], rounds: int) -> Iterator[Row | str]:
    """A row for each way, or the reason why there is none. The first way of a backend is float."""
    expected = float_outputs(task)
    measured: list[Measured] = []
    reasons = []
    for way in chosen:
        try:
            measured.append(Measured(task, way, expected))
        except DelegateKitError as error:
            reasons.append(f"{way.backend} {way.name}: {error.what}")
        print(f"{task.name}: {way.backend} {way.name}", file=sys.stderr, flush=True)
    times = _interleaved([one.engine for one in measured], task.judged, rounds)
    base: dict[str, float] = {}
    for one, seconds in zip(measured, times, strict=True):
        base.setdefault(one.row.backend, seconds)
        yield _with_time(one.row, seconds, base[one.row.backend])
    yield from reasons


def _with_time(row: Row, seconds: float, float_seconds: float) -> Row:
    return replace(row, ratio=seconds / float_seconds, milliseconds=1e3 * seconds)


def _interleaved(engines: Sequence[Callable[[Inputs], Any]], inputs: Sequence[Inputs], rounds: int) -> list[float]:
    """The median CPU seconds of a call of each engine; each round calls all of them."""
    times: list[list[float]] = [[] for _ in engines]
    for count in range(rounds):
        given = inputs[count % len(inputs)]
        for engine, found in zip(engines, times, strict=True):
            start = time.process_time()
            engine(given)
            found.append(time.process_time() - start)
    return [statistics.median(found) for found in times]


# -- the page ----------------------------------------------------------------------------------------------------------

HEAD: Final = """# Accuracy of quantized models

Written by `python benchmarks/accuracy.py --write` (`make accuracy`). Do not edit. How to quantize:
[quantization.md](quantization.md).

Each model is quantized with every scheme of the backends that have schemes, or lowered with an option that packs its
weights (Core ML's rows are for ios18); it is run on the judged inputs in DelegateKit's engine and in the stock
ExecuTorch runtime. "same bits" says that both gave equal tensors on all of them (-: the stock runtime of the Python
wheel lacks the delegate). "file" is the measure of the lowered file, "eager" that of the quantized module in PyTorch,
both against the float model in PyTorch. SQNR is the ratio of signal to quantization noise in dB: of the file against
the float model, and against the module that was lowered. Latency is CPU time in the stock runtime, with one thread, or
else in DelegateKit's engine, divided by that of the float file, the median of {rounds} interleaved rounds. With
`correct_bias`, biases are corrected ([how](quantization.md#which-layers-and-how-exact)). Nothing is calibrated on what
is judged.
"""


def page(results: dict[str, tuple[Task, list[Row], list[str]]], rounds: int) -> str:
    """The text of docs/accuracy.md."""
    parts = [HEAD.format(rounds=rounds)]
    for task, rows, reasons in results.values():
        parts += [f"## {task.title}", "", task.text, "", *table(rows), ""]
        if reasons:
            parts += ["Not in the table:", "", *(f"* {reason}" for reason in reasons), ""]
    return "\n".join(parts).rstrip() + "\n"


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as a Markdown table."""
    names = list(rows[0].measures)
    head = [
        "backend",
        "scheme",
        *(f"{name}: {where}" for name in names for where in ("file", "eager")),
        "SQNR dB: to float",
        "to eager",
        "same bits",
        "delegates",
        "calls outside",
        "file KiB",
        "latency / float",
        "ms",
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [
            row.backend,
            row.scheme,
            *(f"{of[name]:.4f}" for name in names for of in (row.measures, row.eager)),
            f"{row.sqnr:.1f}",
            "equal" if math.isinf(row.fidelity) else f"{row.fidelity:.1f}",
            {True: "yes", False: "NO", None: "-"}[row.same],
            str(row.delegates),
            str(row.outside),
            f"{row.size / 1024:.0f}",
            f"{row.ratio:.2f}",
            f"{row.milliseconds:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def merged(new: str, old: str, measured: Sequence[str]) -> str:
    """A page with the sections and rows of an older one that were not remeasured; `measured` are the backends.

    Raises ValueError if the tables of a task have different columns.
    """
    head, *sections = _sections(new)
    known = {_first_line(section): section for section in _sections(old)[1:]}
    for section in sections:
        title = _first_line(section)
        known[title] = _merged_section(section, known[title], measured) if title in known else section
    return "\n\n".join(part.strip() for part in (head, *known.values())) + "\n"


def _sections(text: str) -> list[str]:
    """The head of a page, and its sections."""
    return re.split(r"^(?=## )", text, flags=re.MULTILINE)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _merged_section(new: str, old: str, measured: Sequence[str]) -> str:
    lines, older = new.splitlines(), old.splitlines()
    columns = [line for line in lines if line.startswith("| backend |")]
    if columns != [line for line in older if line.startswith("| backend |")]:
        raise ValueError(f"{_first_line(old)}: the columns are others now: measure all backends of this task")
    found = [line for line in lines if _backend(line)] + [
        line for line in older if _backend(line) not in (None, *measured)
    ]
    order = list(dict.fromkeys(filter(None, map(_backend, [*older, *lines]))))
    rows, reasons = (
        sorted((line for line in found if line.startswith(start)), key=lambda line: order.index(str(_backend(line))))
        for start in "|*"
    )
    last = next(number for number, line in enumerate(lines) if line.startswith("|--"))
    parts = [*lines[: last + 1], *rows, *(["", "Not in the table:", "", *reasons] if reasons else [])]
    return "\n".join(parts)


def _backend(line: str) -> str | None:
    """The backend of a table's row, or of the reason for a missing row."""
    row = re.match(r"\| (?!backend \|)(\S+) \||\* (\S+) ", line)
    return row and (row[1] or row[2])


def main() -> int:
    """Measure, then print or write; returns the exit code, which is 1 if a file gave different bits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="*", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--backends", nargs="*", help="of those that have schemes; all without")
    parser.add_argument("--schemes", nargs="*", help="all without; float is always there")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} instead of printing")
    arguments = parser.parse_args()
    if arguments.write and arguments.schemes:
        parser.error("--write takes all schemes of a backend")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    from executorch.extension.pybindings import _C

    _C._unsafe_reset_threadpool(1)
    names = arguments.backends or [name for name, info in backends().items() if info.usable]
    chosen = [
        way
        for name in names
        for way in ways(name)
        if not arguments.schemes or way.scheme is None or way.scheme in arguments.schemes
    ]
    results: dict[str, tuple[Task, list[Row], list[str]]] = {}
    for name in arguments.tasks:
        task = TASKS[name]()
        found = list(measure(task, chosen, arguments.rounds))
        results[name] = (
            task,
            [row for row in found if isinstance(row, Row)],
            [reason for reason in found if isinstance(reason, str)],
        )
    text = page(results, arguments.rounds)
    if arguments.write:
        PAGE.write_text(merged(text, PAGE.read_text(encoding="utf-8"), names), encoding="utf-8")
    else:
        print(text)
    return int(any(row.same is False for _, rows, _ in results.values() for row in rows))


if __name__ == "__main__":
    sys.exit(main())

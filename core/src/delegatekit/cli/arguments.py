"""Arguments of commands: those of functions, derived from the functions' own, and those that several commands share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from delegatekit_toolkit.completion import shown_settings

from ..pipeline import Source, paragraphs
from ..plugins.discovery import backends as installed
from ..plugins.discovery import get_backend, unknown_backend
from .auto import without_auto
from .console import usage
from .dynamic import with_dynamic_shapes
from .model import check_model, files_of, read_model
from .passes import read_passes

_SELECTOR: Final = ": a module path ('layers.*.attn') or operator, BACKEND=SELECTOR for one backend; repeat for more."

ModelArgument = Annotated[
    str,
    typer.Argument(
        help="A .pt2 file, or package.module:callable (path/file.py:callable) that returns (module, inputs), followed "
        "by kwargs and dynamic_shapes if there are any, an ExportedProgram, or a dict of these by method name."
    ),
]


def installed_backends(incomplete: str) -> list[str]:
    """The backends whose names begin so, for completion in a shell; none is imported."""
    return [name for name in installed(check=False) if name.startswith(incomplete)]


def completed_settings(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The options of the chosen backends that begin so, for completion in a shell."""
    return shown_settings(context.params, incomplete, lambda name: get_backend(name).description.options)


def split_names(given: list[str]) -> list[str]:
    """`-b first,second` is `-b first -b second`."""
    names = [name.strip() for text in given for name in text.split(",")]
    if not all(names):
        usage(f"--backend {','.join(given)!r} leaves out a name", "write -b first,second or -b first -b second")
    return list(dict.fromkeys(names))


def given_file(path: Path | None) -> Path | None:
    """The path of a file to read, if one is given. Raises FormatError for what is none, before anything is imported."""
    from ..files import check_file

    return None if path is None else check_file(path)


SettingOption = Annotated[
    list[str],
    typer.Option(
        "--option",
        metavar="SETTING",
        help="Backend option: NAME.KEY=VALUE (or KEY=VALUE with one backend).",
        autocompletion=completed_settings,
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option("--trust", help="Also load .pt2 and .pt files with pickled objects, which can run any code."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]
FileArgument = Annotated[Path, typer.Argument(help="A .pte file, or a .bpte with one in it.", callback=given_file)]
InputsArgument = Annotated[list[str], typer.Argument(help="Inputs in order: .npy, .pt or image files.")]
MethodOption = Annotated[str, typer.Option(help="The method to run.")]
DataOption = Annotated[list[Path], typer.Option(help="A data file (.ptd) of the program; repeat for more.")]
RunnerOption = Annotated[
    list[str],
    typer.Option(
        "--backend",
        "-b",
        help="Backend that runs the delegates of its id, whichever plugin made them; repeat for more.",
        autocompletion=installed_backends,
    ),
]
IsolateOption = Annotated[
    list[str],
    typer.Option(
        metavar="BACKEND",
        help="Run this backend's delegates in a process of their own, or those of all; repeat for more.",
        autocompletion=installed_backends,
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(min=-(2**63), max=2**64 - 1, help="Seed of the random inputs, used where no files are given."),
]
TimeLimitOption = Annotated[
    float | None, typer.Option(min=0.001, max=1e6, metavar="SECONDS", help="End a call that takes longer.")
]


def selectors(texts: Sequence[str], backends: Sequence[str]) -> list[str] | dict[str, list[str]] | None:
    """Selectors as what `lower` takes: SELECTOR is for all backends, BACKEND=SELECTOR for one."""
    if not any("=" in text for text in texts):
        return list(texts) or None
    found: dict[str, list[str]] = {}
    for text in texts:
        backend, equals, selector = text.partition("=")
        if equals and backend not in backends:
            usage(f"{text!r} names {backend!r}, which is not among the backends {', '.join(backends)}")
        for name in [backend] if equals else backends:
            found.setdefault(name, []).append(selector if equals else text)
    return found


def settings(options: Sequence[str], backends: Sequence[str]) -> dict[str, dict[str, str]]:
    """The backends' options by backend, as text, of NAME.KEY=VALUE."""
    found: dict[str, dict[str, str]] = {}
    for text in options:
        key, equals, value = text.partition("=")
        backend, dot, name = key.rpartition(".")
        if not equals or not name or (not dot and len(backends) != 1):
            form = "KEY=VALUE or NAME.KEY=VALUE" if len(backends) == 1 else "NAME.KEY=VALUE"
            hint = f"NAME is a backend: {', '.join(backends)}" if backends else None
            usage(f"--option {text!r} is not of the form {form}", hint)
        found.setdefault(backend or backends[0], {})[name] = value
    for backend in filter(backends.__contains__, found):  # before a model is loaded
        get_backend(backend).make_options(found[backend])
    return found


@dataclass(frozen=True)
class Form:
    """An option that says a field of a function's arguments."""

    names: tuple[str, ...]
    #: The type of the option's value; None: that of the field's default.
    type: Any
    #: Makes the field's value of the option's, and of the names of the backends.
    read: Callable[[Any, Sequence[str]], Any]
    #: Of typer.Option; the help follows the first sentence of the field's paragraph.
    more: Mapping[str, Any]

    def parameter(self, name: str, default: Any, told: str) -> Parameter:
        """The parameter of a command that says the field of this name, which has a default and a paragraph."""
        default = [] if self.type == list[str] and default is not Parameter.empty else default
        names = self.names or ((f"--{name.replace('_', '-')}",) if default is False else ())
        text, more = re.split(r"(?<=\.) (?=[A-Z{])", told)[0], self.more.get("help", "")
        text = text.removesuffix(".") + more if more.startswith(":") else f"{text} {more}".strip()
        kind: Any = self.type or type(default)
        made: Any = typer.Option(*names, **{**self.more, "help": text})
        return _parameter(name, Annotated[kind | None if default is None else kind, made], default)


def option(*names: str, type: Any = None, read: Any = lambda value, _: value, **more: Any) -> Form:
    """The form of a field that one option says: `more` is for typer.Option."""
    return Form(names, type, read, more)


def texts(*names: str, **more: Any) -> Form:
    """The form of a field that an option says that may be repeated."""
    return option(*names, type=list[str], **more)


def _parameter(name: str, hint: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=default)


#: The forms of fields of several functions; a command adds its own.
_FORMS: Final = {
    "dynamic_shapes": texts(
        "--dynamic",
        metavar="SIZE",
        help=": x:0=batch:1..8 for axis 0 of the input x. Repeat for more: sizes of one name are equal.",
    ),
    "backends": texts(
        *("--backend", "-b"),
        metavar="NAMES",
        callback=split_names,
        autocompletion=installed_backends,
        help=": -b first,second or -b first -b second.",
    ),
    "options": texts(
        "--option",
        read=settings,
        metavar="SETTING",
        autocompletion=completed_settings,
        help=": NAME.KEY=VALUE (or KEY=VALUE with one backend).",
    ),
    "only": texts(read=selectors, metavar="SELECTOR", help=_SELECTOR),
    "skip": texts(read=selectors, metavar="SELECTOR", help=_SELECTOR),
    "passes": texts(
        "--pass",
        read=lambda given, _: read_passes(given),
        metavar="MODULE:NAME",
        help=": package.module:NAME or path/file.py:NAME of a pass, its class, or a list of passes. Repeat for more.",
    ),
}


class Said:
    """A function's arguments as a command line gives them."""

    def __init__(self, forms: Mapping[str, Form], given: Mapping[str, Any]) -> None:
        self._forms, self._given = forms, given
        #: The MODEL argument.
        self.model: str = given["model"]
        check_model(self.model)
        self.trust: bool = given["trust"]
        self.backends: list[str] = given["backends"] if "backends" in forms else [given["backend"]]
        known = installed(check=False)
        for name in without_auto(self.backends):
            if name not in known:
                raise unknown_backend(name)

    @property
    def files(self) -> list[Path]:
        """The files that the model may be read from."""
        return files_of(self.model)

    def source(self) -> Source:
        """The model, with the sizes that may change."""
        return with_dynamic_shapes(read_model(self.model, trust=self.trust), self._given["dynamic_shapes"])

    def settings(self) -> dict[str, Any]:
        """The other arguments. Ends the command for what cannot be read."""
        names = list(dict.fromkeys(without_auto([*self.backends, *self._given.get("against", ())])))
        forms = self._forms.items()
        return {name: form.read(self._given[name], names) for name, form in forms if name != "dynamic_shapes"}


def command(kind: type[Any], **own: Form) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that say a function's arguments: `own` has the forms of fields that few have.

    The command gets a `Said` first. Fields without a form are not on the command line.
    """
    fields, told, known = inspect.signature(kind).parameters, paragraphs(kind), {**_FORMS, **own}
    forms = {name: known[name] for name in fields if name in known}
    said = [form.parameter(name, fields[name].default, told[name]) for name, form in forms.items()]
    said = [_parameter("model", ModelArgument), *said, _parameter("trust", TrustOption, default=False)]

    def made(function: Callable[..., None]) -> Callable[..., None]:
        _, *rest = inspect.signature(function, eval_str=True).parameters.values()

        @wraps(function)
        def run(**given: Any) -> None:
            function(Said(forms, given), **{item.name: given[item.name] for item in rest})

        whole: Any = run
        parameters = [*said, *(item.replace(kind=Parameter.KEYWORD_ONLY) for item in rest)]
        whole.__signature__ = inspect.Signature(parameters)
        whole.__annotations__ = {item.name: item.annotation for item in parameters}
        return run

    return made

"""A backend's description of itself."""

from __future__ import annotations

import re

from delegatekit.plugins import discovery
from delegatekit_api import OptionError
from delegatekit_api.versions import API_VERSION, incompatibility
from delegatekit_toolkit.accuracy import ROUNDOFF

from ...context import Context
from ..base import Broken, NotApplicable
from ..specimens import backend_of
from .options import values_of
from .rules import Rules

RULES = Rules()

#: Versions according to PEP 440, as far as its grammar matters here.
_VERSION = re.compile(r"(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9.]+)?")
#: More bytes than a kernel reads beyond a tensor's end for any vector unit or cache line.
_OVERREAD = 65_536


@RULES.add
def listed(context: Context) -> str:
    """`delegatekit backends` lists the backend as ready, under the name of its entry point."""
    info = discovery.backends()[context.backend]
    if not info.usable:
        raise Broken(f"is {info.status}: {info.reason}")
    description = backend_of(context).description
    if _normal(description.distribution) != _normal(info.distribution):
        raise Broken(f"calls its distribution {description.distribution!r}; it is installed by {info.distribution!r}")
    return f"{info.distribution} {info.version}"


@RULES.add
def version(context: Context) -> str:
    """The version is a Python package version, and that of the installed distribution."""
    backend = backend_of(context)
    told, installed = backend.description.version, backend.version
    if not _VERSION.fullmatch(told):
        raise Broken(f"its version {told!r} is not of the form 1.2.3 (PEP 440)")
    if told != installed:
        raise Broken(f"says that it is version {told}, but {backend.distribution} {installed} is installed")
    return told


@RULES.add
def summary(context: Context) -> str:
    """The summary is one line of text, at most 100 characters."""
    text = backend_of(context).description.summary
    if not text.strip():
        raise Broken("its summary is empty")
    if len(text.splitlines()) != 1 or text != text.strip():
        raise Broken(f"its summary is not one plain line: {text!r}")
    if len(text) > 100:
        raise Broken(f"its summary has {len(text)} characters")
    return text


@RULES.add
def api_version(context: Context) -> str:
    """The API version is one that exists, and fits this core."""
    told = backend_of(context).description.api_version
    reason = incompatibility(told)
    if reason is not None:
        raise Broken(reason)
    return f"{told} (core: {API_VERSION})"


@RULES.add
def description_twice(context: Context) -> str | None:
    """The backend describes itself the same way each time."""
    backend = backend_of(context)
    first, second = backend.describe(), backend.describe()
    if not first == second == backend.description:
        names = [name for name in vars(first) if getattr(first, name) != getattr(second, name)]
        raise Broken(f"describes itself differently each time: {', '.join(names) or 'since it was loaded'}")
    return None


@RULES.add
def delegate_id(context: Context) -> str:
    """The delegate id is one word of printable ASCII, and no other backend here runs any maker's blobs of it."""
    description = backend_of(context).description
    told = description.delegate_id
    if not re.fullmatch(r"[!-~]{1,127}", told):
        raise Broken(f"its delegate id {told!r} is not one word of at most 127 printable ASCII characters")
    for name, info in discovery.backends().items():
        if name == context.backend or not info.usable or info.delegate_id != told:
            continue
        if description.runs_any_maker and discovery.get_backend(name).description.runs_any_maker:
            raise Broken(f"backend {name} has the same delegate id, {told}")
    return told


@RULES.add
def precision(context: Context) -> str:
    """The compute precisions are floating-point dtypes, by default the described ones; the over-read is a few bytes."""
    backend = backend_of(context)
    description, precision = backend.description, backend.compute_precision(context.options)
    device = [description.device_compute_precision] if description.device_compute_precision else []
    for told in (description.compute_precision, precision, *device):
        if told not in ROUNDOFF:
            raise Broken(f"its compute precision is {told!r}, not one of {', '.join(ROUNDOFF)}")
    default = backend.compute_precision()
    if default != description.compute_precision:
        raise Broken(
            f"its compute precision is {description.compute_precision}, but with the default options {default}"
        )
    if description.overread_bytes > _OVERREAD:
        raise Broken(f"reads {description.overread_bytes} bytes beyond the end of tensors")
    return precision


@RULES.add
def hooks(context: Context) -> str:
    """Hooks that need one another are all present: a partitioner and a compiler, in one of its three forms."""
    backend = backend_of(context)
    forms = [hook for hook in ("preprocess", "preprocess_methods", "replace_operators") if backend.has(hook)]
    if backend.has("create_partitioner") and not forms:
        raise Broken("has create_partitioner, but neither preprocess, preprocess_methods nor replace_operators")
    if backend.is_library != backend.has("runtime_operators"):
        raise Broken("has one of replace_operators and runtime_operators without the other")
    if backend.is_library and len(forms) > 1:
        raise Broken(f"has replace_operators and {forms[0]}: it makes delegates, or replaces operators")
    if forms and not backend.has("create_partitioner"):
        raise Broken(f"has {forms[0]}, but no create_partitioner: nothing will ever be compiled")
    optional = ("create_partitioner", *forms, "create_runtime", "quantization_schemes", "create_quantizer", "targets")
    return ", ".join(hook for hook in optional if backend.has(hook))


@RULES.add
def documentation(context: Context) -> str:
    """The hooks for the page of documentation and for quantization schemes answer; schemes have different names."""
    backend = backend_of(context)
    page = backend.documentation()
    names = [scheme.name for scheme in backend.quantization_schemes()]
    if len(set(names)) != len(names):
        raise Broken(f"two quantization schemes have one name: {', '.join(names)}")
    return f"{type(page).__name__}, {len(names)} schemes"


@RULES.add
def targets(context: Context) -> str:
    """Every listed target has a name of its own, a summary, and options that the backend takes."""
    found = backend_of(context).targets()
    names = [target.name for target in found]
    if len(set(names)) != len(names):
        raise Broken(f"two targets have one name: {', '.join(names)}")
    for target in found:
        if not target.name.strip() or not target.summary.strip():
            raise Broken(f"the target {target.name!r} has no name or no summary")
        try:
            backend_of(context).make_options({**target.options, **target.on_host})
        except OptionError as error:
            raise Broken(f"the options of target {target.name} are refused: {error.what}") from None
    return f"{len(names)} targets"


@RULES.add
def verification(context: Context) -> str:
    """With every value of every option a judge is named, with a reason exactly where it does not judge."""
    backend = backend_of(context)
    known = backend.description.options
    others = (known.from_mapping({name: value}) for name, value in values_of(known))
    chosen = [backend.make_options(context.options), *others]
    for options in chosen:
        told = backend.verification(options)
        if told is None:
            raise NotApplicable("the backend names no judge")
        if not told.judge.strip() or told.used == bool(told.reason.strip()):
            raise Broken(f"with {options.to_mapping()}: {told} has no name, or not a reason where it does not judge")
    return f"{len(chosen)} choices of options"


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()

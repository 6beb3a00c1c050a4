"""The command line `delegatekit`: a file for each command, and what they share."""

from __future__ import annotations

from .arguments import (
    BackendOption,
    DataOption,
    InputsArgument,
    IsolateOption,
    JsonOption,
    MethodOption,
    ModelArgument,
    OnlyOption,
    RunnerOption,
    SeedOption,
    SettingOption,
    SkipOption,
    TimeLimitOption,
    TrustOption,
    installed_backends,
    selectors,
    settings,
    split_names,
)
from .auto import tuned, without_auto
from .command_line import application, main
from .console import is_narrow, print_json, progress, remark, say, show, usage
from .dynamic import DynamicOption, with_dynamic_shapes
from .failures import FAILED
from .inputs import apart, inputs_for, read_inputs, read_value
from .model import files_of, read_model
from .passes import PassOption, read_passes
from .places import default_place, question_place
from .stdout import results_alone
from .watch import ended_after

__all__ = [
    "FAILED",
    "BackendOption",
    "DataOption",
    "DynamicOption",
    "InputsArgument",
    "IsolateOption",
    "JsonOption",
    "MethodOption",
    "ModelArgument",
    "OnlyOption",
    "PassOption",
    "RunnerOption",
    "SeedOption",
    "SettingOption",
    "SkipOption",
    "TimeLimitOption",
    "TrustOption",
    "apart",
    "application",
    "default_place",
    "ended_after",
    "files_of",
    "inputs_for",
    "installed_backends",
    "is_narrow",
    "main",
    "print_json",
    "progress",
    "question_place",
    "read_inputs",
    "read_model",
    "read_passes",
    "read_value",
    "remark",
    "results_alone",
    "say",
    "selectors",
    "settings",
    "show",
    "split_names",
    "tuned",
    "usage",
    "with_dynamic_shapes",
    "without_auto",
]

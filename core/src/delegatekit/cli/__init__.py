"""The command line `delegatekit`: a file for each command, and what they share."""

from __future__ import annotations

from .arguments import (
    DataOption,
    InputsArgument,
    IsolateOption,
    JsonOption,
    MethodOption,
    RunnerOption,
    Said,
    SeedOption,
    SettingOption,
    TimeLimitOption,
    TrustOption,
    command,
    given_file,
    installed_backends,
    option,
    settings,
    split_names,
    texts,
)
from .auto import tuned, without_auto
from .command_line import application, main
from .console import is_narrow, print_json, progress, remark, say, show, usage
from .failures import FAILED
from .inputs import apart, inputs_for, read_inputs, read_value
from .model import files_of, read_model
from .places import default_place, question_place
from .stdout import results_alone
from .watch import ended_after

__all__ = [
    "FAILED",
    "DataOption",
    "InputsArgument",
    "IsolateOption",
    "JsonOption",
    "MethodOption",
    "RunnerOption",
    "Said",
    "SeedOption",
    "SettingOption",
    "TimeLimitOption",
    "TrustOption",
    "apart",
    "application",
    "command",
    "default_place",
    "ended_after",
    "files_of",
    "given_file",
    "inputs_for",
    "installed_backends",
    "is_narrow",
    "main",
    "option",
    "print_json",
    "progress",
    "question_place",
    "read_inputs",
    "read_model",
    "read_value",
    "remark",
    "results_alone",
    "say",
    "settings",
    "show",
    "split_names",
    "texts",
    "tuned",
    "usage",
    "without_auto",
]

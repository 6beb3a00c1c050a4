"""Faults that change the process of the user: a setting from before a hook is different after it."""

from __future__ import annotations

import gc
import locale
import logging
import os
import random
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .fault import Wrapped, fault


def _before(sound: Any, method: str, do: Callable[[], Any]) -> Any:
    """The sound object, which does something else before one of its methods."""

    def called(*args: Any, **kwargs: Any) -> Any:
        do()
        return getattr(sound, method)(*args, **kwargs)

    return type("Careless", (Wrapped,), {method: lambda self, *args, **kwargs: called(*args, **kwargs)})(sound)


def _compiling(sound: Any, do: Callable[[], Any]) -> Any:
    def preprocess(partition: Any, options: Any) -> Any:
        do()
        return sound(partition=partition, options=options)

    return preprocess


@fault("preprocess", "operators/aten.add.Tensor/float32")
def _turns_gradients_off(sound: Any) -> Any:
    """The compiler turns gradients off, and not on again."""
    return _compiling(sound, lambda: torch.set_grad_enabled(False))


@fault("runtime", "operators/aten.add.Tensor/float32")
def _changes_the_default_dtype(sound: Any) -> Any:
    """Loading a delegate makes float64 the default dtype."""
    return _before(sound, "init", lambda: torch.set_default_dtype(torch.float64))


@fault("preprocess", "operators/aten.add.Tensor/float32")
def _seeds_the_generator(sound: Any) -> Any:
    """The compiler seeds torch's random numbers."""
    return _compiling(sound, lambda: torch.manual_seed(0))


@fault("partitioner", "operators/aten.add.Tensor/float32")
def _draws_from_python_s_generator(sound: Any) -> Any:
    """Asking about a node takes a number from Python's random generator."""
    return _before(sound, "check", random.random)


@fault("runtime", "operators/aten.add.Tensor/float32")
def _sets_the_number_of_threads(sound: Any) -> Any:
    """A call sets torch's number of threads."""
    return _before(sound, "execute", lambda: torch.set_num_threads(3))


@fault("partitioner", "operators/aten.add.Tensor/float32")
def _writes_into_the_environment(sound: Any) -> Any:
    """The partitioner sets an environment variable for its compiler."""
    os.environ["FAULTY_HOME"] = "/opt/faulty"
    return sound


@fault("preprocess", "operators/aten.add.Tensor/float32")
def _stays_in_another_folder(sound: Any) -> Any:
    """The compiler changes the working folder, and not back."""
    return _compiling(sound, lambda: os.chdir("/"))


@fault("runtime", "operators/aten.add.Tensor/float32")
def _takes_over_a_signal(sound: Any) -> Any:
    """Loading a delegate installs a signal handler."""
    return _before(sound, "init", lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN))


@fault("runtime", "operators/aten.add.Tensor/float32")
def _sets_the_locale(sound: Any) -> Any:
    """Asking whether the runtime is available sets the locale."""
    return _before(sound, "is_available", lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"))


@fault("runtime", "operators/aten.add.Tensor/float32")
def _leaves_a_descriptor_open(sound: Any) -> Any:
    """Destroying a handle opens the device, and does not close it."""
    return _before(sound, "destroy", lambda: os.open("/dev/null", os.O_RDONLY))


@fault("preprocess", "operators/aten.add.Tensor/float32")
def _silences_warnings(sound: Any) -> Any:
    """The compiler turns all warnings off."""
    return _compiling(sound, lambda: warnings.simplefilter("ignore"))


@fault("runtime", "operators/aten.add.Tensor/float32")
def _flushes_denormals(sound: Any) -> Any:
    """A call makes the processor take denormal numbers for zero."""
    return _before(sound, "execute", lambda: torch.set_flush_denormal(True))


@fault("preprocess", "operators/aten.add.Tensor/float32")
def _raises_the_recursion_limit(sound: Any) -> Any:
    """The compiler raises Python's recursion limit."""
    return _compiling(sound, lambda: sys.setrecursionlimit(123456))


@fault("preprocess", "operators/aten.add.Tensor/float32")
def _turns_the_garbage_collector_off(sound: Any) -> Any:
    """The compiler turns Python's garbage collector off."""
    return _compiling(sound, gc.disable)


@fault("runtime", "operators/aten.add.Tensor/float32")
def _takes_the_root_logger(sound: Any) -> Any:
    """The runtime adds a handler to the root logger when it is loaded."""
    logging.getLogger().addHandler(logging.NullHandler())
    return sound


@fault("preprocess", "operators/aten.add.Tensor/float32")
def _changes_the_umask(sound: Any) -> Any:
    """Files that the user writes after a compilation are unreadable for others."""
    return _compiling(sound, lambda: os.umask(0o077))


@fault("partitioner", "operators/aten.add.Tensor/float32")
def _makes_the_module_path_longer(sound: Any) -> Any:
    """Each question about a node puts the compiler's folder first on the module path."""
    return _before(sound, "check", lambda: sys.path.insert(0, "/opt/faulty/python"))


@fault("runtime", "operators/aten.add.Tensor/float32")
def _limits_every_socket(sound: Any) -> Any:
    """Loading a delegate sets the default timeout of sockets."""
    return _before(sound, "init", lambda: socket.setdefaulttimeout(5))


@fault("runtime", "operators/aten.add.Tensor/float32")
def _asks_for_deterministic_algorithms(sound: Any) -> Any:
    """A call turns torch's deterministic algorithms on."""
    return _before(sound, "execute", lambda: torch.use_deterministic_algorithms(True, warn_only=True))


@fault("preprocess", "operators/aten.add.Tensor/float32")
def _replaces_the_exception_hook(sound: Any) -> Any:
    """The compiler installs an exception hook of its own."""

    def report(*args: Any) -> None:
        sys.__excepthook__(*args)

    return _compiling(sound, lambda: setattr(sys, "excepthook", report))

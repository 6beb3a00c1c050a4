"""The suite as pytest items: `pytest --pyargs delegatekit_conformance --backend NAME -n 2`.

Installed for every pytest run of an environment, so it does and imports nothing, unless the run names this
package.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

_PACKAGE = Path(__file__).parent


@pytest.hookimpl(trylast=True)  # after conftest.py files, which may have an option --backend of their own
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: Sequence[str]) -> None:
    """Add options and collection, if the run is about this package."""
    named = getattr(early_config.known_args_namespace, "file_or_dir", None) or args
    if not any(_is_suite(str(argument)) for argument in named):
        return
    from . import suite

    suite.add_options(parser)
    early_config.pluginmanager.register(suite.Suite(), "delegatekit_conformance_suite")


def _is_suite(argument: str) -> bool:
    target = argument.partition("::")[0]
    if target.partition(".")[0] == _PACKAGE.name:
        return True
    return _PACKAGE.name in target and _PACKAGE in (path := Path(target).resolve(), *path.parents)

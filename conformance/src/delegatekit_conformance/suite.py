"""The suite in pytest: an item for each case, run in the worker processes of the suite."""

from __future__ import annotations

from argparse import ArgumentError
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .outcome import CaseResult, Outcome

if TYPE_CHECKING:
    from .session import Session

#: This file stands for the suite in the ids of items.
SUITE = Path(__file__)


def add_options(parser: pytest.Parser) -> None:
    """The suite's options. Where `--backend` is another plugin's or the user's own, its value is taken."""
    add = parser.getgroup("delegatekit conformance").addoption
    add("--conformance-backend", metavar="NAME", help="the backend to test; --backend is short for it")
    with suppress(ValueError, ArgumentError):
        add("--backend", metavar="NAME", dest="conformance_backend", help="the backend to test")
    add(
        "--conformance-profile",
        choices=("quick", "default", "thorough"),
        default="default",
        help="amount of testing",
    )
    add("--conformance-seed", type=int, default=0, metavar="N", help="the same seed gives the same examples")
    add("--conformance-timeout", type=float, default=60.0, metavar="SECONDS", help="what one example may take")
    add("--conformance-no-stock", action="store_true", help="leave the stock ExecuTorch runtime out")
    add("--conformance-memory", type=float, default=8.0, metavar="GIB", help="what a process may have (Linux)")
    add(
        "--conformance-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the backend; repeatable",
    )
    add(
        "--conformance-expectations",
        metavar="FILE",
        help="known faults, used instead of the vendor's conformance.toml",
    )


class Suite:
    """The plugin of a run that names this package: collects the cases and keeps the pool that runs them."""

    def __init__(self) -> None:
        self._session: Session | None = None

    @pytest.hookimpl
    def pytest_configure(self, config: pytest.Config) -> None:
        """Check that there is a backend, before anything is collected."""
        from delegatekit.plugins import discovery

        name = _backend(config)
        installed = discovery.backends(check=False)
        there = f"installed: {', '.join(installed) or 'none'}"
        if not name:
            raise pytest.UsageError(f"name the backend to test: --backend NAME ({there})")
        if name not in installed:
            raise pytest.UsageError(f"no backend {name!r} is installed ({there})")

    @pytest.hookimpl
    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """The suite's file becomes the collector of its cases."""
        if file_path != SUITE:
            return None
        collector: SuiteFile = SuiteFile.from_parent(parent, path=file_path)
        collector.suite = self
        return collector

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Show an unexpected pass as one (`X`, XPASS)."""
        report = yield
        if call.when == "call" and isinstance(item, CaseItem) and item.passed_unexpectedly is not None:
            report.wasxfail = item.passed_unexpectedly
        return report

    @pytest.hookimpl
    def pytest_unconfigure(self) -> None:
        """End the workers."""
        if self._session is not None:
            self._session.close()

    def prepare(self, config: pytest.Config) -> list[str]:
        """The names of all cases. Raises UsageError if the backend, an option or the expectations are wrong."""
        from delegatekit_api import DelegateKitError

        from .session import Session
        from .settings import Settings

        option = config.getoption
        expectations = option("conformance_expectations")
        try:
            settings = Settings(
                _backend(config),
                profile=option("conformance_profile"),
                seed=option("conformance_seed"),
                options=_pairs(option("conformance_option")),
                jobs=1,
                timeout=option("conformance_timeout"),
                memory=option("conformance_memory"),
                stock=not option("conformance_no_stock"),
                expectations=Path(expectations) if expectations else None,
            )
            self._session = Session(settings)
        except DelegateKitError as error:
            raise pytest.UsageError(str(error)) from None
        return list(self._session.cases)

    def run(self, name: str) -> CaseResult:
        """The result of a case, with the vendor's expectations."""
        assert self._session is not None, "cases were collected"
        return self._session.run_case(name)

    @property
    def strict(self) -> bool:
        """True if an unexpected pass fails."""
        assert self._session is not None, "cases were collected"
        return self._session.expectations.strict


class SuiteFile(pytest.File):
    """Collects the cases of the suite."""

    suite: Suite

    def collect(self) -> Iterator[pytest.Item]:
        """An item for each case; its name is the case's."""
        for name in self.suite.prepare(self.config):
            yield CaseItem.from_parent(self, name=name)


class CaseFault(Exception):  # noqa: N818  the fault is the backend's
    """The case has faults that are not expected."""


class CaseItem(pytest.Item):
    """One case."""

    #: Why a fault was expected, where there was none.
    passed_unexpectedly: str | None = None

    def runtest(self) -> None:
        """Run the case. A fault that is expected is an xfail."""
        assert isinstance(self.parent, SuiteFile)
        suite = self.parent.suite
        result = suite.run(self.name)
        for line in (f"{result.verdict.value}; {result.examples} examples", *result.reasons):
            self.add_report_section("call", "conformance", f"{line}\n")
        if result.is_fault:
            raise CaseFault(_words(result.faults))
        if result.expected is None:
            return
        if result.verdict.is_fault:
            pytest.xfail(result.expected)
        if suite.strict:
            raise CaseFault(f"[XPASS(strict)] no fault, but one is expected: {result.expected}")
        self.passed_unexpectedly = result.expected

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The faults with their snippets, without a traceback of the suite's own code."""
        if isinstance(excinfo.value, CaseFault):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """The location of the item."""
        return self.path, None, self.name


def _backend(config: pytest.Config) -> str:
    return str(config.getoption("conformance_backend", None) or config.getoption("backend", None) or "")


def _pairs(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise pytest.UsageError(f"--conformance-option {text!r} is not of the form KEY=VALUE")
        found[key] = value
    return found


def _words(faults: tuple[Outcome, ...]) -> str:
    texts = []
    for fault in faults:
        example = f"\n  example: {fault.example}" if fault.example else ""
        snippet = f"\n\n{fault.snippet}" if fault.snippet else ""
        texts.append(f"{fault.verdict.value}: {fault.detail}{example}{snippet}")
    return "\n\n".join(texts)

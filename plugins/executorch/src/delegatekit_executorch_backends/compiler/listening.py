"""The reasons that ExecuTorch's partitioners give, node by node.

Each has a way of its own to give them: log records or prints while a node is asked about, records that carry a node,
or a report.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any, Final

from executorch.exir.backend.utils import WhyNoPartition, WhyNoPartitionReporter
from torch.fx import Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

from .loading import LOCK

#: The reason inside the sentences that some partitioners make of it.
_BRACKETED: Final = re.compile(r"Due to \[(?P<reason>.*)\], skipping", re.DOTALL)


class Reasons(logging.Handler):
    """The reasons by node, and by operator where a partitioner gives one for each operator only once."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._asked: Node | None = None
        self._by_node: dict[Node, str] = {}
        self._by_operator: dict[Any, str] = {}

    def of(self, node: Node) -> str | None:
        """The reason for leaving a node; None if none was given."""
        return self._by_node.get(node) or self._by_operator.get(node.target)

    def add(self, node: Node, reason: str) -> None:
        """Note a reason; the first one of a node counts."""
        text = " ".join(reason.split())
        if text:
            self._by_node.setdefault(node, text)
            self._by_operator.setdefault(node.target, text)

    def emit(self, record: logging.LogRecord) -> None:
        """Note a log record that is about a node."""
        told: Any = record.msg
        if isinstance(told, WhyNoPartition):
            if told.node is not None:
                self.add(told.node, told.reason)
        elif self._asked is not None:
            text = record.getMessage()
            found = _BRACKETED.search(text)
            self.add(self._asked, found["reason"] if found else text)

    @contextmanager
    def about(self, node: Node) -> Iterator[None]:
        """While a partitioner is asked about a node."""
        before, self._asked = self._asked, node
        try:
            yield
        finally:
            self._asked = before


@contextmanager
def listening() -> Iterator[Reasons]:
    """Collect what partitioners say meanwhile, and let nothing of it reach the user's log."""
    reasons = Reasons()
    ask, report = CapabilityBasedPartitioner._is_node_supported, WhyNoPartitionReporter.report_reject

    def asked(self: Any, node: Node) -> Any:
        said = StringIO()
        with reasons.about(node), redirect_stdout(said):
            taken = ask(self, node)
        if not taken:
            reasons.add(node, said.getvalue())
        return taken

    def reported(self: Any, node: Node, reason: str) -> None:
        reasons.add(node, reason)
        report(self, node, reason)

    root, others = logging.getLogger(), logging.getLogger("torch")
    with LOCK:
        level, handlers, others_level = root.level, list(root.handlers), others.level
        CapabilityBasedPartitioner._is_node_supported = asked  # type: ignore[method-assign]
        WhyNoPartitionReporter.report_reject = reported
        root.setLevel(logging.DEBUG)
        others.setLevel(max(others_level, logging.WARNING))  # PyTorch would write down whole graphs
        root.handlers[:] = [reasons]
        try:
            yield reasons
        finally:
            root.setLevel(level)
            others.setLevel(others_level)
            root.handlers[:] = handlers
            CapabilityBasedPartitioner._is_node_supported = ask  # type: ignore[method-assign]
            WhyNoPartitionReporter.report_reject = report

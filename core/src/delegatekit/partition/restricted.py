"""A partitioner that is only asked about some nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch.fx import Node

from delegatekit_api import Call, Partitioner, ProgramView, Verdict
from delegatekit_api.nodes import describe_node


class Restricted:
    """A partitioner around another: a subclass's `_refusal` excludes nodes that the other is not asked about."""

    def __init__(self, inner: Partitioner) -> None:
        self._inner = inner

    def keep_operators(self) -> Collection[str]:
        """Those that the inner one keeps."""
        return self._inner.keep_operators()

    def check(self, call: Call) -> Verdict:
        """The inner one's verdict, unless this call or one of its group is excluded."""
        node = call.node
        refusal = self._refusal(node)
        if refusal is not None:
            return Verdict.no(refusal)
        answer = self._inner.check(call)
        for other in answer.group if isinstance(answer, Verdict) else ():
            refusal = self._refusal(other)
            if refusal is not None:
                return Verdict.no(f"is taken only together with {describe_node(other)}, which is {refusal}")
        return answer

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]] | None:
        """The inner one's proposals."""
        return self._inner.propose(program)

    def _refusal(self, node: Node) -> str | None:
        raise NotImplementedError

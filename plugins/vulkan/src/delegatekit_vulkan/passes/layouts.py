"""Says where the device keeps each tensor, and copies a tensor where an operator wants it in another form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.graph import Graph, Node, Tensor
from ..ir.stock import ANY, BUFFER, STOCK, Form, forms_of
from ..ir.types import Storage
from ..targets import TARGETS

if TYPE_CHECKING:
    from ..options import VulkanOptions

_CLONE = "aten.clone.default"


def choose_layouts(graph: Graph, options: VulkanOptions) -> None:
    """Tag every tensor that is computed. An operator's operands and results have one form, which the operator takes.

    A form is kept from operand to result as long as the operators take it; an operand in another form is copied, once
    for each form.
    """
    texture = TARGETS[options.target].texture
    chooser = _Chooser(graph, texture, options)
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += chooser.place(node)
    graph.nodes = nodes
    for tensor in (*graph.inputs, *graph.outputs):
        if tensor.storage is Storage.DEFAULT:
            chooser.tag(tensor, chooser.allowed(tensor, ANY)[0])


class _Chooser:
    def __init__(self, graph: Graph, texture: tuple[int, int, int], options: VulkanOptions) -> None:
        self._texture = texture
        self._prefer = {"buffer": Storage.BUFFER, "texture": Storage.TEXTURE_3D}.get(options.storage)
        self._users = graph.users()
        self._copies: dict[tuple[Tensor, Form], Tensor] = {}

    def place(self, node: Node) -> list[Node]:
        """The node with its tensors tagged, after the copies that it needs."""
        facts = STOCK.get(node.operator)
        results = [item for item in node.results if isinstance(item, Tensor)]
        operands = [item for item in node.reads if isinstance(item, Tensor) and item.data is None]
        if facts is None or not (results or operands):
            return [node]
        forms = forms_of(node)
        apart = {node.arguments[position]: own for position, own in facts.apart}
        together = [operand for operand in operands if operand not in apart]
        for tensor in (*together, *results):
            forms = self.allowed(tensor, forms)
        form = self._choice(node, together, results, forms)
        copies = []
        for operand in operands:
            wanted = self.allowed(operand, apart[operand])[0] if operand in apart else form
            if operand.storage is Storage.DEFAULT:
                self.tag(operand, wanted)
            elif _form(operand) != wanted and node.operator != _CLONE:
                copies += self._copied(node, operand, wanted)
        for index, result in enumerate(results):
            special = facts.results[index] if index < len(facts.results) else None
            self.tag(result, form if special is None else self.allowed(result, special)[0])
        return [*copies, node]

    def allowed(self, tensor: Tensor, forms: tuple[Form, ...]) -> tuple[Form, ...]:
        """Those of the forms that the device can keep the tensor in; a buffer if there is none."""
        return tuple(form for form in forms if form.fits(tensor.sizes, self._texture)) or (BUFFER,)

    def tag(self, tensor: Tensor, form: Form) -> None:
        tensor.storage, tensor.layout = form.storage, form.layout

    def _choice(self, node: Node, operands: list[Tensor], results: list[Tensor], forms: tuple[Form, ...]) -> Form:
        if self._prefer is not None:
            forms = tuple(form for form in forms if form.storage is self._prefer) or forms
        for operand in operands:
            if operand.storage is not Storage.DEFAULT and _form(operand) in forms:
                return _form(operand)
        # Nothing is decided yet: what the next operators want.
        for result in results:
            for user in self._users.get(result, ()):
                facts = STOCK.get(user.operator)
                taken = () if facts is None else forms_of(user)
                wanted = tuple(form for form in taken if form in forms)
                if wanted and taken != ANY:
                    return wanted[0]
        return forms[0]

    def _copied(self, node: Node, operand: Tensor, form: Form) -> list[Node]:
        key = (operand, form)
        made = self._copies.get(key)
        nodes = []
        if made is None:
            made = self._copies[key] = Tensor(operand.shape, operand.datatype, operand.staging)
            self.tag(made, form)
            nodes.append(Node(_CLONE, [operand, None], made, node.debug_handles))
        node.replace(operand, made)
        return nodes


def _form(tensor: Tensor) -> Form:
    return Form(tensor.storage, tensor.layout)

"""Chooses the device form of each tensor, and copies a tensor if an operator requires another form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir.graph import PREPACK, Graph, Node, Tensor
from ..ir.stock import ANY, BUFFER, STOCK, Form, StockOperator, forms_of
from ..ir.types import Storage
from ..targets import TARGETS

if TYPE_CHECKING:
    from ..options import VulkanOptions

_CLONE = "aten.clone.default"


def choose_layouts(graph: Graph, options: VulkanOptions) -> None:
    """Tag every computed tensor. An operator's operands and results have one form, which the operator accepts.

    A form is kept from operand to result as long as the operators accept it; an operand in another form is copied, once
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
        self._kept = graph.kept()
        self._copies: dict[tuple[Tensor, Form], Tensor] = {}

    def place(self, node: Node) -> list[Node]:
        """The node with its tensors tagged, after the copies that it needs."""
        facts = STOCK.get(node.operator)
        results = [item for item in node.results if isinstance(item, Tensor)]
        operands = [item for item in node.reads if isinstance(item, Tensor) and item.data is None]
        if facts is None or not (results or operands):
            return [node]
        forms = forms_of(node)
        apart = {node.arguments[position]: own for position, own in facts.apart.items()}
        together = [operand for operand in operands if operand not in apart]
        for tensor in (*together, *results):
            forms = self.allowed(tensor, forms)
        decided = [result for result in results if result.storage is not Storage.DEFAULT]
        if decided and node.operator != PREPACK:  # state, whose new value must have its form
            forms = (_form(decided[0]),)
        form = self._choice(node, together, results, forms)
        copies = []
        for operand in operands:
            taken = self.allowed(operand, apart[operand]) if operand in apart else forms if facts.mixed else (form,)
            if operand.storage is Storage.DEFAULT:
                self.tag(operand, taken[0])
            elif _form(operand) not in taken and node.operator != _CLONE:
                copies += self._copied(node, operand, taken[0])
        for index, result in enumerate(results):
            if result in decided:
                continue
            special = facts.results[index] if index < len(facts.results) else None
            own = (forms if facts.mixed else (form,)) if special is None else self.allowed(result, special)
            self.tag(result, self._wanted([result], own) or own[0])
        return [*copies, node]

    def allowed(self, tensor: Tensor, forms: tuple[Form, ...]) -> tuple[Form, ...]:
        """Those of the forms that the device supports for the tensor; a buffer if there is none."""
        return tuple(form for form in forms if form.fits(tensor.sizes, self._texture)) or (BUFFER,)

    def tag(self, tensor: Tensor, form: Form) -> None:
        tensor.storage, tensor.layout = form.storage, form.layout

    def _choice(self, node: Node, operands: list[Tensor], results: list[Tensor], forms: tuple[Form, ...]) -> Form:
        for operand in operands:
            # Readers of state keep its form, so that a new value can be written in its place.
            if operand in self._kept and _form(operand) in forms:
                return _form(operand)
        if self._prefer is not None:
            forms = tuple(form for form in forms if form.storage is self._prefer) or forms
        for operand in operands:
            if operand.storage is not Storage.DEFAULT and _form(operand) in forms:
                return _form(operand)
        return self._wanted(results, forms) or forms[0]

    def _wanted(self, results: list[Tensor], forms: tuple[Form, ...]) -> Form | None:
        """The form that the next operators require, if none is decided yet."""
        for result in results:
            for user in self._users.get(result, ()):
                facts = STOCK.get(user.operator)
                taken = () if facts is None else _taken(user, facts, result)
                wanted = tuple(form for form in taken if form in forms)
                if wanted and taken != ANY:
                    return wanted[0]
        return None

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


def _taken(node: Node, facts: StockOperator, operand: Tensor) -> tuple[Form, ...]:
    """The forms in which a node accepts an operand."""
    apart = (own for position, own in facts.apart.items() if node.arguments[position] is operand)
    return next(apart, None) or forms_of(node)


def _form(tensor: Tensor) -> Form:
    return Form(tensor.storage, tensor.layout)

"""All errors that leave the core are DelegateKitErrors: bad programs, bad arguments, bad inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from function_module import Function
from torch import nn

import delegatekit
from delegatekit.edge import build_edge
from delegatekit.edge.rules import RULES, Family
from delegatekit.errors.foreign import as_ours
from delegatekit_api import DelegateKitError, ExecutionError, LoweringError, UnsupportedError

X = torch.randn(2, 3)
LINEAR = nn.Linear(3, 4).eval()


class Frozen(nn.Module):
    """A module with a tensor of an unusual kind."""

    def __init__(self, weight: torch.Tensor, function: Callable[..., Any]) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.weight, x)


def _squares(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum()


def _of_layer(x: torch.Tensor) -> torch.Tensor:
    total: torch.Tensor = LINEAR(x).sum()
    return total


def _softmax(row: torch.Tensor) -> torch.Tensor:
    return row.softmax(0)


def _forward_derivative(x: torch.Tensor) -> Any:
    transforms: Any = torch.func
    return transforms.jvp(torch.sin, (x,), (x,))[1]


def _missing(x: torch.Tensor) -> torch.Tensor:
    known: dict[str, torch.Tensor] = {}
    return known["missing"]


def _write(x: torch.Tensor) -> torch.Tensor:
    x[0] = 1
    return x


SPARSE = torch.eye(3).to_sparse()
PROGRAMS: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "a sparse constant": (Function(lambda x, w=SPARSE: torch.sparse.mm(w, x)), (X.t(),)),
    "a sparse buffer": (Frozen(SPARSE, torch.sparse.mm), (X.t(),)),
    "a sparse matrix by rows": (Frozen(torch.eye(3).to_sparse_csr(), lambda w, x: w @ x), (X.t(),)),
    "a sparse value": (Function(lambda x: x.to_sparse().to_dense()), (X,)),
    "a sparse input": (Function(lambda x: x * 2), (X.to_sparse(),)),
    "a nested input": (Function(lambda x: x * 2), (torch.nested.nested_tensor([X, X]),)),
    "a meta input": (Function(lambda x: x * 2), (X.to("meta"),)),
    "a quantized buffer": (
        Frozen(torch.quantize_per_tensor(X, 0.1, 0, torch.quint8), lambda w, x: w.dequantize() + x),
        (X,),
    ),
    "a gradient": (Function(torch.func.grad(_squares)), (X,)),
    "a gradient of a layer": (Function(torch.func.grad(_of_layer)), (X,)),
    "a jacobian": (Function(torch.func.jacrev(torch.sin)), (X,)),
    "a forward derivative": (Function(_forward_derivative), (X,)),
    "autograd": (Function(lambda x: torch.autograd.grad((x.requires_grad_() ** 2).sum(), x)[0]), (X,)),
    "a mapped softmax": (Function(torch.vmap(_softmax, in_dims=1)), (X,)),
    "a complex result": (Function(lambda x: torch.complex(x, x)), (X,)),
    "a complex input": (Function(lambda x: x * 2), (X.to(torch.complex64),)),
    "eigenvalues": (Function(lambda x: torch.linalg.eigvals(x[:, :2])), (X,)),
    "a number of elements that depends on data": (Function(lambda x: x[x > 0]), (X,)),
    "control flow on data": (Function(lambda x: x if x.sum() > 0 else -x), (X,)),
    "a random number": (Function(lambda x: x + torch.rand(3)), (X,)),
    "a write into an input": (Function(_write), (X,)),
    "an exception of its own": (Function(_missing), (X,)),
    "an operator that PyTorch has not": (Function(lambda x: torch.ops.aten.no_such_thing(x, 1)), (X,)),
    "shapes that do not fit": (LINEAR, (torch.randn(2, 5),)),
    "text as a result": (Function(lambda x: (x, "text", 1.5, None)), (X,)),
    "a result of another type": (Function(lambda x: {1: x, "b": [x, object()]}), (X,)),
    "quantized on the way": (Function(lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).int_repr()), (X,)),
    "a linear solver": (Function(lambda x: torch.linalg.solve(x[:, :2], x)), (X,)),
    "float8": (Function(lambda x: x.to(torch.float8_e4m3fn).float()), (X,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_lowered_or_refused_with_an_error_of_ours(name: str) -> None:
    model, inputs = PROGRAMS[name]
    try:
        exported = delegatekit.lower(model.eval(), inputs, backends=[])
    except DelegateKitError as error:
        assert len(str(error)) < 3000
    else:
        assert exported.buffer


@pytest.mark.parametrize("name", ["a sparse constant", "a gradient", "a jacobian", "a write into an input"])
def test_what_is_refused_is_named_with_its_source_line(name: str) -> None:
    model, inputs = PROGRAMS[name]
    with pytest.raises(UnsupportedError, match=r"aten\..*function_module\.py:\d+"):
        delegatekit.lower(model, inputs, backends=[])


def test_what_torch_export_refuses_is_named_with_the_line_at_which_it_gave_up() -> None:
    with pytest.raises(LoweringError, match=r"Function at .*test_foreign\.py:\d+: .*missing") as caught:
        delegatekit.lower(*PROGRAMS["an exception of its own"], backends=[])
    assert isinstance(caught.value.__cause__, KeyError)


def _fails(*_: Any) -> Any:
    raise ZeroDivisionError("by the user's function")


EXPORTED = torch.export.export(LINEAR, (X,), strict=False)
ARGUMENTS: dict[str, dict[str, Any]] = {
    "inputs": {"inputs": 5},
    "text as inputs": {"inputs": "ab"},
    "inputs of objects": {"inputs": (object(),)},
    "kwargs": {"kwargs": 5},
    "backends": {"backends": None},
    "backends of lists": {"backends": [[]]},
    "options": {"options": 3},
    "options of a number": {"backends": ["reference"], "options": {"reference": 3}},
    "only": {"only": 5},
    "skip": {"skip": [5]},
    "a selector that fails": {"backends": ["reference"], "only": [_fails]},
    "partition": {"partition": 5},
    "a partition function that fails": {"partition": _fails},
    "a partition function of numbers": {"partition": lambda *_: 5},
    "external": {"external": 5},
    "an external function that fails": {"external": _fails},
    "memory": {"memory": 5},
    "a planner that fails": {"memory": delegatekit.MemoryOptions(planner=_fails)},
    "spaces that fail": {"memory": delegatekit.MemoryOptions(spaces=_fails)},
    "budget": {"budget": 5},
    "a budget of objects": {"budget": {"sram": object()}},
    "dynamic_shapes": {"dynamic_shapes": 5},
    "model": {"model": 5},
    "methods": {"model": {}},
    "methods of numbers": {"model": {"forward": 5}},
    "methods named by numbers": {"model": {5: EXPORTED}, "inputs": None},
    "a method without a name": {"model": {"": EXPORTED}, "inputs": None},
    "a script": {"model": torch.jit.script(LINEAR)},
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("function", [delegatekit.lower, delegatekit.explain])
def test_wrong_arguments_are_refused_with_an_error_of_ours(name: str, function: Callable[..., Any]) -> None:
    given = {"model": LINEAR, "inputs": (X,), "backends": [], **ARGUMENTS[name]}
    model, inputs = given.pop("model"), given.pop("inputs")
    late = {"external", "memory", "budget"} & set(given)
    if function is delegatekit.explain and late:
        return
    with pytest.raises(DelegateKitError):
        function(model, inputs, **given)


CALLS: dict[str, tuple[Any, ...]] = {
    "nothing": (),
    "too many": (X, X),
    "a number": (5,),
    "a list": ([X],),
    "another dtype": (X.double(),),
    "another shape": (X[:, :2],),
    "a sparse tensor": (X.to_sparse(),),
    "a meta tensor": (X.to("meta"),),
    "a nested tensor": (torch.nested.nested_tensor([X, X]),),
    "a complex tensor": (X.to(torch.complex64),),
    "a quantized tensor": (torch.quantize_per_tensor(X, 0.1, 0, torch.quint8),),
    "an array": (X.numpy(),),
}


@pytest.fixture(scope="module")
def method() -> Any:
    return delegatekit.load(delegatekit.lower(LINEAR, (X,), backends=[]).buffer)["forward"]


@pytest.mark.parametrize("name", CALLS)
def test_wrong_inputs_of_a_call_are_refused_and_the_method_still_works(name: str, method: Any) -> None:
    with pytest.raises(ExecutionError):
        method(*CALLS[name])
    with pytest.raises(ExecutionError):
        method.run(CALLS[name])
    torch.testing.assert_close(method(X), LINEAR(X))


def test_a_fault_of_a_rule_names_the_operator_and_keeps_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family("faulty")
    family.rule(torch.ops.aten.sin.default)(_fails)
    monkeypatch.setattr("delegatekit.edge.build.RULES", RULES.extended(family))
    with pytest.raises(UnsupportedError, match=r"aten\.sin.*function_module\.py.*ZeroDivisionError") as caught:
        build_edge(torch.export.export(Function(lambda x: x.sin()), (X,), strict=False))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_errors_of_ours_and_what_ends_the_process_pass_unchanged() -> None:
    for passing in (LoweringError("as it is"), KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(passing)) as caught, as_ours(UnsupportedError):
            raise passing
        assert caught.value is passing


def test_long_texts_are_cut_off() -> None:
    with pytest.raises(LoweringError) as caught, as_ours(LoweringError):
        raise RuntimeError("word " * 1000 + "\n\nand a second paragraph")
    assert len(str(caught.value)) < 500

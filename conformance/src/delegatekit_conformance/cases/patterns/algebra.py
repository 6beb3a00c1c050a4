"""Constants, arithmetic, views, odd outputs and recurrent cells."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..subjects import Built
from .register import pattern


@pattern("shared-weight")
def shared_weight() -> Built:
    """One weight in two layers and, transposed, in a third."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> Any:
            return nn.functional.linear(torch.tanh(self.layer(torch.relu(self.layer(x)))), self.layer.weight.t())

    return Model(), [(torch.randn(3, 8),)]


@pattern("weights-of-zeros")
def weights_of_zeros() -> Built:
    """Layers that are initialized with zeros, of several sizes: packed, their weights may be the same bytes."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Linear(size, 8) for size in (3, 5)]
            for layer in layers:
                nn.init.zeros_(layer.weight)
            self.layers = nn.ModuleList(layers)

        def forward(self, *inputs: torch.Tensor) -> Any:
            return [layer(x) for layer, x in zip(self.layers, inputs, strict=True)]

    return Model(), [(torch.randn(3, 3), torch.randn(3, 5))]


@pattern("weight-from-constants")
def weight_from_constants() -> Built:
    """Weights computed from constants: weight norm written out, and a reshaped kernel."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.direction, self.length = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.rand(4, 1) + 0.5)

        def forward(self, x: torch.Tensor) -> Any:
            weight = self.length * self.direction / self.direction.norm(dim=1, keepdim=True)
            return nn.functional.linear(x, weight) + (weight.sum(1) * 2).exp()

    return Model(), [(torch.randn(3, 6),)]


@pattern("many-elements")
def many_elements() -> Built:
    """Elementwise operators over more than 65536 elements, in rows that no vector or tile divides."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return torch.relu(x + y) * torch.sigmoid(x - y)

    return Model(), [(torch.randn(3, 25013), torch.randn(3, 25013))]


@pattern("choices")
def choices() -> Built:
    """Comparisons of two values and with a number, logic on their results, choices by it; rows chosen by indices."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.places = nn.Embedding(7, 6), nn.Buffer(torch.tensor([2, 0, 3]))

        def forward(self, x: torch.Tensor, y: torch.Tensor, indices: torch.Tensor) -> Any:
            a, b = x + y, x * y
            near = ((a > y) & (b < 1.25)) | ~(b >= -0.25)
            chosen = torch.where(near ^ (y > 0.5), a, b)
            rows = self.table(indices) + 1
            return chosen, torch.where(y <= x, chosen, b), rows, torch.index_select(rows, 0, self.places)

    # No comparison is so close that a rounding decides.
    x, y = torch.randint(-2, 2, (4, 6)) + 0.5, torch.randint(-1, 3, (4, 6)).float()
    return Model(), [(x, y, torch.tensor([5, 1, 0, 6, 5], dtype=torch.int32))]


@pattern("weight-as-output")
def weight_as_output() -> Built:
    """A weight that a layer uses is returned, too."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> Any:
            return self.layer(x), self.layer.weight, self.layer.bias + 1, x

    return Model(), [(torch.randn(2, 4),)]


@pattern("weight-as-input")
def weight_as_input() -> Built:
    """A linear layer whose weight changes from call to call."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
            return torch.relu(nn.functional.linear(x, weight, bias))

    return Model(), [(torch.randn(2, 4), torch.randn(3, 4), torch.randn(3)) for _ in range(2)]


@pattern("x-plus-x")
def x_plus_x() -> Built:
    """A value with itself, and with itself again."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            y = x + x
            return y * y, y - y, torch.cat([x, x, y], 1), torch.maximum(y, y)

    return Model(), [(torch.randn(3, 4),)]


@pattern("clamps")
def clamps() -> Built:
    """Clamps one after another, one with its bounds in the wrong order, relu of a clamp."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            y = x.clamp(-1, 1).clamp(min=-0.5).clamp(max=0.25)
            return (
                y,
                nn.functional.relu(x.clamp(-2, 0.5)),
                x.clamp(0.5, -0.5),
                nn.functional.relu6(nn.functional.relu(x * 5)),
                nn.functional.relu(x).clamp(-1, 3),
            )

    return Model(), [(2 * torch.randn(4, 5),)]


@pattern("functions")
def functions() -> Built:
    """Elementwise functions after a convolution: roots, squares, exponentials and logarithms, maxima and minima."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.conv(x)
            z = nn.functional.hardtanh(y, 0.5, 2.0)
            grown, shrunk = torch.exp(-y), torch.log(z) + torch.sqrt(z)
            return torch.maximum(y, torch.square(z)), torch.minimum(y, shrunk), grown, z**2

    return Model(), [(torch.randn(1, 3, 6, 6),)]


@pattern("gates-and-slopes")
def gates_and_slopes() -> Built:
    """Activations with bends away from zero after a convolution: gates, and slopes that are alike or learned."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.slopes = nn.Conv2d(3, 4, 3), nn.PReLU(4)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.conv(x)
            return nn.functional.hardsigmoid(4 * y) * y, nn.functional.leaky_relu(y, 0.2), self.slopes(y)

    return Model(), [(torch.randn(1, 3, 6, 6),)]


@pattern("scaled")
def scaled() -> Built:
    """Products, quotients and differences of a computed value with numbers and with a constant for each channel."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.scale = nn.Conv2d(3, 4, 3), nn.Parameter(torch.rand(4, 1, 1) + 0.5)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.conv(x)
            pooled = nn.functional.avg_pool2d(y * self.scale, 4)
            return nn.functional.relu(y * -0.5), y / 3.0, y * self.scale, pooled, y - 0.25

    return Model(), [(torch.randn(1, 3, 6, 6),)]


@pattern("two-after-each-other")
def two_after_each_other() -> Built:
    """Each of many operators with numbers and constants after each other one: compilers join or exchange them."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.row, self.table = nn.Buffer(4 * torch.rand(4) + 5), nn.Buffer(0.3 * torch.rand(4, 4) + 0.1)

        def forward(self, *inputs: torch.Tensor) -> Any:
            steps = (
                *(lambda x: x + self.row, lambda x: self.row - x, lambda x: x * self.row, lambda x: self.row / x),
                *(lambda x: x + 1.5, lambda x: x * 2.5, lambda x: x / 3, lambda x: 0.25 - x, lambda x: -x),
                *(lambda x: x @ self.table, lambda x: nn.functional.linear(x, self.table, self.row), lambda x: x.mT),
            )
            rest = iter(inputs)
            return [second(first(next(rest))) for first in steps for second in steps]

    return Model(), [tuple(1.5 * torch.rand(4, 4) + 0.5 for _ in range(144))]


@pattern("scalars")
def scalars() -> Built:
    """Arithmetic with Python numbers on either side."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return (2 - x) * 3 + 1, 1 / (x * x + 2), -x / 4, x // 0.5, x**3, 2.0 ** (x / 4), (x + 1) ** 2

    return Model(), [(torch.tensor([[-1.3, 0.7, 2.1], [0.1, -2.6, 1.9]]),)]


@pattern("integers-and-floats")
def integers_and_floats() -> Built:
    """Type promotion: integers times floats, and compared; true division of integers, bools summed up."""

    class Model(nn.Module):
        def forward(self, n: torch.Tensor, x: torch.Tensor) -> Any:
            compared = n < x, x.round() == n
            return *compared, n * x, n / 2, n // 2, n % 3, (n > 1).sum(), (n > 1) * x, n + 1.5, n.float().mean()

    return Model(), [(torch.randint(-5, 6, (3, 4)), torch.randn(3, 4))]


@pattern("filled-and-read")
def filled_and_read() -> Built:
    """Tensors that are filled with a number of their kind, and read before: floats, integers and booleans."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
            more, positive = n + 1, x > 0
            return [torch.fill(one, 1) * one for one in (x.abs(), more)], torch.fill(positive, False) | positive

    return Model(), [(torch.randn(3, 4), torch.randint(-5, 6, (3, 4), dtype=torch.int32))]


@pattern("relu-as-maximum")
def relu_as_maximum() -> Built:
    """Activations written with other operators."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return (
                torch.maximum(x, torch.zeros(())),
                torch.where(x > 0, x, 0.1 * x),
                x * torch.sigmoid(x),
                x * nn.functional.relu6(x + 3) / 6,
                (x.exp() + 1).log(),
            )

    return Model(), [(torch.randn(3, 5),)]


@pattern("views-around-an-operator")
def views_around_an_operator() -> Built:
    """Permutations that cancel, and that do not: a reshape between cuts through axes. A transpose into a product."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            y = x.permute(0, 2, 3, 1).relu().permute(0, 3, 1, 2)
            z = x.reshape(2, -1).reshape(2, 3, 16).transpose(1, 2)
            cut = y.permute(0, 2, 3, 1).reshape(2, 6, 8).transpose(1, 2)
            return y, z @ z.transpose(1, 2), x.flatten(1).view(2, 3, 4, 4).tanh(), y.mT @ y, cut

    return Model(), [(torch.randn(2, 3, 4, 4),)]


@pattern("eight-axes")
def eight_axes() -> Built:
    """Eight axes none of which can be joined with the next: reversed, and repeated along every second one."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            turned, every = x.permute(*reversed(range(8))), x[:, :1, :, :1, :, :1, :, :1]
            return turned.contiguous(), x * every, torch.where(every > 0, x, turned), x.flip(0, 2, 4, 6)

    return Model(), [(torch.randn((2,) * 8),)]


@pattern("square-of-a-transpose")
def square_of_a_transpose() -> Built:
    """A transposed value multiplied by itself, which some runtimes get wrong in its plain form."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 1)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            x, y = self.conv(x), y.permute(1, 0, 2)
            return x @ x, y @ y, y @ y.mT, y.mT @ y

    return Model(), [(torch.randn(1, 4, 6, 6), torch.randn(6, 4, 6))]


@pattern("square-of-an-input")
def square_of_an_input() -> Built:
    """A matrix, stacks of matrices and a vector that come from outside, each multiplied by itself."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
            return x @ x, x @ x.mT, torch.bmm(y, y), y.mT @ y, z @ z, torch.einsum("i,i->", z, z)

    return Model(), [(torch.randn(5, 5), torch.randn(2, 4, 4), torch.randn(6)) for _ in range(2)]


@pattern("element-of-a-constant")
def element_of_a_constant() -> Built:
    """Constants of one element that are views with odd strides into larger ones."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Buffer(torch.randn(1, 7))

        def forward(self, x: torch.Tensor) -> Any:
            return x * self.table.unbind(1)[5], x + self.table[:, 3], self.table[:, 2::5]

    return Model(), [(torch.randn(2),)]


@pattern("split-and-cat")
def split_and_cat() -> Built:
    """Parts computed separately and joined in another order."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            a, b, c = x.split_with_sizes([1, 2, 3], 1)
            return torch.cat([c.relu(), a, -b, a], 1), torch.stack([x, -x], 2).flatten(1)

    return Model(), [(torch.randn(2, 6, 3),)]


@pattern("slices")
def slices() -> Built:
    """Overlapping windows, steps, negative ends, and a sum of shifted copies."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x[:, 1:] - x[:, :-1], x[:, ::2] * 2, x[:, -3:], x[:, 2], x[..., None, :2], x.roll(1, 1) + x

    return Model(), [(torch.randn(3, 7),)]


@pattern("dead-branch")
def dead_branch() -> Built:
    """An operator whose result is not used, an input that is not read, an output that is returned twice."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, unused: torch.Tensor) -> Any:
            torch.sort(x.exp(), 1)
            y = x.tanh()
            return y, x, y

    return Model(), [(torch.randn(2, 4), torch.randn(3))]


@pattern("nested-outputs")
def nested_outputs() -> Built:
    """A dict with a list and a tuple in it, and a None."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return {"values": [x.relu(), (x.tanh(),)], "nothing": None, "x": x + 1}

    return Model(), [(torch.randn(2, 4),)]


@pattern("argmax-gather")
def argmax_gather() -> Built:
    """The best class, its score, and the three best."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            best = x.argmax(-1, keepdim=True)
            values, indices = x.softmax(-1).topk(3, -1)
            return best, x.gather(-1, best), values, indices

    return Model(), [(torch.randn(4, 7),)]


@pattern("places-from-the-end")
def places_from_the_end() -> Built:
    """Rows at places that are counted from the end, along each axis of three sizes, and along two of them at once."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, i: torch.Tensor) -> Any:
            y = x.relu()
            return y[i], y[:, i], y[..., i], y[i, i], y[:, i, i]

    return Model(), [(torch.randn(3, 5, 7), torch.tensor([-1, 2, -3, 0]))]


@pattern("written-at-places")
def written_at_places() -> Built:
    """Rows written and added at places of two axes with another one between them; a number added where a mask holds."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, i: torch.Tensor, j: torch.Tensor, rows: torch.Tensor) -> Any:
            y = x.relu()
            put, apart = torch.ops.aten.index_put, [None, i, None, j]
            return put(y, apart, rows), put(y, apart, rows, True), put(y, [x > 0], rows[0, 0, 0], True)

    places = torch.tensor([2, 0, 1]), torch.tensor([1, 3, 1])
    return Model(), [(torch.randn(2, 3, 4, 5), *places, torch.randn(3, 2, 4))]


@pattern("half-precision-inside")
def half_precision_inside() -> Built:
    """Integers that are exact in float16 go there and back; other numbers are rounded on the way."""

    class Model(nn.Module):
        def forward(self, n: torch.Tensor, x: torch.Tensor) -> Any:
            return (n.half() * 2 + 1).float().relu() - 3, x.half().float() * 2, x + x.bfloat16().float()

    return Model(), [(torch.randint(-9, 9, (3, 4)), torch.randn(3, 5))]


@pattern("lstm-cell")
def lstm_cell() -> Built:
    """One step of an LSTM, its gates written out."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gates = nn.Linear(12, 32)

        def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
            i, f, g, o = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            return o.sigmoid() * c.tanh(), c

    return Model(), [(torch.randn(2, 4), torch.randn(2, 8), torch.randn(2, 8))]


@pattern("gru")
def gru() -> Built:
    """nn.GRU over four steps, with biases and without."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.plain = nn.GRU(4, 6, batch_first=True), nn.GRU(4, 6, batch_first=True, bias=False)

        def forward(self, x: torch.Tensor) -> Any:
            return self.gru(x)[0], self.plain(x)[0]

    return Model(), [(torch.randn(2, 4, 4),)]


@pattern("values-eleven")
def values_eleven() -> Built:
    """Eleven inputs and outputs of one shape, in another order: "10" sorts before "2"."""
    order = torch.randperm(11, generator=torch.Generator().manual_seed(3)).tolist()

    class Model(nn.Module):
        def forward(self, *inputs: torch.Tensor) -> Any:
            return tuple(inputs[place] + inputs[place] for place in order)

    return Model(), [tuple(torch.randn(2, 3) for _ in order)]


@pattern("values-hundred-and-one")
def values_hundred_and_one() -> Built:
    """A hundred and one inputs and outputs of one shape, in another order: "100" sorts before "11"."""
    order = torch.randperm(101, generator=torch.Generator().manual_seed(3)).tolist()

    class Model(nn.Module):
        def forward(self, *inputs: torch.Tensor) -> Any:
            return tuple(inputs[place] + inputs[place] for place in order)

    return Model(), [tuple(torch.randn(2, 3) for _ in order)]

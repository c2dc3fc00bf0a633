"""Defines operators on several packed layers at once, for modules that merge layers into one.

Layers come as a tensor of int64, an input of a compiled graph and no constant in it: graphs are
kept between runs, the numbers of layers are not. Row i is (number, rows, whether exact).
"""
from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence, Union

import torch
from torch.nn import functional

from . import _walsh
from ._error import usage
from ._operators import (CODES, LIBRARY, as_rows, current_stream, linear_cuda, view_of,
                         weights_on)
from ._placed import PlacedLinear
from .torch import Linear

# An expert does this between its products: gate to activated gate.
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


Packed = Union[Linear, PlacedLinear]


def layer_table(layers: Iterable[Packed]) -> torch.Tensor:
    """Returns the tensor that names packed layers to the operators; the layers must outlive it.

    >>> layer = Linear.from_linear(torch.nn.Linear(128, 64, bias=False), type="tq4")
    >>> torch.ops.walsh.linear_merged(torch.zeros(2, 128), layer_table([layer, layer]), 128).shape
    torch.Size([2, 128])
    """
    table = []
    for layer in layers:
        layer.pack()
        table.append((layer.layer, layer.out_features, int(layer.exact)))
    return torch.tensor(table, dtype=torch.int64, device="cpu").reshape(-1, 3)


def expert_table(layers: Sequence[Sequence[Packed]]) -> torch.Tensor:
    """Returns the same for the merged layers of every expert, [experts, layers of one, 3]; where
    there are fewer of an expert the rest has no rows."""
    most = max(len(own) for own in layers)
    table = torch.zeros((len(layers), most, 3), dtype=torch.int64, device="cpu")
    for row, own in zip(table, layers):
        row[:len(own)] = layer_table(own)
    return table


def _table(layers: torch.Tensor, dimensions: int) -> list[Any]:
    if layers.dim() != dimensions or layers.shape[-1] != 3 or layers.dtype != torch.int64:
        raise usage("layers", f"{layers.dtype} {tuple(layers.shape)}, expected a table of layers")
    return list(layers.tolist())


def _multiply(x: torch.Tensor, table: list[list[int]], rows: int) -> torch.Tensor:
    """Returns the results of the layers of a table side by side, [..., rows]."""
    if sum(entry[1] for entry in table) != rows or any(entry[1] < 0 for entry in table):
        raise usage("layers", f"they do not have {rows} rows together")
    if x.is_cuda:
        return _multiply_cuda(x, table, rows)
    matrix = as_rows(x)
    view = view_of(matrix, "input")
    y = x.new_empty((*x.shape[:-1], rows))
    address = y.data_ptr()
    for layer, own_rows, exact in table:
        if own_rows:
            _walsh.layer_multiply(layer, view, address, own_rows, rows, bool(exact))
        address += own_rows * y.element_size()
    return y


def _multiply_cuda(x: torch.Tensor, table: list[list[int]], rows: int) -> torch.Tensor:
    """Does the same on the GPU of x, where the layers have to be."""
    device = x.get_device()
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return _multiply_cuda(x, table, rows)
    if len(table) == 1:
        return linear_cuda(x, table[0][0], rows, bool(table[0][2]))
    matrix = as_rows(x)
    m, cols = matrix.shape
    code = CODES.get(x.dtype, -1)
    y = x.new_empty((*x.shape[:-1], rows))
    flat, first = y.view(m, rows), 0
    for layer, own_rows, exact in table:
        part = flat[:, first:first + own_rows]
        first += own_rows
        if not own_rows:
            continue
        size = _walsh.device_plan(layer, m, own_rows, cols, code, bool(exact), device)
        if size < 0:
            part.copy_(functional.linear(matrix, weights_on(device, layer, cols, x.dtype)))
        elif m:
            workspace = x.new_empty(size, dtype=torch.uint8)
            _walsh.device_multiply(layer, matrix.data_ptr(), code, m, matrix.stride(0),
                                   part.data_ptr(), rows, workspace.data_ptr(), size,
                                   current_stream(device))
    return y


def _linear_merged(x: torch.Tensor, layers: torch.Tensor, rows: int) -> torch.Tensor:
    return _multiply(x, _table(layers, 2), rows)


def _linear_merged_fake(x: torch.Tensor, layers: torch.Tensor, rows: int) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], rows))


def _experts(x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, up: torch.Tensor,
             down: torch.Tensor, activation: str) -> torch.Tensor:
    """Computes the sum over the chosen experts of weight * down(act(gate(x)) * up(x)), for x
    [tokens, hidden], weights and ids [tokens, chosen]. `up` names the layers of gate and up
    together, `down` those of down, by expert (expert_table); an id below 0 gives nothing."""
    if activation not in ACTIVATIONS:
        raise usage("activation", f"{activation}, expected one of {', '.join(ACTIVATIONS)}")
    if x.dim() != 2 or ids.dim() != 2 or weights.shape != ids.shape or len(ids) != len(x):
        raise usage("experts", f"{tuple(weights.shape)} weights and {tuple(ids.shape)} ids for "
                               f"inputs {tuple(x.shape)}, expected the same of every row")
    function = ACTIVATIONS[activation]
    out = x.new_zeros(x.shape, dtype=torch.float32)
    ups, downs = _table(up, 3), _table(down, 3)
    if int(ids.max() if ids.numel() else -1) >= min(len(ups), len(downs)):
        raise usage("ids", f"{int(ids.max())}, there are {min(len(ups), len(downs))} experts")
    for expert in torch.unique(ids).tolist():
        if expert < 0:
            continue
        token, slot = torch.nonzero(ids == expert, as_tuple=True)
        rows = sum(entry[1] for entry in ups[expert])
        both = _multiply(x[token], ups[expert], rows)
        hidden = function(both[:, :rows // 2]) * both[:, rows // 2:]
        y = _multiply(hidden, downs[expert], x.shape[1])
        out.index_add_(0, token, y.float() * weights[token, slot, None].float())
    return out.to(x.dtype)


def _experts_fake(x: torch.Tensor, *others: Any) -> torch.Tensor:
    return torch.empty_like(x)


LIBRARY.define("linear_merged(Tensor x, Tensor layers, int rows) -> Tensor")
LIBRARY.define("experts(Tensor x, Tensor weights, Tensor ids, Tensor up, Tensor down, "
                "str activation) -> Tensor")
LIBRARY.impl("linear_merged", _linear_merged, "CPU")
LIBRARY.impl("linear_merged", _linear_merged, "CUDA")
LIBRARY.impl("experts", _experts, "CPU")
torch.library.register_fake("walsh::linear_merged", _linear_merged_fake, lib=LIBRARY)
torch.library.register_fake("walsh::experts", _experts_fake, lib=LIBRARY)

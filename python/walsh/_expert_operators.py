"""Defines operators on the layers of experts: every row is multiplied by the layer of its own
expert.

A graph names a module of experts by a number, and the operators look up its layers when they run:
compilers need not trace a loop over experts, whose numbers depend on the input.
"""
from __future__ import annotations

import hashlib
import weakref
from typing import Any, Callable, Optional

import torch

from . import _walsh
from ._error import usage
from ._operators import LIBRARY, decoded, linear_cuda, view_of

MODULES: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def add_module(experts: Any) -> int:
    """Returns the number of a module from now on. It comes from its layers, since programs that
    torch.export saves have it in them: in another process it must not be that of other experts."""
    layers = [layer for part in range(3) for layer in experts.layers(part)]
    for layer in layers:
        layer.pack()
    text = " ".join(str(layer.layer) for layer in layers)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") + 1  # 0 is none
    while MODULES.get(number, experts) is not experts:  # other experts may have the same layers
        number += 1
    MODULES[number] = experts
    return number


def _layers(number: int, part: int) -> list[Any]:
    experts = MODULES.get(number)
    if experts is None:
        raise usage(f"experts {number}", "they are gone, or were never in this process: "
                                         "load them first, and keep them")
    layers = experts.layers(part)
    for layer in layers:
        layer.pack()
    return list(layers)


def _grouped(x: torch.Tensor, ids: torch.Tensor, layers: list[Any], width: int,
             product: Callable[[Any, torch.Tensor, torch.Tensor], None]) -> torch.Tensor:
    """Computes y[t][k] = product of layer ids[t][k] and x[t][k]; zeros where there is no such
    layer. Rows of one expert are multiplied together."""
    if x.dim() != 3 or ids.shape != x.shape[:2]:
        raise usage("experts", f"ids {tuple(ids.shape)} for inputs {tuple(x.shape)}")
    y = x.new_zeros((*ids.shape, width))
    flat = ids.reshape(-1)
    order = torch.argsort(flat, stable=True)
    numbers, counts = torch.unique_consecutive(flat[order], return_counts=True)
    begin = 0
    for number, count in zip(numbers.tolist(), counts.tolist()):
        rows = order[begin:begin + count]
        begin += count
        if not 0 <= number < len(layers):  # other processes have these
            continue
        token, place = rows // ids.shape[1], rows % ids.shape[1]
        own = x[token, place]
        out = own.new_empty((count, width))
        product(layers[number], own, out)
        y[token, place] = out
    return y


def _product(layer: Any, x: torch.Tensor, out: torch.Tensor) -> None:
    if x.is_cuda:
        out.copy_(linear_cuda(x, layer.layer, layer.out_features, layer.exact))
    else:
        _walsh.layer_multiply(layer.layer, view_of(x, "input"), out.data_ptr(), out.shape[1],
                              out.shape[1], layer.exact)
    if layer.bias is not None:
        out += layer.bias.to(out.dtype)


def _experts_linear(x: torch.Tensor, ids: torch.Tensor, experts: int, part: int,
                    rows: int) -> torch.Tensor:
    return _grouped(x, ids, _layers(experts, part), rows, _product)


def _input_grad(grad: torch.Tensor, ids: torch.Tensor, experts: int, part: int,
                cols: int) -> torch.Tensor:
    def product(layer: Any, rows: torch.Tensor, out: torch.Tensor) -> None:
        weight = decoded(layer.layer, layer.out_features, layer.in_features).to(rows.device)
        out.copy_(rows.to(torch.float32) @ weight)

    return _grouped(grad, ids, _layers(experts, part), cols, product)


def _tangent(x: torch.Tensor, ids: torch.Tensor, experts: int, part: int,
             rows: int) -> torch.Tensor:
    def product(layer: Any, rows: torch.Tensor, out: torch.Tensor) -> None:
        weight = decoded(layer.layer, layer.out_features, layer.in_features).to(rows.device)
        out.copy_(rows.to(torch.float32) @ weight.T)

    return _grouped(x, ids, _layers(experts, part), rows, product)


def _fake(x: torch.Tensor, ids: torch.Tensor, experts: int, part: int,
          width: int) -> torch.Tensor:
    return x.new_empty((*ids.shape, width))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ids, ctx.experts, ctx.part, _ = inputs
    ctx.save_for_backward(ids)
    ctx.cols = x.shape[-1]


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
    (ids,) = ctx.saved_tensors
    found = torch.ops.walsh.experts_input_grad(grad, ids, ctx.experts, ctx.part, ctx.cols)
    return found, None, None, None, None


LIBRARY.define("experts_linear(Tensor x, Tensor ids, int experts, int part, int rows) -> Tensor")
LIBRARY.define("experts_input_grad(Tensor grad, Tensor ids, int experts, int part, int cols) "
               "-> Tensor")
LIBRARY.define("experts_tangent(Tensor x, Tensor ids, int experts, int part, int rows) -> Tensor")
for _key in ("CPU", "CUDA"):
    LIBRARY.impl("experts_linear", _experts_linear, _key)
    LIBRARY.impl("experts_input_grad", _input_grad, _key)
    LIBRARY.impl("experts_tangent", _tangent, _key)
torch.library.register_fake("walsh::experts_linear", _fake, lib=LIBRARY)
torch.library.register_fake("walsh::experts_input_grad", _fake, lib=LIBRARY)
torch.library.register_fake("walsh::experts_tangent", _fake, lib=LIBRARY)
torch.library.register_autograd("walsh::experts_linear", _backward, setup_context=_save,
                                lib=LIBRARY)


def _batch(operator: Any) -> Callable[..., tuple[torch.Tensor, int]]:
    """Returns how an operator multiplies a batch of inputs: as one with more tokens."""
    def run(info: Any, in_dims: tuple[Optional[int], ...], x: torch.Tensor, ids: torch.Tensor,
            *others: int) -> tuple[torch.Tensor, int]:
        x, ids = (values.expand(info.batch_size, *values.shape) if dim is None
                  else values.movedim(dim, 0) for values, dim in zip((x, ids), in_dims))
        y = operator(x.flatten(0, 1), ids.flatten(0, 1), *others)
        return y.unflatten(0, ids.shape[:2]), 0

    return run


if hasattr(torch.library, "register_vmap"):  # without it torch.vmap takes inputs one by one
    for _name in ("experts_linear", "experts_input_grad", "experts_tangent"):
        torch.library.register_vmap(f"walsh::{_name}", _batch(getattr(torch.ops.walsh, _name)),
                                    lib=LIBRARY)

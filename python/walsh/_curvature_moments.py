"""Measures second moments of the gradients at the outputs of a layer's matrices.

Matrices are found by the memory of their weights wherever a module multiplies with one, so that
no family of models has to be known: neither what its layers are called nor how its experts lie in
their tensors.
"""
from __future__ import annotations

import bisect
from typing import Any, Iterator, Optional

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ._experts import GATE_UP, PARTS, Shape, is_fused

_LINEAR = torch.nn.functional.linear
_MATMUL = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm, torch.Tensor.bmm)


class Moments:
    """Adds up g g^T over the gradients that reached one matrix."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.sum = torch.zeros(rows, rows, dtype=torch.float32, device=device)
        self.tokens = 0

    def add(self, gradients: torch.Tensor) -> None:
        """Adds rows [tokens, rows]."""
        gradients = gradients.float()
        self.sum.addmm_(gradients.T, gradients)
        self.tokens += len(gradients)

    def packed_mean(self) -> torch.Tensor:
        """Returns the upper triangle of the mean, row by row."""
        rows, columns = torch.triu_indices(*self.sum.shape, device=self.sum.device)
        return (self.sum[rows, columns] / max(1, self.tokens)).cpu()


class _Matrix:
    """Describes some rows of a parameter, which are a matrix of the checkpoint by themselves."""

    def __init__(self, key: str, rows: slice, count: int) -> None:
        self.key, self.rows, self.count = key, rows, count


class _Parameter:
    """Describes a parameter of a layer: one matrix, or those of all experts."""

    def __init__(self, tensor: torch.Tensor, transposed: bool,
                 matrices: list[list[_Matrix]]) -> None:
        self.first, self.transposed, self.matrices = tensor.data_ptr(), transposed, matrices
        self.dims = tensor.dim()
        self.bytes = tensor.numel() * tensor.element_size()

    def index_of(self, weight: torch.Tensor) -> int:
        """Returns the number of the expert that a view of it belongs to; -1: of all experts."""
        if weight.dim() == self.dims and self.dims == 3:
            return -1
        return (weight.data_ptr() - self.first) * len(self.matrices) // self.bytes


def _row_slices(part: str, rows: int, interleaved: bool
                ) -> Iterator[tuple[str, slice[Any, Any, Any], int]]:
    if part != GATE_UP:
        yield PARTS[2], slice(0, rows), rows
        return
    half = rows // 2
    gate, up = (slice(0, rows, 2), slice(1, rows, 2)) if interleaved else (slice(0, half),
                                                                           slice(half, rows))
    yield PARTS[0], gate, half
    yield PARTS[1], up, half


class LayerMoments(TorchFunctionMode):
    """While it is entered, every product of `layer` with one of its matrices adds the gradients at
    its output, when they come. Modules of experts whose tensors hold all of them are counted expert
    by expert. `prefix` is the name of the layer in the model."""

    def __init__(self, layer: nn.Module, prefix: str) -> None:
        super().__init__()
        self.moments: dict[str, Moments] = {}
        self.keys: list[str] = []  # these are all matrices, also those that nothing reached
        self._parameters: list[_Parameter] = []
        fused = {f"{name}.{kind}" for name, module in layer.named_modules() if is_fused(module)
                 for kind in (GATE_UP, PARTS[2])}
        for name, tensor in layer.named_parameters():
            module = layer.get_submodule(name.rpartition(".")[0])
            if name in fused:
                self._add_experts(f"{prefix}.{name}", tensor, Shape(module))
            elif tensor.dim() == 2:
                rows = len(tensor)
                matrix = _Matrix(f"{prefix}.{name}", slice(0, rows), rows)
                self._parameters.append(_Parameter(tensor, False, [[matrix]]))
                self.keys.append(matrix.key)
        self._parameters.sort(key=lambda p: p.first)
        self._starts = [p.first for p in self._parameters]

    def _add_experts(self, name: str, tensor: torch.Tensor, shape: Shape) -> None:
        module, _, part = name.rpartition(".")
        rows = tensor.shape[2 if shape.transposed else 1]
        experts = [[_Matrix(f"{module}.{number}.{own}.weight", taken, count)
                    for own, taken, count in _row_slices(part, rows, shape.interleaved)]
                   for number in range(shape.count)]
        self._parameters.append(_Parameter(tensor, shape.transposed, experts))
        self.keys += [matrix.key for own in experts for matrix in own]

    def _find(self, weight: Any) -> Optional[_Parameter]:
        if not isinstance(weight, torch.Tensor) or weight.dim() < 2:
            return None
        at = bisect.bisect_right(self._starts, weight.data_ptr()) - 1
        if at < 0:
            return None
        found = self._parameters[at]
        return found if weight.data_ptr() < found.first + found.bytes else None

    def __torch_function__(self, func: Any, types: Any, args: Any = (),
                           kwargs: Optional[dict[str, Any]] = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if (func is _LINEAR or func in _MATMUL) and len(args) > 1:
            parameter = self._find(args[1])
            if parameter is not None and result.requires_grad:
                index = parameter.index_of(args[1])

                def count(gradient: torch.Tensor) -> None:
                    self._add(parameter, index, gradient.detach())

                result.register_hook(count)
        return result

    def _add(self, parameter: _Parameter, index: int, gradients: torch.Tensor) -> None:
        if index < 0:  # it is [experts, rows, outputs]; tokens of others are rows of zeros
            for number, own in enumerate(gradients):
                self._add_rows(parameter.matrices[number], own[own.any(-1)])
            return
        self._add_rows(parameter.matrices[index], gradients.flatten(0, -2))

    def _add_rows(self, matrices: list[_Matrix], gradients: torch.Tensor) -> None:
        for matrix in matrices if len(gradients) else ():
            if matrix.key not in self.moments:
                self.moments[matrix.key] = Moments(matrix.count, gradients.device)
            self.moments[matrix.key].add(gradients[:, matrix.rows])

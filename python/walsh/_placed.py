"""Holds layers and experts whose packed weights are on a GPU alone, in memory of PyTorch's
allocator.

They take less than walsh.torch.Linear, which keeps its weights in host memory as well and can be
stored again: the plugin of vLLM multiplies with them and asks for no more.
"""
from __future__ import annotations

import weakref
from typing import Any, NamedTuple, Sequence

import torch
from torch.nn import functional

from . import _walsh
from ._error import usage
from ._operators import CODES, LIBRARY, as_rows, check_dtype, current_stream

Rotation = tuple[str, int, int, bool]  # these are kind, block, seed and signs


class Form(NamedTuple):
    """Says what a layer's codes are, and which rotations its passes have."""

    type: str
    rows: int
    cols: int
    rotations: list[Rotation]


def _contiguous(weight: torch.Tensor) -> tuple[torch.Tensor, tuple[int, str, int, int, int]]:
    """Returns weights on a GPU as a matrix, and as the extension module takes it; the first keeps
    the memory of the second."""
    matrix = weight.detach().reshape(-1, weight.shape[-1]).contiguous()
    rows, cols = matrix.shape
    return matrix, (matrix.data_ptr(), check_dtype(matrix, "weights"), rows, cols, cols)


def _places(arrays: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    return [(array.data_ptr(), array.numel()) for array in arrays]


def _on_host(form: Form, arrays: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Returns the stored arrays of a layer in the order of the extension module."""
    names = [name for name, _, _ in _walsh.layer_arrays(*form)]
    return [arrays[name].detach().cpu().contiguous() for name in names]


def _memory(size: int, device: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", device))


def _place(memory: torch.Tensor) -> tuple[int, int]:
    return memory.data_ptr(), memory.numel()


class PlacedLinear:
    """Multiplies with a layer on the GPU that it was made on."""

    def __init__(self, form: Form, memory: torch.Tensor, layer: int) -> None:
        self.format, self.out_features, self.in_features, self.rotations = form
        self.layer = layer
        self.exact = False
        self.bytes = memory.numel()
        # The memory is given back after the layer that is in it.
        weakref.finalize(self, _free_layer, layer, memory)

    @classmethod
    def encode(cls, form: Form, weight: torch.Tensor, *, fast: bool, shape_gain: bool
               ) -> PlacedLinear:
        """Returns a layer with the encoded values of weights on a GPU."""
        device = weight.get_device()
        with torch.cuda.device(device):
            matrix, view = _contiguous(weight)
            memory = _memory(_walsh.device_memory(form), device)
            layer, _ = _walsh.device_encode(form, view, fast, shape_gain, device, _place(memory),
                                            current_stream(device))
        del matrix
        return cls(form, memory, layer)

    @classmethod
    def restore(cls, form: Form, arrays: dict[str, torch.Tensor], device: int) -> PlacedLinear:
        """Returns a layer of stored arrays."""
        ordered = _on_host(form, arrays)
        with torch.cuda.device(device):
            memory = _memory(_walsh.device_memory(form), device)
            layer = _walsh.device_restore(form, _places(ordered), device, _place(memory),
                                          current_stream(device))
        return cls(form, memory, layer)

    def pack(self) -> None:
        """Does nothing: the weights are packed."""


def _free_layer(layer: int, memory: torch.Tensor) -> None:
    _walsh.layer_free(layer)


def _free_experts(number: int, memory: torch.Tensor) -> None:
    _walsh.experts_free(number)


PLACED: weakref.WeakValueDictionary[int, PlacedExperts] = weakref.WeakValueDictionary()


class PlacedExperts:
    """Holds the experts of a layer. `forms` are those of the layers that every expert has: gate and
    up together, or gate, then up; down is the last."""

    def __init__(self, forms: Sequence[Form], count: int, device: int) -> None:
        self.forms, self.count, self.device = list(forms), count, device
        self.exact = False
        with torch.cuda.device(device):
            memory = _memory(_walsh.experts_memory(self.forms, count), device)
            self.bytes = memory.numel()
            self.number = _walsh.experts_new(self.forms, count, device, _place(memory))
        weakref.finalize(self, _free_experts, self.number, memory)
        PLACED[self.number] = self

    def encode(self, layer: int, weights: torch.Tensor, *, fast: bool, shape_gain: bool) -> None:
        """Encodes one layer of all experts, weights [experts, rows, columns] on the GPU."""
        with torch.cuda.device(self.device):
            matrix, view = _contiguous(weights)
            _walsh.experts_encode(self.number, layer, view, fast, shape_gain,
                                  current_stream(self.device))
        del matrix

    def restore(self, layer: int, expert: int, arrays: dict[str, torch.Tensor]) -> None:
        """Takes the stored arrays of a layer of one expert."""
        ordered = _on_host(self.forms[layer], arrays)
        with torch.cuda.device(self.device):
            _walsh.experts_restore(self.number, layer, expert, _places(ordered),
                                   current_stream(self.device))

    def table(self) -> torch.Tensor:
        """Returns the tensor that names the experts to the operator; they must outlive it."""
        return torch.tensor([self.number, int(self.exact)], dtype=torch.int64, device="cpu")

    def weight(self, layer: int, expert: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns the decoded weights of a layer of one expert."""
        form = self.forms[layer]
        padded = _walsh.experts_padded(self.number, layer)
        weight = torch.empty((form.rows, padded), dtype=dtype,
                             device=torch.device("cuda", self.device))
        with torch.cuda.device(self.device):
            _walsh.experts_dequantize(self.number, layer, expert, CODES[dtype], weight.data_ptr(),
                                      current_stream(self.device))
        return weight[:, :form.cols]

    def _every_expert(self, x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor,
                      function: Any) -> torch.Tensor:
        """Multiplies every row by the decoded weights of every expert, and adds up those that were
        chosen: nothing has to be known on the host."""
        out = x.new_zeros(x.shape, dtype=torch.float32)
        for expert in range(self.count):
            share = (weights.float() * (ids == expert)).sum(-1, keepdim=True)
            both = torch.cat([functional.linear(x, self.weight(layer, expert, x.dtype))
                              for layer in range(len(self.forms) - 1)], -1)
            gate, up = both.chunk(2, -1)
            hidden = function(gate) * up
            y = functional.linear(hidden, self.weight(len(self.forms) - 1, expert, x.dtype))
            out += share * y.float()
        return out.to(x.dtype)

    def multiply(self, x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, exact: bool,
                 activation: str) -> torch.Tensor:
        """Does what the operator does."""
        if exact:
            from ._packed import ACTIVATIONS

            if activation not in ACTIVATIONS:
                raise usage("activation", f"{activation}, expected one of "
                                          f"{', '.join(ACTIVATIONS)}")
            return self._every_expert(x, weights, ids, ACTIVATIONS[activation])
        code = CODES.get(x.dtype, -1)
        matrix, weights = as_rows(x), weights.float().contiguous()
        if ids.dtype not in (torch.int32, torch.int64):
            ids = ids.to(torch.int64)
        ids = ids.contiguous()
        m, chosen = ids.shape
        out = x.new_empty(x.shape) if chosen else x.new_zeros(x.shape)
        if m and chosen:
            size = _walsh.experts_workspace(self.number, m, chosen, code)
            workspace = x.new_empty(size, dtype=torch.uint8)
            _walsh.experts_multiply(
                self.number, (matrix.data_ptr(), code, m, matrix.stride(0), out.data_ptr()),
                (weights.data_ptr(), ids.data_ptr(), ids.dtype == torch.int64, chosen), activation,
                _place(workspace), current_stream(x.get_device()))
        return out


def _experts_placed(x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor,
                    experts: torch.Tensor, activation: str) -> torch.Tensor:
    """Computes the sum over the chosen experts of weight * down(act(gate(x)) * up(x)), as
    walsh::experts does. The numbers of experts stay on the GPU: a graph can record it."""
    number, exact = experts.tolist()
    if x.dim() != 2 or ids.dim() != 2 or weights.shape != ids.shape or len(ids) != len(x):
        raise usage("experts", f"{tuple(weights.shape)} weights and {tuple(ids.shape)} ids for "
                               f"inputs {tuple(x.shape)}, expected the same of every row")
    placed = PLACED.get(number)
    if placed is None:
        raise usage(f"experts {number}", "they are gone, or were never in this process")
    if x.shape[1] != placed.forms[-1].rows:
        raise usage("input", f"rows of {x.shape[1]} values, expected {placed.forms[-1].rows}")
    for name, tensor in (("input", x), ("weights", weights), ("ids", ids)):
        if tensor.get_device() != placed.device:
            raise usage(name, f"on {tensor.device}, the experts are on cuda:{placed.device}")
    with torch.cuda.device(placed.device):
        return placed.multiply(x, weights, ids, bool(exact), activation)


def _experts_placed_fake(x: torch.Tensor, *others: Any) -> torch.Tensor:
    return torch.empty_like(x)


LIBRARY.define("experts_placed(Tensor x, Tensor weights, Tensor ids, Tensor experts, "
               "str activation) -> Tensor")
LIBRARY.impl("experts_placed", _experts_placed, "CUDA")
torch.library.register_fake("walsh::experts_placed", _experts_placed_fake, lib=LIBRARY)

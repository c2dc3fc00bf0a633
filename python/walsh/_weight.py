"""Gives a quantized layer what it has in place of the weight that code reads of an `nn.Linear`."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional
from torch.utils._pytree import tree_leaves, tree_map

from ._error import usage

if TYPE_CHECKING:
    from ._linear import Linear

# These tell of a tensor without its values; not every version of PyTorch has all of them.
_FACTS = {getattr(torch.Tensor, name).__get__ for name in (
    "device", "dtype", "grad", "grad_fn", "is_cpu", "is_cuda", "is_leaf", "is_meta", "is_mkldnn",
    "is_nested", "is_quantized", "is_sparse", "is_sparse_csr", "itemsize", "layout", "nbytes",
    "ndim", "requires_grad", "shape") if hasattr(torch.Tensor, name)}
_FACTS |= {getattr(torch.Tensor, name) for name in (
    "__len__", "dim", "element_size", "get_device", "is_complex", "is_contiguous",
    "is_floating_point", "is_inference", "ndimension", "nelement", "numel", "requires_grad_",
    "size", "storage_offset", "stride", "type") if hasattr(torch.Tensor, name)}
_FACTS.add(torch.Tensor.requires_grad.__set__)  # type: ignore[attr-defined]
_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
# These change a tensor in place: the values that the layer then has are encoded again.
_CHANGES = {"add_", "sub_", "mul_", "div_", "addmm_", "lerp_", "__iadd__", "__isub__", "__imul__",
            "__itruediv__", "__setitem__"}
# These return a tensor that shares the memory of the weight, so what is written to it is written to
# the layer.
_SAME = {torch.Tensor.data.__get__, torch.Tensor.detach, torch.detach}  # type: ignore[attr-defined]


class CodedWeight(torch.Tensor):
    """This is the weight of a quantized layer: its shape, type and device take no memory, and
    whatever is computed with it is computed with the decoded values. `functional.linear` multiplies
    in the layer's kernels. Setting `.data`, `copy_`, arithmetic in place and values at an index
    encode the new values, also where they are done to `.data` or `.detach()`; slices and views are
    copies.

    >>> import torch, walsh.torch
    >>> layer = walsh.torch.Linear.from_linear(torch.nn.Linear(256, 64), type="tq4")
    >>> layer.weight
    CodedWeight(tq4, 64 x 256)
    >>> layer.weight.shape, torch.equal(layer.weight + 0, layer.dequantize())
    (torch.Size([64, 256]), True)
    """

    _layer: Linear
    _is_hf_initialized: bool

    @staticmethod
    def __new__(cls, layer: Linear) -> CodedWeight:
        weight: CodedWeight = torch.Tensor._make_wrapper_subclass(
            cls, (layer.out_features, layer.in_features), dtype=layer.dtype, device=layer.device)
        weight._layer = layer
        weight._is_hf_initialized = True  # transformers then draws nothing at random
        return weight

    def __init__(self, layer: Linear) -> None:
        super().__init__()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        layer = self._layer
        return f"CodedWeight({layer.format}, {layer.out_features} x {layer.in_features})"

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self._layer.decoded_weight()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._layer.decoded_weight().__reduce_ex__(protocol)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FACTS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func is functional.linear:
            return cls._linear(*args, **kwargs)
        name = getattr(func, "__name__", "")
        weight = args[0] if args else kwargs.get("tensor")  # as nn.init calls it
        if kwargs.get("out") is not None or (name.startswith("_foreach") and name.endswith("_")):
            changed = tree_leaves(kwargs.get("out") if "out" in kwargs else args[:1])
            if any(isinstance(one, CodedWeight) for one in changed):
                raise usage("weight", f"it cannot be what {name} writes to: its weights are codes")
        if isinstance(weight, CodedWeight):
            layer = weight._layer
            if func in _SAME:
                return CodedWeight(layer)
            if func == _SET_DATA:
                if not (isinstance(args[1], CodedWeight) and args[1]._layer is layer):  # from +=
                    layer.encode_again(args[1])
                return None
            if name == "copy_":
                layer.encode_again(args[1].expand(layer.out_features, layer.in_features))
                return weight
            if name in _CHANGES:
                values = layer.decoded_weight()
                func(values, *_decoded(args[1:]), **_decoded(kwargs))
                layer.encode_again(values)
                return weight
            if name == "data_ptr" or (name.endswith("_") and not name.endswith("__")):
                raise usage("weight", f"{name} of a quantized layer: its weights are codes")
        with torch._C.DisableTorchFunctionSubclass():
            return func(*_decoded(args), **_decoded(kwargs))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*_decoded(args), **_decoded(kwargs or {}))

    @staticmethod
    def _linear(input: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        if isinstance(weight, CodedWeight) and not isinstance(input, CodedWeight):
            return weight._layer.product(input, bias)
        return functional.linear(*_decoded((input, weight, bias)))


def _decoded(values: Any) -> Any:
    """Decodes every weight in arguments of a function."""
    return tree_map(lambda x: x._layer.decoded_weight() if isinstance(x, CodedWeight) else x,
                    values)

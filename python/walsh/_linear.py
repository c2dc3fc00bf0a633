"""Defines the quantized layer of walsh.torch."""
from __future__ import annotations

import copy
import weakref
from typing import Any, Callable, Optional, Sequence, Union, cast

import torch
from torch import nn
from torch._C._functorch import peek_interpreter_stack

from . import _walsh
from ._arguments import flag, kind_of, whole
from ._error import Error, usage
from ._forms import new_form, stored_forms
from ._operators import (DTYPES, as_rows, check_dense, check_dtype, check_memory, decoded,
                         linear_cuda, needs_dispatcher, place, view_of)
from ._transforms import LayerProduct, multiply
from ._weight import CodedWeight

Rotation = tuple[str, int, int, bool]  # these are kind, block, seed and signs


def _index(gpu: torch.device) -> int:
    return int(torch.cuda.current_device() if gpu.index is None else gpu.index)


def autocast_dtype(device: str) -> Optional[torch.dtype]:
    """Returns the type that torch.autocast wants products on a device to have; None: that of the
    input."""
    if device in ("cpu", "cuda") and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return None


class Linear(nn.Linear):
    """This linear layer stores its weights in a format of walsh.

    `from_linear` makes a layer from plain weights, and `encode` gives weights to one. A new layer
    is empty until then, or until a state dict gives it the stored arrays (`codes`, `scales`, ...,
    uint8). Before the first product the codes are packed for the kernels; a state dict always has
    them as they are stored.

    `weight` has the shape [out_features, in_features] and the type that the weights had. It is
    decoded where something else than a product is computed with it, and encoded again where it is
    changed.
    """

    bias: Optional[torch.Tensor]  # type: ignore[assignment]

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *,
                 type: str = "tq4", rotation: str = "hadamard", block: int = 0, seed: int = 42,
                 fast: bool = False, rotations: Optional[Sequence[Sequence[Any]]] = None,
                 shape_gain: bool = False, dtype: Optional[torch.dtype] = None,
                 device: Union[torch.device, str, None] = None) -> None:
        nn.Module.__init__(self)
        self.in_features = whole(in_features, "in_features", 1)
        self.out_features = whole(out_features, "out_features", 1)
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise usage("dtype", f"{dtype!r}, expected a type of torch with fractions")
        if rotations is None:
            self.format, own = new_form(type, out_features, in_features, rotation, block, seed,
                                        fast)
        else:
            stored_forms({"rotations": {"type": type, "rotation": rotations}}, "walsh.torch.Linear")
            self.format, own = type, [(k, b, s, f) for k, b, s, f in rotations]
        self.rotations: list[Rotation] = own
        # Weights that are encoded later use these.
        self.fast, self.shape_gain = flag(fast, "fast"), flag(shape_gain, "shape_gain")
        self.dtype = dtype or torch.get_default_dtype()  # that the weights had
        self.exact = False  # if so, activations are float32 instead of int8
        self.nmse: Optional[float] = None  # weights that were encoded here have it
        self.layer = 0  # this is the number of the packed layer; 0 means none
        self._gpu = -1  # the packed layer is on this GPU; -1 means the CPU
        self._finalizer: Any = None
        self._arrays = _walsh.layer_arrays(self.format, out_features, in_features, self.rotations)
        self._empty: dict[str, Optional[torch.Tensor]] = {}  # nobody has filled these buffers
        for name, rows, row_bytes in self._arrays:
            self.register_buffer(name, torch.zeros((rows, row_bytes), dtype=torch.uint8,
                                                   device=device))
            self._empty[name] = self._buffers[name]
        self._refuse(self.device)
        empty = torch.zeros(out_features, dtype=self.dtype, device=device)
        self.bias = nn.Parameter(empty, requires_grad=False) if bias else None

    @classmethod
    def from_linear(cls, linear: nn.Linear, *, shape_gain: bool = False,
                    **options: Any) -> Linear:
        """Returns a layer with the encoded weights of an `nn.Linear`; the options are those of the
        constructor."""
        if not isinstance(linear, nn.Module) or not isinstance(
                getattr(linear, "weight", None), torch.Tensor):
            raise usage("linear", f"a value of type {kind_of(linear)}, expected an nn.Linear")
        weight: torch.Tensor = linear.weight
        bias: Optional[torch.Tensor] = linear.bias
        result = cls(weight.shape[1], weight.shape[0], bias is not None, dtype=weight.dtype,
                     shape_gain=shape_gain, device="meta", **options)
        result.encode(weight, shape_gain=shape_gain, fast=result.fast)
        if bias is not None:
            result.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
        return result

    def encode(self, weight: torch.Tensor, *, shape_gain: bool = False, fast: bool = False) -> None:
        """Encodes weights [out_features, in_features] (float32, float16 or bfloat16) and takes
        them. Other shapes and types, NaN and infinity raise walsh.Error; the layer then keeps
        those that it had."""
        check_dense(weight, "weights")
        if weight.dim() != 2:
            raise usage("weights", f"{weight.dim()} dimensions, expected 2")
        if weight.is_meta:
            raise usage("weights", "they are on the meta device, which has no values: load them "
                                   "first, or quantize while loading (walsh.transformers)")
        self._refuse(weight.device)  # this comes before the work
        matrix = as_rows(weight.detach().cpu())
        layer, self.nmse = _walsh.layer_encode(
            self.format, self.out_features, self.in_features, self.rotations,
            view_of(matrix, "weights"), flag(fast, "fast"), flag(shape_gain, "shape_gain"))
        self.fast, self.shape_gain = fast, shape_gain
        self._take(layer, weight.device)

    def encode_again(self, weight: torch.Tensor) -> None:
        """Encodes changed weights as the first ones were; the layer stays on its device."""
        device = self.device
        self.encode(weight.to(self.dtype), shape_gain=self.shape_gain, fast=self.fast)
        self._move(device)

    def _take(self, layer: int, device: torch.device) -> None:
        """The layer owns a packed one from now on, on the device that its arrays came from; the
        stored arrays are not kept beside it."""
        self._free()
        self.layer = layer
        self._finalizer = weakref.finalize(self, _walsh.layer_free, layer)
        self._move(device)
        for name, _, _ in self._arrays:
            self._buffers[name] = None
        self._empty = {}

    def _free(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None
        self.layer, self._gpu = 0, -1

    @property
    def device(self) -> torch.device:
        """Returns the device of the weights. What is on a GPU is in host memory as well."""
        if self.layer:
            return torch.device("cuda", self._gpu) if self._gpu >= 0 else torch.device("cpu")
        array = self._buffers[self._arrays[0][0]]
        return torch.device("cpu") if array is None else array.device

    @property
    def weight(self) -> torch.Tensor:  # type: ignore[override]
        """Returns the weights, for code that asks an `nn.Linear` for them."""
        if torch.compiler.is_compiling():
            values: torch.Tensor = torch.ops.walsh.decoded(
                self.layer or self._packed(), self.out_features, self.in_features)
            return values.to(self.device, self.dtype)
        return CodedWeight(self)

    def decoded_weight(self) -> torch.Tensor:
        """Returns the decoded weights, in the type and on the device of `weight`."""
        return self.dequantize().to(self.device, self.dtype)

    def register_parameter(self, name: str, param: Optional[nn.Parameter]) -> None:
        """Refuses a parameter in place of the codes."""
        if name == "weight":
            raise usage("weight", "it is no parameter: layer.weight.copy_(...) encodes new values")
        super().register_parameter(name, param)

    def reset_parameters(self) -> None:
        """Refuses to draw weights at random: there are none beside the codes."""
        raise usage("reset_parameters", "weights of a quantized layer are encoded or loaded")

    def _refuse(self, device: torch.device) -> None:
        """Refuses a GPU that will not multiply with the layer, packed or not."""
        if device.type == "cuda":
            _walsh.layer_check_gpu(self.format, self.out_features, self.in_features,
                                   self.rotations, _index(device))

    def _move(self, device: torch.device) -> None:
        """Moves the packed weights; on devices that walsh does not know they stay on the CPU."""
        gpu = _index(device) if device.type == "cuda" else -1
        if gpu != self._gpu:
            place(self.layer, gpu)
            self._gpu = gpu

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Linear:
        probe = fn(torch.zeros(1, dtype=self.dtype, device=self.device))
        device = probe.device
        self._refuse(device)  # while nothing of the layer has moved
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.dtype = probe.dtype
        for name, array in before.items():
            if array is not None and (self._empty.get(name) is array or (
                    array.is_meta and device.type != "meta")):
                self._empty[name] = self._buffers[name]
        if self.layer:
            if device.type != "meta":
                self._move(device)
                return self
            self._free()
            for name, rows, row_bytes in self._arrays:
                self._buffers[name] = torch.empty((rows, row_bytes), dtype=torch.uint8,
                                                  device=device)
        return self

    def pack(self) -> None:
        """Packs the stored arrays for the kernels; does nothing if they are."""
        if self.layer:
            return
        arrays, device = [], self.device
        for name, rows, row_bytes in self._arrays:
            array = self._buffers[name]
            if array is None or array.is_meta or array is self._empty.get(name):
                raise usage(name, "the layer has no weights yet")
            check_memory(array, name)
            array = array.detach().cpu().contiguous()
            if array.dtype != torch.uint8 or array.shape != (rows, row_bytes):
                raise Error("bad_input", name, f"{array.dtype} {tuple(array.shape)}, expected "
                                               f"torch.uint8 {(rows, row_bytes)}")
            arrays.append(array)
        self._take(_walsh.layer_restore(
            self.format, self.out_features, self.in_features, self.rotations,
            [(array.data_ptr(), array.numel()) for array in arrays]), device)

    # A compiler that meets a layer before its first product packs it, and does not trace how.
    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _packed(self) -> int:
        self.pack()
        return self.layer

    def stored(self) -> dict[str, torch.Tensor]:
        """Returns the stored arrays by name, uint8 [rows, bytes of a row]. Those of a packed layer
        are in host memory, whatever its device is."""
        if not self.layer:
            return {name: cast(torch.Tensor, self._buffers[name]) for name, _, _ in self._arrays}
        result = {name: torch.empty((rows, row_bytes), dtype=torch.uint8, device="cpu")
                  for name, rows, row_bytes in self._arrays}
        _walsh.layer_store(self.layer, [(array.data_ptr(), array.numel())
                                        for array in result.values()])
        return result

    @property
    def bytes(self) -> int:
        """Returns the memory that the weights take, in bytes."""
        if self.layer:
            return int(_walsh.layer_bytes(self.layer))
        return self.stored_bytes

    @property
    def stored_bytes(self) -> int:
        """Returns the size of the stored arrays, in bytes."""
        return sum(rows * row_bytes for _, rows, row_bytes in self._arrays)

    def dequantize(self) -> torch.Tensor:
        """Returns the weights that the codes stand for, float32 [out_features, in_features], in
        host memory."""
        self.pack()
        if peek_interpreter_stack() is not None:  # its tensors have no memory
            weight: torch.Tensor = torch.ops.walsh.decoded(self.layer, self.out_features,
                                                           self.in_features)
            return weight
        return decoded(self.layer, self.out_features, self.in_features)

    def to_linear(self, dtype: Optional[torch.dtype] = None) -> nn.Linear:
        """Returns a plain layer with the weights that the codes stand for."""
        plain = nn.Linear(self.in_features, self.out_features, False, device="meta")
        dtype = dtype or self.dtype
        plain.weight = nn.Parameter(self.dequantize().to(self.device, dtype))
        if self.bias is not None:
            plain.bias = nn.Parameter(self.bias.detach().to(dtype))
        return plain

    def _check(self, x: torch.Tensor) -> None:
        check_dense(x, "input")
        if x.dim() < 1 or x.shape[-1] != self.in_features:
            raise usage("input", f"shape {tuple(x.shape)}, expected rows of {self.in_features}")
        if x.dtype not in DTYPES:
            check_dtype(x, "input")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Multiplies input [..., in_features] (float32, float16 or bfloat16) with the weights and
        adds the bias. The result [..., out_features] has the input's type, or that of
        torch.autocast. Other shapes and types raise walsh.Error."""
        if not isinstance(input, torch.Tensor):
            return self._as_node(input)
        if self._gpu >= 0 and input.is_cuda and not needs_dispatcher(input):
            y = linear_cuda(input, self.layer, self.out_features, self.exact)
            return y if self.bias is None else y.add_(self.bias)
        return self.product(input, self.bias)

    def _as_node(self, x: Any) -> Any:
        """Returns what torch.fx knows a call of the layer by: one node, as for an `nn.Linear`."""
        if isinstance(x, torch.fx.Proxy):
            name = cast(torch.fx.Tracer, x.tracer).path_of_module(self)
            if name:
                return x.tracer.create_proxy("call_module", name, (x,), {})
            raise usage("input", "torch.fx cannot trace a layer alone: trace the module it is in")
        return check_dense(x, "input")

    def __prepare_scriptable__(self) -> Any:
        raise usage("torch.jit.script", "layers of walsh have no TorchScript: torch.compile, "
                                        "torch.export and torch.jit.trace take them")

    def product(self, x: torch.Tensor, bias: Optional[torch.Tensor]) -> torch.Tensor:
        """Does what `forward` does, with another bias or none."""
        check_dense(x, "input")
        layer = self.layer or self._packed()
        wanted = autocast_dtype(x.device.type)
        if wanted is not None and x.dtype in DTYPES:
            x = x.to(wanted)
        self._check(x)
        y = multiply(x, None, LayerProduct(layer, self.out_features, self.in_features, self.exact))
        return y if bias is None else y + bias.to(y.dtype)

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        """Computes the same in PyTorch alone, with decoded weights and activations as they are.
        It is the check of the kernels."""
        self._check(x)
        weight = self.dequantize().to(x.device)
        y = (x.to(torch.float32) @ weight.T).to(x.dtype)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, array in self.stored().items():
            destination[prefix + name] = array

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any,
                              strict: bool, missing_keys: Any, unexpected_keys: Any,
                              error_msgs: Any) -> None:
        given = {name: state_dict.get(prefix + name) for name, _, _ in self._arrays}
        for name, array in given.items():  # while nothing of the layer has changed
            if array is not None and array.dtype != torch.uint8:  # would be converted
                raise Error("bad_input", prefix + name, f"{array.dtype}, expected torch.uint8")
        if self.layer and strict and not any(array is not None for array in given.values()):
            missing_keys.extend(prefix + name for name in given)
        if any(array is not None for array in given.values()):
            device, stored = self.device, self.stored()  # what the state dict lacks stays
            self._free()
            for name, rows, row_bytes in self._arrays:
                array = stored[name]
                empty = given[name] is None and (array.is_meta or self._empty.get(name) is array)
                if array.is_meta:
                    array = torch.zeros((rows, row_bytes), dtype=torch.uint8, device="cpu")
                self._buffers[name] = array if device.type == "meta" else array.to(device)
                if empty:
                    self._empty[name] = self._buffers[name]
                else:
                    self._empty.pop(name, None)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys,
                                      unexpected_keys, error_msgs)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        stored = {name: array.to(self.device) for name, array in self.stored().items()}
        state["_buffers"] = {**self._buffers, **stored}
        state["layer"], state["_gpu"], state["_finalizer"] = 0, -1, None
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> Linear:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__setstate__(copy.deepcopy(self.__getstate__(), memo))  # type: ignore[no-untyped-call]
        if self.layer:  # so that both have the same buffers
            made.pack()
        return made

    def extra_repr(self) -> str:
        """Returns what nn.Module prints."""
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}, type={self.format}")


Linear.__module__ = "walsh.torch"  # where it is public

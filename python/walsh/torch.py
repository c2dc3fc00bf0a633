"""Quantized linear layers for PyTorch: a drop-in `nn.Linear` over walsh's kernels.

>>> import torch, walsh.torch
>>> layer = walsh.torch.Linear.from_linear(torch.nn.Linear(256, 64), type="tq4")
>>> layer(torch.zeros(2, 256)).shape
torch.Size([2, 64])

Products run in walsh's kernels on the CPU, or on the GPU that the layer was moved to with `.to()`.
`Linear.plain` decodes the weights and multiplies in PyTorch, the check of the kernels.
"""
from __future__ import annotations

import json
import os
import pathlib
import weakref
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Iterable, Optional, Sequence, Union

import torch
from torch import nn

from . import _walsh
from ._error import Error, usage
from ._experts import choose, group_stored, is_fused, quantize_experts, stored_experts
from ._forms import new_form, stored_forms
from ._host_threads import use_host_threads
from ._operators import (DTYPES, as_rows, check_dtype, check_memory, decoded, linear_cuda,
                         needs_dispatcher, place, view_of)
from ._quantizer import Path
from ._rules import Rules

CONFIG_NAME = "walsh_config.json"
WEIGHTS_NAME = "model.safetensors"

Rotation = tuple[str, int, int, bool]  # kind, block, seed, signs


@dataclass
class TurboQuantConfig:
    """What `quantize_model` makes of every linear layer.

    Either `type`, the name of any coded format of walsh, or `bit_width` (2, 3 or 4) with
    `residual_bit_width` for a second pass and `group_size` (128, or None for one scale per row).
    `rotation` is "hadamard" or "qr", `ignore` and `overrides` are rules as those of
    `walsh.quantize`, on names of modules.

    >>> TurboQuantConfig(bit_width=4, residual_bit_width=4).format_name
    'tq4+4'
    >>> TurboQuantConfig(bit_width=3, group_size=None).format_name
    'tq3:full'
    """

    bit_width: int = 4
    residual_bit_width: Optional[int] = None
    group_size: Optional[int] = 128
    rotation: str = "hadamard"
    seed: int = 42
    type: Optional[str] = None
    block: int = 0  # rotation block; 0: the type's own
    ignore: list[str] = field(default_factory=lambda: ["lm_head"])
    overrides: list[str] = field(default_factory=list)
    shape_gain: bool = False
    fast: bool = False

    @property
    def format_name(self) -> str:
        """The name of the format."""
        if self.type is not None:
            return self.type
        name = f"tq{self.bit_width}"
        if self.residual_bit_width:
            name += f"+{self.residual_bit_width}"
        if self.group_size is None:
            name += ":full"
        elif self.group_size != 128:
            raise usage("group_size", f"{self.group_size}, expected 128, or None for whole rows")
        return name


Config = TurboQuantConfig


def _index(gpu: torch.device) -> int:
    return int(torch.cuda.current_device() if gpu.index is None else gpu.index)


use_host_threads()


def set_threads(threads: int) -> None:
    """Threads of their own that products of layers use; 0: those of PyTorch."""
    if threads < 0:
        raise usage("threads", f"{threads}, expected 0 or more")
    _walsh.layer_threads(threads)


class Linear(nn.Module):
    """A linear layer whose weights are stored in a format of walsh.

    `from_linear` and `encode` make one from weights; a new one is empty until a state dict gives
    it the stored arrays (`codes`, `scales`, ...). Before the first product the codes are packed
    for the kernels; the state dict has them as they are stored, whenever it is asked.
    """

    bias: Optional[torch.Tensor]

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *,
                 type: str = "tq4", rotation: str = "hadamard", block: int = 0, seed: int = 42,
                 fast: bool = False, rotations: Optional[Sequence[Sequence[Any]]] = None,
                 dtype: Optional[torch.dtype] = None,
                 device: Union[torch.device, str, None] = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        if rotations is None:
            self.format, own = new_form(type, out_features, in_features, rotation, block, seed,
                                        fast)
        else:
            stored_forms({"rotations": {"type": type, "rotation": rotations}}, "walsh.torch.Linear")
            self.format, own = type, [(k, b, s, f) for k, b, s, f in rotations]
        self.rotations: list[Rotation] = own
        self.exact = False  # float32 activations instead of int8
        self.nmse: Optional[float] = None  # of weights that were encoded here
        self.layer = 0  # the number of the packed layer; 0: none
        self._gpu = -1  # that the packed layer is on; -1: the CPU
        self._finalizer: Any = None
        self._arrays = _walsh.layer_arrays(self.format, out_features, in_features, self.rotations)
        for name, rows, row_bytes in self._arrays:
            self.register_buffer(name, torch.zeros((rows, row_bytes), dtype=torch.uint8,
                                                   device=device))
        self._refuse(self.device)
        empty = torch.zeros(out_features, dtype=dtype or torch.get_default_dtype(), device=device)
        self.bias = nn.Parameter(empty, requires_grad=False) if bias else None

    @classmethod
    def from_linear(cls, linear: nn.Module, *, shape_gain: bool = False,
                    **options: Any) -> Linear:
        """Encodes the weights of an `nn.Linear`; the options are those of the constructor."""
        weight, bias = linear.weight, linear.bias
        result = cls(weight.shape[1], weight.shape[0], bias is not None, dtype=weight.dtype,
                     device="meta", **options)
        result.encode(weight, shape_gain=shape_gain, fast=bool(options.get("fast")))
        if bias is not None:
            result.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
        return result

    def encode(self, weight: torch.Tensor, *, shape_gain: bool = False, fast: bool = False) -> None:
        """Encodes weights [out_features, in_features] and takes them."""
        if weight.dim() != 2:
            raise usage("weights", f"{weight.dim()} dimensions, expected 2")
        self._refuse(weight.device)  # before the work
        matrix = as_rows(weight.detach().cpu())
        layer, self.nmse = _walsh.layer_encode(
            self.format, self.out_features, self.in_features, self.rotations,
            view_of(matrix, "weights"), fast, shape_gain)
        self._take(layer, weight.device)

    def _take(self, layer: int, device: torch.device) -> None:
        """The layer owns a packed one from now on, on the device that its arrays came from; the
        stored arrays are not kept beside it."""
        self._free()
        self.layer = layer
        self._finalizer = weakref.finalize(self, _walsh.layer_free, layer)
        self._move(device)
        for name, _, _ in self._arrays:
            self._buffers[name] = None

    def _free(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None
        self.layer, self._gpu = 0, -1

    @property
    def device(self) -> torch.device:
        """Where the weights are; those on a GPU are in host memory as well."""
        if self.layer:
            return torch.device("cuda", self._gpu) if self._gpu >= 0 else torch.device("cpu")
        array = self._buffers[self._arrays[0][0]]
        return torch.device("cpu") if array is None else array.device

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
        device = fn(torch.zeros(1, dtype=torch.uint8, device=self.device)).device
        self._refuse(device)  # while nothing of the layer has moved
        super()._apply(fn, recurse)
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
            if array is None or array.is_meta:
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
    @torch.compiler.assume_constant_result
    def _packed(self) -> int:
        self.pack()
        return self.layer

    def stored(self) -> dict[str, torch.Tensor]:
        """The stored arrays by name, uint8 [rows, bytes of a row]; those of a packed layer are in
        host memory, whatever its device."""
        if not self.layer:
            return {name: self._buffers[name] for name, _, _ in self._arrays}
        result = {name: torch.empty((rows, row_bytes), dtype=torch.uint8, device="cpu")
                  for name, rows, row_bytes in self._arrays}
        _walsh.layer_store(self.layer, [(array.data_ptr(), array.numel())
                                        for array in result.values()])
        return result

    @property
    def bytes(self) -> int:
        """Memory of the weights."""
        if self.layer:
            return int(_walsh.layer_bytes(self.layer))
        return sum(rows * row_bytes for _, rows, row_bytes in self._arrays)

    @property
    def stored_bytes(self) -> int:
        """Size of the stored arrays."""
        return sum(rows * row_bytes for _, rows, row_bytes in self._arrays)

    def dequantize(self) -> torch.Tensor:
        """The weights that the codes stand for, float32 [out_features, in_features]."""
        self.pack()
        return decoded(self.layer, self.out_features, self.in_features)

    def _check(self, x: torch.Tensor) -> None:
        if x.dim() < 1 or x.shape[-1] != self.in_features:
            raise usage("input", f"shape {tuple(x.shape)}, expected rows of {self.in_features}")
        if x.dtype not in DTYPES:
            check_dtype(x, "input")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., in_features] times the weights, plus the bias; the result has x's type."""
        layer = self.layer or self._packed()
        if self._gpu >= 0 and x.is_cuda and not needs_dispatcher(x):
            y = linear_cuda(x, layer, self.out_features, self.exact)
            return y if self.bias is None else y.add_(self.bias)
        self._check(x)
        y = torch.ops.walsh.linear(x, layer, self.out_features, self.exact)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        """The same in PyTorch alone, with decoded weights and activations as they are."""
        self._check(x)
        weight = self.dequantize().to(x.device)
        y = (x.to(torch.float32) @ weight.T).to(x.dtype)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, array in self.stored().items():
            destination[prefix + name] = array

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        if any(prefix + name in state_dict for name, _, _ in self._arrays):
            device, stored = self.device, self.stored()  # what the state dict lacks stays
            self._free()
            for name, rows, row_bytes in self._arrays:
                array, given = stored[name], state_dict.get(prefix + name)
                if given is not None and given.dtype != torch.uint8:  # would be converted
                    raise Error("bad_input", prefix + name, f"{given.dtype}, expected torch.uint8")
                if array.is_meta:
                    array = torch.zeros((rows, row_bytes), dtype=torch.uint8, device="cpu")
                self._buffers[name] = array if device.type == "meta" else array.to(device)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        stored = {name: array.to(self.device) for name, array in self.stored().items()}
        state["_buffers"] = {**self._buffers, **stored}
        state["layer"], state["_gpu"], state["_finalizer"] = 0, -1, None
        return state

    def extra_repr(self) -> str:
        """What nn.Module prints."""
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}, type={self.format}")


@dataclass(frozen=True)
class QuantizeSummary:
    """What `quantize_model` has done."""

    layers: int
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        ratio = self.bytes_before / max(self.bytes_after, 1)
        return (f"{self.layers} layers quantized, {self.bytes_before / 1e6:.1f} MB -> "
                f"{self.bytes_after / 1e6:.1f} MB ({ratio:.1f}x compression)")


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent) if parent else model, child, module)


def _targets(model: nn.Module, rules: Rules) -> Iterable[tuple[str, nn.Linear, str]]:
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            wanted = rules.type_of(name)
            if wanted is not None:
                yield name, module, wanted


def _rules(config: TurboQuantConfig) -> Rules:
    return Rules(config.format_name, config.ignore, config.overrides)


def quantize_model(model: nn.Module, config: Optional[TurboQuantConfig] = None) -> nn.Module:
    """Replaces the linear layers of a model by quantized ones, one after the other, in place; those
    of experts, which transformers has in one tensor per layer, too.

    `model.walsh_summary` tells the number of layers and their size before and after.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.ReLU())
    >>> net = quantize_model(net, TurboQuantConfig(bit_width=4))
    >>> net.walsh_summary.layers
    1
    """
    config = config or TurboQuantConfig()
    rules = _rules(config)
    options = {"rotation": config.rotation, "block": config.block, "seed": config.seed,
               "fast": config.fast, "shape_gain": config.shape_gain}
    layers = before = after = 0

    def encode(weight: torch.Tensor, bias: Optional[torch.Tensor], kind: str) -> Linear:
        nonlocal layers, before, after
        plain = nn.Linear(weight.shape[1], weight.shape[0], False, device="meta")
        plain.weight, plain.bias = nn.Parameter(weight, requires_grad=False), bias
        quantized = Linear.from_linear(plain, type=kind, **options)
        layers += 1
        before += weight.numel() * weight.element_size()
        after += quantized.stored_bytes
        return quantized

    for name, linear, kind in _targets(model, rules):
        quantized = encode(linear.weight.detach(), linear.bias, kind)
        quantized.train(linear.training)
        _replace(model, name, quantized)
    for name, experts in _fused_experts(model):
        types = choose(name, experts, rules)
        if types:
            _replace(model, name, quantize_experts(
                experts, lambda key, weight, types=types: encode(weight, None, types[key])))
    rules.check_used()
    model.walsh_summary = QuantizeSummary(layers, before, after)  # type: ignore[assignment]
    return model


def _fused_experts(model: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, module) for name, module in model.named_modules() if is_fused(module)]


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What tied weights have in common."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def save_quantized(model: nn.Module, config: TurboQuantConfig, path: Path) -> None:
    """Writes the weights of a quantized model and what its layers are to a folder."""
    from safetensors.torch import save_file

    folder = pathlib.Path(os.fspath(path))
    folder.mkdir(parents=True, exist_ok=True)
    modules = {name: {"type": m.format, "rotation": m.rotations}
               for name, m in model.named_modules() if isinstance(m, Linear)}
    tensors: dict[str, torch.Tensor] = {}
    seen = set()
    for name, tensor in model.state_dict().items():
        if tensor.numel() and _place(tensor) in seen:
            continue  # tied weights are written once and tied again by the model
        seen.add(_place(tensor))
        tensors[name] = tensor.contiguous().cpu()
    temporary = folder / (WEIGHTS_NAME + ".part")
    save_file(tensors, temporary)
    os.replace(temporary, folder / WEIGHTS_NAME)
    text = json.dumps({"config": asdict(config), "modules": modules}, indent=1)
    (folder / CONFIG_NAME).write_text(text)


def load_quantized(model: Union[nn.Module, str], path: Path, **options: Any) -> nn.Module:
    """The model that `save_quantized` wrote: of a module with plain layers, or of the name of a
    transformers model, whose config is all that is read of it (`options` go to from_config)."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = pathlib.Path(os.fspath(path))
    try:
        saved = json.loads((folder / CONFIG_NAME).read_text())
        modules = stored_forms(saved["modules"], str(folder / CONFIG_NAME))
    except OSError as error:
        raise Error("io", str(folder / CONFIG_NAME), error.strerror or str(error)) from None
    except (ValueError, KeyError, TypeError):
        raise Error("bad_input", str(folder / CONFIG_NAME), "is not what save_quantized writes"
                    ) from None
    if isinstance(model, (str, os.PathLike)):
        from transformers import AutoConfig, AutoModelForCausalLM

        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model), **options)
    experts, taken = group_stored(model, modules)
    for name, stored in experts.items():
        _replace(model, name, stored_experts(model.get_submodule(name), stored, Linear))
    for name, form in modules.items():
        if name in taken:
            continue
        try:
            linear = model.get_submodule(name)
        except AttributeError:
            linear = None
        if not isinstance(linear, nn.Linear):
            raise Error("bad_input", f"{folder}: {name}", "the model has no such linear layer")
        _replace(model, name, Linear(linear.in_features, linear.out_features,
                                     linear.bias is not None, type=form["type"],
                                     rotations=form["rotation"], dtype=linear.weight.dtype))
    try:
        missing, unexpected = model.load_state_dict(load_file(folder / WEIGHTS_NAME), strict=False)
    except OSError as error:
        raise Error("io", str(folder / WEIGHTS_NAME), error.strerror or str(error)) from None
    except (SafetensorError, RuntimeError) as error:
        raise Error("bad_input", str(folder / WEIGHTS_NAME),
                    " ".join(str(error).split())) from None
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    state = model.state_dict()
    loaded = {_place(tensor) for name, tensor in state.items() if name not in missing}
    missing = [name for name in missing
               if name not in tied and _place(state[name]) not in loaded]
    if missing or unexpected:
        name = (missing or unexpected)[0]
        raise Error("bad_input", f"{folder}: {name}", "is " + ("missing" if missing else
                                                                 "not part of the model"))
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    for module in model.modules():
        if isinstance(module, Linear):
            module.pack()
    return model.eval()

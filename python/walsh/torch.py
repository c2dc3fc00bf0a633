"""Provides quantized linear layers for PyTorch: a drop-in `nn.Linear` over walsh's kernels.

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
from dataclasses import asdict, dataclass, field
from typing import Any, Optional, Union, cast

import torch
from torch import nn

from . import _walsh
from ._arguments import kind_of, path as path_of, whole
from ._error import Error, usage
from ._experts import (Experts, choose, group_stored, is_fused, quantize_experts, stored_experts,
                       without_codes)
from ._forms import check_shape, stored_forms, with_group
from ._host_threads import use_host_threads
from ._linear import Linear, Rotation
from ._modules import (count_codes, is_plain, parameters_on_meta, places, replace, take_over,
                       targets)
from ._quantizer import Path
from ._rules import Rules
from ._weight import CodedWeight

__all__ = ["CodedWeight", "Config", "Linear", "QuantizeSummary", "Rotation", "TurboQuantConfig",
           "dequantize_model", "load_quantized", "quantize_model", "save_quantized", "set_threads"]

CONFIG_NAME = "walsh_config.json"
WEIGHTS_NAME = "model.safetensors"


@dataclass
class TurboQuantConfig:
    """Says what `quantize_model` makes of every linear layer.

    Either `type`, the name of any coded format of walsh, or `bit_width` (2, 3 or 4) with
    `residual_bit_width` for a second pass. `group_size` weights share a scale: 128, on CPUs also 64
    or 32 with less error and more bits, or None (or -1), one scale per row.
    `rotation` is "hadamard" or "qr", `ignore` and `overrides` are rules as those of
    `walsh.quantize`, on names of modules.

    >>> TurboQuantConfig(bit_width=4, residual_bit_width=4).format_name
    'tq4+4'
    >>> TurboQuantConfig(bit_width=3, group_size=None).format_name
    'tq3:full'
    >>> TurboQuantConfig(type="tq4", group_size=64).format_name
    'tq4:g64'
    """

    bit_width: int = 4
    residual_bit_width: Optional[int] = None
    group_size: Optional[int] = 128
    rotation: str = "hadamard"
    seed: int = 42
    type: Optional[str] = None
    block: int = 0  # it is that of the rotation; 0 means the type's own
    ignore: list[str] = field(default_factory=lambda: ["lm_head"])
    overrides: list[str] = field(default_factory=list)
    shape_gain: bool = False
    fast: bool = False

    @property
    def format_name(self) -> str:
        """Returns the name of the format; raises walsh.Error for a group size that it does not
        have."""
        name = self.type
        if name is None:
            whole(self.bit_width, "bit_width", 2, 4)
            name = f"tq{self.bit_width}"
            if self.residual_bit_width is not None:
                whole(self.residual_bit_width, "residual_bit_width", 2, 4)
                name += f"+{self.residual_bit_width}"
        if self.group_size == 128:
            return name
        return with_group(name, -1 if self.group_size is None else self.group_size)


Config = TurboQuantConfig


use_host_threads()


def set_threads(threads: int) -> None:
    """Lets products of layers run on `threads` threads of their own; with 0 they run on those of
    PyTorch."""
    _walsh.layer_threads(whole(threads, "threads", 0, 4096))


@dataclass(frozen=True)
class QuantizeSummary:
    """Says what `quantize_model` has done; `str()` of it is one line."""

    layers: int
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        ratio = self.bytes_before / max(self.bytes_after, 1)
        return (f"{self.layers} layers quantized, {self.bytes_before / 1e6:.1f} MB -> "
                f"{self.bytes_after / 1e6:.1f} MB ({ratio:.1f}x compression)")


def _check_module(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise usage("model", f"a value of type {kind_of(model)}, expected an nn.Module")


def _check_config(config: Any) -> None:
    if not isinstance(config, TurboQuantConfig):
        raise usage("config", f"a value of type {kind_of(config)}, expected a TurboQuantConfig")


def _rules(config: TurboQuantConfig) -> Rules:
    return Rules(config.format_name, config.ignore, config.overrides)


def quantize_model(model: nn.Module, config: Optional[TurboQuantConfig] = None) -> nn.Module:
    """Replaces the linear layers of a model by quantized ones, in place and one after the other,
    and returns the model. Experts are replaced as well, though transformers keeps them in one
    tensor per layer. Subclasses of `nn.Linear` that compute something of their own stay plain, as
    does the layer that `nn.MultiheadAttention` multiplies with by itself.

    Weights may be float32, float16 or bfloat16. `model.walsh_summary` has the number of layers and
    their size before and after. A model that is a linear layer itself cannot change in place; for
    it a new layer is returned. Weights on the meta device, rules that match nothing and options
    without meaning raise walsh.Error.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.ReLU())
    >>> net = quantize_model(net, TurboQuantConfig(bit_width=4))
    >>> net.walsh_summary.layers
    1
    """
    _check_module(model)
    config = TurboQuantConfig() if config is None else config
    _check_config(config)
    rules = _rules(config)
    options: dict[str, Any] = {"rotation": config.rotation, "block": config.block,
                               "seed": config.seed, "fast": config.fast,
                               "shape_gain": config.shape_gain}
    layers = before = after = 0

    def encode(name: str, weight: torch.Tensor, bias: Optional[torch.Tensor], kind: str) -> Linear:
        nonlocal layers, before, after
        plain = nn.Linear(weight.shape[1], weight.shape[0], False, device="meta")
        plain.weight = nn.Parameter(weight, requires_grad=False)
        plain.bias = cast(nn.Parameter, bias)  # it may be None
        try:
            quantized = Linear.from_linear(plain, type=kind, **options)
        except Error as error:
            where = f"{name}: {error.where}" if name else error.where
            raise Error(error.code, where, error.reason) from None
        layers += 1
        before += weight.numel() * weight.element_size()
        after += quantized.stored_bytes
        return quantized

    for names, linear, kind in list(targets(model, rules)):
        quantized = encode(names[0], linear.weight.detach(), linear.bias, kind)
        take_over(linear, quantized, names[0])
        for name in names:
            model = replace(model, name, quantized)
    for names, experts in _fused_experts(model):
        types = choose(names[0], experts, rules)
        if types:
            def encode_part(key: tuple[int, str], weight: torch.Tensor, name: str = names[0],
                            types: dict[tuple[int, str], str] = types) -> Linear:
                return encode(f"{name}.{key[0]}.{key[1]}", weight, None, types[key])

            coded = quantize_experts(experts, encode_part)
            take_over(experts, coded, names[0])
            for name in names:
                model = replace(model, name, coded)
    rules.check_used()
    model.walsh_summary = QuantizeSummary(layers, before, after)  # type: ignore[assignment]
    count_codes(model)
    return model


def _fused_experts(model: nn.Module) -> list[tuple[list[str], nn.Module]]:
    return [(names, module) for module, names in places(model).items() if is_fused(module)]


def dequantize_model(model: nn.Module, dtype: Optional[torch.dtype] = None) -> nn.Module:
    """Replaces the quantized layers of a model by plain ones, in place, and returns the model. The
    plain weights are those that the codes stand for, in `dtype` or in the type that they had. They
    can be trained, merged, and saved for other programs.

    >>> net = quantize_model(torch.nn.Sequential(torch.nn.Linear(128, 64)))
    >>> dequantize_model(net)[0]
    Linear(in_features=128, out_features=64, bias=True)
    """
    _check_module(model)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise usage("dtype", f"{dtype!r}, expected a type of torch with fractions")
    single = {layer for module in model.modules() if isinstance(module, Experts)
              for layer in module.modules() if layer is not module}
    for module, names in places(model).items():
        plain: nn.Module
        if isinstance(module, Experts):
            plain = without_codes(module, dtype)
        elif isinstance(module, Linear) and module not in single:
            plain = module.to_linear(dtype)
        else:
            continue
        take_over(module, plain, names[0])
        for name in names:
            model = replace(model, name, plain)
    for name in ("walsh_summary", "get_memory_footprint"):
        vars(model).pop(name, None)
    return model


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Returns what tied weights have in common."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def save_quantized(model: nn.Module, config: TurboQuantConfig, path: Path) -> None:
    """Writes a quantized model to a folder, which is made if it is not there: its weights, and what
    its layers are. `load_quantized` reads it."""
    from safetensors.torch import save_file

    _check_module(model)
    _check_config(config)
    folder = pathlib.Path(os.fsdecode(path_of(path, "path")))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Error("io", str(folder), error.strerror or str(error)) from None
    modules = {name: {"type": m.format, "shape": [m.out_features, m.in_features],
                      "rotation": m.rotations}
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


def load_quantized(model: Union[nn.Module, Path], path: Path, **options: Any) -> nn.Module:
    """Returns the model that `save_quantized` wrote to the folder `path`. `model` is a module with
    plain layers, which are replaced, or the name of a transformers model, of which only the config
    is read (`options` go to its from_config). A folder that does not fit raises walsh.Error."""
    if not isinstance(model, nn.Module):
        path_of(model, "model")
    folder = pathlib.Path(os.fsdecode(path_of(path, "path")))
    try:
        saved = json.loads((folder / CONFIG_NAME).read_text())
        modules = stored_forms(saved["modules"], str(folder / CONFIG_NAME))
    except OSError as error:
        raise Error("io", str(folder / CONFIG_NAME), error.strerror or str(error)) from None
    except (ValueError, KeyError, TypeError):
        raise Error("bad_input", str(folder / CONFIG_NAME), "is not what save_quantized writes"
                    ) from None
    empty = not isinstance(model, nn.Module)
    whole: Any = _empty_model(model, options) if not isinstance(model, nn.Module) else model
    experts, taken = group_stored(whole, modules)
    for name, stored in experts.items():
        replace(whole, name, stored_experts(whole.get_submodule(name), stored))
    for name, form in modules.items():
        if name not in taken:
            whole = replace(whole, name, _stored_layer(whole, name, form, f"{folder}: {name}"))
    _load(whole, folder / WEIGHTS_NAME, empty)
    if hasattr(whole, "tie_weights"):
        whole.tie_weights()
    for module in whole.modules():
        if isinstance(module, Linear):
            module.pack()
    count_codes(whole)
    return cast(nn.Module, whole.eval())


def _empty_model(name: Path, options: dict[str, Any]) -> Any:
    """Returns a transformers model whose plain weights are never made."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with parameters_on_meta():
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name), **options)


def _stored_layer(model: nn.Module, name: str, form: dict[str, Any], where: str) -> Linear:
    """Returns the empty layer of a folder in the place of a plain one."""
    try:
        linear = model.get_submodule(name)
    except AttributeError:
        linear = None
    if not isinstance(linear, nn.Linear) or not is_plain(linear):
        raise Error("bad_input", where, "the model has no such linear layer")
    check_shape(form, tuple(linear.weight.shape), where)
    layer = Linear(linear.in_features, linear.out_features, linear.bias is not None,
                   type=form["type"], rotations=form["rotation"], dtype=linear.weight.dtype)
    take_over(linear, layer, name)
    return layer


def _load(model: nn.Module, file: pathlib.Path, empty: bool) -> None:
    """Reads the weights of a model; `empty` says that it has no memory for them yet."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    state = model.state_dict()
    try:
        given = load_file(file)
        if empty:  # taken as they are, so in the type that the model has
            given = {name: tensor.to(state[name].dtype) if name in state else tensor
                     for name, tensor in given.items()}
        missing, unexpected = model.load_state_dict(given, strict=False, assign=empty)
    except OSError as error:
        raise Error("io", str(file), error.strerror or str(error)) from None
    except (SafetensorError, RuntimeError) as error:
        raise Error("bad_input", str(file), " ".join(str(error).split())) from None
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    tied |= set(getattr(model, "all_tied_weights_keys", None) or ())
    if not empty:
        state = model.state_dict()
        loaded = {_place(tensor) for name, tensor in state.items() if name not in missing}
        missing = [name for name in missing if _place(state[name]) not in loaded]
    missing = [name for name in missing if name not in tied]
    if missing or unexpected:
        raise Error("bad_input", f"{file.parent}: {(missing or unexpected)[0]}",
                    "is " + ("missing" if missing else "not part of the model"))

"""A quantizer for transformers; importing this module registers it.

    from walsh.transformers import WalshConfig
    model = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=WalshConfig(type="tq3", ignore=["lm_head"]))

compresses a checkpoint while it is loaded, one matrix at a time; `model.save_pretrained(other)`
writes a folder with `quantization_config`, which `from_pretrained(other)` loads as it is, and
`walsh run` as well. `walsh quantize --output-format hf` writes such folders, too.
"""
from __future__ import annotations

import re
from typing import Any, Optional, Sequence

import torch
from torch import nn
from transformers.core_model_loading import ConversionOps
from transformers.quantizers import HfQuantizer
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from . import _walsh
from ._error import Error
from ._experts import (DOWN, GATE_UP, Experts, Shape, add_biases, choose, group_stored, is_fused,
                       stored_experts)
from ._forms import check_shape, new_form, stored_forms
from ._rules import Rules
from .torch import Linear

METHOD = "walsh"
FORMAT_VERSION = 1

# Routers, and gates with a row per head or one for all: small, and they decide too much to be
# coded. The same stay plain in `walsh quantize`.
_PLAIN = re.compile(r"(^|\.)(shared_expert_gate|in_proj_(a|b|ba)|router(\.layer)?|gate)$")


@register_quantization_config(METHOD)
class WalshConfig(QuantizationConfigMixin):  # type: ignore[misc]
    """What linear layers become: `type` is a format of walsh, `ignore` and `overrides` are rules on
    names of modules as those of `walsh.quantize`; `modules` says what is stored in a folder."""

    def __init__(self, type: str = "tq4", ignore: Optional[Sequence[str]] = None,
                 overrides: Sequence[str] = (), rotation: str = "hadamard", block: int = 0,
                 seed: int = 42, fast: bool = False, shape_gain: bool = False,
                 modules: Optional[dict[str, Any]] = None, format_version: int = FORMAT_VERSION,
                 producer: str = "", recipe: Optional[dict[str, Any]] = None,
                 **others: Any) -> None:
        # What transformers adds to the options of every method.
        unknown = [name for name in others
                   if name != "quant_method" and not name.startswith(("load_in_", "_load_in_"))]
        if unknown:
            raise Error("usage", unknown[0], "WalshConfig has no such option")
        self.quant_method = METHOD
        self.format_version = format_version
        self.producer = producer or f"walsh {_walsh.__version__}"
        self.type, self.rotation, self.block, self.seed = type, rotation, block, seed
        self.ignore = ["lm_head"] if ignore is None else ignore
        self.overrides = overrides
        self.fast, self.shape_gain = fast, shape_gain
        self.modules = modules or {}
        self.recipe = recipe or {}  # of a folder that the command wrote: all that decided its bytes
        self.post_init()

    def post_init(self) -> None:
        """Refuses a folder of a later version, unknown types and wrong rules."""
        if not isinstance(self.format_version, int) or self.format_version > FORMAT_VERSION:
            raise Error("bad_input", "quantization_config: format_version",
                        f"{self.format_version}, this walsh reads up to {FORMAT_VERSION}")
        stored_forms(self.modules, "quantization_config")
        self.rules()
        self.ignore, self.overrides = list(self.ignore), list(self.overrides)
        for kind in [self.type, *(rule.rpartition("=")[2] for rule in self.overrides)]:
            new_form(kind, 32, 32, self.rotation, self.block, self.seed, self.fast)

    def rules(self) -> Rules:
        """The rules on names of modules."""
        return Rules(self.type, self.ignore, self.overrides)


class _Encode(ConversionOps):  # type: ignore[misc]
    """Replaces a plain layer by a quantized one when its weights arrive."""

    def __init__(self, quantizer: WalshQuantizer) -> None:
        self.hf_quantizer = quantizer

    def convert(self, input_dict: dict[str, Any], model: Optional[nn.Module] = None,
                full_layer_name: Optional[str] = None, missing_keys: Optional[set[str]] = None,
                **others: Any) -> dict[str, torch.Tensor]:
        """Takes the weight of one layer; nothing is left for the loader to set."""
        assert model is not None and full_layer_name is not None
        value = next(iter(input_dict.values()))
        weight = value[0] if isinstance(value, list) else value
        name = full_layer_name.rpartition(".")[0]
        if weight.dim() == 3:
            self.hf_quantizer.encode_experts(model, name, full_layer_name, weight)
        else:
            self.hf_quantizer.encode(model, name, weight)
        if missing_keys is not None:
            missing_keys.discard(full_layer_name)
        return {}


@register_quantizer(METHOD)
class WalshQuantizer(HfQuantizer):  # type: ignore[misc]
    """Compresses while loading, or loads what was compressed."""

    requires_calibration = False
    quantization_config: WalshConfig

    def __init__(self, quantization_config: WalshConfig, **options: Any) -> None:
        super().__init__(quantization_config, **options)
        self._types: dict[str, str] = {}  # of the layers that will be encoded
        # By the names of their modules; their layers, as they become ready.
        self._experts: dict[str, dict[tuple[int, str], Linear]] = {}

    def _encoded(self, name: str, weight: torch.Tensor) -> Linear:
        config = self.quantization_config
        layer = Linear(weight.shape[1], weight.shape[0], False, type=self._types[name],
                       rotation=config.rotation, block=config.block, seed=config.seed,
                       fast=config.fast, device="meta")
        try:
            layer.encode(weight, shape_gain=config.shape_gain, fast=config.fast)
        except Error as error:
            raise Error(error.code, f"{name}: {error.where}", error.reason) from None
        layer._is_hf_initialized = True
        config.modules[name] = {"type": layer.format, "shape": list(weight.shape),
                                "rotation": layer.rotations}
        return layer

    def encode(self, model: nn.Module, name: str, weight: torch.Tensor) -> None:
        """Puts a quantized layer with these weights in the place of a plain one."""
        layer = self._encoded(name, weight)
        layer.bias = model.get_submodule(name).bias  # loaded before or after
        model.set_submodule(name, layer)

    def encode_experts(self, model: nn.Module, name: str, parameter: str,
                       weights: torch.Tensor) -> None:
        """Encodes the experts of one tensor; when all of the model is loaded they take their
        place."""
        plain = model.get_submodule(name)
        kind = parameter.rpartition(".")[2]
        for number, part, weight in Shape(plain).split(kind, weights):
            self._experts[name][number, part] = self._encoded(f"{name}.{number}.{part}", weight)
        plain._is_hf_initialized = True

    def param_needs_quantization(self, model: nn.Module, param_name: str, **others: Any) -> bool:
        """Whether a parameter is the weight of a layer to quantize."""
        module, _, kind = param_name.rpartition(".")
        if module in self._experts:
            return kind in (GATE_UP, DOWN)
        return kind == "weight" and module in self._types

    def get_quantize_ops(self) -> ConversionOps:
        """What the loader calls with such a weight."""
        return _Encode(self)

    def _process_model_before_weight_loading(self, model: nn.Module, **others: Any) -> None:
        if self.pre_quantized:
            self._replace_stored(model)
            return
        rules = self.quantization_config.rules()
        tied = set(getattr(model, "all_tied_weights_keys", None) or {})
        for name, module in model.named_modules():
            if is_fused(module):
                types = choose(name, module, rules)
                if types:
                    self._types.update({f"{name}.{n}.{p}": t for (n, p), t in types.items()})
                    self._experts[name] = {}
            elif isinstance(module, nn.Linear):
                kind = rules.type_of(name)  # a rule may name a layer that stays plain anyway
                if kind is not None and name + ".weight" not in tied and not _PLAIN.search(name):
                    self._types[name] = kind
        rules.check_used()
        self.quantization_config.modules = {}

    def _replace_stored(self, model: nn.Module) -> None:
        modules = self.quantization_config.modules
        experts, taken = group_stored(model, modules)
        for name, stored in experts.items():
            model.set_submodule(name, stored_experts(model.get_submodule(name), stored, Linear))
        for name, form in modules.items():
            if name in taken:
                continue
            try:
                plain = model.get_submodule(name)
            except AttributeError:
                plain = None
            if not isinstance(plain, nn.Linear):
                raise Error("bad_input", f"quantization_config: {name}",
                            "the model has no such linear layer")
            check_shape(form, plain.weight.shape, f"quantization_config: {name}")
            layer = Linear(plain.in_features, plain.out_features, plain.bias is not None,
                           type=form["type"], rotations=form["rotation"],
                           dtype=plain.weight.dtype, device="meta")
            model.set_submodule(name, layer)

    def _process_model_after_weight_loading(self, model: nn.Module, **others: Any) -> nn.Module:
        for name, layers in self._experts.items():
            plain = model.get_submodule(name)
            add_biases(plain, layers)
            model.set_submodule(name, Experts(plain, lambda *key, own=layers: own[key]))
        self._experts = {}
        for module in model.modules():
            if isinstance(module, Linear):
                module.pack()
        return model

    def is_serializable(self) -> bool:
        """The model can be saved."""
        return True

    @property
    def is_trainable(self) -> bool:
        """Codes are not trained; adapters beside the layers are, through the input's gradient."""
        return False

    @property
    def is_compileable(self) -> bool:
        """torch.compile knows the operators."""
        return True

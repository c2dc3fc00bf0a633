"""This is a quantizer for transformers; importing this module registers it.

    from walsh.transformers import WalshConfig
    model = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=WalshConfig(type="tq3", ignore=["lm_head"]))

compresses a checkpoint while it is loaded, one matrix at a time; `model.save_pretrained(other)`
writes a folder with `quantization_config`, which `from_pretrained(other)` loads as it is, and
`walsh run` as well. `walsh quantize --output-format hf` writes such folders, too.
"""
# transformers declares what it calls for its own classes, and not the same in every version.
# pyright: reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# pyright: reportIncompatibleVariableOverride=false
from __future__ import annotations

import re
from typing import Any, Optional, Sequence, cast

import torch
from torch import nn
from transformers.core_model_loading import ConversionOps, WeightConverter
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.quantizers.auto import (AUTO_QUANTIZATION_CONFIG_MAPPING, AutoHfQuantizer,
                                          register_quantization_config, register_quantizer)
from transformers.quantizers.base import HfQuantizer
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer
from transformers.utils.quantization_config import FineGrainedFP8Config, QuantizationConfigMixin

from . import _walsh
from ._checkpoint_names import FileNames, modules_of, part_names, saved_names
from ._error import Error
from ._experts import (DOWN, GATE_UP, PARTS, Experts, Shape, add_biases, choose, group_stored,
                       is_fused, split_name, stored_experts)
from ._forms import check_shape, new_form, stored_forms, with_group
from ._modules import count_codes, is_plain
from ._rules import Rules
from .torch import Linear, dequantize_model

METHOD = "walsh"
FORMAT_VERSION = 1

# walsh_autoload has put this there until this module is imported.
if not issubclass(AUTO_QUANTIZATION_CONFIG_MAPPING.get(METHOD, QuantizationConfigMixin),
                  QuantizationConfigMixin):
    del AUTO_QUANTIZATION_CONFIG_MAPPING[METHOD]

# Routers, and gates with a row per head or one for all, stay plain: they are small, and they decide
# too much to be coded. The same stay plain in `walsh quantize`.
_PLAIN = re.compile(r"(^|\.)(shared_expert_gate|in_proj_(a|b|ba)|router(\.layer)?|gate)$")


@register_quantization_config(METHOD)
class WalshConfig(QuantizationConfigMixin):  # type: ignore[misc]
    """Says what linear layers become: `type` is a format of walsh, `ignore` and `overrides` are
    rules on names of modules as those of `walsh.quantize`; `modules` says what is stored in a
    folder. `group_size` weights share a scale, where that is not the type's own number: of `tq*` 64
    or 32 (on CPUs), or -1 for one scale per row. What it cannot be is a walsh.Error.

    >>> WalshConfig(type="tq3", group_size=64).type
    'tq3:g64'
    """

    def __init__(self, type: str = "tq4", ignore: Optional[Sequence[str]] = None,
                 overrides: Sequence[str] = (), rotation: str = "hadamard", block: int = 0,
                 seed: int = 42, fast: bool = False, shape_gain: bool = False,
                 modules: Optional[dict[str, Any]] = None, format_version: int = FORMAT_VERSION,
                 producer: str = "", recipe: Optional[dict[str, Any]] = None,
                 group_size: Optional[int] = None, **others: Any) -> None:
        # transformers adds these to the options of every method.
        unknown = [name for name in others
                   if name != "quant_method" and not name.startswith(("load_in_", "_load_in_"))]
        if unknown:
            raise Error("usage", unknown[0], "WalshConfig has no such option")
        self.quant_method = METHOD
        self.format_version = format_version
        self.producer = producer or f"walsh {_walsh.__version__}"
        self.type = type if group_size is None else with_group(type, group_size)
        self.rotation, self.block, self.seed = rotation, block, seed
        self.ignore = ["lm_head"] if ignore is None else ignore
        self.overrides = overrides
        self.fast, self.shape_gain = fast, shape_gain
        self.modules = modules or {}
        self.recipe = recipe or {}  # of a folder that the command wrote: all that decided its bytes
        self.source: Any = None  # an FP8 checkpoint that is compressed has this config
        self.post_init()

    def to_dict(self) -> dict[str, Any]:
        """Returns the options as they are written to a folder."""
        return {name: value for name, value in super().to_dict().items() if name != "source"}

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
        """Returns the rules on names of modules."""
        return Rules(self.type, self.ignore, self.overrides)


class _Encode(ConversionOps):  # type: ignore[misc]
    """Replaces a plain layer by a quantized one when its weights arrive. It passes other weights
    on, which come to it behind operations for every weight of a checkpoint (those that decode
    FP8)."""

    def __init__(self, quantizer: WalshQuantizer) -> None:
        self.hf_quantizer = quantizer

    def __deepcopy__(self, memo: Any) -> _Encode:
        """Returns itself: the loader copies operations for every weight, and all of them fill one
        quantizer."""
        return self

    def convert(self, input_dict: dict[str, Any], model: Any = None,
                full_layer_name: Optional[str] = None, missing_keys: Optional[set[str]] = None,
                **others: Any) -> dict[str, torch.Tensor]:
        """Takes the weight of one layer; nothing is left for the loader to set."""
        assert model is not None and full_layer_name is not None
        if not self.hf_quantizer.param_needs_quantization(model, full_layer_name):
            return input_dict
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


class _DecodeFp8(Fp8Dequantize):  # type: ignore[misc]
    """Decodes blocks of FP8, also where the last ones of a matrix are smaller than the others (as
    in the 576 rows of DeepSeek-V3): there a block's size is no share of the matrix."""

    def _dequantize_one(self, quantized: torch.Tensor, scales: torch.Tensor,
                        output_dtype: Optional[torch.dtype] = None) -> torch.Tensor:
        block = getattr(self.hf_quantizer.quantization_config, "weight_block_size", None)
        shape = quantized.shape[-2:]
        # Versions before 5.20 have converted the codes to a wider type, which keeps their values.
        known = quantized.dtype == torch.float8_e4m3fn or (
            quantized.is_floating_point() and quantized.element_size() > 1)
        if not block or scales.dim() < 2 or not known or any(
                -(-size // part) != count
                for size, part, count in zip(shape, block, scales.shape[-2:])):
            wanted = {"output_dtype": output_dtype} if output_dtype else {}  # 5.8 does not have it
            return super()._dequantize_one(  # type: ignore[no-any-return]
                quantized, scales, **wanted)
        own = scales.to(torch.float32)
        for dim, (size, part) in enumerate(zip(shape, block), -2):
            own = own.repeat_interleave(part, dim).narrow(dim, 0, size)
        return (quantized.to(torch.float32) * own).to(output_dtype or torch.bfloat16)


@register_quantizer(METHOD)
class WalshQuantizer(HfQuantizer):  # type: ignore[misc]
    """Compresses while loading, or loads what was compressed."""

    requires_calibration = False
    quantization_config: WalshConfig

    def __init__(self, quantization_config: WalshConfig, **options: Any) -> None:
        super().__init__(quantization_config, **options)
        self._types: dict[str, str] = {}  # the layers that will be encoded have these
        # Layers of experts are found by the names of their modules, as they become ready.
        self._experts: dict[str, dict[tuple[int, str], Linear]] = {}
        self._part_names: tuple[str, ...] = PARTS
        # This decodes the checkpoint if somebody else has quantized it.
        self._source: Optional[HfQuantizer] = None
        if quantization_config.source is not None:
            self._source = FineGrainedFP8HfQuantizer(quantization_config.source, pre_quantized=True)
            quantization_config.source = None

    def _encoded(self, name: str, weight: torch.Tensor) -> Linear:
        config = self.quantization_config
        layer = Linear(weight.shape[1], weight.shape[0], False, type=self._types[name],
                       rotation=config.rotation, block=config.block, seed=config.seed,
                       fast=config.fast, device="meta")
        try:
            layer.encode(weight, shape_gain=config.shape_gain, fast=config.fast)
        except Error as error:
            raise Error(error.code, f"{name}: {error.where}", error.reason) from None
        layer._is_hf_initialized = True  # type: ignore[assignment]
        return layer

    def encode(self, model: nn.Module, name: str, weight: torch.Tensor) -> None:
        """Puts a quantized layer with these weights in the place of a plain one."""
        layer = self._encoded(name, weight)
        plain: Any = model.get_submodule(name)
        layer.bias = plain.bias  # it is loaded before or after
        model.set_submodule(name, layer)

    def encode_experts(self, model: nn.Module, name: str, parameter: str,
                       weights: torch.Tensor) -> None:
        """Encodes the experts of one tensor; when all of the model is loaded they take their
        place."""
        plain: Any = model.get_submodule(name)
        kind = parameter.rpartition(".")[2]
        for number, part, weight in Shape(plain).split(kind, weights):
            self._experts[name][number, part] = self._encoded(f"{name}.{number}.{part}", weight)
        plain._is_hf_initialized = True

    def param_needs_quantization(self, model: nn.Module, param_name: str, **others: Any) -> bool:
        """Returns whether a parameter is the weight of a layer to quantize."""
        module, _, kind = param_name.rpartition(".")
        if module in self._experts:
            return kind in (GATE_UP, DOWN)
        return kind == "weight" and module in self._types

    def get_quantize_ops(self) -> ConversionOps:
        """Returns what the loader calls with such a weight."""
        return _Encode(self)

    def update_weight_conversions(self, weight_conversions: list[Any], *model: Any) -> list[Any]:
        """Adds decoding: weights of FP8 are decoded before they are encoded. Versions of
        transformers before 5.20 do not give the model."""
        if self._source is None:
            return list(super().update_weight_conversions(weight_conversions, *model))
        conversions = list(self._source.update_weight_conversions(weight_conversions, *model))
        for conversion in conversions:
            if isinstance(conversion, WeightConverter):
                operations = [_DecodeFp8(self._source) if isinstance(op, Fp8Dequantize) else op
                              for op in conversion.operations]
                conversion.operations = [*operations, _Encode(self)]
        return conversions

    def get_new_dtype(self, converter: Any, param: Any, dtype: Any) -> Any:
        """Keeps weights of FP8 and their scales as they are."""
        if self._source is not None:
            return self._source.get_new_dtype(converter, param, dtype)
        return super().get_new_dtype(converter, param, dtype)

    def _process_model_before_weight_loading(self, model: nn.Module, **others: Any) -> None:
        if self.pre_quantized and self._source is None:
            self._replace_stored(model)
            return
        rules = self.quantization_config.rules()
        tied = set(getattr(model, "all_tied_weights_keys", None) or {})
        self._part_names = part_names(model)
        for name, module in model.named_modules():
            if is_fused(module):
                types = choose(name, module, rules)
                if types:
                    self._types.update({f"{name}.{n}.{p}": t for (n, p), t in types.items()})
                    self._experts[name] = {}
            elif isinstance(module, nn.Linear):
                kind = rules.type_of(name)  # a rule may name a layer that stays plain anyway
                if (kind is not None and is_plain(module) and not _PLAIN.search(name)
                        and name + ".weight" not in tied):
                    self._types[name] = kind
        rules.check_used()
        self.quantization_config.modules = {}

    def _replace_stored(self, model: nn.Module) -> None:
        """Puts empty layers in the places of those that the folder has coded."""
        names, forms = FileNames(model), {}
        for stored_name, form in self.quantization_config.modules.items():
            expert = split_name(stored_name)
            if expert is not None:
                ending = f".{expert[1]}.{expert[2]}"
                found = names.find(expert[0], ending)
                if found is not None and is_fused(model.get_submodule(found)):
                    forms[found + ending] = form
                    continue
            place = names.find(stored_name)
            if place is not None and is_plain(model.get_submodule(place)):
                forms[place] = form
            elif not names.is_beside(stored_name):
                raise Error("bad_input", f"quantization_config: {stored_name}",
                            "the model has no such linear layer")
        experts, taken = group_stored(model, forms)
        for name, stored in experts.items():
            model.set_submodule(name, stored_experts(model.get_submodule(name), stored))
        for name, form in forms.items():
            if name not in taken:
                plain: Any = model.get_submodule(name)
                check_shape(form, plain.weight.shape, f"quantization_config: {name}")
                model.set_submodule(name, Linear(
                    plain.in_features, plain.out_features, plain.bias is not None,
                    type=form["type"], rotations=form["rotation"], dtype=plain.weight.dtype,
                    device="meta"))
        for layer in modules_of(model, Linear).values():
            layer._is_hf_initialized = True  # there is nothing to draw at random

    def _process_model_after_weight_loading(self, model: Any, **others: Any) -> nn.Module:
        for name, layers in self._experts.items():
            plain = model.get_submodule(name)
            add_biases(plain, layers)
            model.set_submodule(name, Experts(plain, lambda *key, own=layers: own[key],
                                              self._part_names))
        self._experts = {}
        if self._source is not None:  # what is saved is not FP8 again
            model._weight_conversions = [
                entry for entry in getattr(model, "_weight_conversions", None) or []
                if not isinstance(entry, WeightConverter)]
        for layer in modules_of(model, Linear).values():
            layer.pack()
        self._note_modules(model)
        count_codes(model)
        return cast(nn.Module, model)

    def _note_modules(self, model: Any) -> None:
        """Notes what is coded, by the names that files of the model have."""
        layers = modules_of(model, Linear)
        names = saved_names(model, layers)
        self.quantization_config.modules = {
            names[name]: {"type": layer.format, "shape": [layer.out_features, layer.in_features],
                          "rotation": layer.rotations} for name, layer in layers.items()}

    def get_state_dict_and_metadata(self, model: Any) -> tuple[None, dict[str, Any]]:
        """Returns metadata; it is called when the model is saved, before its config is written."""
        self._note_modules(model)
        return None, {}

    def _dequantize(self, model: nn.Module, dtype: Optional[torch.dtype] = None) -> nn.Module:
        return dequantize_model(model, dtype)

    def is_serializable(self) -> bool:
        """Returns True: the model can be saved."""
        return True

    @property
    def is_trainable(self) -> bool:
        """Returns True: adapters beside the layers are trained, through the gradients of their
        inputs."""
        return True

    @property
    def is_compileable(self) -> bool:
        """Returns True: torch.compile knows the operators."""
        return True


def _accept_fp8() -> None:
    """Lets WalshConfig be given for a checkpoint of FP8, which transformers refuses for every other
    method; those that somebody else has quantized are refused with a line that says so."""
    merge = AutoHfQuantizer.merge_quantization_configs.__func__

    def merge_ours(cls: Any, stored: Any, given: Any) -> Any:
        if not isinstance(given, WalshConfig):
            return merge(cls, stored, given)
        method = stored.get("quant_method") if isinstance(stored, dict) else stored.quant_method
        if str(getattr(method, "value", method)) == METHOD:
            return merge(cls, stored, given)
        if str(getattr(method, "value", method)) != "fp8":
            raise Error("usage", "quantization_config",
                        f"the checkpoint is quantized by {method} already: WalshConfig is for "
                        "plain weights and FP8")
        source = FineGrainedFP8Config.from_dict(stored) if isinstance(stored, dict) else stored
        source.dequantize = True
        given.source = source
        return given

    AutoHfQuantizer.merge_quantization_configs = classmethod(merge_ours)


_accept_fp8()

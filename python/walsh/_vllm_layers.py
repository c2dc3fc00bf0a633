"""Has the classes of the vLLM plugin (walsh/vllm.py): what vLLM calls for each of its layers."""
# pyright: reportMissingImports=false
from __future__ import annotations

import re
from typing import Any, Optional, Sequence

import torch
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase, LinearMethodBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.model_executor.layers.quantization.online.fp8 import OnlineLinearBase
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.utils import replace_parameter
from vllm.platforms import current_platform

from ._error import usage
from ._packed import Packed, layer_table
from ._placed import Form
from ._vllm_encode import DONE, check_form, encode, form_of, gpu, layer_named
from ._vllm_experts import WalshExpertsMethod, WalshStoredExpertsMethod, stored_forms
from ._vllm_shards import Stored, pieces_of
from .vllm import Options

# Routers, and gates with a row per head or one for all, stay plain, as in walsh.transformers.
_PLAIN = re.compile(r"(^|\.)(shared_expert_gate|in_proj_(a|b|ba)|router(\.layer)?|gate)$")


def _install(layer: Any, packed: Sequence[Packed]) -> None:
    """Gives a module of vLLM its packed layers in place of weights."""
    # This is not a submodule: the stored arrays are no parameters that vLLM has to load.
    object.__setattr__(layer, "walsh_packed", list(packed))
    layer.register_buffer("walsh_layers", layer_table(packed), persistent=False)
    layer.walsh_rows = sum(one.out_features for one in packed)


def _multiply(layer: Any, x: torch.Tensor, bias: Optional[torch.Tensor]) -> torch.Tensor:
    y: torch.Tensor = torch.ops.walsh.linear_merged(x, layer.walsh_layers, layer.walsh_rows)
    return y if bias is None else y + bias


class WalshLinearMethod(OnlineLinearBase):  # type: ignore[misc]
    """Compresses a linear layer as soon as the last of its weights has come."""

    def __init__(self, options: Options, prefix: str, kinds: list[str]) -> None:
        super().__init__()
        self.options, self.prefix, self.kinds = options, prefix, kinds
        with layer_named(prefix):  # before anything is loaded
            for kind in kinds:
                check_form(form_of(kind, 32, 256, 0, options), gpu())

    def process_weights_after_loading(self, layer: Any) -> None:
        """Encodes, and gives the plain weights back."""
        if getattr(layer, DONE, False):
            return
        first_col = 0
        if layer.input_size_per_partition != layer.input_size:  # the rank has a part of the rows
            first_col = layer.tp_rank * layer.input_size_per_partition
        packed = []
        with layer_named(self.prefix):
            for piece in pieces_of(self.kinds, layer.logical_widths):
                rows = layer.weight.data[piece.first_row:piece.first_row + piece.rows]
                packed.append(encode(rows, first_col, piece.kind, self.options))
        _install(layer, packed)
        empty = layer.weight.new_empty(0)
        replace_parameter(layer, "weight", torch.nn.Parameter(empty, requires_grad=False))
        setattr(layer, DONE, True)

    def tie_weights(self, layer: torch.nn.Module, embed_tokens: torch.nn.Module
                    ) -> torch.nn.Module:
        """Returns the embedding: a head that shares its weights stays plain."""
        return embed_tokens

    def apply(self, layer: torch.nn.Module, x: torch.Tensor,
              bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Returns the product."""
        return _multiply(layer, x, bias)


class WalshStoredMethod(LinearMethodBase):  # type: ignore[misc]
    """Takes the arrays of a folder that is compressed already."""

    def __init__(self, options: Options, prefix: str, forms: list[dict[str, Any]]) -> None:
        self.options, self.prefix, self.forms = options, prefix, forms
        with layer_named(prefix):
            for form in forms:
                check_form(Form(form["type"], 32, 256, [tuple(r) for r in form["rotation"]]), gpu())

    def create_weights(self, layer: torch.nn.Module, input_size_per_partition: int,
                       output_partition_sizes: list[int], input_size: int, output_size: int,
                       params_dtype: torch.dtype, **others: Any) -> None:
        """Makes empty parameters, whose loaders keep what belongs to this process."""
        self.dtype = params_dtype
        with layer_named(self.prefix):
            stored = Stored(layer, self.forms, output_partition_sizes, input_size_per_partition,
                            input_size)
        object.__setattr__(layer, "walsh_stored", stored)
        for name in stored.names:
            empty: Any = torch.nn.Parameter(torch.empty(0, dtype=torch.uint8), requires_grad=False)
            empty.weight_loader = self._loader(stored, name)
            layer.register_parameter(name, empty)

    def _loader(self, stored: Stored, name: str) -> Any:
        def load(param: torch.Tensor, array: torch.Tensor, shard: Any = None) -> None:
            with layer_named(self.prefix):
                stored.take(name, array, shard)
        return load

    def process_weights_after_loading(self, layer: Any) -> None:
        """Packs the arrays."""
        if getattr(layer, "walsh_stored", None) is None:
            return
        with layer_named(self.prefix):
            packed = layer.walsh_stored.pack(gpu())
        for one in packed:
            one.exact = self.options.exact
        for name in layer.walsh_stored.names:
            delattr(layer, name)
        layer.walsh_stored = None
        _install(layer, packed)
        # Weights that were encoded here leave this behind, too: LoRA asks it for type and device.
        empty = torch.empty(0, dtype=self.dtype, device=current_platform.device_type)
        layer.register_parameter("weight", torch.nn.Parameter(empty, requires_grad=False))

    def apply(self, layer: torch.nn.Module, x: torch.Tensor,
              bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Returns the product."""
        return _multiply(layer, x, bias)


class WalshQuantization(QuantizationConfig):  # type: ignore[misc]
    """Decides for `--quantization walsh` what each layer becomes."""

    method = "walsh"

    def __init__(self, options: Optional[Options] = None) -> None:
        super().__init__()
        self.options = options or Options(self.method, {})

    @classmethod
    def get_name(cls) -> str:
        """Returns the name of the method."""
        return cls.method

    @classmethod
    def get_supported_act_dtypes(cls) -> list[torch.dtype]:
        """Returns what activations may be."""
        return [torch.bfloat16, torch.half, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        """Returns the least capability of a GPU, that of int8 products."""
        return 80

    @classmethod
    def get_config_filenames(cls) -> list[str]:
        """Returns no names, because options are in config.json alone."""
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> WalshQuantization:
        """Returns the method for a `quantization_config`."""
        return cls(Options(cls.method, config))

    def apply_vllm_mapper(self, hf_to_vllm_mapper: Any) -> None:
        """Renames the layers of a stored folder as vLLM calls the modules."""
        self.options.modules = hf_to_vllm_mapper.apply_dict(self.options.modules)

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        """Returns what a layer becomes; None: what vLLM makes of it."""
        if not current_platform.is_cpu() and not current_platform.is_cuda():
            raise usage(f"--quantization {self.method}",
                        "runs on vLLM's backends for CPUs and for NVIDIA's GPUs")
        if isinstance(layer, LinearBase):
            return self._linear_method(prefix)
        if isinstance(layer, RoutedExperts):
            return self._experts_method(layer, prefix)
        if isinstance(layer, ParallelLMHead):
            return self._head_method(prefix)
        return None

    def _head_method(self, prefix: str) -> Any:
        """Returns the method of a head, which is compressed where no rule ignores it; within other
        models, too, rules may call it lm_head alone."""
        rules, stored = self.options.rules, self.options.modules
        if stored:
            form = stored.get(prefix)
            return form and WalshStoredMethod(self.options, prefix, [form])
        leaf, kind = rules.type_of(prefix.rpartition(".")[2]), rules.type_of(prefix)
        return kind and leaf and WalshLinearMethod(self.options, prefix, [kind])

    def _experts_method(self, layer: Any, prefix: str) -> Any:
        if self.options.modules:
            stored = stored_forms(self.options.modules, prefix)
            return stored and WalshStoredExpertsMethod(layer, self.options, prefix, stored)
        kind = self.options.rules.type_of(prefix)
        return kind and WalshExpertsMethod(layer, self.options, prefix, kind)

    def _linear_method(self, prefix: str) -> Any:
        parent, dot, leaf = prefix.rpartition(".")
        names = [parent + dot + name for name in self.packed_modules_mapping.get(leaf, [leaf])]
        rules, stored = self.options.rules, self.options.modules
        if stored:
            forms = [stored[name] for name in names if name in stored]
            if self._coded(prefix, names, forms):
                return WalshStoredMethod(self.options, prefix, forms)
        elif not _PLAIN.search(prefix) and rules.type_of(prefix) is not None:
            kinds = [kind for kind in map(rules.type_of, names) if kind is not None]
            if self._coded(prefix, names, kinds):
                return WalshLinearMethod(self.options, prefix, kinds)
        return UnquantizedLinearMethod()

    @staticmethod
    def _coded(prefix: str, names: list[str], coded: Sequence[Any]) -> bool:
        """Returns whether the parts of a merged layer are coded, which all or none of them must
        be."""
        if coded and len(coded) != len(names):
            raise usage(prefix, f"{', '.join(names)} are one layer in vLLM: compress all or none")
        return bool(coded)


class TurboQuantization(WalshQuantization):
    """Does the same for `--quantization turboquant`."""

    method = "turboquant"


CONFIGS = (WalshQuantization, TurboQuantization)  # they are in the order of METHODS

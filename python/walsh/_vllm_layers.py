"""The classes of the vLLM plugin that need vLLM's own (walsh/vllm.py)."""
from __future__ import annotations

from typing import Any, Optional

import torch
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import (LinearBase, RowParallelLinear,
                                               UnquantizedLinearMethod)
from vllm.model_executor.layers.quantization.base_config import (QuantizationConfig,
                                                                 QuantizeMethodBase)
from vllm.model_executor.layers.quantization.compressed_tensors.utils import should_ignore_layer
from vllm.model_executor.layers.quantization.online.fp8 import OnlineLinearBase
from vllm.model_executor.layers.quantization.online.moe_base import OnlineMoEMethodBase
from vllm.model_executor.utils import replace_parameter

from ._error import usage
from .torch import Linear
from .vllm import Options, layer_named, shard_rotations

_DONE = "_already_called_process_weights_after_loading"


def encode(weight: torch.Tensor, first_col: int, options: Options) -> Linear:
    """A packed layer of weights [rows, cols] on the CPU."""
    rows, cols = weight.shape
    kind, rotations = shard_rotations(rows, cols, first_col, options)
    layer = Linear(cols, rows, False, type=kind, rotations=rotations, device="meta")
    layer.encode(weight, fast=options.fast)
    return layer


class WalshLinearMethod(OnlineLinearBase):  # type: ignore[misc]
    """Compresses a linear layer when the last of its weights has come."""

    def __init__(self, options: Options, prefix: str) -> None:
        super().__init__()
        self.options, self.prefix = options, prefix

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Encodes and gives the plain weights back."""
        if getattr(layer, _DONE, False):
            return
        # A shard of the columns is rotated as its part of the whole row.
        rank = get_tensor_model_parallel_rank() if isinstance(layer, RowParallelLinear) else 0
        with layer_named(self.prefix):
            packed = encode(layer.weight.data, rank * layer.weight.shape[1], self.options)
        object.__setattr__(layer, "walsh", packed)  # no submodule: its arrays are no parameters
        layer.walsh_layer, layer.walsh_rows = packed.layer, packed.out_features
        empty = torch.empty(0, dtype=layer.weight.dtype)
        replace_parameter(layer, "weight", torch.nn.Parameter(empty, requires_grad=False))
        setattr(layer, _DONE, True)

    def apply(self, layer: torch.nn.Module, x: torch.Tensor,
              bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        """The product."""
        y = torch.ops.walsh.linear(x, layer.walsh_layer, layer.walsh_rows, False)
        return y if bias is None else y + bias


class WalshExpertsMethod(OnlineMoEMethodBase):  # type: ignore[misc]
    """Compresses the experts of a layer."""

    def __init__(self, moe: Any, options: Options, prefix: str) -> None:
        super().__init__(moe)
        self.options, self.prefix = options, prefix

    def get_fused_moe_quant_config(self, layer: torch.nn.Module) -> None:
        """vLLM's own kernels are not used."""
        return None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Encodes expert by expert and gives the plain weights back."""
        if getattr(layer, _DONE, False):
            return
        if getattr(layer, "w13_bias", None) is not None:
            raise usage(self.prefix, "experts with biases are not supported")
        self._zero_padding(layer)
        first = get_tensor_model_parallel_rank() * layer.w2_weight.shape[2]
        packed = []
        for expert in range(layer.w13_weight.shape[0]):
            with layer_named(f"{self.prefix}.{expert}"):
                packed.append((encode(layer.w13_weight.data[expert], 0, self.options),
                               encode(layer.w2_weight.data[expert], first, self.options)))
        object.__setattr__(layer, "walsh", packed)
        layer.walsh_up = [up.layer for up, _ in packed]
        layer.walsh_down = [down.layer for _, down in packed]
        layer.walsh_width = layer.w2_weight.shape[2]
        for name in ("w13_weight", "w2_weight"):
            empty = torch.empty(0, dtype=getattr(layer, name).dtype)
            replace_parameter(layer, name, torch.nn.Parameter(empty, requires_grad=False))
        setattr(layer, _DONE, True)

    def apply(self, layer: Any, x: torch.Tensor, topk_weights: torch.Tensor,
              topk_ids: torch.Tensor, shared_experts: Any = None,
              shared_experts_input: Optional[torch.Tensor] = None) -> torch.Tensor:
        """The sum over the chosen experts."""
        activation = getattr(layer.activation, "value", layer.activation)
        if getattr(layer, "expert_map", None) is not None:
            topk_ids = layer.expert_map[topk_ids.long()]
        return torch.ops.walsh.experts(x, topk_weights, topk_ids, layer.walsh_up,
                                       layer.walsh_down, layer.walsh_width, str(activation))


def make_config(method: str) -> type:
    """The class that vLLM knows a method by."""

    class WalshQuantization(QuantizationConfig):  # type: ignore[misc]
        """Options of the method and what each layer becomes."""

        def __init__(self, options: Optional[Options] = None) -> None:
            super().__init__()
            self.options = options or Options(method, {})

        @classmethod
        def get_name(cls) -> str:
            return method

        @classmethod
        def get_supported_act_dtypes(cls) -> list[torch.dtype]:
            return [torch.bfloat16, torch.half, torch.float32]

        @classmethod
        def get_min_capability(cls) -> int:
            return 80

        @classmethod
        def get_config_filenames(cls) -> list[str]:
            return []

        @classmethod
        def from_config(cls, config: dict[str, Any]) -> WalshQuantization:
            return cls(Options(method, config))

        def get_quant_method(self, layer: torch.nn.Module,
                             prefix: str) -> Optional[QuantizeMethodBase]:
            ignored = should_ignore_layer(prefix, ignore=self.options.ignore,
                                          fused_mapping=self.packed_modules_mapping)
            if isinstance(layer, LinearBase):
                if ignored:
                    return UnquantizedLinearMethod()
                return WalshLinearMethod(self.options, prefix)
            if isinstance(layer, RoutedExperts) and not ignored and self.options.experts:
                return WalshExpertsMethod(layer.moe_config, self.options, prefix)
            return None

    WalshQuantization.__name__ = f"Walsh{method.capitalize()}Config"
    return WalshQuantization

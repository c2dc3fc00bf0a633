"""Runs experts in vLLM: compressed while they are loaded, or as a folder has them."""
# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any, Iterator, Optional, Sequence

import torch
from vllm.model_executor.layers.fused_moe import FusedMoEMethodBase
from vllm.model_executor.layers.quantization.online.moe_base import OnlineMoEMethodBase
from vllm.model_executor.utils import replace_parameter

from ._error import Error, usage
from ._experts import DOWN, PARTS, StoredExperts, split_name
from ._packed import ACTIVATIONS, Packed, expert_table
from ._placed import Form, PlacedExperts
from ._vllm_encode import DONE, check_form, encode, form_of, gpu, layer_named
from ._vllm_shards import Joined, Part, join_parts, pack_parts
from .vllm import Options


# The parts of an expert are found by vLLM's names of them.
_SHARDS: dict[str, str] = dict(zip(("w1", "w3", "w2"), PARTS))


def stored_forms(modules: dict[str, Any], prefix: str) -> Optional[StoredExperts]:
    """Returns what a folder has of the experts called `prefix`; None: they are plain."""
    stored = StoredExperts()
    for name, form in modules.items():
        found = split_name(name)
        if found is not None and found[0] == prefix:
            stored.add(found[1], found[2], form)
    return stored if stored.forms else None


class _CodedExperts:
    """Holds what both methods share: the product."""

    moe: Any
    options: Options
    prefix: str

    def _begin(self, layer: Any, options: Options, prefix: str) -> None:
        self.options, self.prefix = options, prefix
        self.activation = str(getattr(layer.activation, "value", layer.activation))
        if self.activation not in ACTIVATIONS:
            raise usage(f"{prefix}: activation", f"{self.activation} of experts is not supported; "
                                                 'ignore them ("re:experts")')
        if self.moe.has_bias:
            raise usage(prefix, 'experts with biases are not supported; ignore them ("re:experts")')
        if layer.apply_router_weight_on_input:
            raise usage(prefix, "experts whose input is scaled by the router are not supported; "
                                'ignore them ("re:experts")')

    @property
    def supports_eplb(self) -> bool:
        """Returns False, because experts cannot be moved between processes while the model runs."""
        return False

    def get_fused_moe_quant_config(self, layer: torch.nn.Module) -> None:
        """Returns nothing, because vLLM's own kernels are not used."""
        return None

    def _check(self, *forms: Form) -> None:
        """Refuses layers that a GPU will not multiply with, before anything is loaded."""
        with layer_named(self.prefix):
            for form in forms:
                check_form(form, gpu())

    def _place(self, layer: Any, forms: Sequence[Form], count: int, device: int) -> PlacedExperts:
        """Returns the experts on a GPU, which have no weights yet."""
        placed = PlacedExperts(forms, count, device)
        placed.exact = self.options.exact
        # It is no submodule, so nothing has to be loaded.
        object.__setattr__(layer, "walsh_placed", placed)
        layer.register_buffer("walsh_experts", placed.table(), persistent=False)
        return placed

    @staticmethod
    def _install(layer: torch.nn.Module, ups: Sequence[Sequence[Packed]],
                 downs: Sequence[Sequence[Packed]]) -> None:
        packed = [one for own in (*ups, *downs) for one in own]
        # They are no submodules, so nothing has to be loaded.
        object.__setattr__(layer, "walsh_packed", packed)
        layer.register_buffer("walsh_up", expert_table(ups), persistent=False)
        layer.register_buffer("walsh_down", expert_table(downs), persistent=False)

    def apply(self, layer: Any, x: torch.Tensor, topk_weights: torch.Tensor,
              topk_ids: torch.Tensor, shared_experts: Any = None,
              shared_experts_input: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Returns the sum over the chosen experts; those of other processes have numbers below
        0."""
        if getattr(layer, "expert_map", None) is not None:
            topk_ids = layer.expert_map[topk_ids.long()]
        y: torch.Tensor
        if hasattr(layer, "walsh_experts"):
            y = torch.ops.walsh.experts_placed(x, topk_weights, topk_ids, layer.walsh_experts,
                                               self.activation)
        else:
            y = torch.ops.walsh.experts(x, topk_weights, topk_ids, layer.walsh_up,
                                        layer.walsh_down, self.activation)
        return y


class WalshExpertsMethod(_CodedExperts, OnlineMoEMethodBase):  # type: ignore[misc]
    """Compresses the experts of a layer as soon as the last of their weights has come."""

    def __init__(self, layer: Any, options: Options, prefix: str, kind: str) -> None:
        OnlineMoEMethodBase.__init__(self, layer.moe_config)
        self._begin(layer, options, prefix)
        self.kind = kind
        self._check(form_of(kind, 32, 256, 0, options))

    def process_weights_after_loading(self, layer: Any) -> None:
        """Encodes expert by expert, and gives the plain weights back."""
        if getattr(layer, DONE, False):
            return
        self._zero_padding(layer)
        first_col = self.moe.moe_parallel_config.tp_rank * layer.w2_weight.shape[2]
        weights = ((layer.w13_weight.data, 0), (layer.w2_weight.data, first_col))
        if layer.w13_weight.is_cuda:
            self._encode_on_gpu(layer, weights)
        else:
            ups, downs = [], []
            for expert in range(layer.w13_weight.shape[0]):
                with layer_named(f"{self.prefix}.{expert}"):
                    up, down = (encode(own[expert], col, self.kind, self.options)
                                for own, col in weights)
                ups.append([up])
                downs.append([down])
            self._install(layer, ups, downs)
        for name in ("w13_weight", "w2_weight"):
            empty = getattr(layer, name).new_empty(0)
            replace_parameter(layer, name, torch.nn.Parameter(empty, requires_grad=False))
        setattr(layer, DONE, True)

    def _encode_on_gpu(self, layer: Any, weights: Sequence[tuple[torch.Tensor, int]]) -> None:
        forms = [form_of(self.kind, own.shape[1], own.shape[2], col, self.options)
                 for own, col in weights]
        self._check(*forms)
        with layer_named(self.prefix):
            placed = self._place(layer, forms, len(weights[0][0]), weights[0][0].get_device())
            for number, (own, _) in enumerate(weights):
                placed.encode(number, own, fast=self.options.fast,
                              shape_gain=self.options.shape_gain)


class WalshStoredExpertsMethod(_CodedExperts, FusedMoEMethodBase):  # type: ignore[misc]
    """Takes the arrays of experts that are compressed already."""

    def __init__(self, layer: Any, options: Options, prefix: str, stored: StoredExperts) -> None:
        FusedMoEMethodBase.__init__(self, layer.moe_config)
        self._begin(layer, options, prefix)
        self.forms = stored.forms
        self._check(*(Form(str(form["type"]), 32, 256, [tuple(r) for r in form["rotation"]])
                      for form in self.forms.values()))
        expected = layer.moe_config.num_logical_experts * len(PARTS)
        if len(self.forms) != expected:
            raise Error("bad_input", f"quantization_config: {prefix}",
                        f"{len(self.forms)} layers of experts, expected {expected}")

    def create_weights(self, layer: Any, num_experts: int, hidden_size: int,
                       intermediate_size_per_partition: int, params_dtype: torch.dtype,
                       **others: Any) -> None:
        """Makes empty parameters, whose loaders keep what belongs to this process."""
        width = intermediate_size_per_partition
        rank = self.moe.moe_parallel_config.tp_rank
        ranks = self.moe.moe_parallel_config.tp_size
        # The keys begin with the expert's number in this process.
        self.parts: dict[tuple[int, str], Part] = {}
        for (number, part), form in self.forms.items():
            own = layer._map_global_expert_id_to_local_expert_id(number)
            if own < 0:
                continue
            with layer_named(f"{self.prefix}.{number}.{part}"):
                self.parts[own, part] = (
                    Part(form, [hidden_size], 0, 1, width, width * ranks, rank) if part == DOWN
                    else Part(form, [width], rank, ranks, hidden_size, hidden_size, 0))
        self.names = {}
        for vllm_name, parts in (("w13", PARTS[:2]), ("w2", PARTS[2:])):
            arrays = dict.fromkeys(name for (_, part), one in self.parts.items() if part in parts
                                   for name, _, _ in one.own)
            self.names.update({f"{vllm_name}_{name}": name for name in arrays})
        for name, array in self.names.items():
            empty: Any = torch.nn.Parameter(torch.empty(0, dtype=torch.uint8), requires_grad=False)
            empty.weight_loader = self._loader(layer, array)
            layer.register_parameter(name, empty)

    def _loader(self, layer: Any, name: str) -> Any:
        def load(param: torch.Tensor, loaded_weight: torch.Tensor, weight_name: str, shard_id: str,
                 expert_id: int, return_success: bool = False) -> Optional[bool]:
            own = layer._map_global_expert_id_to_local_expert_id(expert_id)
            if own >= 0:
                part = _SHARDS[shard_id]
                with layer_named(f"{self.prefix}.{expert_id}.{part}"):
                    self.parts[own, part].take(name, loaded_weight)
            return own >= 0 if return_success else None
        return load

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Packs the arrays, expert by expert."""
        if not self.parts:
            return
        device = gpu()
        if device is not None:
            self._copy_to_gpu(layer, device)
        else:
            ups, downs = [], []
            for own, (gate, up, down) in self._experts():
                with layer_named(f"{self.prefix}.{own}"):
                    ups.append(pack_parts([gate, up]))
                    downs.append(pack_parts([down]))
                for one in (*ups[-1], *downs[-1]):
                    one.exact = self.options.exact
            self._install(layer, ups, downs)
        self.parts = {}
        for name in self.names:
            delattr(layer, name)

    def _experts(self) -> Iterator[tuple[int, list[Part]]]:
        """Yields the parts of every expert of this process."""
        for own in range(1 + max(number for number, _ in self.parts)):
            yield own, [self.parts[own, part] for part in PARTS]

    def _copy_to_gpu(self, layer: Any, device: int) -> None:
        """Copies the experts to a GPU; all experts of a layer have to be stored alike."""
        count = 1 + max(number for number, _ in self.parts)
        placed: Optional[PlacedExperts] = None
        for own, (gate, up, down) in self._experts():
            with layer_named(f"{self.prefix}.{own}"):
                layers: list[Joined] = [*join_parts([gate, up]), *join_parts([down])]
                forms = [joined.form for joined in layers]
                if placed is None:
                    self._check(*forms)
                    placed = self._place(layer, forms, count, device)
                if forms != placed.forms:
                    raise usage("type", "experts of a layer in several types run on the CPU only")
                for number, joined in enumerate(layers):
                    placed.restore(number, own, joined.arrays)

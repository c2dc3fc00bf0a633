"""Holds experts of transformers models, which have them in two tensors per layer, as quantized
layers."""
from __future__ import annotations

import copy
import re
from typing import Any, Callable, Iterator, Mapping, Optional, cast

import torch
from torch import nn

from ._error import Error, usage
from ._expert_operators import add_module
from ._linear import Linear
from ._rules import Rules
from ._transforms import ExpertsProduct, multiply

GATE_UP, DOWN = "gate_up_proj", "down_proj"
PARTS = ("gate_proj", "up_proj", "down_proj")
_OTHERS = ("w1", "w3", "w2")  # files of Mixtral have these names
_NAME = re.compile(rf"(.+)\.(\d+)\.({'|'.join(PARTS + _OTHERS)})")


def split_name(name: str) -> Optional[tuple[str, int, str]]:
    """Returns module, number and part of a layer of an expert, if it may be one by its name.

    >>> split_name("model.layers.0.mlp.experts.12.up_proj")
    ('model.layers.0.mlp.experts', 12, 'up_proj')
    """
    match = _NAME.fullmatch(name)
    return (match[1], int(match[2]), match[3]) if match else None


def is_fused(module: nn.Module) -> bool:
    """Returns whether a module has experts with gates in tensors [experts, ...]."""
    weights = [module._parameters.get(name) for name in (GATE_UP, DOWN)]
    return (all(w is not None and w.dim() == 3 for w in weights)
            and (hasattr(module, "_apply_gate") or is_presorted(module))
            and getattr(module, "has_gate", True)
            and not getattr(module, "has_post_expert_norm", False))


def is_presorted(module: nn.Module) -> bool:
    """Returns whether experts take as many rows each, one expert after the other, as those of Llama
    4."""
    return type(module).__name__ == "Llama4TextExperts"


class Shape:
    """Describes the experts of a module: how many, and how their weights lie in its tensors."""

    def __init__(self, module: nn.Module) -> None:
        self.transposed = bool(getattr(module, "is_transposed", is_presorted(module)))
        self.interleaved = not getattr(module, "is_concatenated", True)
        self.bias = bool(getattr(module, "has_bias", False))
        down = getattr(module, DOWN)
        self.count = down.shape[0]
        self.hidden, self.width = down.shape[1:][::-1] if self.transposed else down.shape[1:]
        self.dtype = down.dtype

    def sizes(self, part: str) -> tuple[int, int]:
        """Returns inputs and outputs of a layer."""
        return (self.width, self.hidden) if part == DOWN else (self.hidden, self.width)

    def split(self, name: str, tensor: torch.Tensor) -> Iterator[tuple[int, str, torch.Tensor]]:
        """Yields the weights (or biases) in the tensor `name`, by expert and part."""
        for number, own in enumerate(tensor):
            if self.transposed and own.dim() == 2:
                own = own.T
            if name.startswith(DOWN):
                yield number, DOWN, own
                continue
            gate, up = (own[::2], own[1::2]) if self.interleaved else own.chunk(2)
            yield number, "gate_proj", gate
            yield number, "up_proj", up

    def join(self, name: str, tensors: dict[tuple[int, str], torch.Tensor]) -> torch.Tensor:
        """Returns the tensor that `split` takes apart."""
        parts = []
        for number in range(self.count):
            if name.startswith(DOWN):
                own = tensors[number, DOWN]
            else:
                pair = tensors[number, "gate_proj"], tensors[number, "up_proj"]
                own = torch.stack(pair, 1).flatten(0, 1) if self.interleaved else torch.cat(pair)
            parts.append(own.T if self.transposed and own.dim() == 2 else own)
        return torch.stack(parts).contiguous()


class Experts(nn.Module):
    """Takes the place of a module of experts; every expert has three quantized layers."""

    def __init__(self, plain: nn.Module, make: Callable[[int, str], nn.Module],
                 names: tuple[str, ...] = PARTS) -> None:
        super().__init__()
        self.shape = shape = Shape(plain)
        self.num_experts = shape.count
        self._presorted = is_presorted(plain)
        self._names = names  # of the parts, as the folder has them
        for number in range(shape.count):
            layers = {name: make(number, part) for name, part in zip(names, PARTS)}
            self.add_module(str(number), nn.ModuleDict(layers))
        for name in [*plain._parameters]:  # what remains of it is its activation
            setattr(plain, name, None)
        self._plain = [plain]  # in a list it is not a module of this one
        self.number = 0  # the operators find the layers by it; 0 means none yet

    def __setstate__(self, state: Any) -> None:
        super().__setstate__({**state, "number": 0})  # type: ignore[no-untyped-call]

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _numbered(self) -> int:
        self.number = add_module(self)
        return self.number

    def layers(self, part: int) -> list[Any]:
        """Returns the layers of one part, by expert."""
        name = self._names[part]
        return [self._modules[str(n)][name] for n in range(self.num_experts)]  # type: ignore[index]

    def _product(self, x: torch.Tensor, ids: torch.Tensor, part: int) -> torch.Tensor:
        (cols, width), layers = self.shape.sizes(PARTS[part]), self.layers(part)
        if all(isinstance(layer, Linear) for layer in layers):
            experts = self.number or self._numbered()
            return multiply(x, ids, ExpertsProduct(experts, part, width, cols, linear=False))
        y = x.new_zeros((*ids.shape, width))  # some have an adapter around them
        for number in ids.unique().tolist():
            if 0 <= number < len(layers):
                token, place = torch.where(ids == number)
                y[token, place] = layers[number](x[token, place])
        return y

    def _products(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Returns what the expert ids[t][k] makes of x[t][k]."""
        gate, up = self._product(x, ids, 0), self._product(x, ids, 1)
        plain: Any = self._plain[0]
        if self._presorted:
            return self._product(up * plain.act_fn(gate), ids, 2)
        both = (torch.stack((gate, up), -1).flatten(-2) if self.shape.interleaved
                else torch.cat((gate, up), -1))
        return self._product(plain._apply_gate(both), ids, 2)

    def forward(self, hidden_states: torch.Tensor, top_k_index: Optional[torch.Tensor] = None,
                top_k_weights: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Takes [tokens, hidden], and of every token the experts and their weights [tokens,
        chosen]."""
        if top_k_index is None or top_k_weights is None:
            x = hidden_states.reshape(self.num_experts, -1, hidden_states.shape[-1])
            ids = torch.arange(self.num_experts, device=x.device)[:, None].expand(x.shape[:2])
            return self._products(x, ids).reshape(-1, x.shape[-1])
        x = hidden_states[:, None].expand(-1, top_k_index.shape[1], -1)
        y = self._products(x, top_k_index) * top_k_weights[..., None]
        return y.sum(1).to(hidden_states.dtype)


def without_codes(experts: Experts, dtype: Optional[torch.dtype]) -> nn.Module:
    """Returns the module that an `Experts` replaced, with decoded weights."""
    plain = copy.deepcopy(experts._plain[0])
    kinds = [("weight", ""), ("bias", "_bias")][:2 if experts.shape.bias else 1]
    for kind, ending in kinds:
        values = {}
        for part, name in enumerate(PARTS):
            for number, layer in enumerate(experts.layers(part)):
                value = layer.decoded_weight() if kind == "weight" else layer.bias.detach()
                values[number, name] = value.to(dtype or experts.shape.dtype)
        for name in (GATE_UP, DOWN):
            setattr(plain, name + ending, nn.Parameter(experts.shape.join(name + ending, values)))
    return plain


def add_biases(plain: nn.Module, layers: Mapping[tuple[int, str], nn.Module]) -> None:
    """Gives the layers of experts the biases that the plain module has, if it has some."""
    shape = Shape(plain)
    for kind in (GATE_UP, DOWN) if shape.bias else ():
        bias = getattr(plain, kind + "_bias").detach()
        for number, part, values in shape.split(kind, bias):
            setattr(layers[number, part], "bias",
                    nn.Parameter(values.clone(), requires_grad=False))


def choose(name: str, module: nn.Module, rules: Rules) -> dict[tuple[int, str], str]:
    """Returns the types of the layers of a module's experts, by the rules; empty if they stay
    plain."""
    keys = [(number, part) for number in range(Shape(module).count) for part in PARTS]
    types = {key: rules.type_of(f"{name}.{key[0]}.{key[1]}") for key in keys}
    chosen = {key: kind for key, kind in types.items() if kind is not None}
    if chosen and len(chosen) < len(types):
        raise usage(name, "either all of its experts are quantized, or none")
    return chosen


def quantize_experts(plain: nn.Module, encode: Callable[[tuple[int, str], torch.Tensor], nn.Module]
                     ) -> Experts:
    """Returns the quantized layers of a module of experts; `encode` makes one, without its bias."""
    layers = {}
    for kind in (GATE_UP, DOWN):
        for number, part, weight in Shape(plain).split(kind, getattr(plain, kind).detach()):
            layers[number, part] = encode((number, part), weight)
    add_biases(plain, layers)
    return Experts(plain, lambda *key: layers[key])


def stored_experts(plain: nn.Module, stored: StoredExperts) -> Experts:
    """Returns the empty layers of the experts that a folder has."""
    shape = Shape(plain)

    def make(number: int, part: str) -> nn.Module:
        inputs, outputs = shape.sizes(part)
        form = stored.forms[number, part]
        return Linear(inputs, outputs, shape.bias, type=form["type"], rotations=form["rotation"],
                      dtype=shape.dtype, device="meta")

    return Experts(plain, make, stored.names)


class StoredExperts:
    """Holds what a folder has of the experts of one module: their forms and what they are
    called."""

    def __init__(self) -> None:
        self.forms: dict[tuple[int, str], Any] = {}
        self.names = PARTS

    def add(self, number: int, name: str, form: Any) -> None:
        """Adds another layer."""
        if name in _OTHERS:
            self.names = _OTHERS
        part = PARTS[_OTHERS.index(name)] if name in _OTHERS else name
        self.forms[number, part] = form


def group_stored(model: nn.Module, names: dict[str, Any]
                 ) -> tuple[dict[str, StoredExperts], set[str]]:
    """Returns the stored layers of experts by the module of the model that they replace, and the
    names that were taken."""
    groups: dict[str, StoredExperts] = {}
    taken = set()
    for name, form in names.items():
        found = split_name(name)
        if found is None:
            continue
        # Files of Mixtral have another name of the module than transformers.
        for parent in (found[0], found[0].replace(".block_sparse_moe.", ".mlp.")):
            try:
                fused = is_fused(model.get_submodule(parent))
            except AttributeError:
                continue
            if fused:
                groups.setdefault(parent, StoredExperts()).add(found[1], found[2], form)
                taken.add(name)
                break
    for name, group in groups.items():
        expected = Shape(model.get_submodule(name)).count * len(PARTS)
        if len(group.forms) != expected:
            raise Error("bad_input", f"quantization_config: {name}",
                        f"{len(group.forms)} layers of experts, expected {expected}")
    return groups, taken

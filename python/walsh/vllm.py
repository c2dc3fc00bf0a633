"""A vLLM plugin: `--quantization walsh` and `--quantization turboquant` for ordinary checkpoints.

Linear layers and experts are compressed one by one while they are loaded and run in walsh's
kernels (`walsh.torch`). vLLM finds the plugin by its entry point; options are
`quantization_config={"bits": 3, "ignore": [...]}` (turboquant) or `{"type": "tq4", ...}` (walsh).
"""
from __future__ import annotations

import contextlib
from typing import Any, Iterator, Optional

import torch

from . import _walsh
from ._error import Error, usage

METHODS = ("walsh", "turboquant")
_DEFAULTS = {"walsh": "tq4", "turboquant": "tq3"}
_KNOWN = {"quant_method", "type", "bits", "group_size", "ignore", "seed", "block", "fast",
          "quantize_experts"}
# Signs of a rotation are a hash of seed + column * kSignStep (docs/formats): a shard whose columns
# begin at k has the signs of the whole row with this seed.
_SIGN_STEP = 0x9E3779B9


def register() -> None:
    """The entry point; runs in every process of vLLM, and more than once."""
    from vllm.model_executor.layers.quantization import (QUANTIZATION_METHODS,
                                                         register_quantization_config)

    if "walsh" in QUANTIZATION_METHODS:
        return
    from ._vllm_layers import make_config

    for method in METHODS:
        register_quantization_config(method)(make_config(method))
    _accept_options()


def _accept_options() -> None:
    """Lets `quantization_config` carry this plugin's options: vLLM knows only those of its own
    online schemes there, and composes those with the method that is chosen."""
    import vllm.config.quantization as resolving
    from vllm.model_executor.model_loader import weight_utils

    resolve, build = resolving.resolve_quantization_config, weight_utils.get_quant_config

    def resolve_ours(quantization: Optional[str], options: Any) -> Any:
        return options if quantization in METHODS else resolve(quantization, options)

    def build_ours(model_config: Any, load_config: Any) -> Any:
        if model_config.quantization not in METHODS:
            return build(model_config, load_config)
        stored = getattr(model_config.hf_config, "quantization_config", None) or {}
        if stored.get("modules"):
            raise Error("usage", model_config.model,
                        "is compressed already: load it with transformers or walsh; vLLM takes "
                        "the plain checkpoint and compresses it")
        given = model_config.quantization_config or {}
        if not isinstance(given, dict):  # vLLM's own class of options
            given = {"ignore": list(given.ignore or [])}
        kind = weight_utils.get_quantization_config(model_config.quantization)
        return kind.from_config({**stored, **given})

    resolving.resolve_quantization_config = resolve_ours
    weight_utils.get_quant_config = build_ours


class Options:
    """What layers become.

    >>> Options("turboquant", {"bits": 4}).type, Options("walsh", {}).type
    ('tq4', 'tq4')
    """

    def __init__(self, method: str, given: dict[str, Any]) -> None:
        unknown = sorted(set(given) - _KNOWN)
        if unknown:
            raise usage(f"quantization_config: {unknown[0]}",
                        f"is no option of {method}; known: {', '.join(sorted(_KNOWN))}")
        bits = given.get("bits")
        if bits is not None and bits not in (2, 3, 4):
            raise usage("quantization_config: bits", f"{bits!r}, expected 2, 3 or 4")
        if given.get("group_size", 128) != 128:
            raise usage("quantization_config: group_size", "expected 128")
        self.type = str(given.get("type") or (f"tq{bits}" if bits else _DEFAULTS[method]))
        self.ignore = list(given.get("ignore") or [])
        self.seed, self.block = int(given.get("seed", 42)), int(given.get("block", 0))
        self.fast = bool(given.get("fast", False))
        self.experts = bool(given.get("quantize_experts", True))
        _walsh.layer_form(self.type, 32, 32, "hadamard", self.block, self.seed, self.fast)


def shard_rotations(rows: int, cols: int, first_col: int, options: Options) -> tuple[str, list[Any]]:
    """The format and rotations of columns first_col, ... of a row: where the shard begins at a
    block, its codes are those of the whole row there."""
    kind, rotations = _walsh.layer_form(options.type, rows, cols, "hadamard", options.block,
                                        options.seed, options.fast)
    return kind, [(name, block, (seed + first_col * _SIGN_STEP) % 2**32, signs)
                  for name, block, seed, signs in rotations]


@contextlib.contextmanager
def layer_named(prefix: str) -> Iterator[None]:
    """Errors name the layer that is being encoded."""
    try:
        yield
    except Error as error:
        raise Error(error.code, f"{prefix}: {error.where}", error.reason) from None


def experts(x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, up: list[int],
            down: list[int], width: int, activation: str) -> torch.Tensor:
    """Sum over the chosen experts of weight * down(act(gate x) * up x); `up` are the layers of
    gate and up together [2 * width, hidden], by expert, `down` those of down; ids of -1 and of
    experts on other machines are 0 layers and give nothing."""
    out = torch.zeros(x.shape, dtype=torch.float32)
    function = {"silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}[activation]
    for expert in torch.unique(ids).tolist():
        if expert < 0 or expert >= len(up):
            continue
        token, slot = torch.nonzero(ids == expert, as_tuple=True)
        both = torch.ops.walsh.linear(x[token], up[expert], 2 * width, False)
        hidden = function(both[:, :width]) * both[:, width:]
        y = torch.ops.walsh.linear(hidden, down[expert], x.shape[1], False)
        out.index_add_(0, token, y.to(torch.float32) * weights[token, slot, None].float())
    return out.to(x.dtype)


def _define_experts() -> None:
    from .torch import _LIBRARY

    _LIBRARY.define("experts(Tensor x, Tensor weights, Tensor ids, int[] up, int[] down, "
                    "int width, str activation) -> Tensor")
    _LIBRARY.impl("experts", experts, "CPU")
    torch.library.register_fake("walsh::experts", lambda x, *others: torch.empty_like(x),
                                lib=_LIBRARY)


_define_experts()

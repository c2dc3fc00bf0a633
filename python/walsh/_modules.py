"""Finds the plain linear layers of a model, and puts others in their places."""
from __future__ import annotations

from typing import Any, Iterator, Optional

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from ._error import usage
from ._linear import Linear
from ._rules import Rules

_HOOKS = ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
          "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_hooks",
          "_backward_pre_hooks", "_is_full_backward_hook")


def is_plain(module: Optional[nn.Module]) -> bool:
    """Returns whether a module is an `nn.Linear` and nothing more: not a subclass that computes
    something else (the router of Llama 4), nor one whose weight its parent uses as it is (the
    output of `nn.MultiheadAttention`).

    >>> is_plain(nn.Linear(2, 2)), is_plain(nn.MultiheadAttention(2, 1).out_proj)
    (True, False)
    """
    return (isinstance(module, nn.Linear)
            and not isinstance(module, (Linear, NonDynamicallyQuantizableLinear))
            and type(module).forward is nn.Linear.forward
            and isinstance(module._parameters.get("weight"), nn.Parameter)
            and set(module._parameters) <= {"weight", "bias"} and not module._modules)


def places(model: nn.Module) -> dict[nn.Module, list[str]]:
    """Returns the names of every module; a model may have one at several places."""
    result: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        result.setdefault(module, []).append(name)
    return result


def targets(model: nn.Module, rules: Rules) -> Iterator[tuple[list[str], nn.Linear, str]]:
    """Yields the plain linear layers that the rules want quantized: all their names, and the
    type."""
    for module, names in places(model).items():
        if not isinstance(module, nn.Linear):
            continue
        kinds = {rules.type_of(name) for name in names}  # rules may name what stays plain anyway
        if not is_plain(module):
            continue
        if len(kinds) > 1:
            raise usage(names[0], f"is {', '.join(names[1:])} as well, and the rules tell them "
                                  "apart")
        kind = kinds.pop()
        if kind is not None:
            yield names, module, kind


def replace(model: nn.Module, name: str, module: nn.Module) -> nn.Module:
    """Puts a module at a place of a model; returns the model, which is the module itself where the
    place is the whole."""
    if not name:
        return module
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent) if parent else model, child, module)
    return model


def take_over(plain: nn.Module, quantized: nn.Module, name: str) -> None:
    """Gives a layer what users have attached to the plain one: hooks, and the mode."""
    if "forward" in vars(plain):
        hook = getattr(plain, "_hf_hook", None)
        if hook is None:
            raise usage(name or "model", "its forward was replaced by a function of its own: "
                                         "quantize first, or ignore the layer")
        from accelerate.hooks import add_hook_to_module

        add_hook_to_module(quantized, hook)
    for hooks in _HOOKS:
        # They stay the same, so that handles remove them.
        setattr(quantized, hooks, getattr(plain, hooks))
    quantized.train(plain.training)


def coded_bytes(model: nn.Module) -> int:
    """Returns the memory of packed weights, which no parameter or buffer of PyTorch has."""
    return sum(module.bytes for module in model.modules()
               if isinstance(module, Linear) and module.layer)


def count_codes(model: Any) -> None:
    """Lets `get_memory_footprint` of a transformers model count the packed weights."""
    plain = getattr(type(model), "get_memory_footprint", None)
    if plain is not None:
        model.get_memory_footprint = _Footprint(model)


class _Footprint:
    """Stands for the method of one model; it is copied and pickled together with it."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, *arguments: Any, **options: Any) -> int:
        model = self._model
        return int(type(model).get_memory_footprint(model, *arguments, **options)
                   + coded_bytes(model))


class parameters_on_meta:  # noqa: N801 - reads as a statement
    """While it lasts, parameters that modules register have no memory; buffers have theirs."""

    def __enter__(self) -> None:
        self._register = register = nn.Module.register_parameter

        def on_meta(module: nn.Module, name: str, param: Optional[nn.Parameter]) -> None:
            if param is not None and not param.is_meta:
                param = nn.Parameter(param.to("meta"), param.requires_grad)
            register(module, name, param)

        nn.Module.register_parameter = on_meta  # type: ignore[method-assign,assignment]

    def __exit__(self, *error: Any) -> None:
        nn.Module.register_parameter = self._register  # type: ignore[method-assign]


def has_values(tensor: Optional[torch.Tensor]) -> bool:
    """Returns whether a tensor is there and has memory."""
    return tensor is not None and not tensor.is_meta

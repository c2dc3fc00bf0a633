"""Finds names of layers in a model of transformers, and in the files that it is loaded from."""
from __future__ import annotations

from typing import Any, Iterable, Optional

import torch
from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (WeightConverter, WeightRenaming,
                                             revert_weight_conversion)

from ._experts import PARTS

_SUFFIX = ".codes"  # an array of a layer has it behind the name that the loader translates


def saved_names(model: Any, names: Iterable[str]) -> dict[str, str]:
    """Returns what `save_pretrained` calls layers of a model in its files."""
    known = list(names)
    numbers = {name + _SUFFIX: torch.tensor(i) for i, name in enumerate(known)}
    return {known[int(number)]: name.removesuffix(_SUFFIX)
            for name, number in revert_weight_conversion(model, numbers).items()}


class FileNames:
    """Finds the modules of a model that layers of a file are called after."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._prefix = str(getattr(model, "base_model_prefix", "") or "")
        self._renamings = [entry for entry in get_model_conversion_mapping(model)
                           if isinstance(entry, WeightRenaming)]

    def _in_model(self, name: str) -> Optional[str]:
        """Returns the name with or without the prefix of the base model, where there is such a
        module or may be an expert of one."""
        names = [name]
        if self._prefix:
            names += [name.removeprefix(self._prefix + "."), f"{self._prefix}.{name}"]
        for candidate in names:
            try:
                self._model.get_submodule(candidate)
            except AttributeError:
                continue
            return candidate
        return None

    def find(self, name: str, expert: str = "") -> Optional[str]:
        """Returns the module that a file calls `name`; `expert` is what follows the name of a
        module of experts, and is kept."""
        renamed = name + expert + _SUFFIX
        for renaming in self._renamings:
            renamed, _ = renaming.rename_source_key(renamed)
        renamed = renamed.removesuffix(_SUFFIX)
        if expert and renamed.endswith(expert):
            renamed = renamed.removesuffix(expert)
        return self._in_model(renamed) or self._in_model(name)

    def is_beside(self, name: str) -> bool:
        """Returns whether a name is outside of the base model that this model is: of a head."""
        return (bool(self._prefix) and not hasattr(self._model, self._prefix)
                and not name.startswith(self._prefix + "."))


def part_names(model: Any) -> tuple[str, ...]:
    """Returns what files call the parts of an expert, in the order of PARTS: w1, w3 and w2 in
    Mixtral."""
    found: dict[str, list[str]] = {}
    for entry in get_model_conversion_mapping(model):
        if not isinstance(entry, WeightConverter):
            continue
        for target in entry.target_patterns:
            kind = target.rpartition(".")[2]
            found.setdefault(kind, [pattern.removesuffix(".weight").rpartition(".")[2].strip("$\\")
                                    for pattern in entry.source_patterns])
    names = (*found.get("gate_up_proj", ()), *found.get("down_proj", ()))
    return names if len(names) == 3 and all(n.isidentifier() for n in names) else PARTS


def modules_of(model: nn.Module, kind: type) -> dict[str, Any]:
    """Returns the modules of a class, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, kind)}

"""Lets transformers load folders that walsh has compressed, without an import of walsh.

PyTorch calls `autoload` when it is imported (its entry points "torch.backends"), which transformers
does. Nothing else of walsh is imported before such a folder is opened. A package of its own, since
importing a module of walsh would import its extension module.
"""
from __future__ import annotations

import importlib.util
import sys
from typing import Any, Optional

_TARGET = "transformers.quantizers.auto"
_METHOD = "walsh"


class _Placeholder:
    """Stands for WalshConfig in the list of transformers until one is wanted."""

    @staticmethod
    def from_dict(config: dict[str, Any], **options: Any) -> Any:
        """transformers calls this with the `quantization_config` of a folder."""
        from walsh.transformers import WalshConfig  # registers itself in the place of this one

        return WalshConfig.from_dict(config, **options)


def _register(module: Any) -> None:
    methods = getattr(module, "AUTO_QUANTIZATION_CONFIG_MAPPING", None)
    if isinstance(methods, dict):
        methods.setdefault(_METHOD, _Placeholder)


class _Finder:
    """Finds the one module as everybody else does, and registers when it has been executed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        """`import` asks this; with None others find it."""
        if name != _TARGET:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_register(module: Any) -> None:
            execute(module)
            _register(module)

        loader.exec_module = execute_and_register
        return spec


def autoload() -> None:
    """Registers at once where transformers is loaded already. This is the entry point."""
    if _TARGET in sys.modules:
        _register(sys.modules[_TARGET])
    else:
        sys.meta_path.insert(0, _Finder())

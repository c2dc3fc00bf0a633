"""Finds the threads of PyTorch, on which products of layers run."""
from __future__ import annotations

import ctypes
import pathlib
from typing import Optional

import torch

from . import _walsh

_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


def _addresses(library: Optional[str]) -> Optional[list[int]]:
    try:
        loaded = ctypes.CDLL(library)
        return [ctypes.cast(loaded[name], ctypes.c_void_p).value or 0 for name in _FUNCTIONS]
    except (OSError, AttributeError):
        return None


def use_host_threads() -> bool:
    """Lets products run on PyTorch's OpenMP threads; returns False if it has none that can be
    found."""
    if not torch.backends.openmp.is_available():
        return False
    # What is preloaded comes first, as it does for PyTorch; then what its library has loaded.
    folder = pathlib.Path(torch.__file__).parent / "lib"
    for library in (None, str(folder / "libtorch_cpu.so")):
        found = _addresses(library)
        if found is not None:
            _walsh.layer_host_threads(*found)
            return True
    return False

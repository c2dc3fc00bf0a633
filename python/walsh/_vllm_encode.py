"""The weights of one layer of vLLM, compressed while vLLM loads them."""
from __future__ import annotations

import contextlib
import os
from typing import Iterator

import torch

from . import _walsh
from ._error import Error
from ._vllm_shards import shift_rotations
from .torch import Linear
from .vllm import Options

# What vLLM itself sets where a layer is processed while it is loaded.
DONE = "_already_called_process_weights_after_loading"


@contextlib.contextmanager
def layer_named(prefix: str) -> Iterator[None]:
    """Errors name the layer."""
    try:
        yield
    except Error as error:
        raise Error(error.code, f"{prefix}: {error.where}", error.reason) from None


@contextlib.contextmanager
def _every_core() -> Iterator[None]:
    """Encoding uses every core that this process was given: vLLM binds each thread of PyTorch to
    one of them, and threads that are started inherit that of the caller."""
    own = os.sched_getaffinity(0)
    cores = set(own)
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended
            cores |= os.sched_getaffinity(int(thread))
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def encode(weight: torch.Tensor, first_col: int, kind: str, options: Options) -> Linear:
    """Returns a packed layer of weights [rows, cols] that begin at column `first_col` of whole
    rows."""
    rows, cols = weight.shape
    name, rotations = _walsh.layer_form(kind, rows, cols, options.rotation, options.block,
                                        options.seed, options.fast)
    layer = Linear(cols, rows, False, type=name, rotations=shift_rotations(rotations, first_col),
                   device="meta")
    with _every_core():
        layer.encode(weight, shape_gain=options.shape_gain, fast=options.fast)
    layer.exact = options.exact
    return layer

"""Compresses the weights of one layer of vLLM while vLLM loads them."""
# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
import os
from typing import Iterator, Optional

import torch

from . import _walsh
from ._error import Error
from ._packed import Packed
from ._placed import Form, PlacedLinear
from ._vllm_shards import shift_rotations
from .torch import Linear
from .vllm import Options

# vLLM itself sets this where a layer is processed while it is loaded.
DONE = "_already_called_process_weights_after_loading"


@contextlib.contextmanager
def layer_named(prefix: str) -> Iterator[None]:
    """Lets errors name the layer."""
    try:
        yield
    except Error as error:
        raise Error(error.code, f"{prefix}: {error.where}", error.reason) from None


def gpu() -> Optional[int]:
    """Returns the GPU of this process, if vLLM runs on GPUs."""
    from vllm.platforms import current_platform

    return int(torch.cuda.current_device()) if current_platform.is_cuda() else None


@contextlib.contextmanager
def _every_core() -> Iterator[None]:
    """Uses every core that this process was given: vLLM binds each thread of PyTorch to one of
    them, and threads that are started inherit that of the caller."""
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


def form_of(kind: str, rows: int, cols: int, first_col: int, options: Options) -> Form:
    """Returns the form of weights that begin at column `first_col` of whole rows."""
    name, rotations = _walsh.layer_form(kind, rows, cols, options.rotation, options.block,
                                        options.seed, options.fast)
    return Form(name, rows, cols, shift_rotations(rotations, first_col))


def check_form(form: Form, device: Optional[int]) -> None:
    """Refuses what the GPU `device` will not multiply with, and says what it does."""
    if device is None:
        return
    try:
        _walsh.layer_check_gpu(*form, device)
        _walsh.device_memory(form)  # knows the groups of scales
    except Error as error:
        if error.where == "CUDA":  # there is no GPU at all
            raise
        reason = error.reason.replace(": use --device cpu", "")
        raise Error(error.code, error.where, f"{reason}; types that run on GPUs: "
                                             f"{', '.join(_walsh.device_types())}") from None


def encode(weight: torch.Tensor, first_col: int, kind: str, options: Options) -> Packed:
    """Returns a packed layer of weights [rows, cols] that begin at column `first_col` of whole
    rows. On a GPU it is encoded there, and has no copy in host memory."""
    rows, cols = weight.shape
    form = form_of(kind, rows, cols, first_col, options)
    if weight.is_cuda:
        check_form(form, weight.get_device())
        with _every_core():
            placed = PlacedLinear.encode(form, weight, fast=options.fast,
                                         shape_gain=options.shape_gain)
        placed.exact = options.exact
        return placed
    layer = Linear(cols, rows, False, type=form.type, rotations=form.rotations, device="meta")
    with _every_core():
        layer.encode(weight, shape_gain=options.shape_gain, fast=options.fast)
    layer.exact = options.exact
    return layer

"""Compresses checkpoints, and looks into the files."""
from __future__ import annotations

import json
import os
from typing import Any, Callable, NamedTuple, Optional, Sequence, Union

from . import _walsh
from ._arguments import flag, function, number, path as path_of, shown, texts, whole
from ._error import usage

Path = Union[str, "os.PathLike[str]"]
# A progress is told how much of how much is done; False ends the work.
Progress = Callable[[int, int], Any]


class Format(NamedTuple):
    """Describes a storage format of weights."""

    name: str
    bits_per_weight: float  # on long rows, scales included
    bound: float  # the NMSE on N(0,1) must reach it; 0 means that there is none
    note: str


class QuantizeReport(NamedTuple):
    """Says what `quantize` has written."""

    file_bytes: int
    bits_per_weight: float  # of the linear layers, scales included
    notes: list[str]  # what is no error and should be known


class TensorSummary(NamedTuple):
    """Describes a tensor of a walsh file; a vector has one row."""

    name: str
    type: str
    source_type: str
    shape: tuple[int, int]
    bytes: int
    nmse: float
    linear: bool
    checksum: str


class FileSummary(NamedTuple):
    """Says what is in a walsh file."""

    bytes: int
    producer: str
    recipe: dict[str, Any]
    bits_per_weight: float
    tensors: list[TensorSummary]


def formats() -> list[Format]:
    """Returns all weight formats that walsh writes, in the order of `walsh formats`.

    >>> import walsh
    >>> {f.name: f.bits_per_weight for f in walsh.formats()}["tq4+4"]
    8.25
    """
    return [Format(*f) for f in _walsh.formats()]


def inspect(path: Path, *, check: bool = False) -> FileSummary:
    """Returns what is in a walsh file. With `check` the whole file is read, and every checksum is
    verified. A damaged file raises walsh.Error."""
    found = _walsh.inspect(path_of(path, "path"), flag(check, "check"))
    found["recipe"] = json.loads(found["recipe"])
    found["tensors"] = [TensorSummary(**t) for t in found["tensors"]]
    return FileSummary(**found)


def compress_options(options: dict[str, Any]) -> _walsh.CompressOptions:
    """Returns the options of the extension module from keyword arguments; refuses unknown names."""
    result = _walsh.CompressOptions()
    for name, value in options.items():
        if not isinstance(name, str):
            raise usage("quantize", f"{shown(name)} is no name of an option")
        if name.startswith("_") or not hasattr(result, name):
            raise usage(name, "is no option of the quantizer")
        set_option(result, name, value)
    return result


# The library takes these options at any value; below these they have no meaning.
_LEAST = {"threads": 0, "calibrate_tokens": 0, "cache_window": 0, "max_tokens": -1}


def check_least(name: str, value: Any) -> None:
    """Refuses a number that is smaller than its meaning allows."""
    least = _LEAST.get(name)
    if least is not None and isinstance(value, int) and value < least:
        raise usage(name, f"{value}, expected {least} or more")


def set_option(options: Any, name: str, value: Any) -> None:
    """Sets one of the options; a value of a wrong type is an error that names it."""
    check_least(name, value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif isinstance(value, tuple):
        value = list(value)
    try:
        setattr(options, name, value)
    except (TypeError, ValueError, OverflowError):
        raise usage(name, f"{shown(value)} is not of the expected type") from None


def quantize(source: Path, out: Path, *, type: str = "tq4", embed_type: str = "",
             head_type: str = "", overrides: Sequence[str] = (), ignore: Sequence[str] = (),
             rotation: str = "hadamard", rotate: str = "input", block: int = 0, signs: bool = True,
             seed: int = 42, balance: bool = True, fast: bool = False, shape_gain: bool = False,
             calibrate: Path = "", calibrate_tokens: int = 0, curvature: Path = "",
             bits_per_weight: float = 0, file_bytes: int = 0, allocate_text: Path = "",
             recipe: Path = "", output_format: str = "gguf", threads: Optional[int] = None,
             progress: Optional[Progress] = None) -> QuantizeReport:
    """Compresses a Hugging Face folder into one file, which appears whole or not at all; with
    `output_format="hf"` into a new folder, which transformers loads as well.

    The options are those of `walsh quantize`. `type` is what every linear layer becomes;
    `overrides` ("re:PATTERN=TYPE") and `ignore` ("re:PATTERN") are rules for single tensors.
    `calibrate` is a text to measure activations on, or "self" for one that the model writes;
    `curvature` is the folder that `python -m walsh.curvature` has written for that text.
    `bits_per_weight` or `file_bytes` choose the types by measuring. `progress(done, count)` is
    told the number of tensors now and then; if it returns False, the work ends.

    It returns a QuantizeReport. Wrong options, damaged checkpoints and full disks raise
    walsh.Error.

    >>> import tempfile, walsh
    >>> folder = getfixture("tiny_model")
    >>> with tempfile.TemporaryDirectory() as place:
    ...     report = walsh.quantize(folder, place + "/tiny.gguf", type="tq3", fast=True)
    ...     summary = walsh.inspect(place + "/tiny.gguf", check=True)
    >>> round(report.bits_per_weight, 2), summary.recipe["type"]
    (3.13, 'tq3')
    """
    options = compress_options({
        "type": type, "embed_type": embed_type, "head_type": head_type,
        "overrides": texts(overrides, "overrides"), "ignore": texts(ignore, "ignore"),
        "rotation": rotation,
        "rotate": rotate, "block": block, "signs": signs, "seed": seed, "balance": balance,
        "fast": fast, "shape_gain": shape_gain, "calibrate": calibrate,
        "calibrate_tokens": calibrate_tokens, "curvature": curvature,
        "bits_per_weight": number(bits_per_weight, "bits_per_weight"),
        "file_bytes": file_bytes, "allocate_text": allocate_text, "recipe": recipe,
        "output_format": output_format})
    threads = 0 if threads is None else whole(threads, "threads", 0)
    return QuantizeReport(*_walsh.quantize(path_of(source, "source"), path_of(out, "out"), options,
                                           threads, function(progress, "progress")))

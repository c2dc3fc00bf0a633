"""Keeps files of the measurement of curvature: its result, and what an interrupted run left."""
from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import struct
from typing import Any, Optional

import numpy as np
import torch
from safetensors.torch import save_file

from . import _walsh
from ._curvature_moments import LayerMoments
from ._error import Error, usage

KEY = "walsh_curvature"  # the metadata of every file have this key
VERSION = 1
OWN_TEXT = "self.txt"  # this file has the text, if the model wrote it
_WORK = "work"
_EXPERT = re.compile(r"(.+)\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight")
_EXPERT_FOLDERS = ("mlp.experts", "block_sparse_moe.experts", "feed_forward.experts")
_EXPERT_PARTS = {"gate_proj": ("gate_proj", "w1", "gate_up_proj"),
                 "up_proj": ("up_proj", "w3", "gate_up_proj"),
                 "down_proj": ("down_proj", "w2", "down_proj")}
# What is beside the values of a quantized matrix, by the ending of their name.
_BESIDE = {
    "": ("_scale_inv",),
    "_blocks": ("_scales",),
    ".weight": (".weight_scale", ".weight_zero_point", ".weight_g_idx", ".weight_global_scale",
                ".weight_shape", ".weight.absmax", ".weight.quant_map", ".weight.nested_absmax",
                ".weight.nested_quant_map", ".weight.quant_state.bitsandbytes__nf4",
                ".weight.quant_state.bitsandbytes__fp4", ".SCB", ".weight_format",
                *(f".{of}_{what}" for of in ("input", "output", "q", "k", "v")
                  for what in ("scale", "zero_point", "global_scale"))),
}


class CheckpointTensors:
    """Gives the tensors of a folder as they are stored, for their names and checksums."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._places: dict[str, tuple[pathlib.Path, int, int]] = {}
        self._sums: dict[str, str] = {}
        for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
            try:
                self._add(path)
            except (OSError, ValueError, KeyError, TypeError, struct.error):
                raise Error("bad_input", str(path), "is no whole safetensors file") from None
        if not self._places:
            raise Error("bad_input", folder, "there are no safetensors in this folder")

    def _add(self, path: pathlib.Path) -> None:
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            if size > path.stat().st_size:
                raise ValueError(path)
            header = json.loads(file.read(size))
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                self._places[name] = (path, 8 + size + begin, end - begin)

    def find(self, name: str) -> Optional[str]:
        """Returns the stored name of a tensor of the text model; in a model of several parts it has
        more in front."""
        inner = "." + name.removeprefix("model.")
        for known in (name, name + "_blocks"):
            if known in self._places:
                return known
        return next((n for n in self._places if n.endswith(inner)), None)

    def of_matrix(self, key: str) -> Optional[tuple[str, str]]:
        """Returns the name that the checkpoint gives a matrix of LayerMoments, and the tensor that
        it is stored in, maybe among others."""
        stored = self.find(key)
        match = _EXPERT.fullmatch(key)
        if stored is not None or match is None:
            return (key, stored) if stored is not None else None
        module, number, part = match.groups()
        stem = next((module.removesuffix(f) for f in _EXPERT_FOLDERS if module.endswith(f)), None)
        for folder in _EXPERT_FOLDERS if stem is not None else ():
            own, other, whole = _EXPERT_PARTS[part]
            for name in (own, other):
                apart = f"{stem}{folder}.{number}.{name}.weight"
                if (found := self.find(apart)) is not None:
                    return apart, found
            if (found := self.find(f"{stem}{folder}.{whole}")) is not None:
                return f"{stem}{folder}.{number}.{part}.weight", found
        return None

    def checksum(self, stored: str) -> str:
        """Returns the checksum of a stored tensor's bytes. That of quantized values covers the
        checksums of the values and of the tensors beside them."""
        if stored not in self._sums:
            own, beside = self._sum(stored), self._beside(stored)
            if beside:
                all_sums = own + "".join(self._sum(name) for name in beside)
                own = _walsh.checksum(memoryview(all_sums.encode()))
            self._sums[stored] = own
        return self._sums[stored]

    def _sum(self, name: str) -> str:
        path, offset, size = self._places[name]
        values = np.memmap(path, np.uint8, "r", offset, (size,)) if size else b""
        return _walsh.checksum(values)

    def _beside(self, stored: str) -> list[str]:
        return sorted(stored.removesuffix(ending) + other
                      for ending, others in _BESIDE.items() if stored.endswith(ending)
                      for other in others if stored.removesuffix(ending) + other in self._places)


def text_checksum(text: bytes) -> str:
    """Returns the checksum that `walsh quantize --calibrate` keeps of a text."""
    return _walsh.checksum(memoryview(text))


def check_unused(folder: str) -> None:
    """Refuses a folder that holds something already."""
    path = pathlib.Path(folder)
    if (path / _WORK / "state.json").is_file():
        raise usage(folder, "an interrupted run is there: --resume goes on with it")
    if path.exists() and any(path.iterdir()):
        raise usage(folder, "there is something in this folder already")


class Store:
    """Keeps the folder of one measurement: a file per layer, and until it is complete a folder
    `work` with streams of all tokens, from which an interrupted run goes on."""

    def __init__(self, folder: str, settings: dict[str, Any], resume: bool) -> None:
        self.folder, self.settings = pathlib.Path(folder), settings
        self.work = self.folder / _WORK
        self._state_path = self.work / "state.json"
        self.state: dict[str, Any] = {"settings": settings, "forward": 0, "backward": None}
        if self._state_path.is_file():
            self._continue(resume)
            return
        check_unused(folder)
        self.work.mkdir(parents=True, exist_ok=True)
        self.save_state()

    def _continue(self, resume: bool) -> None:
        where = str(self._state_path)
        if not resume:
            check_unused(str(self.folder))
        try:
            state = json.loads(self._state_path.read_text())
            known = state["settings"]
        except (ValueError, KeyError, TypeError):
            raise Error("bad_input", where, "it is damaged: delete the folder") from None
        for name, value in self.settings.items():
            if known.get(name) != value:
                raise usage("--resume", f"the interrupted run had another {name}: "
                                        f"{known.get(name)}, not {value}")
        self.state = state

    def save_state(self) -> None:
        """Records what was done, once the files that it names are complete."""
        temporary = self._state_path.with_suffix(".new")
        temporary.write_text(json.dumps(self.state))
        os.replace(temporary, self._state_path)

    def write(self, name: str, content: bytes) -> None:
        """Keeps a file of the result, when it is complete."""
        temporary = self.work / (name + ".new")
        temporary.write_bytes(content)
        os.replace(temporary, self.folder / name)

    def stream(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Returns a tensor that lies in a file, which is made if there is none."""
        path = self.work / name
        count = int(np.prod(shape))
        size = count * torch.empty(0, dtype=dtype).element_size()
        if not path.is_file() or path.stat().st_size != size:
            with open(path, "wb") as file:
                file.truncate(size)
        return torch.from_file(str(path), shared=True, size=count, dtype=dtype).view(shape)

    def drop(self, name: str) -> None:
        """Deletes a stream that is not needed any more."""
        (self.work / name).unlink(missing_ok=True)

    def write_layer(self, index: int, layer: LayerMoments, checkpoint: CheckpointTensors) -> None:
        """Writes the moments of a layer as one file, which appears whole."""
        tensors: dict[str, torch.Tensor] = {}
        about: dict[str, Any] = {}
        for key in layer.keys:
            place = checkpoint.of_matrix(key)
            if place is None:
                continue  # this is no matrix of the checkpoint
            name, stored = place
            moments = layer.moments.pop(key, None)
            about[name] = {"tokens": moments.tokens if moments else 0,
                           "weights": checkpoint.checksum(stored)}
            if moments is None:
                continue
            values = moments.packed_mean()
            if not bool(torch.isfinite(values).all()):
                raise Error("bad_input", name, "its gradients on the text overflow")
            tensors[name] = values
            about[name]["rows"] = len(moments.sum)
            about[name]["checksum"] = _walsh.checksum(values.numpy().view(np.uint8))
        path = self.folder / f"layer-{index:05}.safetensors"
        temporary = self.work / path.name
        head = {**self.settings, "version": VERSION, "matrices": about}
        save_file(tensors, temporary, metadata={KEY: json.dumps(head)})
        os.replace(temporary, path)

    def finish(self) -> None:
        """Deletes what only an interrupted run needs."""
        shutil.rmtree(self.work)

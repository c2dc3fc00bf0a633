"""Handles parts of layers: what vLLM merges into one layer, and what a process has of a layer."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence

import torch

from . import _walsh
from ._error import Error, usage
from ._packed import Packed
from ._placed import Form, PlacedLinear
from .torch import Linear, Rotation

# The sign of a column is a hash of column * step + seed (docs/formats): columns that begin at k
# have the signs of the whole row with this step added k times to the seed.
_SIGN_STEP = 0x9E3779B9


def shift_rotations(rotations: Sequence[Rotation], first_col: int) -> list[Rotation]:
    """Returns the rotations of a row for the part of it that begins at a column. Where that is the
    beginning of a block, the part is rotated as it is in the whole row."""
    return [(kind, block, (seed + first_col * _SIGN_STEP) % 2**32 if kind == "hadamard" else seed,
             signs) for kind, block, seed, signs in rotations]


class Piece(NamedTuple):
    """Holds neighbouring rows of one type."""

    first_row: int
    rows: int
    kind: str


def pieces_of(kinds: Sequence[str], widths: Sequence[int]) -> list[Piece]:
    """Merges neighbours of one type.

    >>> pieces_of(["tq4", "tq3", "tq3"], [8, 4, 4])
    [Piece(first_row=0, rows=8, kind='tq4'), Piece(first_row=8, rows=8, kind='tq3')]
    """
    if len(set(kinds)) == 1:
        kinds = [kinds[0]] * len(widths)
    if len(kinds) != len(widths):
        raise usage("layer", f"vLLM has {len(widths)} parts of what are {len(kinds)} layers: give "
                             "them one type")
    result: list[Piece] = []
    first = 0
    for kind, rows in zip(kinds, widths):
        if result and result[-1].kind == kind:
            result[-1] = Piece(result[-1].first_row, result[-1].rows + rows, kind)
        else:
            result.append(Piece(first, rows, kind))
        first += rows
    return result


class Part:
    """Holds one layer of the folder: its form, what this process keeps of it, and the arrays."""

    def __init__(self, form: dict[str, Any], widths: Sequence[int], row_rank: int, ranks: int,
                 cols: int, full_cols: int, col_rank: int) -> None:
        rows = sum(widths)
        self.kind = str(form["type"])
        self.rotations: list[Rotation] = [(str(k), int(b), int(s), bool(f))
                                          for k, b, s, f in form["rotation"]]
        self.rows, self.cols, self.first_col = rows, cols, col_rank * cols
        # These are ranges of the layer's rows, which all processes divide.
        self.ranges: list[tuple[int, int]] = []
        first = 0
        for width in widths:
            self.ranges.append((first + row_rank * width, first + (row_rank + 1) * width))
            first += ranks * width
        self.full = _walsh.layer_arrays(self.kind, rows * ranks, full_cols, self.rotations)
        self.own = _walsh.layer_arrays(self.kind, rows, cols, self.rotations)
        self.by_rows = all(array_rows == rows for _, array_rows, _ in self.own)
        self.arrays: dict[str, torch.Tensor] = {}
        if ranks > 1 and not self.by_rows:
            raise usage("tensor_parallel_size", f"{self.kind} is not stored by rows: run on one "
                                                "process, or compress the plain checkpoint")
        if cols != full_cols:
            self._check_columns(full_cols)

    def _check_columns(self, full_cols: int) -> None:
        block = max([b for kind, b, _, _ in self.rotations if kind != "none"], default=32)
        parts = full_cols // self.cols
        whole = all(own[2] * parts == full[2] for own, full in zip(self.own, self.full))
        if not self.by_rows or self.cols % block != 0 or not whole:
            raise usage("tensor_parallel_size", f"{self.cols} columns of {self.kind} per process "
                        f"are no whole blocks of {block} with scales of their own: use fewer "
                        "processes, or compress the plain checkpoint")

    def take(self, name: str, array: torch.Tensor) -> None:
        """Keeps this process's part of an array."""
        for (full_name, rows, row_bytes), (_, own_rows, own_bytes) in zip(self.full, self.own):
            if full_name != name:
                continue
            if array.dtype != torch.uint8 or tuple(array.shape) != (rows, row_bytes):
                raise Error("bad_input", name, f"{array.dtype} {tuple(array.shape)}, expected "
                                               f"torch.uint8 {(rows, row_bytes)}")
            first_byte = self.first_col // self.cols * own_bytes if own_bytes != row_bytes else 0
            ranges = self.ranges if own_rows != rows else [(0, own_rows)]
            self.arrays[name] = torch.cat([array[begin:end, first_byte:first_byte + own_bytes]
                                           for begin, end in ranges])
            return
        raise Error("bad_input", name, f"is no array of {self.kind}")

    def check(self) -> None:
        """Refuses a folder that lacks an array."""
        for name, _, _ in self.own:
            if name not in self.arrays:
                raise Error("bad_input", name, "is missing")


def group_widths(forms: Sequence[dict[str, Any]], widths: Sequence[int], ranks: int
                 ) -> list[list[int]]:
    """Returns which of the rows that vLLM tells apart each stored layer has: one of them, or as
    many as its shape says.

    >>> group_widths([{"shape": [12, 8]}, {"shape": [4, 8]}], [2, 2, 2, 2], 2)
    [[2, 2, 2], [2]]
    """
    if len(forms) == len(widths):
        return [[width] for width in widths]
    left, groups = list(widths), []
    for form in forms:
        group: list[int] = []
        while left and sum(group) * ranks < form.get("shape", [0])[0]:
            group.append(left.pop(0))
        groups.append(group)
        if not group or sum(group) * ranks != form["shape"][0]:
            left.append(0)
            break
    if left:
        raise usage("layer", f"{len(widths)} parts, the folder has {len(forms)}")
    return groups


class Stored:
    """Holds the arrays of a layer of vLLM while they are loaded."""

    def __init__(self, layer: Any, forms: list[dict[str, Any]], rows: Sequence[int], cols: int,
                 full_cols: int) -> None:
        col_rank = layer.tp_rank if cols != full_cols else 0
        divided = cols == full_cols and layer.output_size != sum(rows)
        groups = group_widths(forms, rows, layer.tp_size if divided else 1)
        self.parts: list[Part] = []
        for index, (form, widths) in enumerate(zip(forms, groups)):
            row_rank, ranks = 0, 1
            if divided:
                row_rank, ranks = layer.tp_rank, layer.tp_size
                copies = getattr(layer, "num_kv_head_replicas", 1) if index > 0 else 1
                row_rank, ranks = row_rank // copies, ranks // copies
            self.parts.append(Part(form, widths, row_rank, ranks, cols, full_cols, col_rank))
        self.firsts = [sum(map(len, groups[:index])) for index in range(len(groups))]
        self.names = list(dict.fromkeys(name for part in self.parts for name, _, _ in part.own))

    def take(self, name: str, array: torch.Tensor, shard: Any) -> None:
        """Takes an array of the part that vLLM calls `shard`: q, k, v, a number, the numbers of all
        that it has, or None for all."""
        index = {"q": 0, "k": 1, "v": 2}.get(shard, shard) if isinstance(shard, str) else shard
        if isinstance(index, (tuple, list)):
            index = index[0]
        if index is None and len(self.parts) == 1:
            index = 0
        elif index in self.firsts:
            index = self.firsts.index(index)
        if not isinstance(index, int) or not 0 <= index < len(self.parts):
            raise Error("bad_input", name, f"part {shard!r}, the layer has {len(self.parts)}")
        self.parts[index].take(name, array)

    def pack(self, device: Optional[int] = None) -> list[Packed]:
        """Returns the packed layers, as pack_parts does."""
        return pack_parts(self.parts, device)


class Joined(NamedTuple):
    """Holds the arrays of a layer."""

    form: Form
    arrays: dict[str, torch.Tensor]


def pack_parts(parts: Sequence[Part], device: Optional[int] = None) -> list[Packed]:
    """Returns packed layers of parts with all their arrays, on a GPU or with None on the CPU."""
    return [_packed(joined, device) for joined in join_parts(parts)]


def join_parts(parts: Sequence[Part]) -> list[Joined]:
    """Returns layers of parts with all their arrays; neighbours that are stored alike become
    one."""
    joined, start = [], 0
    for part in parts:
        part.check()
    for end in range(1, len(parts) + 1):
        first = parts[start]
        if end < len(parts):
            nearby = parts[end]
            if (first.by_rows and nearby.by_rows and first.kind == nearby.kind
                    and first.rotations == nearby.rotations):
                continue
        joined.append(_join(parts[start:end]))
        start = end
    return joined


def _join(parts: Sequence[Part]) -> Joined:
    first = parts[0]
    form = Form(first.kind, sum(part.rows for part in parts), first.cols,
                shift_rotations(first.rotations, first.first_col))
    arrays = {name: torch.cat([part.arrays[name] for part in parts])
              for name, _, _ in first.own}
    for part in parts:
        part.arrays.clear()
    return Joined(form, arrays)


def _packed(joined: Joined, device: Optional[int]) -> Packed:
    form, arrays = joined
    if device is not None:
        return PlacedLinear.restore(form, arrays, device)
    layer = Linear(form.cols, form.rows, False, type=form.type, rotations=form.rotations,
                   device="meta")
    layer.load_state_dict(arrays)
    layer.pack()
    return layer

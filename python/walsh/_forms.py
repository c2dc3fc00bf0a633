"""Checks forms of layers, of those that a folder has and of new ones, before they are used."""
from __future__ import annotations

import re
from typing import Any

from . import _walsh
from ._error import Error, usage


def _is_number(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_rotation(value: Any) -> bool:
    """Returns whether the value has kind, block and seed, and whether there are signs."""
    return (isinstance(value, (list, tuple)) and len(value) == 4 and isinstance(value[0], str)
            and _is_number(value[1], 0, 2**31 - 1) and _is_number(value[2], 0, 2**32 - 1)
            and isinstance(value[3], bool))


def stored_forms(modules: Any, where: str) -> dict[str, Any]:
    """Returns what a folder says of its layers by name, as it is; refuses what walsh does not
    write.

    >>> stored_forms({"up": {"type": "tq3", "rotation": [["hadamard", 128, 1, True]]}}, "x").keys()
    dict_keys(['up'])
    >>> stored_forms({"up": {"type": 3}}, "quantization_config")
    Traceback (most recent call last):
    walsh._error.Error: quantization_config: up: type 3, expected a name
    """
    if not isinstance(modules, dict):
        raise Error("bad_input", where, "modules: expected the stored layers by name")
    for name, form in modules.items():
        place = f"{where}: {name}"
        if not isinstance(form, dict):
            raise Error("bad_input", place, "expected type and rotation of a layer")
        if not isinstance(form.get("type"), str):
            raise Error("bad_input", place, f"type {form.get('type')!r}, expected a name")
        rotation = form.get("rotation")
        if not isinstance(rotation, (list, tuple)) or not all(map(_is_rotation, rotation)):
            raise Error("bad_input", place,
                        f"rotation {rotation!r}, expected [kind, block, seed, signs] per pass")
    return modules


def check_shape(form: dict[str, Any], shape: tuple[int, ...], where: str) -> None:
    """Refuses a stored layer that the model has in another shape."""
    if "shape" in form and form["shape"] != list(shape):
        raise Error("bad_input", where, f"shape {form['shape']!r}, the model has {list(shape)}")


_WITH_GROUPS = re.compile(r"tq[234](\+[24])?")
_GROUPS = {128: "", 64: ":g64", 32: ":g32", -1: ":full"}


def with_group(kind: str, group: Any) -> str:
    """Returns the name of the type whose scales hold for `group` weights each; -1: for a whole row.

    >>> with_group("tq4", 64), with_group("tq3", -1), with_group("tq3+2", 32)
    ('tq4:g64', 'tq3:full', 'tq3+2:g32')
    >>> with_group("tc3", 64)
    Traceback (most recent call last):
    walsh._error.Error: group_size: 64 with tc3: other sizes go with tq2, tq3, tq4 and their sums; \
the kernels of itq3_s have groups of 256, of q4_0 and q8_0 of 32, of pq3 of 128, of tc* whole rows
    """
    if isinstance(group, bool) or not isinstance(group, int) or group not in _GROUPS:
        raise usage("group_size", f"{group!r}, expected 128, 64 or 32, or -1 for whole rows")
    if not isinstance(kind, str) or not _WITH_GROUPS.fullmatch(kind):
        raise usage("group_size", f"{group} with {kind}: other sizes go with tq2, tq3, tq4 and "
                                  "their sums; the kernels of itq3_s have groups of 256, of q4_0 "
                                  "and q8_0 of 32, of pq3 of 128, of tc* whole rows")
    return kind + _GROUPS[group]


def new_form(kind: str, rows: int, cols: int, rotation: str, block: int, seed: int,
             fast: bool) -> tuple[str, list[tuple[str, int, int, bool]]]:
    """Returns the type of new weights [rows, cols] and the rotations of its passes."""
    for name, value in (("type", kind), ("rotation", rotation)):
        if not isinstance(value, str):
            raise usage(name, f"{value!r}, expected a name")
    if not _is_number(seed, 0, 2**32 - 1):
        raise usage("seed", f"{seed!r}, expected 32 bits")
    if not _is_number(block, 0, 2**31 - 1):
        raise usage("block", f"{block!r}, expected a size, or 0 for the type's own")
    if not isinstance(fast, bool):
        raise usage("fast", f"{fast!r}, expected True or False")
    return _walsh.layer_form(kind, rows, cols, rotation, block, seed, fast)

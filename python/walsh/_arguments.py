"""Checks arguments: a value of a wrong type is an error that names the argument."""
from __future__ import annotations

import operator
import os
import reprlib
from typing import Any, Optional

import numpy as np

from ._error import usage


def shown(value: Any) -> str:
    """Returns a value in one short line, for a message."""
    return " ".join(reprlib.repr(value).split())


def kind_of(value: Any) -> str:
    """Returns the name of the type of a value."""
    return type(value).__name__


def text(value: Any, where: str) -> str:
    """Returns a str that UTF-8 can write."""
    if not isinstance(value, str):
        raise usage(where, f"a value of type {type(value).__name__}, expected a str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise usage(where, "the text has a lone surrogate, which is no character") from None
    return value


def flag(value: Any, where: str) -> bool:
    """Returns True or False; numbers and None are refused.

    >>> flag(1, "check")
    Traceback (most recent call last):
    walsh._error.Error: check: 1, expected True or False
    """
    if not isinstance(value, (bool, np.bool_)):
        raise usage(where, f"{shown(value)}, expected True or False")
    return bool(value)


def whole(value: Any, where: str, least: int = -2**31, most: int = 2**31 - 1) -> int:
    """Returns a whole number, of NumPy as well, from `least` to `most`.

    >>> whole(np.int64(3), "first"), whole(0, "first", 0)
    (3, 0)
    >>> whole(1.0, "first")
    Traceback (most recent call last):
    walsh._error.Error: first: 1.0, expected a whole number
    """
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise usage(where, f"{shown(value)}, expected a whole number") from None
    if not least <= number <= most:
        raise usage(where, f"{number}, expected a number from {least} to {most}")
    return number


def number(value: Any, where: str) -> float:
    """Returns a number, of NumPy as well."""
    try:
        if isinstance(value, (bool, np.bool_, str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise usage(where, f"{shown(value)}, expected a number") from None


def texts(value: Any, where: str) -> list[str]:
    """Returns a list of texts; a single one is refused, since it would be taken for its letters."""
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise usage(where, f"{shown(value)}, expected a list of texts")
    return [text(one, where) for one in value]


def function(value: Any, where: str) -> Any:
    """Returns a function, or None."""
    if value is not None and not callable(value):
        raise usage(where, f"{shown(value)}, expected a function")
    return value


def path(value: Any, where: str) -> bytes:
    """Returns the path of a file as the system takes it."""
    try:
        found = os.fsencode(value)
    except (TypeError, UnicodeEncodeError):
        raise usage(where, f"{shown(value)}, expected a path") from None
    if b"\0" in found:
        raise usage(where, f"{shown(value)}: a path has no zero byte")
    return found


def one_line(value: Optional[BaseException]) -> str:
    """Returns the text of another exception as part of a message."""
    return " ".join(str(value).split())

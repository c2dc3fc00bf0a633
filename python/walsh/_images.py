"""Turns images into the contents of files that the engine reads."""
from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

from ._arguments import kind_of, one_line, path as path_of, shown
from ._error import Error, usage
from ._quantizer import Path

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

Image = Union[Path, bytes, "PillowImage"]

_MOST_BYTES = 32 << 20  # the engine refuses larger files
_PNG_MODES = {"1", "L", "LA", "I;16", "P", "RGB", "RGBA"}


def _content(image: Any) -> bytes:
    if isinstance(image, (bytes, bytearray, memoryview)):
        return bytes(image)
    if callable(getattr(image, "save", None)) and hasattr(image, "mode"):
        png = io.BytesIO()
        try:
            (image if image.mode in _PNG_MODES else image.convert("RGB")).save(png, "PNG")
        except (OSError, ValueError) as error:
            raise Error("bad_input", "images", one_line(error)) from None
        return png.getvalue()
    path = path_of(image, "images")
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Error("io", shown(image), one_line(error)) from None


def contents(images: Iterable[Image]) -> list[bytes]:
    """Returns the contents of a file for each image: a path, such contents, or an image of Pillow,
    whose pixels are taken as they are.

    >>> contents([b"some bytes"])
    [b'some bytes']
    """
    if isinstance(images, (str, bytes)) or not isinstance(images, Iterable):
        raise usage("images", f"a value of type {kind_of(images)}, expected a list of images")
    return [_content(image) for image in images]

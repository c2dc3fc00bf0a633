"""Rotates and quantizes language models to 2 to 8 bits per weight and runs them.

>>> import walsh
>>> [f.bits_per_weight for f in walsh.formats() if f.name in ("tq2", "tq3", "tq4")]
[2.125, 3.125, 4.125]

`quantize` compresses a Hugging Face folder into one file, `Model` runs a folder or a file,
`inspect` shows what is in a file. PyTorch layers are in `walsh.torch`.
"""
from ._error import Error
from ._model import Divergence, Generation, Model, Perplexity, TextStream, TokenPrediction
from ._quantizer import (FileSummary, Format, QuantizeReport, TensorSummary, formats, inspect,
                         quantize)
from ._walsh import __version__

__all__ = ["Divergence", "Error", "FileSummary", "Format", "Generation", "Model", "Perplexity",
           "QuantizeReport", "TensorSummary", "TextStream", "TokenPrediction", "__version__",
           "formats", "inspect", "quantize"]

"""The extension module; its classes are used through those of the package."""
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from ._error import Error as Error

__version__: str

class CompressOptions:
    type: str
    embed_type: str
    head_type: str
    overrides: list[str]
    ignore: list[str]
    rotation: str
    rotate: str
    block: int
    signs: bool
    seed: int
    balance: bool
    fast: bool
    shape_gain: bool
    calibrate: str
    calibrate_tokens: int
    bits_per_weight: float
    file_bytes: int
    allocate_text: str
    recipe: str
    def __init__(self) -> None: ...

class GenerationOptions:
    max_tokens: int
    temperature: Optional[float]
    top_k: Optional[int]
    top_p: Optional[float]
    min_p: Optional[float]
    repeat_penalty: Optional[float]
    presence_penalty: float
    frequency_penalty: float
    repeat_last_n: int
    seed: Optional[int]
    ignore_eos: bool
    def __init__(self) -> None: ...

class EngineOptions:
    threads: int
    context: int
    activations: str
    device: str
    cache_keys: str
    cache_values: str
    cache_window: int
    device_bytes: int
    gpu_layers: Optional[int]
    cpu_experts: Optional[int]
    compress: Optional[CompressOptions]
    def __init__(self) -> None: ...

class TextStream:
    def next(self) -> Optional[str]: ...
    def close(self) -> None: ...
    def result(self) -> dict[str, Any]: ...

class Engine:
    def __init__(self, path: bytes, options: EngineOptions) -> None: ...
    def close(self) -> None: ...
    def info(self) -> dict[str, Any]: ...
    def encode(self, text: str, add_special: bool) -> list[int]: ...
    def encode_prompt(self, text: str) -> list[int]: ...
    def decode(self, tokens: npt.NDArray[np.int32], skip_special: bool) -> str: ...
    def chat_prompt(self, messages: str, add_generation_prompt: bool) -> str: ...
    def logits(self, tokens: npt.NDArray[np.int32], first: int,
               all: bool) -> npt.NDArray[np.float32]: ...
    def logprobs(self, tokens: npt.NDArray[np.int32], first: int) -> list[tuple[float, bool]]: ...
    def perplexity(self, text: str, ctx: int, chunks: int) -> tuple[float, float, int]: ...
    def kl_divergence(self, reference: Engine, text: str, ctx: int,
                      chunks: int) -> tuple[float, float, float, float, float, int]: ...
    def stream(self, tokens: npt.NDArray[np.int32], options: GenerationOptions) -> TextStream: ...

def quantize(source: bytes, out: bytes, options: CompressOptions,
             threads: int) -> tuple[int, float, list[str]]: ...
def inspect(path: bytes, check: bool) -> dict[str, Any]: ...
def formats() -> list[tuple[str, float, float, str]]: ...

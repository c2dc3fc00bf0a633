"""Shows a transformers model to the measurement of curvature: a stack of layers that are run one at
a time, what comes before them and what follows them."""
from __future__ import annotations

import copy
from typing import Any, Sequence

import torch
from torch import nn

from ._error import Error, usage


class _Recorded(Exception):
    """Ends a pass whose rest is not needed."""


def _unwrapped(output: Any) -> torch.Tensor:
    unwrapped: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return unwrapped


class Stack:
    """Holds the layers of a causal language model and the arguments that it calls them with."""

    def __init__(self, model: Any, folder: str) -> None:
        self.model, self.folder = model, folder
        config = model.config.get_text_config()
        self.hidden, self.vocab = config.hidden_size, config.vocab_size
        self.positions = config.max_position_embeddings
        stacks = [(name, module) for name, module in model.named_modules()
                  if isinstance(module, nn.ModuleList) and len(module) == config.num_hidden_layers
                  and name.rpartition(".")[2] in ("layers", "h", "blocks")]
        if not stacks:
            raise usage(folder, f"{type(model).__name__} has no list of its "
                                f"{config.num_hidden_layers} layers")
        self.name, self.layers = stacks[0]
        self._arguments: dict[int, list[tuple[Any, Any]]] = {}  # each layer has some, by batch size
        self._tuple = False  # it says whether layers return tuples

    def __len__(self) -> int:
        return len(self.layers)

    def place(self, device: torch.device, dtype: torch.dtype) -> None:
        """Moves what is no layer, which stays there, to where it is computed."""
        owned = {id(p) for p in self.layers.parameters()} | {id(b) for b in self.layers.buffers()}
        for tensor in [*self.model.parameters(), *self.model.buffers()]:
            if id(tensor) not in owned:
                tensor.data = tensor.data.to(device, dtype if tensor.is_floating_point() else None)

    def layer(self, index: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
        """Returns a copy of a layer to compute with, whose weights get no gradients."""
        result = copy.deepcopy(self.layers[index]).to(device=device, dtype=dtype)
        return result.requires_grad_(False)

    def embed(self, ids: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """Returns what the first layer reads for ids [windows, window]. The first call for a number
        of windows also records what every layer is called with beside it."""
        first: list[torch.Tensor] = []
        arguments: list[tuple[Any, Any]] = []

        def record(hidden: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            if not first:
                first.append(hidden)
            arguments.append((args, kwargs))
            if len(arguments) == len(self.layers):
                raise _Recorded
            return hidden

        for layer in self.layers:
            layer.forward = record
        try:
            with torch.no_grad():
                self.model(ids, use_cache=False)
        except _Recorded:
            pass
        finally:
            for layer in self.layers:
                del layer.forward
        if len(arguments) != len(self.layers):
            raise usage(self.folder, f"{type(self.model).__name__} does not run its layers one "
                                     f"after the other")
        if len(ids) not in self._arguments:
            self._arguments[len(ids)] = _moved(arguments, device, dtype)
        return first[0].to(device=device, dtype=dtype)

    def run(self, index: int, layer: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the output of a layer for hidden [windows, window, hidden] of embed()."""
        args, kwargs = self._arguments[len(hidden)][index]
        output = layer(hidden, *args, **kwargs)
        self._tuple = isinstance(output, tuple)
        return _unwrapped(output)

    def logits(self, ids: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Returns what follows the last layer, which has given `hidden`, as the model does it."""
        def passed(h: torch.Tensor, *_: Any, **__: Any) -> Any:
            return (h,) if self._tuple else h

        def last(*_: Any, **__: Any) -> Any:
            return (hidden,) if self._tuple else hidden

        for layer in self.layers:
            layer.forward = passed
        self.layers[-1].forward = last
        try:
            logits: torch.Tensor = self.model(ids, use_cache=False).logits
            return logits
        finally:
            for layer in self.layers:
                del layer.forward


def _moved(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, dtype if value.is_floating_point() else None)
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(v, device, dtype) for v in value)
    if isinstance(value, dict):
        return {key: _moved(v, device, dtype) for key, v in value.items()}
    return value


def load_model(folder: str) -> Any:
    """Returns the model in the type of its checkpoint, on the CPU."""
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise Error("bad_input", folder, str(error).partition("\n")[0]) from None
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # each expert then has a product of its own
    return model.eval().requires_grad_(False)


def text_windows(folder: str, text: str, tokens: int, positions: int) -> torch.Tensor:
    """Returns windows of tokens [count, window] as `walsh quantize --calibrate` cuts them: spread
    evenly over the text, each beginning with BOS if the tokenizer adds it."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = _encode(tokenizer, text)
    window = min(512, positions)
    wanted = tokens or min(len(ids), 98304)
    if len(ids) < max(wanted, window):
        raise usage("--text", f"it has {len(ids)} tokens, {max(wanted, window)} are needed")
    count = max(1, wanted // window)
    starts = [(len(ids) - window) * i // (count - 1) if count > 1 else 0 for i in range(count)]
    windows = torch.tensor([ids[start:start + window] for start in starts])
    with_special = tokenizer("a").input_ids
    if tokenizer.bos_token_id is not None and with_special[:1] == [tokenizer.bos_token_id]:
        windows[:, 0] = tokenizer.bos_token_id
    return windows


def _encode(tokenizer: Any, text: str) -> Sequence[int]:
    ids: Sequence[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    return ids

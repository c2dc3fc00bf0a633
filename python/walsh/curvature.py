"""Measures what `walsh quantize --curvature` reads: how much the loss of a model feels errors in
the outputs of its matrices.

    python -m walsh.curvature MODEL --text TEXT --out DIR
    python -m walsh.curvature MODEL --text self --out DIR

In the second line the model writes the text, which is kept as DIR/self.txt; `walsh quantize
--calibrate self --curvature DIR` reads it.

For every matrix of the layers, H = E[g g^T] with g the gradient of the loss at its output, where
the next tokens are drawn from the model itself (the Fisher information). The model is run layer by
layer: forward with the streams of all tokens in files, then backward, one layer's moments at a
time. Idea: YAQA (Tseng et al. 2025); see docs/calibration.md.
"""
from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any, Optional, Sequence

import torch
from torch.nn.functional import cross_entropy

from . import _walsh
from ._curvature_model import Stack, load_model, text_windows
from ._curvature_moments import LayerMoments
from ._curvature_store import OWN_TEXT, CheckpointTensors, Store, check_unused, text_checksum
from ._error import Error, usage
from ._own_text import TOKENS, own_text

_STATUS = {"internal": 1, "usage": 2, "bad_input": 3, "limit": 4, "io": 5, "interrupted": 130}


class _Progress:
    """Tells on standard error what is done and how long the rest will take."""

    def __init__(self, count: int) -> None:
        self._count, self._begun, self._start = count, 0, time.monotonic()

    def done(self, what: str, steps: int) -> None:
        self._begun = self._begun or steps
        taken = time.monotonic() - self._start
        share = taken / max(1, steps - self._begun + 1)
        print(f"[{steps}/{self._count}] {what}, {share * (self._count - steps):.0f} s left",
              file=sys.stderr, flush=True)


class _Measurement:
    def __init__(self, stack: Stack, windows: torch.Tensor, store: Store,
                 checkpoint: CheckpointTensors, options: argparse.Namespace) -> None:
        self.stack, self.windows, self.store, self.checkpoint = stack, windows, store, checkpoint
        self.device, self.dtype = torch.device(options.device), getattr(torch, options.dtype)
        self.batch, self.seed = options.batch, options.seed
        self.progress = _Progress(2 * len(stack) + 1)
        stack.place(self.device, self.dtype)

    def _stream(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        return self.store.stream(name, (*self.windows.shape, self.stack.hidden), dtype)

    def _hidden(self, index: int) -> torch.Tensor:
        """Returns what layer `index` reads, of all windows."""
        return self._stream(f"hidden-{index:05}", self.dtype)

    def _gradient(self, index: int) -> torch.Tensor:
        """Returns the gradients at what layer `index` reads."""
        return self._stream(f"gradient-{index:05}", torch.float32)

    def _batches(self, size: int) -> list[slice]:
        return [slice(i, min(i + size, len(self.windows)))
                for i in range(0, len(self.windows), size)]

    def run(self) -> None:
        """Does all that is not done yet."""
        state, layers = self.store.state, len(self.stack)
        for part in {min(self.batch, len(self.windows)), len(self.windows) % self.batch}:
            if part:
                self.stack.embed(self.windows[:part].to(self.device), self.device, self.dtype)
        if state["forward"] == 0:
            hidden = self._hidden(0)
            for part in self._batches(self.batch):
                ids = self.windows[part].to(self.device)
                hidden[part] = self.stack.embed(ids, self.device, self.dtype)
        for index in range(state["forward"], layers):
            self._forward(index)
            state["forward"] = index + 1
            self.store.save_state()
            self.progress.done(f"forward through layer {index}", index + 1)
        if state["backward"] is None:
            self._loss()
            state["backward"] = layers
            self.store.save_state()
            self.store.drop(f"hidden-{layers:05}")
            self.progress.done("loss", layers + 1)
        for index in range(state["backward"] - 1, -1, -1):
            self._backward(index)
            state["backward"] = index
            self.store.save_state()
            self.store.drop(f"hidden-{index:05}")
            self.store.drop(f"gradient-{index + 1:05}")
            self.progress.done(f"backward through layer {index}", 2 * layers + 1 - index)
        self.store.finish()

    def _forward(self, index: int) -> None:
        layer = self.stack.layer(index, self.device, self.dtype)
        read, written = self._hidden(index), self._hidden(index + 1)
        with torch.no_grad():
            for part in self._batches(self.batch):
                written[part] = self.stack.run(index, layer, read[part].to(self.device))
                if not bool(torch.isfinite(written[part]).all()):
                    raise Error("bad_input", f"{self.stack.name}.{index}",
                                "its activations on the text overflow")

    def _loss(self) -> None:
        """Computes gradients at the last layer's output, of labels that are drawn from the
        model."""
        read, written = self._hidden(len(self.stack)), self._gradient(len(self.stack))
        for part in self._batches(1):
            hidden = read[part].to(self.device).requires_grad_(True)
            logits = self.stack.logits(self.windows[part].to(self.device), hidden).float()
            logits = logits.flatten(0, -2)
            draw = torch.Generator(self.device).manual_seed(self.seed + part.start)
            labels = torch.multinomial(logits.detach().softmax(-1), 1, generator=draw)[:, 0]
            cross_entropy(logits, labels, reduction="sum").backward()
            assert hidden.grad is not None
            written[part] = hidden.grad.float()

    def _backward(self, index: int) -> None:
        layer = self.stack.layer(index, self.device, self.dtype)
        moments = LayerMoments(layer, f"{self.stack.name}.{index}")
        read = self._hidden(index)
        above, below = self._gradient(index + 1), self._gradient(index)
        for part in self._batches(self.batch):
            hidden = read[part].to(self.device).requires_grad_(True)
            with moments:
                output = self.stack.run(index, layer, hidden)
            output.backward(above[part].to(self.device, output.dtype))
            assert hidden.grad is not None
            below[part] = hidden.grad.float()
        self.store.write_layer(index, moments, self.checkpoint)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Error("io", path, error.strerror or str(error)) from None


def _decoded(content: bytes, path: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise Error("bad_input", path, "is not valid UTF-8") from None


def measure(model: str, text: str, out: str, *, tokens: int = 0, device: str = "auto",
            dtype: str = "float32", batch: int = 4, seed: int = 0, resume: bool = False) -> None:
    """Writes the folder `out`; arguments are those of the command (`text` is a path, or "self")."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    options = argparse.Namespace(device=device, dtype=dtype, batch=batch, seed=seed)
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise usage("--device", f"{device}: PyTorch sees no GPU")
    if os.path.isdir(os.path.join(out, "work")) is False and resume:
        raise usage("--resume", f"there is no interrupted run in {out}")
    kept = os.path.join(out, OWN_TEXT)
    known = kept if text == "self" and resume and os.path.exists(kept) else text
    content = b"" if known == "self" else _read(known)
    if not resume:
        check_unused(out)
    checkpoint = CheckpointTensors(model)
    stack = Stack(load_model(model), model)
    if known == "self":
        print("the model writes its text", file=sys.stderr, flush=True)
        content = own_text(stack.model, model, tokens or TOKENS, min(512, stack.positions),
                           device, seed).encode()
        tokens = 0
    windows = text_windows(model, _decoded(content, known), tokens, stack.positions)
    settings = {"walsh": _walsh.__version__, "text": text_checksum(content),
                "tokens": windows.numel(), "window": windows.shape[1], "seed": seed,
                "dtype": dtype, "layers": len(stack), "hidden": stack.hidden}
    store = Store(out, settings, resume)
    if known == "self":
        store.write(OWN_TEXT, content)
    _Measurement(stack, windows, store, checkpoint, options).run()


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m walsh.curvature", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="Hugging Face folder with safetensors")
    parser.add_argument("--text", required=True,
                        help="the text of --calibrate; self: the model writes it")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--tokens", type=_positive, default=0, metavar="N",
                        help="tokens of the text to use (default: 98304, or all it has)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:N or auto")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"],
                        help="what layers are computed in (default: float32)")
    parser.add_argument("--batch", type=_positive, default=4, metavar="N",
                        help="windows of 512 tokens at a time (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="of the labels (default: 0)")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    given: dict[str, Any] = vars(parser.parse_args(arguments))
    try:
        measure(**given)
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return _STATUS.get(error.code, 1)
    except torch.OutOfMemoryError as error:
        print(f"error: {given['device']}: {str(error).splitlines()[0]}", file=sys.stderr)
        return _STATUS["limit"]
    except KeyboardInterrupt:
        return _STATUS["interrupted"]
    return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}, expected 1 or more")
    return value


if __name__ == "__main__":
    sys.exit(main())

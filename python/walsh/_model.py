"""A model with its tokenizer, ready to run."""
from __future__ import annotations

import json
import os
from types import TracebackType
from typing import (TYPE_CHECKING, Any, Iterator, Mapping, NamedTuple, Optional, Sequence, Union,
                    cast)

import numpy as np
import numpy.typing as npt

from . import _walsh
from ._arguments import (flag, function, one_line, path as path_of, shown, text as text_of, texts,
                         whole)
from ._error import usage
from ._quantizer import Path, Progress, compress_options, set_option
from ._sampling import SamplingOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

Tokens = Union[Sequence[int], npt.NDArray[np.integer[Any]]]


class Generation(NamedTuple):
    """A text that was generated."""

    text: str
    reason: str  # "stop_token", "max_tokens", "context_full", "stopped" or "stop_string"
    prompt_tokens: int
    tokens: int
    prompt_seconds: float
    decode_seconds: float
    seed: int  # that was used
    stop: str = ""  # the string of `stop` that ended it


class Perplexity(NamedTuple):
    """Perplexity of a text."""

    perplexity: float
    standard_error: float
    tokens: int  # scored


class Divergence(NamedTuple):
    """How a model's predictions differ from a reference's."""

    mean: float  # KL(reference || model) per token, in nats
    standard_error: float
    same_top: float  # share of tokens whose best one is the same
    perplexity: float
    reference_perplexity: float
    tokens: int  # scored


class TokenPrediction(NamedTuple):
    """What a model says of a token behind those in front of it."""

    logprob: float  # natural logarithm
    best: bool  # no other token is more probable


def token_array(tokens: Tokens) -> npt.NDArray[np.int32]:
    """Token ids as the extension module takes them; refuses what are none."""
    array = np.asarray(tokens)
    if array.ndim != 1:
        raise usage("tokens", f"an array of {array.ndim} dimensions, expected 1")
    if array.size == 0:
        return np.zeros(0, np.int32)
    if array.dtype.kind not in "iu":
        raise usage("tokens", f"values of type {array.dtype}, expected integers")
    limits = np.iinfo(np.int32)
    if array.size > limits.max:  # views of few values may have any size
        raise usage("tokens", f"{array.size} ids, expected less than 2^31")
    if int(array.min()) < limits.min or int(array.max()) > limits.max:
        raise usage("tokens", "an id does not fit into 32 bits")
    return np.ascontiguousarray(array, np.int32)


def _set_sampling(options: _walsh.GenerationOptions, name: str, value: Any) -> None:
    try:
        options.set_sampling(name, value)
    except (TypeError, ValueError, OverflowError):
        raise usage(name, f"{shown(value)} is not of the expected type") from None


def _generation_options(max_tokens: int, stop: Union[str, Sequence[str]], grammar: str,
                        json_schema: Union[str, Mapping[str, Any]], lookup: bool,
                        sampling: SamplingOptions) -> _walsh.GenerationOptions:
    options = _walsh.GenerationOptions()
    set_option(options, "max_tokens", max_tokens)
    set_option(options, "stop", texts([stop] if isinstance(stop, str) else stop, "stop"))
    set_option(options, "grammar", text_of(grammar, "grammar"))
    if not isinstance(json_schema, str):
        try:
            json_schema = json.dumps(json_schema)
        except (TypeError, ValueError, RecursionError) as error:
            raise usage("json_schema", one_line(error)) from None
    set_option(options, "json_schema", text_of(json_schema, "json_schema"))
    set_option(options, "lookup", lookup)
    for name, value in cast(Mapping[str, Any], sampling).items():
        if name not in _SAMPLING_NAMES:
            raise TypeError(f"there is no option {name!r} of how tokens are chosen")
        if value is not None:
            _set_sampling(options, name, value)
    return options


class TextOptions(SamplingOptions, total=False):
    """The arguments of `Model.stream`."""

    max_tokens: int
    stop: Union[str, Sequence[str]]
    grammar: str
    json_schema: Union[str, Mapping[str, Any]]
    lookup: bool


class TextStream:
    """The pieces of a text while it is generated; `result` has the whole once it has ended.

    Leaving it early (`close`, the end of a `with` block) ends the generation.
    """

    def __init__(self, stream: _walsh.TextStream) -> None:
        self._stream = stream
        self._result: Optional[Generation] = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._result is None:
            try:
                piece = self._stream.next()
            except BaseException:
                self._stream.close()
                raise
            if piece is not None:
                return piece
            self._result = Generation(**self._stream.result())
        raise StopIteration

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        """Ends the generation; what was not read is gone."""
        self._stream.close()
        if self._result is None:
            self._result = Generation(**self._stream.result())

    @property
    def result(self) -> Generation:
        """The whole text and its figures; reads what is left of the stream."""
        for _ in self:
            pass
        assert self._result is not None
        return self._result


class Model:
    """A walsh file, or a Hugging Face folder, which is compressed while loading if `quantize` says
    to what: the name of a type, or a mapping with the options of `walsh.quantize`.

    Of a model that is larger than the GPU the CPU has a part: the first layers where `gpu_layers`
    says how many of the last ones the GPU has, the experts of the first `cpu_experts` layers.
    Without these as much as fits is on the GPU.

    Threads may share a model; their calls wait for each other, but for those that only make tokens
    of texts and texts of tokens. `progress(done, count)` is called while the model is read; False
    ends that.

    >>> import walsh
    >>> with walsh.Model(getfixture("tiny_model"), quantize="tq4") as model:
    ...     tokens = model.tokenize("The river")
    ...     logits = model.logits(tokens)
    ...     text = model.generate("The river", max_tokens=8, temperature=0).text
    >>> logits.shape == (model.vocab_size,), logits.dtype
    (True, dtype('float32'))
    >>> isinstance(text, str)
    True
    """

    def __init__(self, path: Path, *, quantize: Union[str, Mapping[str, Any], None] = None,
                 device: str = "auto", threads: int = 0, context: int = 0,
                 activations: str = "auto", cache_keys: str = "f16", cache_values: str = "f16",
                 cache_window: int = 32, device_bytes: int = 0,
                 gpu_layers: Optional[int] = None, cpu_experts: Optional[int] = None,
                 progress: Optional[Progress] = None) -> None:
        options = _walsh.EngineOptions()
        for name, value in {"device": device, "threads": threads, "context": context,
                            "activations": activations, "cache_keys": cache_keys,
                            "cache_values": cache_values, "cache_window": cache_window,
                            "device_bytes": device_bytes, "gpu_layers": gpu_layers,
                            "cpu_experts": cpu_experts}.items():
            set_option(options, name, value)
        if isinstance(quantize, str):
            quantize = {"type": quantize}
        if quantize is not None:
            if not isinstance(quantize, Mapping):
                raise usage("quantize", f"{shown(quantize)}, expected a type or a mapping of "
                                        "options")
            options.compress = compress_options(dict(quantize))
        self._engine = _walsh.Engine(path_of(path, "path"), options,
                                     function(progress, "progress"))
        self._info = self._engine.info()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        return (f"<walsh.Model {self.type}, {self.bits_per_weight:.3f} bits per weight, "
                f"{self.device}>")

    def close(self) -> None:
        """Gives the memory back; later calls are errors. Texts that are being generated end there,
        other calls are waited for."""
        self._engine.close()

    def cancel(self) -> None:
        """Ends what runs in this model, from any thread: a text ends there with the reason
        "stopped", another call raises `walsh.Error` with the code "interrupted"."""
        self._engine.cancel()

    @property
    def type(self) -> str:
        """The format of most linear weights."""
        return str(self._info["type"])

    @property
    def bits_per_weight(self) -> float:
        """Of the linear weights, scales included."""
        return float(self._info["bits_per_weight"])

    @property
    def device(self) -> str:
        """Where it runs: "cpu", "cuda:0"."""
        return str(self._info["device"])

    @property
    def vocab_size(self) -> int:
        """Tokens that the model knows; the length of a row of logits."""
        return int(self._info["vocab_size"])

    @property
    def context(self) -> int:
        """Positions that a text may take."""
        return int(self._info["context"])

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat_prompt` can be used."""
        return bool(self._info["has_chat_template"])

    @property
    def notes(self) -> list[str]:
        """What one should know of the model and what is no error."""
        return list(self._info["notes"])

    def tokenize(self, text: str, *, add_special: bool = True) -> npt.NDArray[np.int32]:
        """Token ids of a text, with those that the tokenizer puts around one unless told not to."""
        return np.array(self._engine.encode(text_of(text, "text"),
                                            flag(add_special, "add_special")), np.int32)

    def detokenize(self, tokens: Tokens, *, skip_special: bool = True) -> str:
        """The text of token ids.

        >>> model = getfixture("model")
        >>> model.detokenize(model.tokenize("The river was low."))
        'The river was low.'
        """
        return self._engine.decode(token_array(tokens), flag(skip_special, "skip_special"))

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]], *,
                    add_generation_prompt: bool = True) -> str:
        """The prompt for a conversation by the model's template.

        It has its special tokens: tokenize it with add_special=False.

        >>> getfixture("model").chat_prompt([{"role": "user", "content": "Hi"}])
        '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'
        """
        try:
            conversation = json.dumps(list(messages))
        except (TypeError, ValueError, RecursionError) as error:
            raise usage("messages", one_line(error)) from None
        return self._engine.chat_prompt(conversation,
                                        flag(add_generation_prompt, "add_generation_prompt"))

    def logits(self, tokens: Tokens, *, first: Optional[int] = None) -> npt.NDArray[np.float32]:
        """Logits [vocab_size] behind the last token; with `first`, those behind each token from
        that index on, [len(tokens) - first, vocab_size]. The array is not a copy."""
        start = 0 if first is None else whole(first, "first")
        return self._engine.logits(token_array(tokens), start, first is not None)

    def logprobs(self, tokens: Tokens, *, first: int = 1) -> list[TokenPrediction]:
        """How probable tokens `first`, first + 1, ... are behind those in front of them."""
        found = self._engine.logprobs(token_array(tokens), whole(first, "first"))
        return [TokenPrediction(*prediction) for prediction in found]

    def _prompt(self, prompt: Union[str, Tokens]) -> npt.NDArray[np.int32]:
        if isinstance(prompt, str):
            return np.array(self._engine.encode_prompt(text_of(prompt, "prompt")), np.int32)
        return token_array(prompt)

    def stream(self, prompt: Union[str, Tokens], *, max_tokens: int = 128,
               stop: Union[str, Sequence[str]] = (), grammar: str = "",
               json_schema: Union[str, Mapping[str, Any]] = "", lookup: bool = False,
               **sampling: Unpack[SamplingOptions]) -> TextStream:
        """Continues a text (or token ids) piece by piece.

        max_tokens=-1: until the context is full. `stop`: strings that end the text and are no part
        of it. `grammar` in GBNF, or `json_schema`: what the text has to match. `lookup` evaluates
        several tokens at once where the text repeats itself. `sampling` says how tokens are chosen;
        what is not given is what the model's files say, else the default in brackets:

        {sampling}

        >>> with getfixture("model").stream("Once", max_tokens=4, temperature=0) as stream:
        ...     pieces = list(stream)
        >>> "".join(pieces) == stream.result.text, stream.result.tokens
        (True, 4)
        """
        options = _generation_options(max_tokens, stop, grammar, json_schema, lookup, sampling)
        return TextStream(self._engine.stream(self._prompt(prompt), options))

    def generate(self, prompt: Union[str, Tokens], **options: Unpack[TextOptions]) -> Generation:
        """Continues a text at once; the options are those of `stream`."""
        with self.stream(prompt, **options) as stream:
            return stream.result

    def generate_batch(self, prompts: Sequence[Union[str, Tokens]], *, max_tokens: int = 128,
                       stop: Union[str, Sequence[str]] = (), grammar: str = "",
                       json_schema: Union[str, Mapping[str, Any]] = "", running: int = 16,
                       progress: Optional[Progress] = None,
                       **sampling: Unpack[SamplingOptions]) -> list[Generation]:
        """Continues many texts together, `running` at a time, which is faster than one by one. The
        options are those of `stream`; a seed is that of every text. `progress(done, count)` is
        told how many have ended; False ends all.

        >>> texts = getfixture("model").generate_batch(["Once", "The river"], max_tokens=4)
        >>> [text.tokens for text in texts]
        [4, 4]
        """
        if isinstance(prompts, (str, bytes)) or not isinstance(prompts, (list, tuple)):
            raise usage("prompts", f"a value of type {type(prompts).__name__}, expected a list")
        running = whole(running, "running", 1)
        function(progress, "progress")
        options = _generation_options(max_tokens, stop, grammar, json_schema, False, sampling)
        tokens = [self._prompt(prompt).tolist() for prompt in prompts]
        if not tokens:
            return []
        found = self._engine.generate_batch(tokens, options, running, progress)
        return [Generation(**text) for text in found]

    def perplexity(self, text: str, *, ctx: int = 512, chunks: int = 0) -> Perplexity:
        """Perplexity in windows of `ctx` tokens, the second half of each scored; chunks=0: all."""
        return Perplexity(*self._engine.perplexity(text_of(text, "text"), whole(ctx, "ctx"),
                                                   whole(chunks, "chunks")))

    def kl_divergence(self, reference: Model, text: str, *, ctx: int = 512,
                      chunks: int = 0) -> Divergence:
        """How far the predictions are from those of `reference` on the same windows."""
        if not isinstance(reference, Model):
            raise usage("reference", f"{shown(reference)}, expected a walsh.Model")
        return Divergence(*self._engine.kl_divergence(reference._engine, text_of(text, "text"),
                                                      whole(ctx, "ctx"), whole(chunks, "chunks")))


_SAMPLING = _walsh.sampling_options()
_SAMPLING_NAMES = {name for row in _SAMPLING for name in (row["name"], *row["other_names"])}
if Model.stream.__doc__:  # none with -OO
    Model.stream.__doc__ = Model.stream.__doc__.replace("{sampling}", "\n        ".join(
        "{name}: {help} ({values}) [{default}]".format(**row) for row in _SAMPLING))

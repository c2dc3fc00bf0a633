"""Opens a model with its tokenizer, ready to run."""
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
from ._images import Image, contents
from ._quantizer import Path, Progress, compress_options, set_option
from ._sampling import SamplingOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

Tokens = Union[Sequence[int], npt.NDArray[np.integer[Any]]]


class Generation(NamedTuple):
    """`generate` returns this: a text and its figures."""

    text: str
    reason: str  # it is "stop_token", "max_tokens", "context_full", "stopped" or "stop_string"
    prompt_tokens: int
    tokens: int
    prompt_seconds: float
    decode_seconds: float
    seed: int  # that was used
    stop: str = ""  # this string of `stop` ended it


class Perplexity(NamedTuple):
    """`Model.perplexity` returns this."""

    perplexity: float
    standard_error: float
    tokens: int  # this many were scored


class Divergence(NamedTuple):
    """`Model.kl_divergence` returns this: how a model's predictions differ from a reference's."""

    mean: float  # it is KL(reference || model) per token, in nats
    standard_error: float
    same_top: float  # share of tokens whose best one is the same
    perplexity: float
    reference_perplexity: float
    tokens: int  # this many were scored


class TokenPrediction(NamedTuple):
    """Says how probable a model finds a token behind those in front of it."""

    logprob: float  # it is a natural logarithm
    best: bool  # no other token is more probable


def token_array(tokens: Tokens) -> npt.NDArray[np.int32]:
    """Returns token ids [n] as int32; raises walsh.Error for what is no array of ids."""
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
    """`Model.stream` takes these arguments."""

    max_tokens: int
    stop: Union[str, Sequence[str]]
    grammar: str
    json_schema: Union[str, Mapping[str, Any]]
    lookup: bool
    images: Sequence[Image]


class TextStream:
    """Gives the pieces of a text while it is generated; `result` has the whole once it has ended.

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
        """Returns the whole text and its figures; reads what is left of the stream."""
        for _ in self:
            pass
        assert self._result is not None
        return self._result


class Model:
    """Opens a walsh file, or a Hugging Face folder. A folder is compressed while it is loaded if
    `quantize` names a type, or is a mapping with the options of `walsh.quantize`.

    If a model is larger than the GPU, the CPU runs a part of it: `gpu_layers` says how many of the
    last layers the GPU runs, `cpu_experts` in how many of the first layers the CPU runs the
    experts. Without them the GPU runs as much as fits. `draft` is a smaller model with the same
    tokens, which guesses what comes next: the same text, sooner where the guesses are right; or
    "mtp" for the model's own layer that predicts further tokens, if it has one.

    Threads may share a model. Their calls wait for each other, except for calls that only turn
    texts into tokens or tokens into texts. While the model is read, `progress(done, count)` is
    called now and then; if it returns False, opening ends with an error.

    Everything that goes wrong raises walsh.Error: files that cannot be read or are damaged,
    options without meaning, calls after `close`.

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
                 draft: Optional[Path] = None,
                 progress: Optional[Progress] = None) -> None:
        options = _walsh.EngineOptions()
        for name, value in {"device": device, "threads": threads, "context": context,
                            "activations": activations, "cache_keys": cache_keys,
                            "cache_values": cache_values, "cache_window": cache_window,
                            "device_bytes": device_bytes, "gpu_layers": gpu_layers,
                            "cpu_experts": cpu_experts}.items():
            set_option(options, name, value)
        if draft is not None:
            options.draft = path_of(draft, "draft")
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

    def __reduce__(self) -> Any:
        raise TypeError("a walsh.Model cannot be copied or sent to another process: open its path "
                        "there")

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
        """Returns the format of most linear weights."""
        return str(self._info["type"])

    @property
    def bits_per_weight(self) -> float:
        """Returns the bits per linear weight, scales included."""
        return float(self._info["bits_per_weight"])

    @property
    def device(self) -> str:
        """Returns the device that runs it: "cpu", "cuda:0"."""
        return str(self._info["device"])

    @property
    def vocab_size(self) -> int:
        """Returns the number of tokens that the model knows, which is the length of a row of
        logits."""
        return int(self._info["vocab_size"])

    @property
    def context(self) -> int:
        """Returns the number of tokens that a prompt and its continuation may have together."""
        return int(self._info["context"])

    @property
    def has_chat_template(self) -> bool:
        """Returns whether `chat_prompt` can be used."""
        return bool(self._info["has_chat_template"])

    @property
    def notes(self) -> list[str]:
        """Returns notes on the model that are no errors, one sentence each."""
        return list(self._info["notes"])

    def tokenize(self, text: str, *, add_special: bool = True) -> npt.NDArray[np.int32]:
        """Returns the token ids of a text, int32 [n]. Unless `add_special` is False they include
        those that the tokenizer puts around a text, such as BOS."""
        return np.array(self._engine.encode(text_of(text, "text"),
                                            flag(add_special, "add_special")), np.int32)

    def detokenize(self, tokens: Tokens, *, skip_special: bool = True) -> str:
        """Returns the text that token ids stand for. Unless `skip_special` is False, special
        tokens are left out. An id outside the vocabulary raises walsh.Error.

        >>> model = getfixture("model")
        >>> model.detokenize(model.tokenize("The river was low."))
        'The river was low.'
        """
        return self._engine.decode(token_array(tokens), flag(skip_special, "skip_special"))

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]], *,
                    add_generation_prompt: bool = True) -> str:
        """Returns the prompt for a conversation, as the model's chat template writes it. Messages
        are mappings with `role` and `content`. A model without a template raises walsh.Error.

        The prompt contains its special tokens: tokenize it with add_special=False.

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
        """Returns the logits behind the last token, float32 [vocab_size]. With `first` they are
        those behind each token from that index on, [len(tokens) - first, vocab_size]. The array
        owns the engine's memory, which is not copied, and outlives the model. No tokens, more than
        the context has, and an index that is none raise walsh.Error."""
        start = 0 if first is None else whole(first, "first")
        return self._engine.logits(token_array(tokens), start, first is not None)

    def logprobs(self, tokens: Tokens, *, first: int = 1) -> list[TokenPrediction]:
        """Returns how probable the tokens number `first`, first + 1, ... are, each behind those in
        front of it. `first` is at least 1, since nothing stands in front of token 0."""
        found = self._engine.logprobs(token_array(tokens), whole(first, "first"))
        return [TokenPrediction(*prediction) for prediction in found]

    def embed(self, texts: Union[str, Sequence[Union[str, Tokens]]], *, pooling: str = "",
              normalize: Optional[bool] = None, dimensions: int = 0,
              running: int = 16) -> npt.NDArray[np.float32]:
        """Returns the embeddings of texts (or of the token ids of texts), float32 [texts, values];
        of a single text, [values]. `running` texts are evaluated together.

        `pooling` says which states of a text's tokens are taken, behind the final norm: "last",
        "mean" or "cls" (the first one). `normalize` gives embeddings unit length. Without these
        the files that sentence-transformers puts beside a model decide, and without them the last
        state of unit length. `dimensions` keeps the first values only, of unit length again.

        >>> found = getfixture("model").embed(["Once", "The river"], dimensions=8)
        >>> found.shape, bool(abs((found[0] ** 2).sum() - 1) < 1e-5)
        ((2, 8), True)
        """
        if isinstance(texts, str):
            only: npt.NDArray[np.float32] = self.embed(
                [texts], pooling=pooling, normalize=normalize, dimensions=dimensions)[0]
            return only
        if not isinstance(texts, (list, tuple)) or not texts:
            raise usage("texts", f"{shown(texts)}, expected a text or a list of texts")
        options = _walsh.EmbeddingOptions()
        options.pooling = text_of(pooling, "pooling")
        if normalize is not None:
            options.normalize = flag(normalize, "normalize")
        options.dimensions = whole(dimensions, "dimensions", 0)
        tokens = [list(self._engine.encode(text_of(one, "texts"), True)) if isinstance(one, str)
                  else token_array(one).tolist() for one in texts]
        return self._engine.embed(tokens, options, whole(running, "running", 1))

    def _prompt(self, prompt: Union[str, Tokens]) -> npt.NDArray[np.int32]:
        if isinstance(prompt, str):
            return np.array(self._engine.encode_prompt(text_of(prompt, "prompt")), np.int32)
        if isinstance(prompt, bytes) or (isinstance(prompt, (list, tuple)) and prompt
                                         and isinstance(prompt[0], str)):
            raise usage("prompt", f"a value of type {type(prompt).__name__}, expected a text or "
                                  "token ids; generate_batch takes a list of prompts")
        return token_array(prompt)

    def stream(self, prompt: Union[str, Tokens], *, max_tokens: int = 128,
               stop: Union[str, Sequence[str]] = (), grammar: str = "",
               json_schema: Union[str, Mapping[str, Any]] = "", lookup: bool = False,
               images: Sequence[Image] = (),
               **sampling: Unpack[SamplingOptions]) -> TextStream:
        """Continues a text (or token ids) piece by piece.

        The text ends after `max_tokens` tokens (-1: when the context is full) or at one of the
        strings in `stop`, which is no part of it. It matches `grammar` (GBNF) or `json_schema`, if
        one is given. With `lookup` several tokens are evaluated at once where the text repeats
        itself. `images` are those of the prompt, which has a placeholder for each: `chat_prompt`
        writes it for a part {"type": "image"} of a message. They are paths of JPEG, PNG or WebP
        files, the contents of such files, or images of Pillow. `sampling` says how tokens are
        chosen; an option that is not given is what the model's files say, or else the default in
        brackets:

        {sampling}

        >>> with getfixture("model").stream("Once", max_tokens=4, temperature=0) as stream:
        ...     pieces = list(stream)
        >>> "".join(pieces) == stream.result.text, stream.result.tokens
        (True, 4)
        """
        options = _generation_options(max_tokens, stop, grammar, json_schema, lookup, sampling)
        options.images = contents(images)
        if options.images and isinstance(prompt, str):  # texts around images depend on the model
            return TextStream(self._engine.stream_text(text_of(prompt, "prompt"), options))
        return TextStream(self._engine.stream(self._prompt(prompt), options))

    def generate(self, prompt: Union[str, Tokens], **options: Unpack[TextOptions]) -> Generation:
        """Continues a text and returns it whole; the options are those of `stream`."""
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
        """Returns the perplexity of a text. It is cut into windows of `ctx` tokens, and the second
        half of each is scored; `chunks` limits the number of windows (0: all of them)."""
        return Perplexity(*self._engine.perplexity(text_of(text, "text"), whole(ctx, "ctx"),
                                                   whole(chunks, "chunks")))

    def kl_divergence(self, reference: Model, text: str, *, ctx: int = 512,
                      chunks: int = 0) -> Divergence:
        """Returns how far the predictions are from those of the model `reference`, on the windows
        that `perplexity` uses. Models with different vocabularies raise walsh.Error."""
        if not isinstance(reference, Model):
            raise usage("reference", f"{shown(reference)}, expected a walsh.Model")
        return Divergence(*self._engine.kl_divergence(reference._engine, text_of(text, "text"),
                                                      whole(ctx, "ctx"), whole(chunks, "chunks")))


_SAMPLING = _walsh.sampling_options()
_SAMPLING_NAMES = {name for row in _SAMPLING for name in (row["name"], *row["other_names"])}
if Model.stream.__doc__:  # with -OO there is none
    Model.stream.__doc__ = Model.stream.__doc__.replace("{sampling}", "\n        ".join(
        "{name}: {help} ({values}) [{default}]".format(**row) for row in _SAMPLING))

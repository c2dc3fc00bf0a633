"""Makes walsh a model of lm-evaluation-harness, in process.

    python -m walsh.lm_eval --model walsh --model_args path=model.gguf --tasks ...

is the harness's own command with this model registered; importing the module registers it too.
"""
from __future__ import annotations

import json
import pathlib
from typing import Any, Optional, Sequence

from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from tqdm import tqdm

from . import _walsh
from ._error import usage
from ._model import Model


# The HF backend takes arguments of texts under these names; the values are their names here.
_NAMES = {row["key"]: row["name"] for row in _walsh.sampling_options() if row["key"]}
# transformers chooses with these where neither the arguments nor the model's files say it.
_DEFAULTS = {"top_k": 50, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


def _stored_choices(path: str) -> set[str]:
    """Returns what the folder's generation_config.json says of choosing tokens, which counts
    then."""
    try:
        stored = json.loads((pathlib.Path(path) / "generation_config.json").read_text())
    except (OSError, ValueError):
        return set()
    return {name for name in _NAMES if stored.get(name) is not None}


def generation_arguments(arguments: dict[str, Any], max_gen_toks: int, stored: set[str]
                         ) -> tuple[int, list[str], dict[str, Any]]:
    """Returns the most tokens, the stop strings and the options of a text, with the meaning and the
    defaults of the HF backend: a temperature alone means sampling; without one texts are greedy.

    >>> generation_arguments({"until": "a", "temperature": 0.5, "top_k": 3}, 9, {"top_p"})[2]
    {'top_k': 3, 'min_p': 0.0, 'repeat_penalty': 1.0, 'repeat_last_n': -1, 'temperature': 0.5}
    """
    rest = {name: value for name, value in arguments.items() if value is not None}
    until = rest.pop("until", [])
    stops = [stop for stop in ([until] if isinstance(until, str) else until) if stop]
    lengths = [rest.pop(name) for name in _LENGTHS if name in rest]
    temperature = float(rest.get("temperature", 0.0))
    sample = rest.pop("do_sample", temperature > 0)
    if sample and temperature <= 0:
        raise usage("temperature", f"{temperature}, expected more than 0 with do_sample")
    for name in rest:
        if name not in _NAMES:
            raise usage(name, "is no argument of texts that walsh knows; known: "
                              f"do_sample, until, {', '.join((*_LENGTHS, *_NAMES))}")
    options = {_NAMES[name]: value for name, value in _DEFAULTS.items() if name not in stored}
    options["repeat_last_n"] = -1  # the penalty counts all tokens, as there
    options.update({_NAMES[name]: value for name, value in rest.items()})
    if not sample:
        options["temperature"] = 0.0
    return int(lengths[0]) if lengths else max_gen_toks, stops, options


@register_model("walsh")
class WalshLM(TemplateLM):  # type: ignore[misc]
    """`path` is a walsh file or a folder, `quantize` a type to compress to while loading; other
    arguments are those of `walsh.Model` (device, threads, context, activations, ...)."""

    def __init__(self, path: str = "", quantize: Optional[str] = None,
                 add_bos_token: Optional[bool] = None, max_gen_toks: int = 256,
                 pretrained: str = "", batch_size: Any = None, max_batch_size: Any = None,
                 device: Optional[str] = None, **options: Any) -> None:
        super().__init__()
        if not (path or pretrained):
            raise usage("path", "a file or folder is needed")
        # The harness says cuda:0 where nobody said anything: a GPU if there is one.
        if device in (None, "cuda", "cuda:0"):
            device = "auto"
        self.model = Model(path or pretrained, quantize=quantize, device=device or "auto",
                           **options)
        self._chosen = _stored_choices(path or pretrained)
        self.add_bos_token = add_bos_token
        self.max_gen_toks = int(max_gen_toks)
        beginning = self.model._engine.encode_prompt("")
        # As in transformers, this is BOS; a tokenizer without one has no token to begin a text
        # with.
        self._prefix = int(beginning[0]) if beginning else None
        self._prefix_text = self.model.detokenize(beginning, skip_special=False)

    @property
    def eot_token_id(self) -> int:
        """Returns what stands in front of a text without context."""
        if self._prefix is None:
            raise usage("context", "the tokenizer has no BOS: texts need a context")
        return self._prefix

    @property
    def max_length(self) -> int:
        """Returns the positions of the context."""
        return self.model.context

    @property
    def tokenizer_name(self) -> str:
        """Returns a name for the harness's cache."""
        return repr(self.model)

    def tok_encode(self, string: str, add_special_tokens: Optional[bool] = None,
                   **others: Any) -> list[int]:
        """Returns token ids as transformers' tokenizers give them."""
        special = add_special_tokens
        if special is None:
            special = True if self.add_bos_token is None else bool(self.add_bos_token)
            if self._prefix_text and string.startswith(self._prefix_text):
                special = False
        return [int(t) for t in self.model.tokenize(string, add_special=special)]

    def tok_decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Returns the text of tokens."""
        return self.model.detokenize(tokens, skip_special=skip_special_tokens)

    def chat_template(self, chat_template: Any = False) -> Optional[str]:
        """The template is the model's own; the harness only keeps a note of it."""
        return "the model's own" if chat_template else ""

    def apply_chat_template(self, chat_history: list[dict[str, str]],
                            add_generation_prompt: bool = True) -> str:
        """Returns the prompt for a conversation."""
        return self.model.chat_prompt(chat_history, add_generation_prompt=add_generation_prompt)

    def _score(self, context: Sequence[int], continuation: Sequence[int]) -> tuple[float, bool]:
        """Returns the log-probability of a continuation, and whether greedy decoding would give
        it."""
        tokens = [*context, *continuation][-(self.max_length + 1):]
        found = self.model.logprobs(tokens, first=max(1, len(tokens) - len(continuation)))
        return sum(p.logprob for p in found), all(p.best for p in found)

    def _loglikelihood_tokens(self, requests: Any, disable_tqdm: bool = False,
                              **others: Any) -> list[tuple[float, bool]]:
        results = []
        for texts, context, continuation in tqdm(requests, disable=disable_tqdm):
            result = self._score(context, continuation)
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, result)
            results.append(result)
        return results

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """Returns the log-probabilities of whole texts, in windows that do not overlap."""
        results = []
        for (text,) in tqdm([r.args for r in requests], disable=disable_tqdm):
            windows = utils.get_rolling_token_windows(
                token_list=self.tok_encode(text), prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length, context_len=1)
            total = sum(self._score(*utils.make_disjoint_window(w))[0] for w in windows)
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), total)
            results.append(total)
        return results

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """Returns texts behind prompts, up to a stop string."""
        results = []
        for prompt, arguments in tqdm([r.args for r in requests], disable=disable_tqdm):
            text = self._generate(prompt, dict(arguments))
            self.cache_hook.add_partial("generate_until", (prompt, arguments), text)
            results.append(text)
        return results

    def _generate(self, prompt: str, arguments: dict[str, Any]) -> str:
        most, stops, sampling = generation_arguments(arguments, self.max_gen_toks, self._chosen)
        tokens = self.tok_encode(prompt)[-max(1, self.max_length - most):]
        return self.model.generate(tokens, max_tokens=most, stop=stops, **sampling).text


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()

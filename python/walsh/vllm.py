"""Registers a vLLM plugin: `--quantization walsh` and `--quantization turboquant`, on CPUs and
NVIDIA's GPUs.

Ordinary checkpoints are compressed while they are loaded, linear layers and experts one by one;
folders that walsh.transformers saved are loaded as they are stored. vLLM finds the plugin by its
entry point. Options are keys of the model's `quantization_config`, as `hf_overrides` sets them:

    LLM(folder, quantization="turboquant")                                  # 3 bits
    LLM(folder, hf_overrides={"quantization_config": {
        "quant_method": "walsh", "type": "tq4", "ignore": ["re:layers.0."]}})

vLLM's own `quantization_config` takes them as well once `register` has run, as it has in
`vllm serve FOLDER --quantization turboquant --quantization-config '{"bits": 4}'`.
"""
# pyright: reportMissingImports=false
from __future__ import annotations

import json
import logging
from typing import Any, Optional

from . import _walsh
from ._error import Error, usage
from ._forms import stored_forms, with_group
from ._rules import Rules

FORMAT_VERSION = 1  # the quantization_config of a stored folder has it
_COMMON = ("quant_method", "ignore", "seed", "activations", "fast")
_KNOWN = {
    "walsh": _COMMON + ("type", "overrides", "rotation", "block", "shape_gain", "modules",
                        "format_version", "producer"),
    "turboquant": _COMMON + ("bits", "group_size"),
}
METHODS = tuple(_KNOWN)


class Options:
    """Says what layers become.

    >>> Options("turboquant", {}).type, Options("turboquant", {"bits": 4, "group_size": None}).type
    ('tq3', 'tq4:full')
    >>> Options("walsh", {"type": "tc3"}).type
    'tc3'
    """

    def __init__(self, method: str, given: dict[str, Any]) -> None:
        for name in given:  # folders tell more than options do
            if name not in _KNOWN[method] and not given.get("modules"):
                raise self._wrong(name, f"is no option of {method}; its options: "
                                        f"{', '.join(sorted(_KNOWN[method]))}")
        self.method = method
        self.type = self._turboquant(given) if method == "turboquant" else self._take(
            given, "type", str, "tq4")
        self.rotation = self._take(given, "rotation", str, "hadamard")
        self.block = self._take(given, "block", int, 0)
        self.seed = self._take(given, "seed", int, 42)
        if not 0 <= self.seed < 2**32:
            raise self._wrong("seed", f"{self.seed}, expected 32 bits")
        self.fast = self._take(given, "fast", bool, False)
        self.shape_gain = self._take(given, "shape_gain", bool, False)
        self.ignore = self._names(given, "ignore", ["lm_head"])
        self.overrides = self._names(given, "overrides", [])
        activations = self._take(given, "activations", str, "int8")
        if activations not in ("int8", "f32"):
            raise self._wrong("activations", f"{activations!r}, expected int8 or f32")
        self.exact = activations == "f32"
        self.modules: dict[str, Any] = stored_forms(
            self._take(given, "modules", dict, {}), "quantization_config")
        if self._take(given, "format_version", int, FORMAT_VERSION) > FORMAT_VERSION:
            raise Error("bad_input", "quantization_config: format_version",
                        f"{given['format_version']}, this walsh reads up to {FORMAT_VERSION}")
        self.rules = Rules(self.type, self.ignore, self.overrides)
        for kind in {self.type} | {rule.rpartition("=")[2] for rule in self.overrides}:
            _walsh.layer_form(kind, 32, 32, self.rotation, self.block, self.seed, self.fast)

    @staticmethod
    def _wrong(name: str, reason: str) -> Error:
        return usage(f"quantization_config: {name}", reason)

    def _take(self, given: dict[str, Any], name: str, kind: type, default: Any) -> Any:
        value = given.get(name, default)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self._wrong(name, f"{value!r}, expected {kind.__name__}")
        return value

    def _names(self, given: dict[str, Any], name: str, default: list[str]) -> list[str]:
        value = given.get(name)
        value = default if value is None else value
        if isinstance(value, str) or not all(isinstance(text, str) for text in value):
            raise self._wrong(name, f"{value!r}, expected a list of rules")
        return list(value)

    def _turboquant(self, given: dict[str, Any]) -> str:
        bits = given.get("bits", 3)
        if isinstance(bits, bool) or bits not in (2, 3, 4):
            raise self._wrong("bits", f"{bits!r}, expected 2, 3 or 4")
        group = given.get("group_size", 128)
        try:
            return with_group(f"tq{bits}", -1 if group is None else group)
        except Error as error:
            raise self._wrong(error.where, error.reason) from None


def register() -> None:
    """Registers the methods. This is the entry point, which runs in every process of vLLM, and more
    than once."""
    from vllm.model_executor.layers import quantization

    if METHODS[0] in quantization.QUANTIZATION_METHODS:
        return
    try:
        from . import _vllm_layers
    except ImportError as error:  # vLLM works without walsh then
        logging.getLogger(__name__).warning("walsh does not know this vLLM: %s", error)
        return
    for method, config in zip(METHODS, _vllm_layers.CONFIGS):
        quantization.register_quantization_config(method)(config)
    _accept_options()
    _accept_arguments()
    _accept_folders()


def _accept_options() -> None:
    """Lets vLLM's `quantization_config` carry options of these methods. vLLM knows only those of
    its own online schemes there, and refuses a method of somebody else beside them."""
    import vllm.config.quantization as resolving
    from vllm.model_executor.model_loader import weight_utils

    resolve, build = resolving.resolve_quantization_config, weight_utils.get_quant_config

    def resolve_ours(quantization: Optional[str], options: Any) -> Any:
        return options if quantization in METHODS else resolve(quantization, options)

    def build_ours(model_config: Any, load_config: Any) -> Any:
        given = model_config.quantization_config
        if model_config.quantization not in METHODS or given is None:
            return build(model_config, load_config)
        if not isinstance(given, dict):  # this is vLLM's class, made before this plugin was loaded
            given = {"ignore": list(given.ignore)}
        stored = getattr(model_config.hf_config, "quantization_config", None) or {}
        kind = weight_utils.get_quantization_config(model_config.quantization)
        return kind.from_config({**stored, **given})

    resolving.resolve_quantization_config = resolve_ours
    weight_utils.get_quant_config = build_ours


def _accept_arguments() -> None:
    """Lets `--quantization-config` of `vllm serve` carry these options, too: vLLM refuses options
    that are not its own while it reads the command line."""
    from vllm.config.quantization import QuantizationConfigArgs
    from vllm.engine.arg_utils import EngineArgs

    add, own = EngineArgs.add_cli_args, set(QuantizationConfigArgs.__dataclass_fields__)

    def add_ours(parser: Any) -> Any:
        parser = add(parser)
        argument = parser._option_string_actions.get("--quantization-config")
        if argument is None:
            return parser
        read = argument.type

        def read_ours(text: str) -> Any:
            try:
                given = json.loads(text)
            except ValueError:
                return read(text)
            ours = isinstance(given, dict) and not own.issuperset(given)
            return given if ours else read(text)

        argument.type = read_ours
        return parser

    EngineArgs.add_cli_args = staticmethod(add_ours)


def _accept_folders() -> None:
    """Lets `producer` of a folder's quantization_config be what wrote it: vLLM takes it for that of
    one certain program, and fails where it is not an object."""
    from vllm.transformers_utils import model_arch_config_convertor as converting

    base = converting.ModelArchConfigConvertorBase
    normalize = base._normalize_quantization_config

    def normalize_ours(self: Any, config: Any) -> Any:
        stored = getattr(config, "quantization_config", None)
        ours = isinstance(stored, dict) and stored.get("quant_method") in METHODS
        return stored if ours else normalize(self, config)

    base._normalize_quantization_config = normalize_ours

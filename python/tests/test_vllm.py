"""The vLLM plugin in a real vLLM; skipped where it is not installed (tools/check_vllm.sh)."""
import json
import os
import shutil

import numpy as np
import pytest

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine in this process, with its errors
vllm = pytest.importorskip("vllm", reason="vllm is not installed")
torch = pytest.importorskip("torch")

import walsh  # noqa: E402
import walsh.torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

PROMPT = "The river"
GREEDY = vllm.SamplingParams(temperature=0, max_tokens=16)


def load(folder, **options):
    """A model in this process; options of the quantization go by hf_overrides."""
    return vllm.LLM(model=str(folder), dtype="float32", enforce_eager=True, max_model_len=256,
                    max_logprobs=-1, **options)


def overrides(method, **options):
    return {"quantization_config": {"quant_method": method, **options}}


def close(llm):
    """Ends what a model in this process holds, so that the next one can begin."""
    from vllm.distributed import cleanup_dist_env_and_memory

    llm.llm_engine.engine_core.shutdown()
    del llm
    cleanup_dist_env_and_memory()


def module(llm):
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner.model


def greedy(llm):
    return list(llm.generate([PROMPT], GREEDY, use_tqdm=False)[0].outputs[0].token_ids)


def prompt_logprobs(llm, tokens):
    """Logarithms of the probabilities behind each token but the last, [tokens - 1, vocabulary]."""
    ask = vllm.SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=-1)
    rows = llm.generate({"prompt_token_ids": tokens}, ask, use_tqdm=False)[0].prompt_logprobs[1:]
    return np.array([[row[token].logprob for token in range(len(row))] for row in rows])


def is_coded(name):
    return name.endswith("_proj.weight")


def decoded_folder(source, place, **options):
    """The checkpoint with the values that its codes stand for, in float32."""
    shutil.copytree(source, place, ignore=shutil.ignore_patterns("*.safetensors*"))
    tensors = {}
    for file in source.glob("*.safetensors"):
        tensors.update(load_file(file))
    for name, weight in tensors.items():
        weight = weight.float()
        if is_coded(name):
            layer = walsh.torch.Linear(weight.shape[1], weight.shape[0], False, **options)
            layer.encode(weight)
            weight = layer.dequantize()
        tensors[name] = weight.contiguous()
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "dtype": "float32"}))
    return place


def check_against_walsh(llm, folder):
    """Logits and greedy text are those of walsh's engine on a folder of the same weights."""
    with walsh.Model(folder, device="cpu") as model:
        tokens = [int(t) for t in model.tokenize(PROMPT + " flows through the city of")]
        logits = np.array(model.logits(tokens, first=0), dtype=np.float64)[:-1]
        prompt = [int(t) for t in model.tokenize(PROMPT)]
        expected = []
        for _ in range(GREEDY.max_tokens):
            expected.append(int(np.argmax(model.logits(prompt + expected))))
    expected_logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    found = prompt_logprobs(llm, tokens)
    assert found.shape == expected_logprobs.shape
    assert np.abs(found - expected_logprobs).max() < 1e-3 * np.abs(logits).max()
    assert greedy(llm) == expected


def test_turboquant_gives_the_logits_and_text_of_walsh(tiny_model, tmp_path):
    llm = load(tiny_model, quantization="turboquant",
               hf_overrides=overrides("turboquant", activations="f32"))
    try:
        layer = module(llm).model.layers[0].self_attn.qkv_proj
        assert layer.walsh_layers.shape == (1, 3) and layer.weight.numel() == 0
        assert layer.walsh_packed[0].format == "tq3"
        check_against_walsh(llm, decoded_folder(tiny_model, tmp_path / "decoded", type="tq3"))
    finally:
        close(llm)


def test_rules_choose_types_within_a_merged_layer(tiny_model):
    rules = overrides("walsh", type="tq4", fast=True, ignore=[r"re:layers\.0\."],
                      overrides=[r"re:layers\.1\..*v_proj=tc3"])
    llm = load(tiny_model, quantization="walsh", hf_overrides=rules)
    try:
        layers = module(llm).model.layers
        assert not hasattr(layers[0].self_attn.qkv_proj, "walsh_layers")
        types = [one.format.split(":")[0] for one in layers[1].self_attn.qkv_proj.walsh_packed]
        assert types == ["tq4", "tc3"]
        assert len(greedy(llm)) == GREEDY.max_tokens
    finally:
        close(llm)


def test_ignore_list_of_vllm_is_read(tiny_model):
    ignore = ["re:.*lm_head.*", "model.layers.0.self_attn.o_proj"]
    llm = load(tiny_model, quantization="turboquant", quantization_config={"ignore": ignore})
    try:
        attention = module(llm).model.layers[0].self_attn
        assert not hasattr(attention.o_proj, "walsh_layers")
        assert attention.qkv_proj.walsh_packed[0].format == "tq3"
    finally:
        close(llm)

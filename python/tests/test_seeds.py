"""Tests the lines that people know from turboquant_model's README and vLLM's page on TurboQuant
(its part in transformers), on a dense, a recurrent and an expert model."""
import json
import pathlib

import pytest

import walsh

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from transformers import AutoModelForCausalLM  # noqa: E402

import walsh.torch  # noqa: E402
from walsh.torch import (TurboQuantConfig, load_quantized, quantize_model,  # noqa: E402
                         save_quantized)
from walsh.transformers import WalshConfig  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = ROOT / "tests" / "data" / "models"
MODELS = {"dense": ROOT / "models" / "walsh-tiny-13m", "recurrent": SMALL / "qwen35-tiny",
          "experts": SMALL / "qwen3-moe-tiny"}
IDS = torch.tensor([[1, 5, 9, 3, 7, 2, 11, 4]])


def load(name, **options):
    return AutoModelForCausalLM.from_pretrained(MODELS[name], dtype=torch.bfloat16, **options)


def logits(model):
    with torch.no_grad():
        return model(IDS).logits[0].float()


def divergence(model, reference):
    """Returns the mean KL divergence of the next token's distribution."""
    p, q = logits(reference).log_softmax(-1), logits(model).log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1).mean().item()


def linear_bytes(model):
    """Returns the bytes of matrices that are multiplied with, as they are stored in the
    checkpoint's type."""
    return sum(p.numel() * p.element_size() for name, p in model.named_parameters()
               if p.dim() > 1 and "proj" in name)


@pytest.mark.parametrize("name", MODELS)
def test_single_pass_and_residual_quantization(name, tmp_path):
    reference = load(name)
    config = TurboQuantConfig(bit_width=4, seed=42)
    single = quantize_model(load(name), config)
    residual_config = TurboQuantConfig(bit_width=4, residual_bit_width=4, seed=42)
    residual = quantize_model(load(name), residual_config)
    print(f"{name}: {single.walsh_summary}; residual: {residual.walsh_summary}")
    print("turboquant_model: 187 layers quantized, 1434 MB -> 361 MB (4.0x compression)")
    # The small models have few weights per scale.
    assert single.walsh_summary.bytes_before / single.walsh_summary.bytes_after > 3.2
    assert divergence(residual, reference) < 0.15 * divergence(single, reference)
    save_quantized(residual, residual_config, tmp_path / "quantized-model")
    again = load_quantized(str(MODELS[name]), tmp_path / "quantized-model", dtype=torch.bfloat16)
    assert torch.equal(logits(again), logits(residual))


@pytest.mark.parametrize("name", MODELS)
def test_quantize_model_and_loading_make_the_same_weights(name):
    """`walsh run` has to compute from a saved folder what quantize_model has made."""
    made = quantize_model(load(name), TurboQuantConfig(bit_width=4, seed=42, ignore=[
        "lm_head", *(["re:in_proj_[ab]$"] if name == "recurrent" else [])]))
    loaded = load(name, quantization_config=WalshConfig(type="tq4", seed=42))
    layers = {n: m for n, m in made.named_modules() if isinstance(m, walsh.torch.Linear)}
    others = {n: m for n, m in loaded.named_modules() if isinstance(m, walsh.torch.Linear)}
    assert layers.keys() == others.keys()
    for own, layer in layers.items():
        for array, content in layer.stored().items():
            assert torch.equal(content, others[own].stored()[array]), own


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_online_quantization_keeps_what_is_ignored(bits, tmp_path):
    """Layers have 3 bits in groups of 128 by default, or 2 and 4; layers given by pattern and by
    name stay plain."""
    config = WalshConfig(type=f"tq{bits}", shape_gain=True, ignore=[
        "re:.*lm_head.*", "model.layers.0.self_attn.o_proj"])
    model = load("dense", quantization_config=config)
    plain = [n for n, m in model.named_modules()
             if isinstance(m, torch.nn.Linear) and not isinstance(m, walsh.torch.Linear)]
    assert sorted(plain) == ["lm_head", "model.layers.0.self_attn.o_proj"]
    assert all(not p.is_meta for p in model.parameters())
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert {m["type"] for m in saved["modules"].values()} == {f"tq{bits}"}


def test_experts_are_quantized_too():
    model = load("experts", quantization_config=WalshConfig(type="tq3"))
    assert linear_bytes(model) == 0  # nothing is left in bf16

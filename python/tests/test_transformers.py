"""Tests the quantizer for transformers on the embedded model."""
import json
import shutil

import pytest

import walsh

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from transformers import AutoModelForCausalLM  # noqa: E402

import walsh.torch  # noqa: E402
from walsh.transformers import WalshConfig  # noqa: E402

IDS = torch.tensor([[11, 205, 77, 1024, 9, 300, 41, 17]])


def load(folder, **options):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()


def logits(model):
    with torch.no_grad():
        return model(IDS).logits[0]


def test_layers_are_compressed_while_loading_and_saved(tiny_model, tmp_path):
    config = WalshConfig(type="tq3", ignore=["lm_head", "re:layers\\.0\\."], fast=True)
    model = load(tiny_model, quantization_config=config)
    kinds = {name: type(m).__module__ for name, m in model.named_modules()
             if name.endswith("up_proj")}
    assert kinds["model.layers.0.mlp.up_proj"] == "torch.nn.modules.linear"
    assert kinds["model.layers.1.mlp.up_proj"] == "walsh.torch"
    expected = logits(model)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert saved["quant_method"] == "walsh"
    assert saved["modules"]["model.layers.1.mlp.up_proj"]["type"] == "tq3"
    assert "model.layers.0.mlp.up_proj" not in saved["modules"]
    again = load(tmp_path)
    assert torch.equal(logits(again), expected)
    plain = sum(p.stat().st_size for p in tiny_model.glob("*.safetensors"))
    coded = sum(p.stat().st_size for p in tmp_path.glob("*.safetensors"))
    print(f"{plain} -> {coded} bytes")
    assert coded < 1.2 * plain  # float32 embeddings beside 3-bit layers


def test_logits_are_those_of_the_engine_on_the_decoded_weights(tiny_model, tmp_path):
    model = load(tiny_model, quantization_config=WalshConfig(type="tq4", fast=True))
    decoded = load(tiny_model)
    for name, module in model.named_modules():
        if isinstance(module, walsh.torch.Linear):
            module.exact = True
            with torch.no_grad():
                decoded.get_submodule(name).weight.copy_(module.dequantize())
    decoded.save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_model / name, tmp_path / name)
    with walsh.Model(tmp_path, activations="f32") as engine:
        rows = torch.from_numpy(engine.logits(IDS[0].numpy(), first=0))
    difference = logits(model) - rows  # the engine's keys and values are fp16
    assert difference.abs().max() < 1e-2 and difference.norm() / rows.norm() < 3e-4
    for module in model.modules():
        module.exact = False
    assert (logits(model) - rows).norm() / rows.norm() < 0.05


@pytest.mark.parametrize("group", [64, 32, -1])
def test_groups_of_another_size_are_saved_and_read_by_the_engine(group, tiny_model, tmp_path):
    config = WalshConfig(type="tq4", group_size=group, fast=True)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, quantization_config=config,
                                                 dtype=torch.float32)
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path)
    ids = torch.tensor([[1, 5, 9, 3]])
    for module in model.modules():
        module.exact = True
    with torch.no_grad():
        expected = model(ids).logits[0].numpy()
        again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
        assert again.config.quantization_config.type == model.config.quantization_config.type
    with walsh.Model(tmp_path, device="cpu", activations="f32") as engine:
        assert engine.type == {64: "tq4:g64", 32: "tq4:g32", -1: "tq4:full"}[group]
        found = engine.logits(ids[0].tolist(), first=0)
    assert abs(found - expected).max() < 1e-3 * abs(expected).max()


def test_what_makes_no_sense_is_refused(tiny_model, tmp_path):
    with pytest.raises(walsh.Error, match="tq9"):
        WalshConfig(type="tq9")
    with pytest.raises(walsh.Error, match="typ"):
        WalshConfig(typ="tq3")
    with pytest.raises(walsh.Error, match="later|reads up to"):
        WalshConfig(format_version=99)
    with pytest.raises(walsh.Error, match="matches no linear layer"):
        load(tiny_model, quantization_config=WalshConfig(ignore=["re:absent"]))

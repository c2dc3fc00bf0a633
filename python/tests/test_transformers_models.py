"""Tests the quantizer for transformers: whole models of several families, and what users do with
one."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import walsh

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from transformers import AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText  # noqa: E402

import walsh.torch as wt  # noqa: E402
from walsh._experts import Experts  # noqa: E402
from walsh.transformers import WalshConfig  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "data" / "models"
IDS = torch.tensor([[1, 5, 9, 3, 7, 2, 11, 4]])
CONFIG = dict(type="tq4", fast=True)


def load(folder, kind=AutoModelForCausalLM, **options):
    model = kind.from_pretrained(folder, **{"dtype": torch.float32, **options}).eval()
    for module in model.modules():
        if isinstance(module, wt.Linear):
            module.exact = True
    return model


def logits(model, ids=IDS):
    with torch.no_grad():
        return model(ids).logits[0]


def difference(found, expected):
    return float((found - expected).abs().max() / expected.abs().max())


def coded(model):
    return {name for name, m in model.named_modules() if isinstance(m, wt.Linear)}


def test_a_model_with_a_vision_tower_runs_saves_and_loads(tmp_path):
    folder = MODELS / "gemma3-vision-tiny"
    model = load(folder, AutoModelForImageTextToText, quantization_config=WalshConfig(**CONFIG))
    assert any("vision_tower" in name for name in coded(model))
    config = model.config.vision_config
    image = torch.randn(1, 3, config.image_size, config.image_size)
    with torch.no_grad():
        expected = model.model.get_image_features(image)
    model.save_pretrained(tmp_path)
    again = load(tmp_path, AutoModelForImageTextToText)
    with torch.no_grad():
        found = again.model.get_image_features(image)
    first = [getattr(x, "pooler_output", x) for x in (found, expected)]
    assert torch.equal(*first) and torch.equal(logits(again), logits(model))
    whole = load(folder, AutoModelForImageTextToText)
    wt.quantize_model(whole, wt.Config(type="tq4", fast=True))
    with torch.no_grad():
        whole.model.get_image_features(image)


def test_recurrent_models_that_read_weights_run():
    config = transformers.MambaConfig(vocab_size=64, hidden_size=64, num_hidden_layers=2,
                                      state_size=8, use_mambapy=False)
    torch.manual_seed(0)
    model = transformers.MambaForCausalLM(config).eval()
    expected = logits(model)
    wt.quantize_model(model, wt.Config(type="tq4+4", fast=True))
    assert len(coded(model)) == 8
    assert difference(logits(model), expected) < 0.1


def test_the_router_of_llama_4_stays_and_its_experts_do_not(tmp_path):
    plain = load(MODELS / "llama4-tiny")
    router = {name for name, m in plain.named_modules() if name.endswith(".router")}
    model = load(MODELS / "llama4-tiny", quantization_config=WalshConfig(**CONFIG))
    assert router and not router & coded(model)
    assert any(isinstance(m, Experts) for m in model.modules())
    assert difference(logits(model), logits(plain)) < 0.6
    expected = logits(model)
    whole = wt.quantize_model(plain, wt.Config(type="tq4", fast=True, ignore=[
        "lm_head", "re:router"]))
    assert any(isinstance(m, Experts) for m in whole.modules())
    model.save_pretrained(tmp_path)
    assert torch.equal(logits(load(tmp_path)), expected)


@pytest.mark.parametrize("name", ["mixtral-tiny", "qwen35-vision-tiny", "qwen35-moe-vision-tiny"])
def test_what_is_coded_has_the_names_of_the_files(name, tmp_path):
    model = load(MODELS / name, quantization_config=WalshConfig(**CONFIG))
    expected = logits(model)
    model.save_pretrained(tmp_path)
    from safetensors import safe_open

    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        arrays = {key.removesuffix(".codes") for key in file.keys() if key.endswith(".codes")}
    stored = json.loads((tmp_path / "config.json").read_text())["quantization_config"]["modules"]
    assert set(stored) == arrays
    if name == "mixtral-tiny":  # as in every file of Mixtral
        assert "model.layers.0.block_sparse_moe.experts.0.w1" in arrays
    assert torch.equal(logits(load(tmp_path)), expected)


def test_a_base_model_loads_and_saves(tiny_model, tmp_path):
    ids = torch.tensor([[11, 205, 77]])
    rules = WalshConfig(type="tq4", fast=True, ignore=[])
    whole = load(tiny_model, quantization_config=rules)
    with torch.no_grad():
        expected = whole.model(ids).last_hidden_state
    whole.save_pretrained(tmp_path / "whole")
    base = load(tmp_path / "whole", AutoModel)
    with torch.no_grad():
        assert torch.equal(base(ids).last_hidden_state, expected)
    assert coded(base) == {name.removeprefix("model.") for name in coded(whole) - {"lm_head"}}
    base.save_pretrained(tmp_path / "base")
    with torch.no_grad():
        assert torch.equal(load(tmp_path / "base", AutoModel)(ids).last_hidden_state, expected)
        again = load(tmp_path / "base")  # its head is the embedding
        assert torch.equal(again.model(ids).last_hidden_state, expected)


def with_tokenizer(folder, place):
    """Makes a copy that walsh.Model opens: the small models have no tokenizer."""
    shutil.copytree(folder, place)
    (place / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [],
        "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
                                              "trim_offsets": True, "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "merges": [],
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False,
                  "vocab": {chr(ord("!") + i): i for i in range(20)}}}))
    return place


@pytest.mark.parametrize("name, kind", [
    ("gemma3-vision-tiny", AutoModelForImageTextToText),
    ("mistral3-vision-tiny", AutoModelForImageTextToText),
    ("qwen35-vision-tiny", AutoModelForCausalLM), ("qwen35-moe-vision-tiny", AutoModelForCausalLM)])
def test_the_engine_reads_what_was_saved_of_a_model_with_vision(name, kind, tmp_path):
    model = load(MODELS / name, kind, quantization_config=WalshConfig(**CONFIG))
    model.save_pretrained(tmp_path / "saved")
    with walsh.Model(with_tokenizer(tmp_path / "saved", tmp_path / "m"), activations="f32",
                     device="cpu") as engine:
        found = torch.from_numpy(engine.logits(IDS[0].numpy(), first=0))
    # The engine's keys and values are fp16, which can change the choice of an expert's weight.
    assert difference(found, logits(model)) < 3e-3


@pytest.mark.parametrize("name", ["llama-fp8-tiny", "deepseek-v3-tiny", "ministral3-fp8-tiny"])
def test_checkpoints_of_fp8_are_compressed(name, tmp_path):
    pytest.importorskip("accelerate", reason="transformers reads FP8 with accelerate only")
    model = load(MODELS / name, quantization_config=WalshConfig(**CONFIG), dtype=torch.bfloat16)
    expected = logits(model)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert saved["quant_method"] == "walsh" and "source" not in saved
    assert torch.equal(logits(load(tmp_path, dtype=torch.bfloat16)), expected)
    fine = load(MODELS / name, quantization_config=WalshConfig(type="tq4+4", fast=True),
                dtype=torch.bfloat16)
    assert coded(fine)
    with walsh.Model(with_tokenizer(MODELS / name, tmp_path / "plain"), activations="f32",
                     device="cpu") as engine:
        plain = torch.from_numpy(engine.logits(IDS[0].numpy(), first=0))
    # The engine decodes FP8 itself; 8 bits lose little of that, wrong scales lose all.
    assert float((logits(fine).float() - plain).norm() / plain.norm()) < 0.15


def test_checkpoints_that_others_quantized_are_refused_with_a_line(tiny_model, tmp_path):
    config = json.loads((tiny_model / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(walsh.Error, match="quantized by gptq already"):
        load(tmp_path, quantization_config=WalshConfig(type="tq3"))


@pytest.mark.parametrize("name", ["qwen3-moe-tiny", "gpt-oss-tiny", "llama4-tiny"])
def test_models_with_experts_compile_as_a_whole(name):
    model = load(MODELS / name, quantization_config=WalshConfig(**CONFIG),
                 attn_implementation="eager")
    experts = next(m for m in model.modules() if isinstance(m, Experts))
    hidden = torch.randn(6, experts.shape.hidden)
    if name == "llama4-tiny":
        arguments = (hidden.repeat(experts.num_experts, 1),)
    else:
        chosen = torch.randint(experts.num_experts, (6, 2))
        arguments = (hidden, chosen, torch.rand(6, 2))
    with torch.no_grad():
        expected = experts(*arguments)
        found = torch.compile(experts, fullgraph=True, backend="aot_eager")(*arguments)
    assert torch.equal(found, expected)
    if name == "qwen3-moe-tiny":
        with torch.no_grad():
            whole = torch.compile(model, fullgraph=True, backend="aot_eager")(IDS, use_cache=False)
        assert difference(whole.logits[0], logits(model)) < 1e-5


def test_gradients_pass_through_experts():
    model = load(MODELS / "qwen3-moe-tiny", quantization_config=WalshConfig(**CONFIG))
    experts = next(m for m in model.modules() if isinstance(m, Experts))
    hidden = torch.randn(6, experts.shape.hidden, requires_grad=True)
    chosen, shares = torch.randint(experts.num_experts, (6, 2)), torch.rand(6, 2)
    experts(hidden, chosen, shares).square().sum().backward()
    plain = wt.dequantize_model(torch.nn.Sequential(experts))[0]
    other = hidden.detach().clone().requires_grad_()
    plain(other, chosen, shares).square().sum().backward()
    assert float((hidden.grad - other.grad).norm() / other.grad.norm()) < 1e-4


def test_the_footprint_has_the_codes(tiny_model, tmp_path):
    plain = load(tiny_model).get_memory_footprint()
    model = load(tiny_model, quantization_config=WalshConfig(type="tq4", fast=True))
    packed = sum(m.bytes for m in model.modules() if isinstance(m, wt.Linear))
    rest = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
    assert packed > 1 << 20 and model.get_memory_footprint() == packed + rest < plain
    other = wt.quantize_model(load(tiny_model), wt.Config(type="tq4", fast=True))
    assert other.get_memory_footprint() == model.get_memory_footprint()
    assert wt.dequantize_model(other).get_memory_footprint() == plain


@pytest.mark.parametrize("name", ["llama31-tiny", "qwen3-moe-tiny", "gpt-oss-tiny", "llama4-tiny"])
def test_a_model_is_made_plain_again(name, tmp_path):
    model = load(MODELS / name, quantization_config=WalshConfig(**CONFIG))
    expected = logits(model)
    model.dequantize()
    assert not coded(model) and not getattr(model, "is_quantized", False)
    assert difference(logits(model), expected) < 1e-4
    model.save_pretrained(tmp_path)
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    assert difference(logits(load(tmp_path)), expected) < 1e-4


def test_adapters_beside_a_quantized_model_are_trained(tiny_model, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    model = AutoModelForCausalLM.from_pretrained(
        tiny_model, dtype=torch.bfloat16, quantization_config=WalshConfig(type="tq4", fast=True))
    assert model.hf_quantizer.is_trainable
    model.gradient_checkpointing_enable()
    model = peft.prepare_model_for_kbit_training(model)
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear",
                                                       task_type="CAUSAL_LM"))
    ids = torch.tensor([[11, 205, 77, 1024, 9, 300, 41, 17]])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 2e-3)
    losses = []
    for _ in range(6):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.5, losses
    model.save_pretrained(tmp_path / "adapter")
    base = AutoModelForCausalLM.from_pretrained(
        tiny_model, dtype=torch.bfloat16, quantization_config=WalshConfig(type="tq4", fast=True))
    again = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    with torch.no_grad():
        assert float(again(input_ids=ids, labels=ids).loss) < losses[0] - 0.5
    merged = again.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    last = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    with torch.no_grad():
        assert float(last(input_ids=ids, labels=ids).loss) < losses[0] - 0.4


def test_the_trainer_takes_adapters_beside_a_quantized_model(tiny_model, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    pytest.importorskip("accelerate", reason="the trainer needs accelerate")
    model = load(tiny_model, quantization_config=WalshConfig(type="tq3", fast=True))
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear",
                                                       task_type="CAUSAL_LM"))
    ids = list(range(20, 36))
    trainer = transformers.Trainer(
        model=model, train_dataset=[{"input_ids": ids, "labels": ids}] * 4,
        args=transformers.TrainingArguments(
            str(tmp_path), max_steps=2, per_device_train_batch_size=2, report_to=[],
            use_cpu=True, save_strategy="no", disable_tqdm=True))
    assert trainer.train().global_step == 2


def test_adapters_around_single_experts_are_used():
    peft = pytest.importorskip("peft", reason="peft is not installed")
    model = load(MODELS / "qwen3-moe-tiny", quantization_config=WalshConfig(**CONFIG))
    experts = next(m for m in model.modules() if isinstance(m, Experts))
    arguments = (torch.randn(6, experts.shape.hidden), torch.randint(experts.num_experts, (6, 2)),
                 torch.rand(6, 2))
    expected = experts(*arguments)
    # peft takes the device of a model from its first parameter.
    net = peft.get_peft_model(torch.nn.Sequential(torch.nn.LayerNorm(4), experts), peft.LoraConfig(
        r=2, target_modules=["gate_proj", "up_proj", "down_proj"], init_lora_weights=False))
    found = experts(*arguments)
    assert difference(found.detach(), expected) > 0.01
    found.sum().backward()
    assert any(p.grad is not None for p in net.parameters())
    with net.disable_adapter():
        assert difference(experts(*arguments), expected) < 1e-5


def quantized_folder(tiny_model, place):
    load(tiny_model, quantization_config=WalshConfig(type="tq3", fast=True)).save_pretrained(place)
    return place


LOADS = """
import sys, torch
from transformers import AutoModelForCausalLM
assert "walsh" not in sys.modules
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
for module in model.modules():
    module.exact = True
with torch.no_grad():
    torch.save(model(torch.tensor([[1, 5, 9, 3, 7, 2, 11, 4]])).logits[0], sys.argv[2])
"""


def test_a_folder_loads_without_the_import(tiny_model, tmp_path):
    folder = quantized_folder(tiny_model, tmp_path / "m")
    installed = tmp_path / "site" / "walsh-0.dist-info"  # as the wheel has it
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: walsh\nVersion: 0\n")
    text = (ROOT / "pyproject.toml").read_text()
    entry = text.partition('[project.entry-points."torch.backends"]\n')[2].split("\n")[0]
    name, _, target = entry.partition(" = ")
    (installed / "entry_points.txt").write_text(
        f"[torch.backends]\n{name} = {json.loads(target)}\n")
    package = pathlib.Path(walsh.__file__).parent.parent
    paths = os.pathsep.join([str(tmp_path / "site"), str(package)])
    subprocess.run([sys.executable, "-c", LOADS, str(folder), str(tmp_path / "out.pt")], check=True,
                   env={**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"})
    assert torch.equal(torch.load(tmp_path / "out.pt"), logits(load(folder)))


PEAK = """
import sys, torch, resource
from transformers import AutoConfig, AutoModelForCausalLM
import walsh.torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = walsh.torch.load_quantized(sys.argv[1], sys.argv[2], dtype=torch.float32)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
with torch.no_grad():
    torch.save(model(torch.tensor([[1, 5, 9, 3]])).logits[0], sys.argv[3])
"""


def test_the_plain_model_is_not_made_to_load_a_quantized_one(tmp_path):
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=1024, intermediate_size=4096,
                                      num_hidden_layers=4, num_attention_heads=8)
    torch.manual_seed(0)
    plain = transformers.LlamaForCausalLM(config).eval()
    size = plain.get_memory_footprint() // 1024  # 268 MB, in KiB
    plain.config.save_pretrained(tmp_path / "m")
    settings = wt.Config(type="tq2", fast=True)
    model = wt.quantize_model(plain, settings)
    wt.save_quantized(model, settings, tmp_path / "saved")
    package = pathlib.Path(walsh.__file__).parent.parent
    run = subprocess.run([sys.executable, "-c", PEAK, str(tmp_path / "m"), str(tmp_path / "saved"),
                          str(tmp_path / "out.pt")], capture_output=True, text=True, check=True,
                         env={**os.environ, "PYTHONPATH": str(package), "HF_HUB_OFFLINE": "1"})
    assert int(run.stdout) < size / 2, (run.stdout, size)
    assert np.allclose(torch.load(tmp_path / "out.pt"), logits(model, torch.tensor([[1, 5, 9, 3]])),
                       atol=1e-5)

"""Tests folders that walsh, transformers and `walsh quantize --output-format hf` write for each
other."""
import json
import pathlib
import subprocess

import numpy as np
import pytest

import walsh

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from transformers import AutoModelForCausalLM  # noqa: E402

import walsh.torch  # noqa: E402
from walsh._experts import Experts  # noqa: E402
from walsh.transformers import WalshConfig  # noqa: E402

MODELS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "models"
IDS = [1, 5, 9, 3, 7, 2, 11, 4]
# There is a family of each way in which checkpoints store what walsh and transformers see as other
# tensors: plain, fused rows, rows in pairs, a text part, recurrent layers, and experts stored one
# by one under two sets of names, below each other, across, and beside recurrent layers.
FAMILIES = ["llama31-tiny", "phi3-tiny", "glm-tiny", "gemma3-vision-tiny", "qwen35-tiny",
            "qwen3-moe-tiny", "mixtral-tiny", "granitemoe-tiny", "gpt-oss-tiny",
            "qwen3-next-tiny", "qwen35-moe-tiny", "llama4-tiny", "deepseek-v3-tiny"]
WITH_EXPERTS = ["qwen3-moe-tiny", "mixtral-tiny", "granitemoe-tiny", "gpt-oss-tiny",
                "qwen35-moe-tiny", "llama4-tiny"]


def add_tokenizer(folder):
    """Adds a tokenizer, since the small models have none and walsh.Model wants one."""
    voc = {chr(ord("!") + i): i for i in range(20)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None,
             "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
             "byte_fallback": False, "vocab": voc, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": model}))


def load(folder, **options):
    """Loads with activations as they are: int8 ones are rounded differently where a product differs
    by a bit."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()
    for module in model.modules():
        if isinstance(module, walsh.torch.Linear):
            module.exact = True
    return model


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0].numpy()


def engine_logits(path):
    with walsh.Model(path, activations="f32", device="cpu") as model:
        return np.array(model.logits(np.array(IDS, dtype=np.int32), first=0))


def difference(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("name", FAMILIES)
def test_transformers_has_the_logits_of_the_commands_folder(name, tmp_path):
    folder = tmp_path / "folder"
    walsh.quantize(MODELS / name, folder, type="tq4", fast=True, output_format="hf")
    add_tokenizer(folder)
    # walsh rounds the parts of coded matrices that heads of latent attention have to fp16.
    tolerance = 3e-3 if name.startswith("deepseek") else 1e-3
    assert difference(logits(load(folder)), engine_logits(folder)) < tolerance


def test_the_folder_has_the_logits_of_the_file(tiny_model, tmp_path):
    # Folders have embedding and head as the checkpoint has them, files q8_0 unless told.
    walsh.quantize(tiny_model, tmp_path / "m.gguf", type="tq3", fast=True, embed_type="bf16",
                   head_type="bf16")
    walsh.quantize(tiny_model, tmp_path / "m", type="tq3", fast=True, output_format="hf")
    file, folder = engine_logits(tmp_path / "m.gguf"), engine_logits(tmp_path / "m")
    assert np.array_equal(file, folder)
    model = load(tmp_path / "m")
    assert difference(logits(model), file) < 1e-3
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    with walsh.Model(tmp_path / "m", device="cpu") as engine:
        assert tokenizer("The river")["input_ids"] == list(engine.tokenize("The river"))


@pytest.mark.parametrize("name", WITH_EXPERTS)
def test_experts_are_compressed_while_loading(name, tmp_path):
    before = sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(MODELS / name).parameters()
                 if p.dim() > 2 and p.shape[1] > 1)
    assert before > 0
    model = load(MODELS / name, quantization_config=WalshConfig(type="tq4", fast=True))
    assert any(isinstance(m, Experts) for m in model.modules())
    assert not any(p.dim() > 2 and p.shape[1] > 1 for p in model.parameters())
    plain = logits(load(MODELS / name))
    expected = logits(model)
    assert difference(expected, plain) < 0.6  # small random models lose more than others
    model.save_pretrained(tmp_path)
    assert np.array_equal(logits(load(tmp_path)), expected)


@pytest.mark.parametrize("name", ["qwen3-moe-tiny", "qwen35-tiny", "phi3-tiny", "llama31-tiny",
                                  "mixtral-tiny", "llama4-tiny", "olmoe-tiny"])
def test_walsh_reads_what_transformers_has_saved(name, tmp_path):
    model = load(MODELS / name, quantization_config=WalshConfig(type="tq4", fast=True))
    model.save_pretrained(tmp_path)
    add_tokenizer(tmp_path)
    assert difference(engine_logits(tmp_path), logits(model)) < 1e-3


def test_recurrent_layers_are_quantized_but_their_gates(tmp_path):
    model = load(MODELS / "qwen35-tiny", quantization_config=WalshConfig(type="tq3", fast=True))
    coded = {name.rpartition(".")[2] for name, m in model.named_modules()
             if isinstance(m, walsh.torch.Linear)}
    plain = {name.rpartition(".")[2] for name, m in model.named_modules()
             if type(m) is torch.nn.Linear}
    assert {"in_proj_qkv", "in_proj_z", "out_proj", "q_proj", "down_proj"} <= coded
    assert plain == {"in_proj_a", "in_proj_b", "lm_head"}


def test_rules_take_all_experts_of_a_layer(tmp_path):
    source = MODELS / "qwen3-moe-tiny"
    model = load(source, quantization_config=WalshConfig(
        type="tq4", fast=True, ignore=["re:layers\\.0\\.mlp\\.experts"]))
    kinds = [type(m).__name__ for name, m in model.named_modules() if name.endswith("experts")]
    assert kinds == ["Qwen3MoeExperts", "Experts"]
    with pytest.raises(walsh.Error, match="all of its experts"):
        load(source, quantization_config=WalshConfig(
            type="tq4", fast=True, ignore=["re:experts\\.1\\."]))


def test_a_folder_that_lacks_experts_is_refused(tmp_path):
    walsh.quantize(MODELS / "qwen3-moe-tiny", tmp_path / "m", type="tq4", fast=True,
                   output_format="hf")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    modules = config["quantization_config"]["modules"]
    del modules["model.layers.1.mlp.experts.2.up_proj"]
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    with pytest.raises(walsh.Error, match="layers of experts"):
        load(tmp_path / "m")


def test_the_command_serves_every_use_of_a_folder(command, tiny_model, tmp_path):
    folder = str(tmp_path / "m")

    def run(*arguments, status=0):
        done = subprocess.run([command, *arguments], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == status, done.stderr
        return done

    run("quantize", str(tiny_model), folder, "--type", "tq3", "--effort", "fast",
        "--output-format", "hf")
    listed = json.loads(run("inspect", folder, "--json", "--check").stdout)
    types = {t["name"]: t["type"] for t in listed["tensors"]}
    assert types["model.layers.0.mlp.up_proj.weight"] == "tq3"
    assert types["model.norm.weight"] == "bf16"
    assert "river" in run("run", folder, "--raw", "-p", "The river", "-n", "4",
                          "--device", "cpu").stdout
    again = run("quantize", folder, str(tmp_path / "n.gguf"), "--type", "tq3", status=2)
    assert "coded already" in again.stderr
    over = run("quantize", str(tiny_model), folder, "--type", "tq3", "--output-format", "hf",
               status=2)
    assert "exists already" in over.stderr
    run("quantize", str(tiny_model), folder, "--type", "tq3", "--shard-size", "1GiB", status=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]

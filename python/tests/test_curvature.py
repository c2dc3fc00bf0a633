"""Tests the measurement of curvature against one backward pass through the whole model."""
import json
import pathlib
import shutil

import pytest

import walsh

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM  # noqa: E402

import walsh._curvature_store as store  # noqa: E402
from walsh._curvature_model import load_model, text_windows  # noqa: E402
from walsh._experts import quantize_experts  # noqa: E402
from walsh.curvature import main, measure  # noqa: E402

TEXT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "code.md"
TOKENS = 1024


@pytest.fixture(scope="module")
def measured(tiny_model, tmp_path_factory):
    """Measures the embedded model on two windows."""
    out = tmp_path_factory.mktemp("curvature") / "out"
    measure(str(tiny_model), str(TEXT), str(out), tokens=TOKENS, device="cpu", batch=1)
    return out


@pytest.fixture(scope="module")
def mixture(tiny_model, tmp_path_factory):
    """Makes a small random model with experts, with the embedded one's tokenizer."""
    folder = tmp_path_factory.mktemp("mixture")
    torch.manual_seed(1)
    config = Qwen3MoeConfig(vocab_size=8192, hidden_size=32, intermediate_size=48,
                            moe_intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                            num_key_value_heads=1, head_dim=16, num_experts=4,
                            num_experts_per_tok=2, decoder_sparse_step=1,
                            max_position_embeddings=512, initializer_range=0.3)
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_model / name, folder / name)
    return folder


def read(folder):
    """Returns what the files say of every matrix, and the moments [rows, rows]."""
    from safetensors import safe_open

    about, moments = {}, {}
    for path in sorted(folder.glob("layer-*.safetensors")):
        with safe_open(path, "pt") as file:
            head = json.loads(file.metadata()[store.KEY])
            about.update(head["matrices"])
            for name in file.keys():
                rows = head["matrices"][name]["rows"]
                full = torch.zeros(rows, rows)
                where = torch.triu_indices(rows, rows)
                full[where[0], where[1]] = file.get_tensor(name)
                moments[name] = full + full.triu(1).T
    return about, moments


def whole_pass(folder, linear_names, model=None):
    """Returns the same moments from hooks of linear layers and one backward pass for each
    window."""
    model = model or AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.requires_grad_(False)
    windows = text_windows(str(folder), TEXT.read_text(), TOKENS, 512)
    sums, tokens = {}, {}

    def hook(name):
        def add(gradients):
            g = gradients.flatten(0, -2)
            sums[name] = sums.get(name, 0) + g.T @ g
            tokens[name] = tokens.get(name, 0) + len(g)
        return lambda module, inputs, output: output.register_hook(add) and None

    for name in linear_names:
        model.get_submodule(name.removesuffix(".weight")).register_forward_hook(hook(name))
    for number, window in enumerate(windows):
        embedded = model.get_input_embeddings()(window[None]).requires_grad_(True)
        logits = model(inputs_embeds=embedded, use_cache=False).logits[0]
        draw = torch.Generator().manual_seed(number)
        labels = torch.multinomial(logits.detach().softmax(-1), 1, generator=draw)[:, 0]
        torch.nn.functional.cross_entropy(logits, labels, reduction="sum").backward()
    return {name: sums[name] / tokens[name] for name in sums}, tokens


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        error = (found[name] - expected[name]).norm() / expected[name].norm()
        assert error < 1e-3, name


def test_layer_by_layer_gives_the_moments_of_one_pass(tiny_model, measured):
    about, moments = read(measured)
    names = [n for n in about if n.startswith("model.layers.")]
    assert len(names) == 6 * 7
    expected, _ = whole_pass(tiny_model, names)
    assert_close(moments, expected)
    assert {a["tokens"] for a in about.values()} == {TOKENS}
    assert not (measured / "work").exists()


def test_the_model_writes_a_text_that_quantize_reads(tiny_model, tmp_path):
    out = tmp_path / "out"
    measure(str(tiny_model), "self", str(out), tokens=600, device="cpu", batch=1)
    text = (out / "self.txt").read_text()
    assert len(text) > 500
    about, _ = read(out)
    assert {a["tokens"] for a in about.values()} == {512}
    options = {"type": "tq3", "calibrate_tokens": 512, "curvature": str(out)}
    walsh.quantize(str(tiny_model), str(tmp_path / "own.gguf"), calibrate="self", **options)
    walsh.quantize(str(tiny_model), str(tmp_path / "read.gguf"), calibrate=str(out / "self.txt"),
                   **options)
    own, given = (walsh.inspect(str(tmp_path / name)) for name in ("own.gguf", "read.gguf"))
    assert [t.checksum for t in own.tensors] == [t.checksum for t in given.tensors]


def test_experts_are_measured_by_the_tokens_that_reached_them(mixture, tmp_path):
    measure(str(mixture), str(TEXT), str(tmp_path / "out"), tokens=TOKENS, device="cpu", batch=2)
    about, moments = read(tmp_path / "out")
    names = [n for n in about if ".experts." in n]
    assert len(names) == 2 * 4 * 3
    assert "model.layers.1.mlp.experts.3.up_proj.weight" in names

    def linear(key, weight):
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        layer.weight = torch.nn.Parameter(weight.float().clone(), requires_grad=False)
        return layer

    model = load_model(str(mixture)).float()
    for layer in model.model.layers:
        layer.mlp.experts = quantize_experts(layer.mlp.experts, linear)
    expected, tokens = whole_pass(mixture, names, model)
    assert_close({n: moments[n] for n in names if n in moments}, expected)
    assert {n: about[n]["tokens"] for n in names} == {n: tokens.get(n, 0) for n in names}


def test_an_interrupted_run_goes_on_and_writes_the_same(tiny_model, measured, tmp_path,
                                                        monkeypatch, capsys):
    arguments = [str(tiny_model), "--text", str(TEXT), "--out", str(tmp_path / "out"), "--tokens",
                 str(TOKENS), "--device", "cpu", "--batch", "1"]
    write = store.Store.write_layer

    def stop_at_three(self, index, *rest):
        if index == 3:
            raise KeyboardInterrupt
        write(self, index, *rest)

    monkeypatch.setattr(store.Store, "write_layer", stop_at_three)
    assert main(arguments) == 130
    monkeypatch.undo()
    assert main(arguments) == 2
    assert "--resume goes on with it" in capsys.readouterr().err
    assert main([*arguments, "--resume", "--seed", "5"]) == 2
    assert "another seed: 0, not 5" in capsys.readouterr().err
    assert main([*arguments, "--resume"]) == 0
    assert "forward" not in capsys.readouterr().err
    for path in measured.glob("*.safetensors"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


def test_what_cannot_be_measured_is_refused_by_name(tiny_model, tmp_path, capsys):
    def status(model=tiny_model, text=TEXT, out=tmp_path / "out", *more):
        result = main([str(model), "--text", str(text), "--out", str(out), *more])
        return result, capsys.readouterr().err

    short = tmp_path / "short.txt"
    short.write_text("A few words.")
    code, error = status(text=short)
    assert code == 2 and "--text: it has" in error
    code, error = status(text=tmp_path / "absent.txt")
    assert code == 5 and "absent.txt" in error
    short.write_bytes(b"\xff\xfe")
    code, error = status(text=short)
    assert code == 3 and "UTF-8" in error
    code, error = status(model=tmp_path)
    assert code == 3 and "no safetensors" in error
    code, error = status(out=tmp_path)
    assert code == 2 and "something in this folder" in error
    code, error = status(tiny_model, TEXT, tmp_path / "out", "--resume")
    assert code == 2 and "no interrupted run" in error
    assert not (tmp_path / "out").exists()


def test_the_checksum_of_quantized_values_is_that_of_their_scales_too(tmp_path):
    from safetensors.torch import save_file

    blocks = torch.full((2, 4, 1, 16), 0x21, dtype=torch.uint8)
    scales = torch.arange(0x7f, 0x87, dtype=torch.uint8).view(2, 4, 1)
    plain = torch.ones(2, 2)
    save_file({"all_blocks": blocks, "all_scales": scales, "b.weight": plain},
              tmp_path / "model.safetensors")
    tensors = store.CheckpointTensors(str(tmp_path))
    own, other = (store.text_checksum(t.numpy().tobytes()) for t in (blocks, scales))
    assert tensors.checksum("all_blocks") == store.text_checksum((own + other).encode())
    assert tensors.checksum("b.weight") == store.text_checksum(plain.numpy().tobytes())


def test_the_quantizer_uses_it_and_refuses_that_of_another_text(tiny_model, measured, tmp_path):
    options = dict(type="tq3", fast=True, calibrate=TEXT, calibrate_tokens=TOKENS)
    walsh.quantize(tiny_model, tmp_path / "one.gguf", **options)
    walsh.quantize(tiny_model, tmp_path / "two.gguf", curvature=measured, **options)
    recipe = walsh.inspect(tmp_path / "two.gguf").recipe
    assert len(recipe["calibration"]["curvature"]) == 32
    assert (tmp_path / "one.gguf").read_bytes() != (tmp_path / "two.gguf").read_bytes()
    other = tmp_path / "other.txt"
    other.write_text(TEXT.read_text() + "More.")
    with pytest.raises(walsh.Error, match="another text") as refused:
        walsh.quantize(tiny_model, tmp_path / "a.gguf", curvature=measured,
                       **{**options, "calibrate": other})
    assert refused.value.code == "bad_input"

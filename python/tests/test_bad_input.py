"""What makes no sense is an exception, whatever it is: never a crash."""
import copy
import json
import pickle
import random
import shutil
import threading

import numpy as np
import pytest

import walsh


def refused(call, *codes):
    with pytest.raises(walsh.Error) as caught:
        call()
    assert caught.value.code in codes, caught.value
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("tokens", [
    np.zeros((2, 2), np.int32), np.zeros(3, np.float32), np.zeros(2, bool), "text", None, [1.5],
    [2**40], [-1], np.broadcast_to(np.int32(1), 2**40), np.array([10**6], np.int64), [[1]], [None]])
def test_tokens(model, tokens):
    with pytest.raises((walsh.Error, TypeError, ValueError)):
        model.logits(tokens)


def test_arrays_of_any_layout_and_read_only_ones(model):
    ids = np.array([11, 205, 77, 1024], np.int32)
    expected = model.logits(ids)
    wide = np.zeros((4, 3), np.int32)
    wide[:, 1] = ids
    frozen = ids.copy()
    frozen.flags.writeable = False
    for same in (wide[:, 1], ids[::-1][::-1], frozen, ids.astype(">i4"), ids.astype(np.int64)):
        assert np.array_equal(model.logits(same), expected)


NO_FLAG = [0, 1, None, "yes", np.zeros(2, bool)]
NO_NUMBER = [1.5, "1", True, [1], 2**40, float("nan")]


def test_values_of_other_types_are_named(model, tiny_model):
    for value in NO_FLAG:
        refused(lambda: model.tokenize("a", add_special=value), "usage")
        refused(lambda: model.detokenize([5], skip_special=value), "usage")
        refused(lambda: model.chat_prompt([], add_generation_prompt=value), "usage")
        refused(lambda: walsh.inspect(tiny_model, check=value), "usage")
    for value in NO_NUMBER:
        refused(lambda: model.logits([1, 2], first=value), "usage")
        refused(lambda: model.logprobs([1, 2], first=value), "usage")
        refused(lambda: model.perplexity("a" * 50, ctx=value), "usage")
        refused(lambda: model.generate_batch(["a"], running=value), "usage")
        refused(lambda: walsh.quantize("absent", "out", threads=value), "usage")
    for value in (0, "f", [print]):
        refused(lambda: model.generate_batch(["a"], progress=value), "usage")
        refused(lambda: walsh.Model(tiny_model, progress=value), "usage")
        refused(lambda: walsh.quantize("absent", "out", progress=value), "usage")
    for value in (0, [("type", "tq4")], {1: 2}, {"colour": 1}, {"type": None}):
        refused(lambda: walsh.Model(tiny_model, quantize=value), "usage")
    for value in (None, 3, "model", walsh.Model):
        refused(lambda: model.kl_divergence(value, "a text"), "usage")
    for value in (None, 3, ["a"], "a\0b", "\ud800"):
        refused(lambda: walsh.inspect(value), "usage", "io")
        refused(lambda: walsh.Model(value), "usage", "io")
        refused(lambda: walsh.quantize(value, "out"), "usage", "io")
    for value in ("re:x", "lm_head", 3, [1], [None]):
        refused(lambda: walsh.quantize("absent", "out", ignore=value), "usage")
        refused(lambda: walsh.quantize("absent", "out", overrides=value), "usage")
    refused(lambda: walsh.quantize("absent", "out", bits_per_weight="4"), "usage")


def test_layers_on_a_gpu(tiny_model):
    refused(lambda: walsh.Model(tiny_model, device="cpu", gpu_layers=1), "usage")
    refused(lambda: walsh.Model(tiny_model, gpu_layers=-1), "usage")
    refused(lambda: walsh.Model(tiny_model, gpu_layers=0, cpu_experts=1), "usage")
    with walsh.Model(tiny_model, gpu_layers=0) as opened:
        assert opened.device == "cpu"


def test_a_model_that_is_closed_while_others_use_it(tiny_model):
    opened = walsh.Model(tiny_model, device="cpu")
    started, wrong = threading.Event(), []

    def work():
        try:
            for i in range(200):
                opened.logits([1 + i % 7, 2, 3])
                started.set()
        except walsh.Error as error:
            if error.code != "usage":
                wrong.append(error)
        except BaseException as error:  # noqa: B902 - what else comes is the fault
            wrong.append(error)
        finally:
            started.set()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    started.wait()
    opened.close()
    for thread in threads:
        thread.join()
    assert not wrong


def test_files_that_are_none(tiny_model, tmp_path):
    random.seed(5)
    walsh.quantize(tiny_model, tmp_path / "good.gguf", type="tq3", fast=True)
    good = (tmp_path / "good.gguf").read_bytes()
    path = tmp_path / "bad.gguf"
    for _ in range(20):
        content = bytearray(good[:random.randrange(1, 200_000)])
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        path.write_bytes(content)
        refused(lambda: walsh.Model(path), "bad_input")
        refused(lambda: walsh.inspect(path), "bad_input")
    path.write_bytes(b"")
    refused(lambda: walsh.Model(path), "bad_input")
    refused(lambda: walsh.inspect(tmp_path), "bad_input", "io")


def test_folders_whose_config_was_changed(tiny_model, tmp_path):
    folder = tmp_path / "folder"
    walsh.quantize(tiny_model, folder, type="tq3", fast=True, output_format="hf")
    assert walsh.inspect(folder).recipe["type"] == "tq3"
    config = json.loads((folder / "config.json").read_text())
    own = config["quantization_config"]
    name = "model.layers.0.mlp.up_proj"
    good = own["modules"][name]
    for bad in ({}, None, 3, {**good, "type": "tq4"}, {**good, "shape": [0, 0]},
                {**good, "shape": [2**31, 2**31]}, {**good, "rotation": []},
                {**good, "rotation": [["qr", 10**9, 0, True]]}, {**good, "type": 7}):
        own["modules"][name] = bad
        (folder / "config.json").write_text(json.dumps(config))
        refused(lambda: walsh.Model(folder), "bad_input")
    own["modules"][name] = good
    (folder / "config.json").write_text(json.dumps(config))
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    refused(lambda: walsh.Model(folder), "bad_input")


def test_numbers_below_their_meaning(model, tiny_model, tmp_path):
    for options in ({"threads": -1}, {"cache_window": -3}, {"context": -1}):
        refused(lambda: walsh.Model(tiny_model, device="cpu", **options), "usage")
    for options in ({"max_tokens": -2}, {"top_k": -2}, {"repeat_last_n": -5}, {"temperature": -1}):
        refused(lambda: model.generate("The", **options), "usage")
    for options in ({"threads": -1}, {"calibrate_tokens": -1}):
        refused(lambda: walsh.quantize(tiny_model, tmp_path / "out", **options), "usage")


def test_options_of_the_quantizer(tiny_model, tmp_path):
    out = tmp_path / "out"
    for options in ({"type": "tq9"}, {"output_format": "onnx"}, {"block": 7}, {"rotation": "spin"},
                    {"overrides": ["x"]}, {"ignore": ["re:("]}, {"rotate": "residual",
                                                                 "output_format": "hf"},
                    {"embed_type": "q8_0", "output_format": "hf"}):
        refused(lambda: walsh.quantize(tiny_model, out, **options), "usage")
    for options in ({"seed": -1}, {"seed": "x"}, {"type": 3}, {"overrides": [3]}, {"block": 2**40}):
        with pytest.raises((walsh.Error, TypeError)):
            walsh.quantize(tiny_model, out, **options)
    out.mkdir()
    refused(lambda: walsh.quantize(tiny_model, out, output_format="hf"), "usage")
    assert not any(out.iterdir())


class TestTensors:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    @pytest.fixture
    def layer(self):
        import walsh.torch

        return walsh.torch.Linear.from_linear(self.torch.nn.Linear(128, 64), type="tq4")

    def test_inputs(self, layer):
        torch = self.torch
        for x in (torch.zeros(2, 127), torch.zeros(()), torch.zeros(2, 128, dtype=torch.int32),
                  torch.zeros(2, 128, dtype=torch.complex64),
                  torch.zeros(2, 128, dtype=torch.float64)):
            refused(lambda: layer(x), "usage")
        assert layer(torch.zeros(0, 128)).shape == (0, 64)
        assert layer(torch.zeros(2, 0, 128)).shape == (2, 0, 64)
        layer.bias = None
        assert layer(torch.zeros(3, 128, device="meta")).is_meta
        with pytest.raises((walsh.Error, AttributeError, TypeError)):
            layer(np.zeros((1, 128), np.float32))

    def test_views_are_read_as_they_are(self, layer):
        torch = self.torch
        x = torch.randn(6, 256)
        for view in (x[::2, :128], x.T[:128].T, x[:, 1:129], x[:1, :128].expand(4, 128),
                     x[:, ::2], x[:, :128].flip(1)):
            assert torch.equal(layer(view), layer(view.contiguous()))

    def test_tensors_without_memory(self, layer):
        torch = self.torch
        x = torch.zeros(3, 128)
        x.untyped_storage().resize_(x.untyped_storage().nbytes() - 4)
        refused(lambda: layer(x), "usage")
        refused(lambda: type(layer)(128, 3, type="tq4").encode(x), "usage")
        x.untyped_storage().resize_(0)
        refused(lambda: layer(x), "usage")
        empty = type(layer)(128, 64, type="tq4")
        empty.codes.untyped_storage().resize_(0)
        refused(lambda: empty(torch.zeros(1, 128)), "usage")

    def test_another_default_device(self, layer):
        torch = self.torch
        x = torch.randn(3, 128)
        expected, stored = layer(x), layer.stored()
        with torch.device("meta"):
            assert torch.equal(layer(x), expected) and torch.equal(layer.plain(x), layer.plain(x))
            assert all(torch.equal(stored[name], array) for name, array in layer.stored().items())

    def test_operators_take_what_fits_their_layer(self, layer):
        import walsh._packed

        torch = self.torch
        x, number = torch.randn(3, 128), layer.layer
        linear, merged = torch.ops.walsh.linear, torch.ops.walsh.linear_merged
        gradient, experts = torch.ops.walsh.linear_input_grad, torch.ops.walsh.experts
        for rows in (3, 6400, -1, 0):
            refused(lambda: linear(x, number, rows, False), "usage")
        refused(lambda: linear(x[:, :64], number, 64, False), "usage")
        refused(lambda: gradient(x, number, 128), "usage")
        refused(lambda: gradient(torch.zeros(3, 64), number, 10**6), "usage")
        for table, rows in ([[number, 6400, 0]], 6400), ([[number, 3, 0]], 3), ([1, 2], 64), (
                [[float(number), 64, 0]], 64), ([[number, -64, 0], [number, 128, 0]], 64), (
                [[number, 64, 0]], 128):
            refused(lambda: merged(x, torch.tensor(table), rows), "usage")
        table = walsh._packed.expert_table([[layer], [layer]])
        weight, ids = torch.ones(3, 1), torch.zeros(3, 1, dtype=torch.int64)
        for wrong in ((weight[:2], ids, table, "silu"), (weight, ids + 2, table, "silu"),
                      (weight, ids, table, "tanh"), (weight, ids, table[0], "silu"),
                      (weight, ids, table, "silu")):
            refused(lambda: experts(x, *wrong[:3], wrong[2], wrong[3]), "usage")

    def test_what_is_not_finite_stays_in_its_row(self, layer):
        torch = self.torch
        x = torch.randn(3, 128)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for value in (float("nan"), float("inf")):
                bad = x.to(dtype)
                bad[1, 5] = value
                good, found = layer(x.to(dtype)), layer(bad)
                assert torch.equal(found[::2], good[::2])
                assert not torch.isfinite(found[1]).all()

    def test_weights(self):
        import walsh.torch

        torch = self.torch
        layer = walsh.torch.Linear(128, 64, type="tq4")
        for weight in (torch.zeros(64, 127), torch.zeros(64), torch.zeros(64, 128, 1),
                       torch.zeros(64, 128, dtype=torch.int8)):
            refused(lambda: layer.encode(weight), "usage")
        refused(lambda: layer.encode(torch.full((64, 128), float("nan"))), "bad_input")
        with pytest.raises((walsh.Error, RuntimeError, NotImplementedError)):
            layer.encode(torch.zeros(64, 128, device="meta"))
        refused(lambda: walsh.torch.Linear(128, 64, type="tq4", device="meta").pack(), "usage")

    def test_state_dicts(self, layer):
        import walsh.torch

        torch = self.torch
        state = layer.state_dict()
        for name, bad in (("codes", torch.zeros(3, dtype=torch.uint8)),
                          ("codes", torch.zeros(64, 64, dtype=torch.float32)),
                          ("scales", torch.zeros(64, 1, dtype=torch.uint8))):
            other = walsh.torch.Linear(128, 64, type="tq4")
            with pytest.raises((walsh.Error, RuntimeError)):
                other.load_state_dict({**state, name: bad})
                other(torch.zeros(1, 128))

    def test_forms(self):
        import walsh.torch

        for rotations in ([], [["hadamard", 100, 1, True]], [["spin", 128, 1, True]],
                          [["hadamard", 128, 1, True]] * 2):
            refused(lambda: walsh.torch.Linear(128, 64, type="tq4", rotations=rotations),
                    "bad_input", "usage")
        for sizes in ((0, 4), (4, 0), (-1, 4), (2**40, 4)):
            with pytest.raises((walsh.Error, RuntimeError, TypeError)):
                walsh.torch.Linear(*sizes, type="tq4")

    def test_a_layer_is_freed_while_others_multiply(self):
        import walsh.torch

        torch = self.torch
        plain, x, wrong = torch.nn.Linear(128, 64), torch.randn(4, 128), []

        def work():
            try:
                for _ in range(30):
                    walsh.torch.Linear.from_linear(plain, type="q8_0")(x)
            except BaseException as error:  # noqa: B902 - what else comes is the fault
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


class TestFolders:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    WRONG_FORMS = [None, 3, "tq4", {}, {"type": 7, "rotation": []}, {"type": "tq4"},
                   {"type": "tq4", "rotation": None}, {"type": "tq4", "rotation": [1]},
                   {"type": "tq4", "rotation": [["hadamard", "x", 1, True]]},
                   {"type": "tq4", "rotation": [["hadamard", 128, -1, True]]},
                   {"type": "tq4", "rotation": [["hadamard", 128, 1, True]] * 2},
                   {"type": "tq9", "rotation": [["hadamard", 128, 1, True]]}]

    def net(self):
        nn = self.torch.nn
        return nn.Sequential(nn.Linear(128, 64), nn.Linear(64, 32))

    @pytest.fixture
    def saved(self, tmp_path):
        import walsh.torch as wt

        config = wt.TurboQuantConfig()
        wt.save_quantized(wt.quantize_model(self.net(), config), config, tmp_path)
        wt.load_quantized(self.net(), tmp_path)
        return tmp_path

    def test_forms_of_saved_layers(self, saved):
        import walsh.torch as wt

        path = saved / wt.CONFIG_NAME
        good = path.read_text()
        for form in self.WRONG_FORMS:
            config = json.loads(good)
            config["modules"]["0"] = form
            path.write_text(json.dumps(config))
            refused(lambda: wt.load_quantized(self.net(), saved), "bad_input", "usage")
        for text in ("[]", "{", '{"modules": [1]}', '{"modules": null}', "3"):
            path.write_text(text)
            refused(lambda: wt.load_quantized(self.net(), saved), "bad_input")

    def test_weights_of_saved_layers(self, saved):
        import walsh.torch as wt

        path = saved / wt.WEIGHTS_NAME
        good = path.read_bytes()
        for size in (0, 5, 50, len(good) - 1):
            path.write_bytes(good[:size])
            refused(lambda: wt.load_quantized(self.net(), saved), "bad_input")
        path.unlink()
        refused(lambda: wt.load_quantized(self.net(), saved), "io")
        path.write_bytes(good)
        config = json.loads((saved / wt.CONFIG_NAME).read_text())
        config["modules"]["0"]["type"] = "tq3"  # whose codes are smaller
        (saved / wt.CONFIG_NAME).write_text(json.dumps(config))
        refused(lambda: wt.load_quantized(self.net(), saved), "bad_input")

    def test_configs_of_transformers(self, tiny_model, tmp_path):
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        from walsh.transformers import WalshConfig

        for options in ({"type": None}, {"type": "tq9"}, {"type": "bf16"}, {"seed": -1},
                        {"seed": "x"}, {"ignore": "lm_head"}, {"ignore": [3]}, {"ignore": ["re:("]},
                        {"overrides": ["x"]}, {"overrides": ["re:x=tq9"]}, {"overrides": 3},
                        {"block": 7}, {"rotation": None}, {"fast": "x"}, {"bits": 3}):
            refused(lambda: WalshConfig(**options), "usage")
        folder = tmp_path / "folder"
        walsh.quantize(tiny_model, folder, type="tq4", fast=True, output_format="hf")
        path = folder / "config.json"
        good = path.read_text()
        name = "model.layers.0.mlp.up_proj"
        form = json.loads(good)["quantization_config"]["modules"][name]
        for wrong in [*self.WRONG_FORMS, {**form, "shape": [1, 2]}, {**form, "shape": "x"}]:
            config = json.loads(good)
            config["quantization_config"]["modules"][name] = wrong
            path.write_text(json.dumps(config))
            refused(lambda: transformers.AutoModelForCausalLM.from_pretrained(folder),
                    "bad_input", "usage")


def test_nothing_is_left_of_what_failed(tiny_model, tmp_path):
    shutil.copytree(tiny_model, tmp_path / "model")
    weights = next((tmp_path / "model").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-10])
    before = sorted(p.name for p in tmp_path.iterdir())
    for kind in ("gguf", "hf"):
        refused(lambda: walsh.quantize(tmp_path / "model", tmp_path / "out", output_format=kind),
                "bad_input")
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_prompts_of_other_types_are_named(model):
    for prompt in (b"The river", ["The", "river"], ("The",)):
        with pytest.raises(walsh.Error, match="expected a text or token ids"):
            model.generate(prompt)


def test_models_are_not_sent_to_other_processes(model):
    for send in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="open its path there"):
            send(model)

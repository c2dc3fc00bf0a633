"""Tests walsh.torch: quantized layers on the CPU."""
import copy
import gc
import pickle
import threading

import numpy as np
import pytest

import walsh

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

import walsh.torch as wt  # noqa: E402

TYPES = [f.name for f in walsh.formats() if f.name not in ("f32", "f16", "bf16")]
TYPES += ["tq2:g32", "tq4:g64", "tq3+2:g32"]


def relative(a, b):
    return float((a - b).norm() / b.norm())


def weights(rows, cols, seed=1):
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(seed))


def plain_layer(rows, cols, bias=True, dtype=torch.float32):
    layer = nn.Linear(cols, rows, bias).to(dtype)
    with torch.no_grad():
        layer.weight.copy_(weights(rows, cols))
    return layer


def refused(code, call):
    with pytest.raises(walsh.Error) as caught:
        call()
    assert caught.value.code == code, caught.value
    return str(caught.value)


@pytest.mark.parametrize("kind", TYPES)
def test_products_are_those_of_the_decoded_weights(kind):
    linear = plain_layer(40, 288)
    layer = wt.Linear.from_linear(linear, type=kind, fast=True)
    x = weights(5, 288, seed=2)
    plain = layer.plain(x)
    layer.exact = True
    assert relative(layer(x), plain) < 1e-5
    layer.exact = False
    assert relative(layer(x), plain) < 0.02
    bound = {f.name: f.bound for f in walsh.formats()}[kind.partition(":g")[0]]
    error = relative(layer.dequantize(), linear.weight.detach())
    assert abs(error**2 - layer.nmse) < 1e-4
    assert error < 1.3 * max(bound, 1e-4)**0.5


@pytest.mark.parametrize("kind", TYPES)
def test_stored_arrays_come_back_bit_by_bit(kind):
    layer = wt.Linear.from_linear(plain_layer(24, 160), type=kind, fast=True)
    state = {name: array.clone() for name, array in layer.state_dict().items()}
    assert sum(a.numel() for n, a in state.items() if n != "bias") == layer.stored_bytes
    other = wt.Linear(160, 24, type=layer.format)
    other.load_state_dict(state)
    assert not other.layer
    x = weights(3, 160, seed=3)
    assert torch.equal(other(x), layer(x)) and other.layer
    for name, array in other.state_dict().items():
        assert torch.equal(array, state[name]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_types_shapes_and_strides_of_the_input(dtype):
    layer = wt.Linear.from_linear(plain_layer(48, 256, dtype=dtype), type="tq4")
    x = weights(6, 512, seed=4).to(dtype)
    expected = layer(x[:, :256].contiguous())
    assert expected.dtype == dtype
    assert torch.equal(layer(x[:, :256]), expected)  # rows farther apart
    assert torch.equal(layer(x[:, :256].t().contiguous().t()), expected)  # columns apart
    assert torch.equal(layer(x[:, :256].reshape(2, 3, 256)).reshape(6, 48), expected)
    assert torch.equal(layer(x[0, :256]), expected[0])
    assert layer(x[:0, :256]).shape == (0, 48)
    many = weights(600, 256, seed=5).to(dtype)
    assert torch.equal(layer(many)[:6], layer(many[:6]))


def test_what_makes_no_sense_is_refused():
    layer = wt.Linear.from_linear(plain_layer(16, 64), type="tq3")
    refused("usage", lambda: layer(torch.zeros(2, 63)))
    refused("usage", lambda: layer(torch.tensor(1.0)))
    refused("usage", lambda: layer(torch.zeros(2, 64, dtype=torch.float64)))
    refused("usage", lambda: layer(torch.zeros(2, 64, dtype=torch.int64)))
    refused("usage", lambda: wt.Linear(64, 16, type="tq9"))
    refused("usage", lambda: wt.Linear(64, 16, type="bf16"))
    refused("usage", lambda: wt.Linear(64, 16, rotation="spin"))
    refused("usage", lambda: wt.Linear(64, 16, block=48))
    refused("usage", lambda: wt.Linear(64, 0))
    refused("usage", lambda: wt.Linear(64, 16, device="meta")(torch.zeros(1, 64)))
    refused("bad_input", lambda: layer.encode(torch.full((16, 64), float("nan"))))
    refused("usage", lambda: layer.encode(torch.zeros(16, 65)))
    refused("usage", lambda: torch.ops.walsh.linear(torch.zeros(1, 64), 10**9, 16, False))
    for group in (0, 16, 48, 256, True, 64.0, "64"):
        refused("usage", lambda: wt.TurboQuantConfig(group_size=group).format_name)
    refused("usage", lambda: wt.TurboQuantConfig(type="itq3_s", group_size=64).format_name)
    bad = layer.state_dict()
    bad["codes"] = bad["codes"][:, :-1]
    with pytest.raises(RuntimeError):
        wt.Linear(64, 16, type="tq3").load_state_dict(bad)


def test_values_of_other_types_are_named(tmp_path):
    layer = wt.Linear.from_linear(plain_layer(16, 64), type="tq4")
    x = torch.zeros(2, 64)
    for value in (None, [0.0] * 64, np.zeros((2, 64), np.float32), x.to_sparse(),
                  torch.nested.nested_tensor([x, x])):
        refused("usage", lambda: layer(value))
        refused("usage", lambda: layer.encode(value))
    for sizes in (("a", 32), (64.0, 32), (64, None), (True, 32), (-1, 32), (64, 2**40)):
        refused("usage", lambda: wt.Linear(*sizes))
    for options in ({"dtype": "float32"}, {"dtype": torch.int8}, {"shape_gain": 1}, {"fast": 0}):
        refused("usage", lambda: wt.Linear(64, 16, **options))
    for value in (None, 3, nn.ReLU()):
        refused("usage", lambda: wt.Linear.from_linear(value))
    for value in (None, "model", [layer]):
        refused("usage", lambda: wt.quantize_model(value))
        refused("usage", lambda: wt.dequantize_model(value))
        refused("usage", lambda: wt.save_quantized(value, wt.TurboQuantConfig(), tmp_path))
    refused("usage", lambda: wt.quantize_model(nn.Sequential(), {"bit_width": 4}))
    refused("usage", lambda: wt.load_quantized(3, tmp_path))
    (tmp_path / "file").write_text("")
    refused("io", lambda: wt.save_quantized(layer, wt.TurboQuantConfig(), tmp_path / "file"))
    for value in (5, "4", True, None):
        refused("usage", lambda: wt.TurboQuantConfig(bit_width=value).format_name)
    for value in (-1, 1.5, "1", None, True, 10**9):
        refused("usage", lambda: wt.set_threads(value))


def test_a_state_that_cannot_be_taken_leaves_the_layer_as_it_was():
    layer = wt.Linear.from_linear(plain_layer(16, 64), type="tq4")
    x = weights(2, 64)
    expected, state = layer(x), layer.state_dict()
    refused("bad_input", lambda: layer.load_state_dict({**state, "codes": state["codes"].float()}))
    assert torch.equal(layer(x), expected)
    with pytest.raises(RuntimeError, match='"codes", "scales"'):
        layer.load_state_dict({"bias": state["bias"]})
    assert layer.load_state_dict({"bias": state["bias"]}, strict=False).missing_keys == [
        "codes", "scales"]
    assert torch.equal(layer(x), expected)
    assert torch.equal(layer(input=x), expected)  # nn.Linear calls it so


@pytest.mark.parametrize("kind", ["tc2:hq", "tc2.5:hq", "tc3:h:L14", "tc4:hq"])
def test_formats_without_gpu_kernels_are_refused_before_anything_moves(kind):
    packed = wt.Linear.from_linear(plain_layer(16, 64), type=kind)
    assert packed.layer
    for layer in (packed, copy.deepcopy(packed), wt.Linear(64, 16, type=kind)):
        with FakeTensorMode(allow_non_fake_inputs=True):  # as if there was a GPU
            for move in (layer.cuda, lambda: nn.Sequential(layer).to("cuda:1", torch.float16)):
                text = refused("usage", move)
                assert f"there are no GPU kernels for {kind}" in text, text
                assert layer.device.type == "cpu" and layer.bias.device.type == "cpu"
                assert layer.bias.dtype == torch.float32
            refused("usage", lambda: wt.Linear(64, 16, type=kind, device="cuda"))
            refused("usage", lambda: wt.Linear(64, 16, type=kind).encode(
                torch.zeros(16, 64, device="cuda")))
    x = weights(2, 64)
    assert torch.equal(packed(x), copy.deepcopy(packed)(x))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_layers_without_a_gpu_to_go_to_say_why():
    for layer in (wt.Linear(64, 16), wt.Linear.from_linear(plain_layer(16, 64))):
        with FakeTensorMode(allow_non_fake_inputs=True):
            text = refused("usage", layer.cuda)
        assert "CUDA" in text or "device" in text, text
        assert layer.device.type == "cpu" and layer.bias.device.type == "cpu"


def test_gradients_flow_to_the_input():
    layer = wt.Linear.from_linear(plain_layer(32, 128), type="tq4")
    x = weights(4, 128, seed=6).requires_grad_()
    (layer(x) * weights(4, 32, seed=7)).sum().backward()
    y = x.detach().clone().requires_grad_()
    (layer.plain(y) * weights(4, 32, seed=7)).sum().backward()
    assert relative(x.grad, y.grad) < 1e-5


def test_operators_pass_the_checks_of_pytorch():
    layer = wt.Linear.from_linear(plain_layer(32, 128), type="tq4")
    x = weights(4, 128, seed=6)
    arguments = (x, layer.layer, 32, False)
    torch.library.opcheck(torch.ops.walsh.linear.default, arguments,
                          test_utils=("test_schema", "test_faketensor",
                                      "test_autograd_registration"))


def test_compiles_as_a_whole():
    net = nn.Sequential(wt.Linear.from_linear(plain_layer(64, 128), type="tq4"), nn.ReLU(),
                        wt.Linear.from_linear(plain_layer(32, 64), type="tq3"))
    x = weights(4, 128, seed=8)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), net(x))
    grad_input = x.clone().requires_grad_()
    compiled(grad_input).sum().backward()
    assert grad_input.grad.abs().sum() > 0


@pytest.mark.parametrize("how", ["pickled", "loaded"])
def test_compiles_as_a_whole_before_the_first_product(how):
    layer = wt.Linear.from_linear(plain_layer(64, 128), type="tq4")
    other = pickle.loads(pickle.dumps(layer))
    if how == "loaded":
        other = wt.Linear(128, 64, type="tq4")
        other.load_state_dict(layer.state_dict())
    assert not other.layer
    x = weights(4, 128, seed=8)
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        assert torch.equal(compiled(x), layer(x)) and other.layer


def test_copies_are_layers_of_their_own():
    layer = wt.Linear.from_linear(plain_layer(32, 128), type="tq3")
    x = weights(2, 128, seed=9)
    expected = layer(x)
    copied, thawed = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    number = layer.layer
    del layer
    gc.collect()
    assert torch.equal(copied(x), expected) and torch.equal(thawed(x), expected)
    assert copied.layer != thawed.layer
    product = torch.ops.walsh.linear
    assert torch.equal(product(x, number, 32, False) + copied.bias, expected)  # by its contents
    del copied, thawed
    gc.collect()
    assert "it is gone" in refused("usage", lambda: product(x, number, 32, False))


def test_modules_move_as_those_of_pytorch():
    net = nn.Sequential(wt.Linear.from_linear(plain_layer(32, 128), type="tq3"))
    x = weights(2, 128, seed=9)
    expected, state = net(x), {n: a.clone() for n, a in net.state_dict().items()}
    assert torch.equal(net.to("cpu")(x), expected) and net[0].device.type == "cpu"
    assert net.half()[0].bias.dtype == torch.float16 and net.float()[0].layer
    net.to("meta")
    assert net[0].device.type == "meta" and not net[0].layer
    refused("usage", lambda: net(x))
    net.to_empty(device="cpu").load_state_dict(state)
    assert relative(net(x), expected) < 1e-3  # the bias was rounded


def test_threads_may_share_layers():
    layer = wt.Linear.from_linear(plain_layer(64, 256), type="tq4")
    inputs = [weights(3, 256, seed=i) for i in range(4)]
    expected = [layer(x) for x in inputs]
    wrong = []

    def work(i):
        for _ in range(20):
            if not torch.equal(layer(inputs[i]), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_smaller_groups_have_less_error_and_more_scales(tmp_path):
    torch.manual_seed(5)
    plain = torch.nn.Sequential(torch.nn.Linear(512, 96))
    layers = {}
    for group in (128, 64, 32, None):
        config = wt.TurboQuantConfig(bit_width=4, group_size=group)
        layers[group] = quantized = wt.quantize_model(copy.deepcopy(plain), config)
        wt.save_quantized(quantized, config, tmp_path / str(group))
        again = wt.load_quantized(copy.deepcopy(plain), tmp_path / str(group))
        x = torch.randn(3, 512)
        assert torch.equal(again(x), quantized(x)), group
    assert layers[32][0].nmse < 0.9 * layers[64][0].nmse < 0.85 * layers[128][0].nmse
    scales = {group: layer[0].stored()["scales"].shape[1] // 2 for group, layer in layers.items()}
    assert scales == {128: 4, 64: 8, 32: 16, None: 1}
    refused("usage", lambda: walsh._walsh.layer_check_gpu("tq4:g64", 96, 512,
                                                               layers[64][0].rotations, 0))


def test_residual_passes_and_rotations_of_the_seed():
    linear = plain_layer(64, 256)
    errors = {}
    for name, config in {"4": {}, "4+2": {"residual_bit_width": 2}, "4+4": {
            "residual_bit_width": 4}, "qr": {"rotation": "qr"}}.items():
        net = wt.quantize_model(nn.Sequential(copy.deepcopy(linear)), wt.TurboQuantConfig(**config))
        errors[name] = net[0].nmse
    assert errors["4+4"] < errors["4+2"] < errors["4"] < 0.012
    assert abs(errors["qr"] - errors["4"]) < 0.002


def test_tied_weights_of_a_plain_module_come_back(tmp_path):
    def build():
        torch.manual_seed(0)
        net = nn.Module()
        net.embed, net.up = nn.Embedding(16, 128), nn.Linear(128, 128)
        net.lm_head = nn.Linear(128, 16, bias=False)
        net.lm_head.weight = net.embed.weight
        return net

    config = wt.TurboQuantConfig(bit_width=4)
    net = wt.quantize_model(build(), config)
    wt.save_quantized(net, config, tmp_path / "saved")
    again = wt.load_quantized(build(), tmp_path / "saved")
    assert torch.equal(again.lm_head.weight, net.embed.weight)
    other = build()
    other.lm_head.weight = nn.Parameter(torch.zeros(16, 128))
    refused("bad_input", lambda: wt.load_quantized(other, tmp_path / "saved"))


def test_a_model_is_quantized_saved_and_loaded(tmp_path):
    def build():
        torch.manual_seed(0)
        net = nn.Module()
        net.up, net.down = nn.Linear(128, 256), nn.Linear(256, 128, bias=False)
        net.lm_head = nn.Linear(128, 16)
        net.forward = lambda x: net.lm_head(net.down(torch.relu(net.up(x))))
        return net

    config = wt.TurboQuantConfig(bit_width=3, residual_bit_width=2, seed=7)
    net = wt.quantize_model(build(), config)
    assert net.walsh_summary.layers == 2 and type(net.lm_head) is nn.Linear
    assert "2 layers quantized" in str(net.walsh_summary)
    wt.save_quantized(net, config, tmp_path / "saved")
    again = wt.load_quantized(build(), tmp_path / "saved")
    x = weights(3, 128)
    assert torch.equal(again(x), net(x))
    (tmp_path / "saved" / wt.CONFIG_NAME).write_text("{")
    refused("bad_input", lambda: wt.load_quantized(build(), tmp_path / "saved"))
    refused("io", lambda: wt.load_quantized(build(), tmp_path / "absent"))


def test_rules_choose_layers():
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64))
    wt.quantize_model(net, wt.Config(type="tq3", ignore=["0"], overrides=["re:2=tq4+4"]))
    assert [getattr(m, "format", None) for m in net] == [None, "tq3", "tq4+4"]
    refused("usage", lambda: wt.quantize_model(nn.Sequential(nn.Linear(64, 64)),
                                               wt.Config(ignore=["re:nothing"])))
    refused("usage", lambda: wt.Config(overrides=["x"]) and wt.quantize_model(
        nn.Sequential(nn.Linear(64, 64)), wt.Config(overrides=["x"])))


def test_read_only_weights_are_read():
    array = np.ascontiguousarray(weights(32, 64).numpy())
    array.flags.writeable = False
    layer = wt.Linear(64, 32, type="tq4")
    with pytest.warns(UserWarning, match="not writable"):
        tensor = torch.from_numpy(array)
    layer.encode(tensor)
    assert layer.nmse < 0.02

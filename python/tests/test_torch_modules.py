"""Tests walsh.torch: modules that are no plain chain of linear layers, and what users attach to
them."""
import copy
import gc
import pathlib
import pickle

import pytest

import walsh

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402

import walsh.torch as wt  # noqa: E402

CONFIG = wt.TurboQuantConfig(bit_width=4, fast=True)


def weights(rows, cols, seed=1):
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(seed))


def layer(rows=32, cols=128, **options):
    return wt.Linear.from_linear(nn.Linear(cols, rows), type="tq4", **options)


def refused(code, call):
    with pytest.raises(walsh.Error) as caught:
        call()
    assert caught.value.code == code, caught.value
    return str(caught.value)


def relative(a, b):
    return float((a - b).norm() / b.norm())


# Quality of 4 bits on a random layer is 0.1; a forgotten layer or a wrong one is far off.
@pytest.mark.parametrize("train", [False, True])
def test_attention_of_pytorch_keeps_what_it_uses_by_itself(train):
    torch.manual_seed(0)
    net = nn.MultiheadAttention(128, 4, batch_first=True).train(train)
    x = weights(6, 128).reshape(1, 6, 128)
    expected = net(x, x, x)[0]
    wt.quantize_model(net, CONFIG)
    assert torch.equal(net(x, x, x)[0], expected)


@pytest.mark.parametrize("train", [False, True])
def test_encoder_layers_of_pytorch_run(train):
    torch.manual_seed(0)
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0,
                                                           batch_first=True), 2).train(train)
    x = weights(6, 128).reshape(1, 6, 128)
    expected = net(x)
    wt.quantize_model(net, CONFIG)
    assert net.walsh_summary.layers == 4
    assert isinstance(net.layers[0].linear1, wt.Linear)
    with torch.no_grad():
        assert 0 < relative(net(x), expected) < 0.2
    assert 0 < relative(net(x), expected) < 0.2


def test_subclasses_that_compute_something_else_stay():
    class Router(nn.Linear):
        def forward(self, x):
            return super().forward(x), x.sum()

    class Named(nn.Linear):
        pass

    net = nn.Sequential(Named(64, 64), Router(64, 8))
    wt.quantize_model(net, CONFIG)
    assert isinstance(net[0], wt.Linear) and type(net[1]) is Router
    values, total = net(weights(2, 64))
    assert values.shape == (2, 8) and total.dim() == 0


def test_a_module_at_two_places_is_one_layer_at_both():
    net = nn.Module()
    net.first = nn.Linear(64, 64)
    net.second = nn.Sequential(net.first)
    wt.quantize_model(net, CONFIG)
    assert net.first is net.second[0] and isinstance(net.first, wt.Linear)
    assert net.walsh_summary.layers == 1
    other = nn.Module()
    other.first = nn.Linear(64, 64)
    other.second = nn.Sequential(other.first)
    rules = wt.Config(type="tq4", ignore=["first"])
    assert "first" in refused("usage", lambda: wt.quantize_model(other, rules))


def test_a_model_that_is_a_linear_layer_comes_back_quantized():
    plain = nn.Linear(128, 32)
    net = wt.quantize_model(plain, CONFIG)
    assert isinstance(net, wt.Linear) and net.walsh_summary.layers == 1
    assert relative(net(weights(2, 128)), plain(weights(2, 128))) < 0.2
    assert not isinstance(wt.dequantize_model(net), wt.Linear)


def test_hooks_stay_and_can_be_removed():
    net = nn.Sequential(nn.Linear(64, 32)).eval()
    seen = []
    forward = net[0].register_forward_hook(lambda m, x, y: seen.append("forward"))
    net[0].register_forward_pre_hook(lambda m, a, k: seen.append("before"), with_kwargs=True)
    net[0].register_full_backward_hook(lambda m, i, o: seen.append("backward"))
    wt.quantize_model(net, CONFIG)
    assert not net[0].training
    net(weights(2, 64).requires_grad_()).sum().backward()
    assert seen == ["before", "forward", "backward"]
    forward.remove()
    net(weights(2, 64))
    assert seen[3:] == ["before"]


def test_a_layer_whose_forward_was_replaced_is_refused():
    net = nn.Sequential(nn.Linear(64, 32))
    plain = net[0].forward
    net[0].forward = lambda x: 2 * plain(x)
    assert refused("usage", lambda: wt.quantize_model(net, CONFIG)).startswith("0: its forward")


def test_models_on_the_meta_device_are_refused_with_their_layer():
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(64, 32))
    text = refused("usage", lambda: wt.quantize_model(net, CONFIG))
    assert text.startswith("0: weights: they are on the meta device"), text


def test_a_layer_that_nobody_filled_is_refused():
    x = weights(2, 128)
    for fresh in (wt.Linear(128, 32), wt.Linear(128, 32).to(torch.bfloat16),
                  copy.deepcopy(wt.Linear(128, 32)), pickle.loads(pickle.dumps(wt.Linear(128, 32))),
                  wt.Linear(128, 32, device="meta").to_empty(device="cpu")):
        assert "no weights yet" in refused("usage", lambda: fresh(x.to(fresh.bias.dtype)))
        state = layer().state_dict()
        scales = state.pop("scales")
        fresh.load_state_dict(state, strict=False)
        assert "scales" in refused("usage", lambda: fresh(x.to(fresh.bias.dtype)))
        fresh.load_state_dict({"scales": scales}, strict=False)
        assert fresh(x.to(fresh.bias.dtype)).abs().sum() > 0
    assigned = wt.Linear(128, 32, device="meta")
    for name, array in layer().state_dict().items():
        assigned.load_state_dict({name: array}, strict=False, assign=True)
    assert assigned(x).abs().sum() > 0


def test_the_weight_is_there_for_those_who_read_it():
    own = layer()
    weight = own.weight
    assert weight.shape == (32, 128) and weight.dtype == torch.float32 and weight.dim() == 2
    assert weight.device.type == "cpu" and not weight.requires_grad and weight.numel() == 4096
    assert "weight" not in own.state_dict() and not isinstance(weight, nn.Parameter)
    assert torch.equal(weight @ torch.eye(128), own.dequantize())
    assert torch.equal(weight[3:5], own.dequantize()[3:5])
    assert torch.equal(torch.cat([weight, weight]), own.dequantize().repeat(2, 1))
    x = weights(3, 128)
    assert torch.equal(nn.functional.linear(x, weight, own.bias), own(x))  # by the kernels
    own.bfloat16()
    assert own.weight.dtype == torch.bfloat16 and (own.weight + 0).dtype == torch.bfloat16
    assert copy.deepcopy(own.weight).dtype == torch.bfloat16
    assert repr(own.weight) == "CodedWeight(tq4, 32 x 128)"


def test_writing_to_the_weight_encodes_it():
    own, change = layer(), 0.1 * weights(32, 128, seed=3)
    before = own.dequantize()
    own.weight.data += change
    assert 0 < relative(own.dequantize(), before + change) < 0.15
    own.weight.copy_(change)
    assert relative(own.dequantize(), change) < 0.15
    own.weight.add_(change)
    assert relative(own.dequantize(), 2 * change) < 0.25
    refused("usage", lambda: nn.init.normal_(own.weight))
    refused("usage", lambda: own.weight.data_ptr())
    refused("usage", own.reset_parameters)
    assert relative(own.dequantize(), 2 * change) < 0.25


def test_what_shares_memory_with_the_weight_is_the_weight():
    own = layer()
    before = own.dequantize()
    own.weight.data.mul_(2)
    assert relative(own.dequantize(), 2 * before) < 0.15
    own.weight.detach()[0] = before[1]
    own.weight.data[1, :64] = 0.5
    expected = 2 * before
    expected[0], expected[1, :64] = before[1], 0.5
    assert relative(own.dequantize(), expected) < 0.2
    kept = own.dequantize()
    own.weight.data = own.weight.data  # is not encoded once more
    assert torch.equal(own.dequantize(), kept)
    for write in (lambda: own.weight.data.normal_(), lambda: nn.init.zeros_(own.weight.data),
                  lambda: torch.add(before, 1, out=own.weight),
                  lambda: torch._foreach_mul_([own.weight], 2.0)):
        assert refused("usage", write).startswith("weight: ")
    assert "is no parameter" in refused(
        "usage", lambda: setattr(own, "weight", nn.Parameter(before)))
    assert torch.equal(own.dequantize(), kept)
    numbers = own.weight.detach().cpu().numpy()
    assert numbers.shape == (32, 128) and (torch.from_numpy(numbers) == kept).all()


def test_averages_of_models_follow_what_is_trained():
    net = nn.Sequential(layer(), nn.Linear(32, 8))
    average = torch.optim.swa_utils.AveragedModel(net)
    assert average.module[0].layer not in (0, net[0].layer)
    with torch.no_grad():
        net[1].weight.fill_(1)
    average.update_parameters(net)
    x = weights(2, 128)
    assert torch.equal(average(x), net(x))


def test_a_model_can_be_made_plain_again():
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8, bias=False))
    seen = []
    net[0].register_forward_hook(lambda m, x, y: seen.append(1))
    wt.quantize_model(net, CONFIG)
    for one in (net[0], net[2]):
        one.exact = True
    x = weights(3, 64)
    expected = net(x)
    wt.dequantize_model(net)
    assert type(net[0]) is nn.Linear and type(net[2]) is nn.Linear
    assert relative(net(x), expected) < 1e-5 and len(seen) == 2
    net(x).sum().backward()
    assert net[0].weight.grad is not None
    assert wt.dequantize_model(wt.quantize_model(net, CONFIG), torch.bfloat16)[0].weight.dtype == \
        torch.bfloat16


def resident():
    """Returns the bytes of this process that are in memory."""
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def test_layers_give_their_memory_back():
    plain = nn.Linear(512, 512)
    sizes = []
    for _ in range(4):
        for _ in range(100):
            wt.Linear.from_linear(plain, type="tq4", fast=True)
        gc.collect()
        sizes.append(resident())
    # A leak of the codes alone would be 100 times 128 KiB in each round.
    assert sizes[3] - sizes[1] < 8 << 20, sizes

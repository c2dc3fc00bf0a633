"""Tests walsh.torch: gradients, autocast, and training adapters beside the codes."""
import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import walsh.torch as wt  # noqa: E402


def weights(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layer(rows=32, cols=128, bias=True, dtype=torch.float32):
    plain = nn.Linear(cols, rows, bias)
    with torch.no_grad():
        plain.weight.copy_(weights(rows, cols))
    return wt.Linear.from_linear(plain.to(dtype), type="tq4")


def relative(a, b):
    return float((a.float() - b.float()).norm() / b.float().norm())


@pytest.mark.parametrize("bias", [True, False])
def test_outputs_may_be_changed_in_place(bias):
    own = layer(bias=bias)
    x = weights(2, 3, 128, seed=2).requires_grad_()
    y = own(x)
    assert y._base is None  # no view
    y *= 2
    nn.functional.relu(y, inplace=True).sum().backward()
    z = x.detach().clone().requires_grad_()
    torch.relu(2 * own(z)).sum().backward()
    assert torch.equal(x.grad, z.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_half_precision_are_those_of_the_decoded_weights(dtype):
    own = layer(dtype=dtype)
    x = weights(2, 5, 128, seed=6).to(dtype).requires_grad_()
    grad = weights(2, 5, 32, seed=7).to(dtype)
    own(x).backward(grad)
    assert x.grad.dtype == dtype
    assert relative(x.grad, grad.float() @ own.dequantize()) < 0.01


def test_checkpointed_layers_have_the_same_gradients():
    net = nn.Sequential(layer(128, 128), nn.GELU(), layer())
    x = weights(4, 128, seed=3).requires_grad_()
    y = x.detach().clone().requires_grad_()
    net(x).square().sum().backward()
    checkpoint(net, y, use_reentrant=False).square().sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_second_derivatives_pass_through():
    own = layer()
    x = weights(2, 128, seed=3).requires_grad_()
    (grad,) = torch.autograd.grad(own(x).pow(3).sum(), x, create_graph=True)
    grad.square().sum().backward()
    z = x.detach().clone().requires_grad_()
    (other,) = torch.autograd.grad(own.plain(z).pow(3).sum(), z, create_graph=True)
    other.square().sum().backward()
    assert relative(x.grad, z.grad) < 0.05


@pytest.mark.parametrize("tracked", [False, True])
def test_tangents_are_multiplied_by_the_weights(tracked):
    own = layer()
    x, tangent = weights(3, 128, seed=4), weights(3, 128, seed=5)
    x.requires_grad_(tracked)
    value, change = torch.func.jvp(own, (x,), (tangent,))
    assert torch.equal(value, own(x))
    assert relative(change, tangent @ own.dequantize().T) < 1e-5
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, tangent)
        found = torch.autograd.forward_ad.unpack_dual(own(dual)).tangent
    assert torch.equal(found, change)


def test_autocast_gives_its_type():
    own, plain = layer(), nn.Linear(128, 32)
    x = weights(2, 128)
    for kind in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", kind):
            assert own(x).dtype == plain(x).dtype == kind
            assert torch.equal(own(x), own(x.to(kind)))
        assert own(x).dtype == torch.float32
    net = torch.compile(own, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        assert net(x).dtype == torch.bfloat16


def test_fullgraph_compile_reads_the_weight():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = layer()

        def forward(self, x):
            return self.own(x) + self.own.weight.sum()

    net, x = Reads(), weights(2, 128)
    found = torch.compile(net, fullgraph=True, backend="aot_eager")(x)
    assert torch.allclose(found, net(x), rtol=1e-4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(128, 256, bias=False), nn.Linear(256, 128)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


@pytest.mark.parametrize("dora", [False, True])
def test_adapters_of_peft_train_merge_and_are_encoded_again(dora):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    net = wt.quantize_model(Net(), wt.TurboQuantConfig(bit_width=4))
    codes = {name: array.clone() for name, array in net.state_dict().items()}
    net = peft.get_peft_model(net, peft.LoraConfig(r=8, lora_alpha=16, use_dora=dora,
                                                   target_modules="all-linear"))
    trained = [name for name, p in net.named_parameters() if p.requires_grad]
    assert len(trained) == (6 if dora else 4) and all("lora_" in name for name in trained)
    x, wanted = weights(64, 128, seed=2), weights(64, 128, seed=3)
    optimizer = torch.optim.AdamW(net.parameters(), 3e-3)
    losses = []
    for _ in range(30):
        loss = (net(x) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0], losses
    state = net.base_model.model.state_dict()
    assert all(torch.equal(state[f"{name.rpartition('.')[0]}.base_layer.{name.rpartition('.')[2]}"],
                           codes[name]) for name in codes)  # the codes are as they were
    expected = net(x)
    merged = copy.deepcopy(net).merge_and_unload()
    assert isinstance(merged.up, wt.Linear) and merged.up.format == "tq4"
    assert relative(merged(x), expected) < 0.2
    plain = wt.dequantize_model(copy.deepcopy(net)).merge_and_unload()
    assert type(plain.up) is nn.Linear and relative(plain(x), expected) < 0.02

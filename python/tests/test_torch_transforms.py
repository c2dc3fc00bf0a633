"""Tests walsh.torch under torch.func, torch.export, torch.jit and torch.fx: the result of the
decoded weights, or a refusal."""
import copy
import io
import subprocess
import sys
import textwrap

import pytest

import walsh

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import func, nn  # noqa: E402

import walsh.torch as wt  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def forget_frames():
    """Leaves nothing to other tests that a compiler has given up on here."""
    yield
    torch._dynamo.reset()


def weights(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layer(rows=32, cols=128, bias=True, seed=1):
    plain = nn.Linear(cols, rows, bias)
    with torch.no_grad():
        for values in plain.parameters():
            values.copy_(weights(*values.shape, seed=seed))
    own = wt.Linear.from_linear(plain, type="tq4")
    own.exact = True
    return own


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def energy(f):
    return lambda x: f(x).pow(3).sum()


# These use a function of [..., 128] and an input.
USES = {
    "grad": lambda f, x: func.grad(energy(f))(x),
    "vjp": lambda f, x: func.vjp(f, x)[1](f(x))[0],
    "jvp": lambda f, x: func.jvp(f, (x,), (x.flip(0),))[1],
    "linearize": lambda f, x: func.linearize(f, x)[1](x.flip(0)),
    "vmap": lambda f, x: func.vmap(f)(x),
    "vmap of columns": lambda f, x: func.vmap(f, in_dims=1, out_dims=1)(x.T.contiguous()),
    "vmap of vmap": lambda f, x: func.vmap(func.vmap(f))(x.reshape(2, 2, 128)),
    "vmap of grad": lambda f, x: func.vmap(func.grad(energy(f)))(x),
    "vmap of jvp": lambda f, x: func.vmap(lambda a, b: func.jvp(f, (a,), (b,))[1])(x, x.flip(0)),
    "grad of grad": lambda f, x: func.grad(lambda y: func.grad(energy(f))(y).pow(2).sum())(x),
    "jvp of grad": lambda f, x: func.jvp(func.grad(energy(f)), (x,), (x.flip(0),))[1],
    "jacrev": lambda f, x: func.jacrev(f)(x[0]),
    "jacfwd": lambda f, x: func.jacfwd(f)(x[0]),
    "hessian": lambda f, x: func.hessian(energy(f))(x[0]),
    "batched gradients": lambda f, x: torch.autograd.functional.jacobian(f, x, vectorize=True),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("bias", [True, False])
def test_transforms_see_the_decoded_weights(use, bias):
    own = layer(bias=bias)
    plain, x = own.to_linear(), weights(4, 128, seed=2)
    assert relative(USES[use](own, x), USES[use](plain, x)) < 1e-5


def test_a_batch_may_be_empty_and_biases_may_be_batched():
    own = layer()
    assert func.vmap(own)(torch.zeros(0, 128)).shape == (0, 32)
    x, biases = weights(4, 128), weights(3, 32)
    found = func.vmap(lambda b: func.functional_call(own, {"bias": b}, (x,)))(biases)
    assert relative(found, (x @ own.dequantize().T)[None] + biases[:, None]) < 1e-5
    grad = func.grad(lambda b: func.functional_call(own, {"bias": b}, (x,)).sum())(biases[0])
    assert torch.equal(grad, torch.full((32,), 4.0))


@pytest.mark.parametrize("use", ["grad", "jvp", "vmap", "jacrev", "jacfwd"])
def test_code_that_reads_the_weight_is_transformed(use):
    own = layer()
    decoded = own.dequantize()
    found = USES[use](lambda x: x @ own.weight.T, weights(4, 128, seed=2))
    assert relative(found, USES[use](lambda x: x @ decoded.T, weights(4, 128, seed=2))) < 1e-5


def experts_of_a_model():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        vocab_size=32, hidden_size=128, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=64, moe_intermediate_size=64, num_experts=4,
        num_experts_per_tok=2, decoder_sparse_step=1, initializer_range=0.1)
    model = transformers.AutoModelForCausalLM.from_config(config)
    coded = wt.quantize_model(model, wt.TurboQuantConfig(bit_width=4, fast=True))
    for one in coded.modules():
        if isinstance(one, wt.Linear):
            one.exact = True
    plain = wt.dequantize_model(copy.deepcopy(coded))
    return coded.model.layers[0].mlp.experts, plain.model.layers[0].mlp.experts


def test_transforms_pass_through_experts():
    coded, plain = experts_of_a_model()
    x, ids = weights(5, 128, seed=2), torch.tensor([[0, 1], [3, 0], [2, 3], [1, 0], [3, 1]])
    mix = torch.rand(5, 2, generator=torch.Generator().manual_seed(3))
    own, other = (lambda y: coded(y, ids, mix)), (lambda y: plain(y, ids, mix))
    jacobian = func.jacrev(other)(x)
    assert relative(func.jacrev(own)(x), jacobian) < 1e-5
    assert relative(func.jacfwd(own)(x), jacobian) < 1e-5  # the plain one has no forward mode
    assert relative(func.grad(energy(own))(x), func.grad(energy(other))(x)) < 1e-5
    pair, both = torch.stack([x, x.flip(0)]), torch.stack([ids, ids.flip(0)])
    found = func.vmap(lambda y, i: coded(y, i, mix))(pair, both)
    assert relative(found[1], plain(pair[1], both[1], mix)) < 1e-5
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x.flip(0))
        found = torch.autograd.forward_ad.unpack_dual(own(dual)).tangent
    assert relative(found, torch.einsum("abcd,cd->ab", jacobian, x.flip(0))) < 1e-5


@pytest.mark.parametrize("use", ["grad", "jvp", "vmap", "jacfwd", "jvp of grad"])
def test_compiled_transforms_are_right(use):
    own, x = layer(), weights(4, 128, seed=2)
    expected = USES[use](own, x)
    whole = use != "jvp of grad"  # PyTorch itself cannot compile that as a whole
    run = torch.compile(lambda y: USES[use](own, y), backend="aot_eager", fullgraph=whole)
    assert relative(run(x), expected) < 1e-5


def test_a_compiled_layer_is_transformed_later():
    own, x = layer(), weights(4, 128, seed=2)
    compiled = torch.compile(own, backend="aot_eager", fullgraph=False)
    expected = compiled(x)
    assert relative(USES["jvp"](compiled, x), USES["jvp"](own, x)) < 1e-5
    assert relative(USES["jacrev"](compiled, x), own.dequantize()) < 1e-5
    assert torch.equal(compiled(x), expected)


def test_torch_export_has_the_product_and_any_number_of_rows():
    net = nn.Sequential(layer(), nn.ReLU())
    x = weights(4, 128, seed=2)
    program = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    assert torch.equal(program.module()(x[:3]), net(x[:3]))


def run(lines, *arguments):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(lines),
                           *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("how", ["export", "trace"])
def test_saved_programs_find_the_layers_of_another_process(tmp_path, how):
    config = wt.TurboQuantConfig(bit_width=4)
    net, x = nn.Sequential(layer()), torch.ones(2, 128)
    if how == "export":
        torch.export.save(torch.export.export(net, (x,)), tmp_path / "program.pt2")
    else:
        torch.jit.save(torch.jit.trace(net, x), tmp_path / "program.pt2")
    wt.save_quantized(net, config, tmp_path / "same")
    wt.save_quantized(nn.Sequential(layer(seed=5)), config, tmp_path / "other")
    lines = """
    import sys, torch, walsh, walsh.torch as wt
    path, how = sys.argv[1:]
    read = (lambda p: torch.export.load(p).module()) if how == "export" else torch.jit.load
    program, x = read(path + "/program.pt2"), torch.ones(2, 128)
    for folder in ("other", "same"):
        net = wt.load_quantized(torch.nn.Sequential(torch.nn.Linear(128, 32)), path + "/" + folder)
        net[0].exact = True
        try:
            print(torch.equal(program(x), net(x)))
        except (walsh.Error, RuntimeError) as error:
            print("refused" if "never in this process" in str(error) else error)
    """
    assert run(lines, tmp_path, how) == ["refused", "True"]


def test_torchscript_traces_layers_and_says_that_it_cannot_read_them():
    net, x = nn.Sequential(layer(), nn.ReLU()), weights(4, 128, seed=2)
    assert torch.equal(torch.jit.trace(net, x)(2 * x), net(2 * x))
    for one in (net, net[0]):
        with pytest.raises(walsh.Error, match="torch.jit.script: layers of walsh have no"):
            torch.jit.script(one)
    assert torch.equal(net(x), torch.relu(net[0](x)))  # as it was


def test_torch_fx_has_a_layer_as_one_node():
    net, x = nn.Sequential(layer(), nn.ReLU()), weights(4, 128, seed=2)
    traced = torch.fx.symbolic_trace(net)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["0", "1"]
    assert torch.equal(traced(x), net(x))
    with pytest.raises(walsh.Error, match="trace the module it is in"):
        torch.fx.symbolic_trace(net[0])
    buffer = io.BytesIO()
    torch.save(traced, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(x), net(x))

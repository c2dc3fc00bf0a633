"""Tests walsh.torch: quantized layers on a GPU, against the same layers on the CPU."""
import copy
import gc
import io
import pickle

import pytest

import walsh
from walsh import _walsh

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402

import walsh.torch as wt  # noqa: E402

WHY_NOT = ("PyTorch sees no GPU" if not torch.cuda.is_available()
           else _walsh.device_unavailable())
gpu = pytest.mark.skipif(bool(WHY_NOT), reason=f"no GPU to test on: {WHY_NOT}")
TYPES = [f.name for f in walsh.formats() if f.name not in ("f32", "f16", "bf16")]
# These are trellis codes whose levels would be looked up: GPUs have kernels for those that compute
# them.
CPU_ONLY = [kind for kind in TYPES if kind.startswith("tc") and not kind.endswith(":h")]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# Results may differ so much from those of the CPU with the same int8 inputs, relatively: sums are
# in another order, results are rounded (twice), and from some number of rows on weights are rounded
# to 16 bits.
CLOSE = {torch.float32: 2e-5, torch.bfloat16: 4e-3, torch.float16: 6e-4}


def relative(a, b):
    a, b = a.detach().double().cpu(), b.detach().double().cpu()
    return float((a - b).norm() / b.norm())


def weights(rows, cols, seed=1):
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(seed))


def plain_layer(rows, cols, bias=True, dtype=torch.float32):
    layer = nn.Linear(cols, rows, bias).to(dtype)
    with torch.no_grad():
        layer.weight.copy_(weights(rows, cols))
    return layer


def coded(rows=64, cols=256, kind="tq4", bias=False, dtype=torch.float32, **options):
    # Trellis codes that are encoded fast have fewer states, for which GPUs have no kernels.
    options = {"fast": not kind.startswith("tc"), **options}
    return wt.Linear.from_linear(plain_layer(rows, cols, bias, dtype), type=kind, **options)


def refused(code, call):
    with pytest.raises(walsh.Error) as caught:
        call()
    assert caught.value.code == code, caught.value
    return str(caught.value)


def test_a_layer_that_cannot_go_to_a_gpu_says_why():
    if not WHY_NOT:
        pytest.skip("there is a GPU")
    layer = coded()
    text = refused("usage", lambda: _walsh.device_place(layer.layer, 0))
    assert "CUDA" in text or "device" in text
    _walsh.device_place(layer.layer, -1)  # where it is
    text = refused("usage", lambda: _walsh.device_plan(layer.layer, 1, 64, 256, 0, False, 0))
    assert text == "input: on cuda:0, the layer is on the CPU"


@gpu
@pytest.mark.parametrize("kind", CPU_ONLY)
def test_formats_without_kernels_stay_on_the_cpu(kind):
    layer = coded(72, 544, kind, bias=True)
    x = weights(3, 544)
    expected = layer(x)
    # These are packed ones, and those that have not been: a copy, a new one, and one made of GPU
    # tensors.
    for other in (layer, copy.deepcopy(layer), wt.Linear(544, 72, type=kind)):
        assert f"no GPU kernels for {kind}" in refused("usage", other.cuda)
        assert other.device.type == "cpu" and not other.bias.is_cuda
    refused("usage", lambda: wt.Linear(544, 72, type=kind, device="cuda"))
    refused("usage", lambda: wt.Linear.from_linear(plain_layer(72, 544).cuda(), type=kind))
    assert torch.equal(layer(x), expected)


@gpu
@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind not in CPU_ONLY])
def test_products_are_those_of_the_cpu(kind):
    layer = coded(72, 544, kind, bias=True)
    moved = copy.deepcopy(layer).cuda()
    for rows in (1, 2, 8, 16, 17, 256):
        x = weights(rows, 544, seed=rows)
        for dtype in DTYPES:
            host, exact = layer(x.to(dtype)), layer.plain(x.to(dtype))
            on_gpu = moved(x.to("cuda", dtype))
            assert on_gpu.dtype == dtype and on_gpu.is_cuda and on_gpu.shape == (rows, 72)
            # Kernels for batches round levels and inputs to 16 bits.
            close = CLOSE[dtype] if rows <= 16 else max(CLOSE[dtype], 6e-4)
            coded_rows = relative(on_gpu, host) < close
            # Many rows are multiplied without the rounding of inputs to int8.
            by_weights = relative(on_gpu, exact) < max(CLOSE[dtype], 6e-4)
            assert coded_rows or (rows > 16 and by_weights), (
                rows, dtype, relative(on_gpu, host), relative(on_gpu, exact))


@gpu
@pytest.mark.parametrize("kind", ["tq4", "tq3", "tq4+4"])
@pytest.mark.parametrize("cols", [32, 100, 1000, 4096])
def test_shapes_that_are_no_whole_tiles(kind, cols):
    layer = coded(33, cols, kind).cuda()
    for rows in (1, 3, 40, 300):
        x = weights(rows, cols, seed=rows).cuda()
        assert relative(layer(x), layer.plain(x)) < 0.02, rows
        half = x.bfloat16()
        assert relative(layer(half), layer.plain(half)) < 0.02, rows


@gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_products_do_not_round_inputs_to_int8(dtype):
    layer = coded(64, 512).cuda()
    layer.exact = True
    for rows in (1, 16, 64):
        x = weights(rows, 512, seed=2).to("cuda", dtype)
        assert relative(layer(x), layer.plain(x)) < max(CLOSE[dtype], 6e-4)


@gpu
def test_shapes_and_strides_of_the_input():
    layer = coded(48, 256, bias=True).cuda()
    for dtype in DTYPES:
        x = weights(6, 513, seed=4).to("cuda", dtype)
        expected = layer(x[:, :256].contiguous())
        assert torch.equal(layer(x[:, :256]), expected)  # rows farther apart, and not aligned
        assert relative(layer(x[:, 1:257]), layer(x[:, 1:257].contiguous())) == 0
        assert torch.equal(layer(x[:, :256].t().contiguous().t()), expected)  # columns apart
        assert torch.equal(layer(x[:, :256].reshape(2, 3, 256)).reshape(6, 48), expected)
        assert torch.equal(layer(x[0, :256]), expected[0])
        assert layer(x[:0, :256]).shape == (0, 48)
        assert layer(x[:0, :256].reshape(0, 3, 256)).shape == (0, 3, 48)


@gpu
def test_what_makes_no_sense_is_refused():
    layer = coded(16, 64)
    moved = copy.deepcopy(layer).cuda()
    x = torch.zeros(2, 64, device="cuda")
    assert "the layer is on the CPU" in refused("usage", lambda: layer(x))
    assert "the layer is on cuda:0" in refused("usage", lambda: moved(x.cpu()))
    refused("usage", lambda: moved(torch.zeros(2, 63, device="cuda")))
    refused("usage", lambda: moved(torch.tensor(1.0, device="cuda")))
    refused("usage", lambda: moved(torch.zeros(2, 64, dtype=torch.float64, device="cuda")))
    refused("usage", lambda: moved(torch.zeros(2, 64, dtype=torch.int64, device="cuda")))
    refused("usage", lambda: _walsh.device_place(layer.layer, 99))
    assert "no GPU kernels" in refused("usage", coded(kind="tc3:hq", fast=True).cuda)
    assert "rotation qr" in refused("usage", lambda: coded(64, 64, rotation="qr").cuda())
    torch.cuda.synchronize()  # nothing was launched that fails


@gpu
def test_layers_move_and_stay_what_they_are():
    layer = coded(64, 256, "tq3", bias=True)
    state = {name: array.clone() for name, array in layer.state_dict().items()}
    x = weights(3, 256, seed=9)
    expected = layer(x)
    assert layer.device.type == "cpu"
    net = nn.Sequential(layer).to("cuda")
    assert layer.device == torch.device("cuda:0") and layer.bias.is_cuda
    on_gpu = net(x.cuda())
    assert relative(on_gpu, expected) < 2e-5
    for name, array in layer.state_dict().items():
        assert torch.equal(array.cpu(), state[name]), name
    copied, thawed = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    for other in (copied, thawed):
        assert other.device.type == "cuda" and torch.equal(other(x.cuda()), on_gpu)
        assert other.layer != layer.layer
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    loaded = torch.load(file, map_location="cpu", weights_only=False)
    assert torch.equal(loaded(x), expected)
    layer.load_state_dict(state)
    assert torch.equal(layer(x.cuda()), on_gpu) and layer.device.type == "cuda"
    net.half()  # changes the bias, not where the weights are
    assert layer.device.type == "cuda" and layer.bias.dtype == torch.float16
    net.float().to("cpu")
    layer.load_state_dict(state)  # the bias as it was before it was rounded
    assert torch.equal(layer(x), expected)
    assert net.to("meta")[0].device.type == "meta"
    refused("usage", lambda: net(x))


@gpu
def test_memory_of_the_gpu_is_that_of_the_codes_and_is_given_back():
    def used():
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    layer = coded(4096, 2048, "tq4")
    before = used()
    layer.cuda()
    taken = used() - before
    assert taken < layer.stored_bytes * 1.2 + (8 << 20), taken
    assert abs(_walsh.device_bytes(layer.layer) - layer.stored_bytes) < 0.1 * layer.stored_bytes
    layer.cpu()
    assert used() - before < 4 << 20
    layer.cuda()
    del layer
    gc.collect()
    assert used() - before < 4 << 20


@gpu
def test_layers_made_of_weights_on_a_gpu_are_on_it():
    layer = wt.Linear.from_linear(plain_layer(32, 128).cuda(), type="tq4")
    assert layer.device.type == "cuda" and layer.bias.is_cuda
    net = wt.quantize_model(nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32)).cuda(),
                            wt.TurboQuantConfig(bit_width=4))
    x = weights(5, 128).cuda()
    assert net(x).is_cuda and relative(net(x), net.cpu()(x.cpu())) < 1e-4


@gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_flow_to_the_input(dtype):
    layer = coded(32, 288).cuda()
    for rows in (4, 200):
        x = weights(rows, 288, seed=6).to("cuda", dtype).requires_grad_()
        (layer(x) * weights(rows, 32, seed=7).to("cuda", dtype)).sum().backward()
        y = x.detach().clone().requires_grad_()
        (layer.plain(y) * weights(rows, 32, seed=7).to("cuda", dtype)).sum().backward()
        assert x.grad.dtype == dtype and relative(x.grad, y.grad) < max(CLOSE[dtype], 6e-4)


@gpu
def test_operators_pass_the_checks_of_pytorch():
    layer = coded(32, 128).cuda()
    for dtype in DTYPES:
        torch.library.opcheck(torch.ops.walsh.linear.default,
                              (weights(4, 128).to("cuda", dtype), layer.layer, 32, False),
                              test_utils=("test_schema", "test_faketensor",
                                          "test_autograd_registration"))


@gpu
def test_the_short_way_is_the_operator():
    layer = coded(64, 256).cuda()
    x = weights(4, 256).to("cuda", torch.bfloat16)
    operator = torch.ops.walsh.linear(x, layer.layer, 64, False)
    assert torch.equal(layer(x), operator)
    seen = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Mode():
        layer(x)
    assert any("walsh.linear" in name for name in seen)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert layer(x.float()).dtype == torch.bfloat16
        assert layer(torch.cat([x.float()] * 100)).dtype == torch.bfloat16


@gpu
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_as_a_whole(backend):
    net = nn.Sequential(coded(64, 128, bias=True), nn.ReLU(), coded(32, 64, "tq3")).cuda()
    x = weights(4, 128, seed=8).cuda()
    compiled = torch.compile(net, fullgraph=True, backend=backend)
    with torch.no_grad():
        assert relative(compiled(x), net(x)) < 1e-5
    grad_input = x.clone().requires_grad_()
    compiled(grad_input).sum().backward()
    assert grad_input.grad.abs().sum() > 0


@gpu
@pytest.mark.parametrize("rows", [1, 16, 40, 256])
@pytest.mark.parametrize("dtype", DTYPES)
def test_graphs_replay_with_new_inputs(rows, dtype):
    net = nn.Sequential(coded(256, 512, bias=True), nn.ReLU(), coded(128, 256, "tq3")).cuda()
    first = weights(rows, 512, seed=1).to("cuda", dtype)
    second = weights(rows, 512, seed=2).to("cuda", dtype)
    with torch.no_grad():
        expected = [net(first), net(second)]
        x = first.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            net(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = net(x)
        for source, wanted in ((second, expected[1]), (first, expected[0]), (second, expected[1])):
            x.copy_(source)
            graph.replay()
            assert relative(y, wanted) < CLOSE[dtype]


@gpu
def test_graphs_with_branches_on_two_streams():
    left, right = coded(256, 512).cuda(), coded(256, 512, "tq3").cuda()
    x = weights(4, 512).to("cuda", torch.bfloat16)
    with torch.no_grad():
        expected = left(x) + right(x)
        torch.cuda.synchronize()
        graph, other = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph):
            main = torch.cuda.current_stream()
            other.wait_stream(main)
            with torch.cuda.stream(other):
                b = right(x)
            a = left(x)
            main.wait_stream(other)
            y = a + b
        for _ in range(20):
            graph.replay()
        assert torch.equal(y, expected)


@gpu
def test_streams_do_not_share_workspaces():
    layers = [coded(1024, 2048).cuda(), coded(1024, 2048, "tq3").cuda()]
    inputs = [weights(16, 2048, seed=i).to("cuda", torch.bfloat16) for i in range(4)]
    with torch.no_grad():
        expected = [[layer(x) for x in inputs] for layer in layers]
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in inputs]
        results = [[] for _ in inputs]
        for _ in range(50):
            for i, (stream, x) in enumerate(zip(streams, inputs)):
                with torch.cuda.stream(stream):
                    results[i].append([layer(x) for layer in layers])
        torch.cuda.synchronize()
    for i, turns in enumerate(results):
        for turn in turns:
            assert all(torch.equal(y, expected[k][i]) for k, y in enumerate(turn))


@gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_layers_of_several_gpus():
    layers = [coded(64, 256).to(f"cuda:{i}") for i in range(2)]
    x = weights(3, 256)
    results = [layer(x.to(layer.device)) for layer in layers]
    assert torch.cuda.current_device() == 0
    assert torch.equal(results[0].cpu(), results[1].cpu())
    refused("usage", lambda: layers[1](x.cuda(0)))
    assert torch.equal(layers[1].to("cuda:0")(x.cuda(0)), results[0])


@gpu
def test_a_transformers_model_decodes_with_a_graph():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.LlamaConfig(
        hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=320, max_position_embeddings=64)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to("cuda", torch.float32).eval()
    wt.quantize_model(model, wt.TurboQuantConfig(bit_width=4))
    prompt = torch.arange(1, 8, device="cuda")[None]
    with torch.no_grad():
        plain = model.generate(prompt, max_new_tokens=12, do_sample=False)
        cache = transformers.StaticCache(config=config, max_cache_len=32)
        logits = model(prompt, past_key_values=cache).logits
        token = logits[:, -1:].argmax(-1)
        position = torch.full((1, 1), prompt.shape[1], device="cuda")
        steps = torch.arange(32, device="cuda")

        def step():
            mask = (steps <= position)[None, None]
            out = model(token, attention_mask=mask, position_ids=position, past_key_values=cache)
            token.copy_(out.logits[:, -1:].argmax(-1))
            position.add_(1)

        tokens = [int(token)]
        step()
        tokens.append(int(token))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        for _ in range(10):
            graph.replay()
            tokens.append(int(token))
    assert tokens == plain[0, prompt.shape[1]:].tolist()

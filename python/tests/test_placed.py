"""Tests layers and experts that are on a GPU alone, against walsh.torch.Linear on the CPU."""
import gc

import pytest

import walsh
from walsh import _walsh

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import walsh.torch as wt  # noqa: E402
from walsh._packed import ACTIVATIONS, layer_table  # noqa: E402
from walsh._placed import Form, PlacedExperts, PlacedLinear  # noqa: E402

WHY_NOT = ("PyTorch sees no GPU" if not torch.cuda.is_available()
           else _walsh.device_unavailable())
gpu = pytest.mark.skipif(bool(WHY_NOT), reason=f"no GPU to test on: {WHY_NOT}")
TYPES = ["tq2", "tq3", "tq4", "tq4+4", "itq3_s", "q4_0", "tc3", "pq3"]
# Levels of decoded weights are values of 16 bits, whatever the type of the result is.
LEVELS = 4e-4
# Results may differ so much from those of the CPU with the same int8 inputs, relatively.
CLOSE = {torch.float32: 2e-5, torch.bfloat16: 4e-3, torch.float16: 6e-4}


def relative(a, b):
    a, b = a.detach().double().cpu(), b.detach().double().cpu()
    return float((a - b).norm() / b.norm())


def random(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def form_of(kind, rows, cols):
    name, rotations = _walsh.layer_form(kind, rows, cols, "hadamard", 0, 42, False)
    return Form(name, rows, cols, rotations)


def on_cpu(weight, form):
    layer = wt.Linear(form.cols, form.rows, False, type=form.type, rotations=form.rotations,
                      device="meta")
    layer.encode(weight)
    return layer


def placed(weight, form):
    return PlacedLinear.encode(form, weight.cuda(), fast=False, shape_gain=False)


def decoded(layer):
    from walsh._operators import weights_on

    return weights_on(0, layer.layer, layer.in_features, torch.float32)


def merged(x, layers):
    return torch.ops.walsh.linear_merged(x, layer_table(layers),
                                         sum(layer.out_features for layer in layers))


def test_what_gpus_multiply_with_is_known_without_one():
    types = _walsh.device_types()
    assert "tq3" in types and "tc3" in types and "f32" not in types


@gpu
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_on_a_gpu_become_the_codes_of_the_cpu(kind, dtype):
    form, weight = form_of(kind, 80, 512), random(80, 512).to(dtype)
    layer, expected = placed(weight, form), on_cpu(weight, form)
    assert relative(decoded(layer), expected.dequantize()) < LEVELS
    again = PlacedLinear.restore(form, expected.stored(), 0)
    assert torch.equal(decoded(again), decoded(layer))


@gpu
def test_a_slice_of_a_larger_matrix_is_encoded():
    weight, form = random(96, 512).bfloat16(), form_of("tq3", 40, 512)
    layer = PlacedLinear.encode(form, weight.cuda()[16:56], fast=False, shape_gain=False)
    assert relative(decoded(layer), on_cpu(weight[16:56], form).dequantize()) < LEVELS


@gpu
def test_a_value_that_cannot_be_encoded_is_named():
    weight = random(64, 256)
    weight[7, 9] = float("nan")
    with pytest.raises(walsh.Error, match="NaN.*row 7.*column 9|row 7.*column 9.*NaN"):
        placed(weight, form_of("tq3", 64, 256))


@gpu
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("rows", [1, 5, 17, 33, 64, 200, 300])
def test_products_are_those_of_the_cpu(kind, rows):
    weight, form = random(272, 512), form_of(kind, 272, 512)
    layer, host = placed(weight, form), on_cpu(weight, form)
    for dtype in CLOSE:
        x = random(rows, 512, seed=2).to(dtype)
        host.exact = not _multiplies(layer, rows)
        # Batches round weights and inputs to 16 bits, as products with decoded weights do.
        tolerance = CLOSE[dtype] if rows <= 16 else max(CLOSE[dtype], 2e-3)
        assert relative(merged(x.cuda(), [layer]), host(x)) < tolerance, dtype


def _multiplies(layer, rows):
    return _walsh.device_plan(layer.layer, rows, layer.out_features, layer.in_features, 0, False,
                              0) >= 0


@gpu
@pytest.mark.parametrize("rows", [3, 40, 300])
def test_layers_of_several_types_lie_side_by_side(rows):
    x, layers, expected = random(2, rows, 512, seed=3).bfloat16(), [], []
    for number, (kind, height) in enumerate((("tq3", 64), ("tc3", 48), ("tq4+4", 32))):
        weight, form = random(height, 512, seed=number), form_of(kind, height, 512)
        layers.append(placed(weight, form))
        expected.append(on_cpu(weight, form)(x))
    y = merged(x.cuda(), layers)
    assert y.shape == (2, rows, 144)
    assert relative(y, torch.cat(expected, -1)) < 1.2e-2


@gpu
def test_exact_products_have_float32_weights():
    weight, form = random(64, 512), form_of("tq3", 64, 512)
    layer, x = placed(weight, form), random(5, 512, seed=4)
    layer.exact = True
    expected = x.double() @ on_cpu(weight, form).dequantize().double().T
    assert relative(merged(x.cuda(), [layer]), expected) < LEVELS


@gpu
def test_weights_are_in_memory_of_pytorch():
    weight, form = random(1024, 4096).bfloat16().cuda(), form_of("tq3", 1024, 4096)
    PlacedLinear.encode(form, weight, fast=True, shape_gain=False)
    gc.collect()
    before = torch.cuda.memory_allocated()
    layer = PlacedLinear.encode(form, weight, fast=True, shape_gain=False)
    assert torch.cuda.memory_allocated() - before >= layer.bytes > 1024 * 4096 * 3 // 8
    del layer
    gc.collect()
    assert torch.cuda.memory_allocated() == before


class Reference:
    """Computes experts on the CPU, one by one."""

    def __init__(self, kinds, count, width, hidden):
        up_rows = 2 * width // (len(kinds) - 1)
        shapes = [(up_rows, hidden)] * (len(kinds) - 1) + [(hidden, width)]
        self.forms = [form_of(kind, *shape) for kind, shape in zip(kinds, shapes)]
        self.weights = [random(count, *shape, seed=7 + i) for i, shape in enumerate(shapes)]
        self.layers = [[on_cpu(own[expert], form) for own, form in zip(self.weights, self.forms)]
                       for expert in range(count)]
        self.count = count

    def placed(self):
        experts = PlacedExperts(self.forms, self.count, 0)
        for layer, own in enumerate(self.weights):
            experts.encode(layer, own.cuda(), fast=False, shape_gain=False)
        return experts

    def __call__(self, x, weights, ids, activation, exact=False):
        out = torch.zeros(x.shape, dtype=torch.float64)
        for t, k in [(t, k) for t in range(len(x)) for k in range(ids.shape[1])]:
            if not 0 <= ids[t, k] < self.count:
                continue
            *ups, down = self.layers[ids[t, k]]
            for layer in (*ups, down):
                layer.exact = exact
            row = x[t:t + 1].float()
            gate, up = torch.cat([layer(row) for layer in ups], -1).chunk(2, -1)
            y = down(ACTIVATIONS[activation](gate) * up)[0].double()
            out[t] += float(weights[t, k]) * y
        return out


def choices(rows, chosen, count, seed=5):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack([torch.randperm(count, generator=generator)[:chosen] for _ in range(rows)])
    return torch.rand(rows, chosen, generator=generator), ids


def run(experts, x, weights, ids, activation="silu"):
    return torch.ops.walsh.experts_placed(x.cuda(), weights.cuda(), ids.cuda(), experts.table(),
                                          activation)


@gpu
@pytest.mark.parametrize("kinds", [("tq4", "tq4"), ("tq3", "tq4+4", "tq3"), ("tc3", "tc3"),
                                   ("q4_0", "q4_0")])
@pytest.mark.parametrize("rows", [1, 4, 5, 30, 150])
def test_experts_are_those_of_the_cpu(kinds, rows):
    reference = Reference(kinds, 6, 256, 384)
    experts = reference.placed()
    weights, ids = choices(rows, 2, 6)
    x = random(rows, 384, seed=6)
    expected = reference(x, weights, ids, "silu")
    assert relative(run(experts, x, weights, ids), expected) < 1e-3
    assert relative(run(experts, x.bfloat16(), weights, ids.int()), expected) < 1e-2


@gpu
@pytest.mark.parametrize("rows", [2, 40, 200])
def test_numbers_of_no_expert_give_nothing(rows):
    reference = Reference(("tq4", "tq4"), 4, 128, 256)
    experts = reference.placed()
    weights, ids = choices(rows, 2, 4)
    ids[::2, 0] = -1
    ids[1] = torch.tensor([4, -1])
    x = random(rows, 256, seed=6)
    y = run(experts, x, weights, ids, "gelu_tanh")
    assert relative(y, reference(x, weights, ids, "gelu_tanh")) < 1e-3
    assert not y[1].any()


@gpu
def test_many_rows_are_multiplied_in_parts():
    reference = Reference(("tq4", "tq4"), 8, 128, 128)
    experts = reference.placed()
    weights, ids = choices(5000, 8, 8)
    x = random(5000, 128, seed=6)
    y = run(experts, x, weights, ids)
    for begin in (0, 2040, 4990):
        part = slice(begin, begin + 10)
        expected = reference(x[part], weights[part], ids[part], "silu")
        assert relative(y[part], expected) < 1e-3


@gpu
def test_exact_experts_have_float32_weights():
    reference = Reference(("tq3", "tq4+4", "tq3"), 4, 128, 256)
    experts = reference.placed()
    experts.exact = True
    weights, ids = choices(9, 2, 4)
    ids[3, 0] = -1
    x = random(9, 256, seed=6)
    expected = reference(x, weights, ids, "gelu", exact=True)
    assert relative(run(experts, x, weights, ids, "gelu"), expected) < 3 * LEVELS


@gpu
@pytest.mark.parametrize("rows", [2, 24, 150])
def test_graphs_record_products_and_experts(rows):
    reference = Reference(("tq4", "tq4"), 6, 128, 256)
    experts, table = reference.placed(), None
    layer = placed(random(256, 256), form_of("tq3", 256, 256))
    table, numbers = layer_table([layer]), experts.table()
    weights, ids = (value.cuda() for value in choices(rows, 2, 6))
    x = random(rows, 256, seed=6).bfloat16().cuda()

    def work():
        h = torch.ops.walsh.linear_merged(x, table, 256)
        return torch.ops.walsh.experts_placed(h, weights, ids, numbers, "silu")

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = work()
    for seed in (8, 9):
        own, other = choices(rows, 2, 6, seed)
        weights.copy_(own)
        ids.copy_(other)
        x.copy_(random(rows, 256, seed=seed))
        graph.replay()
        expected = work()
        assert relative(y, expected) < 1e-6 and expected.abs().max() > 0


@gpu
def test_stored_experts_are_copied():
    reference = Reference(("tq3", "tq3"), 3, 128, 256)
    experts = PlacedExperts(reference.forms, 3, 0)
    for expert, layers in enumerate(reference.layers):
        for number, layer in enumerate(layers):
            experts.restore(number, expert, layer.stored())
    for expert, layers in enumerate(reference.layers):
        for number, layer in enumerate(layers):
            weight = experts.weight(number, expert, torch.float32)
            assert relative(weight, layer.dequantize()) < LEVELS

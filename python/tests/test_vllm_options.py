"""Tests options and parts of layers of the vLLM plugin; needs torch and not vLLM."""
import types

import pytest

torch = pytest.importorskip("torch")

import walsh.torch  # noqa: E402
from walsh import _walsh  # noqa: E402
from walsh._packed import expert_table, layer_table  # noqa: E402
from walsh._vllm_shards import Stored, group_widths, pieces_of, shift_rotations  # noqa: E402
from walsh.vllm import Options  # noqa: E402


@pytest.mark.parametrize("method, given, message", [
    ("turboquant", {"bits": 5}, "bits: 5, expected 2, 3 or 4"),
    ("turboquant", {"bits": True}, "bits: True, expected"),
    ("turboquant", {"bits": "3"}, "bits: '3', expected"),
    ("turboquant", {"group_size": 16}, "group_size: 16, expected 128, 64 or 32"),
    ("turboquant", {"group_size": "64"}, "group_size: '64', expected 128"),
    ("turboquant", {"type": "tq4"}, "type: is no option of turboquant"),
    ("walsh", {"type": "tq9"}, "tq9"),
    ("walsh", {"type": "bf16"}, "bf16"),
    ("walsh", {"type": 4}, "type: 4, expected str"),
    ("walsh", {"seed": -1}, "seed: -1, expected 32 bits"),
    ("walsh", {"block": 100}, "100"),
    ("walsh", {"ignore": "lm_head"}, "ignore: 'lm_head', expected a list"),
    ("walsh", {"ignore": ["re:("]}, "re:("),
    ("walsh", {"overrides": ["q_proj"]}, "expected PATTERN=TYPE"),
    ("walsh", {"overrides": ["q_proj=tq7"]}, "tq7"),
    ("walsh", {"activations": "int4"}, "activations: 'int4', expected int8 or f32"),
    ("walsh", {"format_version": 2}, "format_version: 2"),
    ("walsh", {"colour": 1}, "colour: is no option of walsh"),
])
def test_wrong_options_are_one_error_that_names_them(method, given, message):
    with pytest.raises(walsh.Error) as caught:
        Options(method, given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given, name", [({}, "tq3"), ({"bits": 2}, "tq2"), ({"bits": 4}, "tq4"),
                                         ({"group_size": 128}, "tq3"),
                                         ({"group_size": 64}, "tq3:g64"),
                                         ({"group_size": None, "bits": 2}, "tq2:full")])
def test_turboquant_has_three_bits_unless_told(given, name):
    assert Options("turboquant", given).type == name


@pytest.mark.parametrize("kind", ["tq3", "tq3:g32"])
def test_part_of_a_row_has_the_codes_of_the_whole_row(kind):
    weight = torch.randn(64, 512)
    whole = walsh.torch.Linear(512, 64, False, type=kind)
    whole.encode(weight)
    for first in (0, 256):
        part = walsh.torch.Linear(256, 64, False, type=kind,
                                  rotations=shift_rotations(whole.rotations, first))
        part.encode(weight[:, first:first + 256])
        assert torch.equal(part.dequantize(), whole.dequantize()[:, first:first + 256])


def test_merged_product_is_that_of_its_layers():
    layers = [walsh.torch.Linear.from_linear(torch.nn.Linear(256, rows, bias=False), type=kind)
              for rows, kind in ((64, "tq4"), (32, "tq3"), (96, "tc3"))]
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(3, 5, 256, dtype=dtype)
        y = torch.ops.walsh.linear_merged(x, layer_table(layers), 192)
        assert torch.equal(y, torch.cat([layer(x) for layer in layers], dim=-1))
    with pytest.raises(walsh.Error, match="200 rows"):
        torch.ops.walsh.linear_merged(x, layer_table(layers), 200)
    with pytest.raises(walsh.Error, match="float64"):
        torch.ops.walsh.linear_merged(x.double(), layer_table(layers), 192)


def test_merged_product_has_a_schema_and_a_fake_kernel():
    layer = walsh.torch.Linear.from_linear(torch.nn.Linear(128, 64, bias=False), type="tq4")
    table = layer_table([layer])
    torch.library.opcheck(torch.ops.walsh.linear_merged, (torch.randn(4, 128), table, 64),
                          test_utils=("test_schema", "test_faketensor"))


def test_experts_sum_over_the_chosen():
    torch.manual_seed(2)
    ups, downs = [], []
    for _ in range(3):
        ups.append(walsh.torch.Linear.from_linear(torch.nn.Linear(128, 128, bias=False)))
        downs.append(walsh.torch.Linear.from_linear(torch.nn.Linear(64, 128, bias=False)))
    x = torch.randn(5, 128)
    ids = torch.tensor([[0, 2], [1, 0], [2, 1], [-1, 1], [0, 1]], dtype=torch.int32)
    weights = torch.rand(5, 2)
    for layer in ups + downs:
        layer.exact = True
    # Gate and up of the first are layers of their own, as they are if they have two types.
    gate, up = (walsh.torch.Linear.from_linear(torch.nn.Linear(128, 64, bias=False)) for _ in "ab")
    gate.exact = up.exact = True
    table = expert_table([[gate, up], *([one] for one in ups[1:])])
    assert table.shape == (3, 2, 3)
    found = torch.ops.walsh.experts(x, weights, ids, table, expert_table([[d] for d in downs]),
                                    "silu")
    expected = torch.zeros(5, 128)
    for token in range(5):
        for slot in range(2):
            expert = int(ids[token, slot])
            if expert >= 0:
                both = (ups[expert].plain(x[token]) if expert else
                        torch.cat([gate.plain(x[token]), up.plain(x[token])]))
                hidden = torch.nn.functional.silu(both[:64]) * both[64:]
                expected[token] += weights[token, slot] * downs[expert].plain(hidden)
    assert torch.allclose(found, expected, atol=1e-3)


def folder_layer(kind, rows, cols, rank, processes, divided):
    """Returns what vLLM tells of a layer of which each process has a part, and the form in the
    folder."""
    name, rotations = _walsh.layer_form(kind, rows, cols, "hadamard", 0, 42, False)
    layer = types.SimpleNamespace(tp_rank=rank, tp_size=processes, output_size=rows)
    part = ([rows], cols // processes) if divided == "columns" else ([rows // processes], cols)
    return Stored(layer, [{"type": name, "rotation": rotations}], part[0], part[1], cols)


@pytest.mark.parametrize("divided", ["rows", "columns"])
@pytest.mark.parametrize("kind", ["tq3", "tq4+4", "itq3_s"])
def test_processes_share_a_stored_layer(kind, divided):
    torch.manual_seed(3)
    whole = walsh.torch.Linear(512, 64, False, type=kind)
    whole.encode(torch.randn(64, 512))
    stored, expected = whole.stored(), whole.dequantize()
    for rank in range(2):
        part = folder_layer(kind, 64, 512, rank, 2, divided)
        for name, array in stored.items():
            part.take(name, array, None)
        [packed] = part.pack()
        own = (expected[:, rank * 256:][:, :256] if divided == "columns"
               else expected[rank * 32:][:32])
        assert torch.equal(packed.dequantize(), own)


@pytest.mark.parametrize("kind, cols, divided", [
    ("tq3", 384, "columns"),  # 192 columns: one block and a half
    ("itq3_s", 768, "columns"), ("tq3:full", 512, "columns"), ("tc3", 512, "columns"),
    ("tc3", 512, "rows"), ("pq3:layer", 512, "rows")])
def test_parts_that_no_block_divides_are_refused(kind, cols, divided):
    with pytest.raises(walsh.Error) as caught:
        folder_layer(kind, 64, cols, 0, 2, divided)
    assert caught.value.where == "tensor_parallel_size"


def test_stored_arrays_of_a_wrong_shape_or_absent_are_refused():
    part = folder_layer("tq3", 64, 256, 0, 1, "rows")
    with pytest.raises(walsh.Error, match="codes: torch.uint8"):
        part.take("codes", torch.zeros(64, 95, dtype=torch.uint8), None)
    with pytest.raises(walsh.Error, match="codes: torch.float32"):
        part.take("codes", torch.zeros(64, 96), None)
    with pytest.raises(walsh.Error, match="part 'k'"):
        part.take("codes", torch.zeros(64, 96, dtype=torch.uint8), "k")
    part.take("codes", torch.zeros(64, 96, dtype=torch.uint8), None)
    with pytest.raises(walsh.Error, match="scales: is missing"):
        part.pack()


def test_neighbours_of_one_type_are_one_piece():
    assert [p.rows for p in pieces_of(["tq3"], [8, 4, 4])] == [16]
    assert [(p.first_row, p.rows) for p in pieces_of(["tq3", "tq4", "tq4"], [8, 4, 4])] == [
        (0, 8), (8, 8)]
    with pytest.raises(walsh.Error, match="3 parts of what are 2 layers"):
        pieces_of(["tq3", "tq4"], [8, 4, 4])


def test_parts_of_several_widths_are_found_by_the_shapes_of_the_folder():
    forms = [{"shape": [24, 8]}, {"shape": [8, 8]}]
    assert group_widths(forms, [4, 4, 4, 4], 2) == [[4, 4, 4], [4]]
    assert group_widths(forms, [12, 4], 2) == [[12], [4]]
    for wrong in ([4, 4, 4], [4, 4, 4, 4, 4], [5, 4, 4, 4]):
        with pytest.raises(walsh.Error, match="parts, the folder has 2"):
            group_widths(forms, wrong, 2)
    layer = types.SimpleNamespace(tp_rank=1, tp_size=2, output_size=32)
    name, rotations = _walsh.layer_form("tq4", 24, 128, "hadamard", 0, 42, False)
    forms = [{"type": name, "rotation": rotations, "shape": [rows, 128]} for rows in (24, 8)]
    stored = Stored(layer, forms, [4, 4, 4, 4], 128, 128)
    whole = walsh.torch.Linear.from_linear(torch.nn.Linear(128, 24, bias=False), type="tq4")
    for key, array in whole.state_dict().items():
        stored.take(key, array, (0, 1, 2))
        stored.take(key, array[:8], 3)
    packed = stored.pack()
    rows = [*range(4, 8), *range(12, 16), *range(20, 24), *range(4, 8)]
    assert torch.equal(packed[0].dequantize(), whole.dequantize()[rows])

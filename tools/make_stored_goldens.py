#!/usr/bin/env python3
"""Writes tests/data/stored: matrices as other tools store them when they quantize, each with the
values that the tool's own library makes of it, or its published layout where no library runs here.

Needs torch, compressed-tensors, bitsandbytes (CPU), safetensors. The layouts of GPTQ and AWQ are
written by the rules of AutoGPTQ (qlinear packing; GPTQModel's `gptq_v2` keeps zero points as they
are) and of AutoAWQ (`gemm`: eight numbers of a word in the order 0 2 4 6 1 3 5 7).
"""
import json
import pathlib
import shutil

import bitsandbytes.functional as bnb
import numpy as np
import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "stored"
NAME = "layer.up"


def save(name, config, tensors, expected, codes=None):
    """Writes a case; `codes` is the format that holds the matrix bit for bit."""
    folder = OUT / name
    folder.mkdir(parents=True)
    text = json.dumps({"quantization_config": config, "codes": codes}, indent=1)
    (folder / "config.json").write_text(text + "\n")
    tensors = {f"{NAME}.{key}": value.contiguous() for key, value in tensors.items()}
    tensors["expected.weight"] = expected.contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def matrix(rows, cols, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, cols, generator=generator) * 0.05


# The following makes matrices of compressed-tensors.


def scales_of(w, args, dtype):
    """Returns scales, and zero points of matrices that are not symmetric, by the range of each
    group."""
    rows, cols = w.shape
    strategy = args["strategy"]
    if strategy == "block":
        down, across = args["block_structure"]
        grid = torch.empty(-(-rows // down), -(-cols // across))
        for i in range(grid.shape[0]):
            for j in range(grid.shape[1]):
                part = w[i * down : (i + 1) * down, j * across : (j + 1) * across]
                grid[i, j] = part.abs().max()
        return (grid / 448).to(dtype), None
    group = {"tensor": cols, "channel": cols}.get(strategy) or args["group_size"]
    parts = w.reshape(rows, cols // group, group)
    if strategy == "tensor":
        parts = w.reshape(1, 1, -1)
    if args["type"] == "float":
        most = 448 if args["num_bits"] == 8 else 6
        scale = parts.abs().amax(-1) / most
        return (scale.reshape(1) if strategy == "tensor" else scale).to(dtype), None
    levels = 2 ** args["num_bits"]
    if args["symmetric"]:
        return (parts.abs().amax(-1) / (levels / 2 - 0.5)).to(dtype), None
    low, high = parts.amin(-1).clamp(max=0), parts.amax(-1).clamp(min=0)
    scale = ((high - low) / (levels - 1)).to(dtype)
    zero = torch.round(-low / scale.float()) - levels // 2
    return scale, zero.clamp(-levels // 2, levels // 2 - 1).to(torch.int8)


def compressed(name, form, shape, dtype=torch.float16, codes=None, **args):
    args = {"symmetric": True, "type": "int", **args}
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    w = matrix(*shape, seed=len(name))
    scale, zero = scales_of(w, args, dtype)
    state = {"weight": w, "weight_scale": scale}
    if zero is not None:
        state["weight_zero_point"] = zero
    if form == "nvfp4-pack-quantized":
        state["weight_global_scale"] = torch.tensor([448 * 6 / float(w.abs().max())])
        scale = scale * state["weight_global_scale"]
        state["weight_scale"] = scale.to(torch.float8_e4m3fn).float()
    if form == "mxfp4-pack-quantized":
        state["weight_scale"] = torch.exp2(torch.ceil(torch.log2(scale.float())))
    compressor = BaseCompressor.get_value_from_registry(form)
    stored = compressor.compress(state, scheme)
    # The expected values are in float32: libraries round products to the type of the scales.
    exact = dict(stored)
    if scale.dtype in (torch.float16, torch.bfloat16):
        exact["weight_scale"] = scale.float()
    expected = compressor.decompress(exact, scheme)["weight"]
    if form == "nvfp4-pack-quantized":  # whose unpacked numbers are bfloat16
        numbers = unpack_fp4_from_uint8(stored["weight_packed"], *shape, dtype=torch.float32)
        expected = dequantize(numbers, stored["weight_scale"].float(), args=scheme.weights,
                              global_scale=stored["weight_global_scale"], dtype=torch.float32)
    config = dict(
        quant_method="compressed-tensors",
        format=form,
        config_groups={"group_0": dict(targets=["Linear"], weights=args, format=form)},
        ignore=["lm_head"],
        quantization_status="compressed",
        kv_cache_scheme=None,
    )
    save(name, config, dict(stored), expected, codes)


def make_compressed():
    group = dict(strategy="group", group_size=32)
    compressed("ct-int4", "pack-quantized", (16, 96), num_bits=4, codes="q4_0", **group)
    compressed("ct-int4-zeros", "pack-quantized", (16, 96), num_bits=4, symmetric=False,
               codes="q8_0", **group)
    compressed("ct-int4-rows", "pack-quantized", (12, 100), num_bits=4, strategy="channel")
    compressed("ct-int3", "pack-quantized", (12, 96), num_bits=3, codes="q4_0", **group)
    compressed("ct-int8-packed", "pack-quantized", (8, 96), torch.bfloat16, num_bits=8,
               codes="q8_0", **group)
    compressed("ct-int8", "int-quantized", (8, 96), torch.bfloat16, num_bits=8, codes="q8_0",
               strategy="channel")
    compressed("ct-int8-zeros", "int-quantized", (8, 96), torch.float32, num_bits=8,
               symmetric=False, strategy="channel")
    compressed("ct-fp8", "float-quantized", (8, 96), torch.bfloat16, num_bits=8, type="float",
               strategy="channel")
    compressed("ct-fp8-one", "float-quantized", (8, 96), torch.float32, num_bits=8, type="float",
               strategy="tensor")
    compressed("ct-fp8-blocks", "float-quantized", (24, 80), torch.float32, num_bits=8,
               type="float", strategy="block", block_structure=[16, 32])
    compressed("ct-nvfp4", "nvfp4-pack-quantized", (8, 96), torch.float32, num_bits=4,
               type="float", strategy="tensor_group", group_size=16)
    compressed("ct-mxfp4", "mxfp4-pack-quantized", (8, 96), torch.float32, num_bits=4,
               type="float", **group)


# The following makes matrices of GPTQ and AWQ.


def pack(numbers, bits):
    """Packs numbers [n, columns] as a stream of words per column, low bits first."""
    n, columns = numbers.shape
    flat = (numbers[:, None, :] >> np.arange(bits)[None, :, None] & 1).reshape(n * bits, columns)
    flat = flat.reshape(n * bits // 32, 32, columns).astype(np.uint32)
    words = (flat << np.arange(32, dtype=np.uint32)[None, :, None]).sum(1, dtype=np.uint32)
    return torch.from_numpy(words.view(np.int32).copy())


def round_groups(w, bits, index, symmetric):
    """Returns codes [rows, cols], scales (fp16) and zero points [rows, groups]."""
    groups, levels = index.max() + 1, 2**bits
    codes = np.zeros(w.shape, np.int64)
    scales = np.zeros((w.shape[0], groups), np.float16)
    zeros = np.full((w.shape[0], groups), levels // 2, np.int64)
    for g in range(groups):
        part = w[:, index == g]
        low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
        if symmetric:
            scales[:, g] = 2 * np.maximum(-low, high) / (levels - 1)
        else:
            scales[:, g] = (high - low) / (levels - 1)
            zeros[:, g] = np.clip(np.rint(-low / scales[:, g]), 1, levels - 1)
        part = np.rint(part / scales[:, g : g + 1].astype(np.float32)) + zeros[:, g : g + 1]
        codes[:, index == g] = np.clip(part, 0, levels - 1)
    return codes, scales, zeros


def value_of(codes, scales, zeros, index):
    values = (codes - zeros[:, index]).astype(np.float32) * scales[:, index].astype(np.float32)
    return torch.from_numpy(values)


def gptq(name, shape, bits, form, order=False, symmetric=True, codes=None):
    w = matrix(*shape, seed=bits + len(name)).numpy()
    index = np.arange(shape[1]) // 32
    if order:
        index = np.random.default_rng(7).permutation(index)
    numbers, scales, zeros = round_groups(w, bits, index, symmetric)
    tensors = dict(
        qweight=pack(numbers.T, bits),
        # Zero points lie along the outputs.
        qzeros=pack((zeros - (form == "gptq")) & (2**bits - 1), bits).T,
        scales=torch.from_numpy(scales.T.copy()),
        g_idx=torch.from_numpy(index.astype(np.int32)),
    )
    config = dict(quant_method="gptq", bits=bits, group_size=32, desc_act=order, sym=symmetric,
                  checkpoint_format=form, lm_head=False, damp_percent=0.01)
    save(name, config, tensors, value_of(numbers, scales, zeros, index), codes)


def awq(name, shape):
    w = matrix(*shape, seed=5).numpy()
    index = np.arange(shape[1]) // 32
    numbers, scales, zeros = round_groups(w, 4, index, False)

    def words(values):  # [rows, n] becomes [n, rows / 8]
        eight = values.T.reshape(values.shape[1], -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
        shifts = 4 * np.arange(8, dtype=np.uint32)
        packed = (eight.astype(np.uint32) << shifts).sum(2, dtype=np.uint32)
        return torch.from_numpy(packed.view(np.int32).copy())

    tensors = dict(qweight=words(numbers), qzeros=words(zeros),
                   scales=torch.from_numpy(scales.T.copy()))
    config = dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm",
                  modules_to_not_convert=None)
    save(name, config, tensors, value_of(numbers, scales, zeros, index), "q8_0")


def make_integers():
    gptq("gptq-int4", (16, 96), 4, "gptq", codes="q4_0")
    gptq("gptq-int4-zeros", (16, 96), 4, "gptq_v2", symmetric=False, codes="q8_0")
    gptq("gptq-int4-ordered", (16, 96), 4, "gptq", order=True, symmetric=False)
    gptq("gptq-int3", (32, 64), 3, "gptq", symmetric=False, codes="q4_0")
    gptq("gptq-int2", (16, 64), 2, "gptq_v2", symmetric=False, codes="q4_0")
    gptq("gptq-int8", (8, 96), 8, "gptq", codes="q8_0")
    awq("awq-int4", (16, 96))


# The following makes matrices of bitsandbytes.


def four_bits(name, shape, kind, nested, dtype, block):
    w = matrix(*shape, seed=len(name)).to(dtype)
    packed, state = bnb.quantize_4bit(w, blocksize=block, compress_statistics=nested,
                                      quant_type=kind)
    expected = bnb.dequantize_4bit(packed, state)
    tensors = {"weight": packed}
    tensors.update({f"weight.{k}": v for k, v in state.as_dict(packed=True).items()})
    config = dict(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type=kind,
                  bnb_4bit_use_double_quant=nested, bnb_4bit_compute_dtype="bfloat16")
    save(name, config, tensors, expected)


def make_bitsandbytes():
    four_bits("bnb-nf4", (16, 96), "nf4", False, torch.float32, 64)
    four_bits("bnb-nf4-nested", (130, 130), "nf4", True, torch.bfloat16, 64)
    four_bits("bnb-fp4-nested", (16, 96), "fp4", True, torch.float16, 128)
    w = matrix(8, 96, seed=3)
    scale = w.abs().amax(1)
    codes = torch.round(w * (127 / scale[:, None])).to(torch.int8)
    tensors = {"weight": codes, "SCB": scale, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    config = dict(quant_method="bitsandbytes", load_in_8bit=True, llm_int8_threshold=6.0)
    save("bnb-int8", config, tensors, bnb.int8_vectorwise_dequant(codes, scale))


def main():
    torch.set_num_threads(1)
    shutil.rmtree(OUT, ignore_errors=True)
    make_compressed()
    make_integers()
    make_bitsandbytes()
    size = sum(f.stat().st_size for f in OUT.rglob("*") if f.is_file())
    print(f"{len(list(OUT.iterdir()))} folders, {size} bytes")


if __name__ == "__main__":
    main()

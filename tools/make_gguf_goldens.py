#!/usr/bin/env python3
"""Writes tests/data/gguf_blocks.json: blocks of ggml's types and what the Python package gguf, the
reference implementation's own, decodes them to. Run: python3 tools/make_gguf_goldens.py > FILE

Per type: one block with its values, and a checksum of the values of 512 blocks of a stream of
bytes that the test makes as well. `clear` are bytes whose bit 6 is cleared in every block: the
largest exponents of scales, so that no value is infinite or NaN."""
import json

import gguf
import gguf.quants
import numpy

CLEAR = {"Q4_0": [1], "Q4_1": [1, 3], "Q5_0": [1], "Q5_1": [1, 3], "Q8_0": [1],
         "Q2_K": [81, 83], "Q3_K": [109], "Q4_K": [1, 3], "Q5_K": [1, 3], "Q6_K": [209],
         "IQ2_XXS": [1], "IQ2_XS": [1], "IQ2_S": [1], "IQ3_XXS": [1], "IQ3_S": [1],
         "IQ1_S": [1], "IQ1_M": [55], "IQ4_NL": [1], "IQ4_XS": [1], "TQ1_0": [53],
         "TQ2_0": [65], "MXFP4": [0], "BF16": [1], "F16": [1], "F32": [3]}
BLOCKS = 512


def stream(count):
    """Returns the top bytes of Knuth's 64-bit linear congruential generator."""
    state, out = 1, bytearray()
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(state >> 56)
    return numpy.frombuffer(bytes(out), dtype=numpy.uint8)


def fnv1a(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"{value:016x}"


def main():
    result = {}
    for name, clear in CLEAR.items():
        kind = gguf.GGMLQuantizationType[name]
        weights, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = stream(BLOCKS * size).reshape(BLOCKS, size).copy()
        for byte in clear:
            blocks[:, byte] &= 0xBF
        with numpy.errstate(over="ignore"):
            values = gguf.quants.dequantize(blocks.copy(), kind).astype("<f4").reshape(BLOCKS, -1)
        assert values.shape[1] == weights and numpy.isfinite(values).all()
        result[name] = {"id": int(kind), "clear": clear, "block": blocks[0].tobytes().hex(),
                        "values": values[0].tobytes().hex(),
                        "stream": fnv1a((values + numpy.float32(0)).tobytes())}
    print(json.dumps(result, indent=0))


main()

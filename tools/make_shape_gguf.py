#!/usr/bin/env python3
"""Writes a GGUF file of a published Llama shape in one of llama.cpp's mixes of types, with random
blocks: a model whose speed can be measured in llama.cpp and in walsh and whose texts mean nothing.
Scales are such that a product with a vector has about its length.

    python3 tools/make_shape_gguf.py OUT.gguf [--type Q4_K_M] [--shape 1b] [--layers N]

Needs numpy.
"""
import argparse
import pathlib
import struct

import numpy

from make_shape_model import SHAPES

ALIGNMENT = 32
POOL = 1 << 22  # this many bytes are random blocks, which tensors repeat

# A type has its number in ggml, weights and bytes of a block, the places of fp16 numbers in it with
# their sizes in units of the type's scale, and how large weights are in that unit.
TYPES = {
    "Q4_0": (2, 32, 18, {0: 1.0}, 4.6),
    "Q8_0": (8, 32, 34, {0: 1.0}, 74.0),
    "Q4_K": (12, 256, 144, {0: 1.0, 2: 7.5}, 240.0),
    "Q6_K": (14, 256, 210, {208: 1.0}, 1370.0),
}
F32 = 0

# A mix has the type of matrices, of the head, and of v and down in the layers with more bits.
MIXES = {
    "Q4_0": ("Q4_0", "Q6_K", "Q4_0"),
    "Q8_0": ("Q8_0", "Q8_0", "Q8_0"),
    "Q4_K_M": ("Q4_K", "Q6_K", "Q6_K"),
    "Q6_K": ("Q6_K", "Q6_K", "Q6_K"),
}


def has_more_bits(layer, layers):
    """Returns whether llama.cpp's mixes for K types give v and down of a layer more bits."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def tensors(shape, mix):
    """Yields names, types and sizes (rows, columns) in the order of the file; norms have one
    size."""
    usual, head, more = MIXES[mix]
    hidden, wide = shape["hidden_size"], shape["intermediate_size"]
    heads = shape["num_attention_heads"] * shape["head_dim"]
    shared = shape["num_key_value_heads"] * shape["head_dim"]
    yield "token_embd.weight", usual, (shape["vocab_size"], hidden)
    yield "output.weight", head, (shape["vocab_size"], hidden)
    yield "output_norm.weight", None, (hidden,)
    for layer in range(shape["num_hidden_layers"]):
        at = f"blk.{layer}."
        values = more if has_more_bits(layer, shape["num_hidden_layers"]) else usual
        for name, kind, size in (("attn_norm", None, (hidden,)), ("attn_q", usual, (heads, hidden)),
                                 ("attn_k", usual, (shared, hidden)),
                                 ("attn_v", values, (shared, hidden)),
                                 ("attn_output", usual, (hidden, heads)),
                                 ("ffn_norm", None, (hidden,)), ("ffn_gate", usual, (wide, hidden)),
                                 ("ffn_up", usual, (wide, hidden)),
                                 ("ffn_down", values, (hidden, wide))):
            yield f"{at}{name}.weight", kind, size


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def array(number, values, pack):
    """Returns an array of a GGUF file: the number of its type, its length, its values."""
    return struct.pack("<IQ", number, len(values)) + b"".join(map(pack, values))


def metadata(shape, mix):
    """Yields keys with the number of their type and their bytes."""
    whole, real, words, numbers, arrays = 4, 6, 8, 5, 9
    for key, value in (("general.architecture", "llama"), ("general.name", f"random {mix}"),
                       ("tokenizer.ggml.model", "llama")):
        yield key, words, text(value)
    for key, value in (("context_length", 2048), ("embedding_length", shape["hidden_size"]),
                       ("block_count", shape["num_hidden_layers"]),
                       ("feed_forward_length", shape["intermediate_size"]),
                       ("attention.head_count", shape["num_attention_heads"]),
                       ("attention.head_count_kv", shape["num_key_value_heads"]),
                       ("attention.key_length", shape["head_dim"]),
                       ("attention.value_length", shape["head_dim"]),
                       ("rope.dimension_count", shape["head_dim"]),
                       ("vocab_size", shape["vocab_size"])):
        yield f"llama.{key}", whole, struct.pack("<I", value)
    for key, value in (("attention.layer_norm_rms_epsilon", 1e-5), ("rope.freq_base", 10000.0)):
        yield f"llama.{key}", real, struct.pack("<f", value)
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    kinds = [2, 3, 3] + 256 * [6]
    tokens += [f"w{number}" for number in range(len(tokens), shape["vocab_size"])]
    kinds += [1] * (len(tokens) - len(kinds))
    scores = [-float(number) for number in range(len(tokens))]
    yield "tokenizer.ggml.tokens", arrays, array(words, tokens, text)
    yield "tokenizer.ggml.scores", arrays, array(real, scores, lambda x: struct.pack("<f", x))
    yield "tokenizer.ggml.token_type", arrays, array(numbers, kinds, lambda x: struct.pack("<i", x))
    for key, value in (("bos", 1), ("eos", 2), ("unknown", 0)):
        yield f"tokenizer.ggml.{key}_token_id", whole, struct.pack("<I", value)


def byte_count(kind, size):
    if kind is None:
        return 4 * size[0]
    _, weights, block, _, _ = TYPES[kind]
    return size[0] * size[1] // weights * block


def random_pool(kind, columns):
    """Returns random blocks of a type whose scales suit rows of so many columns."""
    _, _, block, places, spread = TYPES[kind]
    blocks = numpy.random.default_rng(1).integers(0, 256, (POOL // block, block), numpy.uint8)
    for place, units in places.items():
        scale = numpy.array([units / spread / columns ** 0.5], numpy.float16)
        blocks[:, place:place + 2] = scale.view(numpy.uint8)
    return blocks.tobytes()


def write(path, shape, mix):
    listed = list(tensors(shape, mix))
    pairs = list(metadata(shape, mix))
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(listed), len(pairs))
    header += b"".join(text(key) + struct.pack("<I", kind) + data for key, kind, data in pairs)
    offset = 0
    for name, kind, size in listed:
        number = F32 if kind is None else TYPES[kind][0]
        header += text(name) + struct.pack("<I", len(size))
        header += b"".join(struct.pack("<Q", count) for count in reversed(size))
        header += struct.pack("<IQ", number, offset)
        offset += -(-byte_count(kind, size) // ALIGNMENT) * ALIGNMENT
    pools = {}
    with open(path, "wb") as out:
        out.write(header + bytes(-len(header) % ALIGNMENT))
        for _, kind, size in listed:
            left = byte_count(kind, size)
            padding = -left % ALIGNMENT
            if kind is None:
                out.write(numpy.ones(size, numpy.float32).tobytes())
                left = 0
            elif (kind, size[1]) not in pools:
                pools[kind, size[1]] = random_pool(kind, size[1])
            while left > 0:
                pool = pools[kind, size[1]]
                out.write(pool[:left])
                left -= min(left, len(pool))
            out.write(bytes(padding))


def main():
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--type", choices=sorted(MIXES), default="Q4_K_M")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="1b")
    parser.add_argument("--layers", type=int, help="so many of the shape's layers")
    options = parser.parse_args()
    shape = dict(SHAPES[options.shape])
    if options.layers:
        shape["num_hidden_layers"] = options.layers
    write(options.out, shape, options.type)


if __name__ == "__main__":
    main()

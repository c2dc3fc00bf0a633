#!/usr/bin/env python3
"""Writes small valid inputs for the fuzz targets: FOLDER/NAME/ for fuzz_NAME.

usage: make_fuzz_corpus.py FOLDER
"""

import json
import math
import pathlib
import struct
import sys
from pathlib import Path


def safetensors(header: dict, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors_seeds() -> list[bytes]:
    def tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict:
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    return [
        safetensors({}, b""),
        safetensors({"t": tensor("F32", [2, 3], 0, 24)}, bytes(24)),
        safetensors(
            {
                "__metadata__": {"format": "pt"},
                "model.layers.0.mlp.up_proj.weight": tensor("BF16", [4, 2], 0, 16),
                "s": tensor("F16", [], 16, 18),
                "e": tensor("I64", [0], 18, 18),
                "f4": tensor("F4", [4], 18, 20),
            },
            bytes(20),
        ),
    ]


def text(s: str) -> bytes:
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf(version: int, pairs: list[bytes], tensors: list[tuple], alignment: int) -> bytes:
    """Returns a file; tensors are (name, dims, type id, offset, byte size)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs)
    end = 0
    for name, dims, kind, offset, size in tensors:
        out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        end = max(end, offset + size)
    out += bytes(-len(out) % alignment)
    return out + bytes(end)


def gguf_seeds() -> list[bytes]:
    scalars = [
        (0, "<B", 7), (1, "<b", -7), (2, "<H", 7), (3, "<h", -7), (4, "<I", 7), (5, "<i", -7),
        (6, "<f", 0.5), (7, "<B", 1), (10, "<Q", 7), (11, "<q", -7), (12, "<d", 0.5),
    ]  # fmt: skip
    pairs = [text(f"k{t}") + struct.pack("<I", t) + struct.pack(f, v) for t, f, v in scalars]
    pairs.append(text("general.architecture") + struct.pack("<I", 8) + text("llama"))
    pairs.append(text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text(""))
    pairs.append(text("sums") + struct.pack("<IIQ2Q", 9, 10, 2, 1, 2))
    formats = ["tc3:L12", "tc2:L8:blocks", "tc4:L16", "tc2.5:L14", "tc3:v2:L10:blocks", "tc3:h"]
    table = [
        text("walsh.tensor.format")
        + struct.pack("<IIQ", 9, 8, len(formats))
        + b"".join(text(f) for f in formats),
        text("walsh.tensor.shape")
        + struct.pack("<IIQ12Q", 9, 10, 12, 16, 32, 17, 320, 1, 33, 2, 288, 48, 64, 31, 1),
    ]
    trellis = [("w.codes", [192, 1], 24, 0, 192), ("w.scales", [2, 16], 24, 192, 32),
               ("w.col_scales", [2, 1], 24, 256, 2)]  # fmt: skip
    aligned = [text("general.alignment") + struct.pack("<II", 4, 64)]
    tensors = [("a.weight", [8, 2], 0, 0, 64), ("b", [32, 2], 8, 64, 68), ("c", [3], 24, 192, 3)]
    return [
        gguf(3, [], [], 32),
        gguf(2, pairs, [], 32),
        gguf(3, pairs, tensors[:1], 32),
        gguf(3, aligned, tensors, 64),
        gguf(3, aligned + pairs, tensors, 64),
        gguf(3, aligned + table, trellis, 64),
    ]


# A tensor of 32 rows and 32 columns has these stored arrays: suffix, row bytes, rows.
CODED = {
    "tq3": [("codes", 12, 32), ("scales", 2, 32)],
    "itq3_s8": [("codes", 12, 32), ("scales", 2, 32), ("offsets", 2, 32), ("sub_scales", 2, 32)],
    "tq4+2": [("codes", 16, 32), ("scales", 2, 32), ("codes2", 8, 32), ("scales2", 2, 32)],
    "tc2:L8": [("codes", 128, 2), ("scales", 2, 32), ("col_scales", 2, 1)],
    "tc3:L12": [("codes", 192, 2), ("scales", 2, 32), ("col_scales", 2, 1)],
    "tc4:L10:blocks": [("codes", 256, 2), ("scales", 2, 32)],
    "tc5": [("codes", 320, 2), ("scales", 2, 32), ("col_scales", 2, 1)],
    "tc6:L10:blocks": [("codes", 384, 2), ("scales", 2, 32)],
    "tc2.5:L14": [("codes", 160, 2), ("scales", 2, 32), ("col_scales", 2, 1)],
    "tc3.5:L16": [("codes", 224, 2), ("scales", 2, 32), ("col_scales", 2, 1)],
    "tc2.5:h:blocks": [("codes", 160, 2), ("scales", 2, 32)],
    "tc4:hq:L14": [("codes", 256, 2), ("scales", 2, 32), ("col_scales", 2, 1)],
    "pq3": [("codes", 12, 32), ("scales", 2, 32)],
    "pq3:layer": [("codes", 12, 32), ("scales", 2, 32), ("codebook", 1024, 1)],
}  # fmt: skip


def texts(values: list[str]) -> bytes:
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(text(v) for v in values)


def numbers(kind: int, code: str, values: list) -> bytes:
    return struct.pack(f"<IIQ{len(values)}{code}", 9, kind, len(values), *values)


def walsh_file(formats: list[str], version: int = 2) -> bytes:
    """Returns a file with the tensors t0, t1, ... of 32 rows and 32 columns and a norm, all
    zeros."""
    count = len(formats) + 1
    names = [f"t{i}" for i in range(len(formats))]
    hadamard, none = [1, 32, 42, 1], [0, 32, 0, 0]
    table = {
        "walsh.format_version": struct.pack("<II", 4, version),
        "walsh.producer": struct.pack("<I", 8) + text("walsh"),
        "walsh.recipe": struct.pack("<I", 8) + text("{}"),
        "walsh.fold.residual": numbers(4, "I", hadamard),
        "walsh.tensor.name": texts([*names, "norm"]),
        "walsh.tensor.format": texts([*formats, "bf16"]),
        "walsh.tensor.source_type": texts(["bf16"] * count),
        "walsh.tensor.shape": numbers(10, "Q", [32, 32] * len(formats) + [1, 32]),
        "walsh.tensor.linear": numbers(0, "B", [1] * count),
        "walsh.tensor.rotation": numbers(4, "I", hadamard * 2 * len(formats) + none * 2),
        "walsh.tensor.output_rotation": numbers(4, "I", hadamard * len(formats) + none),
        "walsh.balance.tensor": texts(names[:1]),
        "walsh.balance.scale": numbers(6, "f", [1.0] * 32),
        "walsh.tensor.nmse": numbers(6, "f", [0.0] * count),
        "walsh.tensor.checksum": numbers(10, "Q", [0, 0] * count),
    }
    if version >= 3:  # the target fills it in
        table["walsh.header.checksum"] = numbers(10, "Q", [0, 0])
    for name in ("config", "generation_config", "tokenizer", "tokenizer_config"):
        table[f"walsh.hf.{name}"] = struct.pack("<I", 8) + text("{}")
    tensors, offset = [], 0
    for name, kind in zip(names, formats):
        for suffix, width, rows in CODED[kind]:
            tensors.append((f"{name}.{suffix}", [width, rows], 24, offset, width * rows))
            offset += -(-width * rows // 32) * 32
    tensors.append(("norm", [32], 30, offset, 64))
    return gguf(3, [text(key) + value for key, value in table.items()], tensors, 32)


def walsh_file_seeds() -> list[bytes]:
    kinds = list(CODED)
    files = [walsh_file([kind], 3) for kind in kinds]
    return files + [walsh_file(kinds[:-1]), walsh_file(kinds[:-1], 3)]


# GGUF files of other programs have these types of weights: id, weights and bytes of a block.
GGML_TYPES = [
    (0, 1, 4), (1, 1, 2), (2, 32, 18), (3, 32, 20), (6, 32, 22), (7, 32, 24), (8, 32, 34),
    (10, 256, 84), (11, 256, 110), (12, 256, 144), (13, 256, 176), (14, 256, 210), (16, 256, 66),
    (17, 256, 74), (18, 256, 98), (19, 256, 50), (20, 32, 18), (21, 256, 110), (22, 256, 82),
    (23, 256, 136), (29, 256, 56), (30, 1, 2), (34, 256, 54), (35, 256, 66), (39, 32, 17),
]  # fmt: skip


# Further families of GGUF models have these keys and tensors (a shape without its width, whether it
# has the model's type).
EXPERTS = ({"expert_count": 2, "expert_used_count": 1, "expert_feed_forward_length": 4},
           [("ffn_gate_exps.weight", [4, 2], True), ("ffn_gate_inp.weight", [2], False)])
DELTA_NETS = ({"ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 1,
               "ssm.time_step_rank": 2, "ssm.inner_size": 32},
              [("attn_gate.weight", [32], True), ("ssm_beta.weight", [2], True),
               ("ssm_out.weight", [4], True)])  # fmt: skip
MODELS = {
    "gemma2": ({}, []), "gemma3": ({}, []), "phi3": ({}, []), "qwen2": ({}, []), "qwen3": ({}, []),
    "granite": ({}, []), "olmo2": ({}, []), "mistral3": ({}, [("attn_qkv.weight", [96], True)]),
    "llama": EXPERTS, "gpt-oss": EXPERTS, "glm4moe": EXPERTS, "qwen35": DELTA_NETS,
    "qwen3next": (EXPERTS[0] | DELTA_NETS[0], EXPERTS[1] + [("ssm_ba.weight", [4], True)]),
}  # fmt: skip


def gguf_model(architecture: str, kind: int, block: int, size: int, tokenizer: str,
               keys: dict = {}, parts: list = []) -> bytes:
    """Returns the embedding, a permuted matrix and a norm of a model of another program, and
    `parts`."""
    width = max(32, block)
    row = width // block * size
    integers = {"block_count": 1, "context_length": 64, "embedding_length": width,
                "feed_forward_length": 32, "attention.head_count": 2, "attention.key_length": 16,
                "attention.sliding_window": 8} | keys  # fmt: skip
    table = [("general.architecture", struct.pack("<I", 8) + text(architecture))]
    table += [(f"{architecture}.{k}", struct.pack("<II", 4, v)) for k, v in integers.items()]
    table += [
        (f"{architecture}.attention.layer_norm_rms_epsilon", struct.pack("<If", 6, 1e-5)),
        ("tokenizer.ggml.model", struct.pack("<I", 8) + text(tokenizer)),
        ("tokenizer.ggml.pre", struct.pack("<I", 8) + text("llama-bpe")),
        ("tokenizer.ggml.tokens", texts(["a", "b", "ab", "<s>"])),
        ("tokenizer.ggml.token_type", numbers(5, "i", [1, 1, 1, 3])),
        ("tokenizer.ggml.scores", numbers(6, "f", [-3, -2, -1, 0])),
        ("tokenizer.ggml.merges", texts(["a b"])),
        ("tokenizer.ggml.bos_token_id", struct.pack("<II", 4, 3)),
    ]
    rows = [("token_embd.weight", [4], True), ("blk.0.attn_q.weight", [4], True),
            ("output_norm.weight", [], False)]  # fmt: skip
    rows += [(f"blk.0.{name}", shape, coded) for name, shape, coded in parts]
    tensors, offset = [], 0
    for name, shape, coded in rows:
        size = math.prod(shape) * (row if coded else 4 * width)
        tensors.append((name, [width, *shape], kind if coded else 0, offset, size))
        offset += -(-size // 32) * 32
    return gguf(3, [text(key) + value for key, value in table], tensors, 32)


def gguf_model_seeds() -> list[bytes]:
    seeds = [gguf_model("llama", *kind, "gpt2") for kind in GGML_TYPES]
    return seeds + [gguf_model(a, 8, 32, 34, "llama", *more) for a, more in MODELS.items()]


def journal_seeds() -> list[bytes]:
    """Returns OUT.walsh-resume: records with a wrong checksum, which the target makes right."""
    def record(magic: bytes, key: int, content: bytes) -> bytes:
        return magic + struct.pack("<QQdQQQ", key, 2, 0.5, len(content), 0, 0) + content

    first, second = record(b"wshrese2", 1, b"content"), record(b"wshrese2", 3, bytes(100))
    return [b"", first, first + second, first + second[:-5], record(b"wshrese1", 1, b"older")]


def prefix_seeds() -> list[bytes]:
    """Returns files with a number of a session in front; the target makes their checksums right."""
    def file(kind: int, tokens: int, saved: bytes) -> bytes:
        lengths = struct.pack("<QQ", tokens, len(saved))
        head = b"walshkv\n" + struct.pack("<Q", 1) + bytes(64) + lengths + bytes(32)
        return bytes([kind]) + head + struct.pack(f"<{tokens}i", *range(tokens)) + saved

    return [file(kind, tokens, struct.pack("<q", tokens // 32 * 32) + bytes(1000))
            for kind in range(4) for tokens in (1, 32, 100)]


def recipe_seeds() -> list[bytes]:
    rules = [
        {"tensor": "re:v_proj|o_proj$", "type": "tc4:L12"},
        {"tensor": "model.layers.0.mlp.down_proj.weight", "type": "source"},
    ]
    full = {
        "walsh_recipe": 1, "about": {"text": "x"}, "type": "tc3:L12", "embed_type": "q8_0",
        "head_type": "source", "rules": rules, "rotation": "hadamard", "rotate": "both",
        "block": 256, "signs": True, "balance": False, "seed": 7, "effort": "fast",
        "scale": "shape-gain",
    }  # fmt: skip
    variants = [{"walsh_recipe": 1, "type": "pq3:layer"}, full, full | {"rotate": "residual"}]
    return [json.dumps(v).encode() for v in variants]


def recipe_pattern_seeds() -> list[bytes]:
    patterns = [
        r"layers\.(0|1|31)\.",
        "^model.*(q|k|v)_proj.weight$",
        "(.*)*(.*)*(.*)*x",
        r"(?i)[a-z_]+?\d{1,3}\b",
        r"(?=.*mlp)(?!.*down)(?<=\.)up|(?<name>o)_proj(?:.*)+\k<name>",
        r"(a|b(?1)?c)++\Q.\E[^\W\d]",
    ]
    return [p.encode() for p in patterns]


def generation_config_seeds() -> list[bytes]:
    variants = [
        {"bos_token_id": 1, "eos_token_id": [2, 3], "do_sample": True, "temperature": 0.6,
         "top_k": 20, "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.05},
        {"_from_model_config": True, "eos_token_id": 2, "do_sample": False, "top_k": -1},
        {"eos_token_id": None, "temperature": None},
    ]  # fmt: skip
    return [json.dumps(v).encode() for v in variants]


def sensitivity_seeds() -> list[bytes]:
    curves = [
        {"tensor": "a", "nmse": [0.0181, 0.1142], "damage": [0.001, 0.02]},
        {"tensor": "b", "nmse": [0.0316], "damage": [1e-12]},
        {"tensor": "c", "nmse": [0.0265, 0.0266], "damage": [1e-12, 0.5]},
    ]
    file = {"walsh_sensitivity": 1, "conditions": "text", "tensors": curves}
    return [json.dumps(file).encode()]


def config_seeds() -> list[bytes]:
    base = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 256,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": [2, 3],
    }
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    }
    variants = [
        {},
        {"rope_scaling": scaling},
        {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 128},
        {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False},
        {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rope_scaling": None},
    ]
    return [json.dumps(base | v).encode() for v in variants]


def http_seeds() -> list[bytes]:
    """Returns requests behind a byte, which is the size of the pieces that the request comes in."""
    post = b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
    return [
        b"\x00GET http://x/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"\x02\r\n" + post + b"Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n",
        b"\x06" + post + b"Transfer-Encoding: chunked\r\n\r\n"
        b'5;a="b"\r\nhello\r\n1\r\n!\r\n0\r\nT: u\r\n\r\nGET',
    ]


def tokenizer_seeds() -> list[bytes]:
    def added(index: int, content: str) -> dict:
        return {
            "id": index, "content": content, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True,
        }  # fmt: skip

    pattern = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"
    byte_level = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(5, "<s>")],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": pattern},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": True,
                    "use_regex": False,
                },
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "ByteLevel"},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4},
            "merges": ["a b", "ab c"],
        },
    }
    sentencepiece = {
        "version": "1.0",
        "added_tokens": [added(0, "<unk>"), added(1, "<s>")],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {
                "<unk>": 0, "<s>": 1, "<0x00>": 2, "<0x41>": 3, "\u2581": 4, "a": 5, "\u2581a": 6,
            },
            "merges": [["\u2581", "a"]],
        },
    }  # fmt: skip
    return [json.dumps(t).encode() for t in (byte_level, sentencepiece)]


def tiny_configs() -> list[bytes]:
    """Returns the configs of all families."""
    folder = Path(__file__).resolve().parent.parent / "tests" / "data" / "models"
    return [path.read_bytes() for path in sorted(folder.glob("*/config.json"))]


def scaled_values_seeds() -> list[bytes]:
    """Returns what the target reads: a kind, rows and columns of blocks less one; two arrays, each
    a type, rank, sizes and bytes."""
    fp8 = bytes([0, 1, 1]) + bytes([0, 2, 2, 3]) + bytes(range(6))
    fp8 += bytes([3, 2, 2, 2]) + struct.pack("<4f", 1, 2, 3, 4)
    mxfp4 = bytes([1, 0]) + bytes([1, 4, 2, 1, 1, 16]) + bytes(range(32))
    mxfp4 += bytes([1, 3, 2, 1, 1]) + bytes([127, 130])
    return [fp8, mxfp4]


STORED_ENDINGS = (
    ".weight .weight_packed .weight_scale .weight_shape .weight_zero_point .weight_g_idx"
    " .weight_global_scale .qweight .qzeros .scales .g_idx .weight.absmax .weight.quant_map"
    " .weight.nested_absmax .weight.nested_quant_map .weight.quant_state.bitsandbytes__nf4"
    " .weight.quant_state.bitsandbytes__fp4 .SCB .weight_format"
).split()
STORED_TYPES = "F32 F16 BF16 I32 I64 F8_E4M3 F8_E8M0 U8 I8".split()


def stored_forms_seeds() -> list[bytes]:
    """Returns the checkpoints of tests/data/stored as the target reads them: the length of the
    config and its text; tensors, each an ending, a type, the rank, sizes and bytes."""
    folder = Path(__file__).resolve().parent.parent / "tests" / "data" / "stored"
    seeds = []
    for path in sorted(folder.iterdir()):
        config = json.dumps(json.loads((path / "config.json").read_text(encoding="utf-8")))
        seed = struct.pack("<H", len(config)) + config.encode()
        data = (path / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + length])
        header.pop("__metadata__", None)
        for name, tensor in header.items():
            if name.startswith("layer.up"):
                shape = tensor["shape"]
                seed += bytes([STORED_ENDINGS.index(name.removeprefix("layer.up"))])
                seed += bytes([STORED_TYPES.index(tensor["dtype"]), len(shape)])
                seed += struct.pack(f"<{len(shape)}H", *shape)
                begin, end = tensor["data_offsets"]
                seed += data[8 + length + begin : 8 + length + end]
        seeds.append(seed)
    return seeds


def image_seeds() -> list[bytes]:
    root = pathlib.Path(__file__).resolve().parent.parent
    files = sorted((root / "tests/data/vision/images").iterdir())
    return [f.read_bytes() for f in files if f.suffix != ".rgb"]


def grammar_seeds() -> list[bytes]:
    """Returns grammars and schemas that use every construct."""
    return [
        b'root ::= "a" [^b-c\\n]* ("x" | y){1,3} # c\ny ::= "\\x41\\u00e9"? .+ | "" \n | root',
        b'root ::= "[" (root ("," root)*)? "]" | [0-9]{2,}',
        b'{"type": "object", "properties": {"a": {"type": "integer", "minimum": -3, "maximum": 12,'
        b' "multipleOf": 3}, "b": {"type": "string", "pattern": "^(a|[b-d]+)\\\\d{2,3}$",'
        b' "maxLength": 9}}, "required": ["a"], "additionalProperties": {"type": "null"},'
        b' "maxProperties": 4}',
        b'{"anyOf": [{"$ref": "#/$defs/n"}, {"enum": [1, "x", null]}], "$defs": {"n": {"type":'
        b' "array", "prefixItems": [{"format": "date"}], "items": {"$ref": "#"}, "maxItems": 3}}}',
        b'{"allOf": [{"type": "number", "exclusiveMinimum": 0.5}, {"maximum": 10}]}',
        b'{"oneOf": [{"type": "string", "minLength": 2}, {"type": ["null", "boolean"]}]}',
        b'{"patternProperties": {"^x": {"const": {"k": [1]}}}, "additionalProperties": false}',
    ]


def chat_template_seeds() -> list[bytes]:
    folder = Path(__file__).resolve().parent.parent / "tests" / "data" / "chat_templates"
    cases = json.loads((folder / "constructs.json").read_text(encoding="utf-8"))["cases"]
    own = [path.read_bytes() for path in sorted((folder / "own").glob("*.jinja"))]
    return own + [case["template"].encode() for case in cases]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    seeds = {
        "safetensors": safetensors_seeds(),
        "image": image_seeds(),
        "gguf": gguf_seeds(),
        "walsh_file": walsh_file_seeds(),
        "gguf_model": gguf_model_seeds(),
        "resume": journal_seeds(),
        "prefix": prefix_seeds(),
        "recipe": recipe_seeds(),
        "recipe_pattern": recipe_pattern_seeds(),
        "sensitivity": sensitivity_seeds(),
        "config": config_seeds() + tiny_configs(),
        "scaled_values": scaled_values_seeds(),
        "stored_forms": stored_forms_seeds(),
        "generation_config": generation_config_seeds(),
        "http": http_seeds(),
        "tokenizer": tokenizer_seeds(),
        "chat_template": chat_template_seeds(),
        "grammar": grammar_seeds(),
    }
    for name, contents in seeds.items():
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        for i, content in enumerate(contents):
            (folder / f"seed-{i}").write_bytes(content)


if __name__ == "__main__":
    main()

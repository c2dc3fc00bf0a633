#!/usr/bin/env python3
"""Records the tokens that transformers adds by tokenizer_config.json
(tests/text/declared_tokens_test.cpp).

    python tools/make_declared_cases.py   (once with transformers 4.57, once with transformers 5)

Writes tests/data/tokenizers/declared_tokens.json: for every configuration, the ids that each major
version gives for one text with all the tokens, and the text of the ids without special ones; null
where it refuses.
"""

import json
import os
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "critical"

import transformers  # noqa: E402

OUT = Path(__file__).resolve().parent.parent / "tests/data/tokenizers/declared_tokens.json"
TEXT = "a<s> <t> b<w> <x> <y>a <z>"
# These files stand beside the configuration.
ADDED, MAP = "added_tokens.json", "special_tokens_map.json"
PLAIN = {"single_word": False, "lstrip": False, "rstrip": False}
OWN = {
    "version": "1.0",
    "added_tokens": [
        {"id": 10, "content": "<s>", **PLAIN, "normalized": False, "special": True},
        {"id": 11, "content": "<t>", **PLAIN, "normalized": True, "special": False},
    ],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
    "model": {
        "type": "BPE",
        "vocab": {c: i for i, c in enumerate("ab<>wxyz t")},
        "merges": [],
    },
}


def token(content, **flags):
    return {"__type": "AddedToken", "content": content, **flags}


CONFIGS = [
    {},
    {"pad_token": "<w>"},
    {"pad_token": "<t>"},
    {"pad_token": None, "mask_token": ""},
    {"pad_token": token("<w>", lstrip=True), "eos_token": token("<t>", rstrip=True)},
    {"additional_special_tokens": ["<x>", "<t>", token("<y>", lstrip=True)]},
    {"extra_special_tokens": ["<y>", "<x>"], "bos_token": "<w>"},
    {"extra_special_tokens": {"image": "<z>", "audio": "<x>"}, "mask_token": "<y>"},
    {"image_token": "<x>", "audio_token": "<w>", "unk_token": "<z>"},
    {"additional_special_tokens": ["<x>"], "extra_special_tokens": ["<y>"]},
    {"eos_token": "a", "unk_token": "<x>", "cls_token": "<w>", "sep_token": "<z>"},
    {"added_tokens_decoder": {"13": token("<x>"), "12": token("<w>", special=True)}},
    {"added_tokens_decoder": {"11": token("<t>", rstrip=True, normalized=False)}},
    {"added_tokens_decoder": {"12": token("<w>", special=False)}, "pad_token": "<w>"},
    {
        "added_tokens_decoder": {"12": token("<w>", lstrip=True, normalized=True)},
        "bos_token": "<t>",
    },
    {"added_tokens_decoder": {"20": token("<w>"), "7": token("<x>")}, "pad_token": "<y>"},
    {"added_tokens_decoder": {}, "pad_token": "<t>"},
    {"split_special_tokens": True},
    {"eos_token": "<z>", ADDED: {"<z>": 12, "<w>": 13}},
    {ADDED: {"<w>": 12, "<x>": 13}, MAP: {"eos_token": PLAIN | {"content": "<x>", "lstrip": True}}},
    {"pad_token": "<w>", MAP: {"pad_token": "<x>", "bos_token": PLAIN | {"content": "<t>"}}},
    {MAP: {"additional_special_tokens": ["<z>", PLAIN | {"content": "<y>", "rstrip": True}]}},
    {"extra_special_tokens": ["<x>"], MAP: {"extra_special_tokens": ["<z>"]}},
    {"additional_special_tokens": ["<x>"], MAP: {"additional_special_tokens": ["<z>"]}},
    {"added_tokens_decoder": {}, ADDED: {"<w>": 12}, MAP: {"pad_token": "<x>"}},
    {"split_special_tokens": True, "pad_token": "<w>", "added_tokens_decoder": {"9": token("<x>")}},
]


def outcome(config):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tokenizer.json").write_text(json.dumps(OWN))
        for name in (ADDED, MAP):
            if name in config:
                Path(folder, name).write_text(json.dumps(config[name]))
        rest = {key: value for key, value in config.items() if key not in (ADDED, MAP)}
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **rest}
        Path(folder, "tokenizer_config.json").write_text(json.dumps(config))
        Path(folder, "config.json").write_text(json.dumps({"model_type": "llama"}))
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)._tokenizer
        except (ImportError, TypeError, ValueError):
            return None
        ids = tokenizer.encode(TEXT).ids
        return {"ids": ids, "plain": tokenizer.decode(ids, skip_special_tokens=True)}


def main():
    version = transformers.__version__.split(".")[0]
    cases = json.loads(OUT.read_text())["cases"] if OUT.exists() else []
    known = {json.dumps(case["config"]): case for case in cases}
    for config in CONFIGS:
        case = known.setdefault(json.dumps(config), {"config": config})
        case[version] = outcome(config)
    lines = ",\n".join(json.dumps(case) for case in known.values())
    head = f'"text": {json.dumps(TEXT)}, "tokenizer": {json.dumps(OWN)}'
    OUT.write_text(f'{{{head},\n"cases": [\n{lines}\n]}}\n')
    print(f"transformers {transformers.__version__}: {len(known)} configurations")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes the tokenizer test data: small tokenizers, strings, and Hugging Face's results for them.

    python tools/make_tokenizer_cases.py            (needs the package tokenizers; made with 0.23)

The words and snippets of tests/data/tokenizers/material.json are our own. Written beside it:
  NAME.json      a small tokenizer trained on that material
  strings.txt    one base64 string (bytes, not always valid UTF-8) per line
  NAME.expected  one line per string: two 64-bit FNV-1a hashes in hexadecimal, of the ids (with and
                 without special tokens) and of the decoded texts; every 25th line also has the ids.
The embedded model's tokenizer is tested with the same strings (walsh-tiny-13m.expected).
`--keep` only recomputes the expectations. Everything is deterministic.
"""

import argparse
import base64
import collections
import json
import random
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests" / "data" / "tokenizers"
EMBEDDED = ROOT / "models" / "walsh-tiny-13m" / "tokenizer.json"
FULL_IDS_EVERY = 25
ID_SEPARATOR = 0xFFFFFFFF

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

MATERIAL = json.loads((OUT / "material.json").read_text())
WORDS = {script: words.split() for script, words in MATERIAL["words"].items()}
SNIPPETS = MATERIAL["snippets"]
CONTRACTIONS = MATERIAL["contractions"].split()
EMOJI = MATERIAL["emoji"].split()
SPACES, CONTROLS = MATERIAL["spaces"], MATERIAL["controls"]
MARKS, SPECIALS = MATERIAL["marks"], MATERIAL["specials"]
ILL_FORMED = [bytes.fromhex(digits) for digits in MATERIAL["ill_formed"]]


def pick_words(rng, count):
    script = rng.choice(list(WORDS))
    words = WORDS[script] if rng.random() < 0.7 else WORDS["latin"]
    out = []
    for _ in range(count):
        word = rng.choice(words)
        out.append(rng.choice([word, word, word, word.upper(), word.capitalize()]))
    return out


def assigned_characters():
    """Returns the characters of Unicode 3.2, on which all libraries involved agree."""
    old = unicodedata.ucd_3_2_0
    return [
        chr(c)
        for c in range(0x110000)
        if not 0xD800 <= c < 0xE000 and old.category(chr(c)) not in ("Cn", "Co", "Cs")
    ]


def make_number(rng):
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 12)))
    return rng.choice(
        [
            digits,
            "-" + digits,
            digits + ".5",
            f"{int(digits):,}",
            "0x" + digits,
            digits + "%",
            "2024-0" + digits[:1] + "-1" + digits[-1],
            digits + "e-" + digits[:1],
            "$" + digits,
            digits.translate(
                str.maketrans(
                    "0123456789", "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669"
                )
            ),
            digits + "\u00bd",
            "v" + digits,
        ]
    )


def make_text(rng, characters):
    kind = rng.randrange(12)
    if kind == 0:
        return " ".join(pick_words(rng, rng.randint(1, 12))) + rng.choice(
            ["", ".", "!", "?\n", " ", "\u2026"]
        )
    if kind == 1:
        text = rng.choice(SNIPPETS)
        cut = rng.randrange(len(text))
        return text[cut:] + rng.choice(SNIPPETS)[: rng.randrange(40)]
    if kind == 2:
        return rng.choice([" ", "", ", "]).join(make_number(rng) for _ in range(rng.randint(1, 5)))
    if kind == 3:
        return "".join(
            rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 5])
            + rng.choice(["", "x", "1", ".", "\u00e9"])
            for _ in range(rng.randint(1, 9))
        )
    if kind == 4:
        return rng.choice([" ", "", "  "]).join(
            rng.choice(CONTRACTIONS) for _ in range(rng.randint(1, 6))
        )
    if kind == 5:
        return rng.choice(["", " "]).join(rng.choice(EMOJI) for _ in range(rng.randint(1, 6)))
    if kind == 6:
        return "".join(rng.choice(MARKS + ["a", " "]) for _ in range(rng.randint(1, 8)))
    if kind == 7:
        return "".join(rng.choice(CONTROLS + ["a", " ", "\n"]) for _ in range(rng.randint(1, 6)))
    if kind == 8:
        return "".join(
            rng.choice(SPECIALS + [" ", "  ", "a", "hello ", "\n", "_"])
            for _ in range(rng.randint(1, 9))
        )
    if kind == 9:
        return "".join(rng.choice(characters) for _ in range(rng.randint(1, 14)))
    if kind == 10:
        alphabet = rng.choice(
            ["abc", "the", "aA1 ", ".,!?'\"-", "01", "\u2581 a", "\u6c34\u77f3a", "\n ", "<>|s/"]
        )
        return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40)))
    return rng.choice(["", " "]).join(make_text(rng, characters) for _ in range(rng.randint(2, 3)))


def make_strings(count):
    rng = random.Random(20240607)
    characters = assigned_characters()
    fixed = [
        "",
        " ",
        "a",
        "\n",
        "\0",
        "\u00e9",
        "\u2581",
        "<s>",
        "a" * 3000,
        "ab" * 1500,
        " " * 700,
        "\n" * 300,
        "\u6c34" * 400,
        "1" * 500,
        "\u0301" * 200,
        "<s>" * 50,
        "\u200d" * 40,
        "x" + " " * 100 + "x",
        "waterstone",
        "waterstones",
        "an impossiblelanguage",
        " impossiblelanguages",
    ]
    fixed += CONTRACTIONS + EMOJI + SPACES + CONTROLS + MARKS + SPECIALS + SNIPPETS
    strings = [text.encode() for text in fixed] + list(ILL_FORMED)
    seen = set(strings)
    while len(strings) < count:
        data = make_text(rng, characters).encode()
        if rng.random() < 0.12:
            at = rng.randrange(len(data) + 1)
            data = data[:at] + rng.choice(ILL_FORMED) + data[at + rng.randrange(2) :]
        if data not in seen and len(data) < 4000:
            seen.add(data)
            strings.append(data)
    return strings


def corpus():
    rng = random.Random(7)
    for _ in range(3000):
        yield " ".join(pick_words(rng, 8))
        yield rng.choice(SNIPPETS)
        yield rng.choice(CONTRACTIONS) + " " + make_number(rng) + " " + rng.choice(EMOJI)


def train(tokenizer, size, **options):
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, **options)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def frequent_characters(count):
    """Chooses characters, because the trainer's own choice among equally frequent ones would vary
    from run to run."""
    counts = collections.Counter("\u2581" + "\u2581".join(" ".join(corpus()).split()))
    return sorted(counts, key=lambda c: (-counts[c], c))[:count]


def byte_level(size, specials, pre_tokenizer, normalizer=None, **model_options):
    tokenizer = Tokenizer(models.BPE(**model_options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    return tokenizer


def split_bytes(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def bos_template(token, token_id):
    return processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1", special_tokens=[(token, token_id)]
    )


def make_llama3():
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = byte_level(900, names, split_bytes(LLAMA3), ignore_merges=True)
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            bos_template(names[0], tokenizer.token_to_id(names[0])),
        ]
    )
    document = json.loads(tokenizer.to_str())
    # These are whole words without merges, which only ignore_merges can produce.
    first = len(document["model"]["vocab"])
    document["model"]["vocab"].update({"\u0120impossiblelanguage": first, "waterstone": first + 1})
    for token in document["added_tokens"]:
        token["id"] += 2
    template = document["post_processor"]["processors"][1]
    template["special_tokens"][names[0]]["ids"] = [document["added_tokens"][0]["id"]]
    return document


def make_qwen2():
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = byte_level(900, names, split_bytes(QWEN2), normalizers.NFC())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return json.loads(tokenizer.to_str())


def make_gpt2():
    tokenizer = byte_level(800, ["<|endoftext|>"], pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    document = json.loads(tokenizer.to_str())
    document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    return document


def sentencepiece_document(size, alphabet, without_bytes=(), **model_options):
    """Learns merges over words with the visible space, then puts <unk> <s> </s> and bytes first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    train(tokenizer, size, initial_alphabet=frequent_characters(alphabet), limit_alphabet=alphabet)
    learned = json.loads(tokenizer.to_str())["model"]
    names = ["<unk>", "<s>", "</s>"]
    tokens = names + [f"<0x{b:02X}>" for b in range(256) if b not in without_bytes]
    tokens += sorted(learned["vocab"], key=learned["vocab"].get)
    document = json.loads(Tokenizer(models.BPE()).to_str())
    document["model"].update(
        vocab={t: i for i, t in enumerate(tokens)},
        merges=learned["merges"],
        unk_token="<unk>",
        **model_options,
    )
    document["added_tokens"] = [
        {
            "id": i,
            "content": t,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, t in enumerate(names)
    ]
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    document["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    return document


def make_llama2():
    document = sentencepiece_document(700, 160, byte_fallback=True, fuse_unk=True)
    document["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        ],
    }
    document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    return document


def make_mistral():
    document = sentencepiece_document(650, 130, byte_fallback=True, fuse_unk=True)
    document["pre_tokenizer"] = {
        "type": "Metaspace",
        "replacement": "\u2581",
        "prepend_scheme": "first",
        "split": False,
    }
    return document


def added(number, content, **flags):
    entry = {
        "id": number,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": False,
    }
    return {**entry, **flags}


def make_assorted():
    """Makes a tokenizer with every flag of added tokens, a lossy normalizer, unknown characters
    that are fused."""
    document = sentencepiece_document(
        600, 100, without_bytes=range(256), byte_fallback=False, fuse_unk=True
    )
    document["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFKC"},
            {"type": "Lowercase"},
            {"type": "Replace", "pattern": {"Regex": r"\s{3,}"}, "content": "  "},
            {"type": "Strip", "strip_left": False, "strip_right": True},
        ],
    }
    document["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Punctuation", "behavior": "Isolated"},
            {"type": "Digits", "individual_digits": True},
            {
                "type": "Metaspace",
                "replacement": "\u2581",
                "prepend_scheme": "always",
                "split": True,
            },
        ],
    }
    document["decoder"] = {
        "type": "Metaspace",
        "replacement": "\u2581",
        "prepend_scheme": "always",
        "split": True,
    }
    flags = [
        ("<mask>", dict(lstrip=True, special=True)),
        ("[LEFT]", dict(lstrip=True)),
        ("[RIGHT]", dict(rstrip=True)),
        ("[BOTH]", dict(lstrip=True, rstrip=True, special=True)),
        ("[WORD]", dict(single_word=True)),
        ("Mixed", dict(normalized=True)),
        ("ab", dict(single_word=True)),
        ("abc", dict(single_word=True)),
        ("abcd", {}),
        ("\u00c5ngstrom", dict(normalized=True)),
        ("<pad>", dict(special=True, rstrip=True)),
        ("  ", {}),
        ("[SEP]", dict(normalized=True, single_word=True)),
    ]
    first = len(document["model"]["vocab"])
    document["added_tokens"] += [added(first + i, text, **f) for i, (text, f) in enumerate(flags)]
    return document


def make_unusual():
    """Makes a tokenizer with other splitting behaviors and decoders, some bytes missing, unknown
    characters not fused."""
    document = sentencepiece_document(
        600,
        110,
        without_bytes=range(0xE0, 0xE8),
        byte_fallback=True,
        fuse_unk=False,
        ignore_merges=True,
    )
    document["normalizer"] = {"type": "NFD"}
    document["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {
                "type": "Split",
                "pattern": {"Regex": r"\s+"},
                "behavior": "MergedWithNext",
                "invert": False,
            },
            {
                "type": "Split",
                "pattern": {"String": "-"},
                "behavior": "MergedWithPrevious",
                "invert": False,
            },
            {
                "type": "Split",
                "pattern": {"Regex": r"[\p{Han}\p{Greek}]|\b\d"},
                "behavior": "Contiguous",
                "invert": False,
            },
            {
                "type": "Split",
                "pattern": {"Regex": r"[^\u0000,;]+"},
                "behavior": "Removed",
                "invert": True,
            },
            {"type": "Digits", "individual_digits": False},
        ],
    }
    document["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "ByteFallback"},
            {"type": "Strip", "content": "\u2581", "start": 1, "stop": 0},
            {"type": "Replace", "pattern": {"Regex": "[aeiou]{2}"}, "content": "<>"},
            {"type": "Fuse"},
            {"type": "Strip", "content": "a", "start": 2, "stop": 0},
        ],
    }
    document["post_processor"]["single"].append({"SpecialToken": {"id": "</s>", "type_id": 0}})
    document["post_processor"]["special_tokens"]["</s>"] = {
        "id": "</s>",
        "ids": [2],
        "tokens": ["</s>"],
    }
    return document


def make_words():
    """Makes a tokenizer with whitespace words, no decoder, unknown characters that are dropped."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace()])
    train(tokenizer, 600, initial_alphabet=frequent_characters(120), limit_alphabet=120)
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    return json.loads(tokenizer.to_str())


MAKERS = {
    "llama3": make_llama3,
    "qwen2": make_qwen2,
    "gpt2": make_gpt2,
    "llama2": make_llama2,
    "mistral": make_mistral,
    "assorted": make_assorted,
    "unusual": make_unusual,
    "words": make_words,
}


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def expectation(tokenizer, data, with_ids):
    text = data.decode("utf-8", "replace")
    special = tokenizer.encode(text, add_special_tokens=True).ids
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    words = special + [ID_SEPARATOR] + plain
    ids_hash = fnv1a(b"".join(i.to_bytes(4, "little") for i in words))
    decoded = [
        tokenizer.decode(special, skip_special_tokens=True),
        tokenizer.decode(special, skip_special_tokens=False),
        tokenizer.decode(special[::-1], skip_special_tokens=False),
    ]
    text_hash = fnv1a(b"\xff".join(part.encode() for part in decoded))
    line = f"{ids_hash:016x} {text_hash:016x}"
    return line + " " + ",".join(map(str, special)) if with_ids else line


def write_expectations(name, tokenizer, strings):
    lines = [
        expectation(tokenizer, data, i % FULL_IDS_EVERY == 0) for i, data in enumerate(strings)
    ]
    (OUT / f"{name}.expected").write_text("\n".join(lines) + "\n")
    print(f"{name}: {tokenizer.get_vocab_size()} tokens, {len(strings)} strings")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=5200, help="number of strings")
    parser.add_argument("--keep", action="store_true", help="keep the tokenizers that are there")
    parser.add_argument("--only", help="this tokenizer only")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    strings = make_strings(arguments.count)
    (OUT / "strings.txt").write_text("".join(base64.b64encode(s).decode() + "\n" for s in strings))
    for name, make in MAKERS.items():
        if arguments.only and name != arguments.only:
            continue
        path = OUT / f"{name}.json"
        if not arguments.keep:
            path.write_text(json.dumps(make(), ensure_ascii=True, separators=(",", ":")) + "\n")
        write_expectations(name, Tokenizer.from_file(str(path)), strings)
    if not arguments.only:
        write_expectations("walsh-tiny-13m", Tokenizer.from_file(str(EMBEDDED)), strings)


if __name__ == "__main__":
    main()

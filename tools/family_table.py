#!/usr/bin/env python3
"""Writes the table of model families into docs/models.md and docs/results.md.

    test_model --gtest_filter='*Golden*' --gtest_output=json:RESULTS.json
    tools/family_table.py RESULTS.json...

RESULTS.json come from the tests that compare the tiny checkpoints with transformers (on the CPU, on
a GPU, or both); they record the largest difference of a logit, as a share of the row's largest one.
The results are stored in docs/families.json, so that both can be measured on different machines.
"""

import argparse
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ROOT / "tests/data/models"
FIGURES = ROOT / "docs/families.json"
# The families have these common names by model_type; others are named by model_type.
NAMES = {
    "arcee": "Arcee",
    "cohere2": "Cohere2 (Command R7B, Command A)",
    "deepseek_v2": "DeepSeek-V2",
    "deepseek_v3": "DeepSeek-V3, R1",
    "ernie4_5": "ERNIE 4.5",
    "ernie4_5_moe": "ERNIE 4.5 MoE",
    "exaone4": "EXAONE 4",
    "gemma": "Gemma",
    "gemma2": "Gemma 2",
    "gemma3_text": "Gemma 3 (text)",
    "gemma4_text": "Gemma 4 (text)",
    "glm": "GLM-4 (9B)",
    "glm4": "GLM-4 (0414)",
    "glm4_moe": "GLM-4.5",
    "gpt_oss": "GPT-OSS",
    "granite": "Granite",
    "granitemoehybrid": "Granite 4 hybrid",
    "granitemoe": "Granite MoE",
    "hunyuan_v1_dense": "HunYuan (dense)",
    "lfm2": "LFM2",
    "lfm2_moe": "LFM2 MoE",
    "llama": "Llama 1 to 3.3",
    "llama4_text": "Llama 4 (text)",
    "minimax_m2": "MiniMax-M2",
    "ministral": "Ministral",
    "ministral3": "Ministral 3 (text)",
    "mistral": "Mistral, Mistral Small 3 (text)",
    "mixtral": "Mixtral",
    "nemotron_h": "Nemotron-H",
    "olmo2": "OLMo 2",
    "olmo3": "OLMo 3",
    "olmoe": "OLMoE",
    "phi3": "Phi 3, 3.5, 4",
    "qwen2": "Qwen 2, 2.5",
    "qwen2_moe": "Qwen 2 MoE",
    "qwen3": "Qwen 3",
    "qwen3_5_moe_text": "Qwen 3.5 MoE (text)",
    "qwen3_5_text": "Qwen 3.5 (text)",
    "qwen3_moe": "Qwen 3 MoE",
    "qwen3_next": "Qwen3-Next",
    "qwen3_vl_moe_text": "Qwen3-VL MoE (text)",
    "qwen3_vl_text": "Qwen3-VL (text)",
    "seed_oss": "Seed-OSS",
    "smollm3": "SmolLM3",
}
ISAS = ("ref", "avx2", "avx512", "avx512vbmi", "amx")


def family_of(model):
    config = json.loads((MODELS / model / "config.json").read_text())
    return config.get("text_config", config)["model_type"]


def differences(path):
    """Reads (model, "cpu" or "gpu", difference) of every test in a results file that has one."""
    names = {re.sub("-", "_", folder.name): folder.name for folder in MODELS.iterdir()}
    for suite in json.loads(path.read_text())["testsuites"]:
        for test in suite["testsuite"]:
            if "worst" not in test or test.get("failures"):
                continue
            case = test["name"].rpartition("/")[2]
            if suite["name"].endswith("GpuGolden"):
                device = "gpu" if test["name"].startswith("LogitsAndGreedy") else None
            else:
                device = "cpu"
                case, _, isa = case.rpartition("_")
                if isa not in ISAS:
                    continue
            if device and case in names:
                yield names[case], device, float(test["worst"])


def table(figures):
    rows = {}
    for model in sorted(folder.name for folder in MODELS.iterdir()):
        rows.setdefault(family_of(model), []).append(figures.get(model, {}))
    lines = ["| family | `model_type` | checkpoints | CPU | GPU |", "|---|---|---|---|---|"]
    for family in sorted(rows, key=lambda f: NAMES.get(f, f).lower()):
        found = rows[family]
        cells = []
        for device in ("cpu", "gpu"):
            all_known = all(device in f for f in found)
            cells.append(f"{max(f[device] for f in found):.1e}" if all_known else "-")
        name = NAMES.get(family, family)
        lines.append(f"| {name} | `{family}` | {len(found)} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path, nargs="*")
    args = parser.parse_args()
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    fresh = {}
    for path in args.results:
        for model, device, difference in differences(path):
            of_model = fresh.setdefault(model, {})
            of_model[device] = max(difference, of_model.get(device, 0))
    for model, found in fresh.items():
        figures.setdefault(model, {}).update(found)
    FIGURES.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    begin, end = "<!-- families:begin -->", "<!-- families:end -->"
    for name in ("docs/models.md", "docs/results.md"):
        path = ROOT / name
        before, rest = path.read_text().split(begin)
        path.write_text(before + begin + "\n" + table(figures) + "\n" + end + rest.split(end)[1])


if __name__ == "__main__":
    main()

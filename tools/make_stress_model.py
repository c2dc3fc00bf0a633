#!/usr/bin/env python3
"""Writes a copy of a checkpoint that computes the same function but is harder to quantize.

Of the input channels of (q, k, v) and of (gate, up) of every layer, 1 % are multiplied by 30 and
1 % by 1/30; the gain of the RMSNorm in front of them is divided by the same. The tensors that
change are stored in float32, so that the function stays the same to rounding.

    tools/make_stress_model.py IN OUT [--seed 1]
"""

import argparse
import json
import pathlib
import re
import shutil

import torch
from safetensors.torch import load_file, save_file

SITES = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}
FACTOR = 30.0


def stretch(tensors, seed, share):
    generator = torch.Generator().manual_seed(seed)
    norms = [n for n in tensors if re.fullmatch(r"model\.layers\.\d+\.\w+_layernorm\.weight", n)]
    norms.sort(key=lambda name: (int(name.split(".")[2]), name))
    for norm in norms:
        prefix, site = norm.removesuffix(".weight").rsplit(".", 1)
        width = tensors[norm].numel()
        count = max(1, round(share / 2 * width))
        order = torch.randperm(width, generator=generator)
        factors = torch.ones(width, dtype=torch.float64)
        factors[order[:count]] = FACTOR
        factors[order[count : 2 * count]] = 1 / FACTOR
        tensors[norm] = (tensors[norm].double() / factors).float()
        for matrix in SITES[site]:
            name = f"{prefix}.{matrix}.weight"
            tensors[name] = (tensors[name].double() * factors).float()
    return len(norms)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.02, help="of the channels; default 0.02")
    args = parser.parse_args()

    tensors = {}
    for shard in sorted(args.source.glob("*.safetensors")):
        tensors.update(load_file(shard))
    sites = stretch(tensors, args.seed, args.share)
    args.target.mkdir(parents=True, exist_ok=True)
    for path in args.source.glob("*.json"):
        if path.name != "model.safetensors.index.json":
            shutil.copyfile(path, args.target / path.name)
    save_file(tensors, args.target / "model.safetensors", metadata={"format": "pt"})
    record = dict(source=args.source.name, seed=args.seed, share=args.share, factor=FACTOR)
    (args.target / "stress.json").write_text(json.dumps(record) + "\n")
    print(f"{args.target}: {sites} sites")


if __name__ == "__main__":
    main()

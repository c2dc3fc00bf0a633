#!/usr/bin/env python3
"""Tells how much error feedback can gain at the matrices of a model, by the spectrum of their
inputs.

With moments H of the balanced input, damped as walsh does it for 98,304 tokens, plain rounding
costs the mean of H's eigenvalues and feedback their geometric mean; a rotation changes neither.
Prints the ratio of these, the mean over the layers of a model for each role.

    tools/feedback_gain.py --text eval_docs.txt [--tokens 2048] [--orders] MODEL...

--orders: what feedback leaves in the rotated basis, relative to plain rounding, if tiles of columns
are rounded from left to right, by falling moments, or greedily.

Needs PyTorch and transformers.
"""
import argparse
import collections
import math
import statistics

import torch
import transformers

WINDOW = 512
TILE = 16
DAMPED_FOR = 98304  # it counts tokens
LEFT_OUT = ("in_proj_a", "in_proj_b")  # are never coded


def moments(model, windows):
    """Returns the sums of x x^T of the inputs of all linear layers of the decoder, by their
    names."""
    sums, handles = {}, []

    def add(name, inputs):
        x = inputs[0].reshape(-1, inputs[0].shape[-1]).double()
        sums[name] = sums.get(name, 0) + x.T @ x

    for name, module in model.named_modules():
        linear = isinstance(module, torch.nn.Linear) and "layers." in name
        if linear and not name.endswith(LEFT_OUT):
            handles.append(module.register_forward_pre_hook(lambda _, x, name=name: add(name, x)))
    with torch.no_grad():
        for window in windows:
            model.model(torch.tensor([window]))
    for handle in handles:
        handle.remove()
    return sums


def damped(moment, weight):
    """Returns the moments that feedback works with."""
    size = moment.shape[0]
    scale = (moment.diagonal().sqrt().clamp_min(1e-9) / weight.norm(dim=0)).sqrt()
    balanced = moment / scale[:, None] / scale[None, :]
    share = size / DAMPED_FOR
    damping = max(0.01, 0.4 * math.sqrt(share) + 0.3 * share * share)
    added = damping * balanced.diagonal().mean() * torch.eye(size)
    return balanced + added


def ratio(moment):
    """Returns the error with feedback relative to that without."""
    values = torch.linalg.eigvalsh(moment)
    return float(torch.exp(values.log().mean()) / values.mean())


def rotated(moment):
    """Rotates moments with random signs and a Hadamard matrix for every block of a power of two."""
    size = moment.shape[0]
    block = torch.ones(1, 1, dtype=moment.dtype)
    while block.shape[0] < (size & -size):
        block = torch.cat([torch.cat([block, block], 1), torch.cat([block, -block], 1)])
    block /= math.sqrt(block.shape[0])
    signs = 1 - 2 * torch.randint(2, (size,), generator=torch.Generator().manual_seed(42)).double()
    rotation = torch.block_diag(*[block] * (size // block.shape[0])) * signs
    return rotation @ moment @ rotation.T


def greedy(moment):
    """Orders tiles so that each of the last ones has the least left of its moments."""
    left, order = list(range(len(moment) // TILE)), []
    while left:
        sums = moment.diagonal().reshape(-1, TILE).sum(1)
        tile = min(left, key=lambda t: sums[t])
        order.append(tile)
        left.remove(tile)
        at = slice(TILE * tile, TILE * (tile + 1))
        rows = moment[:, at]
        small = 1e-12 * torch.eye(TILE)
        moment = moment - rows @ torch.linalg.solve(moment[at, at] + small, rows.T)
    return order[::-1]


def orders(moment):
    """Returns the errors with feedback, for three orders of tiles of columns."""
    moment = rotated(moment)
    sums = moment.diagonal().reshape(-1, TILE).sum(1)
    results = []
    for tiles in (range(len(sums)), sums.argsort(descending=True).tolist(), greedy(moment)):
        columns = [TILE * t + c for t in tiles for c in range(TILE)]
        flipped = moment[columns][:, columns].flip(0, 1)
        left = torch.linalg.cholesky(flipped).diagonal().square().sum()
        results.append(float(left / moment.diagonal().sum()))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--orders", action="store_true")
    args = parser.parse_args()
    for path in args.models:
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        with open(args.text, encoding="utf-8") as text:
            ids = tokenizer(text.read(200 * args.tokens), add_special_tokens=False).input_ids
        count = args.tokens // WINDOW
        step = (len(ids) - WINDOW) // max(1, count - 1)
        windows = [ids[i * step:i * step + WINDOW] for i in range(count)]
        roles = collections.defaultdict(list)
        for name, moment in moments(model, windows).items():
            weight = model.get_submodule(name).weight.data.double()
            moment = damped(moment / args.tokens, weight)
            found = orders(moment) if args.orders else [ratio(moment)]
            roles[".".join(name.split(".")[-2:])].append(found)
        print(path)
        for role, ratios in roles.items():
            means = "  ".join(f"{statistics.mean(values):.3f}" for values in zip(*ratios))
            print(f"  {role:28s} {len(ratios):3d} layers  {means}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""How much error feedback can gain at the matrices of a model, by the spectrum of their inputs.

With moments H of the balanced input, damped as walsh does it for 98,304 tokens, plain rounding
costs the mean of H's eigenvalues and feedback their geometric mean; a rotation changes neither.
Prints the ratio of these, the mean over the layers of a model for each role.

    tools/feedback_gain.py --text eval_docs.txt [--tokens 2048] MODEL...

Needs PyTorch and transformers.
"""
import argparse
import collections
import math
import statistics

import torch
import transformers

WINDOW = 512
DAMPED_FOR = 98304  # tokens
LEFT_OUT = ("in_proj_a", "in_proj_b")  # are never coded


def moments(model, windows):
    """Sums of x x^T of the inputs of all linear layers of the decoder, by their names."""
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


def ratio(moment, weight):
    """Error with feedback relative to that without."""
    size = moment.shape[0]
    scale = (moment.diagonal().sqrt().clamp_min(1e-9) / weight.norm(dim=0)).sqrt()
    balanced = moment / scale[:, None] / scale[None, :]
    share = size / DAMPED_FOR
    damping = max(0.01, 0.4 * math.sqrt(share) + 0.3 * share * share)
    added = damping * balanced.diagonal().mean() * torch.eye(size)
    values = torch.linalg.eigvalsh(balanced + added)
    return float(torch.exp(values.log().mean()) / values.mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokens", type=int, default=2048)
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
            roles[".".join(name.split(".")[-2:])].append(ratio(moment / args.tokens, weight))
        print(path)
        for role, ratios in roles.items():
            print(f"  {role:28s} {len(ratios):3d} layers  {statistics.mean(ratios):.3f}")


if __name__ == "__main__":
    main()

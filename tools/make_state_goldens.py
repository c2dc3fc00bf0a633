#!/usr/bin/env python3
"""Writes tests/data/golden_states.json: what transformers' layers give for the tiny checkpoints.

For the prompt of each golden the state behind the final norm of the last token, and the mean of all
states, in float32 with eager attention. Some of their values and their lengths are kept. A
checkpoint is left out where transformers, loading it, does not give the golden's logits.

    tools/make_state_goldens.py
"""

import json
import pathlib

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ROOT / "tests/data/models"
GOLDENS = ROOT / "tests/data/goldens"
KEPT = 12  # a vector keeps this many values


def load(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    several_parts = config.get_text_config() is not config
    names = transformers.AutoModelForImageTextToText if several_parts else None
    kind = names or transformers.AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def told(vector):
    values = [float(f"{v:.7g}") for v in vector[:KEPT].tolist()]
    return dict(values=values, length=float(f"{vector.double().norm():.7g}"))


def states(folder):
    golden = json.loads((GOLDENS / f"{folder.name}.json").read_text())
    with torch.no_grad():
        result = load(folder)(torch.tensor([golden["tokens"]]), output_hidden_states=True)
    for position, wanted, most in zip(golden["positions"], golden["logits"], golden["max_abs"]):
        found = result.logits[0, position, golden["ids"]]
        if (found - torch.tensor(wanted)).abs().max() > 1e-4 * most:
            raise ValueError("other logits than those of its golden")
    last = result.hidden_states[-1][0]
    return dict(last=told(last[-1]), mean=told(last.mean(dim=0)))


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    lines = []
    for folder in sorted(MODELS.iterdir()):
        try:
            lines.append(f" {json.dumps(folder.name)}: {json.dumps(states(folder))}")
        except (ValueError, RuntimeError, OSError, ImportError, KeyError) as error:
            print(f"{folder.name}: left out: {str(error).splitlines()[0]}")
    path = ROOT / "tests/data/golden_states.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(lines)} checkpoints, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Computes the checksum of one matrix of the model in models/ encoded in a type. Rows of
docs/results.json keep it, which shows whether the code that made them has changed since.

    tools/type_bits.py WALSH        fails if a table shows rows that today's walsh would not make,
                                    or if README.md or the guide shows a row without a checksum
"""
import functools
import json
import pathlib
import subprocess
import sys
import tempfile

import make_guide
import results_tables

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "models/walsh-tiny-13m"
MATRIX = "model.layers.0.self_attn.o_proj.weight"


@functools.cache
def of(walsh, kind):
    with tempfile.TemporaryDirectory() as place:
        out = pathlib.Path(place) / "one.gguf"
        for command in (["quantize", MODEL, out, "--type", "bf16", "--override",
                         f"{MATRIX}={kind}"], ["inspect", out, "--json"]):
            done = subprocess.run([str(walsh), *map(str, command)], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{kind}: {done.stderr}")
        tensors = json.loads(done.stdout)["tensors"]
    return next(t["checksum"] for t in tensors if t["name"] == MATRIX)


def is_prominent(row):
    """Returns whether README.md or the guide shows a row of the section quality."""
    guide = {kind + end for kind in make_guide.TYPES for end in ("", ":h")}
    return (row["model"] == make_guide.MODEL and row["activations"] == "auto" and
            row["type"] in guide.union(results_tables.WALSH))


def main():
    walsh = pathlib.Path(sys.argv[1])
    results = json.loads((ROOT / "docs/results.json").read_text())
    stale = 0
    for section in ("demo", "quality"):
        for row in results[section]:
            if row["type"] in results_tables.RETIRED:
                continue
            # Rows without a recorded checksum are marked in docs/results.md.
            if "bits" not in row and section == "quality" and is_prominent(row):
                print(f"docs/results.json: quality: {row['type']} has no checksum of what made it, "
                      "but README.md or the guide shows it: tools/make_results.py --stale")
                stale += 1
            if "bits" in row and row["bits"] != of(walsh, row["type"]):
                print(f"docs/results.json: {section}: {row['type']} was measured with other bits "
                      "than walsh makes today: tools/make_results.py --stale")
                stale += 1
    print(f"type_bits: {stale} row(s) are too old")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

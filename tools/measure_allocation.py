#!/usr/bin/env python3
"""Measures uniform formats against allocations of equal size and writes docs/allocation.json.

    tools/measure_allocation.py --model DIR --text TEXT [--calibrate TEXT] [--evaluate TEXT]
For every uniform format: an allocation of the same bits per weight is searched on the first windows
of a text, and both are measured on the windows behind; with --evaluate also on another text, from
the files. Rows that exist already are kept unless --again is given.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def size_of_uniform(args, kind):
    """Returns the bits per weight with all scales."""
    return json.loads(run([args.walsh, "quantize", args.model, "unused", "--type", kind,
                           "--effort", args.effort, "--dry-run", "--json"]))["bpw"]


def evaluate(args, scratch, flags):
    file = scratch / "evaluated.gguf"
    run([args.walsh, "quantize", args.model, file, *flags, *args.machine])
    report = json.loads(run([args.walsh, "eval", file, "--text", args.evaluate, "--chunks",
                             args.chunks, "--reference", args.model, "--json", *args.machine]))
    return {"kld": report["kld"]["mean"], "kld_stderr": report["kld"]["mean_stderr"],
            "ppl": report["ppl"], "bytes": report["bytes"]}


def measure(args, kind, scratch):
    calibration = ["--calibrate", args.calibrate] if args.calibrate else []
    calibration += ["--calibrate-tokens", args.calibrate_tokens] if args.calibrate_tokens else []
    calibration += ["--curvature", args.curvature] if args.curvature else []
    bits = size_of_uniform(args, kind)
    recipe = scratch / "recipe.json"
    sensitivity = args.sensitivity or scratch / "sensitivity.json"
    flags = ["--bpw", f"{bits + 1e-6:.6f}", "--allocate-text", args.text, "--allocate-tokens",
             args.tokens, "--allocate-evals", args.evals, "--sensitivity", sensitivity,
             "--save-recipe", recipe, "--effort", args.effort, *calibration]
    if args.candidates:
        flags += ["--candidates", args.candidates]
    run([args.walsh, "quantize", args.model, "unused", *flags, "--dry-run", "--json",
         *args.machine])
    row = json.loads(recipe.read_text())["about"]["allocation"]
    row["types"] = {t["tensor"]: t["type"] for t in row.pop("tensors")}
    if args.evaluate:
        row["evaluated"] = {
            "text": args.evaluate.name, "chunks": args.chunks,
            "uniform": evaluate(args, scratch, ["--type", kind, "--effort", args.effort,
                                                *calibration]),
            "chosen": evaluate(args, scratch, ["--recipe", recipe, *calibration])}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--walsh", default=ROOT / "build/release/walsh", type=pathlib.Path)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--text", required=True, type=pathlib.Path)
    parser.add_argument("--evaluate", type=pathlib.Path, help="another text, for the files")
    parser.add_argument("--calibrate", type=pathlib.Path)
    parser.add_argument("--calibrate-tokens", type=int)
    parser.add_argument("--curvature", type=pathlib.Path, help="of the text to calibrate with")
    parser.add_argument("--types", default="tc2.5,tc3,tc3.5,tc4")
    parser.add_argument("--candidates", help="formats to choose from, comma-separated")
    parser.add_argument("--effort", default="full", choices=["full", "fast"])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--evals", type=int, default=16)
    parser.add_argument("--chunks", type=int, default=40)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--sensitivity", type=pathlib.Path, help="file to keep or reuse")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--out", default=ROOT / "docs/allocation.json", type=pathlib.Path)
    args = parser.parse_args()
    args.machine = ["-t", args.threads] if args.threads else []

    rows = json.loads(args.out.read_text()) if args.out.is_file() else []
    with tempfile.TemporaryDirectory() as folder:
        for kind in args.types.split(","):
            key = {"model": args.model.name, "type": kind, "text": args.text.name,
                   "tokens": args.tokens, "evals": args.evals, "effort": args.effort,
                   "calibrated_on": args.calibrate.name if args.calibrate else None,
                   "calibrate_tokens": args.calibrate_tokens, "candidates": args.candidates,
                   "two_sided": args.curvature is not None}
            known = [r for r in rows if {"two_sided": False, **r}.items() >= key.items()]
            if known and not args.again:
                continue
            rows = [r for r in rows if r not in known]
            rows.append({**key, **measure(args, kind, pathlib.Path(folder))})
            args.out.write_text(json.dumps(rows, indent=1) + "\n")
            last = rows[-1]
            print(kind, last["uniform"], last["allocated"], file=sys.stderr,
                  flush=True)


if __name__ == "__main__":
    main()

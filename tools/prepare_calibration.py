#!/usr/bin/env python3
"""Prepares what `tools/make_results.py --sections calibrated --calibration DIR` reads: texts, among
them one that walsh-ref-27m draws itself, and what python -m walsh.curvature measures on them.

    tools/prepare_calibration.py --models DIR --texts DIR --out DIR [--device cuda]
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ["walsh-ref-27m", "walsh-qwen3-16m", "walsh-qwen35-17m", "walsh-moe-20m"]
TEXT = "eval_docs.txt"
# The second text to measure on is English about software, with tables and code.
COMMIT = "1e64e0e"
DOCUMENTS = ["design", "serve", "structured_output", "chat_templates", "models", "install",
             "library", "reliability", "code", "glossary"]
TOKENS = 98304


def curvature(model, text, out, device):
    command = [sys.executable, "-m", "walsh.curvature", model, "--text", text, "--out", out,
               "--tokens", TOKENS, "--device", device, "--batch", 16]
    subprocess.run([str(c) for c in command], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--models", "--texts", "--out"):
        parser.add_argument(name, type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    args.out.mkdir(parents=True)
    shutil.copy(args.texts / TEXT, args.out / TEXT)
    pages = [subprocess.run(["git", "-C", str(ROOT), "show", f"{COMMIT}:docs/{name}.md"],
                            check=True, capture_output=True).stdout for name in DOCUMENTS]
    (args.out / "documents.txt").write_bytes(b"".join(pages))
    for model in MODELS:
        curvature(args.models / model, args.out / TEXT, args.out / f"{model}-eval_docs",
                  args.device)
    folder = args.out / f"{MODELS[0]}-self"
    curvature(args.models / MODELS[0], "self", folder, args.device)
    shutil.copy(folder / "self.txt", args.out / "self.txt")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs llama.cpp and walsh on the same GGUF files: the KL divergence from llama.cpp's own logits,
and both speeds in turns.

    tools/compare_llama_cpp.py kld MODEL.gguf --text FILE [--types Q4_K_M,Q8_0] [--limit 1e-3]
    tools/compare_llama_cpp.py speed MODEL.gguf [--types Q4_K_M,Q8_0] [--threads 2,16] [--pairs 5]
    tools/compare_llama_cpp.py speed --as-they-are FILE.gguf FILE2.gguf [--threads 2,16] [--pairs 5]

MODEL.gguf has 16-bit weights; llama-quantize makes files of all types of it. Files of
tools/make_shape_gguf.py are run as they are. --llama is the folder of llama-quantize,
llama-perplexity and llama-bench (default: those on PATH); without those that are needed nothing is
run, which a line says, and the exit status is 0. kld ends with 1 if a mean is above --limit.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

TYPES = "Q2_K,Q3_K_M,IQ4_XS,IQ4_NL,Q4_0,Q4_K_M,Q5_0,Q5_K_M,Q6_K,Q8_0"


def run(command):
    """Returns what a command writes to standard output; ends the script if it fails."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {result.stderr.strip()[-2000:]}")
    return result.stdout


class Programs:
    """Says where the programs are, and how they are called."""

    def __init__(self, args):
        needed = ["llama-perplexity" if args.what == "kld" else "llama-bench"]
        if not args.as_they_are:
            needed.append("llama-quantize")
        path = args.llama or os.environ["PATH"]
        found = {name: shutil.which(name, path=path) for name in needed}
        self.missing = [name for name in needed if found[name] is None]
        self.quantize = found.get("llama-quantize")
        self.perplexity = found.get("llama-perplexity")
        self.bench = found.get("llama-bench")
        self.walsh, self.threads = args.walsh, args.threads[-1]

    def files(self, args, folder):
        """Returns names and paths of the files to run."""
        if args.as_they_are:
            return [(path.stem, path) for path in args.model]
        return [(kind, self.make(args.model[0], kind, folder, args.pure))
                for kind in args.types.split(",")]

    def make(self, model, kind, folder, pure):
        """Returns the file of a type, which is made if it is not there."""
        path = folder / f"{model.stem}-{kind}.gguf"
        if not path.exists():
            flags = ["--pure", "--token-embedding-type", "f16"] if pure else []
            run([self.quantize, *flags, model, path, kind, self.threads])
        return path

    def divergence(self, path, text, chunks, folder):
        """Returns what walsh says of its divergence from llama.cpp's logits."""
        base = folder / "base.logits"
        run([self.perplexity, "-m", path, "-f", text, "-c", "512", "-b", "512", "--chunks",
             str(chunks), "-t", self.threads, "--kl-divergence-base", base])
        answer = run([self.walsh, "eval", path, "--kl-divergence-base", base, "-t", self.threads,
                      "--json"])
        base.unlink()
        return json.loads(answer)

    def llama_speed(self, path, threads, args):
        rows = json.loads(run([self.bench, "-m", path, "-p", args.prompt, "-n", args.tokens, "-t",
                               threads, "-r", "1", "-o", "json"]))
        return {"pp" if row["n_gen"] == 0 else "tg": row["avg_ts"] for row in rows}

    def walsh_speed(self, path, threads, args):
        rows = json.loads(run([self.walsh, "bench", path, "--device", "cpu", "-p", args.prompt,
                               "-n", args.tokens, "-t", threads, "-r", "1", "-o", "json"]))
        return {row["test"][:2]: row["tokens_per_s"] for row in rows}


def compare_divergences(programs, args, folder):
    print("| type | tokens | KLD from llama.cpp's logits | 99 % | same first token |")
    print("|---|---|---|---|---|")
    above = False
    for kind, path in programs.files(args, folder):
        result = programs.divergence(path, args.text, args.chunks, folder)
        kld = result["kld"]
        above = above or not kld["mean"] <= args.limit
        print(f"| {kind} | {result['tokens']} | {kld['mean']:.2e} | {kld['p99']:.2e} "
              f"| {100 * result['top1']:.2f} % |", flush=True)
    return 1 if above else 0


def compare_speeds(programs, args, folder):
    print(f"| type | MB | threads | prompt of {args.prompt}: llama.cpp | walsh | ratio "
          f"| one sequence: llama.cpp | walsh | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind, path in programs.files(args, folder):
        for threads in args.threads:
            pairs = []
            for _ in range(args.pairs):
                pairs.append((programs.llama_speed(path, threads, args),
                              programs.walsh_speed(path, threads, args)))
            cells = [kind, f"{path.stat().st_size / 1e6:.0f}", str(threads)]
            for test in ("pp", "tg"):
                theirs, ours = ([pair[i][test] for pair in pairs] for i in (0, 1))
                ratios = sorted(b / a for a, b in zip(theirs, ours))
                cells += [f"{statistics.median(theirs):.1f}", f"{statistics.median(ours):.1f}",
                          f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"]
            print("| " + " | ".join(cells) + " |", flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kld", "speed"])
    parser.add_argument("model", type=pathlib.Path, nargs="+")
    parser.add_argument("--as-they-are", action="store_true", help="run these files")
    parser.add_argument("--llama", help="folder of llama.cpp's programs")
    parser.add_argument("--walsh", default="build/release/walsh")
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--pure", action="store_true", help="one type for all, as --pure makes")
    parser.add_argument("--threads", type=lambda text: [int(part) for part in text.split(",")],
                        default=[len(os.sched_getaffinity(0))])
    parser.add_argument("--files", type=pathlib.Path, help="folder for the files, which stay there")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--chunks", type=int, default=40)
    parser.add_argument("--limit", type=float, default=1e-3)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    programs = Programs(args)
    if programs.missing:
        print(f"skipped: {', '.join(programs.missing)} not found")
        return 0
    if args.what == "kld" and args.text is None:
        parser.error("kld needs --text")
    if len(args.model) > 1 and not args.as_they_are:
        parser.error("several files need --as-they-are")
    compare = compare_divergences if args.what == "kld" else compare_speeds
    if args.files is not None:
        args.files.mkdir(parents=True, exist_ok=True)
        return compare(programs, args, args.files)
    with tempfile.TemporaryDirectory() as folder:
        return compare(programs, args, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())

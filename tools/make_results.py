#!/usr/bin/env python3
"""Measures quality and speed with `walsh`, writes docs/results.json and the tables.

Sections can be measured one by one. Existing rows are kept unless --again is given, or --stale for
rows whose type encodes to other bits today than when they were measured.
    tools/make_results.py --models DIR --texts DIR [--sections quality,stress,...] [--threads N]
DIR holds walsh-ref-27m and walsh-qwen3-16m; texts holds wiki.test.detok.txt. The section stress
needs the rescaled model that tools/make_stress_model.py writes (--stress-model).
"""
import argparse
import json
import pathlib
import platform
import re
import subprocess
import sys

import results_tables
import type_bits

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = "wiki.test.detok.txt"
TYPES = [*(f"tc{rate}:{kind}" for kind in ("h", "hq") for rate in ("2", "2.5", "3", "3.5", "4")),
         "pq3", "pq3:layer", "tq3",
         "itq3_s", "tq4", "tq4+4", "q8_0", "q4_0", "tq2", "itq3_s8", "tq3+2", "tq4+2",
         "itq3_s:strict", "tq4:full", "tq3:full", "tq2:full", "itq3_s:ternary",
         "itq3_s:ternary-paper"]
STRESS_TYPES = ["tq4", "tq3", "itq3_s", "tq2"]
ABLATIONS = ([("tq3", f"Hadamard, block {b}", f"--block {b}") for b in (32, 64, 128, 256, 512)] +
             [("itq3_s", f"Hadamard, block {b}", f"--block {b}") for b in (32, 64, 128, 256, 512)] +
             [(t, what, flags) for t in ("tq3", "itq3_s") for what, flags in (
                 ("QR, block 128", "--rotation qr"), ("no signs", "--no-signs"),
                 ("none", "--rotation none"))])
ENDS_MODELS = ["walsh-ref-27m", "walsh-qwen3-16m", "walsh-qwen35-17m", "walsh-moe-20m",
               "walsh-ref-27m-untied"]
ENDS_TYPES = ["q8_0", "tq4+4", "tc4", "tq4"]
# Each row has model, type, sides of the feedback, text of calibration, further flags.
CALIBRATED = (
    [("walsh-ref-27m", kind, sides, "eval_docs.txt", "") for sides in ("one", "two")
     for kind in ("tq4", "tq3", "tc3", "pq3")] +
    [("walsh-ref-27m", kind, "two", "eval_docs.txt", "")
     for kind in ("tc4", "tc2", "tc4:hq", "tc3:hq", "tc2:hq")] +
    [("walsh-ref-27m", "tq3", sides, "eval_docs.txt", "--rotate residual")
     for sides in ("one", "two")] +
    [("walsh-ref-27m", "tq3", sides, "self.txt", "") for sides in ("one", "two")] +
    [("walsh-qwen3-16m", "tq3", "one", "eval_docs.txt", "")] +
    [("walsh-qwen3-16m", kind, "two", "eval_docs.txt", "")
     for kind in ("tq4", "tq3", "tc4", "tc3", "tc2")] +
    [(model, kind, sides, "eval_docs.txt", "") for model in ("walsh-qwen35-17m", "walsh-moe-20m")
     for kind in ("tq4", "tq3", "tc3") for sides in ("one", "two")
     if (model, kind) != ("walsh-moe-20m", "tq4")])
# Each row has the shape of a random model, types, type of embedding and head below 8 bits, further
# flags.
GPU_MODELS = [
    ("8b", ["bf16", "q8_0", "tq4+4", "q4_0", "tq4", "tc4:h", "itq3_s8", "tc3.5:h", "tq3", "itq3_s",
            "tc3:h", "pq3", "tc2.5:h", "tq2", "tc2:h"], "tq4", []),
    ("70b", ["itq3_s", "tq2"], "tq4", ["--device-memory", "32GiB"]),
    ("2b", ["f16", "q8_0", "tq4+4", "q4_0", "tq4", "tq3", "itq3_s", "tq2"], "tq4", []),
]
# These types of activations are measured on a GPU.
GPU_TYPES = ["q8_0", "q4_0", "itq3_s", "itq3_s:strict", "itq3_s:ternary", "itq3_s:ternary-paper",
             "itq3_s8", "tq2", "tq3", "tq4", "tq2:full", "tq3:full", "tq4:full", "tq4+4", "tq4+2",
             "tq3+2", "pq3", "tc2:h", "tc2.5:h", "tc3:h", "tc3.5:h", "tc4:h"]
SPEED_TYPES = ["bf16", "q8_0", "q4_0", "tq4+4", "tq4+2", "tq3+2", "tq4", "tq3", "itq3_s", "itq3_s8",
               "tq2", "pq3", "tc4:h", "tc3.5:h", "tc3:h", "tc2.5:h", "tc2:h"]


class Store:
    """Holds docs/results.json, written after every row so that an interrupted run can be
    continued."""

    def __init__(self, path, again, is_stale=lambda row: False):
        self.path, self.again, self.is_stale = path, again, is_stale
        self.data = json.loads(path.read_text()) if path.is_file() else {}

    def measure(self, section, key, command):
        """Appends command() + key to a section unless a row with this key is there."""
        rows = self.data.setdefault(section, [])
        known = [r for r in rows if all(r.get(k) == v for k, v in key.items())]
        if known and not self.again and not self.is_stale(known[0]):
            return known[0]
        row = {**key, **command()}
        rows[:] = [r for r in rows if r not in known] + [row]
        self.path.write_text(json.dumps(self.data, indent=1) + "\n")
        print(section, json.dumps(row), file=sys.stderr, flush=True)
        return row


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


class Tool:
    def __init__(self, args):
        self.args = args
        self.threads = ["-t", args.threads] if args.threads else []

    def eval(self, model, flags, reference=True, text=None):
        """Measures one row. Embedding and head stay as they are, unless `text` is that of
        demo.sh."""
        which = [text] if text else [pathlib.Path(self.args.texts) / TEXT, "--chunks",
                                     self.args.chunks]
        default = text or flags[:1] != ["--quantize"] or "--embed-type" in flags
        ends = [] if default else ["--embed-type", "bf16"]
        command = [self.args.walsh, "eval", model, "--json", *self.threads, *flags, *ends,
                   "--text", *which]
        if reference:
            command += ["--reference", model]
        j = json.loads(run(command))
        row = {"ppl": j["ppl"], "ppl_stderr": j["ppl_stderr"], "bpw": j["bpw"],
               "bytes": j["bytes"]}
        if flags[:1] == ["--quantize"]:
            row["bits"] = type_bits.of(self.args.walsh, flags[1])
        if reference:
            row.update(kld=j["kld"]["mean"], kld_stderr=j["kld"]["mean_stderr"],
                       p99_9=j["kld"]["p99_9"], p99=j["kld"]["p99"], median=j["kld"]["median"],
                       max=j["kld"]["max"], top1=j["top1"], rms_dp=j["rms_dp"],
                       ln_ratio=j["ln_ratio"])
        return row

    def model(self, name):
        return pathlib.Path(self.args.models) / name

    def key(self, model, **more):
        return {"model": model, "text": TEXT, "chunks": self.args.chunks, **more}


def demo(tool, store):
    """Measures the table of demo.sh: the repository's model on the repository's text."""
    model, text = ROOT / "models/walsh-tiny-13m", ROOT / "models/eval.txt"
    for kind in ("bf16", "itq3_s", "tq3", "tq4", "tq4+4"):
        flags = [] if kind == "bf16" else ["--quantize", kind]
        store.measure("demo", {"type": kind}, lambda f=flags: tool.eval(model, f, text=text))


def perplexity(tool, store):
    for model in ("walsh-ref-27m", "walsh-qwen3-16m"):
        store.measure("perplexity", tool.key(model),
                      lambda m=model: tool.eval(tool.model(m), [], reference=False))


def quality(tool, store):
    for model in tool.args.quality_models.split(","):
        for kind in tool.args.types.split(",") if tool.args.types else TYPES:
            for activations in tool.args.activations.split(","):
                flags = ["--quantize", kind, "--activations", activations]
                store.measure("quality", tool.key(model, type=kind, activations=activations),
                              lambda m=model, f=flags: tool.eval(tool.model(m), f))


def stress(tool, store):
    stressed = pathlib.Path(tool.args.stress_model)
    for balance in ("on", "off"):
        for kind in STRESS_TYPES:
            flags = ["--quantize", kind, "--balance", balance, "--activations", "f32"]

            def both(f=flags):
                plain = tool.eval(tool.model("walsh-ref-27m"), f)
                row = tool.eval(stressed, f)
                row.update(plain_kld=plain["kld"], plain_ppl=plain["ppl"])
                return row
            store.measure("stress", tool.key("walsh-ref-27m", type=kind, balance=balance), both)


def ends(tool, store):
    """Measures what codes of the embedding cost alone, which is the head of these models as well. A
    model NAME-untied has a head of its own with the same weights."""
    for model in ENDS_MODELS:
        untied = model.endswith("-untied")
        for kind in ENDS_TYPES:
            for embed, head in (("bf16", kind), (kind, "bf16")) if untied else ((kind, ""),):
                flags = ["--quantize", "bf16", "--embed-type", embed]
                flags += ["--head-type", head] if head else []
                store.measure("ends", tool.key(model, embed=embed, head=head),
                              lambda m=model, f=flags: tool.eval(tool.model(m), f))


def calibrated(tool, store):
    """Measures error feedback of one side and of two, with what tools/prepare_calibration.py has
    made."""
    place = pathlib.Path(tool.args.calibration)
    for model, kind, feedback, text, more in CALIBRATED:
        source, stored = tool.model(model), tool.args.scratch / "calibrated.gguf"
        first = pathlib.Path(tool.args.texts) / TEXT

        def one(k=kind, f=feedback, t=text, m=model, flags=more.split(), s=source, o=stored):
            command = [tool.args.walsh, "quantize", s, o, "--type", k, "--embed-type", "bf16",
                       "--calibrate", place / t, "--calibrate-tokens", 98304, *flags]
            if f == "two":
                command += ["--curvature", place / f"{m}-{t.removesuffix('.txt')}"]
            run([*command, *tool.threads])
            row = {}
            for name, path, chunks in (("", first, tool.args.chunks),
                                       ("second_", place / "documents.txt", 20)):
                j = json.loads(run([tool.args.walsh, "eval", o, "--json", *tool.threads, "--text",
                                    path, "--chunks", chunks, "--reference", s]))
                row.update({name + "kld": j["kld"]["mean"], name + "top1": j["top1"],
                            name + "kld_stderr": j["kld"]["mean_stderr"]})
            o.unlink()
            return {**row, "bpw": j["bpw"]}
        store.measure("calibrated", tool.key(model, type=kind, feedback=feedback, calibrate=text,
                                             flags=more), one)


def seeds(tool, store):
    """Measures how much results vary with the seed of the signs."""
    for kind in ("tq3", "itq3_s"):
        for seed in range(1, 5):
            flags = ["--quantize", kind, "--rotation-seed", seed]
            store.measure("seeds", tool.key("walsh-ref-27m", type=kind, seed=seed),
                          lambda f=flags: tool.eval(tool.model("walsh-ref-27m"), f))


def ablation(tool, store):
    model = tool.model("walsh-ref-27m")
    for kind, what, flags in ABLATIONS:
        def one(k=kind, f=flags.split()):
            row = tool.eval(model, ["--quantize", k, "--activations", "f32", *f])
            out = tool.args.scratch / "ablation.gguf"
            row["nmse"] = json.loads(run([tool.args.walsh, "quantize", model, out, "--type", k,
                                          "--json", *tool.threads, *f]))["nmse"]
            out.unlink()
            return row
        store.measure("ablation", tool.key("walsh-ref-27m", type=kind, what=what, flags=flags), one)


def speed(tool, store):
    for kind in SPEED_TYPES:
        key = {"shape": "1b", "type": kind}
        if not tool.args.again and any(
                r.get("shape") == "1b" and r["type"] == kind for r in store.data.get("speed", [])):
            continue
        rows = json.loads(run([tool.args.walsh, "bench", "--synthetic", "1b", "--type", kind,
                               "-p", 512, "-n", 64, "-r", 3, "-o", "json", *tool.threads]))
        for row in rows:
            store.measure("speed", {**key, "test": row["test"], "threads": row["threads"]},
                          lambda r=row: r)


def gpu(tool, store):
    """Measures whole models on the first GPU: batches of 1 to 16, prompts."""
    for shape, types, ends, flags in GPU_MODELS:
        for kind in types:
            wide = kind in ("f16", "bf16", "q8_0", "tq4+4")
            sizes = ["--parallel", "1,2,4,8,16"] if shape != "70b" else []
            key = {"shape": shape, "type": kind}
            if not tool.args.again and any(
                    r.get("shape") == shape and r["type"] == kind
                    for r in store.data.get("gpu", [])):
                continue
            rows = json.loads(run([
                tool.args.walsh, "bench", "--synthetic", shape, "--type", kind, "--end-type",
                kind if wide else ends, "--device", "cuda", "-p", "512,4096", "-n", 64, "-r", 3,
                "-o", "json", *sizes, *flags]))
            for row in rows:
                store.measure("gpu", {**key, "test": row["test"]}, lambda r=row: {
                    k: v for k, v in r.items() if k != "samples"})


def agreement(tool, store):
    """Compares the same weights on a GPU and on the exact path of the CPU."""
    for model in tool.args.quality_models.split(","):
        for kind in ["bf16"] + GPU_TYPES:
            stored = tool.args.scratch / "agreement.gguf"
            run([tool.args.walsh, "quantize", tool.model(model), stored, "--type", kind,
                 *tool.threads])
            for ctx, chunks in ((512, 4), (32, 64)):
                store.measure("agreement", {"model": model, "type": kind, "text": TEXT,
                                            "ctx": ctx, "chunks": chunks},
                              lambda s=stored, c=ctx, n=chunks: {"kld": json.loads(run(
                                  [tool.args.walsh, "eval", s, "--json", "--device", "cuda",
                                   "--reference", s, "--reference-device", "cpu",
                                   "--reference-activations", "f32", "--ctx", c, "--chunks", n,
                                   *tool.threads, "--text",
                                   pathlib.Path(tool.args.texts) / TEXT]))["kld"]["mean"]})
            stored.unlink()


def cpu_name():
    info = pathlib.Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text()) if info.is_file() else None
    return found.group(1) if found else platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--walsh", default=ROOT / "build/release/walsh", type=pathlib.Path)
    parser.add_argument("--models", help="folder of the models")
    parser.add_argument("--texts", help="folder of the texts")
    parser.add_argument("--stress-model", help="folder of the rescaled walsh-ref-27m")
    parser.add_argument("--sections", default="demo,perplexity,quality,seeds,stress,ablation,speed",
                        help="gpu, agreement, ends and calibrated are measured only where named")
    parser.add_argument("--calibration", default=ROOT / "build/calibration",
                        help="what tools/prepare_calibration.py made, for the section calibrated")
    parser.add_argument("--quality-models", default="walsh-ref-27m,walsh-qwen3-16m")
    parser.add_argument("--chunks", type=int, default=40)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--again", action="store_true", help="measure rows that exist already")
    parser.add_argument("--scratch", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--only-tables", action="store_true", help="no measurement")
    parser.add_argument("--stale", action="store_true",
                        help="measure rows whose type makes other bits today")
    parser.add_argument("--types", help="of the section quality, comma-separated")
    parser.add_argument("--activations", default="auto,f32", help="of the section quality")
    args = parser.parse_args()

    def is_stale(row):
        return (args.stale and row.get("type", "bf16") != "bf16" and
                row.get("bits") != type_bits.of(args.walsh, row["type"]))
    store = Store(ROOT / "docs/results.json", args.again, is_stale)
    if not args.only_tables:
        tool = Tool(args)
        measures = {f.__name__: f for f in (demo, perplexity, quality, seeds, stress, ablation,
                                            speed, gpu, agreement, ends, calibrated)}
        for name in args.sections.split(","):
            measures[name](tool, store)
            store.data.setdefault("machine", {})[name] = cpu_name()
        store.path.write_text(json.dumps(store.data, indent=1) + "\n")
    for page in results_tables.PAGES:
        page.write_text(results_tables.filled(page))


if __name__ == "__main__":
    main()

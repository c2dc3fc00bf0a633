#!/usr/bin/env python3
"""Writes the tables of docs/guide/README.md and of `walsh quantize MODEL` (src/cli/type_choice.cpp)
and draws docs/guide/choice.png, which is what each type costs and gives, from docs/results.json;
with --check only tells whether the tables are of today."""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GUIDE = ROOT / "docs/guide/README.md"
COMMAND = ROOT / "src/cli/type_choice.cpp"
BEGIN, END = "<!-- choice:begin -->\n", "<!-- choice:end -->"
MODEL = "walsh-ref-27m"
# The types are in the order of the table, with the purpose of each.
TYPES = {
    "bf16": "the checkpoint as it is",
    "tq4+4": "nothing may be lost, and there is room",
    "tq4+2": "next to nothing may be lost",
    "tq4": "**start here**: fast everywhere, little is lost",
    "tc4": "better than `tq4` at its size, slower to make",
    "tc3.5": "`tc4` does not fit",
    "tq3": "a GPU, and speed counts more than quality",
    "tc3": "the model does not fit otherwise",
    "tc2.5": "the largest model that fits",
    "tq2": "only as a draft or to try things out",
}
WEIGHTS = 8e9


def rows():
    results = json.loads((ROOT / "docs/results.json").read_text())
    quality = {r["type"]: r for r in results["quality"]
               if r["model"] == MODEL and r["activations"] == "auto"}
    cpu = {r["type"]: r["tokens_per_s"] for r in results["speed"]
           if r["shape"] == "1b" and r["test"] == "tg64"}
    gpu = {r["type"]: r["tokens_per_s"] for r in results["gpu"]
           if r["shape"] == "8b" and r["test"] == "tg64"}
    plain = next(r for r in results["speed"] if r["type"] == "bf16")
    for name, use in TYPES.items():
        kind = name + ":h" if name + ":h" in quality else name  # this is the full name
        own = quality.get(kind, {"bpw": plain["bpw"], "kld": 0.0, "top1": 1.0})
        yield {"type": name, "bits": own["bpw"], "kld": own["kld"], "top1": own["top1"],
               "gib": WEIGHTS * own["bpw"] / 8 / 2**30, "cpu": cpu.get(kind),
               "gpu": gpu.get(kind), "use": use}


def table():
    lines = ["| type | bits per weight | GiB for 8 billion weights | KL divergence "
             "| same top token | CPU, tokens/s | H200, tokens/s | when |",
             "|---|---|---|---|---|---|---|---|"]
    for r in rows():
        speed = [f"{r[name]:.0f}" if r[name] else "-" for name in ("cpu", "gpu")]
        kld = f"{r['kld']:.2g}" if r["kld"] else "0"
        lines.append(f"| `{r['type']}` | {r['bits']:.2f} | {r['gib']:.1f} | {kld} "
                     f"| {100 * r['top1']:.0f} % | {speed[0]} | {speed[1]} | {r['use']} |")
    return "\n".join(lines) + "\n"


def command_table():
    """Returns the table of `walsh quantize MODEL`: speeds are relative to the unquantized model."""
    plain, *types = rows()
    lines = []
    for r in types:
        cpu, gpu = ((r[key] or 0) / plain[key] for key in ("cpu", "gpu"))
        use = r["use"].replace("*", "").replace("`", "")
        lines.append(f'    {{"{r["type"]}", {r["kld"]:.2g}, {cpu:.1f}, {gpu:.1f}, "{use}"}},')
    return "\n".join(lines) + "\n    "


def draw():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [r for r in rows() if r["kld"]]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), dpi=110)
    for r in shown:
        trellis = r["type"].startswith("tc")
        color, marker = ("#c4622d", "s") if trellis else ("#1f5fa8", "o")
        left.scatter(r["gib"], r["kld"], color=color, marker=marker, zorder=3)
        left.annotate(r["type"], (r["gib"], r["kld"]), textcoords="offset points",
                      xytext=(5, 3), fontsize=8, color=color)
        right.scatter(r["cpu"], r["kld"], color=color, marker=marker, zorder=3)
        right.annotate(r["type"], (r["cpu"], r["kld"]), textcoords="offset points",
                       xytext=(5, 3), fontsize=8, color=color)
    for axes in (left, right):
        axes.set_yscale("log")
        axes.grid(True, which="both", alpha=0.25)
        axes.margins(x=0.15)
    left.set_xlabel("GiB for 8 billion weights")
    left.set_ylabel("KL divergence from the unquantized model")
    right.set_xlabel("tokens/s of a 1.1-billion-weight model on two cores")
    left.set_title("lower left: small and true")
    right.set_title("lower right: fast and true")
    figure.tight_layout()
    figure.savefig(ROOT / "docs/guide/choice.png")


def put(path, begin, end, new, check):
    """Writes a table between two marks of a file, or with `check` compares it."""
    head, rest = path.read_text().split(begin)
    old, tail = rest.split(end)
    if check and old != new:
        sys.exit(f"{path.relative_to(ROOT)}: the table is not that of docs/results.json: "
                 "run tools/make_guide.py")
    if not check:
        path.write_text(head + begin + new + end + tail)


def main():
    check = sys.argv[1:] == ["--check"]
    put(GUIDE, BEGIN, END, table(), check)
    put(COMMAND, "    // choice:begin\n", "// choice:end", command_table(), check)
    if not check:
        draw()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Draws docs/kld_vs_bpw.png from docs/results.json: KL divergence against bits per weight."""
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = "walsh-ref-27m"
# Leaves out the profiles that only re-measure a paper's claim.
HIDDEN = {"itq3_s:ternary", "itq3_s:ternary-paper"}


def main():
    results = json.loads((ROOT / "docs/results.json").read_text())
    anchors = json.loads((ROOT / "docs/anchors.json").read_text())
    rows = [r for r in results["quality"] if r["model"] == MODEL and r["activations"] == "auto"
            and r["type"] not in HIDDEN]
    figure, axes = plt.subplots(figsize=(8, 5), dpi=120)
    groups = [("walsh, rotated", "o", "#1f5fa8",
               [r for r in rows if r["type"] not in ("q8_0", "q4_0")]),
              ("walsh, not rotated", "s", "#8a8a8a", [r for r in rows if r["type"] in
                                                      ("q8_0", "q4_0")]),
              ("llama.cpp (--pure)", "^", "#c4622d",
               [r for r in anchors["llama_cpp"] if "TQ1" not in r["type"]])]
    for label, marker, color, points in groups:
        axes.scatter([p["bpw"] for p in points], [p["kld"] for p in points], marker=marker,
                     color=color, label=label, zorder=3)
        for p in points:
            axes.annotate(p["type"], (p["bpw"], p["kld"]), textcoords="offset points",
                          xytext=(5, 4), fontsize=7, color=color)
    axes.set_yscale("log")
    axes.set_xlabel("bits per weight of the linear layers")
    axes.set_ylabel("mean KL divergence from the unquantized model")
    axes.set_title(f"{MODEL}, {rows[0]['text']}, {rows[0]['chunks']} windows of 512")
    axes.grid(True, which="both", alpha=0.25)
    axes.legend()
    figure.tight_layout()
    figure.savefig(ROOT / "docs/kld_vs_bpw.png")


if __name__ == "__main__":
    main()

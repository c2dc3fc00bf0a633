#!/usr/bin/env python3
"""Draws docs/kld_vs_bpw.png from docs/results.json: KL divergence against bits per weight.

Other programs are shown by the bits that their files have; llama.cpp's with the mixes that people
use, whose tensors are not padded.
"""
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = "walsh-ref-27m"
# Leaves out profiles that only re-measure a paper's claim, and those that coincide with another: of
# trellis codes the one with the short name is shown.
HIDDEN = {"itq3_s:ternary", "itq3_s:ternary-paper", "tc2:L12", "tc2.5:L14", "tc3:L12", "tc3:v2",
          "tc3.5:L14", "tc4:L12", "tc5", "tc6", "tc2:hq", "tc2.5:hq", "tc3:hq",
          "tc3.5:hq", "tc4:hq", "pq3:layer"}
LLAMA_CPP = {"Q8_0", "Q4_K_M", "Q4_0", "IQ4_XS", "Q3_K_M", "IQ3_S", "IQ3_XXS", "Q2_K"}
# Labels that would collide are moved by so many points.
OFFSETS = {"tq3": (-5, -9), "tq3:full": (-5, -2), "itq3_s": (-5, 7), "itq3_s8": (-5, -9),
           "tq4": (24, -8), "tc4:h": (-5, -9), "pq3": (22, 3), "q4_0": (-5, 5),
           "tq2": (8, -10), "Q3_K_M": (6, -5), "IQ3_S": (6, 0), "IQ3_XXS": (0, 8), "Q4_0": (6, 4)}


def calibrated(results):
    """Returns rows with two-sided feedback on a text of another kind than the one measured on."""
    return [r for r in results["calibrated"]
            if r["model"] == MODEL and r["feedback"] == "two" and not r["flags"]
            and r["calibrate"] == "eval_docs.txt" and ":" not in r["type"]]


def main():
    results = json.loads((ROOT / "docs/results.json").read_text())
    anchors = json.loads((ROOT / "docs/anchors.json").read_text())
    rows = [r for r in results["quality"] if r["model"] == MODEL and r["activations"] == "auto"
            and r["type"] not in HIDDEN]
    figure, axes = plt.subplots(figsize=(9, 6), dpi=120)
    groups = [("walsh, rotated", "o", "#1f5fa8",
               [r for r in rows if r["type"] not in ("q8_0", "q4_0")], "right"),
              ("walsh, not rotated", "s", "#8a8a8a", [r for r in rows if r["type"] in
                                                      ("q8_0", "q4_0")], "right"),
              ("walsh, calibrated from both sides", "D", "#17824b", calibrated(results), "right"),
              ("llama.cpp", "^", "#c4622d",
               [r for r in anchors["llama_cpp"] if r["type"] in LLAMA_CPP], "left"),
              ("exllamav3, calibrated", "v", "#8b3fa0", anchors["exllamav3"], "left")]
    for label, marker, color, points, side in groups:
        axes.scatter([p["bpw"] for p in points], [p["kld"] for p in points], marker=marker,
                     color=color, label=label, zorder=3)
        for p in points:
            name = p["type"].removesuffix(":h")
            offset = OFFSETS.get(p["type"], (-5 if side == "right" else 5, 2))
            if marker == "D":
                offset = (-5, -7)
            axes.annotate(name, (p["bpw"], p["kld"]), textcoords="offset points", xytext=offset,
                          fontsize=7, color=color, ha=side)
    axes.set_yscale("log")
    axes.set_xlim(1.2, 9.2)
    axes.set_xlabel("bits per weight of the linear layers")
    axes.set_ylabel("mean KL divergence from the unquantized model")
    axes.set_title(f"{MODEL}, {rows[0]['text']}, {rows[0]['chunks']} windows of 512")
    axes.grid(True, which="both", alpha=0.25)
    axes.legend()
    figure.tight_layout()
    figure.savefig(ROOT / "docs/kld_vs_bpw.png")


if __name__ == "__main__":
    main()

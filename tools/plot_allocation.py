#!/usr/bin/env python3
"""Draws docs/allocation.png from docs/allocation.json: predicted and measured KL divergence of
uniform formats and of allocations of equal size."""
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLORS = {False: "#1f5fa8", True: "#c4622d"}


def sizes(axes, rows, calibrated):
    """Draws measured divergence against size."""
    color = COLORS[calibrated]
    label = "calibrated" if calibrated else "not calibrated"
    for which, style, fill in (("uniform", "o--", "white"), ("allocated", "o-", color)):
        points = [(r[which]["bits_per_weight"], r[which]["kld"]) for r in rows]
        axes.plot(*zip(*points), style, color=color, mfc=fill, ms=5, lw=1,
                  label=f"{which}, {label}, {rows[0]['text']}")
    for r in rows:
        mixed = r["allocated"]
        gain = 100 * (mixed["kld"] / r["uniform"]["kld"] - 1)
        axes.annotate(f"{r['type']} {gain:+.1f} %", (mixed["bits_per_weight"], mixed["kld"]),
                      textcoords="offset points", xytext=(-6, -10), fontsize=7, color=color,
                      ha="right")


def predictions(axes, rows, calibrated):
    """Draws predicted against measured divergence, both on the text of the search."""
    color = COLORS[calibrated]
    for which, fill in (("uniform", "white"), ("allocated", color)):
        found = [r[which] for r in rows]
        for key, marker in (("linear_prediction", "^"), ("prediction", "o")):
            axes.plot([m["kld_searched"] for m in found], [m[key] for m in found], marker, ms=5,
                      color=color, mfc=fill, ls="none")


def main():
    rows = json.loads((ROOT / "docs/allocation.json").read_text())
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), dpi=120)
    for calibrated in (False, True):
        some = sorted((r for r in rows if bool(r["calibrated_on"]) == calibrated),
                      key=lambda r: r["uniform"]["bits_per_weight"])
        if some:
            sizes(left, some, calibrated)
            predictions(right, some, calibrated)
    first = rows[0]
    left.margins(x=0.25)
    left.set_yscale("log")
    left.set_xlabel("bits per weight of the linear layers")
    left.set_ylabel("measured KL divergence from the unquantized model")
    left.set_title(f"{first['model']}, windows the search did not see", fontsize=9)
    right.set_xscale("log")
    right.set_yscale("log")
    ends = right.get_xlim()
    right.plot(ends, ends, color="#8a8a8a", lw=1, zorder=0)
    right.set_xlabel("measured KL divergence")
    right.set_ylabel("predicted")
    right.set_title("sum of single tensors (triangles), corrected (circles); filled: allocated",
                    fontsize=9)
    for axes in (left, right):
        axes.grid(True, which="both", alpha=0.25)
    left.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(ROOT / "docs/allocation.png")


if __name__ == "__main__":
    main()

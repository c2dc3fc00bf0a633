#!/usr/bin/env python3
"""Generates src/codec/product/product_codebook.h: the universal codebook of pq3.

    tools/make_product_codebook.py | clang-format > src/codec/product/product_codebook.h

256 vectors C for four N(0,1) weights that are coded as C[p] + rho * sign, the sign of each weight
free: the vectors are trained together with rho by alternating the assignment
p = argmin sum_i (|x_i - C[p]_i| - rho)^2 with the means of x - rho * sign and of |x - C[p]|.
Product quantization with a 1-bit residual is the idea of "data-free 3.125 bits per weight"; there
the codebook is trained first and the signs come after it, which leaves a third more error.

The samples come from a fixed seed, so the same numpy gives the same table. Several starts are
compared on few samples and the best is refined on more. Afterwards all is expressed in a unit that
makes rho a whole number; the entries are rounded to it.
"""
import sys

import numpy as np

ENTRIES, VALUES = 256, 4
STARTS, START_SAMPLES, START_ROUNDS = 6, 1 << 16, 30
SAMPLES, ROUNDS = 1 << 19, 60
TEST_SAMPLES = 1 << 20
RESIDUAL = 23  # rho in units is the largest for which |C| + rho stays within 127
CHUNK = 2048


def assign(x, codebook, rho):
    """Returns the indices of the entries with the least cost; the lowest of equal ones."""
    index = np.empty(len(x), np.int64)
    cost = np.empty((CHUNK, ENTRIES), np.float32)
    term = np.empty_like(cost)
    for begin in range(0, len(x), CHUNK):
        part = x[begin : begin + CHUNK]
        total, t = cost[: len(part)], term[: len(part)]
        total.fill(0)
        for i in range(VALUES):
            np.subtract(part[:, i, None], codebook[None, :, i], out=t)
            np.abs(t, out=t)
            t -= rho
            t *= t
            total += t
        index[begin : begin + CHUNK] = total.argmin(1)
    return index


def update(x, codebook, rho, index):
    """Returns the means of the cells (an empty cell keeps its entry), then the mean magnitude
    left."""
    signs = np.where(x >= codebook[index], np.float32(1), np.float32(-1))
    targets = (x - rho * signs).astype(np.float64)
    count = np.bincount(index, minlength=ENTRIES)
    sums = np.stack([np.bincount(index, targets[:, i], ENTRIES) for i in range(VALUES)], 1)
    moved = np.where(count[:, None] > 0, sums / np.maximum(count, 1)[:, None], codebook)
    codebook = moved.astype(np.float32)
    return codebook, np.float32(np.abs(x - codebook[index]).mean(dtype=np.float64))


def error(x, codebook, rho, index):
    """Returns the normalised squared error with the best common scale."""
    signs = np.where(x >= codebook[index], np.float32(1), np.float32(-1))
    decoded = (codebook[index] + rho * signs).astype(np.float64)
    x = x.astype(np.float64)
    xq, qq, xx = (x * decoded).sum(), (decoded * decoded).sum(), (x * x).sum()
    return 1 - xq * xq / (qq * xx)


def train(x, codebook, rho, rounds):
    for _ in range(rounds):
        codebook, rho = update(x, codebook, rho, assign(x, codebook, rho))
    return codebook, rho


def best_start(x):
    results = []
    for seed in range(STARTS):
        rng = np.random.default_rng([seed, ENTRIES])
        codebook = np.float32(0.8) * x[rng.choice(len(x), ENTRIES, replace=False)]
        codebook, rho = train(x, codebook, np.float32(0.5), START_ROUNDS)
        results.append((error(x, codebook, rho, assign(x, codebook, rho)), codebook, rho))
        print("start %d: rho %.5f, NMSE %.6f" % (seed, rho, results[-1][0]), file=sys.stderr)
    return min(results, key=lambda r: r[0])[1:]


def whole_numbers(codebook, rho):
    """Returns the entries in units of rho / RESIDUAL, shortest vector first."""
    unit = rho / np.float32(RESIDUAL)
    limit = 127 - RESIDUAL
    entries = np.clip(np.rint(codebook / unit), -limit, limit).astype(np.int64)
    order = sorted(range(ENTRIES), key=lambda p: ((entries[p] ** 2).sum(), tuple(entries[p])))
    return entries[order], unit


def main():
    samples = np.random.default_rng(1).standard_normal((SAMPLES, VALUES)).astype(np.float32)
    codebook, rho = train(samples, *best_start(samples[:START_SAMPLES]), ROUNDS)
    entries, unit = whole_numbers(codebook, rho)
    test = np.random.default_rng(2).standard_normal((TEST_SAMPLES, VALUES)).astype(np.float32)
    whole, step = entries.astype(np.float32) * unit, np.float32(RESIDUAL) * unit
    for name, c, r in (("trained", codebook, rho), ("rounded", whole, step)):
        print("%s: rho %.6f, largest %.4f, NMSE on other samples %.6f" %
              (name, r, np.abs(c).max(), error(test, c, r, assign(test, c, r))), file=sys.stderr)

    print("// This is the universal codebook of pq3 (docs/formats/pq3.md). It is written by")
    print("// tools/make_product_codebook.py; do not edit it.")
    print("#pragma once\n\n#include <cstdint>\n\nnamespace walsh::detail {\n")
    print("// Each vector stands for four weights of N(0,1) in units of kProductUnit. They were")
    print("// trained together with the residual; the shortest comes first.")
    rows = ",".join("{%d, %d, %d, %d}" % tuple(e) for e in entries)
    print("inline constexpr int8_t kProductCodebook[256][4] = {%s};\n" % rows)
    print("// The sign of each weight adds or takes this away, in the same unit.")
    print("inline constexpr int kProductResidual = %d;\n" % RESIDUAL)
    print("inline constexpr float kProductUnit = %.9ff;\n" % unit)
    print("}  // namespace walsh::detail")


if __name__ == "__main__":
    main()

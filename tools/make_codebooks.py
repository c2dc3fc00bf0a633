#!/usr/bin/env python3
"""Generates src/codec/codebooks.h: the level tables of the scalar and trellis formats.

    tools/make_codebooks.py | clang-format > src/codec/codebooks.h

Lloyd-Max quantizers of N(0,1) by Lloyd's iteration (Lloyd 1982, Max 1960): thresholds are
midpoints, levels are conditional means. tests/codec/codebooks_test.cpp proves the result a
fixed point.
"""
import math
from statistics import NormalDist


def pdf(x):
    return math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def upper_tail(x):
    return 0.5 * math.erfc(x / math.sqrt(2))


def lloyd_max(n):
    """Returns the n levels, ascending; n is even or odd, the levels are symmetric."""
    half = n // 2
    odd = n % 2 == 1
    levels = [(i + 0.5) * 3.0 / half for i in range(half)]  # this is the positive side
    while True:
        first = levels[0] / 2 if odd else 0.0
        edges = [first] + [(a + b) / 2 for a, b in zip(levels, levels[1:])] + [math.inf]
        moved = []
        for low, high in zip(edges, edges[1:]):
            top = (0.0, 0.0) if math.isinf(high) else (pdf(high), upper_tail(high))
            moved.append((pdf(low) - top[0]) / (upper_tail(low) - top[1]))
        change = max(abs(a - b) for a, b in zip(levels, moved))
        levels = moved
        if change < 1e-14:
            return [-v for v in reversed(levels)] + ([0.0] if odd else []) + levels


def uniform_six_scale():
    """Returns the scale d of the six levels q d/4, q = +-1, +-3, +-5, with the least error on
    N(0,1): the fixed point of h = E[x q] / E[q^2], h = d/4, with nearest-level assignment."""
    h = 0.36
    while True:
        xq = qq = 0.0
        for q, low, high in ((1, 0.0, 2 * h), (3, 2 * h, 4 * h), (5, 4 * h, math.inf)):
            top = (0.0, 0.0) if math.isinf(high) else (pdf(high), upper_tail(high))
            xq += q * (pdf(low) - top[0])
            qq += q * q * (upper_tail(low) - top[1])
        if abs(xq / qq - h) < 1e-14:
            return 4 * xq / qq
        h = xq / qq


def interleave(by_rank):
    """Turns levels by rank 2t + s into a table by code t | s << 2; unused ranks repeat the level of
    t = 2."""
    table = []
    for code in range(8):
        t, s = code & 3, code >> 2
        rank = 2 * t + s
        table.append(by_rank[rank] if rank < len(by_rank) else by_rank[4 + s])
    return table


ROUNDED = "Each is round(127 level / largest)."


def emit(name, kind, values, comment):
    items = ["%.9ff" % (v + 0.0) for v in values] if kind == "float" else [str(v) for v in values]
    print("// " + comment)
    print("inline constexpr %s %s[%d] = {%s};\n" % (kind, name, len(values), ", ".join(items)))


def integers(levels):
    largest = max(abs(v) for v in levels)
    return [int(math.floor(abs(v) / largest * 127 + 0.5)) * (1 if v >= 0 else -1) for v in levels]


def main():
    two, three, four = lloyd_max(4), lloyd_max(8), lloyd_max(16)
    ternary = lloyd_max(3)
    paper = 0.798

    print("// These are the level tables of scalar and trellis formats (docs/formats). They are")
    print("// written by tools/make_codebooks.py; do not edit them.")
    print("#pragma once\n\n#include <cstdint>\n\nnamespace walsh::detail {\n")
    for bits, levels in ((2, two), (3, three), (4, four)):
        emit("kNormal%dBit" % bits, "float", levels,
             "These are the levels of Lloyd-Max for N(0,1), %d bits; the code is the rank." % bits)
        emit("kNormal%dBitI8" % bits, "int8_t", integers(levels), ROUNDED)
    emit("kInterleaved", "float", interleave(three),
         "itq3_s orders the same 3-bit levels by the code t | s << 2, whose rank is 2t + s.")
    emit("kInterleavedI8", "int8_t", interleave(integers(three)), ROUNDED)
    strict = [q / 4 for q in (-5, -3, -1, 1, 3, 5)]
    emit("kStrict", "float", interleave(strict),
         "itq3_s:strict has the levels (4t + 2s - 5) / 4 for t < 3; t = 3 repeats t = 2.")
    emit("kStrictI8", "int8_t", [round(100 * v) for v in interleave(strict)],
         "Each is 100 level, which is exact.")
    print("// With this scale the strict levels have the least error on N(0,1).")
    print("inline constexpr float kStrictStart = %.9ff;\n" % uniform_six_scale())
    doubled = [ternary[0], ternary[0], 0.0, 0.0, ternary[2], ternary[2]]
    emit("kTernary", "float", interleave(doubled),
         "itq3_s:ternary has three levels of Lloyd-Max, chosen by t; it does not use the selector.")
    emit("kTernaryPaper", "float", interleave([-paper, -paper, 0.0, 0.0, paper, paper]),
         "itq3_s:ternary-paper has +-0.798 and 0.")
    emit("kTernaryI8", "int8_t", interleave([-127, -127, 0, 0, 127, 127]),
         "Both ternary tables have these.")
    emit("kLinear4Bit", "float", [float(q) for q in range(-8, 8)], "A level of q4_0 is code - 8.")
    emit("kLinear4BitI8", "int8_t", list(range(-8, 8)), "As integers they are the same.")
    quantiles = [NormalDist().inv_cdf((i + 0.5) / 256) for i in range(256)]
    emit("kNormalQuantilesI8", "int8_t", integers(quantiles),
         "Retired codes have quantiles (i + 1/2) / 256 of N(0,1), as round(127 level / largest).")
    fewer = [NormalDist().inv_cdf((i + 0.5) / 128) for i in range(128)]
    emit("kNormalQuantiles7I8", "int8_t", integers(fewer),
         "tc2:hq to tc4:hq have quantiles (i + 1/2) / 128, as round(127 level / largest).")
    print("// This is largest / 127 of the retired codes' quantiles.")
    print("inline constexpr float kNormalQuantilesUnit = %.9ff;\n" % (quantiles[-1] / 127))
    print("}  // namespace walsh::detail")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Prints src/import/ggml_grids.cpp's tables from the Python package gguf, which has the points of
ggml's IQ types as numbers. Run with that package: python3 tools/make_ggml_grids.py"""
import gguf.quants
import numpy

GRIDS = [("Iq2Xxs", gguf.quants.IQ2_XXS), ("Iq2Xs", gguf.quants.IQ2_XS),
         ("Iq2S", gguf.quants.IQ2_S), ("Iq3Xxs", gguf.quants.IQ3_XXS),
         ("Iq3S", gguf.quants.IQ3_S), ("Iq1", gguf.quants.IQ1_S)]
FIRST, SYMBOLS, LONG = ord("#"), 92, 72  # src/import/ggml_grids.cpp has the same
WIDTH = 88


def encode(grid):
    """Returns points as numbers with one digit per value, the first one lowest, with gaps between
    them."""
    grid.init_grid()
    points = grid.grid.reshape(grid.grid_shape)
    digits = numpy.searchsorted(grid.grid_map, points)
    numbers = (digits * len(grid.grid_map) ** numpy.arange(points.shape[1])).sum(axis=1)
    text, previous = "", -1
    for number in numbers:
        gap = int(number) - previous - 1
        previous = int(number)
        assert 0 <= gap < LONG + (SYMBOLS - LONG) * SYMBOLS
        if gap >= LONG:
            high, gap = divmod(gap - LONG, SYMBOLS)
            text += chr(FIRST + LONG + high)
        text += chr(FIRST + gap)
    return text


for name, grid in GRIDS:
    text = encode(grid)
    print(f"constexpr const char* k{name} =")
    lines = [text[i:i + WIDTH] for i in range(0, len(text), WIDTH)]
    for line in lines:
        print(f'    R"({line})"{";" if line is lines[-1] else ""}')

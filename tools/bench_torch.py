#!/usr/bin/env python3
"""Times layers of walsh.torch against torch in bfloat16, in turns within one run.

    tools/bench_torch.py [--cols 4096] [--rows 14336] [--types tq4,tq3] [--batches 1,16,256]
"""
import argparse
import statistics
import time

import torch
import walsh.torch


def seconds(function, least=0.05):
    """Of one call, from as many as take `least`."""
    calls, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < least:
        function()
        calls += 1
    return spent / calls


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=14336)
    parser.add_argument("--types", default="tq4,tq3")
    parser.add_argument("--batches", default="1,16,256")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    torch.manual_seed(0)
    plain = torch.nn.Linear(args.cols, args.rows, bias=False, dtype=torch.bfloat16)
    layers = {"bf16": plain}
    for kind in args.types.split(","):
        layers[kind] = walsh.torch.Linear.from_linear(plain, type=kind, fast=True)
    print(f"{args.rows} x {args.cols}, {torch.get_num_threads()} threads; milliseconds, and the "
          "median over the rounds of bf16's time by the layer's")
    with torch.inference_mode():
        for batch in map(int, args.batches.split(",")):
            x = torch.randn(batch, args.cols, dtype=torch.bfloat16)
            rounds = [{name: seconds(lambda layer=layer: layer(x))
                       for name, layer in layers.items()} for _ in range(args.rounds)]
            for name in layers:
                time_of = statistics.median(r[name] for r in rounds)
                ratio = statistics.median(r["bf16"] / r[name] for r in rounds)
                print(f"{batch:4} rows  {name:8} {time_of * 1e3:9.3f} ms  {ratio:6.2f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compression and peak memory of walsh in transformers, beside what the programs say that it is
compared with.

    tools/seed_claims.py [CHECKPOINT]      the model of the repository without one

Every line is a process of its own: the model is loaded, changed, and multiplied with once. Peak
memory is the most that the process had above what it had after its imports; pages of the mapped
checkpoint count.
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLAIMS = """turboquant_model, Qwen3.5-0.8B on a GPU:
  4 bits, whole rows     1434 MB -> 361 MB (4.0x), peak 9.6 GB
  4 bits, groups of 128  1434 MB -> 381 MB (3.8x), peak 5.8 GB
  4 + 4 and 4 + 2 bits   1434 MB -> 762 MB (1.9x), peak 9.7 GB
vLLM's TurboQuant: about 4x less memory at 3 bits; experts stay in bf16
"""
WAYS = {
    "as it is": None,
    "quantize_model, 4 bits, whole rows": {"bit_width": 4, "group_size": None},
    "quantize_model, 4 bits": {"bit_width": 4},
    "quantize_model, 4 + 4 bits": {"bit_width": 4, "residual_bit_width": 4},
    "while loading, tq4": "tq4",
    "while loading, tq3": "tq3",
}


def resident(key):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise SystemExit("this needs Linux")


def measure(folder, way):
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    import walsh.torch
    from walsh.transformers import WalshConfig

    logging.disable_progress_bar()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    before = resident("VmRSS")
    options = {"dtype": torch.bfloat16}
    if isinstance(way, str):
        options["quantization_config"] = WalshConfig(type=way)
    model = AutoModelForCausalLM.from_pretrained(folder, **options)
    if isinstance(way, dict):
        model = walsh.torch.quantize_model(model, walsh.torch.TurboQuantConfig(**way))
    peak = resident("VmHWM") - before
    with torch.no_grad():
        model(torch.arange(1, 9).unsqueeze(0))
    coded = [m for m in model.modules() if isinstance(m, walsh.torch.Linear)]
    plain = [m for m in model.modules() if type(m) is torch.nn.Linear]
    print(json.dumps({
        "layers": len(coded), "weights": sum(m.in_features * m.out_features for m in coded),
        "bytes": sum(m.stored_bytes for m in coded), "plain_layers": len(plain), "peak": peak}))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "models/walsh-tiny-13m")
    if len(sys.argv) > 2:
        measure(folder, WAYS[sys.argv[2]])
        return
    print(CLAIMS)
    print(f"walsh, {pathlib.Path(folder).name} on the CPU:")
    for name in WAYS:
        done = subprocess.run([sys.executable, __file__, folder, name], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=True)
        found = json.loads(done.stdout)
        line = f"  {name:36} {found['layers']:5} layers"
        if found["bytes"]:
            size = 2 * found["weights"]
            line += (f", {size / 1e6:.1f} MB -> {found['bytes'] / 1e6:.1f} MB "
                     f"({size / found['bytes']:.1f}x)")
        print(f"{line}, peak {found['peak'] / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

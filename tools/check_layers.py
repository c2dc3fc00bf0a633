#!/usr/bin/env python3
"""Checks the include rules: a layer uses itself and the layers before it, nothing else."""
import pathlib
import re
import sys

LAYERS = ["base", "io", "rotate", "codec", "arch", "import", "weights", "quantize", "kernels",
          "cache", "model", "text", "vision", "grammar", "generate", "eval", "calibrate",
          "allocate", "schedule", "api", "serve", "cli"]
# Running a model needs no pipeline that quantizes. (Their tests may use one to make models.)
RUNNING = LAYERS[LAYERS.index("kernels"):LAYERS.index("calibrate")]
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)


def violations(root):
    """Yields one line per broken rule."""
    src = root / "src"
    for folder in sorted(p.name for p in src.iterdir() if p.is_dir()):
        if folder not in LAYERS and any((src / folder).rglob("*.*")):
            yield f"src/{folder}: not a layer, expected one of {', '.join(LAYERS)}"
    sources = [p for kind in ("h", "cpp", "inc", "cu", "cuh") for p in src.rglob(f"*.{kind}")]
    for path in sorted(sources):
        layer = path.relative_to(src).parts[0]
        if layer not in LAYERS:
            continue
        allowed = LAYERS[: LAYERS.index(layer) + 1]
        name = path.relative_to(root)
        for bracket, target in INCLUDE.findall(path.read_text(encoding="utf-8")):
            first = target.split("/")[0]
            if ".." in pathlib.PurePosixPath(target).parts:
                yield f"{name}: includes \"{target}\": name files from src/, without '..'"
            elif bracket == '"' and first == "walsh":
                if not (root / "include" / target).is_file():
                    yield f'{name}: includes "{target}", which does not exist'
            elif bracket == '"' and (first not in LAYERS or not (src / target).is_file()):
                yield f'{name}: includes "{target}", expected a file of a layer or of include/'
            elif bracket == '"' and layer in RUNNING and first == "quantize":
                yield f'{name}: layer {layer} includes "{target}": running a model needs none of it'
            elif bracket == '"' and first not in allowed:
                yield f'{name}: layer {layer} includes "{target}" of the later layer {first}'
            elif bracket == "<" and first in LAYERS and (src / target).is_file():
                yield f"{name}: includes <{target}>, expected quotes"
    for path in sorted((root / "include").rglob("*.h")):
        for bracket, target in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if bracket == '"' and not target.startswith("walsh/"):
                yield f'{path.relative_to(root)}: a public header includes "{target}"'


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    found = list(violations(root))
    for line in found:
        print(line)
    print(f"check_layers: {len(found)} violation(s)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs every command of the guide: the fenced blocks that say `run`, those of a page one after the
other in a folder with my-model and my-text.txt. Ports stand for free ones; nothing else is changed.

    tests/guide/run.py WALSH PAGE...

Blocks of Python need what follows `run`, and walsh itself; without them they are skipped.
"""
import importlib.util
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+) run *([\w ]*)\n(.*?)^```$", re.S | re.M)
FENCE = re.compile(r"^```(.+)$", re.M)
PORT = "8080"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_block(kind, text, place):
    if kind == "sh":
        text = "set -euo pipefail\n" + text.replace(PORT, free_port())
        command = ["bash", "-c", text]
    else:
        command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=place, stdin=subprocess.DEVNULL, text=True, timeout=300,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"{text}\n{done.stdout}\nstatus {done.returncode}")


def missing(kind, needs):
    if kind == "python":
        return [n for n in ["walsh", *needs] if importlib.util.find_spec(n) is None]
    return []


def run_page(page):
    content = page.read_text()
    blocks = BLOCK.findall(content)
    if len(blocks) != len(FENCE.findall(content)):
        sys.exit(f"{page}: a fenced block is not run")
    ran = 0
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(ROOT / "models/walsh-tiny-13m", place + "/my-model")
        shutil.copy(ROOT / "models/eval.txt", place + "/my-text.txt")
        for kind, needs, text in blocks:
            lacking = missing(kind, needs.split())
            if lacking:
                print(f"{page.name}: a block is skipped: no {', '.join(lacking)}")
                continue
            run_block(kind, text, place)
            ran += 1
    print(f"{page.name}: {ran} of {len(blocks)} blocks ran")


def main():
    walsh = pathlib.Path(sys.argv[1]).resolve()
    os.environ["PATH"] = f"{walsh.parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for tool in ("bash", "curl"):
        if shutil.which(tool) is None:
            print(f"skipped: there is no {tool}")
            sys.exit(77)
    for page in sys.argv[2:]:
        run_page(pathlib.Path(page))
    subprocess.run([sys.executable, ROOT / "tools/make_guide.py", "--check"], check=True)


if __name__ == "__main__":
    main()

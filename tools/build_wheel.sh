#!/bin/sh
# Builds a wheel that carries the libraries which not every Linux has: build_wheel.sh [FOLDER [PYTHON]].
# PYTHON has pip and auditwheel (which needs patchelf); libraries and the command of the wheel ask
# for nothing but the C and C++ runtime of the system afterwards.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/wheels}
python=${2:-python3}
plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT
"$python" -m pip wheel . --no-deps -w "$plain"
"$python" -m auditwheel repair --wheel-dir "$folder" "$plain"/walsh-*.whl

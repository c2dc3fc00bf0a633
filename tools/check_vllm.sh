#!/bin/sh
# Runs the tests of the vLLM plugin against a real vLLM on the CPU: check_vllm.sh [PYTHON], the
# interpreter of an environment with vllm, transformers, pytest and this package
# (docs/guide/python.md).
set -eu
cd "$(dirname "$0")/.."
python=${1:-python3}
"$python" -c 'import vllm, transformers, pytest, walsh.torch' || {
  echo "check_vllm: $python lacks vllm, transformers, pytest or walsh" >&2
  exit 2
}
"$python" -c '
from importlib.metadata import entry_points
names = [e.value for e in entry_points(group="vllm.general_plugins")]
assert "walsh.vllm:register" in names, f"vLLM would not find the plugin: {names}"
'
# With few cores, threads that spin would take the cores from each other.
OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} "$python" -m pytest -q -W ignore --show-capture=no \
  python/tests/test_vllm_options.py python/tests/test_vllm.py python/tests/test_vllm_processes.py

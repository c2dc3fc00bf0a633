#!/usr/bin/env bash
# Installs what is missing, builds everything, passes every test; ends with the summary of ctest.
# Usage: ./test.sh [PRESET]      dev (default), release, asan, ubsan, tsan, coverage
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tools/install_packages.sh
source tools/install_packages.sh

preset="${1:-dev}"
jobs="$(nproc)"
install_packages "${WALSH_BUILD_PACKAGES[@]}" "${WALSH_TEST_PACKAGES[@]}"

# One test reads our files with Python's gguf package; nanobind and pytest build and test the Python
# package. Tests whose packages cannot be installed are skipped.
python="$PWD/build/python/bin/python3"
package=OFF
if [ -z "${WALSH_PYTHON:-}" ]; then
  if ! { [ -x "$python" ] && "$python" -c 'import gguf, nanobind, pytest'; } 2> /dev/null; then
    { python3 -m venv build/python &&
      "$python" -m pip install --quiet --retries 2 --timeout 20 'gguf==0.19.0' nanobind pytest; } ||
      echo "note: no Python packages gguf, nanobind, pytest; the tests that need them are skipped"
  fi
  [ -x "$python" ] && export WALSH_PYTHON="$python"
fi
# Instrumented code does not run in a plain interpreter.
case "$preset" in
  dev | release)
    if "${WALSH_PYTHON:-python3}" -c 'import nanobind, numpy, pytest' 2> /dev/null; then
      package=ON
    fi ;;
esac

# Warnings are errors only with the compiler used in development: others may have other warnings.
werror=OFF
if [ "$preset" = dev ] && [ "$("${CXX:-g++}" -dumpversion)" = 12 ]; then
  werror=ON
fi
# With a CUDA toolkit but no GPU, the GPU code is compiled for one architecture only.
cuda=()
if ! nvidia-smi > /dev/null 2>&1; then
  cuda=(-DWALSH_CUDA_ARCHITECTURES="${WALSH_CUDA_ARCHITECTURES:-90a}")
fi
# WALSH_UNITY=ON ./test.sh: several sources as one take less time, where everything is compiled once.
cmake --preset "$preset" -DWALSH_TESTS=ON -DWALSH_WERROR="$werror" "${cuda[@]}" \
  -DWALSH_UNITY="${WALSH_UNITY:-OFF}" -DWALSH_PYTHON="$package" \
  -DPython_EXECUTABLE="${WALSH_PYTHON:-python3}"
cmake --build --preset "$preset" --parallel "$jobs"
ctest --preset "$preset" -j "$jobs" --output-on-failure

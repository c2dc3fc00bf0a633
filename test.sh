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
# With a CUDA toolkit but no GPU, the GPU code only has to compile, for one architecture.
options=(-DWALSH_CUDA_QUICK=OFF)
if ! nvidia-smi > /dev/null 2>&1; then
  options=(-DWALSH_CUDA_ARCHITECTURES="${WALSH_CUDA_ARCHITECTURES:-90a}")
  if [ "$preset" = dev ]; then options+=(-DWALSH_CUDA_QUICK=ON); fi
fi
# Several sources compiled as one take less time where nothing is built yet; a build folder stays as
# it is. WALSH_UNITY=OFF ./test.sh compiles every source by itself, as is better while changing them.
if [ -n "${WALSH_UNITY:-}" ] || [ ! -e "build/$preset/CMakeCache.txt" ]; then
  options+=(-DWALSH_UNITY="${WALSH_UNITY:-ON}")
fi
for linker in mold lld; do
  if command -v "ld.$linker" > /dev/null; then
    options+=(-DCMAKE_EXE_LINKER_FLAGS="-fuse-ld=$linker ${LDFLAGS:-}")
    break
  fi
done
cmake --preset "$preset" -DWALSH_TESTS=ON -DWALSH_WERROR="$werror" "${options[@]}" \
  -DWALSH_PYTHON="$package" -DPython_EXECUTABLE="${WALSH_PYTHON:-python3}"
build() { cmake --build --preset "$preset" --parallel "$jobs" -- -k 0 | tee "build/$preset/build.log"; }
if ! build; then
  # What does not compile in a group, because names clash, may compile by itself.
  targets=$(sed -nE 's#^FAILED: .*CMakeFiles/(\w+)\.dir/(Unity|cuda_kernels)/.*#\1#p' \
    "build/$preset/build.log" | sort -u | paste -sd ';')
  [ -n "$targets" ] || exit 1
  echo "note: sources of $targets do not compile in groups (see above): now each by itself"
  cmake --preset "$preset" -DWALSH_UNITY_EXCEPT="$targets"
  build
fi
# Programs say on standard error what was suppressed, unless they are told not to.
export LSAN_OPTIONS="suppressions=$PWD/tests/leak_suppressions.txt:print_suppressions=0"
ctest --preset "$preset" -j "$jobs" --output-on-failure

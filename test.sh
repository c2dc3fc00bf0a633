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

# Other compilers than the one that walsh is developed with may know other warnings.
werror=OFF
if [ "$preset" = dev ] && [ "$("${CXX:-g++}" -dumpversion)" = 12 ]; then
  werror=ON
fi
cmake --preset "$preset" -DWALSH_TESTS=ON -DWALSH_WERROR="$werror"
cmake --build --preset "$preset" --parallel "$jobs"
ctest --preset "$preset" -j "$jobs" --output-on-failure

#!/usr/bin/env bash
# Installs what is missing, builds everything with warnings as errors, passes every test.
# Usage: ./test.sh [PRESET]      dev (default), release, asan, ubsan, tsan, coverage
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tools/install_packages.sh
source tools/install_packages.sh

preset="${1:-dev}"
jobs="$(nproc)"
install_packages "${WALSH_BUILD_PACKAGES[@]}" "${WALSH_TEST_PACKAGES[@]}"
cmake --preset "$preset"
cmake --build --preset "$preset" --parallel "$jobs"
ctest --preset "$preset" -j "$jobs" --output-on-failure

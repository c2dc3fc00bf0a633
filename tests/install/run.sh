#!/usr/bin/env bash
# Installs the build in $1 into a temporary prefix, then builds and runs a program that uses it, by
# CMake and by pkg-config.
# $2: the compiler flags of that build; a program must link what an instrumented library needs.
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/log"
test -x "$work/prefix/bin/walsh"
for header in "$work"/prefix/include/walsh/*.h; do
  echo "#include <walsh/$(basename "$header")>" |
    c++ -std=c++20 -Wall -Wextra -Wpedantic -Wconversion -Werror -fsyntax-only \
      -I "$work/prefix/include" -x c++ -
done
cmake -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_FLAGS="${2:-}" >>"$work/log"
cmake --build "$work/build" >>"$work/log" || { cat "$work/log"; exit 1; }
grep -q '^tq3 3.125' <<<"$("$work/build/consumer")"
# The prefix may be moved: nothing in walsh.pc is an absolute path of it.
mv "$work/prefix" "$work/moved"
pc=$(dirname "$(find "$work/moved" -name walsh.pc)")
read -ra flags <<<"$(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs walsh)"
# shellcheck disable=SC2086  # several flags
c++ -std=c++20 ${2:-} "$here/consumer.cpp" "${flags[@]}" -o "$work/consumer"
grep -q '^tq3 3.125' <<<"$("$work/consumer")"
echo "the installed package works"

#!/usr/bin/env bash
# Installs the build in $1 into a temporary prefix, then builds and runs programs that use it: a
# consumer, the examples and the program in engine.h; by CMake and by pkg-config, with the static
# and with the shared library.
# $2: the compiler flags of that build; a program must link what an instrumented library needs.
set -euo pipefail
build=$1
flags=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
model=$root/models/walsh-tiny-13m
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
fail() { echo "error: $*"; exit 1; }

# Users are built with what built the library: compilers, pkg-config and the places where packages
# are may be others than the first ones on the PATH and those of the distribution.
cached() { sed -n "s/^$1:[^=]*=//p" "$build/CMakeCache.txt"; }
cxx=$(cached CMAKE_CXX_COMPILER)
pkg_config=$(cached PKG_CONFIG_EXECUTABLE)
places=$(cached CMAKE_PREFIX_PATH)

cmake --install "$build" --prefix "$work/prefix" >"$work/log"
test -x "$work/prefix/bin/walsh"
for header in "$work"/prefix/include/walsh/*.h; do
  echo "#include <walsh/$(basename "$header")>" |
    "$cxx" -std=c++20 -Wall -Wextra -Wpedantic -Wconversion -Werror -fsyntax-only \
      -I "$work/prefix/include" -x c++ -
done
echo '#include <walsh/walsh.h>' |
  cc -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$work/prefix/include" -x c -

# The prefix may be moved: no path in it is absolute.
mv "$work/prefix" "$work/moved"
prefix=$work/moved
libraries=static
if [ -n "$(find "$prefix" -name 'libwalsh.so')" ]; then
  libraries="static shared"
  shared=$(find "$prefix" -name libwalsh.so)
  # Nothing is shown but the interfaces.
  nm -DC --defined-only "$shared" | cut -d' ' -f3- >"$work/symbols"
  for symbol in walsh_open 'walsh::Engine::open(' 'walsh::TextBatch::run()' \
    'typeinfo for walsh::Error' 'walsh::formats'; do
    grep -qF "$symbol" "$work/symbols" || fail "libwalsh.so lacks $symbol"
  done
  c='walsh_[a-z_]+'
  error='(typeinfo( name)?|vtable) for walsh::Error'
  members='walsh::(Engine|TextSession|TextBatch|Error|StopScope)::.*'
  functions='walsh::(quantize|inspect|exit_status|formats).*'
  if grep -vE "^($c|$error|$members|$functions)\$" \
    "$work/symbols"; then
    fail "libwalsh.so shows more than its interface"
  fi
fi

# This is the program in the comment of engine.h.
mkdir "$work/header"
sed -n '2,/^#pragma once/s|^// \{0,5\}||p' "$prefix/include/walsh/engine.h" >"$work/header/main.cpp"

build_with() {  # build_with static|shared SOURCE_FOLDER BUILD_FOLDER
  cmake -S "$2" -B "$3" -DCMAKE_PREFIX_PATH="$prefix${places:+;$places}" -DWALSH_LIBRARY="$1" \
    -DPKG_CONFIG_EXECUTABLE="$pkg_config" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_BUILD_TYPE=Release \
    >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  cmake --build "$3" --parallel 2 >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
}

cp "$here/CMakeLists.txt" "$here/consumer.cpp" "$work/header/"
expected=$("$prefix/bin/walsh" run "$model" -p "The river" -n 16 --temp 0 --raw 2>/dev/null ||
  "$prefix/bin/walsh" run "$model" -p "The river" -n 16 --temp 0 2>/dev/null)
for library in $libraries; do
  examples=$work/examples-$library
  build_with "$library" "$work/header" "$work/build-$library"
  grep -q '^tq3 3.125' <<<"$("$work/build-$library/consumer")"
  [[ $expected == *"$("$work/build-$library/header" "$model" "The river")"* ]] ||
    fail "the program of engine.h writes something else than walsh run"

  build_with "$library" "$root/examples" "$examples"
  "$examples/generate" "$model" "The river" >"$work/text"
  grep -q ' tokens of the second prompt were known' "$work/text" ||
    fail "generate: $(cat "$work/text")"
  "$examples/batch" "$model" "The river" "In the evening" >"$work/texts"
  [ "$(cut -d'|' -f1 "$work/texts")" = "The river
In the evening" ] || fail "batch: $(cat "$work/texts")"
  one=$(sed -n 's/^The river|//p' "$work/texts")
  "$examples/generate_c" "$model" "The river" >"$work/c"
  [ "$(head -1 "$work/c")" = "$one" ] || fail "generate_c: $(cat "$work/c"), expected $one"
  grep -q 'tokens behind' "$work/c" || fail "generate_c: $(cat "$work/c")"
  for program in generate batch generate_c; do
    status=0
    "$examples/$program" absent a 2>"$work/errors" || status=$?
    [ "$status" = 5 ] && grep -q absent "$work/errors" || fail "$program: status $status"
  done

  # The server answers two clients at once and ends with its input.
  mkfifo "$work/input"
  "$examples/server" "$model" <"$work/input" >"$work/port" &
  server=$!
  exec 3>"$work/input"
  for _ in $(seq 600); do
    port=$(sed -n 's/^port //p' "$work/port")
    [ -z "$port" ] || break
    kill -0 "$server" 2>/dev/null || fail "the server ended"
    sleep 0.1
  done
  ask() { exec 4<>"/dev/tcp/127.0.0.1/$port"; echo "$1" >&4; cat <&4; }
  (ask "The river" >"$work/answer1") & first=$!
  (ask "In the evening" >"$work/answer2") & second=$!
  wait "$first" "$second"
  [[ $(cat "$work/answer1") == "$one"* ]] || fail "server: $(cat "$work/answer1"), expected $one"
  [ -s "$work/answer2" ] || fail "the server did not answer the second client"
  exec 3>&-
  wait "$server" || fail "the server: status $?"
  server=
  rm "$work/input"
done

pc=$(dirname "$(find "$prefix" -name walsh.pc)")
library_path=$(dirname "$pc")
# Where the packages that walsh needs are known from PKG_CONFIG_PATH alone, as with a compiler's or
# a user's own prefix, they are still found.
known=${PKG_CONFIG_LIBDIR:-$("$pkg_config" --variable pc_path pkg-config)}
mkdir "$work/empty"
export PKG_CONFIG_LIBDIR=$work/empty
export PKG_CONFIG_PATH=$pc:${PKG_CONFIG_PATH:+$PKG_CONFIG_PATH:}$known
read -ra static <<<"$("$pkg_config" --cflags --static --libs walsh)"
read -ra plain <<<"$("$pkg_config" --cflags --libs walsh)"
# shellcheck disable=SC2086  # several flags
"$cxx" -std=c++20 $flags "$here/consumer.cpp" "${static[@]/-lwalsh/-l:libwalsh.a}" \
  -o "$work/consumer"
grep -q '^tq3 3.125' <<<"$("$work/consumer")"
# shellcheck disable=SC2086
"$cxx" -std=c++20 $flags "$here/consumer.cpp" "${plain[@]}" -o "$work/consumer"
grep -q '^tq3 3.125' <<<"$(LD_LIBRARY_PATH=$library_path "$work/consumer")"
echo "the installed package works"

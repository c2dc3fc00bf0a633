#!/usr/bin/env bash
# Runs every GPU test and benchmark in one call and ends with a short table: for machines with a GPU
# that are reached only now and then. Builds first unless a folder with the programs is given.
#
# Usage: tools/gpu_check.sh [--programs DIR] [--sanitizer] [--tests | --benches]
#   --programs DIR  use test_* and bench_* of DIR (with libraries in DIR/lib, if any), which
#                   tools/gpu_bundle.sh packs
#   --sanitizer     also run the tests under compute-sanitizer (memcheck, racecheck, initcheck), one
#                   by one, each for WALSH_SANITIZER_SECONDS (200) at most
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

programs="" sanitizer=0 tests=1 benches=1
while [ $# -gt 0 ]; do
  case "$1" in
    --programs) programs="$2"; shift 2 ;;
    --sanitizer) sanitizer=1; shift ;;
    --tests) benches=0; shift ;;
    --benches) tests=0; shift ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
done

if [ -z "$programs" ]; then
  programs=build/gpu
  cmake -S . -B "$programs" -G Ninja -DCMAKE_BUILD_TYPE=Release -DWALSH_CUDA=ON -DWALSH_BENCH=ON \
    -DCMAKE_CXX_FLAGS_RELEASE="-O3 -DNDEBUG" > /dev/null && cmake --build "$programs" || exit 1
fi
[ -d "$programs/lib" ] && export LD_LIBRARY_PATH="$programs/lib:${LD_LIBRARY_PATH:-}"

failed=0
summary=()
step() {  # step NAME COMMAND...: runs it, keeps its last line for the summary
  local name="$1" log status
  shift
  log="$(mktemp)"
  "$@" > "$log" 2>&1
  status=$?
  [ $status -eq 0 ] || { failed=1; grep -E "Failure|error|Error" -A3 "$log" | head -n 40; }
  [ $status -eq 0 ] && [ "${show:-0}" = 1 ] && cat "$log"
  summary+=("$(printf '%-34s %-6s %s' "$name" "$([ $status -eq 0 ] && echo ok || echo FAILED)" \
    "$(grep -v '^$' "$log" | tail -n 1 | cut -c1-100)")")
  rm -f "$log"
}

# sanitize TOOL PROGRAM TEST: prints clean, failed, late or host (no GPU is used), and the test.
sanitize() {
  local log status
  log="$(mktemp)"
  WALSH_TEST_SHORT=1 timeout "${WALSH_SANITIZER_SECONDS:-200}" compute-sanitizer --tool "$1" \
    --error-exitcode 9 "$2" --gtest_brief=1 --gtest_filter="$3" > "$log" 2>&1
  status=$?
  if grep -q "terminated before first instrumented" "$log"; then echo "host $3"
  elif [ $status -eq 0 ]; then echo "clean $3"
  elif [ $status -eq 124 ]; then echo "late $3"
  else
    grep -E "=========.*(Error|Race|Uninit|Invalid|hazard)|Failure" "$log" | head -n 5 >&2
    echo "failed $3"
  fi
  rm -f "$log"
}
export -f sanitize

# sanitize_all TOOL PROGRAM adds a line to the summary. Tests share the GPU, except those whose
# blocks wait for each other.
sanitize_all() {
  local tests results alone='(^|/)(GpuPersistent|CudaModel)'
  tests="$("$2" --gtest_list_tests --gtest_filter="$gpu_tests" |
    awk '/^[^ ]/ {suite = $1} /^ / {print suite $1}')"
  results="$(
    grep -vE "$alone" <<< "$tests" | xargs -r -P4 -I{} bash -c "sanitize $1 $2 {}"
    grep -E "$alone" <<< "$tests" | xargs -r -I{} bash -c "sanitize $1 $2 {}")"
  ! grep -q '^failed' <<< "$results" || failed=1
  summary+=("$(printf '%-34s %s' "$(basename "$2") $1" \
    "$(cut -d' ' -f1 <<< "$results" | sort | uniq -c | awk '{printf "%s %s  ", $1, $2}')")")
  grep -E '^(failed|late)' <<< "$results"
}

# These are the suites of the files in tests/*/cuda.
suites="$(grep -hoE '^TEST(_[FP])?\(\w+' tests/*/cuda/*.cpp | sed 's/.*(//' | sort -u)"
gpu_tests="DeviceName.*$(sed 's/.*/:*&.*/' <<< "$suites" | tr -d '\n')"
if [ $tests = 1 ]; then
  for test in "$programs"/test_*; do
    [ -x "$test" ] || continue
    step "$(basename "$test")" "$test" --gtest_brief=1 --gtest_filter="$gpu_tests"
    if [ $sanitizer = 1 ]; then
      for tool in memcheck racecheck initcheck; do
        sanitize_all "$tool" "$test"
      done
    fi
  done
fi
if [ $benches = 1 ]; then
  for bench in "$programs"/bench_* "$programs"/bench/cuda/bench_*; do
    [ -x "$bench" ] && show=1 step "$(basename "$bench")" "$bench"
  done
fi

printf '%s\n' "${summary[@]}"
exit $failed

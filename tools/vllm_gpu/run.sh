#!/bin/bash
# Builds walsh's extension in a build folder with CUDA, runs all tests of vLLM and of layers on a
# GPU side by side, and then measures engines in turns, on a GPU machine without network:
#   tools/vllm_gpu/run.sh BUILD site.tar.xz [tests|speed]
# Prints a short summary. Logs are in OUT (a new folder unless it is set). ONLY="experts.*|two_.*"
# says which tests run, and ENGINES="8b:bf16 30b-a3b:tq3" which engines are measured (speed.py).
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
build=$1 archive=$2 what=${3:-all}
OUT=${OUT:-$(mktemp -d)} bed=${BED:-/tmp/walsh_bed} package=$build/python
engines=${ENGINES:-8b:bf16 8b:tq3 8b:tq3h 30b-a3b:bf16 30b-a3b:tq3}

begin=$SECONDS
cmake "$build" -DWALSH_PYTHON=ON -DPython_EXECUTABLE="$(command -v python3)" \
  > "$OUT/configure.log" 2>&1 &&
  cmake --build "$build" --target walsh_python -j "$(nproc)" > "$OUT/build.log" 2>&1 ||
  { tail -n 20 "$OUT/configure.log" "$OUT/build.log"; exit 1; }
# shellcheck source=tools/vllm_gpu/setup.sh
. tools/vllm_gpu/setup.sh "$archive" || exit 1
echo "built and unpacked in $((SECONDS - begin)) s"
python3 -c 'import walsh, torch, vllm; print("types on GPUs:", *walsh._walsh.device_types())' \
  2> "$OUT/import.log" || { tail -n 20 "$OUT/import.log"; exit 1; }

# What is compiled for one engine or test is little: fewer processes for it begin sooner.
export TORCHINDUCTOR_COMPILE_THREADS=4

speeds=()
rm -f "$OUT/go" "$OUT"/*.ready
if [ "$what" != tests ]; then
  for engine in $engines; do
    VLLM_ENABLE_V1_MULTIPROCESSING=1 timeout "${SPEED_SECONDS:-240}" python3 \
      tools/vllm_gpu/speed.py "${engine%:*}" "${engine#*:}" "$OUT/$engine.ready" "$OUT/go" \
      > "$OUT/speed_$engine.log" 2>&1 &
    speeds+=($!)
  done
fi

# run_tests NAME ARGUMENTS runs pytest in the background, with its log and its status under the
# name. What takes too long is interrupted, and the log tells where it was.
tests=()
run_tests() {
  local name=$1
  shift
  [[ $name =~ ^(${ONLY:-.*})$ ]] || return 0
  # Engines that are not compiled need not compile vLLM's small helpers either.
  local plain=0
  [[ $name =~ ^(experts|head|recurrent|two_|adapters|logits|rules|sequences) ]] && plain=1
  (export TORCHDYNAMO_DISABLE=$plain OMP_NUM_THREADS=2 VLLM_ENABLE_V1_MULTIPROCESSING=0
  timeout -s INT -k 10 "${TEST_SECONDS:-240}" python3 -m pytest -q -W ignore \
    -p no:cacheprovider --tb=short --maxfail=4 --durations=4 -s "$@" \
    > "$OUT/test_$name.log" 2>&1
  echo $? > "$OUT/test_$name.status") &
  tests+=($!)
}
if [ "$what" != speed ]; then
  vllm=python/tests/test_vllm.py
  run_tests experts_int8 $vllm -k "int8_inputs"
  run_tests experts $vllm -k "experts_are or experts_of or lacks"
  run_tests graphs_int8 $vllm -k "recorded_graphs and int8"
  run_tests graphs_f32 $vllm -k "recorded_graphs and f32"
  run_tests compiled $vllm -k "compiled_by"
  run_tests recurrent_stored $vllm -k "recurrent and stored"
  run_tests recurrent_online $vllm -k "recurrent and online"
  processes=python/tests/test_vllm_processes.py
  for family in llama qwen3_moe; do
    run_tests two_online_$family $processes -k "of_one and $family"
    run_tests two_stored_$family $processes -k "share_a and $family"
  done
  run_tests two_stages $processes -k "stages"
  run_tests adapters $vllm -k "adapters"
  run_tests logits $vllm -k "turboquant_gives or folder_of_transformers"
  run_tests rules $vllm -k "rules or memory"
  run_tests head $vllm -k "a_head"
  run_tests options python/tests/test_vllm_options.py $vllm -k "options or ignore_list or refused"
  run_tests sequences $vllm -k "sequences or command_line"
  run_tests placed python/tests/test_placed.py
  # The test that is left out would count what others take of the memory.
  run_tests torch python/tests/test_torch_cuda.py -k "not memory_of_the_gpu"
  wait "${tests[@]}"
  echo "tests after $((SECONDS - begin)) s:"
  for status in "$OUT"/test_*.status; do
    log=${status%.status}.log
    echo "$(basename "$log" .log) $(cat "$status"): $(grep -aE '^[0-9]+ .* in [0-9.]+s' "$log" |
      tail -n 1 | cut -c1-120)"
    [ "$(cat "$status")" = 0 ] || grep -aE '^(E  |FAILED|ERROR)' "$log" | cut -c1-220 | head -n 8
  done
fi
# Loading uses the GPU as well: nobody measures before all have loaded, or failed.
for number in "${!speeds[@]}"; do
  set -- $engines
  shift "$number"
  while [ ! -e "$OUT/$1.ready" ] && kill -0 "${speeds[$number]}" 2> /dev/null; do sleep 0.5; done
done
touch "$OUT/go"
[ ${#speeds[@]} = 0 ] || wait "${speeds[@]}"
for engine in $engines; do
  log=$OUT/speed_$engine.log
  [ -e "$log" ] || continue
  grep -hE '^(START|SPEED)' "$log" || tail -n 12 "$log" | cut -c1-200
  grep -ohE 'Model loading took.*' "$log" | head -n 1 | sed "s/^/$engine: /"
done
echo "everything in $((SECONDS - begin)) s"

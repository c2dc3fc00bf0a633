#!/usr/bin/env bash
# Builds walsh, quantizes the model in models/ to four formats, shows the size and quality of each and
# a text that the result writes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tools/install_packages.sh
source tools/install_packages.sh

model=models/walsh-tiny-13m
text=models/eval.txt
out=build/demo
walsh=build/release/walsh
types=(itq3_s tq3 tq4 tq4+4)

install_packages "${WALSH_BUILD_PACKAGES[@]}"
cuda=OFF  # GPU code takes minutes to compile: only where it can run
nvidia-smi > /dev/null 2>&1 && cuda=AUTO
options=(-DWALSH_TESTS=OFF -DWALSH_CUDA="$cuda")
# Several sources compiled as one take half the time where nothing is built yet.
[ -e build/release/CMakeCache.txt ] || options+=(-DWALSH_UNITY=ON)
cmake --preset release "${options[@]}"
cmake --build --preset release --parallel "$(nproc)"
mkdir -p "$out"

# field FILE KEY [SUBKEY]: a number from the JSON of `walsh eval`, which has one key per line.
field() {
  if [ $# -eq 3 ]; then
    sed -n "/\"$2\": {/,/}/p" "$1" | sed -n "s/.*\"$3\": \\([-+.0-9e]*\\).*/\\1/p" | head -n 1
  else
    sed -n "s/^  \"$2\": \\([-+.0-9e]*\\).*/\\1/p" "$1" | head -n 1
  fi
}

row() {  # row TYPE JSON: a line of the table
  printf '%-8s %8.3f %9.2f %12.3f %12.5f %9.2f\n' "$1" "$(field "$2" bpw)" \
    "$(awk -v b="$(field "$2" bytes)" 'BEGIN { print b / 1048576 }')" "$(field "$2" ppl)" \
    "$(field "$2" kld mean)" "$(awk -v t="$(field "$2" top1)" 'BEGIN { print 100 * t }')"
}

for type in "${types[@]}"; do
  echo
  echo "\$ walsh quantize $model $out/$type.gguf --type $type"
  "$walsh" quantize "$model" "$out/$type.gguf" --type "$type" 2> /dev/null
done

echo
echo "Measuring on $text against the bf16 model ..."
"$walsh" eval "$model" --text "$text" --reference "$model" --json > "$out/bf16.json" 2> /dev/null
for type in "${types[@]}"; do
  "$walsh" eval "$out/$type.gguf" --text "$text" --reference "$model" --json \
    > "$out/$type.json" 2> /dev/null
done

echo
printf '%-8s %8s %9s %12s %12s %9s\n' type bits MiB perplexity KLD 'top-1 %'
for type in bf16 "${types[@]}"; do
  row "$type" "$out/$type.json"
done
echo "(bits: per weight of the linear layers; MiB: all weights, embedding in bf16 included)"

prompt="In the early morning"
echo
echo "\$ walsh run $out/tq4.gguf --raw -p \"$prompt\" -n 80 --temp 0.8 --seed 1"
"$walsh" run "$out/tq4.gguf" --raw -p "$prompt" -n 80 --temp 0.8 --seed 1

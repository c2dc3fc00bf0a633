#!/usr/bin/env bash
# Packs a build's GPU tests and benchmarks with the libraries that they need into one small archive,
# for a machine with a GPU and nothing else. There, with a checkout of the repository at the path
# that it was built at (tests read its files):
#   tar xf OUT -C DIR && tools/gpu_check.sh --programs DIR
#
# Usage: tools/gpu_bundle.sh BUILD OUT.tar.xz    BUILD: with -DWALSH_CUDA=ON -DWALSH_BENCH=ON
set -euo pipefail

if [ $# -ne 2 ]; then
  echo "usage: tools/gpu_bundle.sh BUILD OUT.tar.xz" >&2
  exit 2
fi
build="$1" out="$2"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

shopt -s nullglob
programs=("$build"/walsh "$build"/test_{base,quantize,kernels,cache,model,generate,schedule}
  "$build"/bench/cuda/bench_*)
mkdir "$folder/lib"
for program in "${programs[@]}"; do
  strip -o "$folder/$(basename "$program")" "$program"
done
# Leaves out the system's own libraries, which must match its loader, and the driver.
ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(ld-linux|libc|libm|libdl|librt|libpthread|libcuda|libnvidia)[^/]*\.so' |
  xargs -I{} cp -L {} "$folder/lib/"
# The programs share most of their code: the dictionary is large enough to reach from one program
# (some 80 MiB) to the next.
tar c -C "$folder" . | xz -T1 --lzma2=preset=4,dict=192MiB > "$out.part"
mv "$out.part" "$out"
echo "$out: ${#programs[@]} programs, $(du -h "$out" | cut -f1)"

# Unpacks the test bed once and sets the environment; to be read with `.`:
#   bed=FOLDER package=BUILD/python . tools/vllm_gpu/setup.sh site.tar.xz
# shellcheck shell=sh disable=SC2154
here=$PWD/tools/vllm_gpu
if [ ! -e "$bed/ready" ]; then
  mkdir -p "$bed/site" && tar xf "$1" -C "$bed/site" || return 1
  cp "$here"/vllm_c_*.py "$bed/site/" && python3 "$here/edit_tree.py" "$bed/site" || return 1
  # vLLM finds plugins by entry points, which a build folder does not have.
  mkdir -p "$bed/site/walsh-0.dist-info"
  printf 'Metadata-Version: 2.1\nName: walsh\nVersion: 0\n' > "$bed/site/walsh-0.dist-info/METADATA"
  printf '[vllm.general_plugins]\nwalsh = walsh.vllm:register\n' \
    > "$bed/site/walsh-0.dist-info/entry_points.txt"
  touch "$bed/ready"
fi
export PYTHONPATH="$package:$bed/site" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
export TOKENIZERS_PARALLELISM=false VLLM_NO_USAGE_STATS=1 VLLM_DO_NOT_TRACK=1
# Processes talk to each other within the machine; NVLink's multicast needs rights of the host.
export GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo NCCL_NVLS_ENABLE=0 VLLM_ALLREDUCE_USE_SYMM_MEM=0
export VLLM_USE_FLASHINFER_SAMPLER=0 VLLM_CACHE_ROOT="$bed/cache" TRITON_CACHE_DIR="$bed/triton"
export TORCHINDUCTOR_CACHE_DIR="$bed/inductor" TRITON_F32_DEFAULT=ieee

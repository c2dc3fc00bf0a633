"""What pytest leaves alone when it looks for doctests."""

# Modules of the tests of vLLM, which import it; they hold no doctests.
collect_ignore = ["vllm_models.py", "vllm_shared_gpu.py"]

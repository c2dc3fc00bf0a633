"""Says what pytest leaves alone when it looks for doctests."""

# These modules of the tests of vLLM import it; they hold no doctests.
collect_ignore = ["vllm_models.py", "vllm_shared_gpu.py"]

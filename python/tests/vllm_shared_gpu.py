"""Defines a worker of vLLM for tests that gives one GPU to several processes, which NCCL would
refuse."""
from vllm.platforms import current_platform
from vllm.v1.worker.gpu_worker import Worker


class SharedGpuWorker(Worker):
    """Uses the first GPU whatever its number is, and adds up results by way of host memory."""

    def init_device(self) -> None:
        current_platform.dist_backend = "gloo"
        first = current_platform.device_id_to_physical_device_id(0)
        self.parallel_config.assigned_physical_gpu_ids = [first] * self.parallel_config.world_size
        super().init_device()

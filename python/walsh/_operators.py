"""Defines the operators that torch.library knows. A layer is a number: its packed weights live in
the extension module, on the CPU and, once it was moved there, on a GPU.

On GPUs the kernels run on PyTorch's current stream and take all their memory from its allocator, so
that calls can be captured into graphs and go on from several streams at once.
"""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch.nn import functional

from . import _walsh
from ._arguments import kind_of
from ._error import Error, usage

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
# GPUs use these numbers for the types.
CODES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


def check_dtype(tensor: torch.Tensor, where: str) -> str:
    """Returns the name of the type of a tensor's values."""
    name = DTYPES.get(tensor.dtype)
    if name is None:
        raise usage(where, f"values of type {tensor.dtype}, expected float32, float16, bfloat16")
    return name


def check_dense(tensor: Any, where: str) -> None:
    """Refuses what is no tensor with a value at every place: lists, arrays, sparse tensors."""
    if not isinstance(tensor, torch.Tensor):
        raise usage(where, f"a value of type {kind_of(tensor)}, expected a tensor of torch")
    if tensor.layout is not torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else str(tensor.layout)
        raise usage(where, f"a {kind} tensor, expected a dense one")


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor as a matrix whose rows are contiguous."""
    if tensor.dim() < 1:
        raise usage("input", "a single value, expected rows")
    matrix = tensor.reshape(-1, tensor.shape[-1])
    if matrix.stride(-1) != 1 and matrix.shape[-1] > 1:
        matrix = matrix.contiguous()
    return matrix


def check_memory(tensor: torch.Tensor, where: str) -> None:
    """Refuses a tensor whose storage was taken away, or made smaller than its shape."""
    if not tensor.numel():
        return
    last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in
                                         zip(tensor.shape, tensor.stride()))
    if tensor.untyped_storage().nbytes() < (last + 1) * tensor.element_size():
        raise usage(where, "its storage is smaller than its shape asks for")


def view_of(matrix: torch.Tensor, where: str) -> tuple[int, str, int, int, int]:
    """Returns a matrix in host memory as the extension module takes it."""
    check_memory(matrix, where)
    stride = matrix.stride(0) if matrix.shape[0] > 1 else matrix.shape[1]
    return matrix.data_ptr(), check_dtype(matrix, where), matrix.shape[0], matrix.shape[1], stride


LIBRARY = torch.library.Library("walsh", "DEF")
LIBRARY.define("linear(Tensor x, int layer, int rows, bool exact) -> Tensor")
LIBRARY.define("linear_input_grad(Tensor grad, int layer, int cols) -> Tensor")
LIBRARY.define("decoded(int layer, int rows, int cols) -> Tensor")


def _linear_cpu(x: torch.Tensor, layer: int, rows: int, exact: bool) -> torch.Tensor:
    matrix = as_rows(x)
    # This has the shape in which it is returned: a view may not be changed in place by its receiver
    # while gradients are recorded.
    y = x.new_empty((*x.shape[:-1], max(rows, 0)))
    _walsh.layer_multiply(layer, view_of(matrix, "input"), y.data_ptr(), rows, rows, exact)
    return y


def decoded(layer: int, rows: int, cols: int) -> torch.Tensor:
    """Returns the weights that the codes stand for, float32 in host memory."""
    weight = torch.empty((rows, cols), dtype=torch.float32, device="cpu")
    _walsh.layer_decode(layer, weight.data_ptr(), rows, cols)
    return weight


def _input_grad_cpu(grad: torch.Tensor, layer: int, cols: int) -> torch.Tensor:
    weight = decoded(layer, grad.shape[-1], cols)
    return (grad.to(torch.float32) @ weight).to(grad.dtype)


def _stream_of(device: int) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


# Returns the stream as a number, as Triton asks for it.
current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _stream_of)


def weights_on(device: int, layer: int, cols: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns weights that were decoded on the GPU."""
    rows, padded = _walsh.device_shape(layer)
    weight = torch.empty((rows, padded), dtype=dtype, device=f"cuda:{device}")
    _walsh.device_dequantize(layer, CODES[dtype], weight.data_ptr(), current_stream(device))
    return weight[:, :cols]


def linear_cuda(x: torch.Tensor, layer: int, rows: int, exact: bool) -> torch.Tensor:
    """Multiplies few rows by the codes, with int8 inputs; many, or exact ones, by decoded
    weights."""
    device = x.get_device()
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return linear_cuda(x, layer, rows, exact)
    matrix = x if x.dim() == 2 and x.stride(1) == 1 else as_rows(x)
    m, cols = matrix.shape
    code = CODES.get(x.dtype, -1)
    size = _walsh.device_plan(layer, m, rows, cols, code, exact, device)
    if size < 0:
        return functional.linear(x, weights_on(device, layer, cols, x.dtype)).to(x.dtype)
    y = x.new_empty((m, rows) if matrix is x else (*x.shape[:-1], rows))
    if m:
        workspace = x.new_empty(size, dtype=torch.uint8)
        _walsh.device_multiply(layer, matrix.data_ptr(), code, m, matrix.stride(0), y.data_ptr(),
                               rows, workspace.data_ptr(), size, current_stream(device))
    return y


def _input_grad_cuda(grad: torch.Tensor, layer: int, cols: int) -> torch.Tensor:
    device = grad.get_device()
    with torch.cuda.device(device):
        return (grad @ weights_on(device, layer, cols, grad.dtype)).to(grad.dtype)


def _linear_fake(x: torch.Tensor, layer: int, rows: int, exact: bool) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], rows))


def _input_grad_fake(grad: torch.Tensor, layer: int, cols: int) -> torch.Tensor:
    return grad.new_empty((*grad.shape[:-1], cols))


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.layer, _, _ = inputs
    ctx.cols = x.shape[-1]


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
    return torch.ops.walsh.linear_input_grad(grad, ctx.layer, ctx.cols), None, None, None


def _save_for_second_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, ctx.layer, _ = inputs
    ctx.rows = grad.shape[-1]


def _second_backward(ctx: Any, grad: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
    return torch.ops.walsh.linear(grad, ctx.layer, ctx.rows, True), None, None


def _linear_batch(info: Any, in_dims: tuple[Optional[int], ...], x: torch.Tensor, layer: int,
                  rows: int, exact: bool) -> tuple[torch.Tensor, int]:
    return torch.ops.walsh.linear(x.movedim(in_dims[0] or 0, 0), layer, rows, exact), 0


def _input_grad_batch(info: Any, in_dims: tuple[Optional[int], ...], grad: torch.Tensor, layer: int,
                      cols: int) -> tuple[torch.Tensor, int]:
    return torch.ops.walsh.linear_input_grad(grad.movedim(in_dims[0] or 0, 0), layer, cols), 0


def _decoded_fake(layer: int, rows: int, cols: int) -> torch.Tensor:
    return torch.empty((rows, cols), dtype=torch.float32, device="cpu")


LIBRARY.impl("linear", _linear_cpu, "CPU")
LIBRARY.impl("linear", linear_cuda, "CUDA")
LIBRARY.impl("linear_input_grad", _input_grad_cpu, "CPU")
LIBRARY.impl("linear_input_grad", _input_grad_cuda, "CUDA")
torch.library.register_fake("walsh::linear", _linear_fake, lib=LIBRARY)
torch.library.register_fake("walsh::linear_input_grad", _input_grad_fake, lib=LIBRARY)
torch.library.register_autograd("walsh::linear", _backward, setup_context=_save_for_backward,
                                lib=LIBRARY)
torch.library.register_autograd("walsh::linear_input_grad", _second_backward,
                                setup_context=_save_for_second_backward, lib=LIBRARY)
if hasattr(torch.library, "register_vmap"):  # without it torch.vmap takes rows one by one
    torch.library.register_vmap("walsh::linear", _linear_batch, lib=LIBRARY)
    torch.library.register_vmap("walsh::linear_input_grad", _input_grad_batch, lib=LIBRARY)
LIBRARY.impl("decoded", decoded, "CompositeExplicitAutograd")
torch.library.register_fake("walsh::decoded", _decoded_fake, lib=LIBRARY)


def needs_dispatcher(x: torch.Tensor) -> bool:
    """Returns whether somebody beside the kernels wants to know of a product of x: gradients,
    compilers, tracers, modes, autocast. Without them the way through PyTorch's dispatcher is longer
    than the launches. """
    return (torch.compiler.is_compiling() or type(x) is not torch.Tensor
            or (x.requires_grad and torch.is_grad_enabled())
            or torch._C._len_torch_dispatch_stack() > 0 or torch._C._is_tracing()
            or torch.is_autocast_enabled("cuda")
            or torch.autograd.forward_ad._current_level >= 0)


def place(layer: int, device: int) -> None:
    """Copies the weights of a layer to GPU `device`; with -1 takes them off the one they are on."""
    with torch.cuda.device(device):
        try:
            _walsh.device_place(layer, device)
        except Error as error:
            if error.code != "limit":
                raise
            torch.cuda.empty_cache()  # what PyTorch keeps for later
            _walsh.device_place(layer, device)

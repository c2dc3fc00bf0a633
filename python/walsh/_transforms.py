"""Multiplies so that `torch.func` may transform the products: gradients, tangents, batches, and any
nesting of them. Operators of torch.library have gradients of their own that are not nested, and no
tangents."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional, Union, cast

import torch
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.autograd import forward_ad


# A compiler asks while it traces, and guards that the answer stays the same.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _has_tangents() -> bool:
    return bool(forward_ad._current_level >= 0)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _has_gradients() -> bool:
    stack = get_interpreter_stack() or ()
    return any(level.key() in (TransformType.Grad, TransformType.Jvp) for level in stack)


def multiply(x: torch.Tensor, ids: Optional[torch.Tensor],
             product: Union[LayerProduct, ExpertsProduct]) -> torch.Tensor:
    """Returns the product of x (by the expert ids, if they are given), also where forward mode or a
    transform of `torch.func` asks for more than the operators have."""
    tangents = _has_tangents()
    if not tangents and not _has_gradients():
        return product.run(x, ids)
    if not torch.compiler.is_compiling():
        return cast(torch.Tensor, Transformed.apply(x, ids, product))
    if not tangents:
        return cast(torch.Tensor, Traced.apply(x, ids, product))
    # A compiler would pass over the rule of a tangent without a word.
    primal, tangent = forward_ad.unpack_dual(x)
    y = product.run(primal, ids)
    if tangent is None:
        return y
    return cast(torch.Tensor, forward_ad.make_dual(y, product.tangent().run(tangent, ids)))


@dataclass
class LayerProduct:
    """Multiplies with the weights of a layer, or with the transposed ones."""

    layer: int
    rows: int
    cols: int
    exact: bool = True
    transposed: bool = False

    def run(self, x: torch.Tensor, ids: Optional[torch.Tensor]) -> torch.Tensor:
        """Multiplies rows of x."""
        if self.transposed:
            return cast(torch.Tensor, torch.ops.walsh.linear_input_grad(x, self.layer, self.cols))
        return cast(torch.Tensor, torch.ops.walsh.linear(x, self.layer, self.rows, self.exact))

    def tangent(self) -> LayerProduct:
        """Returns what happens to a change of x, which is not rounded to int8."""
        return replace(self, exact=True)

    def adjoint(self) -> LayerProduct:
        """Returns what happens to a gradient of the product."""
        return replace(self, exact=True, transposed=not self.transposed)


@dataclass
class ExpertsProduct:
    """Does the same for experts, with their biases unless it is `linear`."""

    experts: int
    part: int
    rows: int
    cols: int
    linear: bool = True
    transposed: bool = False

    def run(self, x: torch.Tensor, ids: Optional[torch.Tensor]) -> torch.Tensor:
        """Multiplies rows of x, each by the layer of its own expert."""
        operators = torch.ops.walsh
        operator, width = operators.experts_linear, self.rows
        if self.transposed:
            operator, width = operators.experts_input_grad, self.cols
        elif self.linear:
            operator = operators.experts_tangent
        return cast(torch.Tensor, operator(x, ids, self.experts, self.part, width))

    def tangent(self) -> ExpertsProduct:
        """Returns what happens to a change of x, which is not rounded to int8."""
        return replace(self, linear=True)

    def adjoint(self) -> ExpertsProduct:
        """Returns what happens to a gradient of the product."""
        return replace(self, linear=True, transposed=not self.transposed)


class Traced(torch.autograd.Function):
    """Computes a product with a gradient, as compilers can read it."""

    @staticmethod
    def forward(*inputs: Any) -> torch.Tensor:
        """Runs the product."""
        x, ids, product = inputs
        return cast(torch.Tensor, product.run(x, ids))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keeps what the product was."""
        _, ids, ctx.product = inputs
        ctx.save_for_backward(ids)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Any, None, None]:
        """Returns the gradient of x."""
        return ctx.product.adjoint().run(grad_outputs[0], *ctx.saved_tensors), None, None


class Transformed(Traced):
    """Computes a product with all that transforms ask for, to any depth."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keeps what the product was."""
        Traced.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Any, None, None]:
        """Returns the gradient of x."""
        product = ctx.product.adjoint()
        return Transformed.apply(*grad_outputs, *ctx.saved_tensors, product), None, None

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Returns the tangent of the product."""
        return Transformed.apply(grad_inputs[0], *ctx.saved_tensors, ctx.product.tangent())

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Optional[int], ...], *args: Any) -> tuple[Any, int]:
        """Runs the products of a batch as one, with more rows."""
        def first(values: torch.Tensor, dim: Optional[int]) -> torch.Tensor:
            if dim is None:
                return values.expand(info.batch_size, *values.shape)
            return values.movedim(dim, 0)

        x, ids, product = args
        x = first(x, in_dims[0])
        if ids is None:
            return Transformed.apply(x, None, product), 0
        ids = first(ids, in_dims[1])
        y: Any = Transformed.apply(x.flatten(0, 1), ids.flatten(0, 1), product)
        return y.unflatten(0, ids.shape[:2]), 0

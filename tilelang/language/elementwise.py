"""Element-wise functions (language.md section 3.6): each is an operator token of `nki.isa` and, when called, a wrapper.

Called, they take tiles in SBUF or PSUM, work in float32 (32-bit integers: exactly) and return a new tile in SBUF.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.dtypes import FORMATS
from tilelang.errors import TileRuleError, TileTypeError
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.tensor import NkiTensor
from tilelang.isa import activations, arithmetic, elementwise
from tilelang.isa.operators import OPERATORS, register_token
from tilelang.isa.simulated import simulated_binary, simulated_unary
from tilelang.isa.slots import COMPARISONS
from tilelang.language.common import Number, broadcast, broadcast_shape, fail, in_sbuf, number, on_chip_tile, tile
from tilelang.language.promotion import promote

__all__ = ["BINARY", "TOKENS", "UNARY", "Token"]

Binary = Callable[..., NkiTensor]
Unary = Callable[..., NkiTensor]
BINARY: dict[str, Binary] = {}
UNARY: dict[str, Unary] = {}
TOKENS: dict[str, Token] = {}


# -- two inputs --------------------------------------------------------------------------------------------------------


def _compute_binary(op: str, x: Any, y: Any, dtype: Any) -> NkiTensor:
    left, right = number(x), number(y)
    if left is not None and right is not None:
        fail(TileTypeError(f"nl.{op}: both operands are numbers", rule="LANG.R320", hint="compute it in Python"))
    if left is not None:
        return _with_number(op, on_chip_tile(op, "y", y, " or a number"), left, dtype, reverse=True)
    tensor = on_chip_tile(op, "x", x, " or a number")
    if right is not None:
        return _with_number(op, tensor, right, dtype, reverse=False)
    return _with_tile(op, tensor, on_chip_tile(op, "y", y, " or a number"), dtype)


def _with_number(op: str, data: NkiTensor, value: Number, dtype: Any, reverse: bool) -> NkiTensor:
    dst = tile(data.shape, data.dtype if dtype is None else dtype)
    if OPERATORS[op].simulate_only or op == "power":
        simulated_binary(dst, value if reverse else data, data if reverse else value, op)
    else:
        arithmetic.tensor_scalar(dst, data, _TOKEN[op], value, reverse)
    return dst


def _with_tile(op: str, x: NkiTensor, y: NkiTensor, dtype: Any) -> NkiTensor:
    shape = broadcast_shape(op, x, y)
    if dtype is None:
        dtype = x.dtype if op in COMPARISONS else promote(x.dtype, y.dtype)
    dst = tile(shape, dtype)
    if OPERATORS[op].simulate_only:
        simulated_binary(dst, broadcast(op, x, shape), broadcast(op, y, shape), op)
    elif _is_row_vector(op, y, x, shape):
        arithmetic.tensor_scalar(dst, x, _TOKEN[op], y)
    elif _is_row_vector(op, x, y, shape):
        arithmetic.tensor_scalar(dst, y, _TOKEN[op], x, True)
    else:
        first, second = broadcast(op, x, shape), broadcast(op, y, shape)
        if first.buffer is second.buffer is MemoryRegion.psum:  # an instruction reads PSUM once
            second = in_sbuf(second)
        elementwise.tensor_tensor(dst, first, second, _TOKEN[op])
    return dst


def _is_row_vector(op: str, vector: NkiTensor, data: NkiTensor, shape: tuple[int, ...]) -> bool:
    """True when `vector` can be the per-partition operand of one tensor_scalar over `data`."""
    arithmetic_op = OPERATORS[op].kind != "bitvec"
    return arithmetic_op and data.shape == shape and vector.shape != shape and _is_float_column(vector, data)


def _is_float_column(vector: NkiTensor, data: NkiTensor) -> bool:
    return vector.F == 1 and vector.P == data.P and vector.dtype == "float32"


def _binary(name: str, meaning: str) -> Binary:
    def function(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
        return _compute_binary(name, x, y, dtype)

    return _publish(function, name, BINARY, f"`{meaning}`, element by element. {_BINARY_DOC}")


_BINARY_DOC = """

    x, y: tiles in SBUF or PSUM; one may be a number. Dims of size 1 are broadcast; a (P, 1) tile fits any rank.
    dtype: of the result; None takes the wider of two tiles (comparisons: that of x), or that of the tile with a number.
    Returns a new tile in SBUF. As `op=` argument of an instruction, names the operator."""


# -- one input ---------------------------------------------------------------------------------------------------------


def _activate(op: str, x: NkiTensor, dst: NkiTensor) -> None:
    activations.activation(dst, _TOKEN[op], x)


def _simulate(op: str, x: NkiTensor, dst: NkiTensor) -> None:
    simulated_unary(dst, x, op)


def _simulate_sin(op: str, x: NkiTensor, dst: NkiTensor) -> None:
    simulated_unary(dst, x, "sin_full")


def _reciprocal(op: str, x: NkiTensor, dst: NkiTensor) -> None:
    arithmetic.reciprocal(dst, x)


def _rsqrt(op: str, x: NkiTensor, dst: NkiTensor) -> None:
    arithmetic.tensor_scalar(dst, x, _TOKEN["rsqrt"], None)


def _negate(op: str, x: NkiTensor, dst: NkiTensor) -> None:
    arithmetic.tensor_scalar(dst, x, _TOKEN["multiply"], -1)


def _invert(op: str, x: NkiTensor, dst: NkiTensor) -> None:
    if not FORMATS[x.dtype].is_integer:
        fail(TileRuleError(f"nl.invert: x is {x.dtype}; it must be an integer tile", "LANG.R321", "x.view(nl.uint32)"))
    arithmetic.tensor_scalar(dst, x, _TOKEN["bitwise_xor"], (1 << (8 * x.itemsize)) - 1)


def _logical_not(op: str, x: NkiTensor, dst: NkiTensor) -> None:
    arithmetic.tensor_scalar(dst, x, _TOKEN["logical_xor"], 1)


def _unary(name: str, meaning: str, lower: Callable[[str, NkiTensor, NkiTensor], None] = _activate) -> Unary:
    def function(x: Any, dtype: Any = None) -> NkiTensor:
        data = on_chip_tile(name, "x", x)
        dst = tile(data.shape, data.dtype if dtype is None else dtype)
        lower(name, data, dst)
        return dst

    return _publish(function, name, UNARY, f"`{meaning}`, element by element. {_UNARY_DOC}")


_UNARY_DOC = """

    x: a tile in SBUF or PSUM. dtype: of the result, None keeps that of x. Returns a new tile in SBUF. As `op=` argument
    of an instruction, names the operator."""


# -- names -------------------------------------------------------------------------------------------------------------


class Token:
    """An operator that is only ever passed to an instruction as `op=`."""

    def __init__(self, name: str, meaning: str) -> None:
        self.__name__ = name
        self.__doc__ = meaning
        register_token(self, name)
        TOKENS[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self.__name__
        fail(
            TileTypeError(f"nl.{name} is an operator for instructions, not a function: op=nl.{name}", rule="LANG.R322")
        )

    def __repr__(self) -> str:
        return f"nl.{self.__name__}"


def _publish(
    function: Callable[..., NkiTensor], name: str, table: dict[str, Any], doc: str
) -> Callable[..., NkiTensor]:
    function.__name__ = function.__qualname__ = name
    function.__module__ = "tilelang.language"
    function.__doc__ = doc
    register_token(function, name)
    table[name] = _TOKEN[name] = function
    return function


_TOKEN: dict[str, Callable[..., Any]] = {}

for _name, _meaning in {
    "add": "x + y",
    "subtract": "x - y",
    "multiply": "x * y",
    "divide": "x / y (simulation only: use multiply by reciprocal)",
    "maximum": "the larger of x and y",
    "minimum": "the smaller of x and y",
    "abs_max": "x if |x| > |y| else y (generation 4)",
    "abs_min": "x if |x| < |y| else y (generation 4)",
    "power": "x ** y; with a number simulation only",
    "fmod": "the remainder of x / y with the sign of x (simulation only)",
    "mod": "the remainder of x / y with the sign of y (simulation only)",
    "equal": "1 where x == y, else 0",
    "not_equal": "1 where x != y, else 0",
    "less": "1 where x < y, else 0",
    "less_equal": "1 where x <= y, else 0",
    "greater": "1 where x > y, else 0",
    "greater_equal": "1 where x >= y, else 0",
    "bitwise_and": "x & y on integers",
    "bitwise_or": "x | y on integers",
    "bitwise_xor": "x ^ y on integers",
    "left_shift": "x << y on integers",
    "right_shift": "x >> y on integers, filling with zeros",
    "logical_and": "1 where x and y are not 0, else 0",
    "logical_or": "1 where x or y is not 0, else 0",
    "logical_xor": "1 where exactly one of x and y is not 0, else 0",
}.items():
    _binary(_name, _meaning)

for _name, _meaning in {
    "abs": "|x|",
    "square": "x * x",
    "exp": "e ** x",
    "log": "the natural logarithm of x",
    "sqrt": "the square root of x",
    "tanh": "tanh(x)",
    "arctan": "arctan(x), |x| <= pi/2",
    "sign": "-1, 0 or 1",
    "sigmoid": "1 / (1 + e ** -x)",
    "relu": "max(0, x)",
    "gelu": "x * Phi(x)",
    "gelu_dx": "the derivative of gelu",
    "gelu_apprx_sigmoid": "x * sigmoid(1.702 x)",
    "gelu_apprx_sigmoid_dx": "the derivative of gelu_apprx_sigmoid",
    "gelu_apprx_tanh": "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x ** 3)))",
    "silu": "x * sigmoid(x)",
    "silu_dx": "the derivative of silu",
    "softplus": "log(1 + e ** x)",
    "mish": "x * tanh(softplus(x))",
    "erf": "the error function of x",
    "erf_dx": "2 / sqrt(pi) * e ** -(x ** 2)",
}.items():
    _unary(_name, _meaning)

_unary("reciprocal", "1 / x", _reciprocal)
_unary("rsqrt", "1 / sqrt(x), on the gpsimd engine: x not in PSUM", _rsqrt)
_unary("negative", "-x", _negate)
_unary("invert", "~x on integers", _invert)
_unary("logical_not", "1 where x is 0, else 0", _logical_not)
_unary("sin", "sin(x) over all reals (simulation only; as operator: |x| <= pi)", _simulate_sin)
for _name in ("cos", "tan", "ceil", "floor", "trunc"):
    _unary(_name, f"{_name}(x) (simulation only)", _simulate)

Token("prelu", "Activation operator: x if x >= 0 else slope * x.")
Token("bypass", "Operator that passes its input through.")
Token("average", "Pooling operator: the mean.")

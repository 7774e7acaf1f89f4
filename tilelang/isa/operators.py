"""Operators that instructions take as `op` arguments (isa.md section 4) and how they are recognised.

An operator is passed as a function object of `nl` (or the NumPy function of the same name), never as a string.
`tilelang.language` registers its functions here.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.errors import TileTypeError

__all__ = ["ACTIVATIONS", "OPERATORS", "Operator", "operator_name", "register_token"]


@dataclass(frozen=True, slots=True)
class Operator:
    """One ALU operator.

    kind: "bitvec" (raw bits), "binary" or "unary" (fp32 arithmetic), "special". `reduces`: legal as a reduction.
    `since`: first generation.
    `arity` 1 or 2. `simulate_only`: no instruction of the device has it.
    """

    name: str
    kind: str
    arity: int = 2
    reduces: bool = False
    since: int = 2
    simulate_only: bool = False


def _rows() -> list[Operator]:
    rows = [Operator("invert", "bitvec", 1)]
    rows += [Operator(n, "bitvec", reduces=True) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")]
    rows += [Operator(n, "bitvec") for n in ("left_shift", "right_shift")]
    rows += [Operator(n, "binary", reduces=True) for n in ("add", "subtract", "multiply", "maximum", "minimum")]
    compares = ("equal", "not_equal", "greater_equal", "greater", "less_equal", "less")
    rows += [Operator(n, "binary") for n in compares]
    rows += [Operator(n, "binary", reduces=True) for n in ("logical_and", "logical_or", "logical_xor")]
    rows += [
        Operator("power", "binary"),
        Operator("abs_max", "binary", since=4),
        Operator("abs_min", "binary", since=4),
    ]
    rows += [Operator(n, "unary", 1) for n in ("logical_not", "abs", "square", "relu", "rsqrt", "reciprocal")]
    rows += [Operator("bypass", "special", 1), Operator("average", "special")]
    rows += [Operator(n, "binary", simulate_only=True) for n in ("divide", "fmod", "mod")]
    rows += [Operator(n, "unary", 1, simulate_only=True) for n in ("ceil", "floor", "trunc", "negative")]
    return rows


OPERATORS: dict[str, Operator] = {row.name: row for row in _rows()}

# isa.md section 4.2: name -> valid input range, None = all reals.
ACTIVATIONS: dict[str, tuple[float, float] | None] = {
    **dict.fromkeys(
        (
            "copy square sigmoid relu prelu gelu gelu_dx gelu_apprx_tanh gelu_apprx_sigmoid gelu_apprx_sigmoid_dx "
            "silu silu_dx tanh softplus mish erf erf_dx exp sign abs"
        ).split()
    ),
    "log": (2.0**-64, 2.0**64),
    "sin": (-np.pi, np.pi),
    "arctan": (-np.pi / 2, np.pi / 2),
    "sqrt": (2.0**-116, 2.0**118),
    "rsqrt": (2.0**-87, 2.0**97),
    "reciprocal": (-(2.0**42), 2.0**42),
}

_TOKENS: dict[Hashable, str] = {}


def register_token(token: Hashable, name: str) -> None:
    """Make the object `token` mean operator or activation `name`."""
    _TOKENS[token] = name


def _register_numpy() -> None:
    for name in (*OPERATORS, *ACTIVATIONS):
        function = getattr(np, name, None)
        if function is not None:
            register_token(function, name)
    renamed: dict[Hashable, str] = {
        np.max: "maximum",
        np.min: "minimum",
        np.amax: "maximum",
        np.amin: "minimum",
        np.sum: "add",
    }
    renamed |= {np.prod: "multiply", np.multiply: "multiply", np.copy: "copy", np.abs: "abs"}
    for token, name in renamed.items():
        register_token(token, name)


_register_numpy()


def operator_name(token: Any, parameter: str = "op") -> str:
    """The name of the operator that `token` stands for; TileTypeError when it is not an operator."""
    try:
        return _TOKENS[token]
    except (KeyError, TypeError):
        pass
    if isinstance(token, str):
        raise TileTypeError(
            f"{parameter}={token!r} is a string; operators are functions", hint=f"pass nl.{token} instead of {token!r}"
        )
    raise TileTypeError(
        f"{parameter}={token!r} is not an operator", hint="pass a function of nki.language, e.g. nl.add"
    )

"""Rule rows of selections, generators and activations (see test_rules.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.isa.enums import engine, reduce_cmd
from tilelang.isa.operators import register_token

A = "sbuf float32[4,8]"
HBM = "shared_hbm float32[4,8]"
PSUM = "psum float32[4,8]"
COLUMN = "sbuf float32[4,1]"
ON_CHIP = "SBUF or PSUM"
MASK = "sbuf uint8[4,8]"


def prelu() -> None:
    """Stands for `nl.prelu`."""


register_token(prelu, "prelu")

BASE: dict[str, dict[str, Any]] = {
    "tensor_copy_predicated": dict(dst=A, src=A, predicate=MASK),
    "range_select": dict(
        dst=A,
        on_true_tile=A,
        comp_op0=np.greater_equal,
        comp_op1=np.less,
        bound0=COLUMN,
        bound1=COLUMN,
        reduce_res=COLUMN,
    ),
    "select_reduce": dict(dst=A, predicate=MASK, on_true=A, on_false=0.0),
    "iota": dict(dst="sbuf int32[4,8]", pattern=[[1, 8]]),
    "affine_select": dict(dst=A, pattern=[[-1, 8]], channel_multiplier=1, on_true_tile=A, on_false_value=0.0),
    "activation": dict(dst=A, op=np.exp, data=A),
    "activation_reduce": dict(dst=A, op=np.exp, data=A, reduce_op=np.add, reduce_res=COLUMN),
}

_SCATTER = "indirect psum float32[16,16]"


def _activation(name: str, prefix: str) -> list[tuple[Any, ...]]:
    """Rows of the rules that both activation instructions have."""
    rows: list[tuple[Any, ...]] = [
        ("R1", "data", ON_CHIP, dict(data=HBM), dict(data=PSUM)),
        ("R1", "data", "dst has 9", dict(dst="sbuf float32[4,9]"), dict(dst="sbuf bfloat16[4,4,2]")),
        ("R2", "op", "nisa.tensor_tensor", dict(op=np.add), dict(op=np.abs)),
        ("R2", "op", "softplus", dict(op=np.greater), dict(op=np.tanh)),
        ("R3", "scale", "float32", dict(scale="sbuf bfloat16[4,1]"), dict(scale=COLUMN)),
        ("R3", "scale", "(4, 1)", dict(scale="sbuf float32[4,2]"), dict(scale=2)),
        ("R4", "bias", "(4, 1)", dict(bias=A), dict(bias="sbuf int8[4,1]")),
        ("R4", "bias", "tfloat32", dict(bias="sbuf tfloat32[4,1]"), dict(bias="psum float16[4,1]")),
        ("R5", "bias", "generation 3", dict(bias=1.0), dict(bias=1.0), "trn1", "trn2"),
        ("R5", "bias", "nisa.memset", dict(bias=-1), dict(bias=0.0), "trn1", "trn1"),
        ("R6", "bias", "trn1", dict(op=np.reciprocal, bias=COLUMN), dict(op=np.reciprocal), "trn1", "trn1"),
        (
            "R6",
            "bias",
            "generation 3",
            dict(op=np.reciprocal, bias=COLUMN),
            dict(op=np.reciprocal, bias=COLUMN),
            "trn1",
            "trn2",
        ),
        ("R10", "op", "activate2", dict(op=prelu), dict(op=np.copy)),
        (
            "R11",
            "dst",
            "SBUF",
            dict(dst=_SCATTER, data="sbuf float32[16,16]"),
            dict(dst="indirect sbuf float32[16,16]", data="sbuf float32[16,16]"),
            "trn3",
            "trn3",
        ),
    ]
    column = {"reduce_res": "sbuf float32[16,1]"} if name == "activation_reduce" else {}
    widened = [(*r[:3], {**r[3], **column}, {**r[4], **column}, *r[5:]) if r[0] == "R11" else r for r in rows]
    return [(name, prefix + rule, *rest) for rule, *rest in widened]


# fmt: off
ROWS: list[tuple[Any, ...]] = [
    # tensor_copy_predicated
    ("tensor_copy_predicated", "R1", "dst", ON_CHIP, dict(dst=HBM), dict(dst=PSUM)),
    ("tensor_copy_predicated", "R1", "predicate", "both in PSUM", dict(src=PSUM, predicate="psum uint8[4,8]"),
     dict(src=PSUM)),
    ("tensor_copy_predicated", "R2", "src", "dst has 8", dict(src=COLUMN), dict(src="sbuf float32[4,4,2]")),
    ("tensor_copy_predicated", "R2", "predicate", "dst has 4", dict(predicate="sbuf uint8[5,8]"), dict(src=1.5)),
    ("tensor_copy_predicated", "R3", "predicate", "uint8, uint16, uint32", dict(predicate="sbuf int8[4,8]"),
     dict(predicate="sbuf uint16[4,8]")),
    ("tensor_copy_predicated", "R4", "src", "float32", dict(src="sbuf bfloat16[4,8]"),
     dict(src="sbuf bfloat16[4,8]", dst="sbuf bfloat16[4,8]")),
    ("tensor_copy_predicated", "TI.R2", "src", "dst, predicate",
     dict(dst="sbuf float32[16,16]", src="indirect sbuf float32[16,16]", predicate="sbuf uint8[16,16]"),
     dict(dst="indirect sbuf float32[16,16]", src=1.0, predicate="sbuf uint8[16,16]"), "trn3", "trn3"),
    # range_select
    ("range_select", "GEN.R10", None, "generation 3", {}, {}, "trn1", "trn2"),
    ("range_select", "R2", "dst", ON_CHIP, dict(dst=HBM), dict(dst=PSUM)),
    ("range_select", "R2", "on_true_tile", "dst has 9", dict(dst="sbuf float32[4,9]"), dict(dst="sbuf bfloat16[4,8]")),
    ("range_select", "R2", "on_true_tile", "floating-point", dict(on_true_tile="sbuf int8[4,8]"),
     dict(on_true_tile="sbuf float16[4,8]")),
    ("range_select", "R3", "bound0", "(4, 1)", dict(bound0=1.0), dict(bound0="psum float32[4,1]")),
    ("range_select", "R3", "bound0", "float32", dict(bound0="sbuf int32[4,1]"), {}),
    ("range_select", "R3", "bound1", "(4, 1)", dict(bound1="sbuf float32[4,2]"), {}),
    ("range_select", "R4", "comp_op0", "greater_equal", dict(comp_op0=np.not_equal), dict(comp_op0=np.equal)),
    ("range_select", "R4", "comp_op1", "greater_equal", dict(comp_op1=np.add), dict(comp_op1=np.less_equal)),
    ("range_select", "R5", "on_false_value", "-3.4028234663852886e+38", dict(on_false_value=0.0),
     dict(on_false_value=-3.4028235e38)),
    ("range_select", "R6", "reduce_op", "maximum", dict(reduce_op=np.add), dict(reduce_op=np.max)),
    ("range_select", "R7", "range_start", "16777216", dict(range_start=2**24 - 7), dict(range_start=2**24 - 8)),
    ("range_select", "R8", "reduce_cmd", "idle", dict(reduce_cmd=reduce_cmd.load_reduce),
     dict(reduce_cmd=reduce_cmd.idle)),
    ("range_select", "ACC.R5", "reduce_res", "(4, 1)", dict(reduce_res="sbuf float32[3,1]"), dict(reduce_res=None)),
    # select_reduce
    ("select_reduce", "R1", "on_true", ON_CHIP, dict(on_true=HBM), dict(on_true=PSUM)),
    ("select_reduce", "R1", "predicate", "both in PSUM", dict(on_true=PSUM, predicate="psum uint8[4,8]"),
     dict(dst=PSUM, on_true=PSUM)),
    ("select_reduce", "R2", "on_true", "dst has 8", dict(on_true=COLUMN), dict(on_true="sbuf float32[4,2,4]")),
    ("select_reduce", "R3", "on_true", "uint32", dict(on_true="sbuf int32[4,8]"), dict(on_true="sbuf int16[4,8]")),
    ("select_reduce", "R4", "on_false", "(4, 1)", dict(on_false=A), dict(on_false=COLUMN)),
    ("select_reduce", "R4", "on_false", "tfloat32", dict(on_false="sbuf tfloat32[4,1]"),
     dict(on_false="sbuf int8[4,1]")),
    ("select_reduce", "R5", "predicate", "int16", dict(predicate="sbuf uint32[4,8]"),
     dict(predicate="sbuf int16[4,8]")),
    ("select_reduce", "R6", "reduce_op", "maximum", dict(reduce_op=np.minimum), dict(reduce_op=np.maximum)),
    ("select_reduce", "R6", "reduce_cmd", "reset_reduce", dict(reduce_cmd=reduce_cmd.reset),
     dict(reduce_cmd=reduce_cmd.reset_reduce)),
    ("select_reduce", "R7", "reduce_res", "floating-point", dict(reduce_res="sbuf int32[4,1]"),
     dict(reduce_res="sbuf bfloat16[4,1]")),
    ("select_reduce", "R7", "reduce_res", "(4, 1)", dict(reduce_res=A), dict(reduce_res=COLUMN)),
    # iota
    ("iota", "GEN.R5", "dst", "PSUM", dict(dst="psum int32[4,8]"), {}),
    ("iota", "GEN.R4", "dst", "SBUF", dict(dst="shared_hbm int32[4,8]"), {}),
    ("iota", "GEN.R3", "dst", "128", dict(dst="sbuf int32[129,8]"), dict(dst="sbuf int32[128,8]")),
    ("iota", "R2", "pattern", "1 to 4", dict(pattern=[[1, 1]] * 4 + [[1, 8]]), dict(pattern=[[1, 1]] * 3 + [[1, 8]])),
    ("iota", "R2", "pattern", "1 to 4", dict(pattern=[]), dict(pattern=((0, 8),))),
    ("iota", "R2", "pattern", "at least 1", dict(pattern=[[1, 0]]), dict(pattern=[[1, 1], [-1, 8]])),
    ("iota", "R3", "pattern", "dst has 8", dict(pattern=[[1, 7]]), dict(pattern=[[1, 4], [0, 2]])),
    ("iota", "R4", "offset", "int32", dict(offset=2**31), dict(offset=2**31 - 1)),
    ("iota", "R4", "channel_multiplier", "int32", dict(channel_multiplier=-(2**31) - 1),
     dict(channel_multiplier=-(2**31))),
    ("iota", "R5", "pattern", "65535", dict(pattern=[[1, 65536]], dst="sbuf int8[4,65536]"),
     dict(pattern=[[1, 65535]], dst="sbuf int8[4,65535]")),
    ("iota", "R5", "pattern", "32767", dict(pattern=[[32768, 8]]), dict(pattern=[[32767, 8]])),
    ("iota", "R5", "pattern", "-32768", dict(pattern=[[-32769, 8]]), dict(pattern=[[-32768, 8]])),
    # affine_select
    ("affine_select", "R1", "on_true_tile", "dst has 8", dict(on_true_tile=COLUMN),
     dict(on_true_tile="sbuf bfloat16[4,2,4]")),
    ("affine_select", "R1", "on_true_tile", "dst has 4", dict(on_true_tile="sbuf float32[5,8]"), {}),
    ("affine_select", "GEN.R5", "on_true_tile", "nisa.tensor_copy", dict(on_true_tile=PSUM), {}),
    ("affine_select", "R2", "pattern", "dst has 8", dict(pattern=[[1, 9]]), dict(pattern=[[1, 2], [3, 4]])),
    ("affine_select", "R2", "pattern", "1 to 4", dict(pattern=[]), {}),
    ("affine_select", "R2", "pattern", "32767", dict(pattern=[[40000, 8]]), {}),
    ("affine_select", "R3", "offset", "int32", dict(offset=-(2**31) - 1), dict(offset=-(2**31))),
    ("affine_select", "R5", "cmp_op", "not_equal", dict(cmp_op=np.maximum), dict(cmp_op=np.not_equal)),
    # activations
    *_activation("activation", ""),
    *_activation("activation_reduce", "activation."),
    ("activation", "R7", "reduce_op", "nisa.tensor_reduce", dict(reduce_op=np.maximum, reduce_cmd=reduce_cmd.reduce),
     dict(reduce_op=np.add, reduce_cmd=reduce_cmd.reduce)),
    ("activation", "R7", "reduce_op", "reduce_op=nl.add", dict(reduce_cmd=reduce_cmd.reset_reduce),
     dict(reduce_cmd=reduce_cmd.reset)),
    ("activation", "R8", "reduce_cmd", "reset_reduce", dict(reduce_cmd=reduce_cmd.load_reduce),
     dict(reduce_cmd=reduce_cmd.reset_reduce, reduce_op=np.add)),
    ("activation", "R9", "reduce_res", "(4, 1)", dict(reduce_res=A), dict(reduce_res="psum bfloat16[4,1]")),
    ("activation", "R13", "reduce_res", "scalar engine", dict(engine=engine.gpsimd, reduce_res=COLUMN),
     dict(engine=engine.gpsimd),
     "trn3", "trn3"),
    ("activation", "R13", "reduce_cmd", "scalar engine", dict(engine=engine.gpsimd, reduce_cmd=reduce_cmd.reset),
     dict(engine=engine.gpsimd), "trn3", "trn3"),
    ("activation", "GEN.R10", "engine", "generation 4", dict(engine=engine.gpsimd), dict(engine=engine.gpsimd), "trn2",
     "trn3"),
    ("activation", "GEN.R5", "data", "PSUM", dict(engine=engine.gpsimd, data=PSUM), dict(engine=engine.gpsimd), "trn3",
     "trn3"),
    ("activation", "GEN.R11", "engine", "scalar, gpsimd", dict(engine=engine.vector), {}),
    ("activation", "GEN.R4", "data", "HBM", dict(data=HBM), {}),
    ("activation", "TI.R2", "bias", "dst, data", dict(dst="sbuf float32[16,16]", data="sbuf float32[16,16]",
                                                       bias="indirect sbuf float32[16,16]"), {}, "trn3", "trn3"),
    ("activation_reduce", "R2", "reduce_op", "nisa.tensor_reduce", dict(reduce_op=np.maximum), dict(reduce_op=np.sum)),
    ("activation_reduce", "R3", "reduce_res", "(4, 1)", dict(reduce_res=A), dict(reduce_res=None)),
]
# fmt: on

"""Rules of every call (isa.md 8, 3.2, 5.5): trip each through one instruction; start partitions and PSUM in full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.trace.test_indirect import RULES as INDIRECT_ROWS
from tilelang.errors import TileTypeError
from tilelang.isa import dma
from tilelang.isa.enums import dge_mode, engine
from tilelang.isa.params import ENGINE
from tilelang.isa.rules import GENERIC_RULES

Diagnose = Callable[..., Any]
A = "sbuf float32[4,8]"
_SQUARE = "sbuf float32[16,16]"
_GATHER = "indirect sbuf float32[16,16]"

# rule, operand, limit, instruction, arguments that trip, arguments that just do not[, targets
# of the two]
# fmt: off
ROWS: list[tuple[Any, ...]] = [
    ("GEN.R10", "engine", "generation 3", "tensor_copy", dict(dst=A, src=A, engine=engine.scalar),
     dict(dst=A, src=A, engine=engine.vector), "trn1", "trn1"),
    ("GEN.R11", "engine", "vector, gpsimd", "memset", dict(dst=A, value=0, engine=engine.tensor),
     dict(dst=A, value=0, engine=engine.vector)),
    ("GEN.R3", "dst", "128", "memset", dict(dst="sbuf float32[129,8]", value=0),
     dict(dst="sbuf float32[128,8]", value=0)),
    ("GEN.R4", "dst", "SBUF or PSUM", "memset", dict(dst="private_hbm float32[4,8]", value=0), dict(dst=A, value=0)),
    ("GEN.R5", "dst", "gpsimd", "iota", dict(dst="psum int32[4,8]", pattern=[[1, 8]]),
     dict(dst="sbuf int32[4,8]", pattern=[[1, 8]])),
    ("GEN.R12", "src", "0, 64", "tensor_copy", dict(dst="sbuf float32[33,8]", src="sbuf@32 float32[33,8]"),
     dict(dst="sbuf float32[32,8]", src="sbuf@32 float32[32,8]")),
    ("LANG.R1", "src", "contiguous", "tensor_copy",
     dict(dst="sbuf float32[4,8]", src=lambda t: t("sbuf float32[8,8]")[0:8:2]),
     dict(dst="sbuf float32[4,8]", src=lambda t: t("sbuf float32[8,8]")[0:4])),
    ("GEN.R14", "dst", "4096", "memset", dict(dst="psum float32[4,4097]", value=0),
     dict(dst="psum float32[4,4096]", value=0)),
    ("GEN.R14", "dst", "8192", "memset", dict(dst="psum bfloat16[4,8193]", value=0),
     dict(dst=lambda t: t("psum bfloat16[4,1,1]").ap([[1, 4], [0, 9000]]), value=0)),
    ("GEN.R14", "dst", "65536", "memset", dict(dst="sbuf int8[4,65537]", value=0),
     dict(dst="sbuf int8[4,65536]", value=0)),
    ("AP.R5", "src", "engines walk 4", "tensor_copy",
     dict(dst="sbuf float32[1,32]", src=lambda t: t("sbuf float32[1,3,3,3,3,3]")[:, 0:2, 0:2, 0:2, 0:2, 0:2]),
     dict(dst="sbuf float32[1,16]", src=lambda t: t("sbuf float32[1,3,3,3,3,3]")[:, 0, 0:2, 0:2, 0:2, 0:2])),
    ("AP.R6", "src", "32767", "tensor_copy",
     dict(dst="sbuf uint8[1,4]", src=lambda t: t("sbuf uint8[1,131072]")[:, ::32768]),
     dict(dst="sbuf uint8[1,5]", src=lambda t: t("sbuf uint8[1,131072]")[:, ::32767])),
    ("GEN.R16", "dst", "multiple of 4", "memset",
     dict(dst=lambda t: t("psum float32[4,8]").view("uint8")[:, 2:4], value=0),
     dict(dst=lambda t: t("psum float32[4,8]").view("uint8")[:, 4:8], value=0)),
    ("TI.R1", "data", "generation 4", "reciprocal", dict(dst=_SQUARE, data=_GATHER), dict(dst=_SQUARE, data=_SQUARE)),
    ("TI.R2", "data", "none", "reciprocal", dict(dst=_SQUARE, data=_GATHER), dict(dst=_SQUARE, data=_SQUARE), "trn3",
     "trn3"),
    ("DT.R1", "data", "packed", "reciprocal", dict(dst=A, data="sbuf float4_e2m1fn_x4[4,8]"), dict(dst=A, data=A)),
    ("DT.R2", "data", "MX scale", "reciprocal", dict(dst=A, data="sbuf float8_e8m0fnu[4,8]"), dict(dst=A, data=A)),
    ("DT.R2", "src", "as it is", "tensor_copy", dict(dst=A, src="sbuf float8_e8m0fnu[4,8]"), dict(dst=A, src=A)),
    ("DT.R6", "src", "int64", "tensor_copy", dict(dst="sbuf int64[4,8]", src="sbuf int64[4,8]"), dict(dst=A, src=A)),
]
# fmt: on


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[3]}")
def test_generic_rule(row: tuple[Any, ...], diagnose: Diagnose) -> None:
    rule, operand, limit, name, bad, good, *targets = row
    bad_target, good_target = targets if targets else ("trn2", "trn2")
    errors, _ = diagnose(name, bad_target, **bad)
    found = [d for d in errors if d.rule == rule and d.operand == operand]
    assert found, [d.render() for d in errors]
    assert operand in found[0].message and limit in found[0].render()
    errors, warnings = diagnose(name, good_target, **good)
    assert [d.render() for d in errors + warnings] == []


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_the_newer_fp8_format_is_mere_storage_before_generation_4(target: str, diagnose: Diagnose) -> None:
    """DT.R3 as a warning; as a matmul operand nc_matmul.R5 refuses it."""
    for name, operands in (
        ("tensor_copy", dict(dst=A, src="sbuf float8_e4m3fn[4,8]")),
        ("dma_copy", dict(dst="sbuf float8_e4m3fn[4,8]", src="shared_hbm float8_e4m3fn[4,8]")),
    ):
        errors, warnings = diagnose(name, target, **operands)
        assert errors == [] and [d.rule for d in warnings] == ([] if target == "trn3" else ["DT.R3"])
        assert all("240" in d.message and "448" in d.message and "nl.float8_e4m3" in d.render() for d in warnings)
    assert diagnose("tensor_copy", target, dst=A, src="sbuf float8_e4m3[4,8]") == ([], [])


def test_every_generic_rule_has_a_row() -> None:
    tested = {row[0] for row in ROWS} | {row[0] for row in INDIRECT_ROWS} | {"DT.R3"}
    assert {rule.id for rule in GENERIC_RULES if rule.kind == "violable"} - tested == set()


@pytest.mark.parametrize("count", [1, 32, 33, 64, 96, 128])
def test_start_partitions(count: int, diagnose: Diagnose) -> None:
    """Where an operand of `count` partitions may start: 0; up to 64 also 64; up to 32 every quadrant."""
    allowed = {0} if count > 64 else {0, 64} if count > 32 else {0, 32, 64, 96}
    for start in range(129 - count):
        source = f"sbuf@{start} float32[{count},8]"
        errors, _ = diagnose("tensor_copy", dst=f"sbuf float32[{count},8]", src=source)
        assert [d.rule for d in errors] == ([] if start in allowed else ["GEN.R12"])
        if errors:
            text = errors[0].render()
            assert f"starts at partition {start} with {count}" in text
            assert ", ".join(map(str, sorted(allowed))) in text and "nisa.dma_copy" in text


def test_start_of_a_view(diagnose: Diagnose) -> None:
    """Rows of an unplaced tile count from partition 0; DMA is exempt."""
    rows = dict(src=lambda t: t("sbuf float32[128,8]")[16:32])
    errors, _ = diagnose("tensor_copy", dst="sbuf float32[16,8]", **rows)
    assert [d.rule for d in errors] == ["GEN.R12"]
    errors, _ = diagnose("dma_copy", dst="sbuf float32[16,8]", **rows)
    assert errors == []


def test_all_findings_are_collected(diagnose: Diagnose) -> None:
    """A call with several mistakes reports each, with the operand at fault."""
    errors, _ = diagnose("tensor_scalar", dst="sbuf float32[4,9]", data=A, op0=np.exp, operand0="sbuf bfloat16[5,1]")
    assert [(d.rule, d.operand) for d in errors] == [
        ("tensor_scalar.R1", "data"),
        ("tensor_scalar.R2", "operand0"),
        ("tensor_scalar.R4", "op0"),
        ("tensor_scalar.R6", "operand0"),
    ]


def test_an_enum_value_stands_for_its_member_only_where_kernels_write_it() -> None:
    assert dma.DGE.normalise(3) is dge_mode.none
    for parameter, value in ((dma.DGE, 4), (dma.DGE, True), (dma.OOB, 1), (ENGINE, 1)):
        with pytest.raises(TileTypeError, match="expected a member") as caught:
            parameter.normalise(value)
        assert caught.value.diagnostics[0].rule == "GEN.R9"

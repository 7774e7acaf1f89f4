"""Rule rows of random numbers (see test_rules.py)."""

from __future__ import annotations

from typing import Any

from tilelang.isa.enums import engine

A = "sbuf float32[4,8]"
U = "sbuf uint32[4,8]"
PSUM = "psum float32[4,8]"
HBM = "shared_hbm float32[4,8]"
COLUMN = "sbuf float32[4,1]"
ON_CHIP = "SBUF or PSUM"
T3 = ("trn3", "trn3")

BASE: dict[str, dict[str, Any]] = {
    "rng": dict(dst=U),
    "rand2": dict(dst=A, min=0.0, max=1.0),
    "dropout": dict(dst=A, data=A, prob=0.5),
    "set_rng_seed": dict(src_seeds="sbuf uint32[1,1]"),
    "rand_set_state": dict(src_seeds="sbuf uint32[4,6]"),
    "rand_get_state": dict(dst="sbuf uint32[4,6]"),
}
_INT_DATA = dict(dst="sbuf int32[4,8]", data="sbuf int32[4,8]")

# fmt: off
ROWS: list[tuple[Any, ...]] = [
    ("rng", "R1", "dst", "float32", dict(dst=A), dict(dst="sbuf int8[4,8]")),
    ("rng", "R2", "dst", ON_CHIP, dict(dst="shared_hbm uint32[4,8]"), dict(dst="psum uint32[4,8]")),
    ("rng", "GEN.R5", "dst", "PSUM", dict(dst="psum uint32[4,8]", engine=engine.gpsimd), dict(engine=engine.gpsimd)),
    ("rng", "GEN.R10", "engine", "generation 3", dict(engine=engine.gpsimd), dict(engine=engine.gpsimd), "trn1",
     "trn2"),
    ("rand2", "R2", "dst", ON_CHIP, dict(dst=HBM), dict(dst=PSUM), *T3),
    ("rand2", "R2", "dst", "bool", dict(dst="sbuf bool[4,8]"), dict(dst="sbuf uint16[4,8]"), *T3),
    ("rand2", "R3", "min", "float32", dict(min="sbuf bfloat16[4,1]"), dict(min=COLUMN), *T3),
    ("rand2", "R3", "max", "(4, 1)", dict(max=A), dict(max=COLUMN), *T3),
    ("rand2", "R4", "min", "not below", dict(min=1.0), dict(min=0.5), *T3),
    ("dropout", "R1", "dst", ON_CHIP, dict(dst=HBM), dict(dst=PSUM)),
    ("dropout", "R1", "data", "(4, 7)", dict(dst="sbuf float32[4,7]"), dict(dst="sbuf float32[4,2,4]")),
    ("dropout", "R2", "dst", "keeps the dtype", dict(dst="sbuf bfloat16[4,8]"),
     dict(dst="sbuf bfloat16[4,8]", data="sbuf bfloat16[4,8]")),
    ("dropout", "R3", "prob", "(4, 1)", dict(prob=A), dict(prob="sbuf bfloat16[4,1]")),
    ("dropout", "R3", "prob", "floating-point", dict(prob="sbuf int32[4,1]"), dict(prob=COLUMN)),
    ("dropout", "R3", "prob", "must be float32", dict(prob="sbuf bfloat16[4,1]", **_INT_DATA),
     dict(prob=COLUMN, **_INT_DATA)),
    ("dropout", "R4", "prob", "0 to 1", dict(prob=1.5), dict(prob=1.0)),
    ("set_rng_seed", "R1", "src_seeds", ON_CHIP, dict(src_seeds="shared_hbm uint32[1,1]"),
     dict(src_seeds="psum int32[1,1]")),
    ("set_rng_seed", "R1", "src_seeds", "(1, 1)", dict(src_seeds="sbuf uint32[2,1]"),
     dict(src_seeds="sbuf float32[1,1]")),
    ("set_rng_seed", "R2", "src_seeds", "uint16", dict(src_seeds="sbuf uint16[1,1]"), {}),
    ("rand_set_state", "R2", "src_seeds", "must be in SBUF", dict(src_seeds="psum uint32[4,6]"), {}),
    ("rand_set_state", "R2", "src_seeds", "int32", dict(src_seeds="sbuf int32[4,6]"), {}),
    ("rand_set_state", "R3", "src_seeds", "has 24 words", dict(engine=engine.vector),
     dict(engine=engine.vector, src_seeds="sbuf uint32[4,24]"), *T3),
    ("rand_set_state", "R3", "src_seeds", "has 6 words", dict(src_seeds="sbuf uint32[4,2,3]"), {}),
    ("rand_get_state", "R2", "dst", ON_CHIP, dict(dst="shared_hbm uint32[4,6]"),
     dict(dst="psum uint32[4,24]", engine=engine.vector), *T3),
    ("rand_get_state", "R2", "dst", "int32", dict(dst="sbuf int32[4,6]"), {}),
    ("rand_get_state", "R3", "dst", "has 24 words", dict(engine=engine.vector),
     dict(engine=engine.vector, dst="sbuf uint32[4,24]"), *T3),
]

"""Rules that many instructions share: builders for the records, and the generic rules applied to every call (isa.md
section 8).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tilelang.dtypes import FORMATS
from tilelang.ir.tensor import NkiTensor
from tilelang.isa.indirect_rules import INDIRECT_RULES
from tilelang.isa.spec import Call, Finding, Rule

__all__ = [
    "GENERIC_RULES",
    "TWO_STEP",
    "alias",
    "dtypes",
    "free_dims_at_most",
    "needs",
    "not_both_psum",
    "on_chip",
    "refused_dtypes",
    "row_vector",
    "same_extent",
    "same_partitions",
    "semantic",
]

TWO_STEP = "copy through SBUF first: nisa.tensor_copy(dst=sbuf_tile, src=psum_tile)"
_ON_CHIP = ("sbuf", "psum")


def semantic(rule: str, text: str) -> Rule:
    """A rule that states values: shown by a value test."""
    return Rule(rule, text, kind="semantic")


def alias(rule: str, text: str) -> Rule:
    """A rule that other rules cover; `text` names them."""
    return Rule(rule, text, kind="alias")


def on_chip(rule: str, *names: str, buffers: tuple[str, ...] = _ON_CHIP) -> Rule:
    """Operands `names` live in one of `buffers`."""
    allowed = " or ".join(buffer.upper().replace("_", " ") for buffer in buffers)

    def test(call: Call) -> list[Finding]:
        found = []
        for name, tensor in call.tiles():
            if name.split("[")[0] in names and tensor.buffer.value not in buffers:
                where = tensor.buffer.value.upper().replace("_", " ")
                hint = "load it into SBUF with nisa.dma_copy first" if "HBM" in where else None
                if "PSUM" in where:
                    hint = TWO_STEP
                found.append(Finding(f"{name} is in {where}; it must be in {allowed}", name, hint))
        return found

    return Rule(rule, f"{', '.join(names)} in {allowed}", test)


def not_both_psum(rule: str, first: str, second: str) -> Rule:
    """GEN.R19: two tile inputs are not both in PSUM."""

    def test(call: Call) -> Finding | None:
        if call.is_tile(first) and call.is_tile(second) and call.buffer(first) == call.buffer(second) == "psum":
            return Finding(f"{first} and {second} are both in PSUM; one instruction reads PSUM once", second)
        return None

    return Rule(
        rule, f"{first} and {second} not both in PSUM", test, hint=f"copy {second} to SBUF with nisa.tensor_copy"
    )


def same_extent(rule: str, first: str, *others: str, hint: str | None = None) -> Rule:
    """Equal partition counts and equal elements per partition (ranks may differ)."""

    def test(call: Call) -> Finding | None:
        if not call.is_tile(first):
            return None
        for name in others:
            if not call.is_tile(name):
                continue
            for what, a, b in (
                ("partitions", call.P(first), call.P(name)),
                ("elements per partition", call.F(first), call.F(name)),
            ):
                if a != b:
                    advice = hint
                    if what != "partitions" and 1 in (a, b) and call.spec.name == "tensor_tensor":
                        advice = (
                            "use nisa.tensor_scalar with the [P, 1] tile as operand0, or broadcast it with .ap step 0"
                        )
                    message = (
                        f"{name} has {b} {what}, {first} has {a}: {_shape(call, name)} against {_shape(call, first)}"
                    )
                    return Finding(message, name, advice)
        return None

    return Rule(rule, f"equal P and F among {first}, {', '.join(others)}", test)


def same_partitions(rule: str, first: str, *others: str) -> Rule:
    """Equal partition counts."""

    def test(call: Call) -> list[Finding]:
        return [
            Finding(
                f"{name} has {call.P(name)} partitions, {first} has {call.P(first)}: "
                f"{_shape(call, name)} against {_shape(call, first)}",
                name,
            )
            for name in others
            if call.is_tile(name) and call.P(name) != call.P(first)
        ]

    return Rule(rule, f"equal P among {first}, {', '.join(others)}", test)


def row_vector(rule: str, name: str, like: str, *formats: str) -> Rule:
    """GEN.R8: vec(P) operand `name`: a number, or a tile (P, 1) with as many partitions as `like`, in one of
    `formats` if given.
    """

    def test(call: Call) -> Finding | None:
        if not call.is_tile(name):
            return None
        if call.P(name) != call.P(like) or call.F(name) != 1:
            return Finding(f"{name} is {_shape(call, name)}; expected a number or a tile ({call.P(like)}, 1)", name)
        if formats and call.dtype(name) not in formats:
            return Finding(
                f"{name} is {call.dtype(name)}; a tile operand must be {' or '.join(formats)}",
                name,
                f"convert it with nisa.tensor_copy into a {formats[0]} tile",
            )
        return None

    return Rule(rule, f"{name}: number or ({like} partitions, 1) tile" + (f" of {formats}" if formats else ""), test)


def dtypes(rule: str, names: str | tuple[str, ...], allowed: tuple[str, ...], hint: str | None = None) -> Rule:
    """Operands `names` have a dtype in `allowed`."""
    targets = (names,) if isinstance(names, str) else names

    def test(call: Call) -> Finding | None:
        for name in targets:
            if call.is_tile(name) and call.dtype(name) not in allowed:
                return Finding(f"{name} is {call.dtype(name)}; allowed: {', '.join(allowed)}", name)
        return None

    return Rule(rule, f"dtype of {', '.join(targets)} in {', '.join(allowed)}", test, hint=hint)


def refused_dtypes(rule: str, name: str, *refused: str) -> Rule:
    """Operand `name` has none of the dtypes `refused`."""

    def test(call: Call) -> Finding | None:
        if call.is_tile(name) and call.dtype(name) in refused:
            return Finding(f"{name} is {call.dtype(name)}; not allowed: {', '.join(refused)}", name)
        return None

    return Rule(rule, f"dtype of {name} not in {', '.join(refused)}", test)


def free_dims_at_most(rule: str, limit: int, *names: str) -> Rule:
    """Operands have at most `limit` free dims."""

    def test(call: Call) -> Finding | None:
        for name in names:
            if call.is_tile(name) and len(call.values[name].shape) - 1 > limit:
                return Finding(f"{name} has {len(call.values[name].shape) - 1} free dims; at most {limit}", name)
        return None

    return Rule(rule, f"{', '.join(names)}: at most {limit} free dims", test)


def _shape(call: Call, name: str) -> str:
    return f"({', '.join(str(n) for n in call.values[name].shape)})"


def _engine_operands(call: Call) -> list[tuple[str, NkiTensor]]:
    elsewhere = call.engine in ("dma", "sequencer") or call.spec.meeting is not None
    return [] if elsewhere else call.tiles()


def _partitions(call: Call) -> list[Finding]:
    return [
        Finding(
            f"{name} partition dimension {tensor.P} exceeds maximum 128",
            name,
            "split the first dimension into tiles of nl.tile_size.pmax rows",
        )
        for name, tensor in call.tiles()
        if tensor.buffer.value in _ON_CHIP and tensor.P > 128
    ]


def _never_hbm(call: Call) -> list[Finding]:
    return [
        Finding(
            f"{name} is in HBM; {call.engine} engine operands must be in SBUF or PSUM",
            name,
            "load it first: nisa.dma_copy",
        )
        for name, tensor in _engine_operands(call)
        if tensor.buffer.value not in _ON_CHIP
    ]


def _gpsimd_no_psum(call: Call) -> list[Finding]:
    if call.engine != "gpsimd":
        return []
    return [
        Finding(f"{name} is in PSUM, which the gpsimd engine cannot reach", name, TWO_STEP)
        for name, tensor in call.tiles()
        if tensor.buffer.value == "psum"
    ]


def _available(call: Call) -> Finding | None:
    if call.generation < call.spec.since:
        return Finding(needs(call, call.spec.name, call.spec.since))
    since = call.spec.engine_since.get(call.engine, 2)
    if call.generation < since:
        return Finding(needs(call, f"engine={call.engine}", since), "engine")
    return None


def needs(call: Call, what: str, since: int) -> str:
    """Message: `what` is not available before generation `since`."""
    target = {3: "trn2", 4: "trn3"}[since]
    return f'{what} needs NeuronCore generation {since} (target="{target}") or newer; the target is {call.target}'


def _engine_allowed(call: Call) -> Finding | None:
    if call.engine in call.spec.engines:
        return None
    return Finding(f"engine {call.engine} cannot run this; allowed: {', '.join(call.spec.engines)}", "engine")


# Operands that hold the scales of microscaling formats; they start where their sections say.
_SCALES = ("dst_scale", "stationary_scale", "moving_scale")


def _start_partition(call: Call) -> list[Finding]:
    found = []
    for name, tensor in _engine_operands(call):
        if (
            name in _SCALES
            or tensor.buffer.value not in _ON_CHIP
            or (tensor.storage.address is None and tensor.start_partition == 0)
        ):
            continue
        start, count = tensor.start_partition, tensor.P
        allowed = (0,) if count > 64 else (0, 64) if count > 32 else (0, 32, 64, 96)
        if start not in allowed and count <= 128:
            found.append(
                Finding(
                    f"{name} starts at partition {start} with {count} partitions; allowed starts for that size: "
                    f"{', '.join(map(str, allowed))}",
                    name,
                    "move the rows to an allowed start with nisa.dma_copy, which is exempt",
                )
            )
    return found


_PSUM_BYTES = 16384  # of one partition


def _operand_size(call: Call) -> list[Finding]:
    """Elements at different addresses: a broadcast of a small tile counts once."""
    found = []
    for name, tensor in _engine_operands(call):
        limits = {"sbuf": 65536, "psum": _PSUM_BYTES // max(tensor.itemsize, 1)}
        limit = limits.get(tensor.buffer.value, 1 << 62)
        count = prod(n for n, step in zip(tensor.shape[1:], tensor.strides[1:], strict=True) if step != 0)
        if count > limit:
            found.append(Finding(f"{name} has {count} elements per partition; an instruction reaches {limit}", name))
    return found


def _psum_alignment(call: Call) -> list[Finding]:
    return [
        Finding(f"{name} starts at byte {tensor.byte_offset} of a PSUM partition; it must be a multiple of 4", name)
        for name, tensor in _engine_operands(call)
        if tensor.buffer.value == "psum" and tensor.byte_offset % 4 and tensor.storage.fmt.itemsize == 4
    ]


def _strided_partitions(call: Call) -> list[Finding]:
    return [
        Finding(f"{name} skips partitions (step {tensor.partition_step}); engines read contiguous partitions", name)
        for name, tensor in _engine_operands(call)
        if tensor.on_chip and tensor.partition_step != 1
    ]


def _access_pattern(rule: str) -> Callable[[Call], list[Finding]]:
    def test(call: Call) -> list[Finding]:
        found = []
        for name, tensor in _engine_operands(call):
            violation = tensor.engine_pattern_violation() if tensor.on_chip else None
            if violation is None or violation[0] != rule:
                continue
            # A run of 65536 elements, the most an operand has (GEN.R14), is walked as two dims.
            if rule == "AP.R5" or any(not -32768 <= step <= 32767 for _, step in tensor.free_pattern()):
                found.append(Finding(f"{name}: {violation[1]}", name, violation[2]))
        return found

    return test


_COPIES = frozenset({"dma_copy", "dma_transpose", "tensor_copy", "memset", "sendrecv", "nc_matmul_mx", "quantize_mx"})
_COPIES |= {"indirect_gather", "indirect_scatter"}


def _packed(call: Call) -> list[Finding]:
    return [
        Finding(f"{name} has packed dtype {tensor.dtype}, which {call.spec.name} cannot process", name)
        for name, tensor in call.tiles()
        if FORMATS[tensor.dtype].kind == "packed" and call.spec.name not in _COPIES
    ]


def _scales(call: Call) -> list[Finding]:
    return [
        Finding(f"{name} has dtype float8_e8m0fnu, which is only an MX scale or copied as it is", name)
        for name, tensor in call.tiles()
        if FORMATS[tensor.dtype].kind == "scale"
        and (call.spec.name not in _COPIES or (call.spec.name == "tensor_copy" and call.dst.dtype != call.src.dtype))
    ]


def _int64(call: Call) -> list[Finding]:
    return [
        Finding(
            f"{name} has dtype int64, which compute instructions refuse", name, "only dma_copy and scalar_load take it"
        )
        for name, tensor in _engine_operands(call)
        if tensor.dtype == "int64"
    ]


def _newer_fp8(call: Call) -> Finding | None:
    if call.generation >= 4:
        return None
    for name, tensor in call.tiles():
        if tensor.dtype == "float8_e4m3fn":
            return Finding(
                f"{name} is float8_e4m3fn (OCP, up to 448), which {call.target} stores but does not multiply; its own "
                "format is float8_e4m3 (IEEE, up to 240), in which codes above 240 mean Inf and NaN",
                name,
            )
    return None


GENERIC_RULES: tuple[Rule, ...] = (
    Rule("GEN.R10", "available on the current generation", _available),
    Rule("GEN.R11", "engine= is one the instruction can run on", _engine_allowed),
    Rule("GEN.R3", "at most 128 partitions", _partitions),
    Rule("GEN.R4", "compute operands are on chip", _never_hbm),
    Rule("GEN.R5", "nothing of a gpsimd instruction in PSUM", _gpsimd_no_psum),
    Rule("GEN.R12", "start partition by partition count", _start_partition),
    Rule("LANG.R1", "engines never stride across partitions (language.md 2.6)", _strided_partitions),
    Rule("GEN.R14", "per-partition size of an operand", _operand_size),
    Rule("AP.R5", "at most 4 free dims in an engine's access pattern", _access_pattern("AP.R5")),
    Rule("AP.R6", "counts and steps fit an engine's access pattern", _access_pattern("AP.R6")),
    Rule("GEN.R16", "PSUM addresses 4-byte aligned", _psum_alignment),
    *INDIRECT_RULES,
    Rule("DT.R1", "packed dtypes only in copies and MX instructions", _packed),
    Rule("DT.R2", "float8_e8m0fnu only as MX scale and in copies", _scales),
    Rule(
        "DT.R3",
        "float8_e4m3fn before generation 4 is mere storage",
        _newer_fp8,
        'use nl.float8_e4m3, or target="trn3"',
        warn=True,
    ),
    Rule("DT.R6", "int64 tiles only in dma_copy and scalar_load/store", _int64),
)

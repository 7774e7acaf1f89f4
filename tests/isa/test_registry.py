"""The registry as a whole: every rule of the specification is in its record, and records are complete."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilelang.isa.accumulators import register_use, undefined_reductions
from tilelang.isa.enums import reduce_cmd
from tilelang.isa.spec import REGISTRY, Rule, instruction

# Number of rules (R1, R2, …) in the table of each section of isa.md 10 to 14.
RULES = {
    "dma_copy": 6,
    "dma_transpose": 13,
    "tensor_copy": 6,
    "memset": 7,
    "tensor_copy_predicated": 5,
    "nc_matmul": 21,
    "nc_transpose": 6,
    "tensor_tensor": 8,
    "tensor_scalar": 12,
    "scalar_tensor_tensor": 5,
    "tensor_reduce": 6,
    "tensor_scalar_reduce": 8,
    "tensor_tensor_scan": 4,
    "reciprocal": 1,
    "range_select": 9,
    "select_reduce": 7,
    "bn_stats": 3,
    "bn_aggr": 3,
    "max8": 2,
    "nc_find_index8": 3,
    "activation": 12,
    "activation_reduce": 4,
    "iota": 5,
    "affine_select": 5,
}
# Rules from elsewhere that a section refers to.
ALSO = {
    "scalar_tensor_tensor": ("ACC.R3", "ACC.R5", "GEN.R10"),
    "range_select": ("ACC.R5",),
    "activation_reduce": tuple(f"activation.R{n}" for n in (1, 2, 3, 4, 5, 6, 10, 11, 12)),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_there(name: str) -> None:
    present = {rule.id for rule in REGISTRY[name].rules}
    expected = {f"R{n}" for n in range(1, RULES[name] + 1)} | set(ALSO.get(name, ()))
    assert expected - present == set()


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_record(name: str) -> None:
    """A record names kinds for all parameters, and its public function has the signature of the body."""
    spec = REGISTRY[name]
    assert set(spec.names) <= set(spec.operands) | set(spec.params)
    assert spec.doc and spec.accuracy and spec.engines
    assert set(spec.engine_since) <= set(spec.engines)
    assert set(spec.indirect) <= set(spec.operands)
    assert spec.uses_machine or not spec.state
    assert "machine" not in spec.signature.parameters
    assert all(rule.text and rule.kind in ("violable", "semantic", "alias") for rule in spec.rules)


@pytest.mark.parametrize("name", RULES)
def test_documentation(name: str) -> None:
    """The text says where the rules come from, and mentions every operand."""
    spec = REGISTRY[name]
    assert "isa.md" in spec.doc
    assert [operand for operand in spec.operands if operand not in spec.doc] == []


def test_public_signatures() -> None:
    """Order, names and defaults as users pass them (isa.md 12 to 14, nki-0.7.md 2.6)."""
    signatures = {
        "tensor_scalar": "dst data op0 operand0 reverse0 op1 operand1 reverse1 engine name",
        "scalar_tensor_tensor": "dst data op0 operand0 op1 operand1 reverse0 reverse1 "
        "reduce_cmd reduce_op reduce_res name",
        "tensor_reduce": "dst op data axis negate keepdims name",
        "tensor_scalar_reduce": "dst data op0 operand0 reduce_op reduce_res reverse0 "
        "reduce_cmd reduce_init reduce_res_negate name",
        "tensor_tensor_scan": "dst data0 data1 initial op0 op1 reverse0 reverse1 name",
        "reciprocal": "dst data name",
        "tensor_copy_predicated": "dst src predicate reverse_pred name",
        "range_select": "dst on_true_tile comp_op0 comp_op1 bound0 bound1 reduce_cmd reduce_res "
        "reduce_op range_start on_false_value name",
        "select_reduce": "dst predicate on_true on_false reduce_res reduce_cmd reduce_op reverse_pred name",
        "bn_stats": "dst data name",
        "bn_aggr": "dst data name",
        "max8": "dst src name",
        "nc_find_index8": "dst data vals name",
        "activation": "dst op data bias scale reduce_op reduce_res reduce_cmd engine name",
        "activation_reduce": "dst op data reduce_op reduce_res bias scale name",
        "iota": "dst pattern offset channel_multiplier name",
        "affine_select": "dst pattern channel_multiplier on_true_tile on_false_value cmp_op offset name",
    }
    for name, expected in signatures.items():
        assert list(REGISTRY[name].signature.parameters) == expected.split()
    required = inspect.Parameter.empty
    assert REGISTRY["activation_reduce"].signature.parameters["reduce_res"].default is required
    assert REGISTRY["range_select"].signature.parameters["reduce_cmd"].default is reduce_cmd.reset_reduce
    assert REGISTRY["select_reduce"].signature.parameters["reduce_cmd"].default is reduce_cmd.idle
    assert REGISTRY["tensor_scalar_reduce"].signature.parameters["reduce_cmd"].default is reduce_cmd.reset_reduce


def test_rule_kinds() -> None:
    with pytest.raises(TypeError, match="needs a test"):
        Rule("R1", "text")
    with pytest.raises(TypeError, match="needs a test"):
        Rule("R1", "text", lambda call: None, kind="alias")


def test_a_record_with_a_missing_part_fails() -> None:
    common: dict[str, Any] = dict(operands={}, rules=(), engines=("vector",), cost=lambda call: 0, accuracy="exact")
    with pytest.raises(TypeError, match=r"no kind declared for \['dst'\]"):

        @instruction(**common)
        def undeclared(dst: Any) -> None:
            """Text."""

    with pytest.raises(TypeError, match="no docstring"):

        @instruction(**common)
        def untold() -> None:
            pass

    assert "undeclared" not in REGISTRY and "untold" not in REGISTRY


@pytest.mark.parametrize(
    ("command", "read_out", "expected"),
    [
        (reduce_cmd.idle, False, (False, False)),
        (reduce_cmd.idle, True, (True, False)),
        (reduce_cmd.reset, True, (False, True)),
        (reduce_cmd.reduce, False, (True, True)),
        (reduce_cmd.reset_reduce, True, (False, True)),
    ],
)
def test_register_use(
    call: Callable[..., Any], command: reduce_cmd, read_out: bool, expected: tuple[bool, bool]
) -> None:
    tile = "sbuf float32[4,8]"
    result = "sbuf float32[4,1]" if read_out else None
    bound = call("activation", dst=tile, op=np.exp, data=tile, reduce_cmd=command, reduce_op=np.add, reduce_res=result)
    assert register_use(bound) == expected


def test_undefined_reductions(call: Callable[..., Any]) -> None:
    """ACC.R1: `reduce` after nothing, after `idle`, and after an instruction that reduced in between."""
    tile, mask = "sbuf float32[4,8]", "sbuf uint8[4,8]"

    def scalar(command: reduce_cmd) -> Any:
        return call(
            "tensor_scalar_reduce", dst=tile, data=tile, op0=np.add, operand0=0, reduce_op=np.add, reduce_cmd=command
        )

    def fused(command: reduce_cmd) -> Any:
        arguments = dict(op0=np.add, operand0=0, op1=np.add, operand1=tile, reduce_cmd=command)
        return call("scalar_tensor_tensor", dst=tile, data=tile, **arguments)

    reset, reduce = reduce_cmd.reset_reduce, reduce_cmd.reduce
    idle = call("select_reduce", dst=tile, predicate=mask, on_true=tile, on_false=0)
    other = call("reciprocal", dst=tile, data=tile)
    cases = [
        ([scalar(reset), other, scalar(reduce), scalar(reduce)], {}),
        ([fused(reset), fused(reduce)], {}),
        ([scalar(reduce), scalar(reduce)], {0: "no instruction has set them"}),
        ([scalar(reset), idle, other, scalar(reduce)], {3: "select_reduce with reduce_cmd=idle"}),
        ([scalar(reset), fused(reset), scalar(reduce)], {2: "scalar_tensor_tensor has started"}),
        ([scalar(reset), fused(reset), scalar(reset), scalar(reduce)], {}),
        ([fused(reset), scalar(reduce)], {}),
    ]
    for calls, expected in cases:
        found = dict(undefined_reductions(calls))
        assert set(found) == set(expected)
        assert all(part in found[position].message for position, part in expected.items())

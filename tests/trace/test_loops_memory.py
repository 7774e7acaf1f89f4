"""Device loops and memory: addresses, bounds, refusals, in all modes and thread counts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tests.conformance.harness import run_everywhere
from tilelang import simulate
from tilelang.errors import TileBoundsError, TileTypeError, TileValueError

MODES = ("native", "reference", "debug")
X = np.random.default_rng(5).integers(-8, 9, (128, 32)).astype(np.float32)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*is not contiguous")


def saved(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def add(dst: Any, value: Any) -> None:
    if isinstance(value, (int, float)):
        nisa.tensor_scalar(dst, dst, nl.add, float(value))
    else:
        nisa.tensor_tensor(dst, dst, value, op=nl.add)


def nothing(instruction: Any) -> None:
    """Loop bodies return None."""


def everywhere(kernel: Callable[..., Any], *args: Any) -> Any:
    """The one result of `kernel`, which must be the same in every mode."""
    return run_everywhere(kernel, args)[0]


# -- explicit addresses
# --------------------------------------------------------------------------------------------------


def test_explicit_addresses_alias() -> None:
    def kernel(x: Any) -> Any:
        words = nl.ndarray((128, 32), nl.float32, address=(0, 4096))
        nisa.dma_copy(words, x)
        bits = nl.ndarray((128, 32), nl.int32, address=(0, 4096))
        halves = nl.ndarray((64, 8), nl.uint16, address=(64, 4096 + 16))
        return saved(bits), saved(halves)

    bits, halves = run_everywhere(kernel, [X])
    np.testing.assert_array_equal(bits, X.view(np.int32))
    np.testing.assert_array_equal(halves, X[64:].view(np.uint16)[:, 8:16])


def test_an_alias_keeps_its_bytes_between_uses() -> None:
    """No automatic tile may use memory that a later alias reads, and no allocation may poison it."""

    def kernel(x: Any) -> Any:
        first = nl.ndarray((128, 32), nl.float32, address=(0, 0))
        nisa.dma_copy(first, x)
        others = [nl.load(x) for _ in range(4)]
        for other in others:
            add(other, 1.0)
        results = [saved(other) for other in others]
        again = nl.ndarray((128, 32), nl.float32, address=(0, 0))
        return (*results, saved(again))

    results = run_everywhere(kernel, [X])
    np.testing.assert_array_equal(results[-1], X)
    np.testing.assert_array_equal(results[0], X + 1)


def test_bytes_that_no_alias_wrote_are_poisoned_once() -> None:
    def kernel(x: Any) -> Any:
        small = nl.ndarray((128, 7), nl.uint8, address=(0, 1))
        wide = nl.ndarray((128, 4), nl.float32, address=(0, 0))
        nisa.memset(small, 0)
        return saved(wide.view(nl.uint8))

    result = everywhere(kernel, X)
    nan = np.frombuffer(np.float32(np.nan).tobytes() * 4, np.uint8)
    np.testing.assert_array_equal(result, np.tile(np.concatenate([nan[:1], np.zeros(7, np.uint8), nan[8:]]), (128, 1)))


def test_explicit_tiles_of_loop_bodies() -> None:
    def kernel(x: Any) -> Any:
        tile, total = nl.load(x), nl.zeros((128, 8), nl.float32)

        def body(i: Any) -> None:
            fresh = nl.ndarray((128, 8), nl.float32, address=(0, 8192))
            seen = nl.ndarray((128, 8), nl.float32, address=(0, 8192))
            flags = nl.ndarray((128, 8), nl.float32)
            nisa.tensor_copy(fresh.select(1, i), tile.select(1, i))
            nisa.tensor_tensor(flags, seen, seen, op=nl.equal)
            add(total, flags)

        nl.fori_loop(0, 3, body)
        later = nl.ndarray((128, 8), nl.float32, address=(0, 8192))
        return saved(total), saved(later)

    total, later = run_everywhere(kernel, [X])
    np.testing.assert_array_equal(total, np.repeat([[1, 1, 1, 0, 0, 0, 0, 0]], 128, axis=0))
    assert np.isnan(later).all()


def test_aliases_are_refused_with_precision_high() -> None:
    def kernel(x: Any) -> Any:
        first = nl.ndarray((128, 32), nl.bfloat16, address=(0, 0))
        second = nl.ndarray((128, 32), nl.bfloat16, address=(0, 0 if x.shape[1] == 32 else 64))
        nisa.memset(first, 1.0)
        nisa.memset(second, 2.0)
        return saved(first), saved(second)

    for mode in MODES:
        with pytest.raises(NotImplementedError, match="stores tiles apart"):
            simulate(kernel, mode=mode, precision="high")(X)
        first, second = simulate(kernel, mode=mode, precision="high")(X[:, :16])
        assert (first == 1).all() and (second == 2).all()


def test_addresses_outside_any_memory() -> None:
    def kernel(x: Any) -> None:
        nl.ndarray((128, 32), nl.float32, address=(0, 1 << 40))

    for mode in MODES:
        with pytest.raises(TileBoundsError, match="ends at byte 1099511627904 of its partitions"):
            simulate(kernel, mode=mode)(X)


# -- out of range
# --------------------------------------------------------------------------------------------------------


def test_dma_skips_what_is_out_of_range() -> None:
    def kernel(x: Any) -> Any:
        tile = nl.zeros((4, 32), nl.float32)
        fresh = nl.ndarray((4, 32), nl.float32)

        def body(i: Any) -> None:
            for dst in (tile, fresh):
                nisa.dma_copy(
                    dst, x.ap([[32, 4], [1, 32]], scalar_offset=i * 50, indirect_dim=0), oob_mode=nisa.oob_mode.skip
                )

        nl.fori_loop(2, 6, body)
        nl.fori_loop(
            50, 51, lambda i: nothing(nisa.dma_copy(fresh[0:1], x.select(0, i * 9), oob_mode=nisa.oob_mode.skip))
        )
        untouched = nl.ndarray((4, 32), nl.float32)
        nl.fori_loop(
            3,
            4,
            lambda i: nothing(
                nisa.dma_copy(untouched, x.ap([[32, 4], [1, 32]], scalar_offset=i * 50), oob_mode=nisa.oob_mode.skip)
            ),
        )
        return saved(tile), saved(fresh), saved(untouched)

    tile, fresh, untouched = run_everywhere(kernel, [X])
    np.testing.assert_array_equal(tile, X[100:104])
    np.testing.assert_array_equal(fresh, X[100:104])
    assert np.isnan(untouched).all(), "a skipped copy proves nothing written"


def test_rows_out_of_range_are_skipped_or_raise() -> None:
    def kernel(x: Any, index: Any, skip: bool) -> Any:
        where, tile = nl.load(index), nl.zeros((8, 32), nl.float32)
        mode = nisa.oob_mode.skip if skip else nisa.oob_mode.error
        nisa.dma_copy(tile, x.vector_select(0, where), oob_mode=mode)
        return saved(tile)

    index = np.array([[3], [127], [128], [-1], [0], [2**31 - 1], [-(2**31)], [5]], np.int32)
    expected = np.array([X[i] if 0 <= i < 128 else np.zeros(32, np.float32) for i in index[:, 0]])
    for mode in MODES:
        np.testing.assert_array_equal(simulate(kernel, mode=mode)(X, index, True), expected)
        with pytest.raises(IndexError, match="row index 128 at position 2 is out of range; the tensor has 128 rows"):
            simulate(kernel, mode=mode)(X, index, False)


def test_ranges_end_where_the_storage_ends() -> None:
    """The extent of the indexed dim would allow more rows than the pattern leaves room for."""

    def kernel(x: Any, where: Any) -> Any:
        position = nl.load(where)
        tile = nl.ndarray((4, 32), nl.float32)
        nisa.dma_copy(tile, x.ap([[32, 4], [1, 32]], scalar_offset=position, indirect_dim=0))
        return saved(tile)

    for mode in MODES:
        last = simulate(kernel, mode=mode)(X, np.array([[124]], np.int32))
        np.testing.assert_array_equal(last, X[124:128])
        with pytest.raises(IndexError, match="index 125 is out of range.*below 125"):
            simulate(kernel, mode=mode)(X, np.array([[125]], np.int32))


def test_unsigned_indices() -> None:
    def kernel(x: Any, where: Any) -> Any:
        tile, out = nl.load(x), nl.ndarray((128, 1), nl.float32)
        nisa.tensor_copy(out, tile.select(1, nl.load(where)))
        return saved(out)

    for dtype in (np.uint8, np.uint16, np.uint32, np.int8):
        np.testing.assert_array_equal(everywhere(kernel, X, np.array([[31]], dtype))[:, 0], X[:, 31])
    for mode in MODES:
        with pytest.raises(IndexError, match=str(2**32 - 1)):
            simulate(kernel, mode=mode)(X, np.array([[2**32 - 1]], np.uint32))


# -- refused
# -------------------------------------------------------------------------------------------------------------


def break_from_range(x: Any) -> Any:
    for _ in nl.dynamic_range(4):
        break
    return saved(nl.load(x))


def return_from_range(x: Any) -> Any:
    for _ in nl.dynamic_range(4):
        return x


def break_from_while(x: Any) -> None:
    register = nisa.register_alloc(3)
    while register:
        break
    saved(nl.load(x))


def break_inside_body(x: Any) -> None:
    register = nisa.register_alloc(3)

    def body(i: Any) -> None:
        while register:
            break

    nl.fori_loop(0, 2, body)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", [break_from_range, return_from_range, break_from_while, break_inside_body])
def test_leaving_a_device_loop(kernel: Callable[..., Any], mode: str) -> None:
    with pytest.raises(TileTypeError, match="break|left before its end") as caught:
        simulate(kernel, mode=mode)(X)
    assert "nl.while_loop" in str(caught.value) and "test_loops_memory.py" in str(caught.value)


def if_register(x: Any) -> None:
    if nisa.register_alloc(3):
        pass


def if_scalar(x: Any) -> None:
    nl.fori_loop(0, 3, lambda i: nl.zeros((2, 2), nl.float32) if i else None)


def conditional(x: Any) -> None:
    register = nisa.register_alloc(3)
    _ = 1 if register else 2


def while_with_more(x: Any) -> None:
    register = nisa.register_alloc(3)
    while register and x is not None:
        nl.load(x)


def while_not(x: Any) -> None:
    register = nisa.register_alloc(3)
    while not register:
        nl.load(x)


def compared(x: Any) -> None:
    def body(i: Any) -> None:
        if i == 0:
            nl.load(x)

    nl.fori_loop(0, 3, body)


def bool_of(x: Any) -> None:
    bool(nisa.register_alloc(3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", [if_register, if_scalar, conditional, while_with_more, while_not, compared, bool_of])
def test_truth_of_device_values(kernel: Callable[..., Any], mode: str) -> None:
    with pytest.raises(TypeError, match=r"test_loops_memory\.py"):
        simulate(kernel, mode=mode)(X)


def escaping(kind: str) -> Callable[..., Any]:
    def kernel(x: Any) -> Any:
        kept: list[Any] = []

        def body(i: Any) -> None:
            kept.append(nl.load(x))
            out = nl.ndarray((128, 32), nl.float32, buffer=nl.shared_hbm)
            nl.store(out, kept[-1])
            kept.append(out)
            kept.append(nl.zeros((1, 1), nl.int32))

        nl.fori_loop(0, 2, body)
        if kind == "read":
            return saved(kept[0])
        if kind == "written":
            nisa.memset(kept[0], 1.0)
        if kind == "index":
            tile, one = nl.load(x), nl.ndarray((128, 1), nl.float32)
            nisa.tensor_copy(one, tile.select(1, kept[2]))
        return kept[1] if kind == "returned" else None

    return kernel


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["read", "written", "index", "returned"])
def test_tensors_of_a_body_end_with_the_loop(kind: str, mode: str) -> None:
    with pytest.raises(
        TileTypeError, match=r"fori_loop\.R5.*created inside a device loop that has ended(.|\n)*test_loops_memory\.py"
    ):
        simulate(escaping(kind), mode=mode)(X)


def test_constants_of_a_body_outlive_it() -> None:
    table = np.arange(8, dtype=np.float32).reshape(1, 8)

    def kernel(x: Any) -> Any:
        total = nl.zeros((1, 8), nl.float32)

        def body(i: Any) -> None:
            add(total, nl.load(nl.shared_constant(table)))

        nl.fori_loop(0, 3, body)
        add(total, nl.load(nl.shared_constant(table)))
        return saved(total)

    np.testing.assert_array_equal(everywhere(kernel, X), 4 * table)


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "zero step": (lambda x: nl.fori_loop(0, 3, lambda i: None, step=0), ValueError, "step"),
    "register step": (lambda x: nl.fori_loop(0, 3, lambda i: None, step=nisa.register_alloc(1)), ValueError, "step"),
    "float bound": (lambda x: nl.fori_loop(0, 3.0, lambda i: None), TypeError, "upper bound"),
    "large bound": (lambda x: nl.fori_loop(0, 2**31, lambda i: None), ValueError, "32 bits"),
    "tensor bound": (lambda x: nl.fori_loop(0, x, lambda i: None), TypeError, "upper bound"),
    "wide bound": (
        lambda x: nl.fori_loop(0, nisa.scalar_load(x.view(nl.int64)[0:1, 0:1]), lambda i: None),
        TypeError,
        "32-bit",
    ),
    "result of the body": (lambda x: nl.fori_loop(0, 3, lambda i: i), TypeError, "must return None"),
    "int condition": (lambda x: nl.while_loop(3, lambda r: r), TypeError, "needs a 32-bit register"),
    "wide condition": (
        lambda x: nl.while_loop(nisa.scalar_load(x.view(nl.int64)[0:1, 0:1]), lambda r: r),
        TypeError,
        "int64",
    ),
    "no next condition": (lambda x: nl.while_loop(nisa.register_alloc(3), lambda r: None), TypeError, "next condition"),
    "comparison as condition": (
        lambda x: nl.while_loop(nisa.scalar_load(x.view(nl.int32)[0:1, 0:1]), lambda r: r < 3),
        TypeError,
        "comparison",
    ),
    "writing the index of dynamic_range": (
        lambda x: [nisa.register_move(i, 1) for i in nl.dynamic_range(3)] and None,
        AssertionError,
        "induction variable",
    ),
    "store of an int": (lambda x: nisa.scalar_store(x.view(nl.int32)[0:1, 0:1], 3), TypeError, "NkiScalar"),
    "range": (lambda x: range(nisa.register_alloc(3)), TypeError, "not a Python number"),
    "partition index": (
        lambda x: nl.load(x).select(0, nisa.register_alloc(0)),
        AssertionError,
        "partitions are chosen while tracing",
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, mode: str) -> None:
    kernel, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message) as caught:
        simulate(kernel, mode=mode)(X + 1)
    assert "test_loops_memory.py" in str(caught.value)


def test_strict_mode_refuses_the_older_loops() -> None:
    for kernel in (break_from_range, break_from_while):
        with pytest.raises(TypeError, match="removed in NKI 0.7"):
            simulate(kernel, strict=True)(X)


def test_a_device_loop_is_traced_once() -> None:
    count = []

    def kernel(x: Any) -> Any:
        tile = nl.load(x)

        def body(i: Any) -> None:
            count.append(i)
            add(tile, 1.0)

        nl.fori_loop(0, 1000, body)
        return saved(tile)

    program = tilelang.compile(kernel, X).program
    assert len(count) == 1 and len(program) == 3
    text = str(program)
    assert "fori r0 (0, 1000, 1) {" in text and text.count("tensor_scalar") == 1
    count.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(simulate(kernel)(X), X + 1000)


def test_scalar_values_must_fit() -> None:
    def kernel(x: Any) -> Any:
        return nisa.scalar_load(x.view(nl.int32)[0:1, 0:1]) + 2**31

    with pytest.raises(TileValueError, match="does not fit int32"):
        simulate(kernel)(X)

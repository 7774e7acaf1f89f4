"""Device loops and registers: the same results on 1, 2 and 4 threads, in the NumPy bodies and in debug mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilelang.isa as nisa
import tilelang.language as nl
from tests.conformance.harness import run_everywhere
from tilelang import simulate

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


def test_loop_carried_state() -> None:
    def kernel(x: Any) -> Any:
        tile, total = nl.load(x), nl.zeros((128, 32), nl.float32)

        def body(i: Any) -> None:
            add(total, tile)
            nisa.tensor_copy(tile, total)

        nl.fori_loop(0, 5, body)
        return saved(total)

    tile, total = X.copy(), np.zeros_like(X)
    for _ in range(5):
        total = total + tile
        tile = total.copy()
    np.testing.assert_array_equal(everywhere(kernel, X), total)


def test_state_carried_across_partitions() -> None:
    """Rows travel through a transpose, so that threads read what others wrote in the iteration before."""

    def kernel(x: Any) -> Any:
        tile, turned = nl.load(x[:32]), nl.ndarray((32, 32), nl.float32)

        def body(i: Any) -> None:
            nisa.nc_transpose(turned, tile, engine=nisa.engine.vector)
            nisa.tensor_scalar(tile, turned, nl.add, 1.0)

        nl.fori_loop(0, 7, body)
        return saved(tile)

    np.testing.assert_array_equal(everywhere(kernel, X), X[:32].T + 7)


@pytest.mark.parametrize(
    ("lower", "upper", "step"), [(0, 4, 1), (1, 8, 3), (-3, 2, 2), (3, 3, 1), (5, 2, 1), (0, 1, 9)]
)
@pytest.mark.parametrize("bounds", ["ints", "registers", "scalars", "loaded"])
def test_bounds(lower: int, upper: int, step: int, bounds: str) -> None:
    def kernel(x: Any, limits: Any) -> Any:
        counts = nl.zeros((128, 1), nl.float32)
        low: Any = lower
        high: Any = upper
        if bounds == "registers":
            low, high = nisa.register_alloc(lower), nisa.register_alloc(upper)
        elif bounds == "scalars":
            low, high = nisa.scalar_load(limits[0:1, 0:1]), nisa.scalar_load(limits[0:1, 1:2]) * 2 - upper
        elif bounds == "loaded":
            low, high = lower, nisa.register_alloc(nl.load(limits)[0:1, 1:2])
        nl.fori_loop(low, high, lambda i: add(counts, 1.0), step=step)
        return saved(counts)

    limits = np.array([[lower, upper]], np.int32)
    assert (everywhere(kernel, X, limits) == len(range(lower, upper, step))).all()


def test_the_index_selects_columns() -> None:
    def kernel(x: Any) -> Any:
        tile, out = nl.load(x), nl.zeros((128, 32), nl.float32)

        def body(i: Any) -> None:
            nisa.tensor_copy(out.select(1, i), tile.select(1, i * -1 + 31))

        nl.fori_loop(0, 32, body)
        return saved(out)

    np.testing.assert_array_equal(everywhere(kernel, X), X[:, ::-1])


def test_indices_of_hbm_rows_and_blocks() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray((8, 16, 32), nl.float32, buffer=nl.shared_hbm)
        blocks = x.reshape((8, 16, 32))
        tile = nl.ndarray((16, 32), nl.float32)

        def body(i: Any) -> None:
            nisa.dma_copy(tile, blocks.select(0, i))
            add(tile, 1.0)
            nisa.dma_copy(out.ap([[32, 16], [1, 32]], scalar_offset=i * -1 + 7, indirect_dim=0), tile)

        nl.fori_loop(0, 8, body)
        return out

    np.testing.assert_array_equal(everywhere(kernel, X), (X + 1).reshape(8, 16, 32)[::-1])


def test_indices_in_tiles_that_change() -> None:
    def kernel(x: Any) -> Any:
        tile, out = nl.load(x), nl.zeros((128, 4), nl.float32)
        position = nl.full((1, 1), 3, nl.int32)

        def body(i: Any) -> None:
            nisa.tensor_copy(out.select(1, i), tile.select(1, position))
            nisa.tensor_scalar(position, position, nl.add, 7.0)

        nl.fori_loop(0, 4, body)
        return saved(out)

    np.testing.assert_array_equal(everywhere(kernel, X), X[:, 3:25:7])


def test_an_index_that_its_own_instruction_overwrites() -> None:
    """Every thread must use the index as it was, however late it looks."""

    def kernel(x: Any) -> Any:
        table = nl.ndarray((128, 32), nl.int32)
        nisa.dma_copy(table, x)
        nl.fori_loop(
            0,
            3,
            lambda i: nothing(
                nisa.tensor_copy(
                    table[:, 0:4], table.ap([[32, 128], [1, 4]], scalar_offset=table[0:1, 0:1], indirect_dim=1)
                )
            ),
        )
        return saved(table)

    data = (np.arange(128 * 32, dtype=np.int32).reshape(128, 32) * 7) % 28
    data[0, 0] = 5
    expected = data.copy()
    for _ in range(3):
        expected[:, 0:4] = expected[:, expected[0, 0] : expected[0, 0] + 4].copy()
    for _ in range(20):
        np.testing.assert_array_equal(simulate(kernel, threads=4)(data), expected)
    np.testing.assert_array_equal(everywhere(kernel, data), expected)


def test_nested_loops() -> None:
    def kernel(x: Any) -> Any:
        tile, total = nl.load(x), nl.zeros((128, 1), nl.float32)

        def outer(i: Any) -> None:
            def inner(j: Any) -> None:
                nisa.tensor_tensor(total, total, tile.select(1, i * 8 + j), op=nl.add)

            nl.fori_loop(0, i + 1, inner)

        nl.fori_loop(0, 4, outer)
        return saved(total)

    expected = sum(X[:, 8 * i + j] for i in range(4) for j in range(i + 1))
    np.testing.assert_array_equal(everywhere(kernel, X)[:, 0], expected)


def test_inner_loop_without_iterations_gives_no_barrier() -> None:
    """What threads read of each other before an inner loop that runs no iteration must still be there to read."""

    def kernel(x: Any) -> Any:
        small, far = nl.load(x[0:5]), nl.ndarray((32, 32), nl.float32, address=(64, 128))
        spare = nl.ndarray((8, 8), nl.float32)
        nisa.memset(far, 3.0)
        nisa.memset(spare, 0.0)
        none = nisa.register_alloc(2)

        def body(i: Any) -> None:
            nisa.tensor_copy(far[0:1], small[0:1])
            nl.fori_loop(2, none, lambda j: nothing(nisa.tensor_copy(spare, spare[:, 0:8])))

        nl.fori_loop(0, 3, body)
        nl.fori_loop(0, 3, lambda i: nothing(nisa.memset(small, 0.0)))
        return saved(far)

    for _ in range(30):
        result = simulate(kernel, threads=4)(X)
        np.testing.assert_array_equal(result[0], X[0])
    everywhere(kernel, X)


def test_while_loop() -> None:
    def kernel(x: Any, start: Any) -> Any:
        left, total = nl.load(start), nl.zeros((128, 1), nl.float32)

        def body(register: Any) -> Any:
            add(total, 1.0)
            nisa.tensor_scalar(left, left, nl.subtract, 1.0)
            after = nisa.register_alloc()
            nisa.register_load(after, left)
            return after

        nl.while_loop(nisa.register_alloc(left), body)
        return saved(total)

    for start in (0, 1, 6):
        assert (everywhere(kernel, X, np.array([[start]], np.int32)) == start).all()


def test_while_loop_on_scalars() -> None:
    def kernel(x: Any, start: Any) -> Any:
        total = nl.zeros((128, 1), nl.float32)

        def body(n: Any) -> Any:
            add(total, 2.0)
            return n - 2

        nl.while_loop(nisa.scalar_load(start), body)
        return saved(total)

    assert (everywhere(kernel, X, np.array([[8]], np.int32)) == 8).all()


def test_loops_of_older_sources() -> None:
    def kernel(x: Any) -> Any:
        tile, total = nl.load(x), nl.zeros((128, 1), nl.float32)
        left = nl.full((1, 1), 3, nl.int32)
        for i in nl.dynamic_range(1, 6, 2):
            nisa.tensor_tensor(total, total, tile[:, i], op=nl.add)
        register = nisa.register_alloc(left)
        while register:
            add(total, 1.0)
            nisa.tensor_scalar(left, left, nl.subtract, 1.0)
            nisa.register_load(register, left)
        while register:
            add(total, 1000.0)
        return saved(total)

    np.testing.assert_array_equal(everywhere(kernel, X)[:, 0], X[:, 1] + X[:, 3] + X[:, 5] + 3)


def test_while_register_inside_python_loops() -> None:
    def kernel(x: Any) -> Any:
        total = nl.zeros((128, 1), nl.float32)
        for count in (2, 0, 3):
            left = nl.full((1, 1), count, nl.int32)
            register = nisa.register_alloc(left)
            while register:
                add(total, 1.0)
                nisa.tensor_scalar(left, left, nl.subtract, 1.0)
                nisa.register_load(register, left)
        return saved(total)

    assert (everywhere(kernel, X) == 5).all()


# -- registers and scalars
# -----------------------------------------------------------------------------------------------


def test_scalar_arithmetic_wraps() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray((1, 6), nl.int32, buffer=nl.shared_hbm)
        a, b = nisa.scalar_load(x[0:1, 0:1]), nisa.scalar_load(x[0:1, 1:2])
        for column, value in enumerate((a * a, b + 1, -b - 2, 5 - a, a * 3 - b, 2 * (a - b))):
            nisa.scalar_store(out[0:1, column : column + 1], value)
        return out

    data = np.array([[100000, 2**31 - 1]], np.int32)
    a, b = np.int64(data[0, 0]), np.int64(data[0, 1])
    expected = np.array([a * a, b + 1, -b - 2, 5 - a, a * 3 - b, 2 * (a - b)]).astype(np.int32)
    assert expected[0] == 1410065408 and expected[1] == -(2**31)
    np.testing.assert_array_equal(everywhere(kernel, data)[0], expected)


def test_wide_scalars() -> None:
    def kernel(x: Any) -> Any:
        """Scalars of an int64 tensor, which arises by a view: host int64 arrays are narrowed."""
        wide = x.view(nl.int64)
        out = nl.ndarray((1, 3), nl.int64, buffer=nl.shared_hbm)
        a, b = nisa.scalar_load(wide[0:1, 0:1]), nisa.scalar_load(wide[0:1, 1:2])
        for column, value in enumerate((a * b, a + 2**40, b - a)):
            nisa.scalar_store(out[0:1, column : column + 1], value)
        return out.view(nl.int32)

    values = np.array([[3**25, -(2**62) + 5]], np.int64)
    a, b = int(values[0, 0]), int(values[0, 1])
    exact = np.array([a * b, a + 2**40, b - a], object)
    expected = np.array([(int(v) + 2**63) % 2**64 - 2**63 for v in exact], np.int64)
    np.testing.assert_array_equal(everywhere(kernel, values.view(np.int32))[0].view(np.int64), expected)


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "bfloat16", "float16"]
)
def test_registers_hold_every_dtype(dtype: str) -> None:
    def kernel(x: Any) -> Any:
        tile = nl.load(x)
        out = nl.ndarray((1, x.shape[1] * 4), nl.int32)
        same = nl.ndarray(x.shape, x.dtype)
        moved = nisa.register_alloc()
        for column in range(x.shape[1]):
            register = nisa.register_alloc(tile[0:1, column : column + 1])
            nisa.register_store(out[0:1, 4 * column : 4 * column + 1], register)
            nisa.register_store(same[0:1, column : column + 1], register)
            nisa.register_move(moved, register)
            nisa.register_store(out[0:1, 4 * column + 1 : 4 * column + 2], moved)
            for offset, width in ((2, nl.int8), (3, nl.uint16)):
                narrow = nl.ndarray((1, 1), width)
                nisa.register_store(narrow, register)
                nisa.tensor_copy(out[0:1, 4 * column + offset : 4 * column + offset + 1], narrow)
        return saved(out), saved(same)

    from tilelang.dtypes import format_of

    host = format_of(dtype).host
    values = np.array([[0, 1, -1, 127, -128, 300, -70000, 2.5, -3.5]])
    data = (values.astype(np.int64) if "int" in dtype else values).astype(host)
    plain, same = run_everywhere(kernel, [data])
    if dtype == "int32":
        np.testing.assert_array_equal(plain[0, ::4], data[0])
        np.testing.assert_array_equal(plain[0, 2::4], np.clip(data[0], -128, 127))
        np.testing.assert_array_equal(plain[0, 3::4], np.clip(data[0], 0, 65535))
    if "int" in dtype:
        np.testing.assert_array_equal(same, data)


def test_registers_without_a_value_are_zero() -> None:
    def kernel(x: Any) -> Any:
        out = nl.full((1, 1), 9, nl.int32)
        nisa.register_store(out, nisa.register_alloc())
        return saved(out)

    assert everywhere(kernel, X) == 0


def test_registers_are_read_when_instructions_run() -> None:
    def kernel(x: Any) -> Any:
        tile = nl.load(x)
        register = nisa.register_alloc(3)
        column = tile.select(1, register)
        nisa.register_move(register, 5)
        out = nl.ndarray((128, 1), nl.float32)
        nisa.tensor_copy(out, column)
        return saved(out)

    np.testing.assert_array_equal(everywhere(kernel, X)[:, 0], X[:, 5])


def test_writing_the_index_of_a_body_does_not_steer_the_loop() -> None:
    def kernel(x: Any) -> Any:
        total = nl.zeros((128, 1), nl.float32)

        def body(i: Any) -> None:
            add(total, 1.0)
            nisa.register_move(i, 100)

        nl.fori_loop(nisa.register_alloc(0), 4, body)
        return saved(total)

    assert (everywhere(kernel, X) == 4).all()


# -- accumulation and poison in loops
# ------------------------------------------------------------------------------------


def product_in_loop(outside: bool, dynamic: bool = False) -> Callable[..., Any]:
    def kernel(x: Any) -> Any:
        tile, total = nl.load(x), nl.zeros((32, 64), nl.float32)
        shared = nl.ndarray((32, 64), nl.float32, buffer=nl.psum)

        def body(i: Any) -> None:
            psum = shared if outside else nl.ndarray((32, 64), nl.float32, buffer=nl.psum)
            target = psum[:, 0:32] if not dynamic else psum.ap([[64, 32], [1, 32]], scalar_offset=i * 8, indirect_dim=1)
            nisa.nc_matmul(target, tile, tile)
            nisa.nc_matmul(target, tile, tile)
            if not outside:
                nisa.tensor_tensor(total[:, 0:32], total[:, 0:32], target, op=nl.add)

        nl.fori_loop(0, 3, body)
        if outside and not dynamic:
            nisa.tensor_copy(total[:, 0:32], shared[:, 0:32])
        if outside and dynamic:
            nisa.tensor_copy(total[:, 0:48], shared[:, 0:48])
        return saved(total)

    return kernel


def test_accumulation_begins_anew_with_each_allocation() -> None:
    once = X.T @ X
    np.testing.assert_array_equal(everywhere(product_in_loop(outside=False), X)[:, :32], 6 * once)
    np.testing.assert_array_equal(everywhere(product_in_loop(outside=True), X)[:, :32], 6 * once)


def test_accumulation_at_dynamic_places() -> None:
    once = X.T @ X
    expected = np.zeros((32, 48), np.float32)
    for i in range(3):
        expected[:, 8 * i : 8 * i + 32] += 2 * once
    np.testing.assert_array_equal(everywhere(product_in_loop(outside=True, dynamic=True), X)[:, :48], expected)


def test_other_writes_count_as_written() -> None:
    """accumulate=None adds to what a vector instruction wrote, also at a place known only at run time."""

    def kernel(x: Any) -> Any:
        tile = nl.load(x)
        psum = nl.ndarray((32, 48), nl.float32, buffer=nl.psum)
        total = nl.ndarray((32, 48), nl.float32)
        nisa.memset(total, 0.0)

        def body(i: Any) -> None:
            nisa.memset(psum.ap([[48, 32], [1, 8]], scalar_offset=i * 8, indirect_dim=1), 2.0)

        nl.fori_loop(0, 2, body)
        nl.fori_loop(0, 2, lambda i: nothing(nisa.nc_matmul(psum[:, 0:32], tile, tile)))
        nisa.tensor_copy(total[:, 0:32], psum[:, 0:32])
        return saved(total)

    once = X.T @ X
    expected = 2 * once
    expected[:, :16] += 2
    np.testing.assert_array_equal(everywhere(kernel, X)[:, :32], expected)


def test_accumulation_through_views_of_another_size_is_refused() -> None:
    def kernel(x: Any) -> Any:
        tile = nl.load(x)
        psum = nl.ndarray((32, 32), nl.float32, buffer=nl.psum)

        def body(i: Any) -> None:
            nisa.memset(psum.view(nl.bfloat16)[:, 0:4], 0.0)
            nisa.nc_matmul(psum, tile, tile)

        nl.fori_loop(0, 2, body)
        return saved(nl.copy(psum))

    for mode in ("native", "reference"):
        with pytest.raises(NotImplementedError, match="another element size(.|\n)*pass accumulate=True"):
            simulate(kernel, mode=mode)(X)


def test_storage_of_a_body_is_poisoned_in_every_iteration() -> None:
    def kernel(x: Any) -> Any:
        tile, seen = nl.load(x), nl.zeros((128, 4), nl.float32)

        def body(i: Any) -> None:
            fresh = nl.ndarray((128, 4), nl.float32)
            nisa.tensor_copy(fresh.select(1, i), tile.select(1, i))
            flags = nl.ndarray((128, 4), nl.float32)
            nisa.tensor_tensor(flags, fresh, fresh, op=nl.equal)
            add(seen, flags)

        nl.fori_loop(0, 4, body)
        return saved(seen)

    np.testing.assert_array_equal(everywhere(kernel, X), np.ones((128, 4)))


def test_tiles_that_are_read_before_they_are_written_keep_their_poison() -> None:
    """Memory of a poisoned tile is its own from its allocation on, though it is used only later."""

    def kernel(x: Any) -> Any:
        late = nl.ndarray((128, 32), nl.float32)
        whole = nl.ndarray((128, 32), nl.int32)
        other = nl.load(x)
        add(other, 1.0)
        first = saved(other)
        nisa.tensor_copy(late[:, 0:4], other[:, 0:4])
        return first, saved(late), saved(whole)

    first, late, whole = run_everywhere(kernel, [X])
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_array_equal(late[:, :4], X[:, :4] + 1)
    assert np.isnan(late[:, 4:]).all() and (whole == 4).all()

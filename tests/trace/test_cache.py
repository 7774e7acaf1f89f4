"""The program cache: what a second call reuses, and what makes another program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.isa as nisa
import tilelang.language as nl
from tilelang import jit, simulate
from tilelang.errors import TileTypeError, TileValueError
from tilelang.specialise import ProgramCache

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def scaled(x: Any, factor: Any) -> Any:
    tile = nl.load(x)
    nisa.tensor_scalar(tile, tile, nl.multiply, float(factor))
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


class Counted:
    """A kernel that counts how often its function runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.traces = 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.traces += 1
            return function(*args, **kwargs)

        self.kernel = jit(counted)


def test_new_data_runs_the_old_program() -> None:
    counted = Counted(scaled)
    for number in range(4):
        np.testing.assert_array_equal(counted.kernel(X + number, 2.0), 2 * (X + number))
    assert counted.traces == 1


STATIC = [2, 2.0, True, 3, -0.0, 0.0, np.float32(2), np.int16(2)]


def test_static_values_of_equal_size_are_told_apart() -> None:
    seen: list[Any] = []
    counted = Counted(lambda x, v: (seen.append(v), scaled(x, v))[1])
    for _ in range(2):
        for value in STATIC:
            result = counted.kernel(X, value)
            np.testing.assert_array_equal(result, X * np.float32(value))
            np.testing.assert_array_equal(np.signbit(result), np.signbit(X * np.float32(value)))
    assert counted.traces == len(STATIC)
    assert [type(v) for v in seen] == [type(v) for v in STATIC]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (X, X[:3]),
        (X, X.astype(np.int32)),
        (X, X.reshape(8, 4)),
        ((X, 1), (X, 2)),
        ([X], (X,)),
        ([X, X], [X, X, X]),
        ({"a": X}, {"b": X}),
        ({"a": X, "b": 1}, {"b": 1, "a": X}),
        (("ab", "c"), ("a", "bc")),
        (None, 0),
        (nl.bfloat16, nl.float16),
        ({1, 2}, {1, 3}),
    ],
)
def test_other_arguments_are_other_programs(first: Any, second: Any) -> None:
    counted = Counted(lambda value: None)
    for value in (first, second, first, second):
        counted.kernel(value)
    assert counted.traces == 2


@pytest.mark.parametrize("options", [{"target": "trn1"}, {"precision": "high"}, {"strict": True}, {"nki": "0.6"}])
def test_options_are_part_of_the_key(options: dict[str, Any]) -> None:
    counted = Counted(scaled)
    counted.kernel(X, 2)
    simulate(counted.kernel, **options)(X, 2)
    simulate(counted.kernel, threads=1)(X, 2)
    simulate(counted.kernel, mode="reference")(X, 2)
    assert counted.traces == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1"),
        ("NKI_PRECISE_FP", "0"),
        ("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true"),
    ],
)
def test_the_environment_is_read_at_launch(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name, raising=False)
    seen: list[Any] = []
    counted = Counted(lambda x: seen.append((nl.tile_size.psum_num_banks, nisa.get_nc_version())))
    counted.kernel(X)
    monkeypatch.setenv(name, value)
    counted.kernel(X)
    monkeypatch.delenv(name)
    counted.kernel(X)
    assert counted.traces == 2
    assert (seen[0] != seen[1]) == (name != "NKI_PRECISE_FP")


class Config(nl.NKIObject):
    scale: Any = 1.0
    parts: Any = None


@dataclasses.dataclass
class Unhashable:
    scale: float
    values: list[int]


@pytest.mark.parametrize("make", [lambda: Config(2.0, [1, {"a": 2}]), lambda: Unhashable(2.0, [1, 2])])
def test_mutable_objects_count_by_content(make: Callable[[], Any]) -> None:
    counted = Counted(lambda x, c: scaled(x, c.scale))
    config = make()
    counted.kernel(X, config)
    counted.kernel(X, make())
    assert counted.traces == 1
    config.scale = 3.0
    np.testing.assert_array_equal(counted.kernel(X, config), 3 * X)
    getattr(config, "parts" if isinstance(config, Config) else "values").append(7)
    counted.kernel(X, config)
    assert counted.traces == 3


def test_objects_that_contain_themselves() -> None:
    config = Config(2.0)
    config.parts = [config]
    counted = Counted(lambda x, c: scaled(x, c.scale))
    for _ in range(2):
        np.testing.assert_array_equal(counted.kernel(X, config), 2 * X)
    assert counted.traces == 1


def test_closures_count_by_content() -> None:
    factor: Any = 2.0
    traces = []

    @jit
    def kernel(x: Any) -> Any:
        traces.append(factor)
        return scaled(x, factor)

    for factor in (2.0, 3.0, 2.0 + 1.0, 4.5, float("2")):
        np.testing.assert_array_equal(kernel(X), factor * X)
        assert traces[-1] >= 2


def closure_over(values: Any) -> Any:
    @jit
    def kernel(x: Any) -> Any:
        out = scaled(x, values[0])
        if len(values) > 1:
            nisa.dma_copy(out[0:1], nl.shared_constant(values[1]))
        return out

    return kernel


def test_closures_over_things_that_change() -> None:
    row = np.full((1, 8), 9.0, np.float32)
    values: list[Any] = [2.0]
    kernel = closure_over(values)
    np.testing.assert_array_equal(kernel(X), 2 * X)
    values[0] = 5.0
    np.testing.assert_array_equal(kernel(X), 5 * X)
    values.append(row)
    np.testing.assert_array_equal(kernel(X)[0], row[0])
    row[:] = 1
    np.testing.assert_array_equal(kernel(X)[0], row[0])


def test_functions_as_arguments() -> None:
    def make(factor: float) -> Callable[[Any], Any]:
        state = [factor]

        def function(x: Any) -> Any:
            return scaled(x, state[0])

        function.state = state  # type: ignore[attr-defined]
        return function

    counted = Counted(lambda x, f: f(x))
    double, triple = make(2.0), make(3.0)
    np.testing.assert_array_equal(counted.kernel(X, double), 2 * X)
    np.testing.assert_array_equal(counted.kernel(X, triple), 3 * X)
    np.testing.assert_array_equal(counted.kernel(X, double), 2 * X)
    assert counted.traces == 2
    double.state[0] = 7.0  # type: ignore[attr-defined]
    np.testing.assert_array_equal(counted.kernel(X, double), 7 * X)


def test_nested_kernels_with_closures() -> None:
    state = [2.0]

    @jit
    def inner(x: Any) -> Any:
        return scaled(x, state[0])

    @jit
    def outer(x: Any) -> Any:
        return inner(x)

    np.testing.assert_array_equal(outer(X), 2 * X)
    state[0] = 3.0
    np.testing.assert_array_equal(outer(X), 3 * X)


def test_methods_and_their_state() -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @jit
        def decorated(self, x: Any) -> Any:
            return scaled(x, self.factor)

        def plain(self, x: Any) -> Any:
            return scaled(x, self.factor)

        @staticmethod
        @jit
        def static(x: Any) -> Any:
            return scaled(x, 9)

    model, other = Model(2.0), Model(3.0)
    np.testing.assert_array_equal(model.decorated(X), 2 * X)
    np.testing.assert_array_equal(other.decorated(X), 3 * X)
    np.testing.assert_array_equal(Model.static(X), 9 * X)
    bound = jit(model.plain)
    np.testing.assert_array_equal(bound(X), 2 * X)
    model.factor = 5.0
    np.testing.assert_array_equal(bound(X), 5 * X)
    np.testing.assert_array_equal(model.decorated(X), 5 * X)


def test_callable_objects_are_kernels() -> None:
    class Callable_:
        factor = 2.0

        def __call__(self, x: Any) -> Any:
            return scaled(x, self.factor)

    np.testing.assert_array_equal(simulate(Callable_())(X), 2 * X)


def test_what_tracing_changes_itself_is_not_part_of_the_key() -> None:
    calls: list[int] = []
    other = [2.0]

    @jit
    def kernel(x: Any) -> Any:
        calls.append(1)
        return scaled(x, other[0])

    for data in (X, X[:2], X, X[:2]):
        np.testing.assert_array_equal(kernel(data), 2 * data)
    assert len(calls) == 2
    other[0] = 3.0
    np.testing.assert_array_equal(kernel(X), 3 * X)


def test_old_programs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgramCache, "LIMIT", 3)
    counted = Counted(scaled)
    for factor in (1, 2, 3, 4, 2, 3, 4, 1):
        np.testing.assert_array_equal(counted.kernel(X, factor), factor * X)
    assert counted.traces == 5


# -- templates shared by instructions ------------------------------------------------------------


def shifted(x: Any, distance: int) -> Any:
    """Within one tile, columns moved right by `distance` and added to themselves."""
    tile = nl.load(x)
    other = nl.load(x)
    width = x.shape[1] - 8
    nisa.tensor_tensor(tile[:, 8 : 8 + width], other[:, 0:width], other[:, 0:width], op=nl.add)
    nisa.tensor_tensor(other[:, distance : distance + width], other[:, 0:width], other[:, 0:width], op=nl.add)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, other)
    return out


@pytest.mark.parametrize("distance", [0, 1, 3, 8])
def test_calls_that_differ_in_aliasing_share_no_code(distance: int) -> None:
    """Layouts are equal; whether dst overlaps an input is not, and decides how the engine may read."""
    data = np.random.default_rng(0).standard_normal((128, 1000)).astype(np.float32)
    expected = data.copy()
    expected[:, distance : distance + 992] = data[:, :992] * 2
    for mode in ("native", "reference", "debug"):
        np.testing.assert_array_equal(simulate(shifted, mode=mode)(data, distance), expected)


def test_dma_calls_that_differ_in_aliasing_share_no_code() -> None:
    data = np.random.default_rng(0).standard_normal((128, 600)).astype(np.float32)

    def kernel(x: Any) -> Any:
        one, two = nl.load(x), nl.load(x)
        nisa.dma_copy(one[:, 8:592], two[:, 0:584])
        nisa.dma_copy(two[:, 8:592], two[:, 0:584])
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, two)
        return out

    expected = data.copy()
    expected[:, 8:592] = data[:, :584]
    for threads in (1, 2, 4):
        np.testing.assert_array_equal(simulate(kernel, threads=threads)(data), expected)


def gathered_rows(x: Any, index: Any, rows: int) -> Any:
    """Rows of the first `rows` * 128 / 8 rows of x: equal views of storages of different sizes."""
    where = nl.load(index)
    source = nl.ndarray((rows, 16), nl.float32, buffer=nl.private_hbm)
    nisa.dma_copy(source, x[0:rows])
    tile = nl.ndarray((8, 16), nl.float32)
    nisa.dma_copy(tile, source.ap([[16, 8], [1, 16]], vector_offset=where))
    out = nl.ndarray((8, 16), nl.float32, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def test_row_limits_belong_to_each_call() -> None:
    data = np.arange(64 * 16, dtype=np.float32).reshape(64, 16)
    index = np.full((8, 1), 40, np.int32)
    for mode in ("native", "reference", "debug"):
        np.testing.assert_array_equal(simulate(gathered_rows, mode=mode)(data, index, 64), data[[40] * 8])
        with pytest.raises(IndexError, match="row index 40.*32 rows"):
            simulate(gathered_rows, mode=mode)(data, index, 32)


# -- compile ------------------------------------------------------------


def test_executables_check_their_arguments() -> None:
    executable = tilelang.compile(scaled, X, factor=2)
    np.testing.assert_array_equal(executable(X + 1, factor=2), 2 * X + 2)
    np.testing.assert_array_equal(executable.run(X + 1, factor=2), 2 * X + 2)
    for call in (
        lambda: executable(X, factor=3),
        lambda: executable(X[:2], factor=2),
        lambda: executable(X.astype(np.float16), factor=2),
        lambda: executable(factor=2, x=X),
        lambda: executable(X),
    ):
        with pytest.raises(TileTypeError, match="differ from those the kernel was compiled for"):
            call()


def test_names_of_keywords_count_for_executables() -> None:
    executable = tilelang.compile(lambda a, b: scaled(a, 1), a=X, b=X)
    with pytest.raises(TileTypeError, match="compiled for"):
        executable(b=X, a=X)


def test_compile_in_debug_mode_is_refused() -> None:
    with pytest.raises(TileValueError, match='mode="debug" compiles nothing'):
        tilelang.compile(scaled, X, 2, mode="debug")


def test_compile_keeps_keywords_of_the_kernel() -> None:
    executable = tilelang.compile(lambda x, threads, target="a": scaled(x, threads), X, threads=3, precision="exact")
    np.testing.assert_array_equal(executable(X, threads=3), 3 * X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "fast"}, "mode='fast'"),
        ({"precision": "low"}, "precision='low'"),
        ({"threads": 0}, "threads=0"),
        ({"threads": "2"}, "threads='2'"),
        ({"threads": True}, "threads=True"),
        ({"nki": "0.9"}, "nki='0.9'"),
        ({"target": "trn9"}, "trn9"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(scaled, **options)(X, 2)


def test_unknown_options() -> None:
    with pytest.raises(TileTypeError, match="unknown option 'speed'"):
        simulate(scaled, speed=3)

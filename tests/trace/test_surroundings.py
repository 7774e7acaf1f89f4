"""A kernel is traced again when anything it was traced with has changed: every mode sees the same values."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import tilelang.isa as nisa
from tests.tiles import load, store
from tilelang.driver import Kernel, simulate
from tilelang.errors import TileTypeError
from tilelang.trace.surroundings import Surroundings

X = np.zeros((1, 2), np.float32)
MODES = ("native", "reference", "debug")


def filled(value: float) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        return fill(x, value)

    return kernel


def fill(x: Any, value: float) -> Any:
    tile = load(x)
    nisa.memset(dst=tile, value=value)
    return store(tile)


class Settings:
    value = 1.0
    held: ClassVar = [1.0]

    def __init__(self, value: float = 1.0) -> None:
        self.own = value

    def get(self) -> float:
        return self.own + BASE - BASE

    @staticmethod
    def fixed() -> float:
        return 1.0


def helper() -> float:
    return deeper()


def deeper(value: float = 1.0) -> float:
    return value


def replaced() -> float:
    return 2.0


BASE = 1.0
TABLE = {"value": [1.0]}
ARRAY = np.ones(1, np.float32)
OBJECT = Settings()
FUNCTIONS = [helper]
PARTIAL = functools.partial(deeper, 1.0)
MODULE = types.ModuleType("settings_of_a_kernel")
MODULE.value = 1.0  # type: ignore[attr-defined]


def by_global(x: Any) -> Any:
    return fill(x, BASE)


def by_table(x: Any) -> Any:
    return fill(x, TABLE["value"][0])


def by_array(x: Any) -> Any:
    return fill(x, float(ARRAY[0]))


def by_module(x: Any) -> Any:
    return fill(x, MODULE.value)  # type: ignore[attr-defined]


def by_class(x: Any) -> Any:
    return fill(x, Settings.value)


def by_class_list(x: Any) -> Any:
    return fill(x, Settings.held[0])


def by_static_method(x: Any) -> Any:
    return fill(x, Settings.fixed())


def by_object(x: Any) -> Any:
    return fill(x, OBJECT.get())


def by_method(x: Any) -> Any:
    return fill(x, Settings(1.0).get())


def by_helper(x: Any) -> Any:
    return fill(x, helper())


def by_list_of_functions(x: Any) -> Any:
    return fill(x, FUNCTIONS[0]())


def by_partial(x: Any) -> Any:
    return fill(x, PARTIAL())


def by_default(x: Any, value: float = 1.0) -> Any:
    return fill(x, value)


def by_keyword_default(x: Any, *, value: float = 1.0) -> Any:
    return fill(x, value)


def by_own_code(x: Any) -> Any:
    return fill(x, 1.0)


def other_code(x: Any) -> Any:
    return fill(x, 2.0)


Change = Callable[[pytest.MonkeyPatch], Any]
HERE = globals()


def set_item(container: Any, key: Any, value: Any) -> Change:
    return lambda patch: patch.setitem(container, key, value)


def set_attribute(owner: Any, name: str, value: Any) -> Change:
    return lambda patch: patch.setattr(owner, name, value)


def set_element(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(HERE, "ARRAY", ARRAY.copy())
    HERE["ARRAY"][0] = 2.0


def set_first(held: list[Any], value: Any) -> Change:
    """Change a list in place; returns what undoes it, which a patch cannot for lists."""

    def change(patch: pytest.MonkeyPatch) -> Callable[[], None]:
        before = held[0]
        held[0] = value
        return lambda: held.__setitem__(0, before)

    return change


CHANGES: list[tuple[Callable[..., Any], Change]] = [
    (by_global, set_item(HERE, "BASE", 2.0)),
    (by_table, set_first(TABLE["value"], 2.0)),
    (by_array, set_element),
    (by_module, set_attribute(MODULE, "value", 2.0)),
    (by_class, set_attribute(Settings, "value", 2.0)),
    (by_class_list, set_first(Settings.held, 2.0)),
    (by_static_method, set_attribute(Settings, "fixed", staticmethod(replaced))),
    (by_object, set_attribute(OBJECT, "own", 2.0)),
    (by_object, set_attribute(Settings, "get", lambda self: 2.0)),
    (by_method, set_attribute(Settings.get, "__code__", (lambda self: 2.0).__code__)),
    (by_helper, set_item(HERE, "deeper", replaced)),
    (by_helper, set_attribute(deeper, "__defaults__", (2.0,))),
    (by_helper, set_attribute(helper, "__code__", replaced.__code__)),
    (by_list_of_functions, set_first(FUNCTIONS, replaced)),
    (by_list_of_functions, set_attribute(deeper, "__defaults__", (2.0,))),
    (by_partial, set_item(HERE, "PARTIAL", functools.partial(deeper, 2.0))),
    (by_default, set_attribute(by_default, "__defaults__", (2.0,))),
    (by_keyword_default, set_attribute(by_keyword_default, "__kwdefaults__", {"value": 2.0})),
    (by_own_code, set_attribute(by_own_code, "__code__", other_code.__code__)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("which", range(len(CHANGES)), ids=lambda i: f"{CHANGES[i][0].__name__}{i}")
def test_what_a_kernel_refers_to_is_part_of_its_key(mode: str, which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    function, change = CHANGES[which]
    kernel = simulate(function, mode=mode)
    assert kernel(X)[0, 0] == 1.0
    with monkeypatch.context() as patch:
        undo = change(patch)
        assert kernel(X)[0, 0] == 2.0
    if callable(undo):
        undo()
    assert kernel(X)[0, 0] == 1.0
    assert mode == "debug" or len(kernel._cache.programs) == 2


def test_a_function_as_an_argument_is_followed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(lambda x, get: fill(x, get()))
    assert kernel(X, helper)[0, 0] == kernel(X, OBJECT.get)[0, 0] == 1.0
    monkeypatch.setattr(deeper, "__defaults__", (2.0,))
    monkeypatch.setattr(OBJECT, "own", 2.0)
    assert kernel(X, helper)[0, 0] == kernel(X, OBJECT.get)[0, 0] == 2.0


def test_the_class_of_an_argument_is_followed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(lambda x, settings: fill(x, settings.get()))
    assert kernel(X, Settings())[0, 0] == 1.0
    monkeypatch.setattr(Settings, "get", lambda self: 2.0)
    assert kernel(X, Settings())[0, 0] == 2.0


class Numbers(list[float]):
    factor = 1.0


class Whole(int):
    factor = 1.0


def test_attributes_of_containers_and_numbers_are_arguments() -> None:
    for made in (lambda: Numbers([1.0]), lambda: Whole(1)):
        kernel = Kernel(lambda x, value: fill(x, value.factor))
        value: Any = made()
        assert kernel(X, value)[0, 0] == 1.0
        value.factor = 2.0
        assert kernel(X, value)[0, 0] == 2.0


def test_equal_members_of_other_classes_are_other_sets() -> None:
    kernel = Kernel(
        lambda x, value: fill(x, 2.0 if True in value and value == {1} and next(iter(value)) is True else 1.0)
    )
    assert kernel(X, {1})[0, 0] == 1.0
    assert kernel(X, {True})[0, 0] == 2.0


def test_the_kind_of_a_mapping_counts() -> None:
    def kernel(x: Any, value: Any) -> Any:
        return fill(x, value["absent"] if isinstance(value, collections.defaultdict) else 1.0)

    run = Kernel(kernel)
    assert run(X, {})[0, 0] == 1.0
    assert run(X, collections.defaultdict(lambda: 2.0))[0, 0] == 2.0
    assert run(X, collections.defaultdict(lambda: 3.0))[0, 0] == 3.0


def test_lists_that_contain_themselves() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TileTypeError, match="a list argument contains itself"):
        Kernel(lambda x, value: fill(x, 1.0))(X, endless)
    assert Kernel(lambda x: fill(x, 1.0 if endless else 0.0))(X)[0, 0] == 1.0

    def returns(x: Any) -> Any:
        result: list[Any] = [store(load(x))]
        result.append(result)
        return result

    with pytest.raises(TileTypeError, match="contains itself"):
        Kernel(returns)(X)


def test_what_tracing_changes_is_no_part_of_the_key() -> None:
    calls: list[int] = []
    HERE["COUNT"] = 0

    def kernel(x: Any) -> Any:
        global COUNT
        COUNT += 1  # type: ignore[name-defined]
        calls.append(COUNT)  # type: ignore[name-defined]
        return fill(x, 1.0)

    run = Kernel(kernel)
    for _ in range(3):
        run(X)
    assert calls == [1]


def test_states_of_equal_surroundings_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    around = Surroundings(by_helper, lambda value: value)
    first = around.state()
    monkeypatch.setattr(deeper, "__defaults__", (2.0,))
    second = around.state()
    monkeypatch.undo()
    assert first == around.state() != second
    assert first != Surroundings(by_helper, lambda value: value).state()

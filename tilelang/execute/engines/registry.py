"""Engine functions by name: addresses on demand, compiled on first use, then loaded from the disk cache.

The part of a name before the first dot selects the module that makes the function; numba is imported only when a
function is not in the disk cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from importlib import import_module

from tilelang.execute.engines import objects

__all__ = ["address", "addresses", "engine_address", "on_compile"]

# Name prefix -> module of this package, which defines `source(name) -> (Python function, number of int64 arguments)`.
_MODULES = {
    "pipeline": "pipeline",
    "matmul": "tensor",
    "one_hot": "one_hot",
    "indirect": "indirect",
    "dma_add": "dma_compute",
    "quantize_mx": "mx",
    **dict.fromkeys(("draw", "uniform", "between", "reseed"), "random"),
    **dict.fromkeys(("bounds", "nonzero", "topk"), "selection"),
    **dict.fromkeys(("shuffle", "partition_reduce", "partition_combine"), "partitions"),
    **dict.fromkeys(
        ("view", "gather", "scatter", "put", "fill", "decode", "encode", "widen", "narrow", "saturate"), "ports"
    ),
    **dict.fromkeys(("row_decode", "row_encode"), "ports"),
    **dict.fromkeys(("unary", "binary", "integer", "activation", "fma", "select", "affine"), "elementwise"),
    **dict.fromkeys(("fold", "fold_integer", "group", "group_integer", "emit", "scan", "cumulate"), "reduce"),
    **dict.fromkeys(("resize", "bn_stats", "bn_aggr", "max8", "find_index8", "match_replace8"), "statistics"),
}

_addresses: dict[str, int] = {}
_lock = threading.RLock()
_callbacks: list[Callable[[str, int, int], None]] = []


def on_compile(callback: Callable[[str, int, int], None]) -> Callable[[], None]:
    """Call `callback(name, done, total)` before each compilation of an engine function (done of total known needs).

    Returns a function that removes the callback. Loading from the cache reports nothing.
    """
    _callbacks.append(callback)
    return lambda: _callbacks.remove(callback)


def _compile(name: str) -> bytes:
    from tilelang.execute.engines import jit

    prefix = name.partition(".")[0]
    module = _MODULES.get(prefix)
    if module is None:
        raise KeyError(f"no engine function {name!r}: known families are {', '.join(sorted(_MODULES))}")
    function, arity = import_module(f"tilelang.execute.engines.{module}").source(name)
    return jit.compile_object(function, arity, objects.entry_symbol(name))


def addresses(names: Iterable[str]) -> dict[str, int]:
    """Addresses of several functions; compilations are reported with their number. KeyError: an unknown name."""
    wanted = list(dict.fromkeys(names))
    with _lock:
        missing = [name for name in wanted if name not in _addresses]
        bodies = {name: objects.read_object(name) for name in missing}
        total = sum(body is None for body in bodies.values())
        done = 0
        for name, body in bodies.items():
            if body is None:
                for callback in tuple(_callbacks):
                    callback(name, done, total)
                done += 1
                body = _compile(name)
                objects.write_object(name, body)
            _addresses[name] = objects.link(name, body)
        return {name: _addresses[name] for name in wanted}


def address(name: str) -> int:
    """Address of the micro-op or row function `name`, e.g. "binary.add.tt". Raises KeyError for an unknown name."""
    found = _addresses.get(name)
    return found if found is not None else addresses((name,))[name]


def engine_address(name: str) -> int:
    """Address of the engine function `name`, `void f(int64 *record, int64 thread, int64 nthreads)`: "pipeline", …"""
    return address(name)

"""Running a kernel's function on symbolic tensors: arguments bound to HBM tensors, annotations and results checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from tilelang.analysis.tensors import leaves_in, tensors_in
from tilelang.dtypes import format_of
from tilelang.errors import Diagnostic, TileRuleError, TileTypeError
from tilelang.ir import context
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.scalars import NkiScalar, VirtualRegister
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor
from tilelang.trace.binding import HostArray, flatten, map_arrays
from tilelang.trace.builder import Builder

__all__ = ["call_kernel"]


def call_kernel(
    function: Callable[..., Any],
    builder: Builder,
    args: Any,
    kwargs: Any,
    host: list[HostArray],
    arrays: list[NDArray[Any]] | None,
) -> tuple[list[NkiTensor], Any]:
    """Call `function` under `builder` with an HBM tensor for each array of `args` and `kwargs`.

    `host` are those arrays in order, `arrays` their content where instructions run at once. Returns the input
    tensors, in the same order, and what the function returned.
    """
    import tilelang.language  # noqa: F401  (registers operator tokens and hooks)

    inputs: list[NkiTensor] = []
    names = _names(function, args, kwargs)

    def bind(_: Any) -> NkiTensor:
        item = host[len(inputs)]
        fmt = format_of(item.array.dtype)
        storage = Storage(item.array.shape, fmt, MemoryRegion.private_hbm, name=next(names), kind="input")
        storage.index = len(builder.storages)
        builder.storages.append(storage)
        if builder.executor is not None:
            builder.executor.bind(storage, arrays[len(inputs)])  # type: ignore[index]
        tensor = NkiTensor.over(storage)
        inputs.append(tensor)
        return tensor

    with context.use_builder(builder):
        bound_args = [map_arrays(value, bind) for value in args]
        bound_kwargs = {name: map_arrays(value, bind) for name, value in kwargs.items()}
        _check_annotations(function, bound_args, bound_kwargs)
        result = function(*bound_args, **bound_kwargs)
        builder.finish()
        _check_result(result, builder)
    return inputs, result


def _names(function: Callable[..., Any], args: Any, kwargs: Any) -> Iterator[str]:
    """A label for each array: its parameter, with a number when the parameter holds several."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")
    labels = [positional[i] if i < len(positional) else f"{rest}{i - len(positional)}" for i in range(len(args))]
    for label, value in (*zip(labels, args, strict=True), *kwargs.items()):
        arrays: list[Any] = []
        flatten(value, arrays, [])
        for number, (array, _) in enumerate(arrays):
            yield label if array is value else f"{label}.{number}"


def _check_annotations(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    """Shapes that annotations such as `nt.tensor[128, 512]` state."""
    annotations = getattr(function, "__annotations__", None)
    if not annotations:
        return
    try:
        if any(isinstance(value, str) for value in annotations.values()):
            annotations = inspect.get_annotations(function, eval_str=True)
        bound = inspect.signature(function).bind(*args, **kwargs)
    except Exception:  # an annotation that does not evaluate states no shape; the call itself reports bad arguments
        return
    for name, value in bound.arguments.items():
        expected = getattr(annotations.get(name), "shape", None)
        if isinstance(expected, tuple) and isinstance(value, NkiTensor) and tuple(value.shape) != expected:
            raise TileRuleError(
                f"argument {name} has shape {value.shape}; its annotation says {expected}", rule="LANG.R400"
            )


def _refuse_endless(value: Any, path: tuple[int, ...]) -> None:
    if not isinstance(value, (tuple, list, dict)):
        return
    if id(value) in path:
        raise TileTypeError(f"the kernel returns a {type(value).__name__} that contains itself")
    for item in value.values() if isinstance(value, dict) else value:
        _refuse_endless(item, (*path, id(value)))


def _check_result(result: Any, builder: Builder) -> None:
    """GEN.R17: results are tensors in shared HBM; other HBM is a warning, an error when strict."""
    _refuse_endless(result, ())
    for leaf in leaves_in(result):
        if isinstance(leaf, (VirtualRegister, NkiScalar)):
            raise TileTypeError(
                f"the kernel returns a {type(leaf).__name__}; results are HBM tensors",
                rule="GEN.R17",
                hint="store it into a tensor with nisa.register_store or nisa.scalar_store",
            )
    for tensor in tensors_in(result):
        site = tensor.storage.site
        builder.refuse_gone(tensor, "the kernel returns", site)
        if tensor.storage.on_chip:
            raise TileTypeError(
                f"the kernel returns {tensor.describe()}; results are HBM tensors",
                rule="GEN.R17",
                hint="copy it into an nl.ndarray(…, buffer=nl.shared_hbm) with nisa.dma_copy and return that",
            ).at(site)
        if tensor.dynamic is not None:
            raise TileTypeError(
                f"the kernel returns {tensor.describe()}, a view with a dynamic index",
                rule="GEN.R17",
                hint="copy it into an nl.ndarray(…, buffer=nl.shared_hbm) with nisa.dma_copy and return that",
            ).at(site)
        if tensor.buffer is not MemoryRegion.shared_hbm and tensor.storage.kind != "input":
            diagnostic = Diagnostic(
                f"the kernel returns {tensor.describe()}; a device compiler wants results in shared_hbm",
                rule="GEN.R17",
                hint="allocate it with buffer=nl.shared_hbm",
            )
            if builder.strict:
                raise TileTypeError(diagnostic.message, rule="GEN.R17", hint=diagnostic.hint).at(site)
            builder.report(diagnostic, site)

"""Joins the stages: `jit` kernels, `simulate`, `compile`; options and the cache of specialisations."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelang.analysis.initialised import analyse_initialisation
from tilelang.devices import Device, resolve_target
from tilelang.dtypes import format_of
from tilelang.errors import (
    Diagnostic,
    TileCapacityError,
    TileError,
    TileTypeError,
    TileUnsupportedError,
    TileValueError,
    TileWarning,
    hide_frames,
)
from tilelang.ir import context
from tilelang.ir.program import Program
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.storage import Storage
from tilelang.ir.tensor import NkiTensor
from tilelang.scheduler.placement import Placement, place
from tilelang.trace.binding import HostArray, flatten, from_host, map_arrays, map_tensors, to_family
from tilelang.trace.builder import Builder

__all__ = ["Executable", "Kernel", "Options", "compile", "jit", "simulate"]

_MODES = ("native", "reference", "debug")


@dataclass(frozen=True, slots=True)
class Options:
    """How a kernel runs. `None` means: environment, then default."""

    target: str | None = None
    mode: str | None = None
    precision: str | None = None
    strict: bool = False
    nki: str = "0.7"
    threads: int | None = None

    def resolve(self) -> Options:
        """All fields filled in: argument, else environment, else default."""
        mode = self.mode or "native"
        if mode not in _MODES:
            raise TileValueError(f"mode={mode!r}; expected one of {', '.join(_MODES)}")
        precision = self.precision
        if precision is None:
            precision = "high" if os.environ.get("NKI_PRECISE_FP", "1") == "0" else "exact"
        if precision not in ("exact", "high"):
            raise TileValueError(f'precision={precision!r}; expected "exact" or "high"')
        if self.threads is not None and not 1 <= self.threads <= 128:
            raise TileValueError(f"threads={self.threads}; expected 1 to 128")
        return Options(resolve_target(self.target).name, mode, precision, self.strict, self.nki, self.threads)


_OPTION_NAMES = tuple(Options.__dataclass_fields__)


class Specialisation:
    """A kernel traced for one signature: its program, and the executable once it is needed."""

    def __init__(self, program: Program, pinned: list[Any]) -> None:
        self.program = program
        self.pinned = pinned
        self.init = analyse_initialisation(program)
        self.mutated = self.init.written
        self.placement: Placement = place(program, self.init.poison)
        self._native: Any = None
        self.lock = threading.Lock()

    @property
    def native(self) -> Any:
        """The native executable."""
        if self._native is None:
            from tilelang.execute.encode import encode
            from tilelang.execute.runtime import Executable as NativeExecutable

            with self.lock:
                if self._native is None:
                    encoded = encode(self.program, self.placement, self.init)
                    self._native = NativeExecutable(self.program, encoded, self.mutated)
        return self._native

    def run(self, inputs: list[NDArray[Any]], options: Options) -> dict[int, NDArray[Any]]:
        """Execute in native or reference mode."""
        if options.mode == "reference":
            from tilelang.execute.reference import run_reference

            with self.lock:
                return run_reference(self.program, inputs)
        from tilelang.execute.runtime import default_threads

        return self.native.run(inputs, options.threads or default_threads())  # type: ignore[no-any-return]


class Kernel:
    """A function that is traced, checked and executed when called: what `jit` returns.

    `k(*args)` runs it; `k[n](*args)` with LNC degree n. Options of this project (`target=`, `mode=`, `precision=`, `strict=`, `threads=`, `nki=`) go
    through `simulate(k, …)`, `compile(k, …)` or `k.with_options(…)`, so that they never clash with the kernel's own keywords.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options = Options(),
        lnc: int | None = None,
        edges: tuple[tuple[str, tuple[str, ...]], ...] = (),
        cache: dict[Any, Specialisation] | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.options = options
        self.lnc = lnc
        self.edges = edges
        self._cache: dict[Any, Specialisation] = {} if cache is None else cache

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<tilelang kernel {self.__name__}>"  # type: ignore[attr-defined]

    def with_options(self, **options: Any) -> Kernel:
        """The same kernel with other run options."""
        unknown = [name for name in options if name not in _OPTION_NAMES]
        if unknown:
            raise TileTypeError(f"unknown option {unknown[0]!r}; options are {', '.join(_OPTION_NAMES)}")
        return Kernel(self.function, replace(self.options, **options), self.lnc, self.edges, self._cache)

    def __getitem__(self, lnc: Any) -> Kernel:
        if context.active_builder() is not None:
            raise TileTypeError("a bracket launch inside a kernel is not possible", hint="call the nested kernel without brackets")
        if isinstance(lnc, bool) or not isinstance(lnc, int):
            raise TileTypeError(f"k[{lnc!r}]: the bracket takes one integer, the LNC degree (1 or 2)")
        return Kernel(self.function, self.options, lnc, self.edges, self._cache)

    def with_schedule(self, edges: Any) -> Kernel:
        """A new kernel with extra scheduling edges: pairs (consumer, producer or list of producers) of instruction names."""
        found = []
        for edge in edges:
            consumer, producers = edge
            names = (producers,) if isinstance(producers, str) else tuple(producers)
            found.append((str(consumer), names))
        return Kernel(self.function, self.options, self.lnc, (*self.edges, *found), self._cache)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if context.active_builder() is not None:
            return self.function(*args, **kwargs)
        try:
            return self._launch(args, kwargs, self.options.resolve())
        except TileError as error:
            failure = error
        raise hide_frames(failure)

    # -- running ---------------------------------------------------------------------------------------------------------

    def _degree(self, device: Device) -> int:
        degree = self.lnc
        if degree is None:
            text = os.environ.get("NEURON_LOGICAL_NC_CONFIG", "1")
            degree = int(text) if text in ("1", "2") else 1
        if degree not in (1, 2) or degree > device.max_lnc:
            raise TileValueError(
                f"LNC degree {degree} on {device.name}; it has at most {device.max_lnc}", hint="launch with k[1](…) or k(…)"
            )
        if degree == 2:
            raise TileUnsupportedError(
                "launches on two cores (LNC 2) are not available yet", hint="run with k[1](…): kernels ask nl.num_programs() for the degree"
            )
        return degree

    def _launch(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        arrays: list[Any] = []
        key: list[Any] = [options.target, options.precision, options.strict, options.nki, self.lnc, self.edges]
        pinned: list[Any] = []
        for value in args:
            flatten(value, arrays, key, pinned)
        for name, value in kwargs.items():
            key.append(name)
            flatten(value, arrays, key, pinned)
        host = [from_host(value, family) for value, family in arrays]
        if options.mode == "debug":
            return self._debug(args, kwargs, host, options)
        found = self._specialise(tuple(key), args, kwargs, host, options, pinned)
        return self._execute(found, host, options)

    def _specialise(
        self, key: Any, args: Any, kwargs: Any, host: list[HostArray], options: Options, pinned: list[Any]
    ) -> Specialisation:
        full = (key, self.function.__code__, _cells(self.function))
        found = self._cache.get(full)
        if found is None:
            found = Specialisation(self.trace(args, kwargs, host, options), pinned)
            _report_capacity(found, options)
            self._cache[full] = found
        return found

    def _execute(self, found: Specialisation, host: list[HostArray], options: Options) -> Any:
        inputs = _separate(host, found)
        results = found.run([h.array for h in host] if inputs is None else inputs, options)
        if found.mutated:
            written = {t.storage.index for t in found.program.inputs if t.storage.index in found.mutated}
            for tensor, item, used in zip(found.program.inputs, host, inputs or [h.array for h in host], strict=True):
                if tensor.storage.index in written and (item.copied or used is not item.source):
                    item.array, item.copied = used, True
                    item.write_back()
        return _results(found.program, results, host)

    def trace(self, args: Any, kwargs: Any, host: list[HostArray], options: Options) -> Program:
        """Run the function once on symbolic tensors."""
        device = resolve_target(options.target)
        degree = self._degree(device)
        builder = Builder(
            device,
            precision=str(options.precision),
            strict=options.strict,
            nki=options.nki,
            lnc=degree,
            grid=0 if self.lnc is None else 1,
        )
        inputs, result = _call(self.function, builder, args, kwargs, host, options)
        return Program(
            name=getattr(self, "__name__", "kernel"),
            device=device,
            precision=str(options.precision),
            items=builder.items,
            storages=builder.storages,
            inputs=inputs,
            result=result,
            instructions=builder.count,
            registers=builder.registers,
            lnc=degree,
            warnings=builder.found,
            edges=self.edges,
        )

    def _debug(self, args: Any, kwargs: Any, host: list[HostArray], options: Options) -> Any:
        from tilelang.execute.debug import DebugExecutor

        device = resolve_target(options.target)
        self._degree(device)
        executor = DebugExecutor(device, str(options.precision))
        builder = Builder(
            device,
            precision=str(options.precision),
            strict=options.strict,
            nki=options.nki,
            grid=0 if self.lnc is None else 1,
            executor=executor,
        )
        before = [h.array.copy() for h in host]
        with executor.values():
            inputs, result = _call(self.function, builder, args, kwargs, host, options, executor)
            program = Program(
                getattr(self, "__name__", "kernel"), device, str(options.precision), [], builder.storages, inputs, result, builder.count, 0
            )
            arrays = executor.arrays(builder.storages)
        for item, old in zip(host, before, strict=True):
            if item.copied and old.tobytes() != item.array.tobytes():
                item.write_back()
        return _results(program, arrays, host)


def _cells(function: Any) -> tuple[Any, ...]:
    """Identity of what a closure captured: part of the cache key."""
    closure = getattr(function, "__closure__", None) or ()
    return tuple(id(cell.cell_contents) if cell.cell_contents is not None else None for cell in closure)


def _call(
    function: Callable[..., Any],
    builder: Builder,
    args: Any,
    kwargs: Any,
    host: list[HostArray],
    options: Options,
    executor: Any = None,
) -> tuple[list[NkiTensor], Any]:
    """Bind array arguments to HBM tensors and run the function under `builder`."""
    import tilelang.language  # noqa: F401  (registers operator tokens and hooks)

    inputs: list[NkiTensor] = []
    names = _names(function, args, kwargs)
    remaining = iter(host)

    def bind(_: Any) -> NkiTensor:
        item = next(remaining)
        fmt = format_of(item.array.dtype)
        storage = Storage(item.array.shape, fmt, MemoryRegion.private_hbm, name=names.get(len(inputs), ""), kind="input")
        storage.index = len(builder.storages)
        builder.storages.append(storage)
        if executor is not None:
            executor.bind(storage, item.array)
        tensor = NkiTensor.over(storage)
        inputs.append(tensor)
        return tensor

    with context.use_builder(builder):
        bound_args = [map_arrays(value, bind) for value in args]
        bound_kwargs = {name: map_arrays(value, bind) for name, value in kwargs.items()}
        _check_annotations(function, bound_args, bound_kwargs)
        result = function(*bound_args, **bound_kwargs)
        builder.finish()
        _check_result(result, builder, options)
    return inputs, result


def _names(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[int, str]:
    """Names of array arguments given directly, by their ordinal among the arrays."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {}
    from tilelang.trace.binding import family_of

    names, count = {}, 0
    for name, value in bound.arguments.items():
        if family_of(value) is not None:
            names[count] = name
            count += 1
        else:
            inner: list[Any] = []
            flatten(value, inner, [], [])
            count += len(inner)
    return names


def _check_annotations(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    annotations = getattr(function, "__annotations__", None)
    if not annotations:
        return
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return
    for name, value in bound.arguments.items():
        expected = getattr(annotations.get(name), "shape", None)
        if isinstance(expected, tuple) and isinstance(value, NkiTensor) and tuple(value.shape) != expected:
            raise TileValueError(f"argument {name} has shape {value.shape}; its annotation says {expected}")


def _check_result(result: Any, builder: Builder, options: Options) -> None:
    from tilelang.analysis.tensors import tensors_in

    for tensor in tensors_in(result):
        if tensor.storage.on_chip:
            raise TileTypeError(
                f"the kernel returns {tensor.describe()}; results are HBM tensors",
                rule="GEN.R17",
                hint="copy it into an nl.ndarray(…, buffer=nl.shared_hbm) with nisa.dma_copy and return that",
            ).at(tensor.storage.site)
        if tensor.dynamic is not None:
            raise TileTypeError("the kernel returns a view with a dynamic index", rule="GEN.R17")
        if tensor.buffer is not MemoryRegion.shared_hbm and tensor.storage.kind != "input":
            diagnostic = Diagnostic(
                f"the kernel returns {tensor.describe()}; a device compiler wants results in shared_hbm",
                rule="GEN.R17",
                hint="allocate it with buffer=nl.shared_hbm",
            )
            if options.strict:
                raise TileTypeError(diagnostic.message, rule="GEN.R17", hint=diagnostic.hint).at(tensor.storage.site)
            builder.report(diagnostic, tensor.storage.site)


def _report_capacity(found: Specialisation, options: Options) -> None:
    """Warn (strict: raise) when live tiles exceed a memory of the target."""
    device = found.program.device
    limits = {"sbuf": device.sbuf_usable_bytes, "psum": device.psum_bytes}
    for region, limit in limits.items():
        need, live = found.placement.peak[region]
        if need <= limit:
            continue
        largest = sorted(live, key=lambda s: -s.row_bytes)[:5]
        notes = tuple(f"{s.row_bytes} bytes: {s.describe()}, allocated at {s.site}" for s in largest)
        diagnostic = Diagnostic(
            f"{need} bytes per partition of {region.upper()} are live at once; {device.name} has {limit}",
            rule=f"DEV.{region}",
            site=largest[0].site,
            notes=notes,
            hint="reuse tiles, or work on smaller ones",
        )
        if options.strict:
            raise TileCapacityError(diagnostic.message, diagnostics=[diagnostic])
        warnings.warn(diagnostic.render(), TileWarning, stacklevel=6)


def _separate(host: list[HostArray], found: Specialisation) -> list[NDArray[Any]] | None:
    """Input arrays with written ones copied when they share memory with another argument; None when none do."""
    if not found.mutated or len(host) < 2:
        return None
    arrays = [h.array for h in host]
    changed = False
    for i, tensor in enumerate(found.program.inputs):
        if tensor.storage.index in found.mutated and any(
            np.may_share_memory(arrays[i], other) for j, other in enumerate(arrays) if i != j
        ):
            arrays[i] = arrays[i].copy()
            changed = True
    return arrays if changed else None


def _results(program: Program, arrays: dict[int, NDArray[Any]], host: list[HostArray]) -> Any:
    """The returned structure with host arrays as leaves, in the family of the arguments."""
    from tilelang.execute.runtime import view_of

    families = {h.family for h in host}
    family = next((name for name in ("torch", "jax") if name in families), "numpy")
    originals = {t.storage.index: h for t, h in zip(program.inputs, host, strict=True)}

    def convert(tensor: NkiTensor) -> Any:
        given = originals.get(tensor.storage.index)
        if given is not None and tensor.size * tensor.itemsize == tensor.storage.nbytes and tensor.offset == 0 and tensor.shape == tensor.storage.shape:
            return given.original if given.family != "jax" else to_family(given.array, "jax")
        result = view_of(tensor, arrays[tensor.storage.index], program.precision)
        if given is not None and np.may_share_memory(result, given.array):
            result = result.copy()
        return to_family(result, family)

    return map_tensors(program.result, convert)


class Executable:
    """A kernel compiled for the shapes and static values of given arguments: callable with new data, no tracing.

    `program` is the traced Program (its `str()` lists the instructions); `run(*args)` is the same as calling it.
    """

    def __init__(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> None:
        self.kernel = kernel
        self.options = options
        arrays: list[Any] = []
        key: list[Any] = []
        pinned: list[Any] = []
        for value in (*args, *kwargs.values()):
            flatten(value, arrays, key, pinned)
        host = [from_host(value, family) for value, family in arrays]
        self._key = key
        self._specialisation = Specialisation(kernel.trace(args, kwargs, host, options), pinned)
        if options.mode == "native":
            _ = self._specialisation.native

    @property
    def program(self) -> Program:
        """The traced program."""
        return self._specialisation.program

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run on `args`, which must have the shapes, dtypes and static values the kernel was compiled for."""
        arrays: list[Any] = []
        key: list[Any] = []
        for value in (*args, *kwargs.values()):
            flatten(value, arrays, key, [])
        if key != self._key:
            raise TileTypeError("the arguments differ from those the kernel was compiled for in shape, dtype or static value")
        host = [from_host(value, family) for value, family in arrays]
        return self.kernel._execute(self._specialisation, host, self.options)

    __call__ = run


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    compile_config: Any = None,
    specialization_config: Any = None,
    mode: str | None = None,
    platform_target: str | None = None,
    **ignored: Any,
) -> Any:
    """Make a kernel of a function: `@jit`, `@jit()`, `jit(f)`.

    `mode=` of older versions is ignored; `platform_target=` sets the target, with a DeprecationWarning. The configuration objects concern the device compiler.
    Source: language.md 1.2, nki-0.7.md 2.1.
    """
    options = Options()
    if platform_target is not None:
        warnings.warn(
            "platform_target= was removed; set the target with NEURON_PLATFORM_TARGET_OVERRIDE or simulate(kernel, target=…)",
            DeprecationWarning,
            stacklevel=2,
        )
        options = Options(target=platform_target)
    if fn is None:
        return functools.partial(jit, platform_target=platform_target) if platform_target else jit
    if isinstance(fn, Kernel):
        return fn
    if not callable(fn):
        raise TileTypeError(f"jit needs a function, got {type(fn).__name__}")
    return Kernel(fn, options)


def _kernel(kernel: Any) -> Kernel:
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel):
        return Kernel(kernel)
    raise TileTypeError(f"expected a kernel or a function, got {type(kernel).__name__}")


def simulate(kernel: Any, **options: Any) -> Kernel:
    """`simulate(kernel, target=…, mode=…, precision=…, strict=…, threads=…)(*args)`: run a kernel, a launched form `k[2]`, or a plain function."""
    return _kernel(kernel).with_options(**options)


def compile(kernel: Any, *args: Any, **kwargs: Any) -> Executable:
    """Trace, check and encode `kernel` for `args`; returns an Executable. Options are keywords that are not parameters of the kernel."""
    base = _kernel(kernel)
    names = set(inspect.signature(base.function).parameters)
    chosen = {k: v for k, v in kwargs.items() if k in _OPTION_NAMES and k not in names}
    rest = {k: v for k, v in kwargs.items() if k not in chosen}
    base = base.with_options(**chosen)
    try:
        return Executable(base, args, rest, base.options.resolve())
    except TileError as error:
        failure = error
    raise hide_frames(failure)

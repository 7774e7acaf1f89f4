"""Joins the stages: `jit` kernels, `simulate`, `compile`; options and the cache of specialisations."""

from __future__ import annotations

import functools
import inspect
import os
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilelang.devices import Device, resolve_target
from tilelang.eager import DebugLaunch, run_debug
from tilelang.errors import (
    Diagnostic,
    TileError,
    TileTypeError,
    TileValueError,
    TileWarning,
    hide_frames,
    user_site,
    warn_user,
)
from tilelang.execute.debug import DebugExecutor
from tilelang.ir import context
from tilelang.ir.program import Program
from tilelang.specialise import (
    ProgramCache,
    Specialisation,
    bind_arrays,
    check_shared,
    finish,
    report_capacity,
    run_ranks,
)
from tilelang.trace.binding import HostArray, flatten, from_host
from tilelang.trace.builder import Builder
from tilelang.trace.call import call_kernel

__all__ = ["Executable", "Kernel", "Options", "compile", "jit", "launch", "set_defaults", "simulate"]

_MODES = ("native", "reference", "debug")
_VERSIONS = ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7")


@dataclass(frozen=True, slots=True)
class Options:
    """How a kernel runs. `None` means: environment, then default."""

    target: str | None = None
    mode: str | None = None
    precision: str | None = None
    strict: bool | None = None
    nki: str | None = None
    threads: int | None = None

    def resolve(self) -> Options:
        """All fields filled in: argument, else what `set_defaults` set, else environment, else default."""
        if _defaults:
            given = {name: value for name, value in _defaults.items() if getattr(self, name) is None}
            return replace(self, **given)._resolve() if given else self._resolve()
        return self._resolve()

    def _resolve(self) -> Options:
        mode = self.mode or "native"
        if mode not in _MODES:
            raise TileValueError(f"mode={mode!r}; expected one of {', '.join(_MODES)}")
        precision = self.precision
        if precision is None:
            precision = "high" if os.environ.get("NKI_PRECISE_FP", "1") == "0" else "exact"
        if precision not in ("exact", "high"):
            raise TileValueError(f'precision={precision!r}; expected "exact" or "high"')
        if self.threads is not None and (type(self.threads) is not int or not 1 <= self.threads <= 128):
            raise TileValueError(f"threads={self.threads!r}; expected an int from 1 to 128")
        nki = self.nki or _VERSIONS[-1]
        if nki not in _VERSIONS:
            raise TileValueError(f"nki={nki!r}; expected one of {', '.join(_VERSIONS)}")
        return Options(resolve_target(self.target).name, mode, precision, bool(self.strict), nki, self.threads)


# What the command line chose for kernels that do not say themselves.
_defaults: dict[str, Any] = {}


def set_defaults(**options: Any) -> None:
    """Options for all kernels of the process that leave them open; None removes one. Raises for values that are no
    option.
    """
    for name, value in options.items():
        _defaults.pop(name, None)
        if value is not None:
            replace(Options(), **{name: value})._resolve()
            _defaults[name] = value


# Variables that change what a kernel sees while it is traced.
_TRACED_VARIABLES = ("NEURON_LOGICAL_NC_CONFIG", "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE")
_OPTION_NAMES = tuple(Options.__dataclass_fields__)


class Kernel:
    """A function that is traced, checked and executed when called: what `jit` returns.

    `k(*args)` runs it; `k[n](*args)` with LNC degree n. Options of this project (`target=`, `mode=`, `precision=`,
    `strict=`, `threads=`, `nki=`) go
    through `simulate(k, …)`, `compile(k, …)` or `k.with_options(…)`, so that they never clash with the kernel's own
    keywords.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options = Options(),
        lnc: int | None = None,
        edges: tuple[tuple[str, tuple[str, ...]], ...] = (),
        cache: ProgramCache | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.options = options
        self.lnc = lnc
        self.edges = edges
        self._cache = ProgramCache(function) if cache is None else cache

    @property
    def launched(self) -> bool:
        """Whether the kernel has been called, in whatever way."""
        return self._cache.launched

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
            raise TileTypeError(
                "a bracket launch inside a kernel is not possible", hint="call the nested kernel without brackets"
            )
        if isinstance(lnc, bool) or not isinstance(lnc, int):
            raise TileTypeError(f"k[{lnc!r}]: the bracket takes one integer, the LNC degree (1 or 2)")
        return Kernel(self.function, self.options, lnc, self.edges, self._cache)

    def with_schedule(self, edges: Any) -> Kernel:
        """A new kernel with extra scheduling edges: pairs (consumer, producer or list of producers) of instruction
        names.
        """
        found = []
        for edge in edges:
            try:
                consumer, producers = (None, ()) if isinstance(edge, str) else edge
                names = (producers,) if isinstance(producers, str) else tuple(producers)
            except (TypeError, ValueError):
                consumer, names = None, ()
            if not isinstance(consumer, str) or not names or not all(isinstance(name, str) for name in names):
                raise TileTypeError(
                    f"with_schedule: {edge!r} is not an edge",
                    hint="an edge is (consumer, producer) or (consumer, [producer, ...]), all names of instructions",
                )
            found.append((consumer, names))
        return Kernel(self.function, self.options, self.lnc, (*self.edges, *found), self._cache)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        self._cache.launched = True
        if context.active_builder() is not None:
            return self.function(*args, **kwargs)
        try:
            return self._launch(args, kwargs, self.options.resolve())
        except TileError as error:
            failure = error
        raise hide_frames(failure.at(user_site(failure)))

    # -- running

    def _degree(self, device: Device, strict: bool | None) -> int:
        text = os.environ.get("NEURON_LOGICAL_NC_CONFIG", "")
        if text not in ("", "1", "2"):
            raise TileValueError(f"NEURON_LOGICAL_NC_CONFIG={text!r}; expected 1 or 2")
        degree = self.lnc
        if degree is None:
            degree = int(text or "1")
        elif text and int(text) != degree:
            message = f"k[{degree}] differs from NEURON_LOGICAL_NC_CONFIG={text}, which a device would take"
            if strict:
                raise TileValueError(
                    message, rule="LNC.R1", hint="launch with k(…), or set the variable to that degree"
                )
            warn_user(f"LNC.R1: {message}", TileWarning)
        if degree not in (1, 2) or degree > device.max_lnc:
            raise TileValueError(
                f"LNC degree {degree} on {device.name}; it has at most {device.max_lnc}",
                hint="launch with k[1](…) or k(…)",
            )
        return degree

    def _launch(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        key = self._key(options)
        host = _arguments(args, kwargs, key)
        if options.mode == "debug":
            return self._debug(args, kwargs, host, options)
        return self._execute(self._specialise(args, kwargs, host, options, key), host, options)

    def _specialise(
        self, args: Any, kwargs: Any, host: list[HostArray], options: Options, key: list[Any]
    ) -> Specialisation:
        """The kernel traced for these arguments, from the cache if it has been."""
        cache = self._cache
        found = cache.programs.get((*key, cache.surroundings.state()))
        if found is None:
            before = cache.surroundings.snapshot()
            found = Specialisation(self.trace(args, kwargs, host, options))
            report_capacity(found, bool(options.strict))
            cache.surroundings.ignore_changes(before)
            cache.add((*key, cache.surroundings.state()), found)
        return found

    def _execute(self, found: Specialisation, host: list[HostArray], options: Options) -> Any:
        arrays = bind_arrays(found, host)
        return finish(found, host, arrays, found.run(arrays, options.mode, options.threads))

    def launch(self, ranks: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
        """Run on several ranks together; `ranks` holds the (positional, keyword) arguments of each."""
        options = self.options.resolve()
        self._cache.launched = True
        launches = []
        for args, kwargs in ranks:
            key = self._key(options)
            launches.append((args, kwargs, _arguments(args, kwargs, key), key))
        if options.mode == "debug":
            return run_debug([self.debug_launch(args, kwargs, host, options) for args, kwargs, host, _ in launches])
        found = [self._specialise(args, kwargs, host, options, key) for args, kwargs, host, key in launches]
        return run_ranks(found, [host for _, _, host, _ in launches], options.mode, options.threads)

    def _key(self, options: Options) -> list[Any]:
        """What a specialisation depends on besides the arguments."""
        key = [options.target, options.precision, options.strict, options.nki, self.lnc, self.edges]
        return key + [os.environ.get(name) for name in _TRACED_VARIABLES]

    def trace(self, args: Any, kwargs: Any, host: list[HostArray], options: Options) -> list[Program]:
        """Run the function on symbolic tensors, once for each core of the launch."""
        device = resolve_target(options.target)
        degree = self._degree(device, options.strict)
        programs = [self._trace(args, kwargs, host, options, device, degree, core) for core in range(degree)]
        for other in programs[1:]:
            check_shared(programs[0], other)
        return programs

    def _builder(self, device: Device, options: Options, degree: int, core: int, executor: Any = None) -> Builder:
        return Builder(
            device,
            precision=str(options.precision),
            strict=bool(options.strict),
            nki=str(options.nki),
            core=core,
            lnc=degree,
            grid=0 if self.lnc is None and degree == 1 else 1,
            executor=executor,
        )

    def _trace(
        self, args: Any, kwargs: Any, host: list[HostArray], options: Options, device: Device, degree: int, core: int
    ) -> Program:
        builder = self._builder(device, options, degree, core)
        inputs, result = call_kernel(self.function, builder, args, kwargs, host, None)
        program = Program(
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
            core=core,
            presets=builder.presets,
        )
        if self.edges:
            _check_schedule(program, builder)
        return program

    def _debug(self, args: Any, kwargs: Any, host: list[HostArray], options: Options) -> Any:
        return run_debug([self.debug_launch(args, kwargs, host, options)])[0]

    def debug_launch(self, args: Any, kwargs: Any, host: list[HostArray], options: Options) -> DebugLaunch:
        """This kernel as one rank of a run in debug mode."""
        device = resolve_target(options.target)
        degree = self._degree(device, options.strict)

        def builder(core: int, executor: DebugExecutor) -> Builder:
            return self._builder(device, options, degree, core, executor)

        name = getattr(self, "__name__", "kernel")
        return DebugLaunch(name, self.function, args, kwargs, host, device, str(options.precision), degree, builder)


def _arguments(args: Any, kwargs: Any, key: list[Any]) -> list[HostArray]:
    """The arrays in `args` and `kwargs`; `key` gets what a specialisation depends on."""
    arrays: list[Any] = []
    for value in args:
        flatten(value, arrays, key)
    for name, value in kwargs.items():
        key.append(name)
        flatten(value, arrays, key)
    host = [from_host(value, family) for value, family in arrays]
    for item in host:
        # A NumPy array that was only laid out afresh is described already.
        described = isinstance(item.original, np.ndarray) and item.original.dtype == item.array.dtype
        if not described:
            key.append((item.family, item.array.dtype, item.array.shape))
    return host


def _check_schedule(program: Program, builder: Builder) -> None:
    """Warn (strict: raise) of edges that name no instruction or contradict program order."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for instruction in program.walk():
        if instruction.name:
            first.setdefault(instruction.name, instruction.index)
            last[instruction.name] = instruction.index
    for consumer, producers in program.edges:
        for producer in producers:
            unknown = next((name for name in (consumer, producer) if name not in first), None)
            if unknown is not None:
                message = f"with_schedule: no instruction is named {unknown!r}"
            elif last[producer] > first[consumer]:
                message = f"with_schedule: {consumer!r} cannot run after {producer!r}, which comes later in the program"
            else:
                continue
            if builder.strict:
                raise TileValueError(message, rule="LANG.R410")
            builder.report(Diagnostic(message, rule="LANG.R410"))


class Executable:
    """A kernel compiled for the shapes and static values of given arguments: callable with new data, no tracing.

    `program` is the traced Program (its `str()` lists the instructions); `run(*args)` is the same as calling it.
    """

    def __init__(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> None:
        if options.mode == "debug":
            raise TileValueError(
                'mode="debug" compiles nothing', hint='call the kernel: simulate(kernel, mode="debug")(…)'
            )
        self.kernel = kernel
        self.options = options
        self._key: list[Any] = []
        host = _arguments(args, kwargs, self._key)
        self._specialisation = Specialisation(kernel.trace(args, kwargs, host, options))
        report_capacity(self._specialisation, bool(options.strict))
        if options.mode == "native":
            _ = self._specialisation.native

    @property
    def program(self) -> Program:
        """The traced program."""
        return self._specialisation.program

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run on `args`, which must have the shapes, dtypes and static values the kernel was compiled for."""
        __tracebackhide__ = True
        try:
            key: list[Any] = []
            host = _arguments(args, kwargs, key)
            if key != self._key:
                raise TileTypeError(
                    "the arguments differ from those the kernel was compiled for in shape, dtype or static value"
                )
            return self.kernel._execute(self._specialisation, host, self.options)
        except TileError as error:
            failure = error
        raise hide_frames(failure)

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

    `mode=` of older versions is ignored; `platform_target=` sets the target, with a DeprecationWarning. The
    configuration objects concern the device compiler.
    Source: language.md 1.2, nki-0.7.md 2.1.
    """
    options = Options()
    if platform_target is not None:
        warnings.warn(
            "platform_target= was removed; set the target with "
            "NEURON_PLATFORM_TARGET_OVERRIDE or simulate(kernel, target=…)",
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


def simulate(kernel: Any, *args: Any, **options: Any) -> Kernel:
    """`simulate(kernel, target=…, mode=…, precision=…, strict=…, threads=…)(*args)`: run a kernel, a launched form
    `k[2]`, or a plain function. Raises TypeError for arguments of the kernel, which belong in the second call.
    """
    if args:
        raise TileTypeError(
            f"simulate: {len(args)} argument{'s' * (len(args) > 1)} besides the kernel",
            hint="write simulate(kernel)(*args): simulate gives the kernel to call",
        )
    return _kernel(kernel).with_options(**options)


def launch(kernel: Any, ranks: Any, **options: Any) -> list[Any]:
    """Run `kernel` on several ranks together, as `nki.collectives` needs it; returns each rank's result.

    `ranks` holds the arguments of each rank: a tuple or list of positional ones, a dict of keyword ones, or one array.
    `kernel` may be a launched form: `launch(kernel[2], …)` gives every rank two cores. Options as in `simulate`. Ranks
    run in one process and take turns at collectives; what they wait for in vain is a TileDeadlockError.
    """
    __tracebackhide__ = True
    base = _kernel(kernel).with_options(**options)
    if not isinstance(ranks, (list, tuple)) or not ranks:
        raise TileTypeError(
            f"launch: ranks is {type(ranks).__name__}; expected a list with the arguments of each rank",
            hint="launch(kernel, ranks=[(x0,), (x1,)])",
        )
    try:
        return base.launch([_rank_arguments(given) for given in ranks])
    except TileError as error:
        failure = error
    raise hide_frames(failure.at(user_site(failure)))


def _rank_arguments(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(given, dict):
        return (), given
    return (tuple(given) if isinstance(given, (tuple, list)) else (given,)), {}


def compile(kernel: Any, *args: Any, **kwargs: Any) -> Executable:
    """Trace, check and encode `kernel` for `args`; returns an Executable. Options are keywords that are not
    parameters of the kernel.
    """
    base = _kernel(kernel)
    try:
        names = set(inspect.signature(base.function).parameters)
    except (TypeError, ValueError):
        names = set()
    chosen = {k: v for k, v in kwargs.items() if k in _OPTION_NAMES and k not in names}
    rest = {k: v for k, v in kwargs.items() if k not in chosen}
    base = base.with_options(**chosen)
    try:
        return Executable(base, args, rest, base.options.resolve())
    except TileError as error:
        failure = error
    raise hide_frames(failure.at(user_site(failure)))

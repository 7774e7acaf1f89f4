"""Numba for the engines: memory access by address, scalar meaning of the formula primitives, object files.

Importing this module imports numba. Compiled code has no run-time checks, exceptions or allocations, so an object file
needs nothing from numba to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic, lower_builtin, register_jitable, type_callable

from tilelang import numerics
from tilelang.numerics import prim

__all__ = [
    "LOAD",
    "STORE",
    "call",
    "call_row",
    "compile_object",
    "fma_f32",
    "inline",
    "load_f32",
    "load_i64",
    "store_f32",
    "store_i64",
]

inline = register_jitable(forceinline=True)
"""Decorator of plain functions that compiled functions call; inlined, so that the loops around them vectorise."""

_CARRIERS: dict[str, Any] = {
    "uint8": types.uint8,
    "uint16": types.uint16,
    "uint32": types.uint32,
    "uint64": types.uint64,
    "int8": types.int8,
    "int16": types.int16,
    "int32": types.int32,
    "int64": types.int64,
    "float32": types.float32,
    "float64": types.float64,
}


def _element(context: Any, builder: Any, carrier: Any, base: Any, index: Any) -> Any:
    # One inttoptr of the base and an indexed address: LLVM sees the access pattern of the loop and can vectorise it.
    return builder.gep(builder.inttoptr(base, context.get_value_type(carrier).as_pointer()), [index])


def _make_load(carrier: Any) -> Any:
    @intrinsic
    def load(typingctx: Any, base: Any, index: Any) -> Any:
        """The element number `index` of the array at address `base`; any alignment."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(_element(context, builder, carrier, *args))
            value.align = 1
            return value

        return carrier(types.int64, types.int64), codegen

    return load


def _make_store(carrier: Any) -> Any:
    @intrinsic
    def store(typingctx: Any, base: Any, index: Any, value: Any) -> Any:
        """Put `value` at element number `index` of the array at address `base`; any alignment."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[2], _element(context, builder, carrier, *args[:2]), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, carrier), codegen

    return store


LOAD: dict[str, Any] = {name: _make_load(carrier) for name, carrier in _CARRIERS.items()}
STORE: dict[str, Any] = {name: _make_store(carrier) for name, carrier in _CARRIERS.items()}
load_i64, store_i64 = LOAD["int64"], STORE["int64"]
load_f32, store_f32 = LOAD["float32"], STORE["float32"]


def _make_call(arguments: int) -> Any:
    """Call the function at an address, which takes `arguments` int64 and returns nothing."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * arguments)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * (1 + arguments)), codegen


def _call(typingctx: Any, address: Any, first: Any, second: Any) -> Any:
    """Call the function `void f(int64, int64)` at `address`."""
    return _make_call(2)


def _call_row(typingctx: Any, address: Any, source: Any, target: Any, count: Any) -> Any:
    """Call the row function `void f(int64 source, int64 target, int64 count)` at `address`."""
    return _make_call(3)


def _fma_f32(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """`a * b + c` in float32 with one rounding."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FloatType()
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind, [kind, kind, kind]), "llvm.fma.f32"
        )
        return builder.call(function, args)

    return types.float32(types.float32, types.float32, types.float32), codegen


call: Any = intrinsic(_call)
call_row: Any = intrinsic(_call_row)
fma_f32: Any = intrinsic(_fma_f32)

# --- primitives -------------------------------------------------------------------------------------------------------


def _define(function: Callable[..., Any], result: Callable[..., Any], emit: Callable[..., Any], arity: int) -> None:
    """Give Numba the primitive `function`: `result` maps argument types to the result type, `emit` writes LLVM code."""

    @type_callable(function)
    def typer(context: Any) -> Any:
        # Numba reads the number of parameters from the signature.
        return {1: lambda x: result(x), 2: lambda x, y: result(x, y), 3: lambda x, y, z: result(x, y, z)}[arity]

    @lower_builtin(function, *[types.Any] * arity)
    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return emit(context, builder, signature, args)


def _define_select() -> None:
    def result(condition: Any, a: Any, b: Any) -> Any:
        return a if a == b and condition == types.boolean else None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(*args)

    _define(prim.select, result, emit, 3)


def _define_bits(function: Callable[..., Any], source: Any, target: Any) -> None:
    def result(x: Any) -> Any:
        return target if x == source else None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(target))

    _define(function, result, emit, 1)


def _convert(context: Any, builder: Any, value: Any, source: Any, target: Any) -> Any:
    if source == types.boolean:
        return context.cast(builder, builder.zext(value, ir.IntType(64)), types.int64, target)
    return context.cast(builder, value, source, target)


def _define_number(function: Callable[..., Any], target: Any) -> None:
    """A conversion; floats become floats only (a float to an integer differs between machines)."""

    def result(x: Any) -> Any:
        allowed = isinstance(x, (types.Integer, types.Boolean)) or (
            isinstance(x, types.Float) and isinstance(target, types.Float)
        )
        return target if allowed else None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _convert(context, builder, args[0], signature.args[0], target)

    _define(function, result, emit, 1)


def _define_like() -> None:
    def result(x: Any, like: Any) -> Any:
        return like if isinstance(x, (types.Integer, types.Boolean)) and isinstance(like, types.Integer) else None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _convert(context, builder, args[0], signature.args[0], signature.return_type)

    _define(prim.as_like, result, emit, 2)


def _define_unsigned() -> None:
    def result(x: Any) -> Any:
        return _CARRIERS[f"u{x.name.removeprefix('u')}"] if isinstance(x, types.Integer) else None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[0]

    _define(prim.as_unsigned, result, emit, 1)


def _define_sqrt() -> None:
    def result(x: Any) -> Any:
        return x if isinstance(x, types.Float) else None

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        name = "llvm.sqrt.f32" if isinstance(kind, ir.FloatType) else "llvm.sqrt.f64"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), name)
        return builder.call(function, args)

    _define(prim.sqrt, result, emit, 1)


def _define_primitives() -> None:
    _define_select()
    _define_like()
    _define_unsigned()
    _define_sqrt()
    _define_bits(prim.f32_bits, types.float32, types.uint32)
    _define_bits(prim.bits_f32, types.uint32, types.float32)
    _define_bits(prim.f64_bits, types.float64, types.uint64)
    _define_bits(prim.bits_f64, types.uint64, types.float64)
    numbers = {prim.as_f32: types.float32, prim.as_f64: types.float64}
    for width in (8, 16, 32, 64):
        numbers[getattr(prim, f"as_i{width}")] = _CARRIERS[f"int{width}"]
        numbers[getattr(prim, f"as_u{width}")] = _CARRIERS[f"uint{width}"]
    for function, target in numbers.items():
        _define_number(function, target)
    defined = {
        prim.select,
        prim.as_like,
        prim.as_unsigned,
        prim.sqrt,
        prim.f32_bits,
        prim.bits_f32,
        prim.f64_bits,
        prim.bits_f64,
        *numbers,
    }
    unknown = [function.__name__ for function in prim.PRIMITIVES if function not in defined]
    if unknown:
        raise ImportError(f"primitives without a Numba meaning in {__name__}: {', '.join(unknown)}")


_define_primitives()
for _formula in numerics.FORMULAS:
    inline(_formula)


# --- compilation ------------------------------------------------------------------------------------------------------

# What LLVM may call from engine code: C memory functions, and the correctly rounded C `fmaf` on CPUs without FMA.
_ALLOWED_SYMBOLS = frozenset({"memcpy", "memmove", "memset", "fmaf"})


def _entry_module(function: Any, symbol: str, arity: int) -> ir.Module:
    """A module whose C function `symbol` calls `function`, which takes Numba's result and error slots first."""
    module = ir.Module(name=symbol)
    module.triple = llvm.get_process_triple()
    word = ir.IntType(64)
    slot = ir.IntType(8).as_pointer()
    slots = [slot.as_pointer(), slot.as_pointer()]
    callee = ir.Function(module, ir.FunctionType(ir.IntType(32), [*slots, *[word] * arity]), function)
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [word] * arity), symbol)
    builder = ir.IRBuilder(entry.append_basic_block())
    builder.call(callee, [builder.alloca(slot), builder.alloca(slot), *entry.args])
    builder.ret_void()
    return module


def compile_object(function: Callable[..., Any], arity: int, symbol: str) -> bytes:
    """Compile `function` to an object file that defines the C function `symbol` of `arity` int64 and no result.

    Raises RuntimeError when the code would need anything of the process but memory (an exception, an allocation).
    """
    signature = types.void(*[types.int64] * arity)
    options = {"error_model": "numpy", "boundscheck": False, "_nrt": False}
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    compiler: Any = numba.njit(signature, **options, **wrappers)  # type: ignore[call-overload]
    dispatcher = compiler(function)
    overload = dispatcher.overloads[signature.args]
    codegen = cpu_target.target_context.codegen()
    module = llvm.parse_assembly(str(_entry_module(overload.fndesc.llvm_func_name, symbol, arity)))
    module.data_layout = str(codegen.target_data)
    module.link_in(overload.library._get_module_for_linking(), preserve=True)
    for item in (*module.functions, *module.global_variables):
        if item.is_declaration:
            if not item.name.startswith("llvm.") and item.name not in _ALLOWED_SYMBOLS:
                raise RuntimeError(f"{symbol}: compiled code needs the symbol {item.name!r}")
        elif item.name != symbol:
            # Names of Numba functions repeat between processes, so nothing but the entry may be visible to the linker.
            item.linkage = llvm.Linkage.internal
    module.verify()
    return bytes(codegen._tm.emit_object(module))

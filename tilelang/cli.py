"""The command line: `tilelang run`, `demo`, `show`, `devices`."""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["app", "main"]

app = typer.Typer(
    name="tilelang",
    help="Write Trainium kernels with the public NKI names; trace, check and run them on any CPU.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Target = Annotated[
    str | None, typer.Option("--target", "-t", help="trn1, trn1n, inf2, trn2 (default), trn3, gen2, gen3, gen4.")
]
Mode = Annotated[str | None, typer.Option("--mode", help="native (default), reference or debug.")]
Precision = Annotated[
    str | None, typer.Option("--precision", help="exact (default) or high: low-precision floats stored as float32.")
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, max=128, help="Threads of a run; default all usable cores.")
]
Shapes = Annotated[str | None, typer.Option("--shape", help="Random inputs, e.g. 128x512:bf16,128x512:bf16.")]
Static = Annotated[list[str] | None, typer.Option("--static", help="A keyword argument of the kernel: name=value.")]


def _version(wanted: bool) -> None:
    if wanted:
        from tilelang import __version__

        typer.echo(f"tilelang {__version__}")
        raise typer.Exit


@app.callback()
def _root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False) -> None:
    """Write Trainium kernels with the public NKI names; trace, check and run them on any CPU."""


def _fail(message: str, code: int = 1) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(code)


def _install_nki() -> None:
    """Make `import nki` mean tilelang, also where a real nki is installed (rulings 7)."""
    from importlib.util import find_spec

    if "tilelang.nki" not in sys.modules:
        for name in ("nki", "neuronxcc"):
            if name not in sys.modules and find_spec(name) is not None:
                typer.echo(f"note: the installed {name} is shadowed by tilelang in this process", err=True)
        os.environ.setdefault("TILELANG_SHADOW_NKI", "1")
    import tilelang.nki  # noqa: F401


def _progress() -> None:
    """Say on stderr when engine functions are compiled for the first time."""
    from tilelang.execute.engines import on_compile

    started = time.perf_counter()
    state = {"shown": 0}

    def show(name: str, done: int, total: int) -> None:
        state["shown"] += 1
        seconds = time.perf_counter() - started
        text = f"compiling engines (first run on this machine): {state['shown']} functions, {seconds:.0f} s, {name}"
        sys.stderr.write(
            f"\r{text[:100]:<100}" if sys.stderr.isatty() else "" if state["shown"] > 1 else f"{text.split(':')[0]} …\n"
        )
        sys.stderr.flush()

    on_compile(show)


def _show_error(error: Exception, traceback: bool) -> typer.Exit:
    if traceback:
        raise error
    return _fail(f"{type(error).__name__}: {error}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="A kernel file (FILE or FILE:KERNEL), a script, or with -m a module.")],
    module: Annotated[bool, typer.Option("-m", help="FILE is a module name.")] = False,
    target: Target = None,
    mode: Mode = None,
    debug: Annotated[bool, typer.Option("--debug", help="Same as --mode debug.")] = False,
    precision: Precision = None,
    threads: Threads = None,
    case: Annotated[str | None, typer.Option("--case", help="Only cases whose label contains this text.")] = None,
    shape: Shapes = None,
    static: Static = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of random inputs.")] = 0,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show tracebacks of kernel errors.")] = False,
) -> None:
    """Run a kernel file's cases against their references, or any script with `import nki` meaning tilelang.

    After FILE come names of kernels (a file with cases) or the script's own arguments.
    """
    from tilelang.errors import TileError

    _install_nki()
    _progress()
    chosen = "debug" if debug else mode
    _set_defaults(target, chosen, precision, threads)
    name, _, kernel = file.partition(":") if not module and not Path(file).exists() else (file, "", "")
    try:
        if module or (not kernel and "TILELANG_CASES" not in _text(name)):
            if shape is not None:
                raise _fail("--shape needs FILE:KERNEL", 2)
            _run_script(name, module, context.args)
            return
        from tilelang.cases import load_module

        loaded = load_module(Path(name))
        if shape is not None or (kernel and not hasattr(loaded, "TILELANG_CASES")):
            _run_shapes(loaded, kernel, shape, static or [], seed)
            return
        kernels = (kernel, *context.args) if kernel else tuple(context.args)
        outcomes = _run_cases(loaded, kernels, target, chosen or "native", precision, threads, case, seed)
    except TileError as error:
        raise _show_error(error, traceback) from None
    _print_outcomes(outcomes)
    failed = [o for o in outcomes if not o.ok]
    if failed:
        raise _fail(f"{len(failed)} of {len(outcomes)} cases miss their tolerance")


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except UnicodeDecodeError:
        raise _fail(f"cannot read {path}: it is no Python source (not UTF-8 text)", 2) from None
    except OSError as error:
        raise _fail(f"cannot read {path}: {str(error.strerror or error).lower()}", 2) from None


def _set_defaults(target: str | None, mode: str | None, precision: str | None, threads: int | None) -> None:
    from tilelang.driver import set_defaults
    from tilelang.errors import TileError

    try:
        set_defaults(target=target, mode=mode, precision=precision, threads=threads)
    except TileError as error:
        raise _fail(str(error), 2) from None


def _run_script(name: str, module: bool, arguments: list[str]) -> None:
    sys.argv = [name, *arguments]
    if module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(Path(name).resolve().parent))
    idle = _idle_kernels(runpy.run_path(name, run_name="__main__"))
    if idle:
        typer.echo(
            f"note: {name} defines {', '.join(idle)} but called no kernel; run one with random inputs: "
            f"tilelang run {name}:{idle[0]} --shape 128x512:bf16,…",
            err=True,
        )


def _idle_kernels(names: dict[str, Any]) -> list[str]:
    """Kernels that a script defines, if it has run none of them."""
    from tilelang.driver import Kernel

    kernels = {name: value for name, value in names.items() if isinstance(value, Kernel)}
    return [] if any(kernel.launched for kernel in kernels.values()) else list(kernels)


def _static_value(text: str) -> tuple[str, Any]:
    import ast

    name, equals, value = text.partition("=")
    if not equals:
        raise _fail(f"--static {text!r}: write name=value", 2)
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _kernel_of(loaded: Any, kernel: str) -> Any:
    function = getattr(loaded, kernel, None)
    if function is None or not callable(function):
        raise _fail(f"{loaded.__name__} has no kernel {kernel!r}", 2)
    return function


def _run_shapes(loaded: Any, kernel: str, shape: str | None, static: list[str], seed: int) -> None:
    import numpy as np

    from tilelang import driver
    from tilelang.cases import random_array

    if not kernel or shape is None:
        raise _fail("random inputs need FILE:KERNEL and --shape 128x512:bf16,…", 2)
    rng = np.random.default_rng(seed)
    args = [random_array(part, rng) for part in shape.split(",")]
    keywords = dict(_static_value(text) for text in static)
    function = _kernel_of(loaded, kernel)
    started = time.perf_counter()
    result = driver.simulate(function)(*args, **keywords)
    first = (time.perf_counter() - started) * 1e3
    started = time.perf_counter()
    driver.simulate(function)(*args, **keywords)
    again = (time.perf_counter() - started) * 1e3
    for array in result if isinstance(result, (tuple, list)) else [result]:
        if hasattr(array, "shape"):
            typer.echo(f"result {array.dtype}{list(array.shape)}")
    typer.echo(f"first call {first:.1f} ms, replay {again:.2f} ms")


def _run_cases(
    loaded: Any,
    kernels: tuple[str, ...],
    target: str | None,
    mode: str,
    precision: str | None,
    threads: int | None,
    label: str | None,
    seed: int,
) -> list[Any]:
    from tilelang.cases import cases_of, run_case
    from tilelang.devices import resolve_target

    wanted = resolve_target(target).name
    outcomes = []
    for case in cases_of(loaded, kernels):
        if label is not None and label not in case.label:
            continue
        if target is None and wanted not in case.targets:
            continue
        outcomes.append(run_case(case, target=wanted, mode=mode, precision=precision, threads=threads, seed=seed))
    if not outcomes:
        raise _fail(f"no case of {loaded.__name__} fits (target {wanted}, label {label!r})", 2)
    return outcomes


def _print_outcomes(outcomes: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    # Output that is not a terminal is not cut to 80 columns.
    console = Console() if sys.stdout.isatty() or "COLUMNS" in os.environ else Console(width=150)
    wide = console.width >= 130
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    table.add_column("kernel: case", overflow="fold")
    if wide:
        table.add_column("shapes", overflow="fold")
        table.add_column("dtype", no_wrap=True)
        table.add_column("target", no_wrap=True)
    for head in ("instr.", "error", "ulp", "ms", "NumPy ms", "ratio"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=6)
    for o in outcomes:
        ratio = "" if not o.numpy_milliseconds else f"{o.milliseconds / o.numpy_milliseconds:.2f}"
        numpy_ms = "" if o.numpy_milliseconds is None else f"{o.numpy_milliseconds:.2f}"
        name = f"{o.kernel}: {o.label}"
        row = [name, o.shapes, o.dtype, o.target] if wide else [f"{name}\n  {o.shapes} {o.dtype} {o.target}"]
        row += [str(o.instructions), f"{o.error:.1e}", f"{o.ulp:.3g}", f"{o.milliseconds:.2f}", numpy_ms, ratio]
        table.add_row(*row, "[green]ok[/]" if o.ok else "[red]FAILED[/]")
    console.print(table)
    console.print(
        "error: max|result - float64| / max|float64|; ulp: of the result's dtype; NumPy: the same maths in float32"
    )


# What `demo` shows: (file, kernel, text in the case's label).
_DEMO = (
    ("attention.py", "attention_forward", "bf16 d=128 S=2048"),
    ("attention.py", "attention_forward", "bf16 causal d=128 S=2048"),
    ("attention.py", "attention_forward", "fp32 d=128 S=2048"),
    ("matmul.py", "matmul_blocked", "bf16 1024"),
    ("matmul.py", "matmul_blocked", "fp8 double row 1024"),
    ("matmul.py", "matmul_blocked", "fp32"),
    ("softmax.py", "softmax", "4096"),
    ("rmsnorm.py", "rmsnorm", "4096"),
    ("activation.py", "gelu", "2048x2048"),
    ("activation.py", "silu", "2048x2048"),
    ("activation.py", "swiglu", "2048x2048"),
    ("int8.py", "quantize_rows", "1024"),
    ("int8.py", "dequantize_rows", "1024"),
    ("int8.py", "int8_weight_matmul", "1024"),
    ("int8.py", "int8_matmul", ""),
)


def _kernel_folder(given: Path | None) -> Path:
    places = [given] if given else [Path.cwd() / "kernels", Path(__file__).resolve().parent.parent / "kernels"]
    for place in places:
        if place is not None and (place / "attention.py").is_file():
            return place
    raise _fail("the kernel library is not here: run this in a checkout of the project, or pass --kernels DIR", 2)


@app.command()
def demo(
    kernels: Annotated[Path | None, typer.Option("--kernels", help="Folder of the kernel library.")] = None,
    threads: Threads = None,
) -> None:
    """Run fused attention, matmul, softmax, RMSNorm, activations and int8 kernels: error against float64, time
    against NumPy.
    """
    folder = _kernel_folder(kernels)
    _install_nki()
    _progress()
    from tilelang.cases import cases_of, load_module, run_case

    started = time.perf_counter()
    outcomes = []
    for file, kernel, label in _DEMO:
        found = [c for c in cases_of(load_module(folder / file), (kernel,)) if label in c.label]
        outcomes.append(run_case(found[-1], target="trn2", threads=threads))
    if sys.stderr.isatty():
        sys.stderr.write("\r" + " " * 100 + "\r")
    _print_outcomes(outcomes)
    failed = [o for o in outcomes if not o.ok]
    typer.echo(
        f"\n{len(outcomes) - len(failed)} of {len(outcomes)} kernels within tolerance of float64, "
        f"{time.perf_counter() - started:.0f} s in all.\nNext: tilelang run kernels/attention.py, and README.md."
    )
    if failed:
        raise typer.Exit(1)


@app.command()
def show(
    file: Annotated[str, typer.Argument(help="FILE:KERNEL.")],
    shape: Shapes = None,
    static: Static = None,
    target: Target = None,
) -> None:
    """Print the traced program of a kernel as text."""
    import numpy as np

    from tilelang import driver
    from tilelang.cases import load_module, random_array
    from tilelang.errors import TileError

    _install_nki()
    name, _, kernel = file.partition(":")
    if not kernel or shape is None:
        raise _fail("tilelang show needs FILE:KERNEL and --shape 128x512:bf16,…", 2)
    _text(name)
    try:
        loaded = load_module(Path(name))
        args = [random_array(part, np.random.default_rng(0)) for part in shape.split(",")]
        keywords = dict(_static_value(text) for text in static or [])
        compiled = driver.compile(driver.simulate(_kernel_of(loaded, kernel), target=target), *args, **keywords)
    except TileError as error:
        raise _show_error(error, False) from None
    typer.echo(str(compiled.program))


@app.command()
def devices() -> None:
    """List the devices a kernel can be traced for."""
    from rich.console import Console
    from rich.table import Table

    from tilelang.devices import get_device

    names = ("trn1", "trn1n", "inf2", "trn2", "trn3")
    found = [get_device(name) for name in names]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for device in found:
        table.add_column(device.name, justify="right")
    clocks = dict.fromkeys(engine for device in found for engine in device.clocks)
    rows: list[tuple[str, list[Any]]] = [
        ("generation", [int(d.generation) for d in found]),
        ("partitions", [d.partitions for d in found]),
        ("SBUF per partition, KiB", [d.sbuf_bytes // 1024 for d in found]),
        ("  usable, bytes", [d.sbuf_usable_bytes for d in found]),
        ("PSUM per partition, KiB", [d.psum_bytes // 1024 for d in found]),
        ("PSUM banks", [d.psum_banks for d in found]),
        ("cores per program, at most", [d.max_lnc for d in found]),
        *((f"{engine} clock, GHz", [d.clocks[engine] for d in found]) for engine in clocks),
    ]
    for title, values in rows:
        table.add_row(title, *(str(value) for value in values))
    Console().print(table)


def main() -> None:
    """Entry point of the `tilelang` command."""
    app()

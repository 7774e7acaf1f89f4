"""The package `neuronxcc.nki`: the dialect of NKI before `import nki` (language.md 8), over the modern instructions.

`import tilelang.nki` makes it importable. A real `neuronxcc` is never shadowed unless asked (see `tilelang.nki`).
"""

from __future__ import annotations

from types import ModuleType

from tilelang.beta1 import compiler, isa, kernel, language

__all__ = ["modules"]

_NAMES = ("dge_mode", "engine", "oob_mode", "reduce_cmd", "nc_version", "matmul_perf_mode")


def _module(name: str, doc: str, **contents: object) -> ModuleType:
    module = ModuleType(name, doc)
    vars(module).update(contents)
    module.__path__ = []
    return module


def modules(typing: ModuleType) -> dict[str, ModuleType]:
    """The modules by the names they are imported under; `typing` is that of `nki`."""
    constants = {name: getattr(isa, name) for name in _NAMES}
    nki = _module(
        "neuronxcc.nki",
        "The older dialect of NKI.",
        jit=kernel.jit,
        baremetal=kernel.baremetal,
        benchmark=kernel.benchmark,
        profile=kernel.profile,
        simulate_kernel=kernel.simulate_kernel,
        trace=kernel.trace,
        tensor=typing.tensor,
        language=language,
        isa=isa,
        compiler=compiler,
        typing=typing,
    )
    return {
        "neuronxcc": _module("neuronxcc", "Holds `neuronxcc.nki`.", nki=nki),
        "neuronxcc.nki": nki,
        "neuronxcc.nki.language": language,
        "neuronxcc.nki.isa": isa,
        "neuronxcc.nki.isa.constants": _module("neuronxcc.nki.isa.constants", "", fp32=language.fp32, **constants),
        "neuronxcc.nki.compiler": compiler,
        "neuronxcc.nki.typing": typing,
    }

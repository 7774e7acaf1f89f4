"""The simulator package that the harness of aws-neuron/nki-library imports, over tilelang.

Importing it registers `nki_cpu_simulator.nki` and its modules; `nki.cpu_simulate(kernel)[lnc](**inputs)` runs a kernel.
"""

from __future__ import annotations

import sys
from types import ModuleType

import tilelang.nki as _nki
from tilelang import collectives, isa, language
from tilelang.nki import compiler, dtype, isa_constants, typing

_MODULES: dict[str, ModuleType] = {
    "builtin": ModuleType(f"{__name__}.nki.builtin"),
    "collectives": collectives,
    "compiler": compiler,
    "isa": isa,
    "isa.constants": isa_constants,
    "language": language,
    "language.dtypes": dtype,
    "tensor": ModuleType(f"{__name__}.nki.tensor"),
    "typing": typing,
}

nki = ModuleType(f"{__name__}.nki")
vars(nki).update({name: value for name, value in vars(_nki).items() if not name.startswith("__")})
# Marked as a package: the harness imports modules below it.
nki.__path__ = []
sys.modules[nki.__name__] = nki
for _name, _module in _MODULES.items():
    sys.modules[f"{nki.__name__}.{_name}"] = _module
    if "." not in _name:
        setattr(nki, _name, _module)
vars(language)["dtypes"] = dtype

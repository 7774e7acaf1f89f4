"""Native engines: compiled functions by name.

Import names from here; numba is imported only when a function has to be compiled. `registry.py` lists the families of
names.
"""

from tilelang.execute.engines.registry import address, addresses, engine_address, on_compile

__all__ = ["address", "addresses", "engine_address", "on_compile"]

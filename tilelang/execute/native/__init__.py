"""Native bodies: how each instruction becomes records of the compiled engines. One function per instruction, found by
name.
"""

from tilelang.execute.native.template import NATIVE, Record, records_of

__all__ = ["NATIVE", "Record", "records_of"]

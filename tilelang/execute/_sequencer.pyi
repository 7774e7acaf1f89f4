from typing import Any

MEETING: int
OFFSET: int

def run(
    program: Any, status: Any, nregisters: int = 0, nthreads: int = 1, registers: Any = None, start: int = 0
) -> int: ...

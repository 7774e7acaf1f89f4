"""Storage: one allocation. Knows its size and place, never its content."""

from __future__ import annotations

from math import prod
from operator import index as as_index
from typing import Any

from tilelang.dtypes import Format
from tilelang.errors import TileIndexError, TileRuleError, TileTypeError, TileValueError
from tilelang.ir.regions import MemoryRegion, is_on_chip

__all__ = ["PARTITIONS", "PSUM_BANK_BYTES", "Storage", "check_shape"]

PARTITIONS = 128
PSUM_BANK_BYTES = 2048  # per partition (language.md section 2.1)
KINDS = ("local", "input", "output", "constant")


class Storage:
    """One allocation in one memory; equality and hash by identity.

    Parameters: `shape` positive ints, rank >= 1; `fmt` the storage format; `buffer` the memory; `name` a label;
    `address` None or (first partition, byte within the partition), on-chip only; `site` where it was allocated (opaque
    here); `kind` "local", "input", "output" or "constant".

    | attribute | on-chip | HBM |
    |---|---|---|
    | `partitions` | `shape[0]` | 1 |
    | `row_elements` | elements per partition, `prod(shape[1:])` | all elements |
    | `row_bytes` | bytes per partition | all bytes |
    | `nbytes` | bytes over all partitions | all bytes |

    `index` is the ordinal given by the builder (-1 before), `data` the content of a constant, `link` what the cores of
    one launch know shared HBM by (None: the core's own). Element (p, f) of an on-chip
    storage has the element number `p * row_elements + f`: partitions are numbered through although they are
    physically apart.
    """

    __slots__ = (
        "__weakref__",
        "address",
        "buffer",
        "data",
        "fmt",
        "index",
        "kind",
        "link",
        "name",
        "nbytes",
        "on_chip",
        "partitions",
        "row_bytes",
        "row_elements",
        "shape",
        "site",
    )

    def __init__(
        self,
        shape: Any,
        fmt: Format,
        buffer: MemoryRegion,
        name: str = "",
        address: Any = None,
        site: Any = None,
        kind: str = "local",
    ) -> None:
        if kind not in KINDS:
            raise TileValueError(f"storage kind {kind!r} is not one of {', '.join(KINDS)}")
        self.shape: tuple[int, ...] = check_shape(shape)
        self.fmt = fmt
        self.buffer = buffer
        self.name = name
        self.site = site
        self.kind = kind
        self.index = -1
        self.data: Any = None
        self.link: tuple[str, int] | None = None
        self.on_chip: bool = is_on_chip(buffer)
        self.partitions: int = self.shape[0] if self.on_chip else 1
        self.row_elements: int = prod(self.shape[1:]) if self.on_chip else prod(self.shape)
        self.row_bytes: int = self.row_elements * fmt.itemsize
        self.nbytes: int = self.row_bytes * self.partitions
        self.address: tuple[int, int] | None = None if address is None else self._check_address(address)

    @property
    def itemsize(self) -> int:
        """Bytes per element of the storage's own format."""
        return self.fmt.itemsize

    def __repr__(self) -> str:
        return f"<Storage {self.describe()}>"

    def __copy__(self) -> Storage:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Storage:
        return self

    def describe(self) -> str:
        """Memory, format, shape and name in one phrase: `sbuf bfloat16[128, 512] 'x'`."""
        name = f" {self.name!r}" if self.name else ""
        return f"{self.buffer} {self.fmt.name}[{', '.join(map(str, self.shape))}]{name}"

    def _check_address(self, address: Any) -> tuple[int, int]:
        """`address` as (partition, byte). The placement rule of engine operands is checked where an engine uses a
        view."""
        if not self.on_chip:
            raise TileValueError(
                f"address={address!r} is given for {self.describe()}; only sbuf and psum tensors are placed by hand",
                rule="LANG.R202",
                hint="leave address out",
            )
        try:
            partition, byte = (_plain_int(part) for part in address)
        except (TypeError, ValueError):
            raise TileTypeError(
                f"address={address!r} is not a pair of ints",
                rule="LANG.R202",
                hint="address=(first partition, byte offset within the partition)",
            ) from None
        if partition < 0 or partition + self.partitions > PARTITIONS:
            raise TileIndexError(
                f"address={address!r}: {self.describe()} would occupy partitions {partition}.."
                f"{partition + self.partitions - 1}; the memory has 0..{PARTITIONS - 1}",
                rule="LANG.R202",
                hint=f"start at partition {max(0, PARTITIONS - self.partitions)} or lower",
            )
        if byte < 0:
            raise TileIndexError(f"address={address!r}: the byte offset is negative", rule="LANG.R202")
        if self.buffer is MemoryRegion.psum and byte % PSUM_BANK_BYTES:
            raise TileRuleError(
                f"address={address!r}: byte {byte} of psum is not the start of a bank "
                f"(a multiple of {PSUM_BANK_BYTES})",
                rule="GEN.R15",
                hint=f"use byte offset bank * {PSUM_BANK_BYTES}, e.g. {byte // PSUM_BANK_BYTES * PSUM_BANK_BYTES}",
            )
        return partition, byte


def check_shape(shape: Any) -> tuple[int, ...]:
    """`shape` as a tuple of positive ints. Raises TileTypeError or TileValueError."""
    if not isinstance(shape, (tuple, list)):
        raise TileTypeError(
            f"shape={shape!r} is not a tuple of ints", rule="LANG.R201", hint="a one-dimensional shape is written (n,)"
        )
    try:
        sizes = tuple([_plain_int(size) for size in shape])
    except TypeError:
        raise TileTypeError(
            f"shape={shape!r} holds something that is not a Python int",
            rule="LANG.R201",
            hint="shapes are known while tracing; registers and tensors cannot be sizes",
        ) from None
    if not sizes or min(sizes) < 1:
        raise TileValueError(
            f"shape={shape!r}: a tensor has at least one dim and every dim at least one element", rule="LANG.R201"
        )
    return sizes


def _plain_int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool):
        raise TypeError("bool is not a size")
    return as_index(value)

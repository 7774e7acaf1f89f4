"""`NkiTensor`: the handle kernels hold. A strided window on a storage; no data (language.md section 2.5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilelang.dtypes import format_of
from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir import hooks
from tilelang.ir.access import Access, OutOfBounds
from tilelang.ir.handle import check_bounds, make
from tilelang.ir.indexing import Indexing
from tilelang.ir.operators import DeviceOperators
from tilelang.ir.regions import MemoryRegion
from tilelang.ir.storage import Storage, check_shape
from tilelang.ir.views import Views

__all__ = ["NkiTensor"]

_OPERATOR_HINTS = {
    "+": "nl.add(a, b) or nisa.tensor_tensor(dst, a, b, op=nl.add)",
    "-": "nl.subtract(a, b) or nisa.tensor_tensor(dst, a, b, op=nl.subtract)",
    "*": "nl.multiply(a, b) or nisa.tensor_tensor(dst, a, b, op=nl.multiply)",
    "/": "nl.divide(a, b)",
    "//": "nl.floor(nl.divide(a, b))",
    "%": "nl.mod(a, b)",
    "**": "nl.power(a, b) or nisa.tensor_tensor(dst, a, b, op=nl.power)",
    "@": "nl.matmul(a, b) or nisa.nc_matmul(dst, stationary, moving)",
    "<<": "nl.left_shift(a, b)",
    ">>": "nl.right_shift(a, b)",
    "&": "nl.bitwise_and(a, b)",
    "|": "nl.bitwise_or(a, b)",
    "^": "nl.bitwise_xor(a, b)",
    "<": "nl.less(a, b)",
    "<=": "nl.less_equal(a, b)",
    ">": "nl.greater(a, b)",
    ">=": "nl.greater_equal(a, b)",
}


class NkiTensor(Indexing, Views, Access, DeviceOperators):
    """A window on one storage: element (i0, i1, …) is storage element `offset + i0 * strides[0] + i1 * strides[1] …`.

    Attributes: `storage`, `shape` and `strides` (tuples; strides in elements of `dtype`, 0 for broadcast dims),
    `offset` (elements of `dtype`), `dtype` (an `nl` name), `buffer`, `name`, `ndim`, `size`, and `dynamic`, the part
    of the address that is read at run time (None or a `Dynamic`). Fresh tensors are row-major; the partition stride of
    on-chip tensors is the number of elements per partition of the storage. `==` and `hash` compare identities.

    The constructor binds an existing storage and is not for kernels: `shape` elements of `dtype` from its start;
    `buffer`, `name` and `address` must agree with the storage.
    """

    __slots__ = ()

    def __init__(
        self,
        shape: Any,
        dtype: Any,
        storage: Storage,
        buffer: MemoryRegion = MemoryRegion.sbuf,
        name: str = "",
        address: Any = None,
    ) -> None:
        if buffer is not storage.buffer or (name and name != storage.name):
            raise TileValueError(f"NkiTensor: buffer={buffer}, name={name!r} do not describe {storage.describe()}")
        if address is not None and tuple(address) != storage.address:
            raise TileValueError(f"NkiTensor: address={address!r}, but {storage.describe()} is at {storage.address}")
        self.storage = storage
        self.shape = check_shape(shape)
        self.dtype = format_of(dtype).name
        self.strides = _fresh_strides(self.shape, storage, self.itemsize)
        self.offset = 0
        self.dynamic = None
        self._key = None
        self._span = None
        check_bounds(self, "NkiTensor")

    @classmethod
    def over(cls, storage: Storage) -> NkiTensor:
        """The tensor that covers all of `storage`, row-major."""
        shape = storage.shape
        return make(cls, storage, shape, _fresh_strides(shape, storage, storage.itemsize), 0, storage.fmt.name)

    @property
    def name(self) -> str:
        """The label of the storage."""
        return self.storage.name

    @property
    def data(self) -> NkiTensor:
        """The tensor itself, so that code for tile grids (`grid.data`) takes tensors too."""
        return self

    # Identity: kernels compare tensors with None hundreds of times.
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[NkiTensor]:
        for position in range(self.shape[0]):
            yield self[position]

    def __setitem__(self, key: Any, value: Any) -> None:
        if hooks.assign is None:
            raise TileTypeError(
                f"assignment into {self.describe()} works only inside a kernel",
                rule="LANG.R225",
                hint="write with an instruction: nisa.tensor_copy(dst=t[...], src=value) or nisa.dma_copy",
            )
        hooks.assign(self[key], value)

    def _operate(self, symbol: str, left: Any, right: Any) -> Any:
        if hooks.tensor_op is not None:
            return hooks.tensor_op(symbol, left, right)
        raise TileTypeError(
            f"operator {symbol} is not defined for tensors: {_shown(left)} {symbol} {_shown(right)}",
            rule="LANG.R226",
            hint=f"use {_OPERATOR_HINTS[symbol]}",
        )

    def _compare(self, symbol: str, other: Any) -> Any:
        return self._operate(symbol, self, other)

    def __neg__(self) -> Any:
        return self._operate("*", self, -1)

    def _content(self, use: str) -> Any:
        """The current content as a NumPy array, where it exists."""
        reader = hooks.reader()
        if reader is None:
            raise TileTypeError(
                f"{use} of {self.describe()}: the content of a tensor does not exist while the kernel is traced",
                rule="LANG.R227",
                hint='run with mode="debug" (tilelang run --debug), or use nl.device_print',
            )
        return reader(self)

    def __bool__(self) -> bool:
        return bool((self._content("the truth value") != 0).all())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        content = self._content("the NumPy array")
        if dtype is not None and content.dtype != dtype:
            if copy is False:
                raise ValueError(f"an array of {dtype} from {self.describe()} needs a copy")
            return content.astype(dtype)
        return content.copy() if copy else content

    def item(self) -> Any:
        """The one element of the tensor as a Python number. Exists in debug mode only."""
        if self.size != 1:
            raise TileValueError(f"item of {self.describe()}: it has {self.size} elements, not 1")
        return self._content("the value").reshape(-1)[0].item()

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __str__(self) -> str:
        return f"{self.describe()}\n{self._content('print')}"

    def __repr__(self) -> str:
        text = f"<NkiTensor {self.describe()}>"
        reader = hooks.reader()
        return text if reader is None else f"{text}\n{reader(self)}"


def _fresh_strides(shape: tuple[int, ...], storage: Storage, itemsize: int) -> tuple[int, ...]:
    steps: list[int] = []
    step = 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    if storage.on_chip:
        steps[-1] = storage.row_bytes // itemsize
    steps.reverse()
    return tuple(steps)


def _shown(value: Any) -> str:
    return value.describe() if isinstance(value, NkiTensor) else repr(value)


OutOfBounds.stands_for = NkiTensor

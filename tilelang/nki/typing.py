"""`nki.typing`: annotations of kernel arguments. Shapes are checked when the kernel is called, the rest documents."""

from __future__ import annotations

from typing import Any

from tilelang.errors import TileTypeError
from tilelang.ir.storage import check_shape

__all__ = ["TensorAnnotation", "mutable", "mutable_tensor", "scalar", "tensor"]


class _Mutable:
    """Marks an argument that the kernel writes. All arguments may be written; the mark documents it."""

    def __repr__(self) -> str:
        return "nki.typing.mutable"


mutable = _Mutable()


class TensorAnnotation:
    """`nt.tensor[128, 512]`: a tensor argument of shape `shape`, a tuple of ints, or of any shape when it is None."""

    def __init__(self, shape: tuple[int, ...] | None, is_mutable: bool = False) -> None:
        self.shape = shape
        self.is_mutable = is_mutable

    def __getitem__(self, item: Any) -> TensorAnnotation:
        sizes = item if isinstance(item, tuple) else (item,)
        marked = any(size is mutable for size in sizes)
        sizes = tuple(size for size in sizes if size is not mutable)
        return TensorAnnotation(check_shape(sizes) if sizes else self.shape, self.is_mutable or marked)

    # `tensor[…] | None` and `Optional[tensor[…]]` are annotations too.
    def __or__(self, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TileTypeError(f"{self!r} is an annotation, not a constructor", hint="tensors are made with nl.ndarray")

    def __repr__(self) -> str:
        name = "nki.typing.mutable_tensor" if self.is_mutable else "nki.typing.tensor"
        return name if self.shape is None else f"{name}[{', '.join(map(str, self.shape))}]"


tensor = TensorAnnotation(None)
mutable_tensor = tensor[mutable]
scalar = int | float

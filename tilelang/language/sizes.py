"""`nl.tile_size`: limits of the target of the running kernel (language.md section 2.2)."""

from __future__ import annotations

import os

from tilelang.devices import Device, resolve_target
from tilelang.ir.context import active_builder

__all__ = ["TileSize", "tile_size"]

_FP32_BYTES = 4


def _device() -> Device:
    builder = active_builder()
    device: Device = resolve_target() if builder is None else builder.device
    return device


class TileSize:
    """Sizes of memories and tiles. Inside a kernel they are those of its target, outside of the default target.

    Names with `bytes` are bytes, others elements; `sbuf_fmax` and `psum_fmax` count float32 elements. All are per
    partition except `pmax`, `psum_num_banks` and `sbuf_size_bytes`.
    """

    __slots__ = ()

    @property
    def pmax(self) -> int:
        """Partitions of SBUF and PSUM."""
        return _device().partitions

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes of one PSUM bank."""
        return _device().psum_bank_bytes

    @property
    def psum_bank_fmax(self) -> int:
        """float32 elements of one PSUM bank."""
        return self.psum_bank_fmax_bytes // _FP32_BYTES

    @property
    def psum_fmax(self) -> int:
        """Older name of `psum_bank_fmax`."""
        return self.psum_bank_fmax

    @property
    def psum_num_banks(self) -> int:
        """PSUM banks; one fewer when NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE=true reserves the last (generation 3 on)."""
        device = _device()
        reserved = os.environ.get("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "").lower() == "true" and device.generation >= 3
        return device.psum_banks - int(reserved)

    @property
    def gemm_stationary_fmax(self) -> int:
        """Largest free size of the stationary operand of a matmul."""
        return int(_device().limits["gemm_stationary_fmax"])

    @property
    def gemm_moving_fmax(self) -> int:
        """Largest free size of the moving operand of a matmul."""
        return int(_device().limits["gemm_moving_fmax"])

    @property
    def bn_stats_fmax(self) -> int:
        """Largest free size of `nisa.bn_stats`."""
        return int(_device().limits["bn_stats_fmax"])

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF over all partitions."""
        device = _device()
        return device.sbuf_bytes * device.partitions

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Usable SBUF bytes of a partition."""
        return _device().sbuf_usable_bytes

    @property
    def sbuf_fmax(self) -> int:
        """Usable float32 elements of a partition."""
        return self.sbuf_fmax_bytes // _FP32_BYTES

    @property
    def total_available_sbuf_size(self) -> int:
        """Older name of `sbuf_fmax_bytes`: per partition in spite of the name."""
        return self.sbuf_fmax_bytes

    @property
    def psum_min_align(self) -> int:
        """Alignment of PSUM addresses, in bytes."""
        return 4

    @property
    def sbuf_min_align(self) -> int:
        """Alignment of SBUF addresses, in bytes."""
        return 1

    def __repr__(self) -> str:
        return f"nl.tile_size of {_device().name}"


tile_size = TileSize()

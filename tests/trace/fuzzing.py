"""Random kernels from valid views and instructions: the same numbers always make the same kernel."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilelang.isa as nisa
import tilelang.language as nl
from tilelang.errors import TileError
from tilelang.ir.tensor import NkiTensor

__all__ = ["RandomKernel", "inputs"]

DTYPES = ("float32", "float32", "float32", "bfloat16", "int32", "uint8", "float16")
BINARY = (nl.add, nl.subtract, nl.multiply, nl.maximum, nl.minimum)
ROWS, COLUMNS = 128, 48


def inputs(seed: int) -> list[NDArray[Any]]:
    """Arguments of a kernel: values, and small indices of which some may be out of range."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-9, 10, (ROWS, COLUMNS)).astype(np.float32) / 4
    return [
        values,
        rng.integers(0, 6, (ROWS, 4)).astype(np.int32),
        rng.integers(0, 120, (8, COLUMNS)).astype(np.float32),
    ]


def used(view: NkiTensor) -> NkiTensor:
    """`view`; raises at once when it lies outside its storage, which else its first use does."""
    assert view.shape
    return view


class RandomKernel:
    """A kernel of `length` random steps. The first trace tries each step and notes which are legal; later ones replay
    those.

    `wild` lets dynamic indices leave their range, so that runs may end in errors.
    """

    def __init__(self, seed: int, length: int, *, wild: bool = False, loops: bool = True) -> None:
        self.seed = seed
        self.length = length
        self.wild = wild
        self.loops = loops
        self.legal: list[bool] | None = None
        self.ends: dict[
            Any, tuple[Any, list[bool]]
        ] = {}  # by the state before a loop: the state and decisions after it

    def __call__(self, x: Any, indices: Any, table: Any) -> Any:
        self.random = Random(self.seed)
        self.tried: list[bool] = []
        self.tiles: list[NkiTensor] = []
        self.registers: list[Any] = []
        self.depth = 0
        self.arguments = x, indices, table
        self.index = nl.ndarray((ROWS, 4), nl.int32)
        nisa.dma_copy(self.index, indices)
        self.out = nl.ndarray((ROWS, COLUMNS), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(self.out, x)
        self.registers.append(nisa.register_alloc(self.random.randint(0, 5)))
        for number in range(self.random.randint(4, 7)):
            self.new_tile(filled=number < 2 or self.random.random() < 0.7, psum=number == 2)
        for _ in range(self.length):
            self.step()
        results = [self.saved(tile) for tile in self.tiles]
        if self.legal is None:
            self.legal = self.tried
        assert self.tried == self.legal, "the kernel took another course than when it was traced first"
        return (self.out, table, *results)

    def attempt(self, action: Callable[[], Any]) -> bool:
        """Do `action` when it is legal."""
        number = len(self.tried)
        if self.legal is not None:
            legal = self.legal[number]
            self.tried.append(legal)
            if legal:
                action()
            return legal
        self.tried.append(True)
        try:
            action()
        except TileError:
            self.tried[number] = False
        return self.tried[number]

    # -- tensors -------------------------------------------------------------------------------------------------------

    def new_tile(self, filled: bool, psum: bool = False) -> None:
        pick = self.random
        dtype, psum = pick.choice(DTYPES), psum or pick.random() < 0.1
        rows = pick.choice((128, 128, 64, 32, 16, 5))
        shape: tuple[int, ...] = pick.choice(((rows, COLUMNS), (rows, 6, 8), (rows, 2, 3, 8), (rows, 300), (rows, 4)))
        address = None
        if pick.random() < 0.35:
            start = pick.choice([s for s in (0, 32, 64, 96) if s + rows <= 128])
            address = (start, pick.choice((0, 2048) if psum else (0, 64, 100, 128, 2048, 1000)))
        filled = filled and not (psum and pick.random() < 0.7)  # matmuls begin on fresh PSUM
        tile = nl.ndarray(shape, "float32" if psum else dtype, buffer=nl.psum if psum else nl.sbuf, address=address)
        if filled:
            if self.depth == 0 and pick.random() < 0.5 and shape[-1] <= COLUMNS and tile.F <= COLUMNS and not psum:
                source = self.arguments[0][:rows, 0 : tile.F]
                self.attempt(lambda: nisa.dma_copy(tile, source))
            else:
                value = pick.randint(0, 5)
                self.attempt(lambda: nisa.memset(tile, value))
        self.tiles.append(tile)

    def view(self, tensor: NkiTensor, changes: int = 2) -> NkiTensor:
        """A random view of `tensor`, statically within bounds."""
        for _ in range(self.random.randint(0, changes)):
            made: list[NkiTensor] = []
            change = self.random.choice(
                (self.cut, self.cut, self.cut, self.turn, self.pattern, self.shift, self.spread)
            )
            pick = Random(self.random.getrandbits(32))  # its own, so that a change left out leaves the others alone
            self.attempt(lambda change=change, tensor=tensor, made=made, pick=pick: made.append(change(tensor, pick)))
            tensor = made[0] if made else tensor
        return tensor

    def cut(self, tensor: NkiTensor, pick: Random) -> NkiTensor:
        dim = pick.randrange(tensor.ndim)
        size = tensor.shape[dim]
        if dim == 0 and tensor.on_chip:
            start = pick.choice([s for s in (0, 32, 64) if s < size])
            return tensor.slice(0, start, pick.randint(start + 1, size))
        start = pick.randrange(size)
        stop = pick.randint(start + 1, size)
        return tensor.slice(dim, start, stop, pick.choice((1, 1, 1, 2, 3)))

    def turn(self, tensor: NkiTensor, pick: Random) -> NkiTensor:
        order = list(range(1, tensor.ndim))
        pick.shuffle(order)
        return tensor.permute((0, *order))

    def pattern(self, tensor: NkiTensor, pick: Random) -> NkiTensor:
        storage = tensor.storage
        counts = [pick.choice((1, 2, 3, 5, 8)) for _ in range(pick.randint(1, 3))]
        pairs = [[pick.choice((0, 1, 2, 3, 7)), count] for count in counts]
        return used(tensor.ap([[storage.row_elements, tensor.P], *pairs], dtype=tensor.dtype))

    def shift(self, tensor: NkiTensor, pick: Random) -> NkiTensor:
        """A dynamic index, from a register, a scalar or a tile."""
        dim = pick.randrange(1 if tensor.on_chip else 0, tensor.ndim)
        column = pick.randrange(4)
        source: Any = pick.choice(self.registers) if self.registers and pick.random() < 0.6 else None
        row = 0 if self.depth or pick.random() < 0.5 else 64
        source = self.index[row : row + 1, column : column + 1] if source is None else source
        if not self.wild and tensor.shape[dim] < 6:
            return tensor
        if pick.random() < 0.5:
            return tensor.select(dim, source)
        rest = [[s, n] for s, n in zip(tensor.strides, tensor.shape, strict=True)]
        rest[dim][1] = pick.randint(1, max(1, tensor.shape[dim] - 6))
        return used(tensor.ap(rest, scalar_offset=source, indirect_dim=dim))

    def spread(self, tensor: NkiTensor, pick: Random) -> NkiTensor:
        dim = pick.randrange(1, tensor.ndim) if tensor.ndim > 1 else 0
        return tensor.select(dim, pick.randrange(tensor.shape[dim])).expand_dim(1).broadcast(1, 3)

    def operand(self, *, psum: bool | None = None) -> NkiTensor:
        """A view of a tile; in PSUM or not as asked for."""
        tiles = [t for t in self.tiles if psum is None or (t.buffer is nl.psum) == psum]
        return self.view(self.random.choice(tiles or self.tiles))

    def alike(self, *tensors: NkiTensor) -> list[NkiTensor]:
        """Views of `tensors` of rank 2 with equal partition and element counts, where they can be flattened."""
        rows = min(t.P for t in tensors)
        columns = min(t.F for t in tensors)
        made = []
        for tensor in tensors:
            flat: list[NkiTensor] = []
            start = self.random.randint(0, tensor.F - columns)
            step = 2 if self.random.random() < 0.2 and 2 * columns <= tensor.F else 1
            start = 0 if step == 2 else start

            def cut(
                tensor: NkiTensor = tensor, flat: list[NkiTensor] = flat, start: int = start, step: int = step
            ) -> None:
                whole = tensor if tensor.ndim == 2 else tensor.flatten_dims(1, tensor.ndim - 1)
                flat.append(whole.slice(0, 0, rows).slice(1, start, start + (columns - 1) * step + 1, step))

            self.attempt(cut)
            made.append(flat[0] if flat else tensor)
        return made

    def saved(self, tile: NkiTensor) -> NkiTensor:
        if tile.buffer is nl.psum:
            staged = nl.ndarray(tile.shape, tile.dtype)
            rows = min(tile.P, 32) if tile.start_partition % 64 else min(tile.P, 64)
            rows = tile.P if tile.start_partition == 0 else rows
            nisa.memset(staged, 0)
            nisa.tensor_copy(staged[:rows], tile[:rows])
            tile = staged
        result = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(result, tile)
        return result

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        choices = [self.elementwise] * 5 + [self.copy] * 3 + [self.move] * 3 + [self.product] * 3
        choices += [self.others] * 3 + [
            self.fill,
            self.reduce,
            self.rows,
            self.flip,
            self.registers_step,
            self.registers_step,
            self.allocate,
        ]
        if self.loops and self.depth < 2:
            choices += [self.loop] * 3
        self.random.choice(choices)()

    def allocate(self) -> None:
        self.new_tile(filled=self.random.random() < 0.5)

    def fill(self) -> None:
        dst, value = self.operand(), self.random.randint(0, 3)
        self.attempt(lambda: nisa.memset(dst, value))

    def copy(self) -> None:
        dst, src = self.alike(self.operand(), self.operand())
        self.attempt(lambda: nisa.tensor_copy(dst, src))

    def elementwise(self) -> None:
        dst, first, second = self.alike(self.operand(), self.operand(), self.operand())
        if self.random.random() < 0.3:
            first = dst
        op, number = self.random.choice(BINARY), self.random.randint(-2, 2)
        kind = self.random.randrange(4)
        if kind == 0:
            self.attempt(lambda: nisa.tensor_scalar(dst, first, op, float(number)))
        elif kind == 1:
            self.attempt(lambda: nisa.tensor_scalar(dst, first, op, second[:, 0:1]))
        elif kind == 2:
            flags = self.flags(dst)
            self.attempt(lambda: nisa.tensor_copy_predicated(dst, first, flags))
        else:
            self.attempt(lambda: nisa.tensor_tensor(dst, first, second, op))

    def flags(self, like: NkiTensor) -> NkiTensor:
        """A predicate for `like`: small integers, or bits of its own storage."""
        own = self.random.random() < 0.3
        kind = self.random.choice((nl.uint8, nl.uint16))
        made: list[NkiTensor] = []
        tiles = [tile for tile in self.tiles if tile.dtype in ("uint8", "int32")]
        source = NkiTensor.over(like.storage) if own else self.view(self.random.choice(tiles or self.tiles))

        def cut() -> None:
            whole = source if source.ndim == 2 else source.flatten_dims(1, source.ndim - 1)
            made.append(whole.view(kind)[: like.P, : like.F])

        self.attempt(cut)
        return made[0] if made else source

    def others(self) -> None:
        """Instructions with several inputs, results of their own size, or a second output."""
        dst, first, second = self.alike(self.operand(), self.operand(), self.operand())
        first = dst if self.random.random() < 0.3 else first
        column = self.alike(dst, self.operand())[1][:, 0:1]
        spare = self.random.choice((column, None, second[:, 0:1]))
        command = self.random.choice((nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce))
        index = [[1, dst.F]]
        flags = self.flags(dst)
        self.attempt(
            self.random.choice(
                (
                    lambda: nisa.activation(dst, nl.relu, first, bias=0.0, scale=column if spare is None else 2.0),
                    lambda: nisa.activation_reduce(dst, nl.square, first, nl.add, spare or column),
                    lambda: nisa.tensor_tensor_scan(dst, first, second, 1.0, nl.multiply, nl.add),
                    lambda: nisa.tensor_scalar_reduce(dst, first, nl.add, 1.0, nl.maximum, spare, reduce_cmd=command),
                    lambda: nisa.scalar_tensor_tensor(dst, first, nl.add, 1.0, nl.maximum, second, reduce_res=spare),
                    lambda: nisa.select_reduce(dst, flags, second, column, spare, command, nl.maximum),
                    lambda: nisa.affine_select(dst, index, -1, first, 2.0, nl.less, 1),
                    lambda: nisa.iota(dst, index, 1, 2),
                    lambda: nisa.range_select(
                        dst, first, nl.greater, nl.less, column, second[:, 0:1], reduce_res=spare
                    ),
                    lambda: nisa.max8(dst[:, 0:8], first),
                    lambda: nisa.nc_find_index8(dst[:, 0:8], first, second[:, 0:8]),
                    lambda: nisa.bn_stats(dst[:, 0:6], first),
                    lambda: nisa.bn_aggr(dst[:, 0:2], first[:, 0:6]),
                    lambda: nisa.reciprocal(dst, first),
                )
            )
        )

    def reduce(self) -> None:
        data, dst = self.operand(), self.operand()
        axis = tuple(range(self.random.randint(1, max(1, data.ndim - 1)), data.ndim))
        op = self.random.choice((nl.add, nl.maximum))
        self.attempt(lambda: nisa.tensor_reduce(dst.slice(1, 0, min(dst.shape[1], data.F)), op, data, axis))
        self.attempt(lambda: nisa.tensor_reduce(dst[:, 0:1], op, data, tuple(range(1, data.ndim))))

    def product(self) -> None:
        dst = self.operand(psum=True)
        left, right = self.operand(psum=False), self.operand(psum=False)
        accumulate = self.random.choice((None, None, True, False))
        k, m, n = min(left.P, right.P), min(dst.P, left.F, 32), min(dst.F, right.F, 40)
        start = self.random.randint(0, dst.F - n)

        def multiply() -> None:
            target = dst if dst.ndim == 2 else dst.flatten_dims(1, dst.ndim - 1)
            stationary = left[:k] if left.ndim == 2 else left[:k].flatten_dims(1, left.ndim - 1)
            moving = right[:k] if right.ndim == 2 else right[:k].flatten_dims(1, right.ndim - 1)
            nisa.nc_matmul(target[:m, start : start + n], stationary[:, :m], moving[:, :n], accumulate=accumulate)

        self.attempt(multiply)

    def flip(self) -> None:
        data, dst = self.operand(), self.operand()

        def turn() -> None:
            rows, columns = min(data.P, dst.F, 32), min(dst.P, data.F, 32)
            nisa.nc_transpose(
                dst.reshape((dst.P, dst.F))[:columns, :rows], data.reshape((data.P, data.F))[:rows, :columns]
            )

        self.attempt(turn)

    def move(self) -> None:
        """DMA between tiles and HBM, or tiles of any shape."""
        dst: NkiTensor = self.out if self.random.random() < 0.4 else self.random.choice(self.tiles)
        src: NkiTensor = self.random.choice((*self.tiles, self.arguments[2], self.out))
        dst, src = self.view(dst), self.view(src)
        if self.random.random() < 0.7 and src.shape != dst.shape:
            made: list[NkiTensor] = []
            shape = dst.shape
            self.attempt(
                lambda: made.append(
                    src.reshape((src.shape[0], src.size // src.shape[0]))[: shape[0], : dst.size // shape[0]]
                )
            )
            src = made[0] if made else src
        skip = self.random.random() < 0.2
        mode = nisa.oob_mode.skip if skip else nisa.oob_mode.error
        self.attempt(lambda: nisa.dma_copy(dst, src, oob_mode=mode))

    def rows(self) -> None:
        """Gather and scatter by an index tile."""
        tile = self.view(self.random.choice(self.tiles), 1)
        column, skip = self.random.randrange(4), self.random.random() < 0.5
        mode = nisa.oob_mode.skip if skip else nisa.oob_mode.error
        table = self.random.choice((self.arguments[2], self.arguments[0], self.out))
        pattern, gather = self.random.random() < 0.5, self.random.random() < 0.6 or table is self.arguments[0]

        def move() -> None:
            index = self.index[: tile.P, column : column + 1]
            flat = tile.reshape((tile.P, tile.F))
            width = min(tile.F, COLUMNS)
            if pattern:
                rows = table.ap([[COLUMNS, tile.P], [1, width]], vector_offset=index)
            else:
                rows = table[:, :width].vector_select(0, index)
            if gather:
                nisa.dma_copy(flat[:, :width], rows, oob_mode=mode)
            else:
                nisa.dma_copy(rows, flat[:, :width], oob_mode=mode)

        self.attempt(move)

    def registers_step(self) -> None:
        """Load, move and store registers; device scalars with arithmetic."""
        row = self.random.choice((0, 0, 31, 64))
        column = self.random.randrange(4)
        element = self.index[row : row + 1, column : column + 1]
        kind = self.random.randrange(4)
        if kind == 0:
            register = nisa.register_alloc(self.random.randint(0, 5))
            nisa.register_load(register, element)
            self.registers.append(register)
        elif kind == 1 and self.wild:
            self.registers.append(nisa.scalar_load(element) * self.random.randint(-1, 2) + self.random.randint(0, 2))
        elif kind == 2 and self.registers:
            source = self.random.choice(self.registers)
            target = self.index[row : row + 1, column : column + 1]
            self.attempt(lambda: nisa.register_store(target, source))
        else:
            self.registers.append(nisa.register_alloc(self.random.randint(0, 5)))

    def loop(self) -> None:
        """A device loop with a few steps inside; its tiles and registers end with it."""
        lower = self.random.randint(0, 2)
        upper: Any = lower + self.random.randint(0, 3)
        if self.random.random() < 0.3:
            upper = nisa.register_alloc(upper)
        steps, stride = self.random.randint(2, 6), self.random.choice((1, 1, 2))
        state = self.random.getstate()
        first, ran = len(self.tried), [False]

        def body(i: Any) -> None:
            # Debug mode runs the body once for each iteration: every time the same steps.
            self.random.setstate(state)
            del self.tried[first:]
            tiles, registers = list(self.tiles), list(self.registers)
            self.registers.append(i)
            self.depth += 1
            for _ in range(steps):
                self.step()
            self.depth -= 1
            self.tiles, self.registers = tiles, registers
            self.ends[state] = self.random.getstate(), self.tried[first:]
            ran[0] = True

        nl.fori_loop(lower, upper, body, step=stride)
        if not ran[0]:  # debug mode without an iteration: go on as after the body
            after, decisions = self.ends[state]
            self.random.setstate(after)
            self.tried += decisions

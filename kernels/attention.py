"""Fused attention forward: ``softmax(scale * Q K^T) V`` without ever storing the score matrix.

Layouts, per head: ``q [d, Sq]``, ``k [d, Sk]``, ``v [Sk, d]``, result ``[Sq, d]``; d <= 128, any Sq and Sk. The head
dimension of q and k is on the partitions because TensorE contracts over them.

For 128 query rows at a time, the keys are walked in blocks of ``block`` columns:

1. scores = Q K^T, 512 columns a matmul, into one PSUM tile as wide as the block;
2. the negated row maximum, scaled, is the bias of the exponential: ``p = exp(scale * s + bias)``; the same
   instruction sums each row;
3. P is transposed on TensorE, 128 columns at a time, because the next contraction runs over keys;
4. P V accumulates over the block in PSUM.

Across blocks the softmax is *online*: when the maximum of a row grows, its running sum and output are first multiplied
by ``exp(old maximum - new maximum)``. With one block (Sk <= block) nothing is ever rescaled.

A causal mask costs one 128 x 128 matmul per query tile: keys that no row may see are not visited at all, and on the
diagonal ``identity @ mask`` adds a large negative number to the forbidden scores while they are still in PSUM.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

PMAX = 128  # nl.tile_size.pmax: query rows of a tile, keys of one P V contraction
FMAX = 512  # nl.tile_size.gemm_moving_fmax: keys of one Q K^T matmul
QUERY_COLUMNS = 2048  # queries loaded by one DMA
RESIDENT_KEYS = 16384  # up to here all keys and values of a head stay in SBUF (64 KiB of a partition in bfloat16)
MASKED = -1e30  # finite, so that 0 * MASKED in the mask matmul is 0; exp(scale * MASKED) is 0 for any sensible scale


@nki.jit
def attention_forward(
    q: nl.ndarray,
    k: nl.ndarray,
    v: nl.ndarray,
    causal: bool = False,
    scale: float | None = None,
    block: int = 1024,
    resident_keys: int = RESIDENT_KEYS,
) -> nl.ndarray:
    """Attention of one head.

    q ``[d, Sq]``, k ``[d, Sk]``, v ``[Sk, d]`` (bfloat16, float16 or float32) give ``[Sq, d]`` of q's dtype.
    ``causal``: query i sees keys 0 ... i + Sk - Sq (needs Sk >= Sq). ``scale``: positive, default 1 / sqrt(d).
    ``block``: keys per step, a multiple of 512. More than ``resident_keys`` keys are loaded again for each query tile.
    """
    out = nl.ndarray((q.shape[1], q.shape[0]), dtype=q.dtype, buffer=nl.shared_hbm)
    mask = CausalMask() if causal else None
    attend_head(out, q, KeysValues(k, v, block, resident_keys), scale, mask)
    return out


@nki.jit
def multi_head_attention(
    q: nl.ndarray,
    k: nl.ndarray,
    v: nl.ndarray,
    causal: bool = False,
    scale: float | None = None,
    block: int = 1024,
    resident_keys: int = RESIDENT_KEYS,
) -> nl.ndarray:
    """Attention of a batch of heads; H may be a multiple of Hkv (grouped queries share keys and values).

    q ``[B, H, d, Sq]``, k ``[B, Hkv, d, Sk]``, v ``[B, Hkv, Sk, d]`` give ``[B, H, Sq, d]``; the rest as
    `attention_forward`.
    """
    batch, heads, d, rows = q.shape
    kv_heads = k.shape[1]
    assert heads % kv_heads == 0, f"{heads} query heads cannot share {kv_heads} key heads evenly"
    out = nl.ndarray((batch, heads, rows, d), dtype=q.dtype, buffer=nl.shared_hbm)
    mask = CausalMask() if causal else None
    group = heads // kv_heads
    for b in range(batch):
        for h in range(kv_heads):
            keys_values = KeysValues(k[b, h], v[b, h], block, resident_keys)
            for member in range(h * group, (h + 1) * group):
                attend_head(out[b, member], q[b, member], keys_values, scale, mask)
    return out


class CausalMask(nl.NKIObject):
    """Two 128 x 128 bfloat16 tiles in SBUF whose product masks the diagonal of the scores.

    ``identity``: 1 where column = partition; ``forbidden``: MASKED where column > partition, else 0.
    """

    def __init__(self) -> None:
        self.identity = select_by_diagonal(1.0, nl.equal, 0.0)
        self.forbidden = select_by_diagonal(0.0, nl.greater_equal, MASKED)


def select_by_diagonal(value: float, compare: Callable, otherwise: float) -> nl.ndarray:
    """128 x 128 bfloat16 tile: ``value`` where ``compare(partition - column, 0)``, else ``otherwise``."""
    tile = nl.ndarray((PMAX, PMAX), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=value)
    nisa.affine_select(
        dst=tile,
        pattern=[[-1, PMAX]],
        channel_multiplier=1,
        on_true_tile=tile,
        on_false_value=otherwise,
        cmp_op=compare,
    )
    return tile


class KeysValues(nl.NKIObject):
    """The keys and values of one head in blocks: kept in SBUF when they fit, else loaded at each use."""

    def __init__(self, k: nl.ndarray, v: nl.ndarray, block: int, resident_keys: int) -> None:
        assert block % FMAX == 0, f"block must be a multiple of {FMAX}, not {block}"
        assert v.shape[0] == k.shape[1], f"{k.shape[1]} keys, but {v.shape[0]} values"
        self.k = k
        self.v = v
        self.count = k.shape[1]
        self.block = block
        self.resident = []
        if self.count <= resident_keys:
            for start in range(0, self.count, block):
                self.resident.append(self.load(start, min(block, self.count - start)))

    def at(self, start: int, width: int) -> tuple[nl.ndarray, nl.ndarray]:
        """Tiles of at least ``width`` keys and values from ``start``, a multiple of ``block``."""
        return self.resident[start // self.block] if self.resident else self.load(start, width)

    def load(self, start: int, width: int) -> tuple[nl.ndarray, nl.ndarray]:
        """Keys ``[d, width]``, values ``[128, chunks, d]``: value ``start + 128 c + p`` is in partition p, chunk c."""
        d = self.k.shape[0]
        keys = nl.ndarray((d, width), dtype=self.k.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=keys, src=self.k[:, start : start + width])

        full, tail = divmod(width, PMAX)
        values = nl.ndarray((PMAX, full + (tail > 0), d), dtype=self.v.dtype, buffer=nl.sbuf)
        middle = start + full * PMAX
        if full:
            chunks = self.v[start:middle, :].reshape_dim(0, (full, PMAX)).permute((1, 0, 2))
            nisa.dma_copy(dst=values[:, 0:full, :], src=chunks)
        if tail:
            nisa.dma_copy(dst=values[0:tail, full, :], src=self.v[middle : middle + tail, :])
        return keys, values


def attend_head(
    out: nl.ndarray, q: nl.ndarray, keys_values: KeysValues, scale: float | None, mask: CausalMask | None
) -> None:
    """Write the attention of one head to ``out [Sq, d]`` in HBM; causal when ``mask`` is given."""
    d, rows = q.shape
    if scale is None:
        scale = 1.0 / math.sqrt(d)
    # Query i sees `shift` keys before the diagonal: the last query sees the last key.
    shift = keys_values.count - rows
    assert d <= PMAX, f"the head dimension must be at most {PMAX}, not {d}"
    assert scale > 0, "the running maximum needs a positive scale"
    assert mask is None or shift >= 0, "a causal mask needs at least as many keys as queries"
    for group in range(0, rows, QUERY_COLUMNS):
        width = min(QUERY_COLUMNS, rows - group)
        queries = nl.ndarray((d, width), dtype=q.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=queries, src=q[:, group : group + width])
        for row in range(0, width, PMAX):
            tile = queries[:, row : min(row + PMAX, width)]
            diagonal = keys_values.count if mask is None else group + row + shift
            attended = attend_tile(tile, keys_values, scale, diagonal, mask)
            first = group + row
            nisa.dma_copy(dst=out[first : first + tile.shape[1], :], src=attended)


def attend_tile(
    queries: nl.ndarray, keys_values: KeysValues, scale: float, diagonal: int, mask: CausalMask | None
) -> nl.ndarray:
    """Attention of the query tile ``[d, rows]``, as an SBUF tile ``[rows, d]``.

    ``diagonal``: the last key that row 0 may see; row i sees i more. Any number from Sk up lets all rows see all keys.
    """
    d, rows = queries.shape
    visible = min(keys_values.count, diagonal + rows)
    bias: nl.ndarray | None = None
    total: nl.ndarray | None = None
    output: nl.ndarray | None = None
    for start in range(0, visible, keys_values.block):
        width = min(keys_values.block, visible - start)
        keys, values = keys_values.at(start, width)
        scores = score_block(queries, keys[:, 0:width], diagonal - start, mask)

        peak = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=peak, op=nl.maximum, data=scores, axis=1, negate=True)
        old_bias = bias
        bias = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        if old_bias is None:
            nisa.tensor_scalar(dst=bias, data=peak, op0=nl.multiply, operand0=scale)
        else:
            # The bias is minus the maximum, so a larger maximum is a smaller bias.
            nisa.tensor_scalar(dst=bias, data=peak, op0=nl.multiply, operand0=scale, op1=nl.minimum, operand1=old_bias)

        weights = nl.ndarray((rows, width), dtype=values.dtype, buffer=nl.sbuf)
        block_total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=weights, op=nl.exp, data=scores, reduce_op=nl.add, reduce_res=block_total, bias=bias, scale=scale
        )
        block_output = weigh_values(weights, values)

        if old_bias is None:
            total = block_total
            output = nl.ndarray((rows, d), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=output, src=block_output)
        else:
            shrink = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=shrink, op=nl.exp, data=old_bias, scale=-1.0, bias=bias)
            add_scaled(total, shrink, block_total)
            add_scaled(output, shrink, block_output)

    inverse = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=inverse, data=total)
    attended = nl.ndarray((rows, d), dtype=queries.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=attended, data=output, op0=nl.multiply, operand0=inverse)
    return attended


def score_block(queries: nl.ndarray, keys: nl.ndarray, diagonal: int, mask: CausalMask | None) -> nl.ndarray:
    """Masked scores ``[rows, width]`` of a query tile and a key block, in PSUM; ``diagonal`` counts from the block."""
    rows = queries.shape[1]
    width = keys.shape[1]
    scores = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.psum)
    for low in range(0, width, FMAX):
        high = min(low + FMAX, width)
        nisa.nc_matmul(dst=scores[:, low:high], stationary=queries, moving=keys[:, low:high], accumulate=False)
        # Rows differ in columns diagonal ... diagonal + rows only: the mask tile, clipped to this matmul's columns.
        left = max(low, diagonal)
        right = min(high, diagonal + rows)
        if mask is not None and left < right:
            nisa.nc_matmul(
                dst=scores[:, left:right],
                stationary=mask.identity[0:rows, 0:rows],
                moving=mask.forbidden[0:rows, left - diagonal : right - diagonal],
                accumulate=True,
            )
    return scores


def weigh_values(weights: nl.ndarray, values: nl.ndarray) -> nl.ndarray:
    """``weights [rows, width] @ values``, in PSUM ``[rows, d]``."""
    rows, width = weights.shape
    full, tail = divmod(width, PMAX)
    chunks = full + (tail > 0)
    # trn1 transposes by multiplying with an identity, whose product is float32; later chips move the bits.
    moved = nl.float32 if nisa.get_nc_version() == nisa.nc_version.gen2 else weights.dtype
    # Chunks of 128 columns whatever the rows: a transpose must not cross a PSUM bank.
    turned = nl.ndarray((PMAX, chunks, PMAX), dtype=moved, buffer=nl.psum)
    turned_weights = nl.ndarray((PMAX, chunks, rows), dtype=weights.dtype, buffer=nl.sbuf)
    for c in range(chunks):
        size = min(PMAX, width - c * PMAX)
        nisa.nc_transpose(
            dst=turned[0:size, c, 0:rows], data=weights[:, c * PMAX : c * PMAX + size], engine=nisa.engine.tensor
        )
    if full:
        nisa.tensor_copy(dst=turned_weights[:, 0:full, :], src=turned[:, 0:full, 0:rows])
    if tail:
        nisa.tensor_copy(dst=turned_weights[0:tail, full, :], src=turned[0:tail, full, 0:rows])

    output = nl.ndarray((rows, values.shape[2]), dtype=nl.float32, buffer=nl.psum)
    for c in range(chunks):
        size = min(PMAX, width - c * PMAX)
        nisa.nc_matmul(
            dst=output, stationary=turned_weights[0:size, c, :], moving=values[0:size, c, :], accumulate=c > 0
        )
    return output


def add_scaled(running: nl.ndarray, factor: nl.ndarray, block: nl.ndarray) -> None:
    """``running = running * factor + block``, one factor a row."""
    nisa.scalar_tensor_tensor(dst=running, data=running, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=block)


def attention_reference(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    causal: bool = False,
    scale: float | None = None,
    *static: int,
    real: type = np.float64,
) -> np.ndarray:
    """Unfused attention in float64 on the layouts of `attention_forward`."""
    q, k, v = (x.astype(real, copy=False) for x in (q, k, v))
    scores = (1.0 / math.sqrt(q.shape[0]) if scale is None else scale) * (q.T @ k)
    if causal:
        rows, keys = scores.shape
        scores = np.where(np.arange(keys) <= np.arange(rows)[:, None] + keys - rows, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)) @ v


def heads_reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, *static: Any, real: type = np.float64) -> np.ndarray:
    """`attention_reference` for every head of the batch."""
    batch, heads = q.shape[:2]
    group = heads // k.shape[1]
    return np.stack(
        [
            np.stack(
                [
                    attention_reference(q[b, h], k[b, h // group], v[b, h // group], *static, real=real)
                    for h in range(heads)
                ]
            )
            for b in range(batch)
        ]
    )


def head_operands(d: int, rows: int, keys: int, dtype: Any, *static: Any) -> Callable:
    """Arguments of `attention_forward`: standard normal q, k, v, then the static arguments."""

    def args(rng: np.random.Generator) -> tuple:
        shapes = ((d, rows), (d, keys), (keys, d))
        return (*(rng.standard_normal(shape, dtype=np.float32).astype(dtype) for shape in shapes), *static)

    return args


def batch_operands(batch: int, heads: int, kv_heads: int, d: int, rows: int, dtype: Any, *static: Any) -> Callable:
    """Arguments of `multi_head_attention`: standard normal q, k, v, then the static arguments."""

    def args(rng: np.random.Generator) -> tuple:
        shapes = ((batch, heads, d, rows), (batch, kv_heads, d, rows), (batch, kv_heads, rows, d))
        return (*(rng.standard_normal(shape, dtype=np.float32).astype(dtype) for shape in shapes), *static)

    return args


def numpy_of(reference: Callable) -> Callable:
    """The same maths as a NumPy user would run it: in float32."""
    return functools.partial(reference, real=np.float32)


def case(label: str, args: Callable, tolerance: float, reference: Callable = attention_reference) -> dict[str, Any]:
    """A row of ``TILELANG_CASES``; the tolerance bounds max|result - reference| / max|reference|."""
    targets = ("trn1", "trn2", "trn3")
    return {
        "label": label,
        "args": args,
        "reference": reference,
        "numpy": numpy_of(reference),
        "tolerance": tolerance,
        "targets": targets,
    }


BF16 = ml_dtypes.bfloat16
# bfloat16: weights and results are both rounded to 8 significant bits; errors of the weights average out.
BF16_TOLERANCE = 1e-2
FP32_TOLERANCE = 1e-5

TILELANG_CASES = {
    "attention_forward": [
        case("bf16 d=64 S=200", head_operands(64, 200, 200, BF16), BF16_TOLERANCE),
        case("bf16 causal d=64 S=200", head_operands(64, 200, 200, BF16, True), BF16_TOLERANCE),
        case("fp32 causal d=128 S=130", head_operands(128, 130, 130, np.float32, True), FP32_TOLERANCE),
        case("fp32 causal Sq=150 Sk=700", head_operands(64, 150, 700, np.float32, True, 0.2, 512), FP32_TOLERANCE),
        case("bf16 streamed Sk=1100", head_operands(64, 100, 1100, BF16, False, None, 512, 0), BF16_TOLERANCE),
        case("fp32 d=128 S=2048", head_operands(128, 2048, 2048, np.float32), FP32_TOLERANCE),
        case("bf16 d=128 S=2048", head_operands(128, 2048, 2048, BF16), BF16_TOLERANCE),
        case("bf16 causal d=128 S=2048", head_operands(128, 2048, 2048, BF16, True), BF16_TOLERANCE),
    ],
    "multi_head_attention": [
        case("bf16 2x2 heads S=140", batch_operands(2, 2, 1, 64, 140, BF16, True), BF16_TOLERANCE, heads_reference),
        case("bf16 8 heads S=1024", batch_operands(1, 8, 2, 128, 1024, BF16, True), BF16_TOLERANCE, heads_reference),
    ],
}

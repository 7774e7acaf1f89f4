"""Rules of tensors and views: the constraints of language.md section 2 by ID, for the registry and the manual.

The texts state the rule; messages and hints stand where the rule is checked. The AP, GEN, reg and NkiScalar rules that
views check keep the IDs and texts of isa.md and nki-0.7.md.
"""

from __future__ import annotations

__all__ = ["RULES", "WARNINGS"]

RULES: dict[str, str] = {
    "LANG.R201": "a shape is a tuple of positive ints, rank at least 1",
    "LANG.R202": "address=(first partition, byte) places on-chip tensors, inside the 128 partitions",
    "LANG.R203": "an index lies inside its dim",
    "LANG.R204": "a slice lies inside its dim",
    "LANG.R205": "a slice is not empty",
    "LANG.R206": "index items are ints, slices with positive steps, ..., nl.ds and one device integer",
    "LANG.R207": "a key has at most as many items as the tensor has dims",
    "LANG.R208": "dim arguments are ints in range",
    "LANG.R209": "views keep dim 0 of on-chip and gathered tensors in place",
    "LANG.R210": "permute takes a permutation, flatten_dims an ascending range",
    "LANG.R211": "broadcast repeats a size-1 dim",
    "LANG.R212": "squeeze_dim removes a size-1 dim, not the last one left",
    "LANG.R213": "reshape_dim keeps the number of elements of the dim",
    "LANG.R214": "flatten_dims merges dims whose steps continue each other",
    "LANG.R215": "reshape keeps the element count",
    "LANG.R216": "reshape needs no copy",
    "LANG.R217": "rearrange patterns name the same dims once on both sides, with known sizes",
    "LANG.R218": "ap patterns are [[step, count], ...] of ints with positive counts",
    "LANG.R219": "a dynamic index is a register, an NkiScalar or a one-element integer sbuf tensor",
    "LANG.R220": "a dynamic index moves along a dim with a stride",
    "LANG.R222": "vector_select picks along the dim with the largest stride",
    "LANG.R223": "indirect gathers on-chip free dims by an sbuf tensor of uint16, uint32 or int32 offsets",
    "LANG.R225": "assignment into a tensor needs a kernel",
    "LANG.R226": "tensors have no arithmetic operators",
    "LANG.R227": "the content of a tensor does not exist while tracing",
    "LANG.R228": "a buffer is a memory region",
    "LANG.R229": 'with precision="high", bits of low-precision formats cannot be read as another dtype',
}

WARNINGS: dict[str, str] = {
    "LANG.R204": "a slice beyond its dim is cut when slices are clamped",
    "LANG.R221": "ap: an explicit offset on a tensor with an offset of its own adds up",
    "LANG.R224": "ap: a dynamic index on a non-contiguous tensor moves by the product of the trailing sizes",
    "LANG.R228": "buffer names as strings are accepted",
}

"""Rule rows of gathers, shuffles and selections (see test_rules.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

A = "sbuf float32[16,8]"
PSUM = "psum float32[16,8]"
HBM = "shared_hbm float32[16,8]"
MASK = list(range(16)) + [255] * 16
ROW = "sbuf float32[1,8]"
B = "sbuf bfloat16[16,4]"

BASE: dict[str, dict[str, Any]] = {
    "nc_stream_shuffle": dict(dst=A, src=A, shuffle_mask=MASK),
    "local_gather": dict(dst="sbuf float32[16,128]", src_buffer=A, index="sbuf uint16[16,8]"),
    "nc_n_gather": dict(dst=A, data=A, indices="sbuf uint32[16,8]"),
    "tensor_partition_reduce": dict(dst=ROW, op=np.add, data=A),
    "nc_match_replace8": dict(dst=A, data=A, vals=A, imm=0.0),
    "sequence_bounds": dict(dst="sbuf float32[1,2,8]", segment_ids=ROW),
    "nonzero_with_count": dict(dst="sbuf int32[16,9]", src=A),
    "topk": dict(val_dst=B, idx_dst="sbuf uint32[16,4]", src=B, n=64),
}

# fmt: off
ROWS: list[tuple[Any, ...]] = [
    ("nc_stream_shuffle", "R1", "dst", "SBUF or PSUM", dict(dst=HBM), dict(dst=PSUM)),
    ("nc_stream_shuffle", "R2", "dst", "bfloat16", dict(dst="sbuf bfloat16[16,8]"), {}),
    ("nc_stream_shuffle", "R2", "dst", "9 elements", dict(dst="sbuf float32[16,9]"), dict(dst="sbuf float32[16,2,4]")),
    ("nc_stream_shuffle", "R3", "shuffle_mask", "31 entries", dict(shuffle_mask=[255] * 31),
     dict(shuffle_mask=[255] * 32)),
    ("nc_stream_shuffle", "R3", "shuffle_mask", "0 to 31", dict(shuffle_mask=[32] + [255] * 31),
     dict(shuffle_mask=[15] + [255] * 31)),
    ("nc_stream_shuffle", "R4", "dst", "(0, 64)", dict(dst="sbuf@32 float32[33,8]", src="sbuf float32[64,8]"),
     dict(dst="sbuf@64 float32[33,8]", src="sbuf float32[64,8]")),
    ("nc_stream_shuffle", "R5", "shuffle_mask", "has 16", dict(shuffle_mask=[16] + [255] * 31),
     dict(shuffle_mask=[15] + [255] * 31)),
    ("local_gather", "R1", "src_buffer", "SBUF", dict(src_buffer=HBM), {}),
    ("local_gather", "R2", "index", "multiple of 16", dict(index="sbuf uint16[8,8]"), {}),
    ("local_gather", "R3", "index", "uint16", dict(index="sbuf uint32[16,8]"), {}),
    ("local_gather", "R4", "dst", "bfloat16", dict(dst="sbuf bfloat16[16,128]"), {}),
    ("local_gather", "R5", "num_elem_per_idx", "1, 2, 4", dict(num_elem_per_idx=3, dst="sbuf float32[16,384]"),
     dict(num_elem_per_idx=2, dst="sbuf float32[16,256]")),
    ("local_gather", "R6", "index", "1 to 128", dict(num_valid_indices=129, dst="sbuf float32[16,129]"),
     dict(num_valid_indices=128)),
    ("local_gather", "R6", "index", "1 to 4096", dict(index="sbuf uint16[16,257]", dst="sbuf float32[16,4112]"),
     dict(index="sbuf uint16[16,256]", dst="sbuf float32[16,4096]")),
    ("local_gather", "R7", "dst", "make 128", dict(dst="sbuf float32[16,127]"), {}),
    ("nc_n_gather", "R1", "data", "SBUF", dict(data=HBM), {}),
    ("nc_n_gather", "R1", "indices", "15 partitions", dict(indices="sbuf uint32[15,8]"), {}),
    ("nc_n_gather", "R2", "indices", "uint32", dict(indices="sbuf int32[16,8]"), {}),
    ("nc_n_gather", "R2", "dst", "bfloat16", dict(dst="sbuf bfloat16[16,8]"), {}),
    ("nc_n_gather", "R3", "indices", "7 elements", dict(indices="sbuf uint32[16,7]"), {}),
    ("tensor_partition_reduce", "R1", "data", "SBUF", dict(data=HBM), {}),
    ("tensor_partition_reduce", "R2", "op", "average", dict(op=np.multiply), dict(op=np.maximum)),
    ("tensor_partition_reduce", "R3", "dst", "one partition", dict(dst=A), {}),
    ("tensor_partition_reduce", "R4", "data", "integer", dict(op=np.bitwise_or),
     dict(op=np.bitwise_or, dst="sbuf uint8[1,8]", data="sbuf uint8[16,8]")),
    ("nc_match_replace8", "R1", "data", "SBUF or PSUM", dict(data=HBM), dict(data=PSUM)),
    ("nc_match_replace8", "R1", "vals", "15 partitions", dict(vals="sbuf float32[15,8]"), {}),
    ("nc_match_replace8", "R1", "dst", "9 elements", dict(dst="sbuf float32[16,9]"), dict(dst="sbuf float32[16,2,4]")),
    ("nc_match_replace8", "R2", "data", "16384", dict(data="sbuf float32[1,16385]", dst="sbuf float32[1,16385]",
                                                     vals=ROW),
     dict(data="sbuf float32[1,16384]", dst="sbuf float32[1,16384]", vals=ROW)),
    ("nc_match_replace8", "R2", "vals", "must have 8", dict(vals="sbuf float32[16,9]"), {}),
    ("nc_match_replace8", "R4", "dst_idx", "uint32", dict(dst_idx="sbuf int32[16,8]"),
     dict(dst_idx="sbuf uint16[16,8]")),
    ("nc_match_replace8", "R4", "dst_idx", "must have 8", dict(dst_idx="sbuf uint32[16,7]"),
     dict(dst_idx="sbuf uint32[16,8]")),
    ("nc_match_replace8", "R5", "dst_idx", "generation 3", dict(dst_idx="sbuf uint32[16,8]"),
     dict(dst_idx="sbuf uint32[16,8]"), "trn1", "trn2"),
    ("sequence_bounds", "R1", "segment_ids", "SBUF", dict(segment_ids="shared_hbm float32[1,8]"), {}),
    ("sequence_bounds", "R2", "segment_ids", "must have 1", dict(segment_ids="sbuf float32[2,8]"), {}),
    ("sequence_bounds", "R3", "dst", "(1, 2, 8)", dict(dst="sbuf float32[1,8]"), dict(dst="sbuf float32[1,16]")),
    ("sequence_bounds", "R4", "dst", "int32", dict(dst="sbuf bfloat16[1,2,8]"), dict(dst="sbuf int32[1,2,8]")),
    ("nonzero_with_count", "R2", "src", "SBUF", dict(src=HBM), {}),
    ("nonzero_with_count", "R2", "src", "int32", dict(src="sbuf bfloat16[16,8]"), dict(src="sbuf int32[16,8]")),
    ("nonzero_with_count", "R2", "dst", "int32", dict(dst="sbuf uint32[16,9]"), {}),
    ("nonzero_with_count", "R3", "dst", "one element per partition more", dict(dst="sbuf int32[16,8]"), {}),
    ("nonzero_with_count", "R4", "padding_val", "int32", dict(padding_val=2**31), dict(padding_val=2**31 - 1)),
    ("topk", "R1", "src", "SBUF", dict(src="shared_hbm bfloat16[16,4]"), {}),
    ("topk", "R2", "src", "bfloat16", dict(src="sbuf float32[16,4]"), {}),
    ("topk", "R2", "idx_dst", "uint32", dict(idx_dst="sbuf int32[16,4]"), {}),
    ("topk", "R3", "idx_dst", "multiple of 16", dict(idx_dst="sbuf uint32[16,3]"), {}),
    ("topk", "R4", "n", "8 to 65535", dict(n=7), dict(n=8)),
    ("topk", "R5", "val_dst", "no more than n", dict(n=8, val_dst="sbuf bfloat16[16,9]", idx_dst="sbuf uint32[16,9]"),
     dict(n=9, val_dst="sbuf bfloat16[16,9]", idx_dst="sbuf uint32[16,9]")),
    ("topk", "R6", "src", "in 16 partitions", dict(n=65), dict(n=64)),
]

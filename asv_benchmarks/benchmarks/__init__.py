"""Benchmarks of tilelang for asv; `common` says how ours and NumPy are compared."""

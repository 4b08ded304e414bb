"""Triton kernels for CUDA, where a chain of torch's operations would write and read large intermediate values.

Imported only where tensors are on a CUDA device; there, Triton comes with torch. For everything here there is also a
version in plain torch, for CPUs, float64 and other shapes, which gives the same numbers up to rounding (tests compare
the two). Products are computed in three passes of TF32 on the tensor cores, which has float32's precision, unless a run
asks for less (`precision.py`). Sizes of layers are compile-time constants: only then does the compiler know that rows
are aligned, and reads sixteen bytes at a time.

Names: `features` are the inputs of a layer and `width` is the number of its neurons. Each program computes a block:
`block_samples`, `block_neurons` and `block_features` are its sizes along these axes (powers of two, so entries may lie
outside the tensor: `inside` masks the others).
"""

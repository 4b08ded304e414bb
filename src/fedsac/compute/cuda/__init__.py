"""What is specific to CUDA: Triton kernels, precision of products."""

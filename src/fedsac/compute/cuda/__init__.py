"""What is specific to CUDA: Triton kernels, CUDA graphs, precision of products."""

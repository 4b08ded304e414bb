"""Networks: the perceptron, extracting and merging submodels, files and ONNX."""

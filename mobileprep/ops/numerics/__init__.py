"""Arithmetic that ops share: convolution, fixed point, quantization, text, pictures and sound."""

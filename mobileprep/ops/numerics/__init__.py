"""Arithmetic shared by ops: convolution, fixed point, quantization, strings, images, and audio."""

"""Measure the errors of each layer of a quantized .tflite file, and their causes."""

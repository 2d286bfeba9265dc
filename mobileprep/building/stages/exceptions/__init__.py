"""Search for the operators that ``quantize: auto`` excepts from int8 in a .tflite file."""

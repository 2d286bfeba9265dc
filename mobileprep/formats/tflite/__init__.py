"""The .tflite format: records, reader and writer, and checks of all offsets."""

"""The format of .tflite files: records, the bytes of them, and checks before anything is read."""

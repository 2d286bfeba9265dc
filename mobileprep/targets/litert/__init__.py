"""Files that accompany a .tflite file: its metadata, and files for the build of an app."""

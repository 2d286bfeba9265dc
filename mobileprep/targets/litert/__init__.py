"""What goes with a .tflite file: its description, and what an app's own build takes."""

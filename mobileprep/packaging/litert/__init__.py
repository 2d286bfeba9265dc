"""What goes with a .tflite file: its description, and how an app's own build links LiteRT for it."""

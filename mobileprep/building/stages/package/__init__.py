"""Write the files of a target: model, headers, and build files."""

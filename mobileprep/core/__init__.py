"""Helpers without domain knowledge: files, paths, parallel work, limits, loading of code, keys."""

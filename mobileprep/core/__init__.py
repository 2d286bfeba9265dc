"""Helpers without domain knowledge: files, paths, parallel work, limits, code loading, and keys."""

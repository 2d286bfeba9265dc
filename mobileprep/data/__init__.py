"""Readers of sample files in all formats that recipes support."""

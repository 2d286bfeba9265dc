"""The formats that are fuzzed; a module each, which registers what makes its cases."""

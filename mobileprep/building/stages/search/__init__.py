"""Search for the layers that ``quantize: auto`` keeps in float."""

"""Detection and merging of ops that scale and shift a layer's output."""

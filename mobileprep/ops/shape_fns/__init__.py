"""Shape functions, one module a family of ops; each registers by decorator."""

"""Programs with integer arithmetic, following LiteRT's quantization specification."""

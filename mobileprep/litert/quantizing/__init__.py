"""Programs that compute in integers, by LiteRT's quantization specification."""

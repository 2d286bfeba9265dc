"""Shapes and costs of quantized convolutions."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes

TWO = {"strides": (1, 2, 2, 1), "padding": "SAME"}
IMAGE, BANK, DEPTHWISE = (4, 9, 8, 3), (3, 2, 3, 8), (3, 2, 3, 2)
RANGES = [(), (), (), ()]
EACH = [(), (), (8,), (8,)]
PLAIN, WITH_BIAS = "QuantizedConv2D", "QuantizedConv2DWithBias"
EACH_CHANNEL = "QuantizedDepthwiseConv2D"
OUT = (4, 5, 4, 8)

SHAPES = [
    shapes(PLAIN, [IMAGE, BANK, *RANGES], [OUT, (), ()], **TWO),
    shapes(PLAIN, [(4, 9, 8, 4), BANK, *RANGES], None, **TWO),
    shapes(
        "QuantizedDepthwiseConv2D", [IMAGE, DEPTHWISE, *RANGES], [(4, 5, 4, 6), None, None], **TWO
    ),
    *(
        shapes(f"{PLAIN}{ending}", [IMAGE, BANK, *RANGES], [OUT, (), ()], **TWO)
        for ending in ("AndRelu", "PerChannel")
    ),
    *(
        shapes(f"{PLAIN}{ending}", [IMAGE, BANK, *EACH], [OUT, (8,), (8,)], **TWO)
        for ending in ("AndRelu", "PerChannel")
    ),
    shapes(f"{PLAIN}PerChannel", [IMAGE, BANK, (), (), (-1,), (8,)], [OUT, (8,), (8,)], **TWO),
    *(
        shapes(f"{WITH_BIAS}{ending}", [IMAGE, BANK, (8,), *EACH], [OUT, (8,), (8,)], **TWO)
        for ending in ("", "AndRelu")
    ),
    *(
        shapes(f"{PLAIN}{ending}", [IMAGE, BANK, *RANGES, (), ()], [OUT, (), ()], **TWO)
        for ending in ("AndRequantize", "AndReluAndRequantize")
    ),
    *(
        shapes(f"{WITH_BIAS}{ending}", [IMAGE, BANK, (8,), *EACH, (), ()], [OUT, (), ()], **TWO)
        for ending in ("AndRequantize", "AndReluAndRequantize")
    ),
]

COSTS = [
    cost(PLAIN, [IMAGE, BANK, *RANGES], [OUT, (), ()], 2 * 18 * 640),
    cost(EACH_CHANNEL, [IMAGE, DEPTHWISE, *RANGES], [(4, 5, 4, 6), (), ()], 12 * 480),
]

test_shapes_and_costs = case_tests(SHAPES, COSTS)

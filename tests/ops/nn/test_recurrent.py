"""Shapes and costs of recurrent cells."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes

# 2 in a batch, 3 inputs, 5 cells; each gate has a row for each input and cell.
BATCH, STATE, PEEPHOLE = (2, 3), (2, 5), (5,)
LSTM = [BATCH, STATE, STATE, (8, 20), PEEPHOLE, PEEPHOLE, PEEPHOLE, (20,)]
BLOCK = [(), (7, 2, 3), *LSTM[1:]]
GRU = [BATCH, STATE, (8, 10), (8, 5), (10,), (5,)]
BLOCKS = ["BlockLSTM", "BlockLSTMV2"]
# 2 x 8 x 20 for the product, 20 biases; for each cell 19: three sigmoids of 4, two hyperbolic
# tangents, three products and a sum for the state, and a sum for the forget bias
STEP = 2 * (320 + 20 + 19 * 5)

SHAPES = [
    shapes("LSTMBlockCell", LSTM, [(2, 5)] * 7),
    shapes("LSTMBlockCell", [(-1, 3), *LSTM[1:]], [(-1, 5)] * 7),
    shapes("LSTMBlockCell", [BATCH, (2, -1), *LSTM[2:]], [(2, -1)] * 7),
    shapes("LSTMBlockCell", [(2, 3, 1), *LSTM[1:]], None),
    shapes("LSTMBlockCell", [BATCH, (5,), *LSTM[2:]], None),
    *(shapes(op, BLOCK, [(7, 2, 5)] * 7) for op in BLOCKS),
    *(shapes(op, [*BLOCK[:-1], (-1,)], [(7, 2, -1)] * 7) for op in BLOCKS),
    shapes("BlockLSTM", [*BLOCK[:-1], (0,)], [(7, 2, 0)] * 7),
    shapes("BlockLSTM", [(), (-1, -1, 3), *BLOCK[2:]], [(-1, -1, 5)] * 7),
    shapes("BlockLSTM", [(), BATCH, *BLOCK[2:]], None),
    shapes("GRUBlockCell", GRU, [(2, 5)] * 4),
    shapes("GRUBlockCell", [(-1, 3), *GRU[1:]], [(-1, 5)] * 4),
    shapes("GRUBlockCell", [BATCH, (-1, -1), *GRU[2:]], [(2, -1)] * 4),
    shapes("GRUBlockCell", [(2, 3, 1), *GRU[1:]], None),
    shapes("GRUBlockCell", [BATCH, (5,), *GRU[2:]], None),
]

COSTS = [
    cost("LSTMBlockCell", LSTM, [(2, 5)] * 7, STEP),
    *(cost(op, BLOCK, [(7, 2, 5)] * 7, 7 * STEP) for op in BLOCKS),
    # products with the weights of three gates, their biases, and 14 for each cell
    cost("GRUBlockCell", GRU, [(2, 5)] * 4, 2 * (2 * 8 * 15 + 15 + 14 * 5)),
]

test_shapes_and_costs = case_tests(SHAPES, COSTS)

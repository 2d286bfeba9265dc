"""The real models that are GraphDefs as they stand, by folder and file."""

from __future__ import annotations

GRAPHS = [
    "android-wakeword-streaming-rnn/graph.pb",
    "arm-kws/Basic_LSTM_S.pb",
    "arm-kws/CNN_S.pb",
    "arm-kws/DS_CNN_S.pb",
    "made-qat-mnist-tf115/eval_graph.pb",
    "made-qat-mnist-tf115/frozen_eval_graph.pb",
    "mtcnn/mtcnn.pb",
    "sugyan-mnist-v1ckpt/graph.pb",
    "tf2onnx-models/fc-layers/frozen.pb",
    "tf2onnx-models/gru/frozen.pb",
    "tf2onnx-models/lstm/frozen.pb",
    "tfjs-facemesh/facemesh.pb",
    "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb",
    "tfjs-posenet/posenet.pb",
]

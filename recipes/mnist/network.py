"""A small MobileNet v1 for MNIST, in float and with fake quantization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow.compat.v1 as tf

CLASSES = 10
FIRST_FILTERS = 16
BLOCKS = ((1, 32), (2, 64), (1, 64), (2, 128), (1, 128))  # stride and filters of each block
BATCH_NORM_EPSILON = 1e-3
BATCH_NORM_DECAY = 0.95
RANGE_DECAY = 0.99

Convolve = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


@dataclass(frozen=True)
class BatchNormVariables:
    """The variables of a batch normalization, each of shape [channels]."""

    gamma: tf.Variable
    beta: tf.Variable
    moving_mean: tf.Variable
    moving_variance: tf.Variable

    @classmethod
    def of_scope(cls, channels: int) -> BatchNormVariables:
        """Return the variables of the current variable scope; create them on first use."""
        zeros, ones = tf.zeros_initializer(), tf.ones_initializer()
        with tf.variable_scope("BatchNorm"):
            return cls(
                tf.get_variable("gamma", [channels], initializer=ones),
                tf.get_variable("beta", [channels], initializer=zeros),
                tf.get_variable("moving_mean", [channels], initializer=zeros, trainable=False),
                tf.get_variable("moving_variance", [channels], initializer=ones, trainable=False),
            )


def moved(variable: tf.Variable, value: tf.Tensor, decay: float) -> tf.Tensor:
    """Return a moving average after a step towards `value`, and add the step to the update ops."""
    change = (variable - value) * (1.0 - decay)
    update = tf.assign_sub(variable, change)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update)
    return update


@dataclass(frozen=True)
class FloatLayers:
    """Layers in float: a convolution, then a batch normalization in one op.

    The op is `FusedBatchNorm`, which TensorFlow 1 graphs contain.
    """

    training: bool

    def images(self, images: tf.Tensor) -> tf.Tensor:
        """Return the input of the first layer."""
        return images

    def normalized(
        self, inputs: tf.Tensor, weights: tf.Tensor, convolve: Convolve, *, depthwise: bool
    ) -> tf.Tensor:
        """Return a convolution [N, H, W, C] of `inputs` with batch normalization and ReLU6."""
        del depthwise  # only fake quantization needs the axis of the weights' channels
        convolved = convolve(inputs, weights)
        variables = BatchNormVariables.of_scope(int(convolved.shape[-1]))
        mean, variance = variables.moving_mean, variables.moving_variance
        if self.training:  # the op computes both from the batch, and does not accept others
            mean = variance = tf.constant([], tf.float32)
        normalized = tf.raw_ops.FusedBatchNorm(
            x=convolved,
            scale=variables.gamma,
            offset=variables.beta,
            mean=mean,
            variance=variance,
            epsilon=BATCH_NORM_EPSILON,
            is_training=self.training,
        )
        if self.training:
            moved(variables.moving_mean, normalized.batch_mean, BATCH_NORM_DECAY)
            moved(variables.moving_variance, normalized.batch_variance, BATCH_NORM_DECAY)
        return tf.nn.relu6(normalized.y)

    def pooled(self, features: tf.Tensor) -> tf.Tensor:
        """Return the mean of each channel of `features` [N, H, W, C]: [N, 1, 1, C]."""
        return average_pool(features)

    def biased(self, inputs: tf.Tensor, weights: tf.Tensor, biases: tf.Tensor) -> tf.Tensor:
        """Return a 1x1 convolution with biases."""
        return tf.nn.bias_add(tf.nn.conv2d(inputs, weights, 1, "VALID"), biases)


@dataclass(frozen=True)
class FakeQuantLayers:
    """The same layers with the rounding of 8-bit inference, in float.

    Batch normalizations are folded into the weights with the moving statistics of the float
    training. `FakeQuantWithMinMaxVars` rounds weights in their own range, and activations in a
    moving average of their ranges (Jacob et al., "Quantization and Training of Neural Networks for
    Efficient Integer-Arithmetic-Only Inference", 2018, sections 3.1 and 3.2). The ops are where
    TensorFlow 1's `tf.contrib.quantize` inserts them.
    """

    training: bool

    def images(self, images: tf.Tensor) -> tf.Tensor:
        """Return the images in 256 steps; the range is an attribute because it is known."""
        return tf.raw_ops.FakeQuantWithMinMaxArgs(inputs=images, min=0.0, max=1.0, name="FakeQuant")

    def normalized(
        self, inputs: tf.Tensor, weights: tf.Tensor, convolve: Convolve, *, depthwise: bool
    ) -> tf.Tensor:
        """Return a convolution [N, H, W, C] of `inputs` with folded weights and ReLU6."""
        variables = BatchNormVariables.of_scope(int(weights.shape[2 if depthwise else 3]))
        scale = variables.gamma * tf.rsqrt(variables.moving_variance + BATCH_NORM_EPSILON)
        folded = weights * (tf.reshape(scale, [-1, 1]) if depthwise else scale)
        offset = variables.beta - variables.moving_mean * scale
        convolved = convolve(inputs, self.weights(folded))
        return self.activations(tf.nn.relu6(tf.nn.bias_add(convolved, offset)))

    def pooled(self, features: tf.Tensor) -> tf.Tensor:
        """Return the mean of each channel of `features` [N, H, W, C]: [N, 1, 1, C]."""
        return self.activations(average_pool(features))

    def biased(self, inputs: tf.Tensor, weights: tf.Tensor, biases: tf.Tensor) -> tf.Tensor:
        """Return a 1x1 convolution with biases."""
        convolved = tf.nn.conv2d(inputs, self.weights(weights), 1, "VALID")
        return self.activations(tf.nn.bias_add(convolved, biases))

    def weights(self, values: tf.Tensor) -> tf.Tensor:
        """Return weights in 255 steps of their own range, symmetric around zero."""
        largest = tf.reduce_max(tf.abs(values))
        return self._fake_quant("weights_quant", values, -largest, largest, decay=0.0)

    def activations(self, values: tf.Tensor) -> tf.Tensor:
        """Return activations in 256 steps of the moving average of their range."""
        smallest = tf.minimum(tf.reduce_min(values), 0.0)
        largest = tf.maximum(tf.reduce_max(values), 0.0)
        return self._fake_quant("act_quant", values, smallest, largest, decay=RANGE_DECAY)

    def _fake_quant(
        self, name: str, values: tf.Tensor, smallest: tf.Tensor, largest: tf.Tensor, *, decay: float
    ) -> tf.Tensor:
        with tf.variable_scope(name):
            low = tf.get_variable("min", [], initializer=tf.zeros_initializer(), trainable=False)
            high = tf.get_variable("max", [], initializer=tf.ones_initializer(), trainable=False)
            if self.training:  # use the new range: a read of the variable would be a race
                low = moved(low, smallest, decay)
                high = moved(high, largest, decay)
            return tf.raw_ops.FakeQuantWithMinMaxVars(
                inputs=values, min=low, max=high, narrow_range=name == "weights_quant"
            )


Layers = FloatLayers | FakeQuantLayers


def weights_variable(shape: list[int]) -> tf.Variable:
    """Return the weights of the current variable scope; create them on first use."""
    return tf.get_variable("weights", shape, initializer=tf.glorot_uniform_initializer())


def average_pool(features: tf.Tensor) -> tf.Tensor:
    """Return the mean of each channel of `features` [N, H, W, C]: [N, 1, 1, C]."""
    return tf.nn.avg_pool(features, ksize=features.shape[1:3], strides=1, padding="VALID")


def convolution(
    name: str, inputs: tf.Tensor, layers: Layers, *, size: int, filters: int
) -> tf.Tensor:
    """Return a `size` by `size` convolution of stride 1 with batch normalization and ReLU6."""
    with tf.variable_scope(name):
        weights = weights_variable([size, size, int(inputs.shape[-1]), filters])
        return layers.normalized(
            inputs, weights, lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), depthwise=False
        )


def depthwise_convolution(
    name: str, inputs: tf.Tensor, layers: Layers, *, stride: int
) -> tf.Tensor:
    """Return a 3 by 3 depthwise convolution with batch normalization and ReLU6."""
    strides = [1, stride, stride, 1]
    with tf.variable_scope(name):
        weights = weights_variable([3, 3, int(inputs.shape[-1]), 1])
        return layers.normalized(
            inputs,
            weights,
            lambda x, w: tf.nn.depthwise_conv2d(x, w, strides, "SAME"),
            depthwise=True,
        )


def logits_layer(name: str, inputs: tf.Tensor, layers: Layers) -> tf.Tensor:
    """Return logits [N, CLASSES] of `inputs` [N, 1, 1, C]."""
    with tf.variable_scope(name):
        weights = weights_variable([1, 1, int(inputs.shape[-1]), CLASSES])
        biases = tf.get_variable("biases", [CLASSES], initializer=tf.zeros_initializer())
        return tf.squeeze(layers.biased(inputs, weights, biases), [1, 2])


def network(images: tf.Tensor, layers: Layers) -> tf.Tensor:
    """Return the logits [N, CLASSES] of `images` [N, 28, 28, 1] in [0, 1].

    Several calls in a graph share the variables.
    """
    with tf.variable_scope("MobilenetV1", reuse=tf.AUTO_REUSE):
        features = layers.images(images)
        features = convolution("Conv2d_0", features, layers, size=3, filters=FIRST_FILTERS)
        for number, (stride, filters) in enumerate(BLOCKS, start=1):
            name = f"Conv2d_{number}"
            features = depthwise_convolution(f"{name}_depthwise", features, layers, stride=stride)
            features = convolution(f"{name}_pointwise", features, layers, size=1, filters=filters)
        return logits_layer("Logits", layers.pooled(features), layers)

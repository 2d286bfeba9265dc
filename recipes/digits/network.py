"""The digits network as a TensorFlow 1 graph, once for training and once for inference."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow.compat.v1 as tf

CLASSES = 10
KEEP_PROBABILITY = 0.7
BATCH_NORM_EPSILON = 1e-3
BATCH_NORM_DECAY = 0.95


@dataclass(frozen=True)
class BatchNormVariables:
    """One batch normalization's variables, each of shape [channels]."""

    gamma: tf.Variable
    beta: tf.Variable
    moving_mean: tf.Variable
    moving_variance: tf.Variable

    @classmethod
    def of_scope(cls, channels: int) -> BatchNormVariables:
        """Returns the current variable scope's variables, made on first use."""
        zeros, ones = tf.zeros_initializer(), tf.ones_initializer()
        return cls(
            tf.get_variable("gamma", [channels], initializer=ones),
            tf.get_variable("beta", [channels], initializer=zeros),
            tf.get_variable("moving_mean", [channels], initializer=zeros, trainable=False),
            tf.get_variable("moving_variance", [channels], initializer=ones, trainable=False),
        )

    def update(self, mean: tf.Tensor, variance: tf.Tensor) -> None:
        """Adds the moves of the moving statistics towards a batch's to the update ops."""
        for moving, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
            change = (moving - value) * (1.0 - BATCH_NORM_DECAY)
            tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign_sub(moving, change))


def weights_variable(shape: list[int], *, use_resource: bool = False) -> tf.Variable:
    """Returns the current variable scope's weights, made on first use."""
    return tf.get_variable(
        "weights",
        shape,
        initializer=tf.glorot_uniform_initializer(),
        use_resource=use_resource,
    )


def fused_batch_norm(inputs: tf.Tensor, *, training: bool) -> tf.Tensor:
    """Normalizes [N, H, W, C] by channel in one op.

    The op is `FusedBatchNorm`, the one that TensorFlow 1 graphs hold and `fold_old_batch_norms`
    folds; `tf.nn.fused_batch_norm` makes `FusedBatchNormV3` today.
    """
    with tf.variable_scope("BatchNorm"):
        variables = BatchNormVariables.of_scope(int(inputs.shape[-1]))
        mean, variance = variables.moving_mean, variables.moving_variance
        if training:  # the op then takes both from the batch, and none may be given
            mean = variance = tf.constant([], tf.float32)
        normalized = tf.raw_ops.FusedBatchNorm(
            x=inputs,
            scale=variables.gamma,
            offset=variables.beta,
            mean=mean,
            variance=variance,
            epsilon=BATCH_NORM_EPSILON,
            is_training=training,
        )
        if training:
            variables.update(normalized.batch_mean, normalized.batch_variance)
        return normalized.y


def plain_batch_norm(inputs: tf.Tensor, *, training: bool) -> tf.Tensor:
    """Normalizes [N, C] by channel with multiplications and additions: no fused op takes rank 2.

    Once the variables are constants, `fold_constants` and `fold_batch_norms` fold it.
    """
    with tf.variable_scope("BatchNorm"):
        variables = BatchNormVariables.of_scope(int(inputs.shape[-1]))
        mean, variance = variables.moving_mean, variables.moving_variance
        if training:
            mean, variance = tf.nn.moments(inputs, axes=[0])
            variables.update(mean, variance)
        return tf.nn.batch_normalization(
            inputs, mean, variance, variables.beta, variables.gamma, BATCH_NORM_EPSILON
        )


def convolution(
    name: str, inputs: tf.Tensor, *, size: int, filters: int, training: bool
) -> tf.Tensor:
    """Returns a `size` by `size` convolution, batch normalized, then ReLU6."""
    with tf.variable_scope(name):
        weights = weights_variable([size, size, int(inputs.shape[-1]), filters])
        convolved = tf.nn.conv2d(inputs, weights, strides=1, padding="SAME")
        return tf.nn.relu6(fused_batch_norm(convolved, training=training))


def depthwise_convolution(name: str, inputs: tf.Tensor, *, training: bool) -> tf.Tensor:
    """Returns a 3 by 3 depthwise convolution of stride 2, batch normalized, then ReLU6."""
    with tf.variable_scope(name):
        weights = weights_variable([3, 3, int(inputs.shape[-1]), 1])
        convolved = tf.nn.depthwise_conv2d(inputs, weights, [1, 2, 2, 1], padding="SAME")
        return tf.nn.relu6(fused_batch_norm(convolved, training=training))


def dense(name: str, inputs: tf.Tensor, *, units: int, training: bool) -> tf.Tensor:
    """Returns a dense layer, batch normalized, then ReLU6 and, in training, dropout."""
    with tf.variable_scope(name):
        weights = weights_variable([int(inputs.shape[-1]), units])
        normalized = plain_batch_norm(tf.matmul(inputs, weights), training=training)
        outputs = tf.nn.relu6(normalized)
        with tf.name_scope("Dropout"):
            if training:
                return tf.nn.dropout(outputs, rate=1.0 - KEEP_PROBABILITY)
            return tf.identity(outputs)


def logits_layer(name: str, inputs: tf.Tensor) -> tf.Tensor:
    """Returns logits [N, CLASSES]; this layer keeps its parameters in resource variables."""
    with tf.variable_scope(name):
        weights = weights_variable([int(inputs.shape[-1]), CLASSES], use_resource=True)
        biases = tf.get_variable(
            "biases", [CLASSES], initializer=tf.zeros_initializer(), use_resource=True
        )
        outputs = tf.nn.bias_add(tf.matmul(inputs, weights), biases)
        return tf.check_numerics(outputs, "logits are not finite")


def network(images: tf.Tensor, *, training: bool) -> tf.Tensor:
    """Returns the logits [N, CLASSES] of `images` [N, 8, 8, 1].

    Called once for training and once for inference in the same graph; both share the variables.
    """
    with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
        features = convolution("Conv", images, size=3, filters=16, training=training)
        features = depthwise_convolution("Depthwise", features, training=training)
        features = convolution("Pointwise", features, size=1, filters=64, training=training)
        with tf.name_scope("Pool"):
            features = tf.nn.avg_pool(features, ksize=2, strides=2, padding="VALID")
            features = tf.reshape(features, [-1, features.shape[1:].num_elements()])
        features = dense("Dense", features, units=32, training=training)
        return logits_layer("Logits", features)

// Made by mobileprep: the next build replaces it.
package {{ package }}

import android.content.res.AssetManager
import java.io.Closeable
import java.nio.ByteBuffer
import java.nio.ByteOrder
{% for buffer in buffers %}
import java.nio.{{ buffer }}
{% endfor %}
{% if not model.encrypted %}
import java.nio.channels.FileChannel
{% endif %}
import org.tensorflow.lite.Interpreter

/** Runs the model: feed every input, then [run], then fetch. For one thread at a time. */
class {{ class_name }}(
    assets: AssetManager,
{% if model.encrypted %}
    key: ByteArray,
{% endif %}
    options: Interpreter.Options = Interpreter.Options(){% if model.threads is not none %}.setNumThreads({{ model.threads }}){% endif %},
) : Closeable {
{% if model.encrypted %}
    private val interpreter = Interpreter(decrypted(assets, key), options)
{% else %}
    private val interpreter = assets.openFd(MODEL_FILE).use { file ->
        file.createInputStream().use { stream ->
            val model = stream.channel.map(
                FileChannel.MapMode.READ_ONLY,
                file.startOffset,
                file.declaredLength,
            )
            Interpreter(model, options)
        }
    }
{% endif %}
    private val fed = arrayOfNulls<Any>({{ inputs | length }})

{% for named in inputs %}
{% set tensor = named.tensor %}
{% if named.quantized %}
    /** Feeds values{% if tensor.shape is not none %} of the shape [{{ tensor.shape | dims }}]{% endif %}, quantized by the scale and zero point of the file. */
    fun feed{{ named.pascal }}(values: FloatArray{% if named.open %}, vararg shape: Int{% endif %}) {
        val steps = interpreter.getInputTensor({{ loop.index0 }}).quantizationParams()
        val integers = {{ named.lite_kotlin }}(values.size) {
            quantized(values[it], steps, {{ named.low }}, {{ named.high }}).to{{ named.element }}()
        }
        feed{{ named.pascal }}(integers{% if named.open %}, *shape{% endif %})
    }

{% endif %}
{% if tensor.count is not none %}
    /** Feeds {{ tensor.count }} {{ named.fed }} of the shape [{{ tensor.shape | dims }}]. */
    fun feed{{ named.pascal }}(values: {{ named.lite_kotlin }}) {
        require(values.size == {{ tensor.count }}) { "takes {{ tensor.count }} values, not " + values.size }
{% elif tensor.row is not none %}
    /** Feeds {{ named.fed }} of the shape [{{ tensor.shape | dims }}]: {{ tensor.row }} for each sample. */
    fun feed{{ named.pascal }}(values: {{ named.lite_kotlin }}) {
        require(values.isNotEmpty() && values.size % {{ tensor.row }} == 0) {
            "takes {{ tensor.row }} values a sample, not " + values.size
        }
        interpreter.resizeInput({{ loop.index0 }}, intArrayOf(values.size / {{ tensor.row }}{% for size in tensor.shape[1:] %}, {{ size }}{% endfor %}))
{% else %}
    /** Feeds {{ named.fed }} of a shape. */
    fun feed{{ named.pascal }}(values: {{ named.lite_kotlin }}, vararg shape: Int) {
        interpreter.resizeInput({{ loop.index0 }}, shape)
{% endif %}
        fed[{{ loop.index0 }}] = {{ named.buffer }}.wrap(values)
    }

{% endfor %}
    /** Runs the model on what was fed. */
    fun run() {
        // What is not copied is read from the interpreter afterwards.
        val outputs = HashMap<Int, Any?>()
        for (i in 0 until {{ outputs | length }}) outputs[i] = null
        interpreter.runForMultipleInputsOutputs(fed, outputs)
    }

{% for named in outputs %}
{% if named.quantized %}
    /** Fetches values{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}, computed from [quantized{{ named.pascal }}]. */
    fun fetch{{ named.pascal }}(): FloatArray {
        val steps = interpreter.getOutputTensor({{ loop.index0 }}).quantizationParams()
        val integers = quantized{{ named.pascal }}()
        return FloatArray(integers.size) {
            val integer = integers[it].toInt(){% if named.unsigned %} and 0xFF{% endif %}

            ((integer - steps.zeroPoint) * steps.scale.toDouble()).toFloat()
        }
    }

    /** Fetches the quantized integers{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}. */
    fun quantized{{ named.pascal }}(): {{ named.lite_kotlin }} {
{% else %}
    /** Fetches values{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}. */
    fun fetch{{ named.pascal }}(): {{ named.lite_kotlin }} {
{% endif %}
        val raw = output({{ loop.index0 }})
        val values = {{ named.lite_kotlin }}(raw.remaining() / {{ named.width }})
        raw{{ named.viewed }}.get(values)
        return values
    }

{% endfor %}
    private fun output(index: Int): ByteBuffer =
        interpreter.getOutputTensor(index).asReadOnlyBuffer().order(ByteOrder.nativeOrder())

{% if picture and picture.quantized %}
    /**
     * The integers of a picture for [feed{{ picture.pascal }}], of pixels as Bitmap.getPixels gives them:
     * those of [pictureValues], looked up in a table. The picture has the size that the model takes.
     */
    fun pictureIntegers(pixels: IntArray): {{ picture.lite_kotlin }} {
        val steps = interpreter.getInputTensor({{ picture_index }}).quantizationParams()
        val tables = arrayOf(
{% for channel in channels %}
            {{ picture.lite_kotlin }}(256) {
                quantized((it - {{ channel.mean | float }}) / {{ channel.std | float }}, steps, {{ picture.low }}, {{ picture.high }}).to{{ picture.element }}()
            },
{% endfor %}
        )
        val integers = {{ picture.lite_kotlin }}(pixels.size * {{ channels | length }})
        var at = 0
        for (pixel in pixels) {
{% if pictures.channels == "grayscale" %}
            val luminance = Math.round(
                0.299f * ((pixel shr 16) and 0xFF) +
                    0.587f * ((pixel shr 8) and 0xFF) +
                    0.114f * (pixel and 0xFF)
            )
{% endif %}
{% for channel in channels %}
            integers[at++] = tables[{{ loop.index0 }}][{{ channel.kotlin }}]
{% endfor %}
        }
        return integers
    }

{% endif %}
    /** Frees what the model takes. */
    override fun close() {
        interpreter.close()
    }

    companion object {
        /** The model file, among the app's assets. */
        const val MODEL_FILE = {{ model.file | kotlin }}
{% if model.labels %}

        /** The names of the classes in the order of the outputs, one a line, among the app's assets. */
        const val LABELS_FILE = {{ model.labels | kotlin }}
{% endif %}

{% for named in inputs + outputs %}
        const val {{ named.upper }} = {{ named.tensor.name | kotlin }}
{% endfor %}
{% include "picture.kt" %}
{% if quantized_inputs %}

        /** The nearest integer of the file; a value out of range becomes the closest end. */
        private fun quantized(
            value: Float,
            steps: org.tensorflow.lite.Tensor.QuantizationParams,
            low: Int,
            high: Int,
        ): Int {
            val integer = Math.rint(value / steps.scale.toDouble()) + steps.zeroPoint
            return integer.coerceIn(low.toDouble(), high.toDouble()).toInt()
        }
{% endif %}
{% if model.encrypted %}

        /** The decrypted model, outside the heap, where LiteRT reads it as long as it runs. */
        private fun decrypted(assets: AssetManager, key: ByteArray): ByteBuffer {
            val content = EncryptedModel.read(assets.open(MODEL_FILE), key)
            val model = ByteBuffer.allocateDirect(content.size).order(ByteOrder.nativeOrder())
            model.put(content)
            model.rewind()
            return model
        }
{% endif %}
    }
}

// Made by mobileprep: the next build replaces it.
package {{ package }}

import android.content.res.AssetManager
import java.io.Closeable
import java.nio.ByteBuffer
import java.nio.ByteOrder
{% for buffer in buffers %}
import java.nio.{{ buffer }}
{% endfor %}
import java.nio.channels.FileChannel
import org.tensorflow.lite.Interpreter

/** Runs the model: feed every input, then [run], then fetch. For one thread at a time. */
class {{ class_name }}(
    assets: AssetManager,
    options: Interpreter.Options = Interpreter.Options(){% if model.threads is not none %}.setNumThreads({{ model.threads }}){% endif %},
) : Closeable {
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
    private val fed = arrayOfNulls<Any>({{ inputs | length }})

{% for named in inputs %}
{% set tensor = named.tensor %}
{% if tensor.count is not none %}
    /** Feeds {{ tensor.count }} values of the shape [{{ tensor.shape | dims }}]. */
    fun feed{{ named.pascal }}(values: {{ named.lite_kotlin }}) {
        require(values.size == {{ tensor.count }}) { "takes {{ tensor.count }} values, not " + values.size }
{% elif tensor.row is not none %}
    /** Feeds values of the shape [{{ tensor.shape | dims }}]: {{ tensor.row }} for each sample. */
    fun feed{{ named.pascal }}(values: {{ named.lite_kotlin }}) {
        require(values.isNotEmpty() && values.size % {{ tensor.row }} == 0) {
            "takes {{ tensor.row }} values a sample, not " + values.size
        }
        interpreter.resizeInput({{ loop.index0 }}, intArrayOf(values.size / {{ tensor.row }}{% for size in tensor.shape[1:] %}, {{ size }}{% endfor %}))
{% else %}
    /** Feeds values of a shape. */
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
    /** Fetches values{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}. */
    fun fetch{{ named.pascal }}(): {{ named.lite_kotlin }} {
        val raw = output({{ loop.index0 }})
        val values = {{ named.lite_kotlin }}(raw.remaining() / {{ named.width }})
        raw{{ named.viewed }}.get(values)
        return values
    }

{% endfor %}
    private fun output(index: Int): ByteBuffer =
        interpreter.getOutputTensor(index).asReadOnlyBuffer().order(ByteOrder.nativeOrder())

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
    }
}

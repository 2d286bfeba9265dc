// Made by mobileprep: the next build replaces it.
package {{ package }}

import android.content.res.AssetManager
import java.io.Closeable
import org.tensorflow.contrib.android.TensorFlowInferenceInterface

/**
 * Runs the model: feed every input, then [run], then fetch. For one thread at a time.
 *
 * TensorFlowInferenceInterface has no settings for threads: it takes one for each processor.
 */
{% if model.encrypted %}
class {{ class_name }}(assets: AssetManager, key: ByteArray) : Closeable {
    private val inference =
        TensorFlowInferenceInterface(EncryptedModel.read(assets.open(MODEL_FILE), key).inputStream())
{% else %}
class {{ class_name }}(assets: AssetManager) : Closeable {
    private val inference = TensorFlowInferenceInterface(assets, "file:///android_asset/" + MODEL_FILE)
{% endif %}

{% if model.init_ops %}
    init {
        // Fills the tables that the model looks up in.
        inference.run(arrayOf<String>(), false, arrayOf(
{%- for name in model.init_ops %}{{ name | kotlin }}{% if not loop.last %}, {% endif %}{% endfor %}
))
    }

{% endif %}
{% for named in inputs %}
{% set tensor = named.tensor %}
{% if tensor.count is not none %}
    /** Feeds {{ tensor.count }} values of the shape [{{ tensor.shape | dims }}]. */
    fun feed{{ named.pascal }}(values: {{ named.kotlin }}) {
        require(values.size == {{ tensor.count }}) { "takes {{ tensor.count }} values, not " + values.size }
        inference.feed({{ named.upper }}, values{% for size in tensor.shape %}, {{ size }}L{% endfor %})
    }
{% elif tensor.row is not none %}
    /** Feeds values of the shape [{{ tensor.shape | dims }}]: {{ tensor.row }} for each sample. */
    fun feed{{ named.pascal }}(values: {{ named.kotlin }}) {
        require(values.isNotEmpty() && values.size % {{ tensor.row }} == 0) {
            "takes {{ tensor.row }} values a sample, not " + values.size
        }
        inference.feed({{ named.upper }}, values, (values.size / {{ tensor.row }}).toLong(){% for size in tensor.shape[1:] %}, {{ size }}L{% endfor %})
    }
{% else %}
    /** Feeds values of a shape. */
    fun feed{{ named.pascal }}(values: {{ named.kotlin }}, vararg shape: Long) {
        inference.feed({{ named.upper }}, values, *shape)
    }
{% endif %}

{% endfor %}
    /** Runs the model on what was fed. */
    fun run() {
        inference.run(arrayOf(
{%- for named in outputs %}{{ named.upper }}{% if not loop.last %}, {% endif %}{% endfor %}
))
    }

{% for named in outputs %}
{% set tensor = named.tensor %}
{% if tensor.count is not none %}
    /** Fetches values of the shape [{{ tensor.shape | dims }}]. */
    fun fetch{{ named.pascal }}(): {{ named.kotlin }} {
        val values = {{ named.kotlin }}({{ tensor.count }})
        inference.fetch({{ named.upper }}, values)
        return values
    }
{% elif tensor.row is not none %}
    /** Fetches values of the shape [{{ tensor.shape | dims }}] for so many samples. */
    fun fetch{{ named.pascal }}(samples: Int): {{ named.kotlin }} {
        val values = {{ named.kotlin }}(samples * {{ tensor.row }})
        inference.fetch({{ named.upper }}, values)
        return values
    }
{% else %}
    /** Fetches values into an array that has room for all of them. */
    fun fetch{{ named.pascal }}(values: {{ named.kotlin }}) {
        inference.fetch({{ named.upper }}, values)
    }
{% endif %}

{% endfor %}
    /** Frees what the model takes. */
    override fun close() {
        inference.close()
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

// Made by mobileprep: the next build replaces it.
package {{ package }};

import android.content.res.AssetManager;
{% if model.labels %}
import java.io.BufferedReader;
{% endif %}
{% if model.encrypted %}
import java.io.ByteArrayInputStream;
{% endif %}
{% if model.labels or model.encrypted %}
import java.io.IOException;
{% endif %}
{% if model.labels %}
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
{% endif %}
{% if model.encrypted %}
import java.security.GeneralSecurityException;
{% endif %}
{% if model.labels %}
import java.util.ArrayList;
import java.util.List;
{% endif %}
import org.tensorflow.contrib.android.TensorFlowInferenceInterface;

/**
 * Runs the model: feed every input, then {@link #run()}, then fetch. For one thread at a time.
 *
 * <p>TensorFlowInferenceInterface has no settings for threads: it takes one for each processor.
 */
public final class {{ class_name }} implements AutoCloseable {
  /** The model file, among the app's assets. */
  public static final String MODEL_FILE = {{ model.file | java }};
{% if model.labels %}
  /** The names of the classes in the order of the outputs, one a line, among the app's assets. */
  public static final String LABELS_FILE = {{ model.labels | java }};
{% endif %}
{% for named in inputs + outputs %}
  public static final String {{ named.upper }} = {{ named.tensor.name | java }};
{% endfor %}
  private static final String[] OUTPUTS = {
{%- for named in outputs %}{{ named.upper }}{% if not loop.last %}, {% endif %}{% endfor %}
};

  private final TensorFlowInferenceInterface inference;

{% if model.encrypted %}
  /** Loads the model, which is encrypted with a key. */
  public {{ class_name }}(AssetManager assets, byte[] key)
      throws IOException, GeneralSecurityException {
    inference =
        new TensorFlowInferenceInterface(
            new ByteArrayInputStream(EncryptedModel.read(assets.open(MODEL_FILE), key)));
{% else %}
  /** Loads the model. */
  public {{ class_name }}(AssetManager assets) {
    inference = new TensorFlowInferenceInterface(assets, "file:///android_asset/" + MODEL_FILE);
{% endif %}
{% if model.init_ops %}
    // Fills the tables that the model looks up in.
    inference.run(new String[0], false, new String[] {
{%- for name in model.init_ops %}{{ name | java }}{% if not loop.last %}, {% endif %}{% endfor %}
});
{% endif %}
  }

{% for named in inputs %}
{% set tensor = named.tensor %}
{% if tensor.count is not none %}
  /** Feeds {{ tensor.count }} values of the shape [{{ tensor.shape | dims }}]. */
  public void feed{{ named.pascal }}({{ named.java }}[] values) {
    if (values.length != {{ tensor.count }}) {
      throw new IllegalArgumentException("takes {{ tensor.count }} values, not " + values.length);
    }
    inference.feed({{ named.upper }}, values{% for size in tensor.shape %}, {{ size }}{% endfor %});
  }
{% elif tensor.row is not none %}
  /** Feeds values of the shape [{{ tensor.shape | dims }}]: {{ tensor.row }} for each sample. */
  public void feed{{ named.pascal }}({{ named.java }}[] values) {
    if (values.length == 0 || values.length % {{ tensor.row }} != 0) {
      throw new IllegalArgumentException("takes {{ tensor.row }} values a sample, not " + values.length);
    }
    inference.feed({{ named.upper }}, values, values.length / {{ tensor.row }}{% for size in tensor.shape[1:] %}, {{ size }}{% endfor %});
  }
{% else %}
  /** Feeds values of a shape. */
  public void feed{{ named.pascal }}({{ named.java }}[] values, long... shape) {
    inference.feed({{ named.upper }}, values, shape);
  }
{% endif %}

{% endfor %}
  /** Runs the model on what was fed. */
  public void run() {
    inference.run(OUTPUTS);
  }

{% for named in outputs %}
{% set tensor = named.tensor %}
{% if tensor.count is not none %}
  /** Fetches values of the shape [{{ tensor.shape | dims }}]. */
  public {{ named.java }}[] fetch{{ named.pascal }}() {
    {{ named.java }}[] values = new {{ named.java }}[{{ tensor.count }}];
    inference.fetch({{ named.upper }}, values);
    return values;
  }
{% elif tensor.row is not none %}
  /** Fetches values of the shape [{{ tensor.shape | dims }}] for so many samples. */
  public {{ named.java }}[] fetch{{ named.pascal }}(int samples) {
    {{ named.java }}[] values = new {{ named.java }}[samples * {{ tensor.row }}];
    inference.fetch({{ named.upper }}, values);
    return values;
  }
{% else %}
  /** Fetches values into an array that has room for all of them. */
  public void fetch{{ named.pascal }}({{ named.java }}[] values) {
    inference.fetch({{ named.upper }}, values);
  }
{% endif %}

{% endfor %}
{% include "picture.java" %}
  /** Frees what the model takes. */
  @Override
  public void close() {
    inference.close();
  }
}

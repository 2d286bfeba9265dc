// Made by mobileprep: the next build replaces it.
package {{ package }};

import android.content.res.AssetFileDescriptor;
import android.content.res.AssetManager;
{% if model.labels %}
import java.io.BufferedReader;
{% endif %}
import java.io.FileInputStream;
import java.io.IOException;
{% if model.labels %}
import java.io.InputStreamReader;
{% endif %}
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
{% for buffer in buffers %}
import java.nio.{{ buffer }};
{% endfor %}
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
{% if model.labels %}
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
{% endif %}
import java.util.HashMap;
{% if model.labels %}
import java.util.List;
{% endif %}
import java.util.Map;
import org.tensorflow.lite.Interpreter;

/** Runs the model: feed every input, then {@link #run()}, then fetch. For one thread at a time. */
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

  private final Interpreter interpreter;
  private final Object[] fed = new Object[{{ inputs | length }}];

  /** Loads the model. */
  public {{ class_name }}(AssetManager assets) throws IOException {
    this(assets, new Interpreter.Options(){% if model.threads is not none %}.setNumThreads({{ model.threads }}){% endif %});
  }

  /** Loads the model with options, such as delegates. */
  public {{ class_name }}(AssetManager assets, Interpreter.Options options) throws IOException {
    interpreter = new Interpreter(mapped(assets), options);
  }

  private static MappedByteBuffer mapped(AssetManager assets) throws IOException {
    try (AssetFileDescriptor file = assets.openFd(MODEL_FILE);
        FileInputStream stream = file.createInputStream()) {
      return stream
          .getChannel()
          .map(FileChannel.MapMode.READ_ONLY, file.getStartOffset(), file.getDeclaredLength());
    }
  }

{% for named in inputs %}
{% set tensor = named.tensor %}
{% if tensor.count is not none %}
  /** Feeds {{ tensor.count }} values of the shape [{{ tensor.shape | dims }}]. */
  public void feed{{ named.pascal }}({{ named.lite_java }}[] values) {
    if (values.length != {{ tensor.count }}) {
      throw new IllegalArgumentException("takes {{ tensor.count }} values, not " + values.length);
    }
{% elif tensor.row is not none %}
  /** Feeds values of the shape [{{ tensor.shape | dims }}]: {{ tensor.row }} for each sample. */
  public void feed{{ named.pascal }}({{ named.lite_java }}[] values) {
    if (values.length == 0 || values.length % {{ tensor.row }} != 0) {
      throw new IllegalArgumentException("takes {{ tensor.row }} values a sample, not " + values.length);
    }
    interpreter.resizeInput({{ loop.index0 }}, new int[] {values.length / {{ tensor.row }}{% for size in tensor.shape[1:] %}, {{ size }}{% endfor %}});
{% else %}
  /** Feeds values of a shape. */
  public void feed{{ named.pascal }}({{ named.lite_java }}[] values, int... shape) {
    interpreter.resizeInput({{ loop.index0 }}, shape);
{% endif %}
    fed[{{ loop.index0 }}] = {{ named.buffer }}.wrap(values);
  }

{% endfor %}
  /** Runs the model on what was fed. */
  public void run() {
    // What is not copied is read from the interpreter afterwards.
    Map<Integer, Object> outputs = new HashMap<>();
    for (int i = 0; i < {{ outputs | length }}; i++) {
      outputs.put(i, null);
    }
    interpreter.runForMultipleInputsOutputs(fed, outputs);
  }

{% for named in outputs %}
  /** Fetches values{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}. */
  public {{ named.lite_java }}[] fetch{{ named.pascal }}() {
    ByteBuffer raw = output({{ loop.index0 }});
    {{ named.lite_java }}[] values = new {{ named.lite_java }}[raw.remaining() / {{ named.width }}];
    raw{{ named.viewed }}.get(values);
    return values;
  }

{% endfor %}
  private ByteBuffer output(int index) {
    return interpreter.getOutputTensor(index).asReadOnlyBuffer().order(ByteOrder.nativeOrder());
  }

{% include "picture.java" %}
  /** Frees what the model takes. */
  @Override
  public void close() {
    interpreter.close();
  }
}

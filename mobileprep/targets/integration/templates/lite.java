// Made by mobileprep: the next build replaces it.
package {{ package }};

{% if not model.encrypted %}
import android.content.res.AssetFileDescriptor;
{% endif %}
import android.content.res.AssetManager;
{% if model.labels %}
import java.io.BufferedReader;
{% endif %}
{% if not model.encrypted %}
import java.io.FileInputStream;
{% endif %}
import java.io.IOException;
{% if model.labels %}
import java.io.InputStreamReader;
{% endif %}
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
{% for buffer in buffers %}
import java.nio.{{ buffer }};
{% endfor %}
{% if not model.encrypted %}
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
{% endif %}
{% if model.labels %}
import java.nio.charset.StandardCharsets;
{% endif %}
{% if model.encrypted %}
import java.security.GeneralSecurityException;
{% endif %}
{% if model.labels %}
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

{% if model.encrypted %}
  /** Loads the model, which is encrypted with a key. */
  public {{ class_name }}(AssetManager assets, byte[] key)
      throws IOException, GeneralSecurityException {
    this(assets, key, new Interpreter.Options(){% if model.threads is not none %}.setNumThreads({{ model.threads }}){% endif %});
  }

  /** Loads the model, which is encrypted with a key, with options, such as delegates. */
  public {{ class_name }}(AssetManager assets, byte[] key, Interpreter.Options options)
      throws IOException, GeneralSecurityException {
    interpreter = new Interpreter(decrypted(assets, key), options);
  }

  /** The decrypted model, in memory outside the heap, where LiteRT reads it as long as it runs. */
  private static ByteBuffer decrypted(AssetManager assets, byte[] key)
      throws IOException, GeneralSecurityException {
    byte[] content = EncryptedModel.read(assets.open(MODEL_FILE), key);
    ByteBuffer model = ByteBuffer.allocateDirect(content.length).order(ByteOrder.nativeOrder());
    model.put(content);
    model.rewind();
    return model;
  }
{% else %}
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
{% endif %}

{% for named in inputs %}
{% set tensor = named.tensor %}
{% if named.quantized %}
  /** Feeds values{% if tensor.shape is not none %} of the shape [{{ tensor.shape | dims }}]{% endif %}, quantized by the scale and zero point of the file. */
  public void feed{{ named.pascal }}(float[] values{% if named.open %}, int... shape{% endif %}) {
    org.tensorflow.lite.Tensor.QuantizationParams steps =
        interpreter.getInputTensor({{ loop.index0 }}).quantizationParams();
    {{ named.lite_java }}[] integers = new {{ named.lite_java }}[values.length];
    for (int i = 0; i < values.length; i++) {
      integers[i] = ({{ named.lite_java }}) quantized(values[i], steps, {{ named.low }}, {{ named.high }});
    }
    feed{{ named.pascal }}(integers{% if named.open %}, shape{% endif %});
  }

{% endif %}
{% if tensor.count is not none %}
  /** Feeds {{ tensor.count }} {{ named.fed }} of the shape [{{ tensor.shape | dims }}]. */
  public void feed{{ named.pascal }}({{ named.lite_java }}[] values) {
    if (values.length != {{ tensor.count }}) {
      throw new IllegalArgumentException("takes {{ tensor.count }} values, not " + values.length);
    }
{% elif tensor.row is not none %}
  /** Feeds {{ named.fed }} of the shape [{{ tensor.shape | dims }}]: {{ tensor.row }} for each sample. */
  public void feed{{ named.pascal }}({{ named.lite_java }}[] values) {
    if (values.length == 0 || values.length % {{ tensor.row }} != 0) {
      throw new IllegalArgumentException("takes {{ tensor.row }} values a sample, not " + values.length);
    }
    interpreter.resizeInput({{ loop.index0 }}, new int[] {values.length / {{ tensor.row }}{% for size in tensor.shape[1:] %}, {{ size }}{% endfor %}});
{% else %}
  /** Feeds {{ named.fed }} of a shape. */
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
{% if named.quantized %}
  /** Fetches values{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}, computed from {@link #quantized{{ named.pascal }}()}. */
  public float[] fetch{{ named.pascal }}() {
    org.tensorflow.lite.Tensor.QuantizationParams steps =
        interpreter.getOutputTensor({{ loop.index0 }}).quantizationParams();
    {{ named.lite_java }}[] integers = quantized{{ named.pascal }}();
    float[] values = new float[integers.length];
    for (int i = 0; i < values.length; i++) {
      int integer = integers[i]{% if named.unsigned %} & 0xFF{% endif %};
      values[i] = (float) ((integer - steps.getZeroPoint()) * (double) steps.getScale());
    }
    return values;
  }

  /** Fetches the quantized integers{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}. */
  public {{ named.lite_java }}[] quantized{{ named.pascal }}() {
{% else %}
  /** Fetches values{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}. */
  public {{ named.lite_java }}[] fetch{{ named.pascal }}() {
{% endif %}
    ByteBuffer raw = output({{ loop.index0 }});
    {{ named.lite_java }}[] values = new {{ named.lite_java }}[raw.remaining() / {{ named.width }}];
    raw{{ named.viewed }}.get(values);
    return values;
  }

{% endfor %}
  private ByteBuffer output(int index) {
    return interpreter.getOutputTensor(index).asReadOnlyBuffer().order(ByteOrder.nativeOrder());
  }

{% if quantized_inputs %}
  /** The nearest integer of the file; a value out of range becomes the closest end. */
  private static int quantized(
      float value, org.tensorflow.lite.Tensor.QuantizationParams steps, int low, int high) {
    double integer = Math.rint(value / (double) steps.getScale()) + steps.getZeroPoint();
    return (int) Math.max(low, Math.min(high, integer));
  }

{% endif %}
{% if picture and picture.quantized %}
  /**
   * The integers of a picture for {@link #feed{{ picture.pascal }}}, of pixels as Bitmap.getPixels gives them:
   * those of {@link #pictureValues}, looked up in a table. The picture has the size that the model takes.
   */
  public {{ picture.lite_java }}[] pictureIntegers(int[] pixels) {
    org.tensorflow.lite.Tensor.QuantizationParams steps =
        interpreter.getInputTensor({{ picture_index }}).quantizationParams();
    {{ picture.lite_java }}[][] table = new {{ picture.lite_java }}[{{ channels | length }}][256];
    for (int value = 0; value < 256; value++) {
{% for channel in channels %}
      table[{{ loop.index0 }}][value] =
          ({{ picture.lite_java }}) quantized((value - {{ channel.mean | float }}) / {{ channel.std | float }}, steps, {{ picture.low }}, {{ picture.high }});
{% endfor %}
    }
    {{ picture.lite_java }}[] integers = new {{ picture.lite_java }}[pixels.length * {{ channels | length }}];
    int at = 0;
    for (int pixel : pixels) {
{% if pictures.channels == "grayscale" %}
      int luminance =
          Math.round(
              0.299f * ((pixel >> 16) & 0xFF)
                  + 0.587f * ((pixel >> 8) & 0xFF)
                  + 0.114f * (pixel & 0xFF));
{% endif %}
{% for channel in channels %}
      integers[at++] = table[{{ loop.index0 }}][{{ channel.java }}];
{% endfor %}
    }
    return integers;
  }

{% endif %}
{% include "picture.java" %}
  /** Frees what the model takes. */
  @Override
  public void close() {
    interpreter.close();
  }
}

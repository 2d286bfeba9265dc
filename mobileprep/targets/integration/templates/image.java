{% if image %}
  /**
   * Converts pixels of Bitmap.getPixels to values for {@link #feed{{ image.pascal }}}.
   * The image must have the size of the input.
   */
  public static {{ image.java }}[] imageValues(int[] pixels) {
    {{ image.java }}[] values = new {{ image.java }}[pixels.length * {{ channels | length }}];
    int at = 0;
    for (int pixel : pixels) {
{% if images.channels == "grayscale" %}
      int luminance =
          Math.round(
              0.299f * ((pixel >> 16) & 0xFF)
                  + 0.587f * ((pixel >> 8) & 0xFF)
                  + 0.114f * (pixel & 0xFF));
{% endif %}
{% for channel in channels %}
{% if image.tensor.dtype.name == "FLOAT" %}
      values[at++] = ({{ channel.java }} - {{ channel.mean | float }}) / {{ channel.std | float }};
{% else %}
      values[at++] =
          (byte) (int) Math.max(0, Math.min(255, Math.rint(({{ channel.java }} - {{ channel.mean | float }}) / {{ channel.std | float }})));
{% endif %}
{% endfor %}
    }
    return values;
  }

{% endif %}
{% if model.labels %}
  /** Reads the class names, in the order of the outputs. */
  public static List<String> readLabels(AssetManager assets) throws IOException {
    List<String> labels = new ArrayList<>();
    try (BufferedReader reader =
        new BufferedReader(
            new InputStreamReader(assets.open(LABELS_FILE), StandardCharsets.UTF_8))) {
      for (String line = reader.readLine(); line != null; line = reader.readLine()) {
        labels.add(line);
      }
    }
    return labels;
  }

{% endif %}
{% if pre and not pre.is_audio %}
  /**
   * Crops, resizes, and scales an image of any size, as the training graph did, to values for
   * {@link #feed{{ pre_named.pascal }}}.
   *
   * @param pixels pixels of Bitmap.getPixels, row by row
   */
  public static {{ pre_java }}[] preprocess(int[] pixels, int width, int height) {
    int top = 0;
    int left = 0;
{% if crop %}
    top = (int) ((height - height * {{ crop }}) / 2);
    left = (int) ((width - width * {{ crop }}) / 2);
{% endif %}
    int rows = {% if pre.resize %}{{ pre.resize[0] }}{% else %}height - 2 * top{% endif %};
    int columns = {% if pre.resize %}{{ pre.resize[1] }}{% else %}width - 2 * left{% endif %};
    float[] down = places(height - 2 * top, rows);
    float[] across = places(width - 2 * left, columns);
    {{ pre_java }}[] values = new {{ pre_java }}[rows * columns * {{ pre_channels | length }}];
    int at = 0;
    for (int y = 0; y < rows; y++) {
      int y0 = Math.min(height - 2 * top - 1, Math.max(0, (int) Math.floor(down[y])));
      int y1 = Math.max(0, Math.min(height - 2 * top - 1, (int) Math.ceil(down[y])));
      float weightY = down[y] - (float) Math.floor(down[y]);
      for (int x = 0; x < columns; x++) {
        int x0 = Math.min(width - 2 * left - 1, Math.max(0, (int) Math.floor(across[x])));
        int x1 = Math.max(0, Math.min(width - 2 * left - 1, (int) Math.ceil(across[x])));
        float weightX = across[x] - (float) Math.floor(across[x]);
        int p00 = pixels[(top + y0) * width + left + x0];
        int p01 = pixels[(top + y0) * width + left + x1];
        int p10 = pixels[(top + y1) * width + left + x0];
        int p11 = pixels[(top + y1) * width + left + x1];
{% for channel in pre_channels %}
        {
          float upper = color{{ loop.index0 }}(p00) + (color{{ loop.index0 }}(p01) - color{{ loop.index0 }}(p00)) * weightX;
          float lower = color{{ loop.index0 }}(p10) + (color{{ loop.index0 }}(p11) - color{{ loop.index0 }}(p10)) * weightX;
          float value = upper + (lower - upper) * weightY;
          values[at++] = {% if pre_java == "float" %}(value - {{ channel.mean | float }}) / {{ channel.std | float }}{% else %}(byte) (int) {% if pre_rounds %}Math.rint(value){% else %}value{% endif %}{% endif %};
        }
{% endfor %}
      }
    }
    return values;
  }

{% for channel in pre_channels %}
  private static float color{{ loop.index0 }}(int pixel) {
{% if channel.color is none %}
    return (float)
        Math.floor(
            0.299f * ((pixel >> 16) & 0xFF)
                + 0.587f * ((pixel >> 8) & 0xFF)
                + 0.114f * (pixel & 0xFF)
                + 0.5f);
{% else %}
    return {{ channel.java }};
{% endif %}
  }

{% endfor %}
  /** Returns the positions in the source of the pixels along an axis of the resized image. */
  private static float[] places(int extent, int count) {
{% if pre.align_corners %}
    float scale = count > 1 ? (extent - 1) / (float) (count - 1) : extent / (float) count;
{% else %}
    float scale = extent / (float) count;
{% endif %}
    float[] places = new float[count];
    for (int i = 0; i < count; i++) {
{% if pre.interpolation == "nearest" %}
      float place = {% if pre.half_pixel_centers %}(i + 0.5f) * scale{% else %}i * scale{% endif %};
      places[i] = Math.min(extent - 1, (float) Math.floor(place{% if pre.align_corners %} + 0.5f{% endif %}));
{% else %}
      places[i] = {% if pre.half_pixel_centers %}(i + 0.5f) * scale - 0.5f{% else %}i * scale{% endif %};
{% endif %}
    }
    return places;
  }

{% elif pre %}
  /**
   * Converts 16-bit samples, with the channels of each frame next to each other, to values for
   * {@link #feed{{ pre_named.pascal }}}.
   */
  public static float[] preprocess(short[] samples, int channels) {
    int frames = samples.length / channels;
    int count = {% if pre.desired_samples %}{{ pre.desired_samples }}{% else %}frames{% endif %};
    int wanted = {% if pre.desired_channels %}{{ pre.desired_channels }}{% else %}channels{% endif %};
    float[] values = new float[count * wanted];
    for (int i = 0; i < Math.min(frames, count); i++) {
      for (int c = 0; c < wanted; c++) {
        values[i * wanted + c] = samples[i * channels + Math.min(c, channels - 1)] / 32768f;
      }
    }
    return values;
  }

{% endif %}
{% if ctc %}
{% include "ctc.java" %}
{% endif %}
{% if model.ranks %}
  /** Returns the indices of the k highest scores, highest first. */
  public static int[] topK(float[] scores, int k) {
    int[] order = new int[Math.max(0, Math.min(k, scores.length))];
    boolean[] used = new boolean[scores.length];
    for (int place = 0; place < order.length; place++) {
      int best = -1;
      for (int i = 0; i < scores.length; i++) {
        if (!used[i] && (best < 0 || scores[i] > scores[best])) {
          best = i;
        }
      }
      used[best] = true;
      order[place] = best;
    }
    return order;
  }

{% endif %}

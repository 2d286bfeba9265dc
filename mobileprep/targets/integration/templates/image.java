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

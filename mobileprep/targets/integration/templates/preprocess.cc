{% if pre and not pre.is_audio %}

namespace {

// For each pixel along an axis of the resized image, two pixels of the source and the second's weight.
struct Line {
  std::vector<int> first, last;
  std::vector<float> weight;
};

Line LineOf(int extent, int count) {
  Line line;
{% if pre.align_corners %}
  const float scale = count > 1 ? (extent - 1) / static_cast<float>(count - 1) : extent / static_cast<float>(count);
{% else %}
  const float scale = extent / static_cast<float>(count);
{% endif %}
  for (int i = 0; i < count; ++i) {
{% if pre.interpolation == "nearest" %}
    const float place = {% if pre.half_pixel_centers %}(i + 0.5f) * scale{% else %}i * scale{% endif %};
    const int nearest = static_cast<int>(std::floor(place{% if pre.align_corners %} + 0.5f{% endif %}));
    line.first.push_back(std::max(0, std::min(extent - 1, nearest)));
    line.last.push_back(line.first.back());
    line.weight.push_back(0.0f);
{% else %}
    const float place = {% if pre.half_pixel_centers %}(i + 0.5f) * scale - 0.5f{% else %}i * scale{% endif %};
    const float below = std::floor(place);
    line.first.push_back(std::min(extent - 1, std::max(0, static_cast<int>(below))));
    line.last.push_back(std::max(0, std::min(extent - 1, static_cast<int>(std::ceil(place)))));
    line.weight.push_back(place - below);
{% endif %}
  }
  return line;
}

// Crops, resizes, reorders, and scales an image as the training graph did.
std::vector<{{ pre_type }}> Prepared(const std::uint8_t* pixels, int height, int width, int bytes_per_pixel,
                            int* out_height, int* out_width) {
  int top = 0, left = 0;
{% if crop %}
  top = static_cast<int>((height - height * {{ crop }}) / 2);
  left = static_cast<int>((width - width * {{ crop }}) / 2);
{% endif %}
  const int rows = height - 2 * top, columns = width - 2 * left;
  *out_height = {% if pre.resize %}{{ pre.resize[0] }}{% else %}rows{% endif %};
  *out_width = {% if pre.resize %}{{ pre.resize[1] }}{% else %}columns{% endif %};
  const Line down = LineOf(rows, *out_height), across = LineOf(columns, *out_width);
  const auto color = [&](int y, int x, int channel) -> float {
    const std::uint8_t* rgb = pixels + (static_cast<std::int64_t>(top + y) * width + left + x) * bytes_per_pixel;
{% if pre.channels == "grayscale" %}
    (void)channel;
    return std::floor(0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2] + 0.5f);
{% else %}
    return rgb[channel];
{% endif %}
  };
  const auto resized = [&](int y, int x, int channel) {
    const int y0 = down.first[y], y1 = down.last[y], x0 = across.first[x], x1 = across.last[x];
    const float upper = color(y0, x0, channel) + (color(y0, x1, channel) - color(y0, x0, channel)) * across.weight[x];
    const float lower = color(y1, x0, channel) + (color(y1, x1, channel) - color(y1, x0, channel)) * across.weight[x];
    return upper + (lower - upper) * down.weight[y];
  };
  std::vector<{{ pre_type }}> values;
  values.reserve(static_cast<std::size_t>(*out_height) * *out_width * {{ pre_channels | length }});
  for (int y = 0; y < *out_height; ++y) {
    for (int x = 0; x < *out_width; ++x) {
{% for channel in pre_channels %}
      values.push_back({% if pre_type == "float" %}(resized(y, x, {{ channel.color or 0 }}) - {{ channel.mean | float }}) / {{ channel.std | float }}{% else %}static_cast<std::uint8_t>({% if pre_rounds %}std::nearbyint({% endif %}resized(y, x, {{ channel.color or 0 }}){% if pre_rounds %}){% endif %}){% endif %});
{% endfor %}
    }
  }
  return values;
}

}  // namespace
{% elif pre %}

namespace {

// Converts 16-bit samples as DecodeWav does.
std::vector<float> Prepared(const std::int16_t* samples, int frames, int channels) {
  const int count = {% if pre.desired_samples %}{{ pre.desired_samples }}{% else %}frames{% endif %}, wanted = {% if pre.desired_channels %}{{ pre.desired_channels }}{% else %}channels{% endif %};
  std::vector<float> values(static_cast<std::size_t>(count) * wanted, 0.0f);
  for (int i = 0; i < std::min(frames, count); ++i) {
    for (int c = 0; c < wanted; ++c) {
      values[static_cast<std::size_t>(i) * wanted + c] =
          samples[static_cast<std::size_t>(i) * channels + std::min(c, channels - 1)] / 32768.0f;
    }
  }
  return values;
}

}  // namespace
{% endif %}

// Made by mobileprep: the next build replaces it.
#include "{{ class_name }}.h"

#include <algorithm>
#include <cmath>
#include <fstream>
{% if quantized_inputs %}
#include <limits>
{% endif %}
#include <utility>
{% if model.encrypted %}

#include "EncryptedModel.h"
{% endif %}

{% for name in namespaces %}
namespace {{ name }} {
{% endfor %}

constexpr const char* {{ class_name }}::kModelFile;
{% if model.labels %}
constexpr const char* {{ class_name }}::kLabelsFile;
{% endif %}

{% if model.encrypted %}
std::unique_ptr<{{ class_name }}> {{ class_name }}::Load(const std::string& path, const std::uint8_t* key,
    std::string* error) {
  std::unique_ptr<{{ class_name }}> loaded(new {{ class_name }}());
  const std::string problem = ReadEncryptedModel(path, key, &loaded->content_);
  if (!problem.empty()) {
    if (error != nullptr) *error = problem;
    return nullptr;
  }
  loaded->model_.reset(TfLiteModelCreate(loaded->content_.data(), loaded->content_.size()));
{% else %}
std::unique_ptr<{{ class_name }}> {{ class_name }}::Load(const std::string& path) {
  std::unique_ptr<{{ class_name }}> loaded(new {{ class_name }}());
  loaded->model_.reset(TfLiteModelCreateFromFile(path.c_str()));
{% endif %}
  if (!loaded->model_) return nullptr;
  std::unique_ptr<TfLiteInterpreterOptions, void (*)(TfLiteInterpreterOptions*)> options(
      TfLiteInterpreterOptionsCreate(), TfLiteInterpreterOptionsDelete);
{% if model.threads is not none %}
  TfLiteInterpreterOptionsSetNumThreads(options.get(), {{ model.threads }});
{% endif %}
  loaded->interpreter_.reset(TfLiteInterpreterCreate(loaded->model_.get(), options.get()));
  if (!loaded->interpreter_) return nullptr;
  loaded->fed_.resize({{ inputs | length }});
  return loaded;
}

bool {{ class_name }}::Feed(int index, const void* values, std::size_t bytes, const std::vector<int>& shape) {
  fed_[index].assign(static_cast<const char*>(values), bytes);
  return TfLiteInterpreterResizeInputTensor(interpreter_.get(), index, shape.data(),
                                            static_cast<int>(shape.size())) == kTfLiteOk;
}

{% if quantized_inputs %}
template <typename Integer>
std::vector<Integer> {{ class_name }}::ToIntegers(int index, const std::vector<float>& values) const {
  const TfLiteQuantizationParams steps =
      TfLiteTensorQuantizationParams(TfLiteInterpreterGetInputTensor(interpreter_.get(), index));
  const double low = std::numeric_limits<Integer>::min(), high = std::numeric_limits<Integer>::max();
  std::vector<Integer> integers;
  integers.reserve(values.size());
  for (const float value : values) {
    const double integer =
        std::nearbyint(value / static_cast<double>(steps.scale)) + steps.zero_point;
    integers.push_back(static_cast<Integer>(std::max(low, std::min(high, integer))));
  }
  return integers;
}

{% endif %}
{% for named in inputs %}
{% set tensor = named.tensor %}
{% if named.quantized %}
bool {{ class_name }}::Feed{{ named.pascal }}(const std::vector<float>& values{% if named.open %}, const std::vector<int>& shape{% endif %}) {
  return Feed{{ named.pascal }}(ToIntegers<{{ named.lite_cpp }}>({{ loop.index0 }}, values){% if named.open %}, shape{% endif %});
}

{% endif %}
{% if tensor.count is not none %}
bool {{ class_name }}::Feed{{ named.pascal }}(const std::vector<{{ named.lite_cpp }}>& values) {
  if (values.size() != {{ tensor.count }}) return false;
  return Feed({{ loop.index0 }}, values.data(), values.size() * sizeof({{ named.lite_cpp }}), { {{- tensor.shape | dims -}} });
}
{% elif tensor.row is not none %}
bool {{ class_name }}::Feed{{ named.pascal }}(const std::vector<{{ named.lite_cpp }}>& values) {
  if (values.empty() || values.size() % {{ tensor.row }} != 0) return false;
  const int samples = static_cast<int>(values.size() / {{ tensor.row }});
  return Feed({{ loop.index0 }}, values.data(), values.size() * sizeof({{ named.lite_cpp }}), {samples{% for size in tensor.shape[1:] %}, {{ size }}{% endfor %}});
}
{% else %}
bool {{ class_name }}::Feed{{ named.pascal }}(const std::vector<{{ named.lite_cpp }}>& values, const std::vector<int>& shape) {
  return Feed({{ loop.index0 }}, values.data(), values.size() * sizeof({{ named.lite_cpp }}), shape);
}
{% endif %}

{% endfor %}
bool {{ class_name }}::Run() {
  if (TfLiteInterpreterAllocateTensors(interpreter_.get()) != kTfLiteOk) return false;
  for (std::size_t i = 0; i < fed_.size(); ++i) {
    TfLiteTensor* input = TfLiteInterpreterGetInputTensor(interpreter_.get(), static_cast<int>(i));
    if (TfLiteTensorCopyFromBuffer(input, fed_[i].data(), fed_[i].size()) != kTfLiteOk) return false;
  }
  return TfLiteInterpreterInvoke(interpreter_.get()) == kTfLiteOk;
}

{% for named in outputs %}
{% if named.quantized %}
bool {{ class_name }}::Fetch{{ named.pascal }}(std::vector<float>* values) const {
  std::vector<{{ named.lite_cpp }}> integers;
  if (!Quantized{{ named.pascal }}(&integers)) return false;
  const TfLiteQuantizationParams steps = TfLiteTensorQuantizationParams(
      TfLiteInterpreterGetOutputTensor(interpreter_.get(), {{ loop.index0 }}));
  values->clear();
  for (const int integer : integers) {
    values->push_back(
        static_cast<float>((integer - steps.zero_point) * static_cast<double>(steps.scale)));
  }
  return true;
}

{% endif %}
bool {{ class_name }}::{% if named.quantized %}Quantized{% else %}Fetch{% endif %}{{ named.pascal }}(std::vector<{{ named.lite_cpp }}>* values) const {
  const TfLiteTensor* output = TfLiteInterpreterGetOutputTensor(interpreter_.get(), {{ loop.index0 }});
  values->resize(TfLiteTensorByteSize(output) / sizeof({{ named.lite_cpp }}));
  return TfLiteTensorCopyToBuffer(output, values->data(), TfLiteTensorByteSize(output)) == kTfLiteOk;
}

{% endfor %}
{% if picture %}
{% if picture.quantized %}
std::vector<{{ picture.lite_cpp }}> {{ class_name }}::PictureIntegers(const std::uint8_t* rgb, int height, int width) const {
  std::vector<float> values;
  for (int value = 0; value < 256; ++value) {
{% for channel in channels %}
    values.push_back((value - {{ channel.mean | float }}) / {{ channel.std | float }});
{% endfor %}
  }
  const auto table = ToIntegers<{{ picture.lite_cpp }}>({{ picture_index }}, values);
  const std::int64_t pixels = static_cast<std::int64_t>(height) * width;
  std::vector<{{ picture.lite_cpp }}> integers;
  integers.reserve(pixels * {{ channels | length }});
  for (std::int64_t i = 0; i < pixels; ++i, rgb += 3) {
{% if pictures.channels == "grayscale" %}
    const int luminance = static_cast<int>(0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2] + 0.5f);
{% endif %}
{% for channel in channels %}
    integers.push_back(table[{{ channel.cpp }} * {{ channels | length }} + {{ loop.index0 }}]);
{% endfor %}
  }
  return integers;
}

{% endif %}
std::vector<{{ picture.picture_cpp }}> {{ class_name }}::Picture(const std::uint8_t* rgb, int height, int width) {
  const std::int64_t pixels = static_cast<std::int64_t>(height) * width;
  std::vector<{{ picture.picture_cpp }}> values;
  values.reserve(pixels * {{ channels | length }});
  for (std::int64_t i = 0; i < pixels; ++i, rgb += 3) {
{% if pictures.channels == "grayscale" %}
    const float luminance = std::floor(0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2] + 0.5f);
{% endif %}
{% for channel in channels %}
{% if picture.tensor.dtype.name == "FLOAT" %}
    values.push_back(({{ channel.cpp }} - {{ channel.mean | float }}) / {{ channel.std | float }});
{% else %}
    values.push_back(static_cast<std::uint8_t>(
        std::max(0.0f, std::min(255.0f, std::nearbyint(({{ channel.cpp }} - {{ channel.mean | float }}) / {{ channel.std | float }})))));
{% endif %}
{% endfor %}
  }
  return values;
}

{% endif %}
{% if model.labels %}
bool {{ class_name }}::ReadLabels(const std::string& path, std::vector<std::string>* labels) {
  std::ifstream lines(path);
  if (!lines) return false;
  labels->clear();
  for (std::string line; std::getline(lines, line);) labels->push_back(line);
  return true;
}

{% endif %}
{% for name in namespaces | reverse %}
}  // namespace {{ name }}
{% endfor %}

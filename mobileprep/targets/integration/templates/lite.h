// Made by mobileprep: the next build replaces it.
#ifndef {{ guard }}_
#define {{ guard }}_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/lite/c/c_api.h"

{% for name in namespaces %}
namespace {{ name }} {
{% endfor %}

// Runs the model: feed every input, then Run, then fetch. For one thread at a time. All functions give
// false where LiteRT refuses, which tells why on the standard error.
class {{ class_name }} {
 public:
  // The model file as the app ships it.
  static constexpr const char* kModelFile = {{ model.file | c }};
{% if model.labels %}
  // The file with the names of the classes in the order of the outputs, one a line.
  static constexpr const char* kLabelsFile = {{ model.labels | c }};
{% endif %}

{% if model.encrypted %}
  // Loads the model from the path of such a file, which is encrypted with a key of 32 bytes. Returns
  // null if it cannot; if the file cannot be decrypted, error says why.
  static std::unique_ptr<{{ class_name }}> Load(const std::string& path, const std::uint8_t* key,
      std::string* error = nullptr);
{% else %}
  // Loads the model from the path of such a file; nothing where it cannot.
  static std::unique_ptr<{{ class_name }}> Load(const std::string& path);
{% endif %}

{% for named in inputs %}
{% set tensor = named.tensor %}
{% if named.quantized %}
  // Feeds values{% if tensor.shape is not none %} of the shape [{{ tensor.shape | dims }}]{% endif %}, quantized by the scale and zero point of the file.
  bool Feed{{ named.pascal }}(const std::vector<float>& values{% if named.open %}, const std::vector<int>& shape{% endif %});
{% endif %}
  // Feeds {{ named.fed }}{% if tensor.shape is not none %} of the shape [{{ tensor.shape | dims }}]{% endif %}.
{% if tensor.count is not none or tensor.row is not none %}
  bool Feed{{ named.pascal }}(const std::vector<{{ named.lite_cpp }}>& values);
{% else %}
  bool Feed{{ named.pascal }}(const std::vector<{{ named.lite_cpp }}>& values, const std::vector<int>& shape);
{% endif %}
{% endfor %}

  // Runs the model on what was fed.
  bool Run();

{% for named in outputs %}
{% if named.quantized %}
  // Fetches values{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}, computed from the integers.
  bool Fetch{{ named.pascal }}(std::vector<float>* values) const;
  // Fetches the quantized integers{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}.
  bool Quantized{{ named.pascal }}(std::vector<{{ named.lite_cpp }}>* values) const;
{% else %}
  // Fetches values{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}.
  bool Fetch{{ named.pascal }}(std::vector<{{ named.lite_cpp }}>* values) const;
{% endif %}
{% endfor %}
{% if picture %}

  // The values of a picture for Feed{{ picture.pascal }}: of red, green and blue, row by row, each of 0 to 255.
  // The picture has the size that the model takes.
  static std::vector<{{ picture.picture_cpp }}> Picture(const std::uint8_t* rgb, int height, int width);
{% if picture.quantized %}
  // The integers of a picture for Feed{{ picture.pascal }}: those of Picture, looked up in a table.
  std::vector<{{ picture.lite_cpp }}> PictureIntegers(const std::uint8_t* rgb, int height, int width) const;
{% endif %}
{% endif %}
{% if model.labels %}

  // Reads the names of the classes from the path of kLabelsFile.
  static bool ReadLabels(const std::string& path, std::vector<std::string>* labels);
{% endif %}

 private:
  {{ class_name }}() = default;
  bool Feed(int index, const void* values, std::size_t bytes, const std::vector<int>& shape);
{% if quantized_inputs %}
  // The nearest integers of an input; values out of range become the closest end.
  template <typename Integer>
  std::vector<Integer> ToIntegers(int index, const std::vector<float>& values) const;
{% endif %}

{% if model.encrypted %}
  // LiteRT reads the model from here as long as it runs, so this is destroyed last.
  std::string content_;
{% endif %}
  std::unique_ptr<TfLiteModel, void (*)(TfLiteModel*)> model_{nullptr, TfLiteModelDelete};
  std::unique_ptr<TfLiteInterpreter, void (*)(TfLiteInterpreter*)> interpreter_{
      nullptr, TfLiteInterpreterDelete};
  std::vector<std::string> fed_;
};

{% for name in namespaces | reverse %}
}  // namespace {{ name }}
{% endfor %}

#endif  // {{ guard }}_

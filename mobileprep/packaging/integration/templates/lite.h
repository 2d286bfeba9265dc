// Made by mobileprep: the next build replaces it.
#ifndef {{ guard }}_
#define {{ guard }}_

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

  // Loads the model from the path of such a file; nothing where it cannot.
  static std::unique_ptr<{{ class_name }}> Load(const std::string& path);

{% for named in inputs %}
{% set tensor = named.tensor %}
  // Feeds values{% if tensor.shape is not none %} of the shape [{{ tensor.shape | dims }}]{% endif %}.
{% if tensor.count is not none or tensor.row is not none %}
  bool Feed{{ named.pascal }}(const std::vector<{{ named.lite_cpp }}>& values);
{% else %}
  bool Feed{{ named.pascal }}(const std::vector<{{ named.lite_cpp }}>& values, const std::vector<int>& shape);
{% endif %}
{% endfor %}

  // Runs the model on what was fed.
  bool Run();

{% for named in outputs %}
  // Fetches values{% if named.tensor.shape is not none %} of the shape [{{ named.tensor.shape | dims }}]{% endif %}.
  bool Fetch{{ named.pascal }}(std::vector<{{ named.lite_cpp }}>* values) const;
{% endfor %}
{% if picture %}

  // The values of a picture for Feed{{ picture.pascal }}: of red, green and blue, row by row, each of 0 to 255.
  // The picture has the size that the model takes.
  static std::vector<{{ picture.lite_cpp }}> Picture(const std::uint8_t* rgb, int height, int width);
{% endif %}
{% if model.labels %}

  // Reads the names of the classes from the path of kLabelsFile.
  static bool ReadLabels(const std::string& path, std::vector<std::string>* labels);
{% endif %}

 private:
  {{ class_name }}() = default;
  bool Feed(int index, const void* values, std::size_t bytes, const std::vector<int>& shape);

  std::unique_ptr<TfLiteModel, void (*)(TfLiteModel*)> model_{nullptr, TfLiteModelDelete};
  std::unique_ptr<TfLiteInterpreter, void (*)(TfLiteInterpreter*)> interpreter_{
      nullptr, TfLiteInterpreterDelete};
  std::vector<std::string> fed_;
};

{% for name in namespaces | reverse %}
}  // namespace {{ name }}
{% endfor %}

#endif  // {{ guard }}_

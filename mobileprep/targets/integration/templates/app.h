// Made by mobileprep: the next build replaces it.
#ifndef {{ guard }}_
#define {{ guard }}_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/lib/core/status.h"
#include "tensorflow/core/public/session.h"
{% if model.artifact == "memmapped" %}
#include "tensorflow/core/util/memmapped_file_system.h"
{% endif %}

{% for name in namespaces %}
namespace {{ name }} {
{% endfor %}

// Runs the model; any number of threads may do so at once.
class {{ class_name }} {
 public:
  // The model file as the app ships it.
  static constexpr const char* kModelFile = {{ model.file | c }};
{% if model.labels %}
  // The file with the names of the classes in the order of the outputs, one a line.
  static constexpr const char* kLabelsFile = {{ model.labels | c }};
{% endif %}

{% if model.encrypted %}
  // Loads the model from the path of such a file, which is encrypted with a key of 32 bytes.
  static tensorflow::Status Load(const std::string& path, const std::uint8_t* key,
                                 std::unique_ptr<{{ class_name }}>* loaded);
{% else %}
  // Loads the model from the path of such a file.
  static tensorflow::Status Load(const std::string& path, std::unique_ptr<{{ class_name }}>* loaded);
{% endif %}

  // Runs the model.
{% for named in inputs %}
  //   {{ named.snake }}: {{ named.enum }}{% if named.tensor.shape is not none %}, of the shape [{{ named.tensor.shape | dims }}]{% endif %}

{% endfor %}
{% for named in outputs %}
  //   {{ named.snake }}: {{ named.enum }}{% if named.tensor.shape is not none %}, of the shape [{{ named.tensor.shape | dims }}]{% endif %}

{% endfor %}
  tensorflow::Status Run(
{%- for named in inputs %}const tensorflow::Tensor& {{ named.snake }}, {% endfor %}
{% for named in outputs %}tensorflow::Tensor* {{ named.snake }}{% if not loop.last %}, {% endif %}{% endfor %}
) const;
{% if picture %}

  // The values of a picture for {{ picture.snake }}: of red, green and blue, row by row, each of 0 to 255.
  // The picture has the size that the model takes.
  static tensorflow::Tensor Picture(const std::uint8_t* rgb, int height, int width);
{% endif %}
{% if model.labels %}

  // Reads the names of the classes from the path of kLabelsFile.
  static tensorflow::Status ReadLabels(const std::string& path, std::vector<std::string>* labels);
{% endif %}

 private:
  {{ class_name }}() = default;

{% if model.artifact == "memmapped" %}
  // The session has constants in its memory, so it is freed after the session.
  std::unique_ptr<tensorflow::MemmappedEnv> env_;
{% endif %}
  std::unique_ptr<tensorflow::Session> session_;
};

{% for name in namespaces | reverse %}
}  // namespace {{ name }}
{% endfor %}

#endif  // {{ guard }}_

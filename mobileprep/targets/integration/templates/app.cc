// Made by mobileprep: the next build replaces it.
#include "{{ class_name }}.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

{% if model.encrypted %}
#include "EncryptedModel.h"
{% endif %}
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/tensor_shape.pb.h"
#include "tensorflow/core/lib/core/errors.h"
#include "tensorflow/core/platform/env.h"

{% for name in namespaces %}
namespace {{ name }} {
{% endfor %}
namespace {

tensorflow::Status CheckInput(const tensorflow::Tensor& given, tensorflow::DataType type,
                              const tensorflow::PartialTensorShape& shape, const char* name) {
  if (given.dtype() == type && shape.IsCompatibleWith(given.shape())) {
    return tensorflow::Status();
  }
  return tensorflow::errors::InvalidArgument(
      name, " takes ", tensorflow::DataTypeString(type), " of the shape ", shape.DebugString(),
      ", not ", tensorflow::DataTypeString(given.dtype()), " of ", given.shape().DebugString());
}

}  // namespace

constexpr const char* {{ class_name }}::kModelFile;
{% if model.labels %}
constexpr const char* {{ class_name }}::kLabelsFile;
{% endif %}

tensorflow::Status {{ class_name }}::Load(const std::string& path, {% if model.encrypted %}const std::uint8_t* key, {% endif %}std::unique_ptr<{{ class_name }}>* loaded) {
  std::unique_ptr<{{ class_name }}> model(new {{ class_name }}());
  tensorflow::GraphDef graph;
  tensorflow::SessionOptions options;
{% if model.threads is not none %}
  options.config.set_intra_op_parallelism_threads({{ model.threads }});
  // The threads work inside ops; the ops themselves run one after another.
  options.config.set_inter_op_parallelism_threads(1);
{% endif %}
{% if model.artifact == "memmapped" %}
  model->env_.reset(new tensorflow::MemmappedEnv(tensorflow::Env::Default()));
  TF_RETURN_IF_ERROR(model->env_->InitializeFromFile(path));
  TF_RETURN_IF_ERROR(tensorflow::ReadBinaryProto(
      model->env_.get(), tensorflow::MemmappedFileSystem::kMemmappedPackageDefaultGraphDef, &graph));
  // The optimizations would read all constants at once.
  options.config.mutable_graph_options()->mutable_optimizer_options()->set_opt_level(
      tensorflow::OptimizerOptions::L0);
  options.env = model->env_.get();
{% elif model.encrypted and model.artifact == "text" %}
  std::string encrypted, text;
  TF_RETURN_IF_ERROR(tensorflow::ReadFileToString(tensorflow::Env::Default(), path, &encrypted));
  TF_RETURN_IF_ERROR(DecryptModel(encrypted, key, &text));
  if (!tensorflow::protobuf::TextFormat::ParseFromString(text, &graph)) {
    return tensorflow::errors::DataLoss(path, " holds no graph");
  }
{% elif model.encrypted %}
  TF_RETURN_IF_ERROR(ReadEncryptedProto(path, key, &graph));
{% elif model.artifact == "text" %}
  TF_RETURN_IF_ERROR(tensorflow::ReadTextProto(tensorflow::Env::Default(), path, &graph));
{% else %}
  TF_RETURN_IF_ERROR(tensorflow::ReadBinaryProto(tensorflow::Env::Default(), path, &graph));
{% endif %}
  tensorflow::Session* session = nullptr;
  TF_RETURN_IF_ERROR(tensorflow::NewSession(options, &session));
  model->session_.reset(session);
  TF_RETURN_IF_ERROR(session->Create(graph));
{% if model.init_ops %}
  // Fills the tables that the model looks up in.
  TF_RETURN_IF_ERROR(session->Run({}, {}, {
{%- for name in model.init_ops %}{{ name | c }}{% if not loop.last %}, {% endif %}{% endfor %}
}, nullptr));
{% endif %}
  *loaded = std::move(model);
  return tensorflow::Status();
}

tensorflow::Status {{ class_name }}::Run(
{%- for named in inputs %}const tensorflow::Tensor& {{ named.snake }}, {% endfor %}
{% for named in outputs %}tensorflow::Tensor* {{ named.snake }}{% if not loop.last %}, {% endif %}{% endfor %}
) const {
{% for named in inputs %}
{% if named.tensor.shape is none %}
  TF_RETURN_IF_ERROR(CheckInput({{ named.snake }}, tensorflow::{{ named.enum }},
                                tensorflow::PartialTensorShape(), {{ named.tensor.name | c }}));
{% else %}
  TF_RETURN_IF_ERROR(CheckInput({{ named.snake }}, tensorflow::{{ named.enum }},
                                {% if named.tensor.shape %}tensorflow::PartialTensorShape({ {{- named.tensor.shape | dims -}} }){% else %}tensorflow::PartialTensorShape(tensorflow::TensorShapeProto()){% endif %}, {{ named.tensor.name | c }}));
{% endif %}
{% endfor %}
  std::vector<tensorflow::Tensor> fetched;
  TF_RETURN_IF_ERROR(session_->Run({
{%- for named in inputs %}{ {{- named.tensor.name | c }}, {{ named.snake -}} }{% if not loop.last %}, {% endif %}{% endfor %}
}, {
{%- for named in outputs %}{{ named.tensor.name | c }}{% if not loop.last %}, {% endif %}{% endfor %}
}, {}, &fetched));
{% for named in outputs %}
  *{{ named.snake }} = fetched[{{ loop.index0 }}];
{% endfor %}
  return tensorflow::Status();
}
{% if picture %}

tensorflow::Tensor {{ class_name }}::Picture(const std::uint8_t* rgb, int height, int width) {
  tensorflow::Tensor picture(tensorflow::{{ picture.enum }},
                             tensorflow::TensorShape({ {%- if picture.tensor.shape is none or picture.tensor.shape | length != 3 %}1, {% endif %}height, width, {{ channels | length -}} }));
  {{ picture.cpp }}* values = picture.flat<{{ picture.cpp }}>().data();
  const std::int64_t pixels = static_cast<std::int64_t>(height) * width;
  for (std::int64_t i = 0; i < pixels; ++i, rgb += 3) {
{% if pictures.channels == "grayscale" %}
    const float luminance = std::floor(0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2] + 0.5f);
{% endif %}
{% for channel in channels %}
{% if picture.tensor.dtype.name == "FLOAT" %}
    *values++ = ({{ channel.cpp }} - {{ channel.mean | float }}) / {{ channel.std | float }};
{% else %}
    *values++ = static_cast<tensorflow::uint8>(
        std::max(0.0f, std::min(255.0f, std::nearbyint(({{ channel.cpp }} - {{ channel.mean | float }}) / {{ channel.std | float }}))));
{% endif %}
{% endfor %}
  }
  return picture;
}
{% endif %}
{% if model.labels %}

tensorflow::Status {{ class_name }}::ReadLabels(const std::string& path, std::vector<std::string>* labels) {
  std::string text;
  TF_RETURN_IF_ERROR(tensorflow::ReadFileToString(tensorflow::Env::Default(), path, &text));
  labels->clear();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) labels->push_back(line);
  return tensorflow::Status();
}
{% endif %}

{% for name in namespaces | reverse %}
}  // namespace {{ name }}
{% endfor %}

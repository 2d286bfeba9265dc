// LiteRT's interface in C, as far as the code for apps calls it. A model with one input and one output
// of integers, whose output is what was fed. It prints the model's bytes when it runs.
#include <cstdio>
#include <cstring>
#include <string>

#include "tensorflow/lite/c/c_api.h"

struct TfLiteModel {
  const void* data;
  size_t size;
};
struct TfLiteInterpreter {
  const TfLiteModel* model;
};
struct TfLiteInterpreterOptions {};
struct TfLiteTensor {
  std::string content;
};

namespace {
TfLiteTensor tensor;
}

extern "C" {
TfLiteQuantizationParams TfLiteTensorQuantizationParams(const TfLiteTensor*) { return {0.5f, 100}; }
TfLiteModel* TfLiteModelCreate(const void* data, size_t size) { return new TfLiteModel{data, size}; }
TfLiteModel* TfLiteModelCreateFromFile(const char*) { return new TfLiteModel{"", 0}; }
void TfLiteModelDelete(TfLiteModel* model) { delete model; }
TfLiteInterpreterOptions* TfLiteInterpreterOptionsCreate() { return new TfLiteInterpreterOptions; }
void TfLiteInterpreterOptionsDelete(TfLiteInterpreterOptions* options) { delete options; }
void TfLiteInterpreterOptionsSetNumThreads(TfLiteInterpreterOptions*, int32_t) {}
TfLiteInterpreter* TfLiteInterpreterCreate(const TfLiteModel* model,
                                           const TfLiteInterpreterOptions*) {
  return new TfLiteInterpreter{model};
}
void TfLiteInterpreterDelete(TfLiteInterpreter* interpreter) { delete interpreter; }
TfLiteTensor* TfLiteInterpreterGetInputTensor(const TfLiteInterpreter*, int32_t) { return &tensor; }
TfLiteStatus TfLiteInterpreterResizeInputTensor(TfLiteInterpreter*, int32_t, const int*, int32_t) {
  return kTfLiteOk;
}
TfLiteStatus TfLiteInterpreterAllocateTensors(TfLiteInterpreter*) { return kTfLiteOk; }
TfLiteStatus TfLiteInterpreterInvoke(TfLiteInterpreter* interpreter) {
  const auto* bytes = static_cast<const unsigned char*>(interpreter->model->data);
  std::printf("model ");
  for (size_t i = 0; i < interpreter->model->size; ++i) std::printf("%02x", bytes[i]);
  std::printf("\n");
  return kTfLiteOk;
}
const TfLiteTensor* TfLiteInterpreterGetOutputTensor(const TfLiteInterpreter*, int32_t) {
  return &tensor;
}
size_t TfLiteTensorByteSize(const TfLiteTensor* given) { return given->content.size(); }
TfLiteStatus TfLiteTensorCopyFromBuffer(TfLiteTensor* given, const void* data, size_t size) {
  given->content.assign(static_cast<const char*>(data), size);
  return kTfLiteOk;
}
TfLiteStatus TfLiteTensorCopyToBuffer(const TfLiteTensor* given, void* data, size_t size) {
  std::memcpy(data, given->content.data(), size);
  return kTfLiteOk;
}
}

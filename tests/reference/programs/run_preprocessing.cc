// Compares a graph that decodes its input with the generated code for the cut graph.
//   run_preprocessing SOURCE CONTENTS OUTPUT MODEL [FILE RAW SIZE SIZE RATE]...
// CONTENTS and OUTPUT are tensors of SOURCE. RAW has the decoded pixels or 16-bit samples of FILE;
// the sizes are height and width, or frames and channels. Prints five best indices of both, a line
// each, and the largest difference of a score.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>

#include "PreparedModel.h"
#include "tensorflow/core/platform/env.h"

extern "C" {
int _Py_CheckRecursionLimit = 1000;  // the one symbol that newer Pythons no longer have
}
using mobileprep::model::PreparedModel;
using tensorflow::Tensor;

static void check(const tensorflow::Status& status) {
  if (status.ok()) return;
  std::cerr << status.ToString() << "\n";
  std::exit(1);
}

static std::string content(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

static std::vector<float> scores(const Tensor& tensor) {
  const auto flat = tensor.flat<float>();
  return std::vector<float>(flat.data(), flat.data() + flat.size());
}

int main(int argc, char** argv) {
  tensorflow::GraphDef graph;
  check(tensorflow::ReadBinaryProto(tensorflow::Env::Default(), argv[1], &graph));
  std::unique_ptr<tensorflow::Session> session(tensorflow::NewSession({}));
  check(session->Create(graph));
  std::unique_ptr<PreparedModel> model;
  check(PreparedModel::Load(argv[4], &model));
  float largest = 0;
  for (int i = 5; i + 4 < argc; i += 5) {
    Tensor encoded(tensorflow::DT_STRING, {});
    encoded.scalar<std::string>()() = content(argv[i]);
    std::vector<Tensor> fetched;
    check(session->Run({{argv[2], encoded}}, {argv[3]}, {}, &fetched));
    const std::string raw = content(argv[i + 1]);
    const int first = std::atoi(argv[i + 2]), second = std::atoi(argv[i + 3]);
    Tensor output;
#ifdef SOUND
    Tensor rate(tensorflow::DT_INT32, {});
    rate.scalar<int>()() = std::atoi(argv[i + 4]);
    const auto values = PreparedModel::Preprocess(
        reinterpret_cast<const std::int16_t*>(raw.data()), first, second);
    check(model->Run(values, rate, &output));
#else
    const auto values = PreparedModel::Preprocess(
        reinterpret_cast<const std::uint8_t*>(raw.data()), first, second);
    check(model->Run(values, &output));
#endif
    const auto before = scores(fetched[0]), after = scores(output);
    for (const auto& each : {before, after}) {
      for (const int index : PreparedModel::TopK(each, 5)) std::cout << index << " ";
      std::cout << "\n";
    }
    for (std::size_t k = 0; k < before.size(); ++k) {
      largest = std::max(largest, std::abs(before[k] - after[k]));
    }
  }
  std::cout << largest << "\n";
}

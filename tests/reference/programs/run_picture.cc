// Runs the code for an app once on a picture.
//   run_picture MODEL LABELS HEIGHT WIDTH RGB OUTPUT [KEY]
// RGB holds bytes of red, green and blue; the output's float32 values go to OUTPUT, and the number
// of labels to standard output. Where ENCRYPTED is defined, KEY is a file of the key's bytes.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>

#include "PreparedModel.h"

extern "C" {
int _Py_CheckRecursionLimit = 1000;  // the one symbol that newer Pythons no longer have
}
using mobileprep::model::PreparedModel;

static void check(const tensorflow::Status& status) {
  if (status.ok()) return;
  std::cerr << status.ToString() << "\n";
  std::exit(1);
}

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  std::unique_ptr<PreparedModel> model;
#ifdef ENCRYPTED
  std::ifstream key_file(argv[7], std::ios::binary);
  const std::vector<char> key((std::istreambuf_iterator<char>(key_file)), {});
  check(PreparedModel::Load(argv[1], reinterpret_cast<const std::uint8_t*>(key.data()), &model));
#else
  check(PreparedModel::Load(argv[1], &model));
#endif
  std::vector<std::string> labels;
  check(PreparedModel::ReadLabels(argv[2], &labels));
  std::ifstream file(argv[5], std::ios::binary);
  const std::vector<char> rgb((std::istreambuf_iterator<char>(file)), {});
  const auto picture = PreparedModel::Image(reinterpret_cast<const std::uint8_t*>(rgb.data()),
                                              std::atoi(argv[3]), std::atoi(argv[4]));
  tensorflow::Tensor output;
  check(model->Run(picture, &output));
  const auto bytes = output.tensor_data();
  std::ofstream(argv[6], std::ios::binary).write(bytes.data(), bytes.size());
  std::cout << labels.size() << "\n";
}

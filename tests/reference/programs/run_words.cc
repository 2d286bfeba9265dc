// Runs the code for an app once on words.
//   run_words MODEL KEY WORD...
// KEY is a file of the key's bytes, read where ENCRYPTED is defined. Prints the values of each
// output on a line: int64 numbers, or float32 numbers with nine digits.
#include <cstdlib>
#include <fstream>
#include <iomanip>
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

template <typename T>
static void print(const tensorflow::Tensor& tensor) {
  const auto values = tensor.flat<T>();
  for (int i = 0; i < values.size(); ++i) std::cout << values(i) << " ";
  std::cout << "\n";
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::unique_ptr<PreparedModel> model;
#ifdef ENCRYPTED
  std::ifstream key_file(argv[2], std::ios::binary);
  const std::vector<char> key((std::istreambuf_iterator<char>(key_file)), {});
  check(PreparedModel::Load(argv[1], reinterpret_cast<const std::uint8_t*>(key.data()), &model));
#else
  check(PreparedModel::Load(argv[1], &model));
#endif
  tensorflow::Tensor words(tensorflow::DT_STRING, tensorflow::TensorShape({argc - 3}));
  for (int i = 3; i < argc; ++i) words.flat<std::string>()(i - 3) = argv[i];
  tensorflow::Tensor scores, ids, code, city;
  check(model->Run(words, &scores, &ids, &code, &city));
  std::cout << std::setprecision(9);
  print<float>(scores);
  print<tensorflow::int64>(ids);
  print<tensorflow::int64>(code);
  print<std::string>(city);
}

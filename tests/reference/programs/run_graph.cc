// Runs a frozen or memory-mapped graph once in TensorFlow 1.15's own runtime.
//   run_graph GRAPH.pb FOLDER [memmapped]   < lines of "feed NAME TYPE DIMS", "fetch NAME", and "ops"
// Feed number i is read from FOLDER/feed_i, little-endian, a text as it is; DIMS are "2,3" or "-" for a scalar.
// Fetch number i is written to FOLDER/fetch_i; a line for each tells its type and dimensions. After
// "ops", the last line lists the ops of the graph that ran, without Grappler, which no app has.
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tensorflow/core/public/session.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/util/memmapped_file_system.h"

extern "C" {
int _Py_CheckRecursionLimit = 1000;  // the one symbol that newer Pythons no longer have
}
using namespace tensorflow;

static void check(const Status& status) {
  if (status.ok()) return;
  std::cerr << status.ToString() << "\n";
  std::exit(1);
}

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  const std::string folder = argv[2];
  GraphDef graph;
  SessionOptions options;
  MemmappedEnv mapped(Env::Default());
  if (argc == 4) {
    check(mapped.InitializeFromFile(argv[1]));
    check(ReadBinaryProto(&mapped, MemmappedFileSystem::kMemmappedPackageDefaultGraphDef, &graph));
    // As the guide to memory mapping asks: constants that are folded are copied into memory.
    options.config.mutable_graph_options()->mutable_optimizer_options()->set_opt_level(
        OptimizerOptions::L0);
    options.env = &mapped;
  } else {
    check(ReadBinaryProto(Env::Default(), argv[1], &graph));
  }
  std::vector<std::pair<string, Tensor>> feeds;
  std::vector<string> fetches;
  RunOptions run;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::stringstream words(line);
    std::string kind, name, dims, size;
    int type = 0;
    words >> kind >> name;
    if (kind == "ops") {
      run.set_output_partition_graphs(true);
      continue;
    }
    if (kind == "fetch") {
      fetches.push_back(name);
      continue;
    }
    words >> type >> dims;
    TensorShape shape;
    std::stringstream listed(dims == "-" ? "" : dims);
    while (std::getline(listed, size, ',')) shape.AddDim(std::stoll(size));
    Tensor tensor(static_cast<DataType>(type), shape);
    std::ifstream file(folder + "/feed_" + std::to_string(feeds.size()), std::ios::binary);
    if (tensor.dtype() == DT_STRING) {
      std::stringstream whole;
      whole << file.rdbuf();
      tensor.flat<string>()(0) = whole.str();
      feeds.emplace_back(name, tensor);
      continue;
    }
    const auto bytes = tensor.tensor_data();
    file.read(const_cast<char*>(bytes.data()), bytes.size());
    feeds.emplace_back(name, tensor);
  }
  if (run.output_partition_graphs())
    options.config.mutable_graph_options()->mutable_rewrite_options()->set_disable_meta_optimizer(true);
  std::unique_ptr<Session> session(NewSession(options));
  check(session->Create(graph));
  std::vector<Tensor> outputs;
  RunMetadata metadata;
  check(session->Run(run, feeds, fetches, {}, &outputs, &metadata));
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::ofstream file(folder + "/fetch_" + std::to_string(i), std::ios::binary);
    const auto bytes = outputs[i].tensor_data();
    file.write(bytes.data(), bytes.size());
    std::cout << outputs[i].dtype();
    for (int d = 0; d < outputs[i].dims(); ++d) std::cout << " " << outputs[i].dim_size(d);
    std::cout << "\n";
  }
  std::set<std::string> ops;
  for (const auto& part : metadata.partition_graphs())
    for (const auto& node : part.node()) ops.insert(node.op());
  for (const auto& op : ops) std::cout << op << " ";
  if (!ops.empty()) std::cout << "\n";
}

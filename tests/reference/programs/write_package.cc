// Writes a package of regions with TensorFlow 1.15's own MemmappedFileSystemWriter.
//   write_package CONSTANTS.pb GRAPH.pb OUT   < lines of "NODE REGION"
// The tensors are those of the Const nodes named, in the order of the lines; the graph is taken
// as it stands.
#include <iostream>
#include <map>
#include <string>

#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/util/memmapped_file_system.h"
#include "tensorflow/core/util/memmapped_file_system_writer.h"

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
  if (argc != 4) return 2;
  GraphDef constants, graph;
  check(ReadBinaryProto(Env::Default(), argv[1], &constants));
  check(ReadBinaryProto(Env::Default(), argv[2], &graph));
  std::map<std::string, const NodeDef*> by_name;
  for (const NodeDef& node : constants.node()) by_name[node.name()] = &node;
  MemmappedFileSystemWriter writer;
  check(writer.InitializeToFile(Env::Default(), argv[3]));
  std::string name, region;
  while (std::cin >> name >> region) {
    Tensor tensor;
    if (!tensor.FromProto(by_name.at(name)->attr().at("value").tensor())) return 3;
    check(writer.SaveTensor(tensor, region));
  }
  check(writer.SaveProtobuf(graph, MemmappedFileSystem::kMemmappedPackageDefaultGraphDef));
  check(writer.FlushAndClose());
}

// Prints the memory of the process while TensorFlow 1.15 loads and runs a frozen graph:
//   load_memory MODEL memmapped|frozen INPUT OUTPUT DIMS
// Each line has the name of a phase, and the anonymous memory after it and the most resident
// memory during it, in bytes above those before the phase "read".
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/public/session.h"
#include "tensorflow/core/util/memmapped_file_system.h"

extern "C" { int _Py_CheckRecursionLimit = 1000; }

using namespace tensorflow;

#define CHECKED(e) do { Status s_ = (e); if (!s_.ok()) { std::cerr << s_.ToString() << "\n"; return 1; } } while (0)

static long Status_(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.compare(0, key.size(), key) == 0) return std::stol(line.substr(key.size() + 1)) * 1024;
  return 0;
}

static long base_anon, base_rss;

static void Report(const char* phase) {
  std::cout << phase << " " << Status_("RssAnon") - base_anon << " " << Status_("VmHWM") - base_rss << "\n";
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts again at the present size
}

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const bool memmapped = std::string(argv[2]) == "memmapped";
  MemmappedEnv env(Env::Default());
  SessionOptions options;
  options.config.set_inter_op_parallelism_threads(1);
  options.config.set_intra_op_parallelism_threads(1);
  // As on Android, where Grappler is not compiled. Folding would copy mapped constants.
  if (memmapped)
    options.config.mutable_graph_options()->mutable_optimizer_options()->set_opt_level(OptimizerOptions::L0);
  options.config.mutable_graph_options()->mutable_rewrite_options()->set_disable_meta_optimizer(true);
  TensorShape shape;
  std::stringstream dims(argv[5]);
  for (std::string size; std::getline(dims, size, ',');) shape.AddDim(std::stoll(size));
  Session* session;
  { // Start the runtime itself.
    GraphDef empty;
    CHECKED(NewSession(options, &session));
    CHECKED(session->Create(empty));
    delete session;
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  base_anon = Status_("RssAnon");
  base_rss = Status_("VmRSS");
  {
    GraphDef graph;
    if (memmapped) {
      CHECKED(env.InitializeFromFile(argv[1]));
      CHECKED(ReadBinaryProto(&env, MemmappedFileSystem::kMemmappedPackageDefaultGraphDef, &graph));
      options.env = &env;
    } else {
      CHECKED(ReadBinaryProto(Env::Default(), argv[1], &graph));
    }
    Report("parse");
    CHECKED(NewSession(options, &session));
    CHECKED(session->Create(graph));
    Report("create");
  }
  Report("free");
  Tensor input(DT_FLOAT, shape);
  input.flat<float>().setZero();
  for (const char* phase : {"first", "second"}) {
    std::vector<Tensor> outputs;
    CHECKED(session->Run({{argv[3], input}}, {argv[4]}, {}, &outputs));
    Report(phase);
  }
}

// Runs a frozen graph in TensorFlow 1.15, and prints the tables of its StatSummarizer.
//   profile GRAPH.pb INPUT DIMS OUTPUT RUNS
// The input is filled with zeros of float32; DIMS are "1,8,8,1".
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tensorflow/core/public/session.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/util/stat_summarizer.h"

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
  if (argc != 6) return 2;
  GraphDef graph;
  check(ReadBinaryProto(Env::Default(), argv[1], &graph));
  TensorShape shape;
  std::stringstream listed(argv[3]);
  for (std::string size; std::getline(listed, size, ',');) shape.AddDim(std::stoll(size));
  Tensor input(DT_FLOAT, shape);
  input.flat<float>().setZero();
  SessionOptions options;
  options.config.set_intra_op_parallelism_threads(1);
  options.config.set_inter_op_parallelism_threads(1);
  std::unique_ptr<Session> session(NewSession(options));
  check(session->Create(graph));
  StatSummarizer summarizer{StatSummarizerOptions()};
  for (int i = -1; i < std::stoi(argv[5]); ++i) {
    RunOptions run;
    run.set_trace_level(RunOptions::FULL_TRACE);
    RunMetadata metadata;
    std::vector<Tensor> outputs;
    check(session->Run(run, {{argv[2], input}}, {argv[4]}, {}, &outputs, &metadata));
    if (i >= 0) summarizer.ProcessStepStats(metadata.step_stats());  // the first run warms up
  }
  summarizer.PrintStepStats();
}

#include "tools/bench_startup.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/cpuset.h"
#include "launcher/launch_line.h"
#include "launcher/topology.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/train/token_writer.h"
#include "tools/figures.h"

namespace fs = std::filesystem;

namespace tessera {
namespace {

constexpr std::uint32_t kVocabulary = 64;
constexpr std::uint32_t kTokens = 4096;

class Workplace {
 public:
  Workplace() {
    std::string pattern = (fs::temp_directory_path() / "tessera-bench-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw DeviceError(fmt::format("bench startup: cannot make {}", pattern));
    path_ = pattern;
    TokenFileWriter tokens(path_ / "tokens.bin", kVocabulary);
    std::vector<std::uint32_t> ids(kTokens);
    for (std::uint32_t i = 0; i < kTokens; ++i) ids[i] = (i * i + 7 * i) % kVocabulary;
    tokens.append(ids);
    tokens.finish();
    std::ofstream(path_ / "job.yaml") << fmt::format(
        "run: {{name: startup, steps: 1}}\n"
        "model: {{num_layers: 2, num_heads: 4, hidden_size: 32, seq_len: 16, vocab_size: {}}}\n"
        "data: {{train: [{}]}}\n"
        "batch: {{global_batch_size: 8, micro_batch_size: 2}}\n"
        "device: {{threads: 1}}\n",
        kVocabulary, (path_ / "tokens.bin").string());
  }
  ~Workplace() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  std::string job() const { return (path_ / "job.yaml").string(); }
  fs::path run() const { return path_ / "run"; }
  // Runs a line, its output out of the way; throws with that output where it fails.
  void shell(const std::string& line) const {
    const fs::path output = path_ / "output";
    const int status = std::system(fmt::format("{} > {} 2>&1 < /dev/null", line, output.string()).c_str());
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    std::ifstream file(output);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    throw DeviceError(fmt::format("bench startup: '{}' failed: {}", line, text));
  }

 private:
  fs::path path_;
};

fs::path this_program() {
  return fs::read_symlink("/proc/self/exe");
}

// Beside the program in a build, in libexec where it is installed.
fs::path empty_program() {
  const fs::path here = this_program().parent_path();
  for (const fs::path& candidate :
       {here / "tessera_empty_mpi", here / TESSERA_LIBEXEC_FROM_BIN / "tessera_empty_mpi"}) {
    if (fs::exists(candidate)) return candidate;
  }
  throw InternalError(fmt::format("bench startup: tessera_empty_mpi is not beside {}", this_program().string()));
}

// Unix time at which the first step ended, as the run recorded it.
double end_of_first_step(const fs::path& run) {
  std::ifstream metrics(run / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const nlohmann::json event = nlohmann::json::parse(line);
    if (!event.contains("kind") && event.at("step") == 1) return event.at("time").get<double>();
  }
  throw InternalError("bench startup: the run recorded no first step");
}

}  // namespace

int run_bench_startup(const BenchStartupOptions& options) {
  const Workplace workplace;
  LaunchRequest request;
  request.num_ranks = options.num_ranks;
  request.program = this_program().string();
  request.config = workplace.job();
  request.arguments = {"--run-dir", workplace.run().string()};
  LaunchFacts facts;
  facts.mpirun = find_mpirun();
  facts.num_cores = load_topology("live").num_cores_of(current_cpuset());
  facts.is_root = ::geteuid() == 0;
  const LaunchLine job = compose_launch(request, facts);
  LaunchLine empty = job;
  empty.arguments.erase(std::find(empty.arguments.begin(), empty.arguments.end(), request.program),
                        empty.arguments.end());
  empty.arguments.push_back(empty_program().string());

  double to_first_step = std::numeric_limits<double>::infinity();
  double to_end = to_first_step, to_end_of_empty = to_first_step;
  for (int run = 0; run < options.runs; ++run) {
    const double empty_started = monotonic_seconds();
    workplace.shell(empty.str());
    to_end_of_empty = std::min(to_end_of_empty, monotonic_seconds() - empty_started);
    fs::remove_all(workplace.run());
    const double job_started = monotonic_seconds(), started_at = unix_seconds();
    workplace.shell(job.str());
    to_end = std::min(to_end, monotonic_seconds() - job_started);
    to_first_step = std::min(to_first_step, end_of_first_step(workplace.run()) - started_at);
  }
  const std::string baseline = "empty MPI program, mpirun to end";
  const std::vector<Figure> figures = {
      {fmt::format("model T, {} ranks: mpirun to the end of step 1", options.num_ranks), to_first_step, "s", baseline,
       to_end_of_empty},
      {fmt::format("model T, {} ranks: mpirun to the end of a run of one step", options.num_ranks), to_end, "s",
       baseline, to_end_of_empty},
  };
  std::fputs((options.json ? figures_json(figures) : figures_text(figures)).c_str(), stdout);
  if (!options.json)
    std::fputs(fmt::format("added to an empty MPI program: {:.3f} s\n", to_end - to_end_of_empty).c_str(), stdout);
  return 0;
}

}  // namespace tessera

#include "tools/launch_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/cpuset.h"
#include "launcher/hostfile.h"
#include "launcher/launch_line.h"
#include "launcher/rank_list.h"
#include "launcher/supervisor.h"
#include "launcher/topology.h"
#include "launcher/wrong_start.h"
#include "runtime/base/error.h"
#include "runtime/config/load.h"
#include "tools/help_command.h"
#include "tools/train_command.h"

namespace tessera {
namespace {

struct LaunchOptions {
  int num_ranks = 0;           // 0: not given
  std::string ranks_per_node;  // a number or auto
  std::string num_nodes;       // K or MIN:K
  LaunchRequest request;
  TrainOptions train;
  bool dry_run = false;
  int max_restarts = 0;
  std::string tee;
};

std::string this_program() {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : "tessera";
}

// A whole number of at least 1.
std::optional<int> parse_count(std::string_view text) {
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
  return whole && value >= 1 ? std::optional(value) : std::nullopt;
}

void parse_nodes(const std::string& text, LaunchRequest& request) {
  const auto colon = text.find(':');
  const auto most = parse_count(std::string_view(text).substr(colon == std::string::npos ? 0 : colon + 1));
  const auto least =
      colon == std::string::npos ? std::optional(1) : parse_count(std::string_view(text).substr(0, colon));
  if (!most || !least || *least > *most)
    throw ConfigError(fmt::format("launch: --nnodes '{}' is neither a number of hosts, at least 1, nor MIN:MAX", text));
  request.num_nodes = *most;
  if (colon != std::string::npos) request.min_nodes = least;
}

LaunchRequest make_request(const LaunchOptions& options) {
  LaunchRequest request = options.request;
  if (options.num_ranks > 0) request.num_ranks = options.num_ranks;
  if (options.ranks_per_node == "auto") {
    request.rank_per_core = true;
  } else if (!options.ranks_per_node.empty()) {
    const auto value = parse_count(options.ranks_per_node);
    if (!value) {
      throw ConfigError(fmt::format("launch: --nproc-per-node '{}' is neither a number of ranks, at least 1, nor auto",
                                    options.ranks_per_node));
    }
    request.ranks_per_node = value;
  }
  if (!options.num_nodes.empty()) parse_nodes(options.num_nodes, request);
  request.program = this_program();
  request.config = options.train.config;
  for (const std::string& entry : options.train.overrides)
    request.arguments.insert(request.arguments.end(), {"--set", entry});
  if (!options.train.run_directory.empty()) {
    request.arguments.insert(request.arguments.end(), {"--run-dir", options.train.run_directory});
  }
  if (!options.train.resume.empty())
    request.arguments.insert(request.arguments.end(), {"--resume", options.train.resume});
  for (const std::string& key : options.train.allowed_changes)
    request.arguments.insert(request.arguments.end(), {"--allow-change", key});
  // mpirun hides the terminal from the ranks; whoever sees it has to say so.
  // Lines of other ranks and a bar would write over each other.
  const bool bar = options.train.progress == "auto" && options.tee.empty() && ::isatty(STDOUT_FILENO) == 1;
  const std::string progress = bar ? "bar" : options.train.progress;
  if (progress != "auto") request.arguments.insert(request.arguments.end(), {"--progress", progress});
  return request;
}

// Of both, mpirun takes the hosts of the file that the list names.
std::vector<Host> named_hosts(const LaunchRequest& request) {
  std::vector<Host> listed = parse_host_list(request.host);
  if (request.hostfile.empty()) return listed;
  std::vector<Host> hosts = read_hostfile(request.hostfile);
  if (request.host.empty()) return hosts;
  std::erase_if(hosts, [&](const Host& host) {
    return std::ranges::none_of(listed, [&](const Host& each) { return each.name == host.name; });
  });
  return hosts;
}

LaunchFacts find_facts(const LaunchRequest& request) {
  LaunchFacts facts;
  facts.mpirun = find_mpirun();
  facts.num_cores = std::max(1, load_topology("live").num_cores_of(current_cpuset()));
  facts.hosts = named_hosts(request);
  facts.is_root = ::geteuid() == 0;
  facts.mapping_in_environment = mapping_in_environment();
  return facts;
}

// What a restart and --tee need to know of the job. What is wrong with it the ranks say, and leave with 2.
void read_job(const TrainOptions& options, Supervision& supervision) {
  try {
    const JobConfig config = load_config(options.config, options.overrides);
    supervision.run_directory = options.run_directory.empty() ? "runs/" + config.run.name : options.run_directory;
    supervision.resume = options.resume.empty() ? config.checkpoint.resume : options.resume;
    supervision.job = config;
  } catch (const ConfigError&) {
    supervision.resume = "auto";
  }
}

int launch(const LaunchOptions& options) {
  if (const auto wrong = find_wrong_start()) {
    if (wrong->first) std::cerr << wrong->line << "\n";
    return static_cast<int>(ExitCode::kUsage);
  }
  Supervision supervision{.request = make_request(options), .max_restarts = options.max_restarts};
  supervision.facts = find_facts(supervision.request);
  const LaunchLine line = compose_launch(supervision.request, supervision.facts);
  if (!options.tee.empty()) supervision.tee = parse_rank_list("--tee", options.tee, line.num_ranks);
  for (const std::string& warning : line.warnings) std::cerr << "warning: " << warning << "\n";
  if (options.dry_run) {
    std::cout << line.str() << "\n";
    return 0;
  }
  read_job(options.train, supervision);
  return supervise(supervision);
}

}  // namespace

void add_launch_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("launch", "start a job's ranks with mpirun: binding, quiet output, signals, restarts");
  command->footer(
      "tessera launch -n 2 configs/quickstart.yaml\n"
      "tessera launch --nproc-per-node auto job.yaml --set run.steps=100\n"
      "tessera launch --nnodes 2 --nproc-per-node 8 --hostfile hosts --max-restarts 3 job.yaml");
  auto options = std::make_shared<LaunchOptions>();
  command->add_option("-n", options->num_ranks, "ranks in all; default 1")
      ->option_text("N")
      ->check(CLI::PositiveNumber);
  command->add_option("--nproc-per-node", options->ranks_per_node, "ranks per host; auto: one per core")
      ->option_text("N|auto");
  command->add_option("--nnodes", options->num_nodes, "hosts; MIN:MAX: fewer will do")->option_text("K");
  command->add_option("--hostfile", options->request.hostfile, "hosts, one a line")->option_text("FILE");
  command->add_option("--host", options->request.host, "hosts, e.g. a:8,b:8; passed to mpirun")->option_text("LIST");
  command->add_option("--map-by", options->request.map_by, "your mapping; also --rank-by, --bind-to")
      ->option_text("POLICY");
  command->add_option("--bind-to", options->request.bind_to, "your binding")->option_text("POLICY")->group(kUnlisted);
  command->add_option("--rank-by", options->request.rank_by, "your ranking")->option_text("POLICY")->group(kUnlisted);
  command
      ->add_option("--max-restarts", options->max_restarts, "starts after a crash, from the last good step; default 0")
      ->option_text("K")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--tee", options->tee, "show the log lines of these ranks: 0,3 or 0-3 or all")
      ->option_text("RANKS");
  command->add_flag("--dry-run", options->dry_run, "print the mpirun line and start nothing");
  add_train_options(*command, options->train);
  command->callback([options, &exit_code] { exit_code = launch(*options); });
}

}  // namespace tessera

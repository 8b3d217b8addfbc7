#include "launcher/launch_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr int kOldestMajor = 4;
// More ranks on a core are a slip of the finger, and mpirun would take the machine down before it says so.
constexpr std::int64_t kMostRanksPerCore = 128;
constexpr std::int64_t kMostRanks = 1000000;

// The first words of the policies that mpirun of Open MPI 4 and 5 knows (mpirun(1)), before any ":" of a modifier.
constexpr std::array kPlaces = {"slot",    "hwthread", "core", "l1cache", "l2cache", "l3cache",
                                "package", "socket",   "numa", "board",   "node"};
constexpr std::array kMapOnly = {"seq", "dist", "ppr", "rankfile", "pe-list"};
constexpr std::array kBindOnly = {"none", "cpu-list"};
constexpr std::array kRankOnly = {"fill", "span"};

// mpirun --quiet does not say what it disliked, and its exit code is that of a lost rank. Like mpirun, takes any beginning of a name in any case;
// modifiers behind a colon, which differ from release to release, are left to it.
template <std::size_t N>
void check_policy(const char* option, const std::string& policy, const std::array<const char*, N>& more) {
  std::string word = policy.substr(0, policy.find(':'));
  if (word.empty()) return;  // none given, or modifiers alone
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char letter) { return std::tolower(letter); });
  std::vector<std::string> known(kPlaces.begin(), kPlaces.end());
  known.insert(known.end(), more.begin(), more.end());
  if (std::any_of(known.begin(), known.end(), [&](const std::string& name) { return name.starts_with(word); })) return;
  throw ConfigError(fmt::format("launch: {} {}: mpirun knows no such policy", option, policy),
                    fmt::format("one of {}", fmt::join(known, ", ")));
}

int nodes_of(const LaunchRequest& request, const LaunchFacts& facts) {
  const auto named = static_cast<int>(facts.hosts.size());
  if (named == 0 || request.num_nodes <= named) return request.num_nodes;
  if (request.min_nodes.value_or(request.num_nodes) <= named) return named;
  throw ConfigError(fmt::format("launch: --nnodes {}{}, and {} names {} host{}",
                                request.min_nodes ? fmt::format("{}:", *request.min_nodes) : "", request.num_nodes,
                                request.hostfile.empty() ? "--host" : request.hostfile, named, named == 1 ? "" : "s"));
}

int ranks_of(const LaunchRequest& request, const LaunchFacts& facts) {
  const int num_nodes = nodes_of(request, facts);
  const bool per_node = request.ranks_per_node.has_value() || request.rank_per_core;
  if (request.num_ranks && per_node) {
    throw ConfigError("launch: -n and --nproc-per-node both say how many ranks", "one of them");
  }
  if (request.num_ranks && request.num_nodes != 1) {
    throw ConfigError(fmt::format("launch: -n {} counts all ranks, and --nnodes {} goes with --nproc-per-node",
                                  *request.num_ranks, request.num_nodes),
                      "--nproc-per-node N --nnodes K");
  }
  if (request.num_ranks) return *request.num_ranks;
  const int per_host = request.rank_per_core ? facts.num_cores : request.ranks_per_node.value_or(1);
  const std::int64_t ranks = std::int64_t{per_host} * num_nodes;
  if (ranks > kMostRanks) {
    throw ConfigError(fmt::format("launch: {} ranks on each of {} hosts are {}, expected at most {}", per_host,
                                  num_nodes, ranks, kMostRanks));
  }
  return static_cast<int>(ranks);
}

bool plain(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
         std::string("-_./:=,+@%").find(letter) != std::string::npos;
}

std::string quoted(const std::string& word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

}  // namespace

MpirunVersion parse_mpirun_version(const std::string& output) {
  const std::string mark = "(Open MPI) ";
  const std::string first = output.substr(0, output.find('\n'));
  const auto at = first.find(mark);
  if (at == std::string::npos) return {0, first.empty() ? "not found" : first};
  const std::string number = first.substr(at + mark.size());
  return {std::atoi(number.c_str()), "Open MPI " + number};
}

MpirunVersion find_mpirun() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen("mpirun --version 2>/dev/null", "r"), &::pclose);
  std::string output;
  std::array<char, 256> part{};
  while (pipe && std::fgets(part.data(), part.size(), pipe.get()) != nullptr) output += part.data();
  return parse_mpirun_version(output);
}

std::string LaunchLine::str() const {
  std::string text;
  if (!environment.empty()) text += "env ";
  for (const auto& [name, value] : environment) text += fmt::format("{}={} ", name, quoted(value));
  for (const std::string& argument : arguments) text += quoted(argument) + " ";
  if (!text.empty()) text.pop_back();
  return text;
}

LaunchLine compose_launch(const LaunchRequest& request, const LaunchFacts& facts) {
  if (facts.mpirun.major < kOldestMajor) {
    throw ConfigError(
        fmt::format("launch: mpirun is '{}', and Open MPI {} or newer is needed", facts.mpirun.text, kOldestMajor),
        "install openmpi-bin, or put its mpirun first in PATH");
  }
  check_policy("--map-by", request.map_by, kMapOnly);
  check_policy("--bind-to", request.bind_to, kBindOnly);
  check_policy("--rank-by", request.rank_by, kRankOnly);
  const bool newer = facts.mpirun.major > kOldestMajor;
  LaunchLine line;
  line.num_ranks = ranks_of(request, facts);
  const int num_nodes = nodes_of(request, facts);
  if (facts.is_root) {
    line.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
    if (newer) {
      line.environment.insert(line.environment.end(),
                              {{"PRTE_ALLOW_RUN_AS_ROOT", "1"}, {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
    }
  }
  auto add = [&line](std::initializer_list<std::string> words) { line.arguments.insert(line.arguments.end(), words); };
  add({"mpirun", "--quiet", "-n", fmt::format("{}", line.num_ranks)});
  if (!request.hostfile.empty()) add({"--hostfile", request.hostfile});
  if (!request.host.empty()) add({"--host", request.host});

  // With hosts of unknown size mpirun decides by itself what is too much.
  const bool one_host = request.hostfile.empty() && request.host.empty() && num_nodes == 1;
  line.one_host = one_host;
  const std::optional<int> capacity = one_host ? std::optional<int>(facts.num_cores) : count_slots(facts.hosts);
  const std::int64_t most = one_host ? std::min(kMostRanks, kMostRanksPerCore * facts.num_cores) : kMostRanks;
  if (line.num_ranks > most) {
    throw ConfigError(fmt::format(
        "launch: {} ranks, expected at most {}{}", line.num_ranks, most,
        one_host ? fmt::format(" on {} {}", facts.num_cores, facts.num_cores == 1 ? "core" : "cores") : ""));
  }
  const bool oversubscribed = capacity && line.num_ranks > *capacity;
  if (oversubscribed) {
    line.warnings.push_back(fmt::format("launch: {} ranks on {} {}: they share them, and each is slower for it",
                                        line.num_ranks, *capacity, one_host ? "cores" : "slots"));
  }

  std::string mapping = request.map_by;
  if (mapping.empty() && num_nodes > 1) mapping = fmt::format("ppr:{}:node", line.num_ranks / num_nodes);
  if (newer && oversubscribed) mapping += ":OVERSUBSCRIBE";
  if (!mapping.empty()) add({"--map-by", mapping});
  if (!request.rank_by.empty()) add({"--rank-by", request.rank_by});
  const bool mapped_by_user = !request.map_by.empty() || !request.rank_by.empty() || facts.mapping_in_environment;
  if (!request.bind_to.empty()) {
    add({"--bind-to", request.bind_to});
  } else if (!mapped_by_user) {
    // The ranks of a host then share its cores out among themselves, threads included, which mpirun knows nothing of.
    add({"--bind-to", "none"});
  }
  if (!newer && oversubscribed) add({"--oversubscribe"});
  add({request.program, "train", request.config});
  line.arguments.insert(line.arguments.end(), request.arguments.begin(), request.arguments.end());
  return line;
}

bool mapping_in_environment() {
  static constexpr std::array kNames = {
      "OMPI_MCA_rmaps_base_mapping_policy",    "OMPI_MCA_rmaps_base_ranking_policy",
      "OMPI_MCA_hwloc_base_binding_policy",    "OMPI_MCA_rmaps_default_mapping_policy",
      "PRTE_MCA_rmaps_default_mapping_policy", "PRTE_MCA_rmaps_default_ranking_policy",
      "PRTE_MCA_hwloc_default_binding_policy", "OMPI_MCA_orte_rankfile"};
  return std::any_of(kNames.begin(), kNames.end(), [](const char* name) { return std::getenv(name) != nullptr; });
}

}  // namespace tessera

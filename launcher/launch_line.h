// The mpirun line of `tessera launch`: composed from plain facts, printed by --dry-run.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/hostfile.h"

namespace tessera {

// Which mpirun the PATH finds. The lines of Open MPI 4 and 5 differ in how oversubscription is allowed.
struct MpirunVersion {
  int major = 0;                   // 0: none found, or not Open MPI
  std::string text = "not found";  // "Open MPI 4.1.4"
  friend bool operator==(const MpirunVersion&, const MpirunVersion&) = default;
};
// The first line of `mpirun --version`, read.
MpirunVersion parse_mpirun_version(const std::string& output);
// Runs `mpirun --version`.
MpirunVersion find_mpirun();

// What the user asked for.
struct LaunchRequest {
  std::optional<int> num_ranks;       // -n
  std::optional<int> ranks_per_node;  // --nproc-per-node N
  bool rank_per_core = false;         // --nproc-per-node auto
  int num_nodes = 1;                  // --nnodes
  std::optional<int> min_nodes;       // --nnodes MIN:MAX: fewer will do, where no more are named, or left
  std::string hostfile;
  // The user's own mapping, passed on as it is.
  std::string host, map_by, bind_to, rank_by;
  std::string program;  // this program
  std::string config;
  std::vector<std::string> arguments;  // of `tessera train`, after CONFIG
};

// What is so where the line is composed.
struct LaunchFacts {
  MpirunVersion mpirun;
  int num_cores = 1;        // that this process may use
  std::vector<Host> hosts;  // that --hostfile or --host names
  bool is_root = false;
  bool mapping_in_environment = false;  // an MCA variable sets a mapping or a binding
};

struct LaunchLine {
  std::vector<std::pair<std::string, std::string>> environment;  // to set in addition
  std::vector<std::string> arguments;                            // mpirun first
  std::vector<std::string> warnings;
  int num_ranks = 1;
  bool one_host = true;  // this one, with all ranks

  // As one types it in a shell: "env NAME=VALUE … mpirun …", words quoted where they must be.
  std::string str() const;
};

// ConfigError where the request contradicts itself, asks for a policy that mpirun does not know, for more ranks than
// can be meant or more hosts than are named, or mpirun is not Open MPI 4 or newer.
LaunchLine compose_launch(const LaunchRequest& request, const LaunchFacts& facts);

// Whether an environment variable of Open MPI or PRRTE sets mapping or binding.
bool mapping_in_environment();

}  // namespace tessera

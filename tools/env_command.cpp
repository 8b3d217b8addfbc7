#include "tools/env_command.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "launcher/cpuset.h"
#include "launcher/launch_line.h"
#include "launcher/mpi_session.h"
#include "launcher/topology.h"
#include "launcher/version.h"
#include "runtime/ops/isa.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const auto colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::string operating_system() {
  std::ifstream release("/etc/os-release");
  std::string name = "Linux";
  for (std::string line; std::getline(release, line);) {
    if (!line.starts_with("PRETTY_NAME=")) continue;
    name = line.substr(line.find('=') + 1);
    std::erase(name, '"');
  }
  utsname system{};
  if (::uname(&system) == 0) name += fmt::format(", kernel {}", system.release);
  return name;
}

struct SharedMemory {
  std::uint64_t size = 0, available = 0;
};

SharedMemory shared_memory() {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return {};
  return {static_cast<std::uint64_t>(info.f_blocks) * info.f_frsize,
          static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize};
}

std::string gibibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1ULL << 30U));
}

struct Row {
  std::string key, text;
  OrderedJson value;
};

std::vector<Row> rows() {
  const Topology machine = load_topology("live");
  const std::vector<int> cpuset = current_cpuset();
  const SharedMemory shm = shared_memory();
  const MpirunVersion mpirun = find_mpirun();
  const std::uint64_t memory =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::string cores = fmt::format("{} cores, {} PUs, packages {}, NUMA nodes {}", machine.cores.size(),
                                        machine.pus().size(), machine.num_packages, machine.num_numa_nodes);
  const std::string mpi = fmt::format("{} (MPI {})", mpi_library(), mpi_standard());
  const std::string compiled = fmt::format("{}, {}", compiler(), build_type());
  const std::string gpu = "none (built without CUDA)";
  return {
      {"tessera", version(), version()},
      {"compiler", compiled, compiled},
      {"mpi", mpi, mpi},
      {"mpirun", mpirun.text, mpirun.text},
      {"pmix", pmix_library(), pmix_library()},
      {"hwloc", hwloc_version(), hwloc_version()},
      {"matmul", std::string(matmul_library()), std::string(matmul_library())},
      {"host", host_name(), host_name()},
      {"system", operating_system(), operating_system()},
      {"processor", processor_name(), processor_name()},
      {"isa", std::string(name_of(detect_isa())), std::string(name_of(detect_isa()))},
      {"cores", cores, machine.cores.size()},
      {"cpuset", fmt::format("{} ({} cores)", cpuset_text(cpuset), machine.num_cores_of(cpuset)), cpuset},
      {"memory", gibibytes(memory), memory},
      {"dev_shm", fmt::format("{}, {} free", gibibytes(shm.size), gibibytes(shm.available)), shm.size},
      {"gpu", gpu, gpu},
  };
}

}  // namespace

void add_env_command(CLI::App& app, int& exit_code) {
  CLI::App* env = app.add_subcommand("env", "versions, processors, memory: what a bug report needs");
  env->footer("tessera env\ntessera env --json");
  auto json = std::make_shared<bool>(false);
  env->add_flag("--json", *json, "one JSON object");
  env->callback([json, &exit_code] {
    OrderedJson object;
    for (const Row& row : rows()) {
      if (*json) {
        object[row.key] = row.value;
      } else {
        std::cout << fmt::format("{:<10} {}\n", row.key, row.text);
      }
    }
    if (*json) std::cout << object.dump(2) << "\n";
    exit_code = 0;
  });
}

}  // namespace tessera

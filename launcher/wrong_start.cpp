#include "launcher/wrong_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace tessera {
namespace {

// How a launcher tells a process how many there are and which one it is, and what the user should have typed.
struct Launcher {
  const char* size;
  const char* rank;
  const char* hint;
};

constexpr std::array kLaunchers = {
    Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun --mpi=pmix, or mpirun"},
    Launcher{"PMI_SIZE", "PMI_RANK", "mpirun of Open MPI, or tessera launch"},
    Launcher{"WORLD_SIZE", "RANK", "mpirun, or tessera launch"},
};

// Any of these and MPI_Init will find its peers.
constexpr std::array kFound = {"PMIX_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"};

const char* environment(const char* name) {
  return std::getenv(name);
}

}  // namespace

std::optional<WrongStart> find_wrong_start(const std::function<const char*(const char*)>& lookup) {
  if (std::any_of(kFound.begin(), kFound.end(), [&](const char* name) { return lookup(name) != nullptr; }))
    return std::nullopt;
  for (const Launcher& launcher : kLaunchers) {
    const char* size = lookup(launcher.size);
    const int num_tasks = size == nullptr ? 0 : std::atoi(size);
    if (num_tasks <= 1) continue;
    const char* rank = lookup(launcher.rank);
    return WrongStart{rank == nullptr || std::atoi(rank) == 0,
                      fmt::format("launch: {} tasks but no PMIx; hint: {}", num_tasks, launcher.hint)};
  }
  return std::nullopt;
}

std::optional<WrongStart> find_wrong_start() {
  return find_wrong_start(environment);
}

bool is_first_task(const std::function<const char*(const char*)>& lookup) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    if (const char* rank = lookup(name); rank != nullptr) return std::atoi(rank) == 0;
  }
  const auto wrong = find_wrong_start(lookup);
  return !wrong || wrong->first;
}

bool is_first_task() {
  return is_first_task(environment);
}

}  // namespace tessera
